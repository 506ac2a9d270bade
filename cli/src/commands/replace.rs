//! `replace MODEL NAME FILE -o OUT`: other elements for one tensor.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::edit::{Replaced, Tied};
use onnx_container::{ByteSize, Container, Error, ErrorKind, Saved, Tensor, WeightFiles};
use serde::Serialize;

use crate::args::{FileFormat, ReplaceArgs, TiedArg};
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::files::tensor_file::SUFFIXES;
use crate::model::save::Written;
use crate::model::vouched::Vouched;
use crate::model::{kept_name, needed, reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::names;
use crate::terminal::output::{Output, lossy};

impl Execute for ReplaceArgs {
    fn name(&self) -> &'static str {
        "replace"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Replaces, writes and prints a report.
fn run(args: &ReplaceArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.output, Some(&args.file))?;
    let format = format(args)?;
    let reading = reading::of(&args.read);
    let mut container = vouched::load(&args.model, reading, Vouched::from(&args.target))?;
    save::warn(&container);
    let (name, old) = {
        let index = container.index();
        let (name, old) = names::tensor(&index, &args.name)?;
        (name, old.tensor()?)
    };
    let in_file = |error: Error| error.with_tensor(&*name).with_path(&args.file);
    let (new, files) =
        format.read(&args.file, reading, &name, &old, args.codes).map_err(in_file)?;
    let tied = args.tied.map(Tied::from).unwrap_or_default();
    let replaced = container.replace(&name, new, tied).map_err(|e| refused(e, args))?;
    let before = weights_files(args)?;
    let saved = save(&container, replaced.inline, &files, args)?;
    let mut written = Written::new(&container, &args.output, &saved, &args.target);
    written.warn(leftovers::warnings([args.model.as_path()]));
    let joined = joined(before, &saved, args);
    written.warn(joined.clone());
    let report = ReplaceReport::new(args, &old, &replaced, written, joined);
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

/// Saves with the layout that was asked for. Where none was and only an inline tensor changed, all
/// weights stay in their files if they can. None of `files`, which were read, is replaced.
fn save(
    container: &Container,
    inline: bool,
    files: &[PathBuf],
    args: &ReplaceArgs,
) -> Result<Saved, Failure> {
    let packed = save::packed(&args.layout, &args.target).protect(files);
    let save_as = |layout| {
        let mut options = packed.clone().weight_files(layout);
        if layout == WeightFiles::Packed {
            let reading = reading::of(&args.read);
            options = kept_name::kept(options, &args.layout, &args.output, reading);
        }
        save::try_save(container, &args.output, options, &args.target)
    };
    let saved = if args.split {
        save_as(WeightFiles::PerTensor)
    } else if inline && !args.layout.is_given() {
        save::keeping_files(save_as)
    } else {
        save_as(args.layout.weight_files())
    };
    saved.map_err(|error| save::refused(error, &args.output, &args.target))
}

/// The number of weights files that the model refers to. Its graph alone is read for this.
fn weights_files(args: &ReplaceArgs) -> Result<usize, Error> {
    let (_, named) = needed::named(&args.model, reading::of(&args.read))?;
    Ok(named.files.len())
}

/// What to say where the weights were in `before` files and all went to one, which nobody asked
/// for.
fn joined(before: usize, saved: &Saved, args: &ReplaceArgs) -> Option<String> {
    let asked = args.split || args.layout.is_given();
    // The model is a file too.
    if asked || before < 2 || saved.files.len() != 2 || !saved.kept.is_empty() {
        return None;
    }
    Some(format!(
        "the weights of {before} files are in one now: --max-shard-size N or --split writes several"
    ))
}

/// The format that was asked for, or the one that the suffix of the file names.
fn format(args: &ReplaceArgs) -> Result<FileFormat, Failure> {
    let format = args.format.or_else(|| FileFormat::of(&args.file));
    format.ok_or_else(|| {
        let path = args.file.display();
        Failure::Usage(format!("the suffix of `{path}` is not one of {SUFFIXES}: give --format"))
    })
}

/// The failure for an `error` of the library, with the option that resolves it.
fn refused(error: Error, args: &ReplaceArgs) -> Failure {
    match error.kind() {
        ErrorKind::Tied => {
            let hint = "--tied all replaces all of them, --tied this leaves the others as they are";
            Failure::Hinted(error, hint.to_owned())
        }
        ErrorKind::DataType | ErrorKind::Shape => error.with_path(&args.file).into(),
        _ => error.into(),
    }
}

/// The report of a replacement.
#[derive(Debug, Serialize)]
struct ReplaceReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    tensor: &'a str,
    dtype: &'static str,
    shape: &'a [i64],
    tensor_bytes: u64,
    inline: bool,
    /// The tensors that shared the bytes.
    tied: &'a [String],
    /// Whether they changed as well.
    tied_replaced: bool,
    #[serde(flatten)]
    written: Written,
    /// That the weights of several files went to one.
    #[serde(skip)]
    joined: Option<String>,
}

impl<'a> ReplaceReport<'a> {
    fn new(
        args: &'a ReplaceArgs,
        old: &'a Tensor,
        replaced: &'a Replaced,
        written: Written,
        joined: Option<String>,
    ) -> Self {
        Self {
            command: "replace",
            input: &args.model,
            output: &args.output,
            file: &args.file,
            tensor: &replaced.tensor,
            dtype: old.dtype().name(),
            shape: old.dims(),
            tensor_bytes: replaced.bytes,
            inline: replaced.inline,
            tied: &replaced.tied,
            tied_replaced: args.tied == Some(TiedArg::All),
            written,
            joined,
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { tensor, dtype, shape, .. } = self;
        let (file, bytes) = (self.file.display(), ByteSize(self.tensor_bytes));
        let how = if self.inline { "inline" } else { "external" };
        let tense = self.written.tense("replaces", "replaced");
        out.row(tense, format_args!("{tensor}: {dtype} {shape:?} ({bytes}, {how}) by {file}"))?;
        let what = if self.tied_replaced { "replaced with it" } else { "not replaced" };
        for other in self.tied {
            out.row("tied", format_args!("{other}: {what}"))?;
        }
        self.written.print(out)?;
        self.joined.as_ref().map_or(Ok(()), |joined| out.row("joined", format_args!("{joined}")))
    }
}
