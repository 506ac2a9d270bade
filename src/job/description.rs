//! [`Job`]: what is written, by whom, and where it goes, as a value that any process can hold.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::{kind_at, no_link, read_text};
use super::folder::{HALF_MADE, JobFolder};
use super::options::JobOptions;
use super::source::{RewriteSource, SeenCast};
use super::stamp::FileStamp;
use crate::buffer::MmapChoice;
use crate::container::cast::CastReport;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::check_location;
use crate::files::recovery::{is_job_id, is_of_job, job_name};
use crate::save::{SaveOptions, SavedFile};
use crate::util::json_kind::JsonKind;

const KIND: JsonKind = JsonKind { format: "onnx-container job", version: 1, name: "a job" };

/// A save that many processes write together: each writes its part into files of full length, and
/// one commit puts all of them in place.
///
/// A job is a value: it has no process, no lock and no connection, and goes to other machines as
/// [JSON](Self::to_json) or by the path of its [folder](Self::folder), which all of them reach.
/// Nothing is visible at the model's path before the [commit](Self::commit), which is crash-safe as
/// a save is.
///
/// ```
/// use onnx_container::job::{Job, JobOptions};
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, DataType, Initializer, MmapChoice};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("m.onnx");
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("a", TensorProto::UINT8, [2], "#a"));
/// graph.initializer.push(TensorProto::external("b", TensorProto::UINT8, [3], "#b"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#a", Initializer::declared(DataType::Uint8, [2])?)?;
/// container.insert("#b", Initializer::declared(DataType::Uint8, [3])?)?;
///
/// // One process plans,
/// let job = Job::plan(&container, &path, JobOptions::from(2))?.to_json()?;
/// // others write, in any order, each part once or more often,
/// for part in 0..2 {
///     let job = Job::from_json(&job)?;
///     job.write_from(part, &|name: &str| {
///         let elements = if name == "a" { vec![1_u8, 2] } else { vec![3, 4, 5] };
///         Ok(elements.into())
///     })?;
/// }
/// // and one commits.
/// assert!(!path.exists());
/// Job::from_json(&job)?.commit()?;
/// let model = Container::load(&path, MmapChoice::never())?;
/// assert_eq!(model.get("#b").unwrap().to_buffer()?[..], [3, 4, 5]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub(super) id: String,
    /// The folder of the model, absolute.
    pub(super) directory: PathBuf,
    /// The file name of the model.
    pub(super) name: String,
    pub(super) parts: usize,
    /// How many parts the plan was asked for.
    pub(super) asked_parts: usize,
    /// Whether processes write slices, and no parts.
    pub(super) slices: bool,
    pub(super) files: Vec<JobFile>,
    pub(super) tensors: Vec<PlannedTensor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<RewriteSource>,
    #[serde(skip)]
    pub(super) cast: SeenCast,
    /// The SHA-256 of the model as it will be, before digests are stored with it.
    pub(super) model: String,
    /// The model that the commit replaces; none where there was none.
    pub(super) replaces: Option<FileStamp>,
    pub(super) publishing: Publishing,
}

/// A weights file of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobFile {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// A tensor of a job, and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedTensor {
    /// The name: that of the handle, without `#`. Tensors of one handle are one.
    pub name: String,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<u64>,
    /// The index of the weights file in [`Job::files`].
    pub file: usize,
    /// The offset in that file in bytes.
    pub offset: u64,
    /// The part that has it.
    pub part: usize,
}

impl PlannedTensor {
    /// The length in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where it is over 2^64.
    pub fn byte_len(&self) -> Result<u64> {
        self.dtype.byte_len(&self.signed_dims()?)
    }

    pub(super) fn signed_dims(&self) -> Result<Vec<i64>> {
        let too_long = |_| Error::new(ErrorKind::Shape, "a dimension is over 2^63");
        let dims = self.dims.iter().map(|length| i64::try_from(*length).map_err(too_long));
        dims.collect()
    }
}

/// How the commit puts the files in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publishing {
    pub(super) overwrite: bool,
    pub(super) sync: bool,
    pub(super) digests: bool,
    /// Whether the caller named the weights files, so that they replace what is there.
    pub(super) named: bool,
    pub(super) remove_superseded: bool,
    pub(super) remove_left_behind: bool,
    /// Files that are not replaced or removed, by absolute paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) protected: Vec<PathBuf>,
}

