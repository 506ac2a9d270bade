//! [`Container::save`]: plan, write, publish.
//!
//! The tensors, the names, the files that would be replaced and the free space are all checked
//! before the first byte is written. Then the files are staged and renamed.
//!
//! A save uses its rooms in this order: `options` (what is wanted), `target` (where files go),
//! `gather` (the weights), `plan` (which bytes go where), `encode` (the model), `write` (the
//! bytes). `target::publish` stages the files first and renames them last.

mod encode;
mod encoded;
mod gather;
mod options;
mod plan;
mod saved;
mod target;
mod write;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub use encoded::{EncodedFile, save_encoded};
pub(crate) use gather::attached::refuse_attached;
use gather::readers;
pub(crate) use gather::weights::NotLoaded;
#[cfg(feature = "safetensors")]
pub(crate) use gather::weights::Weights;
pub use options::SaveOptions;
pub use options::progress::{Progress, Waiting};
pub use options::statistics::{Deduplicated, Statistics};
pub use options::weight_files::{ShardNames, WeightFiles};
#[cfg(feature = "safetensors")]
pub(crate) use plan::{ExportStyle, Exports, PlannedFile};
pub use saved::{Parts, Saved};
pub use target::SavedFile;
pub(crate) use target::Target;
pub(crate) use target::folder::{Folder, Request, files_read_by};
pub use target::folder::{NotReplaced, model_that_needs, not_replaced, other_model_that_needs};
pub(crate) use write::meter::Meter;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::not_recovered;
use crate::save::encode::checksums::checksums;
use crate::save::encode::{WrittenModel, refuse_empty};
use crate::save::gather::content::Content;
use crate::save::gather::equal::Equal;
use crate::save::gather::kept::{Kept, KeptFile};
use crate::save::options::statistics::timed;
#[cfg(not(feature = "safetensors"))]
use crate::save::plan::PlannedFile;
use crate::save::plan::{Inputs, Place, Plan};
use crate::save::target::publish::{NewFile, Staging};
use crate::save::write::meter::Metered;
use crate::save::write::produce::ahead_of;
use crate::save::write::{Output, write_files};
use crate::util::byte_size::ByteSize;
use crate::util::names::fold_case;
use crate::util::parallel;
use crate::util::retry::{exists, retried};

impl Container {
    /// Saves the model to `path` and its weights beside it; returns what was written.
    ///
    /// `true` packs all weights into `<file name>.data`, `false` writes one `.weight` file for each
    /// large initializer; see [`SaveOptions`] for more. The container is not changed. Files are
    /// staged and renamed, so a save that fails leaves the old files in place, and a save over the
    /// files that this container maps is safe. A packed file that already has all weights [is
    /// kept](SaveOptions::keep_placement), and only the model is written.
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
    /// Before anything is written: the errors of [`check`](Self::check), a folder that is missing
    /// ([`ErrorKind::MissingFile`]), a target that must not be replaced
    /// ([`ErrorKind::AlreadyExists`]), too little space ([`ErrorKind::NoSpace`]), a model file over
    /// [`SaveOptions::max_model_bytes`] ([`ErrorKind::ModelTooLarge`]), the errors of
    /// [`inline_functions`](crate::inline::inline_functions) where that was asked for, a tensor
    /// that is too long for [`ShardNames::TransformersJs`] ([`ErrorKind::TooLarge`]), and for
    /// [`WeightFiles::AsLoaded`] weights that cannot be kept ([`ErrorKind::CannotKeep`], one error
    /// for all files). Later [`ErrorKind::Io`]; the old files are then still in place.
    pub fn save(&self, path: impl AsRef<Path>, options: impl Into<SaveOptions>) -> Result<Saved> {
        let start = Instant::now();
        let (path, options) = (path.as_ref(), options.into());
        let target = Target::new(path)?;
        let folder = Folder::of(&target);
        let mut recovered = folder.recover(&options)?;
        let content = Content::new(self, &options)?;
        let mut job = Job::new(&content, target, &options)?;
        refuse_attached(self, &job.target.directory, &job.saved.files)?;
        job.check_files()?;
        recovered.extend(job.with_request(|request| folder.check_recovered(request, &options))?);
        job.saved.warnings.extend(recovered);
        job.target.check_space(job.saved.bytes)?;
        job.saved.statistics.planning = start.elapsed();
        match job.write() {
            Ok(warnings) => {
                job.saved.warnings.extend(warnings);
                Ok(job.saved)
            }
            // Another program replaced the packed file in the meantime, so it is written again.
            Err(error) if error.kind() != ErrorKind::Cancelled && job.lost_its_file() => {
                self.save(path, options.clone().keep_placement(false))
            }
            Err(error) => Err(error),
        }
    }

