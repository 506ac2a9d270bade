//! What a write did, or would do, for people and as JSON.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::external_data::is_external;
use onnx_container::{Container, Externalized, Result, Saved, traversal};
use serde::Serialize;

use super::Job;
use super::verify::Verified;
use crate::output::{Output, count, human};

/// How many of a list are printed, unless a dry run asks for the whole plan.
const SHORT: usize = 5;

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
    input: &'a Path,
    output: &'a Path,
    dry_run: bool,
    read: Read,
    moved: Moved,
    kept: Vec<Kept>,
    /// Beside one another, the model last.
    files: Vec<Written>,
    bytes: u64,
    unused: Vec<String>,
    left_behind: Vec<PathBuf>,
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
    ) -> Self {
        let folder = job.args.output.parent().unwrap_or(Path::new(""));
        let written = saved.files.iter();
        Self {
            command: job.command,
            input: &job.args.input,
            output: &job.args.output,
            dry_run: job.args.dry_run,
            moved: Moved::of(job, &read, &moved),
            read,
            kept: moved.kept.into_iter().map(Kept::from).collect(),
            files: written
                .map(|file| Written { path: folder.join(&file.name), bytes: file.bytes })
                .collect(),
            bytes: saved.bytes,
            unused: saved.unused.iter().map(ToString::to_string).collect(),
            left_behind: saved.left_behind.clone(),
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
            out.line("dry run   nothing was written")?;
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
        let shown = if self.dry_run { self.kept.len() } else { SHORT };
        for Kept { tensor, bytes, reason } in self.kept.iter().take(shown) {
            out.line(format_args!("{bytes:>12}  {tensor}: {reason}"))?;
        }
        self.print_more(self.kept.len(), shown, out)
    }

    fn print_files(&self, out: &mut Output) -> io::Result<()> {
        let (files, bytes) = (count(self.files.len(), "file"), human(self.bytes));
        let tense = if self.dry_run { "writes" } else { "wrote" };
        out.line(format_args!("{tense:<9} {files} ({bytes})"))?;
        let shown = if self.dry_run { self.files.len() } else { SHORT };
        // The model comes first here: it is what one looks for.
        for Written { path, bytes } in self.files.iter().rev().take(shown) {
            out.line(format_args!("{bytes:>12}  {}", path.display()))?;
        }
        self.print_more(self.files.len(), shown, out)
    }

    fn print_more(&self, all: usize, shown: usize, out: &mut Output) -> io::Result<()> {
        match all.saturating_sub(shown) {
            0 => Ok(()),
            more => out.line(format_args!("              and {more} more")),
        }
    }

    fn print_left(&self, out: &mut Output) -> io::Result<()> {
        for handle in &self.unused {
            out.line(format_args!("unused    {handle}: no tensor refers to it, not written"))?;
        }
        for path in &self.left_behind {
            let path = path.display();
            out.line(format_args!("left      {path}: the model that was replaced needed it"))?;
        }
        Ok(())
    }
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
        check.findings.iter().try_for_each(|found| out.line(format_args!("          {found}")))
    }
}