impl Publishing {
    /// # Errors
    /// Where the current folder is not known.
    pub(super) fn of(options: &SaveOptions) -> Result<Self> {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).map_err(|error| Error::io(path, error));
        Ok(Self {
            protected: options.protected.iter().map(absolute).collect::<Result<_>>()?,
            overwrite: options.overwrite,
            sync: options.sync,
            digests: options.digests,
            named: options.data_name.is_some(),
            remove_superseded: options.remove_superseded,
            remove_left_behind: options.remove_left_behind,
        })
    }

    pub(super) fn options(&self) -> SaveOptions {
        let Self { overwrite, sync, remove_superseded, remove_left_behind, .. } = *self;
        let options = SaveOptions::new().overwrite(overwrite).sync(sync);
        let options = options.protect(self.protected.iter().cloned());
        options.remove_superseded(remove_superseded).remove_left_behind(remove_left_behind)
    }
}

#[derive(Serialize, Deserialize)]
struct Stamped<J> {
    format: String,
    version: u32,
    job: J,
}

impl Job {
    /// What tells the job from others of the model.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where the model will be.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The folder beside the model that has what is written until the commit.
    pub fn folder(&self) -> PathBuf {
        self.job_folder().path().to_path_buf()
    }

    pub(super) fn job_folder(&self) -> JobFolder {
        JobFolder::of(&self.directory, &self.name, &self.id)
    }

    /// The numbers of the parts; none where the job is written in slices.
    pub fn parts(&self) -> std::ops::Range<usize> {
        0..if self.slices { 0 } else { self.parts }
    }

    /// Whether the part of this number can be written: one of [`parts`](Self::parts), or one up to
    /// the number that the plan was asked for. Where the model has fewer tensors that has nothing
    /// to write, so that an engine that counts to its own number does not fail.
    pub fn has_part(&self, part: usize) -> bool {
        !self.slices && part < self.asked_parts.max(self.parts)
    }

    /// The weights files, with their lengths in bytes.
    pub fn files(&self) -> Vec<SavedFile> {
        self.files.iter().map(|file| SavedFile::new(file.name.as_str(), file.bytes)).collect()
    }

    /// All tensors, in the order of the files and of their offsets.
    pub fn tensors(&self) -> &[PlannedTensor] {
        &self.tensors
    }

    /// What the cast of a [rewrite](Self::rewrite) did, in the process that planned it; none where
    /// the job was opened. Which weights became infinite is known when they are written
    /// ([`Receipt::infinite`](super::Receipt)), and before that of those in the model file.
    pub fn cast_report(&self) -> Option<&CastReport> {
        self.cast.0.as_ref()
    }

    /// Where the weights file of this index is until the commit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where there is no such file.
    pub fn staged_file(&self, file: usize) -> Result<PathBuf> {
        let found = self.files.get(file).ok_or_else(|| {
            let reason = format!("the job has no weights file of the index {file}");
            Error::new(ErrorKind::InvalidArgument, reason)
        })?;
        Ok(self.job_folder().data(&found.name))
    }

    /// This job, whose [rewrite](Self::rewrite) has the model file of its source mapped by this
    /// process, or read whole; see [`SourceOptions::mmap`](super::SourceOptions::mmap).
    #[must_use]
    pub fn map_source(mut self, map: MmapChoice) -> Self {
        if let Some(source) = &mut self.source {
            source.map(map);
        }
        self
    }

    /// The job as JSON: some 100 bytes for each tensor.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the path of the model is not UTF-8.
    pub fn to_json(&self) -> Result<String> {
        let stamped = Stamped { format: KIND.format.to_owned(), version: KIND.version, job: self };
        serde_json::to_string(&stamped).map_err(|_| {
            let reason = "the path is not UTF-8, and a job is JSON";
            Error::new(ErrorKind::InvalidArgument, reason).with_path(&self.directory)
        })
    }

    /// The job of a JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for text that is no such JSON, [`ErrorKind::Unsupported`] for another
    /// version of it, [`ErrorKind::InvalidModel`] for places that are not within the files.
    pub fn from_json(text: &str) -> Result<Self> {
        KIND.check(text)?;
        let Stamped { job, .. }: Stamped<Self> =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        job.check()?;
        Ok(job)
    }

