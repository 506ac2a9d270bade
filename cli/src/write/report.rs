//! What a write did, or would do, for people and as JSON.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::external_data::is_external;
use onnx_container::{Container, Externalized, Result, Saved, traversal};
use serde::Serialize;

use super::Job;
use super::import::Imported;
use super::verify::Verified;
use crate::output::{Output, count, human, lossy, tidy};

/// How many of a list are printed, unless a dry run asks for the whole plan.
pub const SHORT: usize = 5;

/// What was read.
#[derive(Debug, Serialize)]
pub struct Read {
    pub tensors: usize,
    pub external: usize,
    /// Bytes of the weights that were external, shared ones once.
    pub external_bytes: u64,
    pub mapped: bool,
}

impl Read {
    /// What `container` was loaded with.
    pub fn of(container: &Container, mapped: bool) -> Result<Self> {
        let (mut tensors, mut external) = (0, 0);
        traversal::tensors(container.model(), |_, tensor| {
            tensors += 1;
            external += usize::from(is_external(tensor));
            Ok(())
        })?;
        let lens = container.iter().map(|(_, initializer)| initializer.byte_len());
        let external_bytes = lens.fold(0, u64::saturating_add);
        Ok(Self { tensors, external, external_bytes, mapped })
    }
}

/// Everything that a write says.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    dry_run: bool,
    read: Read,
    /// What came from other weights than the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    imported: Option<Imported>,
    moved: Moved,
    kept: Vec<Kept>,
    /// Beside one another, the model last.
    files: Vec<Written>,
    bytes: u64,
    unused: Vec<String>,
    /// Free on the target's file system before, where it says.
    free_bytes: Option<u64>,
    left_behind: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

