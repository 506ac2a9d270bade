//! [`Container::save`]: plan, write, publish.
//!
//! Everything that can be wrong is looked at before the first byte is written: the tensors, the
//! names, the files that would be replaced, the free space. Then the files are staged and renamed.

mod neighbours;
mod options;
mod plan;
mod publish;
mod write;

use std::collections::HashSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf, is_separator};

pub(crate) use neighbours::{locations, neighbours};
pub use options::{Progress, SaveOptions, WeightFiles};
pub(crate) use plan::{default_data_name, weight_prefix};
pub(crate) use publish::staging_prefix;

use crate::buffer::{Buffer, BufferMut};
use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, fold_case, is_external};
use crate::load::directory_of;
use crate::placement::Alignment;
use crate::proto::ModelProto;
use crate::save::neighbours::Needed;
use crate::save::plan::{Plan, PlannedFile};
use crate::save::publish::Staging;
use crate::save::write::{Meter, Metered, write_file};
use crate::traversal;
use crate::wire::Message;

/// What a save wrote, or would write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Saved {
    /// The model as written: external tensors name files, not handles.
    pub model: ModelProto,
    /// The files beside one another, the model last.
    pub files: Vec<SavedFile>,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// What was free on the target's file system before the save, in bytes, where it says.
    pub free_bytes: Option<u64>,
    /// Large initializers that no tensor of the model refers to; they were not written.
    pub unused: Vec<Handle>,
    /// Files that the model which was replaced needed and the new one does not. They are left.
    pub left_behind: Vec<PathBuf>,
}

/// A file of a saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedFile {
    /// Its name, in the model's directory.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A model and its weights files in memory, from [`Container::to_parts`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Parts {
    /// The encoded model.
    pub model: Buffer,
    /// The weights files by the names that the model refers to.
    pub files: Vec<(String, Buffer)>,
}

impl Container {
    /// Saves the model to `path` and its weights beside it; returns what was written.
    ///
    /// `true` packs all weights into `<file name>.data`, `false` writes one `.weight` file for each
    /// large initializer; [`SaveOptions`] says the rest. The container is not changed. Files are
    /// staged and renamed, so a save that fails leaves what was there, and a save over the files
    /// that this container maps is safe.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, DataType, MmapChoice};
    ///
    /// let mut graph = GraphProto::default();
    /// graph.initializer.push(TensorProto::external("w", DataType::Float.number(), &[2], "#w"));
    /// let mut model = ModelProto::default();
    /// model.graph = Some(Box::new(graph));
    /// let mut container = Container::new(model);
    /// container.insert("#w", array![1.0_f32, 2.0])?;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("model.onnx");
    /// let saved = container.save(&path, true)?;
    /// assert_eq!(saved.files[0].name, "model.onnx.data");
    ///
    /// let loaded = Container::load(&path, MmapChoice::never())?;
    /// assert_eq!(loaded.get("#w").unwrap().to_tensor()?.as_slice::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Before anything is written: what [`check`](Self::check) finds, a folder that is missing
    /// ([`ErrorKind::MissingFile`]), a target that must not be replaced
    /// ([`ErrorKind::AlreadyExists`]), too little space ([`ErrorKind::NoSpace`]). Later
    /// [`ErrorKind::Io`]; what was there is then still there.
    pub fn save(&self, path: impl AsRef<Path>, options: impl Into<SaveOptions>) -> Result<Saved> {
        let options = options.into();
        let job = Job::new(self, path.as_ref(), &options)?;
        job.check_target()?;
        job.check_space()?;
        job.write()?;
        Ok(job.saved)
    }

    /// What [`save`](Self::save) would write, without writing: the same checks, the same result.
    /// Too little space is no error here; [`Saved::free_bytes`] tells.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", array![1_u8, 2])?;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let plan = container.dry_run(folder.path().join("m.onnx"), false)?; // one file per tensor
    /// assert_eq!(plan.files[0].name, "m-w.weight");
    /// assert!(!folder.path().join("m.onnx").exists());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`save`](Self::save) before it writes.
    pub fn dry_run(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<SaveOptions>,
    ) -> Result<Saved> {
        let options = options.into();
        let job = Job::new(self, path.as_ref(), &options)?;
        job.check_target()?;
        Ok(job.saved)
    }