    /// The job whose folder, the `job.json` in it, or a copy of that file is at `path`.
    ///
    /// A job that is opened by its folder is where that folder is, which other machines may reach
    /// by another path than the one that planned it.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] where it is not there, and those of
    /// [`from_json`](Self::from_json).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = folder_at(path);
        if let Some(folder) = &folder {
            JobFolder::at(folder).check_there()?;
        }
        let json = if path.is_dir() { JobFolder::at(path).json() } else { path.to_path_buf() };
        if folder.is_some() && !kind_at(&json)?.is_some_and(|kind| kind.is_file()) {
            return Err(Error::new(ErrorKind::MissingFile, HALF_MADE).with_path(path));
        }
        let mut job = Self::from_json(&read_text(&json, folder.is_none())?)
            .map_err(|error| error.with_path(json))?;
        if let Some(folder) = folder {
            job.move_to(&folder)?;
        }
        Ok(job)
    }

    /// The job where its `folder` is.
    fn move_to(&mut self, folder: &Path) -> Result<()> {
        let is_named = folder.file_name() == Some(job_name(&self.name, &self.id).as_ref());
        if !is_named {
            let reason = "the folder has the description of another job";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(folder));
        }
        // One folder may have several paths, and that of the plan is the same in every process.
        let same = |other: &Path| {
            other
                .canonicalize()
                .is_ok_and(|other| folder.canonicalize().is_ok_and(|it| it == other))
        };
        if !same(&self.folder()) {
            let folder = folder.canonicalize().map_err(|error| Error::io(folder, error))?;
            self.directory = folder.parent().map(Path::to_path_buf).unwrap_or(folder);
        }
        Ok(())
    }

    /// Refuses a job that no plan makes: it may come from anywhere.
    fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidModel, reason));
        let is_name = |name: &str| check_location(name).is_ok() && !name.contains('/');
        if !is_job_id(&self.id) || !self.directory.is_absolute() || !is_name(&self.name) {
            return invalid("the job names no model of a folder".to_owned());
        }
        let mut names = HashSet::new();
        let is_new = |name: &str| is_name(name) && name != self.name;
        for JobFile { name, .. } in &self.files {
            if !is_new(name) || !names.insert(name.as_str()) {
                return invalid(format!("the job has a weights file called `{name}`"));
            }
        }
        // Who lists the parts of a job has as many numbers.
        let is_few = self.asked_parts <= JobOptions::MAX_PARTS;
        if self.parts == 0 || self.parts > self.tensors.len().max(1) || !is_few {
            let (parts, tensors) = (self.parts, self.tensors.len());
            return invalid(format!("the job has {parts} parts and {tensors} tensors"));
        }
        self.check_places()
    }

    /// Refuses tensors that are not where a plan puts them: one behind the other in the files.
    fn check_places(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidModel, reason));
        let (mut names, mut free) = (HashSet::new(), (0, 0));
        for tensor in &self.tensors {
            let end = tensor.offset.checked_add(tensor.byte_len()?);
            let file = self.files.get(tensor.file);
            let is_inside = file.zip(end).is_some_and(|(file, end)| end <= file.bytes);
            if !is_inside || tensor.part >= self.parts {
                return invalid(format!("the tensor `{}` is outside the files", tensor.name));
            }
            if !names.insert(tensor.name.as_str()) || (tensor.file, tensor.offset) < free {
                return invalid(format!("the tensor `{}` is where another one is", tensor.name));
            }
            free = (tensor.file, end.unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// A weights file of the job, open to be written to.
    pub(super) fn open_file(&self, file: usize) -> Result<File> {
        let path = self.staged_file(file)?;
        let wrong = || {
            let reason = "the file of the job is not the one that was planned";
            Error::new(ErrorKind::Changed, reason).with_path(&path)
        };
        let metadata = fs::symlink_metadata(&path).map_err(|error| Error::io(&path, error))?;
        let is_planned = self.files.get(file).is_some_and(|file| file.bytes == metadata.len());
        if !metadata.is_file() || !is_planned {
            return Err(wrong());
        }
        let mut options = File::options();
        no_link(options.write(true)).open(&path).map_err(|error| Error::io(path, error))
    }
}

/// The folder of a job that `path` names by itself or by the `job.json` in it; `None` for another
/// path.
fn folder_at(path: &Path) -> Option<PathBuf> {
    let is_of_job =
        |path: &Path| path.file_name().and_then(|it| it.to_str()).is_some_and(is_of_job);
    let parent = path.parent().filter(|_| path.file_name().is_some_and(|it| it == "job.json"));
    let folder = parent.unwrap_or(path);
    // `.` in the folder of a job has no name.
    let named =
        if is_of_job(folder) { Some(folder.to_path_buf()) } else { folder.canonicalize().ok() };
    named.filter(|folder| is_of_job(folder) && (parent.is_some() || !path.is_file()))
}
