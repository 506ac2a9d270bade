//! `export-safetensors MODEL OUT`: the large tensors of a model as safetensors files.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::edit::ExternalizeOptions;
use onnx_container::safetensors::{ExportOptions, Exported};
use onnx_container::{ByteSize, Container, SaveOptions};
use serde::Serialize;

use crate::args::{ExportArgs, is_url};
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::model::{place, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy, tidy};
use crate::terminal::progress;

impl Execute for ExportArgs {
    fn name(&self) -> &'static str {
        "export-safetensors"
    }

    fn json(&self) -> bool {
        self.out.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Exports, and prints a report.
fn run(args: &ExportArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut container = place::load(&args.model, reading::of(&args.out.read))?;
    let moving = ExternalizeOptions::new().min_bytes(args.min_bytes);
    save::warn(&container);
    container.externalize(moving.all_tensors(args.all_tensors))?;
    let save = SaveOptions::new()
        .sync(!args.out.no_sync)
        .direct_io(!args.no_direct_io)
        .overwrite(!args.out.no_clobber)
        .protect(Some(&args.model).filter(|model| !is_url(model)));
    let exported = progress::shown(save, &args.output, |save| {
        let plain = ExportOptions::from(save).padding(args.padding);
        let shards = args.max_shard_size.into_iter();
        let options = shards.fold(plain, ExportOptions::max_shard_bytes);
        container.export_safetensors(&args.output, options)
    })?;
    save::print_warnings(&exported.warnings);
    let report = ExportReport::new(args, &container, exported);
    if args.out.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

/// What was written.
#[derive(Debug, Serialize)]
struct ExportReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    /// The index comes last.
    files: Vec<Written>,
    bytes: u64,
    tensors: usize,
    /// Tensors whose type readers do not have: stored as bytes.
    as_bytes: Vec<String>,
    /// Tensors that share the entry of another.
    tied: Vec<Tied>,
    /// Entries whose name differs from their tensor's, because another tensor has that name.
    renamed: Vec<Renamed>,
    /// Tensors that are inline in the model, and in no file.
    left_out: Vec<String>,
    /// The options that would export these.
    #[serde(skip)]
    hint: &'static str,
    left_behind: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Written {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Tied {
    tensor: String,
    entry: String,
}

#[derive(Debug, Serialize)]
struct Renamed {
    entry: String,
    tensor: String,
}

impl Renamed {
    fn new((entry, tensor): (String, String)) -> Self {
        Self { entry, tensor }
    }
}

/// The options that would export inline tensors and were not given.
fn hint(args: &ExportArgs) -> &'static str {
    match (args.min_bytes > 0, args.all_tensors) {
        (true, false) => "; see --min-bytes and --all-tensors",
        (true, true) => "; see --min-bytes",
        (false, false) => "; see --all-tensors",
        (false, true) => ": strings, and attributes without elements",
    }
}

impl<'a> ExportReport<'a> {
    fn new(args: &'a ExportArgs, container: &Container, exported: Exported) -> Self {
        let folder = args.output.parent().unwrap_or(Path::new(""));
        let files = exported.files.into_iter();
        let tied = exported.tied.into_iter();
        let left = exported.left_behind.iter();
        let warned = container.warnings().iter().chain(&exported.warnings);
        let noted = leftovers::warnings([args.model.as_path()]);
        let warnings = warned.map(ToString::to_string).chain(noted).collect();
        Self {
            command: "export-safetensors",
            input: &args.model,
            files: files
                .map(|file| Written { path: folder.join(&file.name), bytes: file.bytes })
                .collect(),
            bytes: exported.bytes,
            tensors: exported.tensors,
            as_bytes: exported.as_bytes,
            tied: tied.map(|(tensor, entry)| Tied { tensor, entry }).collect(),
            renamed: exported.renamed.into_iter().map(Renamed::new).collect(),
            left_out: exported.left_out,
            hint: hint(args),
            left_behind: left.map(|path| tidy(path).display().to_string()).collect(),
            warnings,
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let (tensors, files) = (count(self.tensors, "tensor"), count(self.files.len(), "file"));
        out.row("wrote", format_args!("{tensors} to {files} ({})", ByteSize(self.bytes)))?;
        for file in &self.files {
            out.line(format_args!("{:>12}  {}", file.bytes, file.path.display()))?;
        }
        self.print_changed(out)?;
        self.print_left(out)
    }

    /// Prints how the files differ from the model.
    fn print_changed(&self, out: &mut Output) -> io::Result<()> {
        if !self.tied.is_empty() {
            let tied = count(self.tied.len(), "tensor");
            out.row("tied", format_args!("{tied} to entries of other names"))?;
        }
        if !self.renamed.is_empty() {
            let names = count(self.renamed.len(), "name");
            out.row(
                "renamed",
                format_args!("{names} of entries, because another tensor has the name"),
            )?;
            let line = |named: &Renamed| format!("{:>14}{}: {}", "", named.entry, named.tensor);
            save::short(self.renamed.iter().map(line), out)?;
        }
        if !self.as_bytes.is_empty() {
            let entries = count(self.as_bytes.len(), "tensor");
            out.row("as bytes", format_args!("{entries} of types that readers do not know"))?;
        }
        Ok(())
    }

    /// Prints what was not written, and what was not replaced.
    fn print_left(&self, out: &mut Output) -> io::Result<()> {
        let line = |name: &String| format!("{:>14}{name}", "");
        if !self.left_out.is_empty() {
            let tensors = count(self.left_out.len(), "tensor");
            out.row("left out", format_args!("{tensors} inline in the model{}", self.hint))?;
            save::short(self.left_out.iter().map(line), out)?;
        }
        if !self.left_behind.is_empty() {
            let files = count(self.left_behind.len(), "file");
            out.row("left", format_args!("{files} of an earlier export"))?;
            self.left_behind.iter().map(line).try_for_each(|line| out.line(line))?;
        }
        Ok(())
    }
}