    /// The model and its weights files in memory, as a save to `model.onnx` would write them: for
    /// sessions that are made from bytes.
    ///
    /// With [`WeightFiles::PerTensor`] the files are the initializers' own buffers; one packed file
    /// is a copy.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, LoadOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", array![1_u8, 2])?;
    ///
    /// let parts = container.to_parts(true)?;
    /// let options = parts.files.into_iter().fold(LoadOptions::new(), |options, (name, bytes)| {
    ///     options.file(name, bytes)
    /// });
    /// let again = Container::load_bytes(parts.model, options)?;
    /// assert_eq!(again.get("#w").unwrap().byte_len(), 2);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn to_parts(&self, options: impl Into<SaveOptions>) -> Result<Parts> {
        let options = options.into();
        self.check()?;
        let plan = Plan::new(self, "model.onnx", &options)?;
        let model = self.model_as_written(&plan, &options)?.encode_to_vec()?;
        let files = plan.files.iter().map(|file| Ok((file.name.clone(), assemble(file)?)));
        Ok(Parts { model: model.into(), files: files.collect::<Result<_>>()? })
    }

    /// A copy of the model whose external tensors name their place in the planned files.
    fn model_as_written(&self, plan: &Plan<'_>, options: &SaveOptions) -> Result<ModelProto> {
        if options.weight_files == WeightFiles::Embedded {
            return self.embed();
        }
        let mut model = self.model.clone();
        traversal::tensors_mut(&mut model, |_, tensor| {
            if is_external(tensor) {
                let (handle, _) = self.initializer_of(tensor)?;
                let place = plan.places.get(handle);
                if let Some((place, file)) = place.and_then(|p| Some((p, plan.files.get(p.file)?)))
                {
                    external_data::set_range(tensor, &file.name, &place.range);
                }
            }
            Ok(())
        })?;
        Ok(model)
    }
}

/// The bytes of a planned file: the initializer's own where there is just one.
fn assemble(file: &PlannedFile<'_>) -> Result<Buffer> {
    if let [piece] = file.pieces.as_slice() {
        return piece.initializer.to_buffer();
    }
    let len = usize::try_from(file.len);
    let len = len.map_err(|_| Error::new(ErrorKind::TooLarge, "weights do not fit memory"))?;
    let mut bytes = BufferMut::zeroed(len, Alignment::PAGE)?;
    for piece in &file.pieces {
        let start = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        let len = usize::try_from(piece.initializer.byte_len()).unwrap_or(usize::MAX);
        let target = bytes.get_mut(start..start.saturating_add(len)).unwrap_or_default();
        piece.initializer.read_at(0, target)?;
    }
    Ok(bytes.freeze())
}

/// One save: what goes where, known before anything is done.
struct Job<'c> {
    options: &'c SaveOptions,
    directory: PathBuf,
    model_name: String,
    plan: Plan<'c>,
    saved: Saved,
}

