//! [`Saved`]: the result of a save or of a dry run, and [`Parts`], that of a save to memory.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::container::Handle;
use crate::error::{Error, Result};
use crate::graph::inline::Inlined;
use crate::proto::ModelProto;
use crate::save::encode::WrittenModel;
use crate::save::options::statistics::{Deduplicated, Statistics};
use crate::save::target::SavedFile;
use crate::save::target::old_files::StillNeeded;

/// A model and its weights files in memory: [`Container::to_parts`](crate::Container::to_parts).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Parts {
    /// The encoded model.
    pub model: Buffer,
    /// The weights files by the names that the model refers to.
    pub files: Vec<(String, Buffer)>,
}

/// What a save wrote, or would write. It shares the container's graph, which is copied only when
/// the container's model is changed while this value exists.
///
/// ```
/// use onnx_container::Container;
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", ndarray::array![1_u8, 2])?;
///
/// let folder = tempfile::tempdir().unwrap();
/// let saved = container.save(folder.path().join("m.onnx"), true)?;
/// assert_eq!(saved.files.len(), 2);
/// let model = saved.model()?; // its external tensors name files, those of the container handles
/// let entry = &model.graph.as_ref().unwrap().initializer[0].external_data[0];
/// assert_eq!(entry.value.as_ref().unwrap(), &"m.onnx.data");
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Saved {
    /// Whether nothing was written, because all files are there as they would be written. This is
    /// not known where weights are made for the save: it then writes them.
    pub unchanged: bool,
    /// The files that were written, all in one directory, the model last. Of a model that is
    /// [`unchanged`](Self::unchanged) they were there already.
    pub files: Vec<SavedFile>,
    /// The length of all these files in bytes.
    pub bytes: u64,
    /// The weights files that the model refers to and that were not rewritten, by their locations;
    /// see [`SaveOptions::keep_placement`](crate::SaveOptions::keep_placement).
    pub kept: Vec<SavedFile>,
    /// The number of bytes in the kept files that no tensor of the model refers to: padding, and
    /// the bytes of tensors that were deleted or replaced. Saving with
    /// [`keep_placement(false)`](crate::SaveOptions::keep_placement) drops them.
    pub unreferenced_bytes: u64,
    /// What equal weights were spared, when that was asked for by
    /// [`SaveOptions::dedup`](crate::SaveOptions::dedup).
    pub deduplicated: Option<Deduplicated>,
    /// How long the save took, and how many bytes of tensors were copied, shared or kept.
    pub statistics: Statistics,
    /// The result of inlining local functions, when that was asked for.
    pub inlined: Option<Inlined>,
    /// The free space on the target's file system before the save, in bytes, where the system
    /// reports it.
    pub free_bytes: Option<u64>,
    /// Large initializers that no tensor of the model refers to; they were not written.
    pub unused: Vec<Handle>,
    /// Old weights files that the save removed, or would remove; see
    /// [`SaveOptions::remove_superseded`](crate::SaveOptions::remove_superseded).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub removed: Vec<PathBuf>,
    /// Files that only the replaced model needed and that stay.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub left_behind: Vec<PathBuf>,
    /// Files of the replaced model that the new one does not need, and that stay because other
    /// models need them.
    pub still_needed: Vec<StillNeeded>,
    /// Problems that did not prevent the save: what onnx or onnxruntime refuse in the model as
    /// written (such as external shape operands, tensors without the elements that their shape
    /// needs, or a model file over 2 GiB), what inlining lost or changed ([`Inlined::warnings`]),
    /// files that the model refers to and that are not there, a staging folder that cannot be
    /// removed, an owner, group or access control list of replaced files that the new ones could
    /// not be given. Each names the tensor or path it concerns.
    pub warnings: Vec<Error>,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) model: Arc<WrittenModel>,
}

impl Saved {
    /// The model as written: external tensors name files, not handles. The message is built by this
    /// call.
    ///
    /// # Errors
    /// The error of a weight that is stored in the model and cannot be read.
    pub fn model(&self) -> Result<ModelProto> {
        self.model.to_message()
    }

    /// The graph that was written: the container's model, or the result of
    /// [inlining](crate::SaveOptions::inline_functions). Its external tensors name handles. A
    /// tensor that was inline in the container is inline here too, even where
    /// [`SaveOptions::externalize`](crate::SaveOptions::externalize) wrote it to a weights file,
    /// unless functions were inlined; [`model`](Self::model) has it as written. Of an
    /// [`Outline`](crate::Outline), it has only what holds tensors.
    pub fn structure(&self) -> &ModelProto {
        self.model.model()
    }

    /// Writes the bytes of the model file to `out` again.
    ///
    /// # Errors
    /// Errors of `out`, and those of [`model`](Self::model).
    pub fn encode_model(&self, out: &mut impl Write) -> Result<()> {
        self.model.encode(out)
    }
}