    /// What [`save`](Self::save) would write, without writing: the same checks and the same result,
    /// except that too little space is not an error here: see [`Saved::free_bytes`]. Nothing is
    /// changed: an interrupted save, which a save completes first, is a warning.
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
    /// Those of [`save`](Self::save) before it writes.
    pub fn dry_run(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<SaveOptions>,
    ) -> Result<Saved> {
        let (start, options) = (Instant::now(), options.into());
        let target = Target::new(path.as_ref())?;
        let interrupted = not_recovered(&target.directory, &target.name);
        // What is refused may be what that save left halfway.
        let explained = |error| interrupted.iter().fold(error, |e: Error, i| e.and(i.reason()));
        let mut saved = self.planned(target, &options).map_err(explained)?;
        saved.warnings.extend(interrupted);
        saved.statistics.planning = start.elapsed();
        Ok(saved)
    }

    /// What a save to `target` would write.
    fn planned(&self, target: Target, options: &SaveOptions) -> Result<Saved> {
        let content = Content::new(self, options)?;
        let job = Job::new(&content, target, options)?;
        refuse_attached(self, &job.target.directory, &job.saved.files)?;
        job.check_target()?;
        Ok(job.saved)
    }

    /// The model and its weights files in memory, as a save to `model.onnx` would write them: for
    /// sessions that are made from bytes.
    ///
    /// With [`WeightFiles::PerTensor`] the files are the initializers' own buffers; a packed file
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
    /// Those of [`check`](Self::check); [`ErrorKind::CannotKeep`] for [`WeightFiles::AsLoaded`],
    /// [`ErrorKind::TooLarge`] for a tensor that is too long for [`ShardNames::TransformersJs`].
    pub fn to_parts(&self, options: impl Into<SaveOptions>) -> Result<Parts> {
        let options = options.into();
        if options.weight_files == WeightFiles::AsLoaded {
            let reason = "there are no files here that weights could stay in";
            return Err(Error::new(ErrorKind::CannotKeep, reason));
        }
        let content = Content::new(self, &options)?;
        let mut weights = content.weights(NotLoaded::Refuse)?;
        weights.make_inline(|tensor| {
            options.weight_files == WeightFiles::Embedded || !tensor.from_memory
        });
        let kept = Kept::default();
        let plan = Plan::new(Inputs {
            weights: &weights,
            #[cfg(feature = "safetensors")]
            model: content.model(),
            kept: &kept,
            equal: &Equal::find(&weights, &kept, &options)?,
            model_name: "model.onnx",
            options: &options,
        })?;
        let checksums = checksums(&plan, &kept, &options)?;
        let written = WrittenModel::new(content.shared_model(), weights, &plan, &kept, &checksums)?;
        let model = written.encode_to_vec()?;
        refuse_empty(model.len() as u64)?;
        let files = plan.files.iter().map(|file| Ok((file.name.clone(), file.assemble()?)));
        Ok(Parts { model: model.into(), files: files.collect::<Result<_>>()? })
    }
}

/// Makes a staging folder for `target` and writes `files` into it.
pub(crate) fn stage(
    target: &Target,
    files: &[PlannedFile<'_>],
    options: &SaveOptions,
    meter: &Meter<'_>,
) -> Result<Staging> {
    let mut staging = Staging::new(&target.directory, &target.name, options)?;
    let produced = ahead_of(files, options.max_bytes_in_flight, |ahead| {
        staging.write(files.iter().map(|plan| plan.name.as_str()), |staging| {
            let create = |plan: &PlannedFile<'_>| {
                let NewFile { file, staged, path } = staging.create(&plan.name)?;
                Output::new(file, (&staged, path), plan, options)
            };
            write_files(files, create, ahead, meter)
        })?;
        Ok(ahead.producing())
    });
    match produced {
        Ok(producing) => {
            staging.producing = producing;
            Ok(staging)
        }
        Err(error) => Err(staging.discard(error)),
    }
}

/// One save: its plan and result, complete before anything is written.
struct Job<'c, 'o> {
    content: &'c Content<'c>,
    options: &'o SaveOptions,
    target: Target,
    folder: Folder,
    kept: Kept,
    plan: Plan<'c>,
    /// The files of tensors that were not loaded.
    not_loaded: BTreeSet<String>,
    saved: Saved,
}

