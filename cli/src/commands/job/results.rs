//! What a job is and what was done of it, for people and as JSON. Jobs in folders and in stores
//! fill in the same.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::recovery::is_of_job;
use onnx_container::save::SavedFile;
use onnx_container::{ByteSize, Error};
use serde::{Serialize, Serializer};

use crate::args::is_url;
use crate::commands::cast::casting::print_infinite;
use crate::commands::leftovers::{COMMITTED, COMMITTED_IN_STORE};
use crate::terminal::failure::Failure;
use crate::terminal::output::{Output, count, lossy};

/// What tells a job from others.
#[derive(Debug, Serialize)]
pub struct Named {
    pub id: String,
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    #[serde(serialize_with = "lossy")]
    pub model: PathBuf,
}

impl Named {
    /// What the name of its folder says of a job that is not there any more.
    pub fn of_folder(path: &Path) -> Option<Self> {
        let is_json = path.file_name().is_some_and(|name| name == "job.json");
        let folder = if is_json { path.parent()? } else { path };
        let name = folder.file_name()?.to_str().filter(|name| is_of_job(name))?;
        let (model, id) = name.strip_prefix('.')?.rsplit_once(".job-")?;
        let (id, model) = (id.to_owned(), folder.with_file_name(model));
        Some(Self { id, folder: folder.to_path_buf(), model })
    }

    /// Prints the rows that every report of a job begins with.
    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        out.row("job", &self.id)?;
        out.row("model", self.model.display())?;
        out.row("folder", self.folder.display())?;
        Ok(())
    }
}

/// A file beside the model, or the model.
#[derive(Debug, Serialize)]
pub struct File {
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    pub bytes: u64,
}

impl File {
    /// The files `all` beside the model at `path`.
    pub fn beside(path: &Path, all: &[SavedFile]) -> Vec<Self> {
        let folder = path.parent().unwrap_or(Path::new(""));
        all.iter().map(|it| Self { path: folder.join(&it.name), bytes: it.bytes }).collect()
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        Ok(out.line(format_args!("{:>12}  {}", self.bytes, self.path.display()))?)
    }
}

/// What a plan divides into parts.
#[derive(Debug, Serialize)]
pub struct Layout {
    pub parts: usize,
    tensors: usize,
    pub files: Vec<File>,
    bytes: u64,
}

impl Layout {
    pub fn new(parts: usize, tensors: usize, files: Vec<File>) -> Self {
        let bytes = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        Self { parts, tensors, files, bytes }
    }

    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let (parts, tensors) = (count(self.parts, "part"), count(self.tensors, "tensor"));
        out.row("parts", format_args!("{parts} of {tensors}"))?;
        let (files, bytes) = (count(self.files.len(), "file"), ByteSize(self.bytes));
        out.row("files", format_args!("{files} of weights ({bytes})"))?;
        self.files.iter().try_for_each(|file| file.print(out))
    }
}

/// What a call that writes has found or done of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    /// This call has written it.
    Written,
    /// It was written before.
    Found,
    /// It has no bytes.
    Empty,
}

/// A part that is there now.
#[derive(Debug, Serialize)]
pub struct Written {
    pub part: usize,
    pub state: PartState,
    pub tensors: usize,
    pub bytes: u64,
    /// The weights, by their old names, whose numbers became infinite by the cast.
    #[serde(skip)] // told of all parts together
    pub infinite: Vec<String>,
}

impl Written {
    pub fn new(
        part: usize,
        tensors: usize,
        bytes: u64,
        is_new: bool,
        infinite: Vec<String>,
    ) -> Self {
        let state = match (bytes, is_new) {
            (0, _) => PartState::Empty,
            (_, true) => PartState::Written,
            (_, false) => PartState::Found,
        };
        Self { part, state, tensors, bytes, infinite }
    }

    /// Prints the row of a part. Those that are empty have one together.
    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let (tensors, bytes) = (count(self.tensors, "tensor"), ByteSize(self.bytes));
        let said = format!("part {}: {tensors} ({bytes})", self.part);
        match self.state {
            PartState::Written => out.row("wrote", said)?,
            PartState::Found => out.row("found", format_args!("{said}: was written already"))?,
            PartState::Empty => {}
        }
        Ok(())
    }
}

