//! `extract MODEL NAME...`: tensors to files of their own.
//!
//! Everything is checked before anything is written, and each file is written beside its target and
//! renamed. Elements are written without a copy.

mod file_names;
mod target;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use glob::Pattern;
use onnx_container::{
    ByteSize, Container, Error, ErrorKind, SaveOptions, Tensor, TensorIndex, TensorRef,
};
use onnx_container_files::targets::{refusal, refusals};
use serde::Serialize;

use crate::args::{ExtractArgs, FileFormat, is_url};
use crate::commands::Execute;
use crate::commands::extract::file_names::FileNames;
use crate::commands::extract::target::ExtractTarget;
use crate::commands::leftovers;
use crate::files::staged::Staged;
use crate::files::tensor_file::{SUFFIXES, safetensors};
use crate::model::{needed, place, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::names;
use crate::terminal::output::{Output, count, lossy};
use crate::terminal::{progress, stop};

/// How often, on average, each byte of the files may be written, and how many bytes are written
/// however often.
const MOST_USES: u64 = 8;
const FEW_BYTES: u64 = 1 << 28;

impl Execute for ExtractArgs {
    fn name(&self) -> &'static str {
        "extract"
    }

    fn json(&self) -> bool {
        self.out.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Writes the tensors and prints a report.
fn run(args: &ExtractArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let names = asked(args)?;
    let (container, own) = load(args)?;
    let index = container.index();
    let found = named(&index, &names)?;
    let several = found.len() > 1;
    let target = ExtractTarget::of(args, several)?;
    let format = format(args, several, &target)?;
    let warnings = container.warnings().iter().map(ToString::to_string).collect();
    let job = ExtractJob { args, format, tensors: elements(found)?, own, warnings };
    match target {
        ExtractTarget::Stdout => job.print(out),
        ExtractTarget::File(path) if format == FileFormat::Safetensors => job.export(&path, out),
        ExtractTarget::File(path) => job.write(vec![path], out),
        ExtractTarget::Directory(folder) => {
            let mut names = FileNames::new(format.suffix());
            let each = job.tensors.iter().map(|(name, _)| folder.join(names.name(name)));
            let paths = each.collect();
            job.refuse_out_of_proportion()?;
            fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
            job.write(paths, out)
        }
    }
}

/// The pattern that `name` is: one with `*` or `?`. Brackets, which names have, stand for
/// themselves.
fn glob(name: &str) -> Option<Pattern> {
    let is_pattern = name.contains(['*', '?']);
    is_pattern.then(|| Pattern::new(&name.replace('[', "[[]")).ok()).flatten()
}

/// The names that were asked for.
fn asked(args: &ExtractArgs) -> Result<Vec<String>, Failure> {
    let Some(file) = &args.names_from else { return Ok(args.names.clone()) };
    let names = names::from_file(file)?;
    if names.is_empty() {
        return Err(Failure::Refused(format!("`{}` has no names in it", file.display())));
    }
    Ok(names)
}

/// The model, and every file that is read: its own files, and the list of names.
fn load(args: &ExtractArgs) -> Result<(Container, Vec<PathBuf>), Failure> {
    let reading = reading::of(&args.out.read);
    // One after the other, so that the model is not in memory twice.
    let mut own = needed::files(&args.model, reading)?;
    let container = place::load(&args.model, reading)?;
    own.extend(args.names_from.as_ref().and_then(|path| path.canonicalize().ok()));
    save::warn(&container);
    Ok((container, own))
}

/// The format that was asked for, or the one that the suffix of the target names.
fn format(
    args: &ExtractArgs,
    several: bool,
    target: &ExtractTarget,
) -> Result<FileFormat, Failure> {
    let by_name = match target {
        ExtractTarget::File(path) => FileFormat::of(path),
        ExtractTarget::Directory(_) | ExtractTarget::Stdout => Some(FileFormat::Npy),
    };
    let Some(format) = args.format.or(by_name) else {
        let path = args.output.display();
        return Err(Failure::Usage(format!(
            "the suffix of `{path}` is not one of {SUFFIXES}: give --format, or `{path}/` for a folder"
        )));
    };
    let is_file = matches!(target, ExtractTarget::File(_));
    let reason = if args.codes && format != FileFormat::Npy {
        "--codes is for npy only: the other formats have every type"
    } else if format == FileFormat::Safetensors && !is_file {
        "a safetensors file holds all tensors: -o NAME.safetensors"
    } else if format != FileFormat::Safetensors && is_file && several {
        "only one tensor can be written to this file; for several use -o DIR/ or -o NAME.safetensors"
    } else {
        return Ok(format);
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// The tensors that were asked for, each once, by the first name that was given: of what is a
/// pattern and the name of a tensor, this tensor.
fn named<'i, 'c>(
    index: &'i TensorIndex<'c>,
    names: &'i [String],
) -> Result<Vec<(Cow<'i, str>, &'i TensorRef<'c>)>, Error> {
    let (mut tensors, mut seen, mut errors) = (Vec::new(), HashSet::new(), Vec::new());
    let mut add = |name: Cow<'i, str>, tensor: &'i TensorRef<'c>| {
        if seen.insert(tensor.place().position) {
            tensors.push((name, tensor));
        }
    };
    for name in names {
        let error = match names::tensor(index, name) {
            Ok((name, tensor)) => {
                add(name, tensor);
                continue;
            }
            Err(error) => error,
        };
        let glob = glob(name);
        let is_meant = |own: &str| glob.as_ref().is_some_and(|glob| glob.matches(own));
        let mut meant = index.iter().filter(|tensor| is_meant(tensor.name())).peekable();
        if meant.peek().is_none() {
            errors.push(error);
        }
        meant.for_each(|tensor| add(tensor.name().into(), tensor));
    }
    Error::join(errors).map_or(Ok(tensors), Err)
}

/// The tensors with their elements, or one error for all that cannot be read.
fn elements<'n>(
    named: Vec<(Cow<'n, str>, &TensorRef<'_>)>,
) -> Result<Vec<(Cow<'n, str>, Tensor)>, Error> {
    let (mut tensors, mut errors) = (Vec::new(), Vec::new());
    for (name, tensor) in named {
        match tensor.tensor() {
            Ok(tensor) => tensors.push((name, tensor)),
            Err(error) => errors.push(error),
        }
    }
    Error::join(errors).map_or(Ok(tensors), Err)
}

/// What is to be written, and how.
struct ExtractJob<'a> {
    args: &'a ExtractArgs,
    format: FileFormat,
    tensors: Vec<(Cow<'a, str>, Tensor)>,
    /// The files that are read.
    own: Vec<PathBuf>,
    /// The warnings from loading the model.
    warnings: Vec<String>,
}

impl ExtractJob<'_> {
    /// Writes the tensors to standard output.
    fn print(&self, out: &mut Output) -> Result<Outcome, Failure> {
        for (name, tensor) in &self.tensors {
            let written = self.format.write(name, tensor, self.args.codes, out);
            written.map_err(|e| e.with_tensor(&**name).with_path("standard output"))?;
        }
        Ok(Outcome::Done)
    }

    /// Writes each tensor to its path: all of them or none, unless a rename fails.
    fn write(&self, paths: Vec<PathBuf>, out: &mut Output) -> Result<Outcome, Failure> {
        let no_clobber = self.args.out.no_clobber;
        refusals(paths.iter().map(PathBuf::as_path), &self.own, no_clobber)?;
        let written = self.tensors.iter().zip(&paths);
        let extracted = written.map(|((name, tensor), path)| Extracted::new(name, tensor, path));
        let extracted: Vec<_> = extracted.collect();
        match self.stage_all(paths).and_then(|staged| publish(staged, no_clobber)) {
            Ok(()) => stop::written(were_written(extracted.len())),
            Err(error) => return Err(stop::unwritten(error).into()),
        }
        self.report(extracted, BTreeMap::new(), &[], out)
    }

    /// Refuses tensors that overlap, or are one, so often that much more would be written than the
    /// files have.
    fn refuse_out_of_proportion(&self) -> Result<(), Error> {
        let lengths = self.tensors.iter().map(|(_, tensor)| tensor.byte_len());
        let written = lengths.fold(0, usize::saturating_add);
        let written = u64::try_from(written).unwrap_or(u64::MAX);
        if written <= FEW_BYTES {
            return Ok(());
        }
        let there = self.own_bytes()?;
        if written <= there.saturating_mul(MOST_USES) {
            return Ok(());
        }
        let reason = format!(
            "tensors overlap: {} of files would be written as {}: give fewer names at a time",
            ByteSize(there),
            ByteSize(written)
        );
        Err(Error::new(ErrorKind::TooLarge, reason))
    }

    /// The length of the files that are read.
    fn own_bytes(&self) -> Result<u64, Error> {
        if !is_url(&self.args.model) {
            let lengths = self.own.iter().filter_map(|path| Some(path.metadata().ok()?.len()));
            return Ok(lengths.fold(0, u64::saturating_add));
        }
        let (_, needed) = needed::needed(&self.args.model, reading::of(&self.args.out.read))?;
        let lengths = needed.files.iter().filter_map(|file| *file.len.as_ref().ok()?);
        Ok(lengths.fold(needed.model_len()?, u64::saturating_add))
    }

    /// Writes all tensors to one safetensors file.
    fn export(&self, path: &Path, out: &mut Output) -> Result<Outcome, Failure> {
        if let Some(error) = refusal(path, &self.own, self.args.out.no_clobber) {
            return Err(error.into());
        }
        let options = SaveOptions::new()
            .sync(!self.args.out.no_sync)
            .overwrite(!self.args.out.no_clobber)
            .protect(&self.own);
        let exported = progress::shown(options, path, |options| {
            safetensors::write(path, &self.tensors, options)
        })?;
        save::print_warnings(&exported.warnings);
        let tensors = self.tensors.iter().map(|(name, tensor)| Extracted::new(name, tensor, path));
        self.report(tensors.collect(), exported.tied, &exported.warnings, out)
    }

    fn report(
        &self,
        tensors: Vec<Extracted<'_>>,
        tied: BTreeMap<String, String>,
        warnings: &[Error],
        out: &mut Output,
    ) -> Result<Outcome, Failure> {
        let warnings =
            self.warnings.iter().cloned().chain(warnings.iter().map(ToString::to_string));
        let model = &self.args.model;
        let warnings = warnings.chain(leftovers::warnings([model.as_path()])).collect();
        let report = ExtractReport { command: "extract", model, tensors, tied, warnings };
        if self.args.out.json {
            out.json(&report)?;
        } else {
            report.print(out)?;
        }
        Ok(Outcome::Done)
    }

    /// Writes each tensor beside its path; nothing is left of them when one fails.
    fn stage_all(&self, paths: Vec<PathBuf>) -> Result<Vec<Staged>, Error> {
        let tensors = self.tensors.iter().zip(paths);
        tensors.map(|((name, tensor), path)| self.stage(name, tensor, path)).collect()
    }

    fn stage(&self, name: &str, tensor: &Tensor, path: PathBuf) -> Result<Staged, Error> {
        if !stop::goes_on() {
            return Err(stop::cancelled());
        }
        let args = self.args;
        let write = |file: &mut dyn Write| self.format.write(name, tensor, args.codes, file);
        let staged = Staged::new(path, !args.out.no_sync, write);
        if stop::goes_on() {
            staged.map_err(|error| error.with_tensor(name))
        } else {
            Err(stop::cancelled())
        }
    }
}

fn were_written(files: usize) -> String {
    format!("{} {} written", count(files, "file"), if files == 1 { "was" } else { "were" })
}

/// Renames all files to their targets.
fn publish(staged: Vec<Staged>, no_clobber: bool) -> Result<(), Error> {
    staged.into_iter().try_for_each(|file| file.publish(no_clobber))
}

#[derive(Debug, Serialize)]
struct ExtractReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    tensors: Vec<Extracted<'a>>,
    /// Tensors without an entry of their own, and the entry that has their bytes.
    tied: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl ExtractReport<'_> {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        self.tensors.iter().try_for_each(|tensor| tensor.print(out))?;
        let tied = self.tied.iter();
        tied.map(|(name, entry)| format!("tied      {name}: its bytes are those of {entry}"))
            .try_for_each(|line| out.line(line))
    }
}

/// A tensor that was written.
#[derive(Debug, Serialize)]
struct Extracted<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: Vec<i64>,
    /// In the model.
    bytes: u64,
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
}

impl<'a> Extracted<'a> {
    fn new(name: &'a str, tensor: &Tensor, path: &Path) -> Self {
        Self {
            name,
            dtype: tensor.dtype().name(),
            shape: tensor.dims().to_vec(),
            bytes: u64::try_from(tensor.byte_len()).unwrap_or(u64::MAX),
            path: path.to_path_buf(),
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { name, dtype, shape, bytes, path } = self;
        let (path, bytes) = (path.display(), ByteSize(*bytes));
        out.row("wrote", format_args!("{path}: {name}, {dtype} {shape:?} ({bytes})"))
    }
}