#[derive(Debug, Serialize)]
struct Moved {
    /// Out of the model file, or into it.
    direction: &'static str,
    tensors: usize,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Kept {
    tensor: String,
    bytes: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Written {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    bytes: u64,
}

impl<'a> Report<'a> {
    /// What `job` read, moved and wrote.
    pub fn new(
        job: &Job<'a>,
        container: &Container,
        read: Read,
        moved: Externalized,
        saved: &Saved,
        verified: Option<Verified>,
        imported: Option<Imported>,
    ) -> Self {
        let folder = job.output.parent().unwrap_or(Path::new(""));
        let written = saved.files.iter();
        Self {
            command: job.command,
            input: job.input,
            output: job.output,
            dry_run: job.args.dry_run,
            moved: Moved::of(job, &read, &moved),
            read,
            imported,
            kept: moved.kept.into_iter().map(Kept::from).collect(),
            files: written
                .map(|file| Written { path: folder.join(&file.name), bytes: file.bytes })
                .collect(),
            bytes: saved.bytes,
            free_bytes: saved.free_bytes,
            unused: saved.unused.iter().map(ToString::to_string).collect(),
            left_behind: saved
                .left_behind
                .iter()
                .map(|path| tidy(path).display().to_string())
                .collect(),
            warnings: container.warnings().iter().map(ToString::to_string).collect(),
            verified,
        }
    }

    /// Whether nothing was found to be wrong.
    pub fn is_well(&self) -> bool {
        self.verified.as_ref().is_none_or(|verified| verified.ok)
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.print_read(out)?;
        self.print_kept(out)?;
        self.print_files(out)?;
        self.print_left(out)?;
        if self.dry_run {
            self.print_dry_run(out)?;
        }
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }

    fn print_read(&self, out: &mut Output) -> io::Result<()> {
        let Read { tensors, external, external_bytes, mapped } = &self.read;
        let (tensors, input) = (count(*tensors, "tensor"), self.input.display());
        let (bytes, how) = (human(*external_bytes), if *mapped { "mapped" } else { "read" });
        out.line(format_args!(
            "read      {input}: {tensors}, {external} external ({bytes}, {how})"
        ))?;
        if let Some(imported) = &self.imported {
            imported.print(out)?;
        }
        let Moved { direction, tensors, bytes } = &self.moved;
        let (tensors, bytes) = (count(*tensors, "tensor"), human(*bytes));
        let tense = if self.dry_run { "moves" } else { "moved" };
        out.line(format_args!("{tense:<9} {tensors} ({bytes}) {direction}"))
    }

    fn print_kept(&self, out: &mut Output) -> io::Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let tensors = count(self.kept.len(), "large tensor");
        out.line(format_args!("kept      {tensors} inline"))?;
        let kept = self.kept.iter();
        self.list(
            kept.map(|kept| format!("{:>12}  {}: {}", kept.bytes, kept.tensor, kept.reason)),
            out,
        )
    }

    fn print_files(&self, out: &mut Output) -> io::Result<()> {
        let (files, bytes) = (count(self.files.len(), "file"), human(self.bytes));
        let tense = if self.dry_run { "writes" } else { "wrote" };
        out.line(format_args!("{tense:<9} {files} ({bytes})"))?;
        // The model comes first here: it is what one looks for.
        let files = self.files.iter().rev();
        self.list(files.map(|file| format!("{:>12}  {}", file.bytes, file.path.display())), out)
    }

    fn print_dry_run(&self, out: &mut Output) -> io::Result<()> {
        if let Some(free) = self.free_bytes.filter(|free| *free < self.bytes) {
            let (needed, free) = (human(self.bytes), human(free));
            out.line(format_args!("space     not enough: needs {needed}, {free} free"))?;
        }
        out.line("dry run   nothing was written")
    }

    fn print_left(&self, out: &mut Output) -> io::Result<()> {
        if !self.unused.is_empty() {
            out.line("unused    initializers that no tensor refers to; they were not written")?;
            self.list(self.unused.iter().map(|handle| format!("{:>14}{handle}", "")), out)?;
        }
        if !self.left_behind.is_empty() {
            let files = count(self.left_behind.len(), "file");
            out.line(format_args!("left      {files} that only the replaced model needed"))?;
            let left = self.left_behind.iter();
            self.list(left.map(|path| format!("{:>14}{path}", "")), out)?;
        }
        Ok(())
    }

    /// Prints the first few lines of a list; for a dry run all, since the plan is what is wanted.
    fn list(
        &self,
        lines: impl ExactSizeIterator<Item = String>,
        out: &mut Output,
    ) -> io::Result<()> {
        short(lines, if self.dry_run { usize::MAX } else { SHORT }, out)
    }
}

/// Prints at most `most` of `lines`, and how many more there are.
pub fn short(
    lines: impl ExactSizeIterator<Item = String>,
    most: usize,
    out: &mut Output,
) -> io::Result<()> {
    let more = lines.len().saturating_sub(most);
    for line in lines.take(most) {
        out.line(line)?;
    }
    if more > 0 { out.line(format_args!("{:>14}and {more} more", "")) } else { Ok(()) }
}

impl Moved {
    fn of(job: &Job<'_>, read: &Read, moved: &Externalized) -> Self {
        if job.moving.is_some() {
            return Self {
                direction: "out of the model",
                tensors: moved.moved,
                bytes: moved.moved_bytes,
            };
        }
        Self { direction: "into the model", tensors: read.external, bytes: read.external_bytes }
    }
}

impl From<onnx_container::Kept> for Kept {
    fn from(kept: onnx_container::Kept) -> Self {
        Self { tensor: kept.tensor, bytes: kept.bytes, reason: kept.reason.to_string() }
    }
}

impl Verified {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let (tensors, bytes) = (count(self.tensors, "tensor"), human(self.bytes));
        let how = if self.mapped { "mapped" } else { "read" };
        out.line(format_args!("verified  {tensors} ({bytes}, {how}) are the same bit for bit"))?;
        for problem in &self.problems {
            out.line(format_args!("problem   {problem}"))?;
        }
        let Some(check) = &self.check else { return Ok(()) };
        out.line(format_args!("checked   {check}"))?;
        let errors = check.findings.iter().take(check.errors);
        short(errors.map(|found| format!("{:>10}{found}", "")), usize::MAX, out)?;
        let advice = check.findings.iter().skip(check.errors);
        short(advice.map(|found| format!("{:>10}{found}", "")), SHORT, out)
    }
}
