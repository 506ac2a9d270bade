//! [`Container::save`]: plan, write, publish.
//!
//! Everything that can be wrong is looked at before the first byte is written: the tensors, the
//! names, the files that would be replaced, the free space. Then the files are staged and renamed.

mod attached;
mod kept;
mod neighbours;
mod options;
mod plan;
mod produce;
mod publish;
mod target;
mod write;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub(crate) use attached::refuse_attached;
pub use neighbours::model_that_needs;
pub(crate) use neighbours::{locations, neighbours};
pub use options::{Progress, SaveOptions, WeightFiles};
#[cfg(feature = "safetensors")]
pub(crate) use plan::{ExportStyle, Exports};
pub(crate) use plan::{Source, default_data_name, weight_prefix};
pub(crate) use publish::staging_prefix;
pub use target::SavedFile;
pub(crate) use target::Target;
pub(crate) use write::Meter;

use crate::buffer::{Buffer, BufferMut};
use crate::byte_size::ByteSize;
use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, fold_case, is_external};
use crate::inline::{Inlined, inline_functions};
use crate::placement::Alignment;
use crate::proto::ModelProto;
use crate::save::kept::KeptFiles;
use crate::save::neighbours::Needed;
use crate::save::plan::{Plan, PlannedFile};
use crate::save::write::Metered;
use crate::traversal;
use crate::wire::Message;