impl<'c, 'o> Job<'c, 'o> {
    fn new(content: &'c Content<'_>, target: Target, options: &'o SaveOptions) -> Result<Self> {
        let weights = content.weights_to_save(options)?;
        let kept = Kept::new(&weights, &target, options)?;
        let equal = Equal::find(&weights, &kept, options)?;
        let plan = Plan::new(Inputs {
            weights: &weights,
            #[cfg(feature = "safetensors")]
            model: content.model(),
            kept: &kept,
            equal: &equal,
            model_name: &target.name,
            options,
        })?;
        let checksums = checksums(&plan, &kept, options)?;
        let statistics = plan.statistics(&weights);
        let deduplicated = options.dedup.then(|| plan.deduplicated(&weights, &equal));
        let (unused, not_loaded) = (weights.unused(), weights.not_loaded.clone());
        let refusable = weights.refusable(|weight| plan.places.get(weight) == Some(&Place::Model));
        // The search for what readers refuse and the count of bytes both walk the graph: one beside
        // the other.
        let refused = OnceLock::new();
        let graph = content.shared_model();
        let find_refused = || refused.get_or_init(|| readers::tensors(&graph, &refusable));
        let beside = || {
            find_refused();
            false
        };
        let threads = if refusable.is_empty() { 1 } else { parallel::cores(2) };
        let model = parallel::alongside(threads, beside, || {
            let graph = content.shared_model();
            let model = WrittenModel::new(graph, weights, &plan, &kept, &checksums)?
                .of_outline(content.container.is_outline);
            Ok::<_, Error>((model.encoded_len()?, model))
        });
        let ((encoded_len, model), refused) = (model?, find_refused().clone());
        refuse_empty(encoded_len)?;
        let mut files: Vec<_> = plan.files.iter().map(PlannedFile::to_saved).collect();
        files.push(SavedFile::new(target.name.as_str(), encoded_len));
        let saved = Saved {
            bytes: files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
            files,
            kept: kept.files.iter().map(KeptFile::to_saved).collect(),
            unreferenced_bytes: kept.unreferenced_bytes(),
            deduplicated,
            statistics,
            inlined: content.inlined.clone(),
            free_bytes: target.free_bytes(),
            unused,
            left_behind: Vec::new(),
            warnings: Vec::new(),
            model: Arc::new(model),
        };
        let folder = Folder::of(&target);
        let mut job = Self { content, options, target, folder, kept, plan, not_loaded, saved };
        job.saved.warnings = job.warnings(refused);
        match job.left_behind() {
            Ok(left_behind) => job.saved.left_behind = left_behind,
            Err(error) => job.saved.warnings.push(error),
        }
        let removed = job.superseded();
        job.saved.left_behind.retain(|path| removed.iter().all(|name| !path.ends_with(name)));
        Ok(job)
    }

    /// Problems that do not prevent the save, for [`Saved::warnings`]: those of the tensors that
    /// readers refuse, and all others.
    fn warnings(&self, refused: Vec<Error>) -> Vec<Error> {
        let len = self.saved.files.last().map_or(0, |model| model.bytes);
        let mut warnings = self.missing_files();
        warnings.extend(refused);
        warnings.extend(readers::versions(&self.content.shared_model()));
        warnings.extend(readers::malformed(&self.content.shared_model()));
        warnings.extend(self.content.inlined.iter().flat_map(|inlined| inlined.warnings.clone()));
        warnings.extend(readers::files(&self.target, self.stays()));
        warnings.extend(readers::model_file(&self.target, len));
        warnings
    }

    /// The files that the saved model still refers to, that were not loaded, and that are not in
    /// the target's folder.
    fn missing_files(&self) -> Vec<Error> {
        let paths = self.not_loaded.iter().map(|location| self.target.directory.join(location));
        let missing = paths.filter(|path| !exists(path));
        let reason = "the saved model needs this file, which was not loaded and is not there";
        missing.map(|path| Error::new(ErrorKind::MissingFile, reason).with_path(path)).collect()
    }

    /// As [`check_files`](Self::check_files), and refuses to replace what must not be replaced.
    fn check_target(&self) -> Result<()> {
        self.check_files()?;
        self.with_request(|request| self.folder.check(request, self.options))
    }

    fn check_files(&self) -> Result<()> {
        self.check_kept()?;
        self.check_len()
    }

