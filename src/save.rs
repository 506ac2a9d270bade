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
#[cfg(test)]
mod every_machine;
mod gather;
mod group;
mod options;
mod plan;
mod planned_save;
mod prepared;
mod saved;
mod target;
mod unchanged;
mod write;

use std::path::Path;
use std::time::Instant;

pub use encoded::existing::Placed;
pub use encoded::{EncodedFile, save_encoded};
pub use options::SaveOptions;
pub use options::progress::{Progress, Waiting};
pub use options::statistics::{Deduplicated, Statistics};
pub use options::weight_files::{ShardNames, WeightFiles};
pub use prepared::{Prepared, PreparedPiece};
pub use saved::{Parts, Saved};
pub use target::SavedFile;
pub use target::folder::{NotReplaced, model_that_needs, not_replaced, other_model_that_needs};
pub use target::old_files::StillNeeded;

// What an export of weights without a model plans and writes with.
#[cfg(feature = "safetensors")]
pub(crate) use {
    gather::attached::refuse_attached,
    gather::weights::GatheredWeights,
    plan::{ExportStyle, Exports, PlannedFile},
    target::publish::Staging,
    write::meter::Meter,
    write::stage_files,
};
pub(crate) use {
    gather::weights::NotLoaded, target::SaveTarget, target::folder::ModelFolder,
    target::users::unless_passed,
};
// What moves and copies of models use.
pub(crate) use {
    encoded::existing::Existing,
    encoded::{EncodedSave, NewAccess},
    group::{Group, GroupModel, GroupSaved},
    target::access::Access,
    target::file_names::renamed_with_model,
    target::same_file::{
        FileId, file_ids, ids_of, is_any_of, is_at, is_one_folder, real_path, there,
    },
};
// What jobs and exports use.
#[cfg(any(feature = "jobs", feature = "safetensors"))]
pub(crate) use target::folder::Request;
// What jobs use.
#[cfg(feature = "jobs")]
pub(crate) use {
    encoded::Done, target::access::give_access_of, unchanged::is_copy, write::write_at,
};
// What looks at whole folders uses.
pub(crate) use {
    target::file_names::{is_default_name, is_name_of_one_weight},
    target::shard_index::skim_any,
    target::skim::{Skimmed, leads_nowhere},
    target::users::Base,
};

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::not_recovered;
use crate::save::gather::content::Content;
use crate::save::planned_save::PlannedSave;
use crate::save::prepared::refuse_kept;

impl Container {
    /// Saves the model to `path` and its weights beside it; returns what was written.
    ///
    /// `true` packs all weights into `<file name>.data`, `false` writes one `.weight` file for each
    /// large initializer; see [`SaveOptions`] for more. The container is not changed. Files are
    /// staged and renamed, so a save that fails leaves the old files in place, and a save over the
    /// files that this container maps is safe. A packed file that already has all weights [is
    /// kept](SaveOptions::keep_placement), and only the model is written. Where all files have the
    /// bytes already that would be written, nothing is written ([`Saved::unchanged`]): they keep
    /// their inodes and times. That is not known of weights that are made for the save.
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
        let target = SaveTarget::new(path)?;
        let recovered = ModelFolder::of(&target).recover(&options)?;
        let content = Content::new(self, &options)?;
        let mut save = PlannedSave::new(&content, target, &options)?;
        save.saved_mut().warnings.extend(recovered);
        save.check_to_write()?;
        save.saved_mut().statistics.planning = start.elapsed();
        if save.is_unchanged()? {
            return Ok(save.into_saved());
        }
        match save.write() {
            Ok(()) => Ok(save.into_saved()),
            // Another program replaced the packed file in the meantime, so it is written again.
            Err(error) if error.kind() != ErrorKind::Cancelled && save.lost_its_file() => {
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
        let target = SaveTarget::new(path.as_ref())?;
        let interrupted = not_recovered(&target.directory, &target.name);
        // What is refused may be what that save left halfway.
        let explained = |error| interrupted.iter().fold(error, |e: Error, i| e.and(i.reason()));
        let mut saved = self.planned(target, &options).map_err(explained)?;
        saved.warnings.extend(interrupted);
        saved.statistics.planning = start.elapsed();
        Ok(saved)
    }

    /// What a save to `target` would write.
    fn planned(&self, target: SaveTarget, options: &SaveOptions) -> Result<Saved> {
        let content = Content::new(self, options)?;
        let mut save = PlannedSave::new(&content, target, options)?;
        save.check()?;
        save.would_be_unchanged();
        Ok(save.into_saved())
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
        refuse_kept(&options)?;
        let content = Content::new(self, &options)?;
        let mut weights = content.weights(NotLoaded::Refuse)?;
        weights.refuse_declared()?;
        weights.make_inline(|tensor| {
            options.weight_files == WeightFiles::Embedded || !tensor.from_memory
        });
        let prepared = Prepared::new(&content, weights, "model.onnx".to_owned(), &options)?;
        let model = prepared.model_bytes()?;
        let files = prepared.planned().iter();
        let files = files.map(|file| Ok((file.name.clone(), file.assemble()?)));
        Ok(Parts { model: model.into(), files: files.collect::<Result<_>>()? })
    }
}