/// What a save wrote, or would write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Saved {
    /// The model as written: external tensors name files, not handles.
    pub model: ModelProto,
    /// The files that were written, beside one another, the model last.
    pub files: Vec<SavedFile>,
    /// The length of all these files in bytes.
    pub bytes: u64,
    /// The weights files that the model refers to and that stay as they were, by their locations;
    /// see [`SaveOptions::keep_placement`].
    pub kept: Vec<SavedFile>,
    /// What came of inlining local functions, when that was asked for.
    pub inlined: Option<Inlined>,
    /// What was free on the target's file system before the save, in bytes, where it says.
    pub free_bytes: Option<u64>,
    /// Large initializers that no tensor of the model refers to; they were not written.
    pub unused: Vec<Handle>,
    /// Files that the model which was replaced needed and the new one does not. They are left.
    pub left_behind: Vec<PathBuf>,
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
    /// that this container maps is safe. A packed file that has all weights already
    /// [stays as it is](SaveOptions::keep_placement), and the model alone is written.
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
    /// ([`ErrorKind::AlreadyExists`]), too little space ([`ErrorKind::NoSpace`]), a model file over
    /// [`SaveOptions::max_model_bytes`] ([`ErrorKind::ModelTooLarge`]), what
    /// [`inline_functions`](crate::inline_functions) fails with where that was asked for, and for
    /// [`WeightFiles::AsLoaded`] weights that cannot stay ([`ErrorKind::CannotKeep`], one error for
    /// all files). Later [`ErrorKind::Io`]; what was there is then still there.
    pub fn save(&self, path: impl AsRef<Path>, options: impl Into<SaveOptions>) -> Result<Saved> {
        let (path, options) = (path.as_ref(), options.into());
        if let Some((container, options)) = self.externalized(&options)? {
            return container.save(path, options);
        }
        let job = Job::new(self, path, &options)?;
        refuse_attached(self, &job.target.directory, &job.saved.files)?;
        job.check_target()?;
        job.target.check_space(job.saved.bytes)?;
        match job.write() {
            Ok(()) => Ok(job.saved),
            // Somebody replaced the packed file meanwhile: it is written after all.
            Err(error) if error.kind() != ErrorKind::Cancelled && job.lost_its_file() => {
                self.save(path, options.keep_placement(false))
            }
            Err(error) => Err(error),
        }
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
        if let Some((container, options)) = self.externalized(&options)? {
            return container.dry_run(path, options);
        }
        let job = Job::new(self, path.as_ref(), &options)?;
        refuse_attached(self, &job.target.directory, &job.saved.files)?;
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
    /// As [`check`](Self::check); [`ErrorKind::CannotKeep`] for [`WeightFiles::AsLoaded`].
    pub fn to_parts(&self, options: impl Into<SaveOptions>) -> Result<Parts> {
        let options = options.into();
        if let Some((container, options)) = self.externalized(&options)? {
            return container.to_parts(options);
        }
        let (model, _) = self.model_to_save(&options)?;
        self.check_for(&model)?;
        let source = Source { container: self, model: &model };
        let plan = Plan::new(source, &source.used()?, "model.onnx", &options)?;
        let model = self.model_as_written(model, &plan)?.encode_to_vec()?;
        let files = plan.files.iter().map(|file| Ok((file.name.clone(), assemble(file)?)));
        Ok(Parts { model: model.into(), files: files.collect::<Result<_>>()? })
    }

    /// Where `options` ask for it, a container whose inline tensors are behind handles, and the options
    /// to save it with.
    fn externalized(&self, options: &SaveOptions) -> Result<Option<(Self, SaveOptions)>> {
        if !options.externalize {
            return Ok(None);
        }
        let mut container = self.clone();
        container.externalize(options.buffers)?;
        Ok(Some((container, options.clone().externalize(false))))
    }

    /// The model that is saved, whose external tensors name handles: this one, unless `options` ask
    /// for a change to it.
    fn model_to_save(
        &self,
        options: &SaveOptions,
    ) -> Result<(Cow<'_, ModelProto>, Option<Inlined>)> {
        let Some(inlining) = &options.inline_functions else {
            return Ok((Cow::Borrowed(&self.model), None));
        };
        let mut model = self.model.clone();
        let inlined = inline_functions(&mut model, inlining.clone())?;
        Ok((Cow::Owned(model), Some(inlined)))
    }

    /// `model` with external tensors that name their place in the planned files; a tensor without a
    /// place is inline.
    fn model_as_written(&self, model: Cow<'_, ModelProto>, plan: &Plan<'_>) -> Result<ModelProto> {
        let mut model = model.into_owned();
        traversal::tensors_mut(&mut model, |place, tensor| {
            if is_external(tensor) {
                let (handle, initializer) = self.initializer_of(tensor)?;
                match plan.place(handle) {
                    Some((location, range)) => external_data::set_range(tensor, location, range),
                    None => {
                        let bytes = initializer.to_buffer();
                        let named = |e: Error| e.with_tensor(place.qualified_name(tensor));
                        external_data::set_inline(tensor, bytes.map_err(named)?);
                    }
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
        return piece.initializer.to_buffer().map_err(|error| piece.name_in(error));
    }
    let len = usize::try_from(file.len);
    let len = len.map_err(|_| Error::new(ErrorKind::TooLarge, "weights do not fit memory"))?;
    let mut bytes = BufferMut::zeroed(len, Alignment::PAGE)?;
    for piece in &file.pieces {
        let place = usize::try_from(piece.offset).ok().zip(usize::try_from(piece.end()).ok());
        let target = place.and_then(|(start, end)| bytes.get_mut(start..end));
        let target = target.ok_or_else(|| Error::internal("a piece lies beyond its file"))?;
        piece.initializer.read_at(0, target).map_err(|error| piece.name_in(error))?;
    }
    Ok(bytes.freeze())
}

/// One save: what goes where, known before anything is done.
struct Job<'c> {
    options: &'c SaveOptions,
    target: Target,
    plan: Plan<'c>,
    saved: Saved,
}

impl<'c> Job<'c> {
    fn new(container: &'c Container, path: &Path, options: &'c SaveOptions) -> Result<Self> {
        let target = Target::new(path)?;
        let (model, inlined) = container.model_to_save(options)?;
        container.check_for(&model)?;
        let source = Source { container, model: &model };
        let used = source.used()?;
        let plan = match kept::plan(&used, &target, options)? {
            Some(plan) => plan,
            None => Plan::new(source, &used, &target.name, options)?,
        };
        let unused = source.unused(&used);
        let model = container.model_as_written(model, &plan)?;
        let mut files: Vec<_> = plan.files.iter().map(SavedFile::planned).collect();
        files.push(SavedFile::new(target.name.as_str(), model.encoded_len()));
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        let kept = plan.kept.as_ref().map(KeptFiles::to_saved).unwrap_or_default();
        let (free_bytes, left_behind) = (target.free_bytes(), Vec::new());
        let saved = Saved { model, files, bytes, kept, inlined, free_bytes, unused, left_behind };
        let mut job = Self { options, target, plan, saved };
        job.saved.left_behind = job.left_behind();
        Ok(job)
    }

    fn check_target(&self) -> Result<()> {
        #[cfg(feature = "safetensors")]
        self.check_foreign()?;
        self.check_len()?;
        self.target.check(&self.saved.files, self.options.overwrite)
    }

    fn check_len(&self) -> Result<()> {
        let len = self.saved.files.last().map_or(0, |model| model.bytes);
        if self.options.max_model_bytes.is_none_or(|max| len <= max) {
            return Ok(());
        }
        let reason = format!("the model file would have {len} bytes ({})", ByteSize(len));
        Err(Error::new(ErrorKind::ModelTooLarge, reason).with_path(self.target.path()))
    }

    /// Refuses to replace a safetensors file of the default name that the model did not refer to: it
    /// is the checkpoint that the model was exported from.
    #[cfg(feature = "safetensors")]
    fn check_foreign(&self) -> Result<()> {
        let weights = self.plan.files.first().map(|file| &file.name);
        let by_default = self.options.weight_files == WeightFiles::Safetensors
            && self.options.data_name.is_none();
        let Some(name) = weights.filter(|_| by_default) else { return Ok(()) };
        let path = self.target.directory.join(name);
        if path.symlink_metadata().is_err() || locations(&self.target.path()).contains(name) {
            return Ok(());
        }
        let reason = "is there, and the model did not refer to it: it is not replaced unless it is \
                      named as the data file";
        Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path))
    }

    /// Files of the model that is being replaced which neither the new one nor any other needs.
    fn left_behind(&self) -> Vec<PathBuf> {
        let Saved { files, kept, .. } = &self.saved;
        let named: HashSet<_> = files.iter().chain(kept).map(|f| fold_case(&f.name)).collect();
        let old = locations(&self.target.path());
        let left = old.into_iter().filter(|location| !named.contains(&fold_case(location)));
        let left = left.filter(|location| external_data::check_location(location).is_ok());
        let directory = &self.target.directory;
        // Another name of a kept file is not left: one may be a link to the other.
        let real = |name: &str| directory.join(name).canonicalize().ok();
        let kept: HashSet<_> = kept.iter().filter_map(|file| real(&file.name)).collect();
        let left = left.filter(|name| real(name).is_none_or(|path| !kept.contains(&path)));
        let left: Vec<_> = left.filter(|name| directory.join(name).is_file()).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let needed = Needed::by_others(directory, &self.target.name);
        let left = left.into_iter().filter(|location| needed.by(location).is_none());
        left.map(|location| directory.join(location)).collect()
    }

    fn write(&self) -> Result<()> {
        let meter = Meter::new(self.options, self.saved.bytes);
        meter.step()?;
        let mut staging = self.target.stage(&self.plan.files, self.options, &meter)?;
        staging.file(&self.target.name, |file, path| {
            let result = self.saved.model.encode(&mut Metered::new(file, &meter));
            result.map_err(|e| meter.explain(e).with_path(path))
        })?;
        let Some(kept) = &self.plan.kept else { return staging.publish_if(|| meter.step()) };
        if self.options.sync {
            kept.flush()?;
        }
        staging.publish_if(|| kept.check().and_then(|()| meter.step()))
    }

    /// Whether a packed file that was to be kept is not there any more.
    fn lost_its_file(&self) -> bool {
        let kept = self.plan.kept.as_ref();
        self.options.weight_files == WeightFiles::One && kept.is_some_and(|k| k.check().is_err())
    }
}