    /// Calls `ask` with what this save requests of the target's folder.
    fn with_request<T>(&self, ask: impl FnOnce(&Request<'_>) -> T) -> T {
        ask(&Request {
            files: &self.saved.files,
            is_model: true,
            asked: &|name| self.is_asked(name),
            overwrite: self.options.overwrite,
            reads: &|| files_read_by(&self.content.container),
            protected: &self.options.protected,
        })
    }

    /// Whether the caller named the weights file `name`, or the name that its shards have theirs
    /// from.
    fn is_asked(&self, name: &str) -> bool {
        let is_shard = || self.plan.files.iter().any(|file| file.name == name);
        match (&self.options.data_name, self.options.weight_files) {
            (Some(_), WeightFiles::Sharded { .. }) => is_shard(),
            (asked, _) => asked.as_deref() == Some(name),
        }
    }

    /// The locations of the files that the saved model refers to and that this save does not write.
    fn stays(&self) -> impl Iterator<Item = &String> {
        self.kept.files.iter().map(|file| &file.location).chain(&self.not_loaded)
    }

    /// Refuses to replace a file that the saved model refers to without writing it.
    fn check_kept(&self) -> Result<()> {
        let stays: HashSet<_> = self.stays().map(|location| fold_case(location)).collect();
        let errors = self.saved.files.iter().filter(|file| stays.contains(&fold_case(&file.name)));
        let errors = errors.map(|file| {
            let reason = "the saved model refers to weights in this file: it is not replaced";
            let path = self.target.directory.join(&file.name);
            Error::new(ErrorKind::AlreadyExists, reason).with_path(path)
        });
        Error::join(errors).map_or(Ok(()), Err)
    }

    fn check_len(&self) -> Result<()> {
        let len = self.saved.files.last().map_or(0, |model| model.bytes);
        if self.options.max_model_bytes.is_none_or(|max| len <= max) {
            return Ok(());
        }
        let reason = format!("the model file would have {len} bytes ({})", ByteSize(len));
        Err(Error::new(ErrorKind::ModelTooLarge, reason).with_path(self.target.path()))
    }

    /// Files of the replaced model that neither the new model nor any other needs.
    fn left_behind(&self) -> Result<Vec<PathBuf>> {
        self.with_needed(|is_needed| self.folder.left_behind(is_needed))
    }

    /// The names of those that the save removes, where that was asked for. None where a neighbour
    /// cannot be read, which may need them: a warning says so.
    fn superseded(&self) -> Vec<String> {
        if !self.options.remove_superseded {
            return Vec::new();
        }
        let protected = &self.options.protected;
        let found = self.with_needed(|is_needed| self.folder.superseded(is_needed, protected));
        found.unwrap_or_default()
    }

    /// Calls `ask` with what says whether the new model needs the file of a name.
    fn with_needed<T>(&self, ask: impl FnOnce(&dyn Fn(&str) -> bool) -> T) -> T {
        let files = self.saved.files.iter().map(|file| &file.name);
        let named: HashSet<_> = files.chain(self.stays()).map(|name| fold_case(name)).collect();
        // Another name of a kept file is not left behind: one may be a link to the other.
        let real = |name: &str| retried(|| self.target.directory.join(name).canonicalize()).ok();
        let stays: HashSet<_> = self.stays().filter_map(|name| real(name)).collect();
        ask(&|name| {
            named.contains(&fold_case(name)) || real(name).is_some_and(|path| stays.contains(&path))
        })
    }

    /// Writes the files and publishes them; returns warnings.
    fn write(&mut self) -> Result<Vec<Error>> {
        let meter = Meter::new(self.options, self.saved.bytes);
        meter.step()?;
        let mut staging = stage(&self.target, &self.plan.files, self.options, &meter)?;
        if let Err(error) = self.stage_model(&mut staging, &meter) {
            return Err(staging.discard(error));
        }
        let Staging { producing, writing, flushing, .. } = staging;
        let mut done = Statistics { producing, writing, flushing, ..self.saved.statistics };
        let look_again = || {
            self.kept.check()?;
            self.with_request(|request| self.folder.check_locked(request))?;
            meter.step()?;
            Ok(self.superseded())
        };
        let folders = self.kept.folders();
        let warnings = timed(&mut done.publishing, || staging.publish(folders, look_again))?;
        self.saved.statistics = done;
        Ok(warnings)
    }

    /// Writes the model beside its weights, and waits until all files are on the disk where that
    /// was requested.
    fn stage_model(&self, staging: &mut Staging, meter: &Meter<'_>) -> Result<()> {
        staging.write([self.target.name.as_str()], |staging| {
            let NewFile { file, path, .. } = staging.create(&self.target.name)?;
            let result = self.saved.model.encode(&mut Metered::new(&file, meter));
            result.map_err(|e| meter.explain(e).with_path(path))
        })?;
        staging.flush()?;
        if !self.options.sync {
            return Ok(());
        }
        let mut flushing = staging.flushing;
        timed(&mut flushing, || self.kept.flush())?;
        staging.flushing = flushing;
        Ok(())
    }

    /// Whether a packed file that was to be kept has since been removed or changed.
    fn lost_its_file(&self) -> bool {
        self.options.weight_files == WeightFiles::Packed && self.kept.check().is_err()
    }
}
