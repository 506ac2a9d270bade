//! The report of what a command wrote, or would write, as text and as JSON.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use onnx_container::edit::Externalized;
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::{ByteSize, Initializer, Result, Saved};
use serde::Serialize;

use super::WriteJob;
use super::import::Imported;
use super::verify::Verified;
use crate::model::save::{Loaded, Written};
use crate::terminal::output::{Output, count, lossy};

/// What was read.
#[derive(Debug, Serialize)]
pub struct Read {
    pub tensors: usize,
    pub external: usize,
    /// External tensors that share the bytes of another one.
    pub tied: usize,
    /// Bytes of the weights that were external, those of tied tensors once.
    pub external_bytes: u64,
    /// Bytes of the tied tensors, which are counted in `external_bytes` for the first of them.
    pub tied_bytes: u64,
    pub mapped: bool,
}

impl Read {
    /// What was `loaded`.
    pub fn of(loaded: &impl Loaded, mapped: bool) -> Result<Self> {
        let (tensors, external, tied) = (0, 0, 0);
        let (external_bytes, tied_bytes) = (0, 0);
        let mut read = Self { tensors, external, tied, external_bytes, tied_bytes, mapped };
        let mut stored = HashSet::new();
        for (_, tensor) in loaded.tensors() {
            read.tensors += 1;
            if is_external(tensor) {
                let location = ExternalData::parse(tensor)?.location;
                let initializer = loaded.get(&location);
                let len = initializer.map_or(0, Initializer::byte_len);
                let is_first = stored.insert(Stored::of(location, initializer));
                read.add_external(len, is_first);
            }
        }
        Ok(read)
    }

    /// Counts an external tensor of `len` bytes, of which another one may have been counted before.
    fn add_external(&mut self, len: u64, is_first: bool) {
        self.external += 1;
        if is_first {
            self.external_bytes = self.external_bytes.saturating_add(len);
        } else {
            self.tied += 1;
            self.tied_bytes = self.tied_bytes.saturating_add(len);
        }
    }

    /// Prints that it was read from `input`.
    pub fn print(&self, input: &Path, out: &mut Output) -> io::Result<()> {
        let Self { tensors, external, external_bytes, mapped, .. } = self;
        let (tensors, input) = (count(*tensors, "tensor"), input.display());
        let tied = match self.tied {
            0 => String::new(),
            tied => format!("{tied} of them tied, "),
        };
        let (bytes, how) = (ByteSize(*external_bytes), if *mapped { "mapped" } else { "read" });
        out.row(
            "read",
            format_args!("{input}: {tensors}, {external} external ({bytes}, {tied}{how})"),
        )
    }
}

/// Where the bytes of an external tensor are: tensors of equal places are tied.
#[derive(PartialEq, Eq, Hash)]
enum Stored {
    Memory { address: usize, len: usize },
    Handle(String),
}

impl Stored {
    fn of(handle: String, initializer: Option<&Initializer>) -> Self {
        let bytes = initializer.and_then(Initializer::as_buffer).filter(|bytes| !bytes.is_empty());
        match bytes {
            Some(bytes) => Self::Memory { address: bytes.as_ptr().addr(), len: bytes.len() },
            None => Self::Handle(handle),
        }
    }
}

/// The report of a command that writes.
#[derive(Debug, Serialize)]
pub struct WriteReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    /// What was imported from other weights than the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    imported: Option<Imported>,
    moved: Moved,
    /// Tensors that shared their bytes with another one and have a copy of them now.
    untied: Untied,
    kept: Vec<KeptTensorInfo>,
    #[serde(flatten)]
    written: Written,
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
struct Untied {
    tensors: usize,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct KeptTensorInfo {
    tensor: String,
    bytes: u64,
    reason: String,
}

impl<'a> WriteReport<'a> {
    /// What `job` read, moved and wrote.
    pub fn new(
        job: &WriteJob<'a>,
        loaded: &impl Loaded,
        read: Read,
        moved: Externalized,
        saved: &Saved,
        verified: Option<Verified>,
        imported: Option<Imported>,
    ) -> Self {
        Self {
            command: job.command,
            input: job.input,
            output: job.output,
            moved: Moved::of(job, &read, &moved),
            untied: Untied::of(job, &read),
            read,
            imported,
            kept: moved.kept.into_iter().map(KeptTensorInfo::from).collect(),
            written: Written::new(loaded, job.output, saved, &job.args.target),
            verified,
        }
    }

    /// Adds warnings.
    pub fn warn(&mut self, warnings: Vec<String>) {
        self.written.warn(warnings);
    }

    /// Says that the number of weights files was written into the file `config`.
    pub fn configured(&mut self, config: PathBuf) {
        self.written.configured(config);
    }

    /// Whether nothing was found to be wrong.
    pub fn is_well(&self) -> bool {
        self.verified.as_ref().is_none_or(|verified| verified.ok)
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.print_read(out)?;
        self.print_kept(out)?;
        self.written.print(out)?;
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }

    fn print_read(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.input, out)?;
        if let Some(imported) = &self.imported {
            imported.print(out)?;
        }
        let Moved { direction, tensors, bytes } = &self.moved;
        let (tensors, bytes) = (count(*tensors, "tensor"), ByteSize(*bytes));
        let tense = self.written.tense("moves", "moved");
        out.row(tense, format_args!("{tensors} ({bytes}) {direction}"))?;
        let Untied { tensors, bytes } = &self.untied;
        if *tensors == 0 {
            return Ok(());
        }
        let (tensors, bytes) = (count(*tensors, "tied tensor"), ByteSize(*bytes));
        let tense = self.written.tense("copies", "copied");
        out.row(tense, format_args!("{tensors} ({bytes}): inline tensors cannot share bytes"))
    }

    fn print_kept(&self, out: &mut Output) -> io::Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let tensors = count(self.kept.len(), "large tensor");
        out.row("kept", format_args!("{tensors} inline"))?;
        let kept = self.kept.iter();
        self.written.list(
            kept.map(|kept| format!("{:>12}  {}: {}", kept.bytes, kept.tensor, kept.reason)),
            out,
        )
    }
}

impl Moved {
    fn of(job: &WriteJob<'_>, read: &Read, moved: &Externalized) -> Self {
        if job.moving.is_some() {
            return Self {
                direction: "out of the model",
                tensors: moved.moved,
                bytes: moved.moved_bytes,
            };
        }
        let bytes = read.external_bytes.saturating_add(read.tied_bytes);
        Self { direction: "into the model", tensors: read.external, bytes }
    }
}

impl Untied {
    fn of(job: &WriteJob<'_>, read: &Read) -> Self {
        match job.moving {
            Some(_) => Self { tensors: 0, bytes: 0 },
            None => Self { tensors: read.tied, bytes: read.tied_bytes },
        }
    }
}

impl From<onnx_container::edit::Kept> for KeptTensorInfo {
    fn from(kept: onnx_container::edit::Kept) -> Self {
        Self { tensor: kept.tensor, bytes: kept.bytes, reason: kept.reason.to_string() }
    }
}