impl<'c> Job<'c> {
    fn new(container: &'c Container, path: &Path, options: &'c SaveOptions) -> Result<Self> {
        let (directory, model_name) = target(path)?;
        container.check()?;
        let plan = Plan::new(container, &model_name, options)?;
        let model = container.model_as_written(&plan, options)?;
        let mut files: Vec<_> = plan
            .files
            .iter()
            .map(|file| SavedFile { name: file.name.clone(), bytes: file.len })
            .collect();
        files.push(SavedFile { name: model_name.clone(), bytes: model.encoded_len() });
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        let unused = plan.unused.clone();
        let free_bytes = free_bytes(&directory);
        let saved = Saved { model, files, bytes, free_bytes, unused, left_behind: Vec::new() };
        let mut job = Self { options, directory, model_name, plan, saved };
        job.saved.left_behind = job.left_behind();
        Ok(job)
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.model_name)
    }

    /// Refuses targets that are not files, that may not be replaced, or that others need.
    fn check_target(&self) -> Result<()> {
        // Once each: another save may move them away and back meanwhile.
        let there = |file: &SavedFile| {
            let meta = self.directory.join(&file.name).symlink_metadata().ok()?;
            Some((file.name.clone(), meta))
        };
        let replaced: Vec<_> = self.saved.files.iter().filter_map(there).collect();
        if replaced.is_empty() {
            return Ok(());
        }
        let needed = Needed::by_others(&self.directory, &self.model_name);
        let errors = replaced.iter().filter_map(|(name, meta)| {
            let (kind, reason) = self.reason_to_keep(name, meta, &needed)?;
            Some(Error::new(kind, reason).with_path(self.directory.join(name)))
        });
        Error::join(errors.collect()).map_or(Ok(()), Err)
    }

    /// Why the file `name`, which exists, may not be replaced.
    fn reason_to_keep(
        &self,
        name: &str,
        meta: &Metadata,
        needed: &Needed,
    ) -> Option<(ErrorKind, String)> {
        if !meta.is_file() && !meta.is_symlink() {
            let what = if meta.is_dir() { "a directory" } else { "not a regular file" };
            return Some((ErrorKind::UnsafePath, format!("{what}: not replaced")));
        }
        if meta.is_symlink() && leads_to_a_device(&self.directory.join(name)) {
            let reason = "a link to something that is not a regular file: not replaced";
            return Some((ErrorKind::UnsafePath, reason.into()));
        }
        if !self.options.overwrite {
            return Some((ErrorKind::AlreadyExists, "exists already".into()));
        }
        if name != self.model_name && name.to_lowercase().ends_with(".onnx") {
            let reason = "another model: it is not replaced by weights";
            return Some((ErrorKind::AlreadyExists, reason.into()));
        }
        let user = needed.by(name)?;
        let reason = format!("`{}` refers to this file: it is not replaced", user.display());
        Some((ErrorKind::AlreadyExists, reason))
    }

    fn check_space(&self) -> Result<()> {
        match self.saved.free_bytes {
            Some(free) if free < self.saved.bytes => {
                let reason = format!("needs {}, {} free", human(self.saved.bytes), human(free));
                Err(Error::new(ErrorKind::NoSpace, reason).with_path(&self.directory))
            }
            _ => Ok(()),
        }
    }

    /// Files of the model that is being replaced which neither the new one nor any other needs.
    fn left_behind(&self) -> Vec<PathBuf> {
        let kept: HashSet<_> = self.saved.files.iter().map(|file| fold_case(&file.name)).collect();
        let old = locations(&self.path());
        let left = old.into_iter().filter(|location| !kept.contains(&fold_case(location)));
        let left = left.filter(|location| external_data::check_location(location).is_ok());
        let left: Vec<_> = left.filter(|name| self.directory.join(name).is_file()).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let needed = Needed::by_others(&self.directory, &self.model_name);
        let left = left.into_iter().filter(|location| needed.by(location).is_none());
        left.map(|location| self.directory.join(location)).collect()
    }

    fn write(&self) -> Result<()> {
        let meter = Meter::new(self.options, self.saved.bytes);
        let mut staging = Staging::new(&self.directory, &self.model_name, self.options.sync)?;
        for plan in &self.plan.files {
            staging.file(&plan.name, |file, path| write_file(plan, file, path, &meter))?;
        }
        staging.file(&self.model_name, |file, path| {
            let result = self.saved.model.encode(&mut Metered::new(file, &meter));
            result.map_err(|e| meter.explain(e).with_path(path))
        })?;
        staging.publish()
    }
}

/// Whether the link at `path` stands for a device, a pipe or a process's own stream, such as
/// `/dev/stdout`: a save would take the link away from everybody.
fn leads_to_a_device(path: &Path) -> bool {
    let stream = std::fs::read_link(path).is_ok_and(|target| target.starts_with("/proc"));
    stream || path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// The free space of a directory's file system, in bytes, where it says.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// The directory and file name of a model to be saved at `path`.
fn target(path: &Path) -> Result<(PathBuf, String)> {
    let invalid = |reason: &str| Error::new(ErrorKind::InvalidArgument, reason).with_path(path);
    let name = path.file_name().ok_or_else(|| invalid("names no file"))?;
    if path.as_os_str().as_encoded_bytes().last().is_some_and(|b| is_separator(char::from(*b))) {
        return Err(invalid("names a directory"));
    }
    let name = name.to_str().ok_or_else(|| invalid("the file name is not UTF-8"))?;
    let directory = directory_of(path);
    let missing = |e| Error::io(&directory, e).because("the folder to save to");
    let meta = std::fs::metadata(&directory).map_err(missing)?;
    if !meta.is_dir() {
        return Err(Error::new(ErrorKind::UnsafePath, "not a directory").with_path(directory));
    }
    Ok((directory, name.to_owned()))
}

/// A length in bytes as people say it: `140 GB`, in powers of 1000.
pub(crate) fn human(bytes: u64) -> String {
    let mut unit = "B";
    let mut scale = 1_u64;
    for (name, size) in
        [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)]
    {
        if bytes >= size {
            (unit, scale) = (name, size);
        }
    }
    let (whole, tenth) = (bytes / scale, bytes % scale * 10 / scale);
    if whole < 10 && scale > 1 {
        format!("{whole}.{tenth} {unit}")
    } else {
        format!("{whole} {unit}")
    }
}