/// How far a job is.
#[derive(Debug, Serialize)]
pub struct Progress {
    pub parts: usize,
    pub done: Vec<usize>,
    pub missing: Vec<usize>,
    pub writers: Vec<String>,
    pub bytes_written: u64,
    pub bytes: u64,
    pub complete: bool,
    /// Whether a commit has put the model in place, whether it has ended the job, and whether the
    /// model was replaced since.
    pub committed: bool,
    pub ended: bool,
    pub replaced: bool,
    /// The weights, by their old names, whose numbers became infinite by the cast.
    pub infinite: Vec<String>,
}

impl Progress {
    /// That of a job that a commit has ended, and of which nothing more is known.
    pub fn of_ended(committed: &Committed) -> Self {
        Self {
            parts: 0,
            done: Vec::new(),
            missing: Vec::new(),
            writers: Vec::new(),
            bytes_written: 0,
            bytes: 0,
            complete: true,
            committed: true,
            ended: true,
            replaced: committed.replaced,
            infinite: committed.infinite.clone(),
        }
    }

    /// How much is written of the job whose folder is at `folder`, in words.
    pub fn said(&self, folder: &Path) -> String {
        if self.committed {
            return match (self.ended, self.replaced) {
                (false, false) if is_url(folder) => COMMITTED_IN_STORE.to_owned(),
                (false, false) => COMMITTED.to_owned(),
                (_, replaced) => format!("committed: {}", model_now(replaced)),
            };
        }
        let (written, all) = (ByteSize(self.bytes_written), ByteSize(self.bytes));
        match self.parts {
            0 => format!("{} ({written} of {all})", count(self.writers.len(), "writer")),
            parts => {
                format!("{} of {} ({written} of {all})", self.done.len(), count(parts, "part"))
            }
        }
    }
}

/// What became of a model that a commit has put in place.
pub fn model_now(replaced: bool) -> &'static str {
    match replaced {
        false => "the model is in place",
        true => "the model was replaced or changed since",
    }
}

/// What a commit has put in place.
#[derive(Debug, Default, Serialize)]
pub struct Committed {
    /// The model is the last.
    pub files: Vec<File>,
    pub bytes: u64,
    pub digest: Option<String>,
    /// Whether an earlier call had committed the job.
    pub already: bool,
    /// Whether the model was replaced since.
    pub replaced: bool,
    /// What a store has of it: the tag of the model, and the version beside it.
    pub e_tag: Option<String>,
    pub version: Option<String>,
    pub removed: Vec<String>,
    /// What is removed of a model of this kind.
    #[serde(skip)]
    pub removed_are: &'static str,
    pub left_behind: Vec<String>,
    pub infinite: Vec<String>,
    #[serde(serialize_with = "texts")]
    pub warnings: Vec<Error>,
}

fn texts<S: Serializer>(errors: &[Error], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(errors.iter().map(ToString::to_string))
}

impl Committed {
    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let (files, bytes) = (count(self.files.len(), "file"), ByteSize(self.bytes));
        match self.already {
            true => out.row("found", format_args!("{files} ({bytes}): was committed already"))?,
            false => out.row("wrote", format_args!("{files} ({bytes})"))?,
        }
        self.files.iter().try_for_each(|file| file.print(out))?;
        if self.replaced {
            out.row("replaced", model_now(true))?;
        }
        for (label, text) in
            [("digest", &self.digest), ("tag", &self.e_tag), ("version", &self.version)]
        {
            text.iter().try_for_each(|text| out.row(label, text))?;
        }
        for path in &self.removed {
            out.row("removed", format_args!("{path}, {}", self.removed_are))?;
        }
        for path in &self.left_behind {
            out.row("left", format_args!("{path}: no model needs it any more"))?;
        }
        Ok(print_infinite_of_job(&self.infinite, out)?)
    }
}

/// Tells of weights whose numbers became infinite by the cast of a job, if there are any. Not each
/// process knows which type that was.
pub fn print_infinite_of_job(names: &[String], out: &mut Output) -> io::Result<()> {
    let options = "--except of `job rewrite`, with their nodes in --keep-op";
    print_infinite(names, None, options, out)?;
    names.iter().try_for_each(|name| out.line(format_args!("{:>10}{name}", "")))
}
