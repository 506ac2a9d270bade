//! The weights files of a save and the model that names them, planned and not written: what
//! [`Container::save`] writes, [`Container::to_parts`] holds in memory, and [`Container::prepare`]
//! hands out.

use std::collections::BTreeSet;
use std::io::Write;
#[cfg(feature = "jobs")]
use std::path::Path;
use std::sync::OnceLock;

use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::ModelProto;
use crate::save::encode::checksums::Checksums;
use crate::save::encode::{WrittenModel, refuse_empty};
use crate::save::gather::content::Content;
use crate::save::gather::equal::Equal;
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::readers;
use crate::save::gather::weights::{GatheredWeights, NotLoaded};
use crate::save::options::SaveOptions;
use crate::save::options::statistics::{Deduplicated, Statistics};
use crate::save::options::weight_files::WeightFiles;
use crate::save::plan::{Inputs, Plan, PlannedFile, WeightPlace};
use crate::save::target::SavedFile;
use crate::save::target::file_names::{check_model_name, new_data_name};
#[cfg(feature = "jobs")]
use crate::save::write::{create_whole, write_at};
use crate::tensor::initializer::Initializer;
use crate::util::parallel;

/// A plan and the model of it, with all that is known of the weights before the plan takes them.
pub(super) struct PlannedFiles<'c> {
    pub(super) plan: Plan<'c>,
    pub(super) model: WrittenModel,
    /// The length of the encoded model in bytes.
    pub(super) model_len: u64,
    /// The tensors that readers refuse.
    pub(super) refused: Vec<Error>,
    pub(super) statistics: Statistics,
    pub(super) deduplicated: Option<Deduplicated>,
    /// The large initializers that no tensor refers to.
    pub(super) unused: Vec<Handle>,
    /// The files of tensors that were not loaded.
    pub(super) not_loaded: BTreeSet<String>,
}

impl<'c> PlannedFiles<'c> {
    /// Plans the files of the `weights` of `content`, without those in files that are `kept`.
    pub(super) fn new(
        content: &'c Content<'_>,
        weights: GatheredWeights<'c>,
        kept: &KeptFiles,
        model_name: &str,
        options: &SaveOptions,
    ) -> Result<Self> {
        let equal = Equal::find(&weights, kept, options)?;
        let plan = Plan::new(Inputs {
            weights: &weights,
            #[cfg(feature = "safetensors")]
            model: content.model(),
            kept,
            equal: &equal,
            model_name,
            options,
        })?;
        let statistics = plan.statistics(&weights);
        let deduplicated = options.dedup.then(|| plan.deduplicated(&weights, &equal));
        let (unused, not_loaded) = (weights.unused(), weights.not_loaded.clone());
        let Encoded { model, len: model_len, refused } =
            encode(content, weights, &plan, kept, options)?;
        Ok(Self { plan, model, model_len, refused, statistics, deduplicated, unused, not_loaded })
    }
}

/// The model as it is written.
struct Encoded {
    model: WrittenModel,
    /// The length of the encoded model in bytes.
    len: u64,
    /// The tensors that readers refuse.
    refused: Vec<Error>,
}

/// Encodes the model of `content` with its `weights` where `plan` and `kept` place them, and finds
/// what readers refuse in it. Both walk the graph: one beside the other.
fn encode(
    content: &Content<'_>,
    weights: GatheredWeights<'_>,
    plan: &Plan<'_>,
    kept: &KeptFiles,
    options: &SaveOptions,
) -> Result<Encoded> {
    let checksums = Checksums::wanted(plan, kept, options)?;
    let refusable =
        weights.refusable(|weight| plan.places.get(weight) == Some(&WeightPlace::Model));
    let refused = OnceLock::new();
    let graph = content.shared_model();
    let find_refused = || refused.get_or_init(|| readers::tensors(&graph, &refusable));
    let beside = || {
        find_refused();
        false
    };
    let threads = if refusable.is_empty() { 1 } else { parallel::cores(2) };
    let (model, len) = parallel::alongside(threads, beside, || {
        let graph = content.shared_model();
        let model = WrittenModel::new(graph, weights, plan, kept, &checksums)?
            .of_outline(content.container.is_outline);
        let len = model.encoded_len()?;
        Ok::<_, Error>((model, len))
    })?;
    refuse_empty(len)?;
    Ok(Encoded { model, len, refused: find_refused().clone() })
}

/// The files that a save would write, with all their bytes within reach and nothing written: see
/// [`Container::prepare`].
///
/// It keeps the weights and the graph alive, and borrows nothing.
#[derive(Debug)]
pub struct Prepared {
    files: Vec<PlannedFile<'static>>,
    model: WrittenModel,
    model_len: u64,
    model_name: String,
}

/// A run of bytes in a weights file of a [`Prepared`] save: those of one initializer.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PreparedPiece<'p> {
    /// The index of the file in [`Prepared::files`].
    pub file: usize,
    /// The offset of the first byte in the file.
    pub offset: u64,
    /// The handle of the initializer; `None` for the header of a `.safetensors` file.
    pub handle: Option<&'p Handle>,
    /// What has the bytes. It may be [declared](Initializer::declared) only.
    pub initializer: &'p Initializer,
}

impl Container {
    /// The files that [`save`](Self::save) to a file called `model_name` would write, without a
    /// target: for archives, sockets and object stores, and for weights that others write.
    ///
    /// The plan is that of `save`: the same options place the same bytes at the same offsets.
    /// Nothing is read but what the options need ([`SaveOptions::dedup`], digests, checksums), and
    /// no file is kept where it is. Weights that are [declared](Initializer::declared) only get
    /// their places too; reading them is the error.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, DataType, Initializer, LoadOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", Initializer::declared(DataType::Uint8, [2])?)?;
    ///
    /// let prepared = container.prepare("m.onnx", true)?; // the layout, before there are weights
    /// assert_eq!((prepared.files()[0].name.as_str(), prepared.files()[0].bytes), ("m.onnx.data", 2));
    /// let piece = prepared.pieces().next().unwrap();
    /// assert_eq!((piece.handle.unwrap().as_str(), piece.offset), ("#w", 0));
    ///
    /// container.insert("#w", vec![1_u8, 2])?;
    /// let mut prepared = container.prepare("m.onnx", true)?;
    /// prepared.rename(0, "sha256-0f0f.data")?; // the model names it so
    /// let mut bytes = [0; 2];
    /// prepared.read_at(0, 0, &mut bytes)?;
    /// let mut model = Vec::new();
    /// prepared.encode_model(&mut model)?;
    ///
    /// let options = LoadOptions::new().file("sha256-0f0f.data", bytes.to_vec());
    /// let again = Container::load_bytes(model, options)?;
    /// assert_eq!(again.get("#w").unwrap().to_buffer()?[..], [1, 2]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check) and of the options as in [`save`](Self::save);
    /// [`ErrorKind::InvalidArgument`] for a name that no model can have;
    /// [`ErrorKind::CannotKeep`] for [`WeightFiles::AsLoaded`]; [`ErrorKind::MissingHandle`] for a
    /// tensor that names a file, as it was not loaded, and for weights that are only declared and
    /// would be stored in the model.
    pub fn prepare(
        &self,
        model_name: impl Into<String>,
        options: impl Into<SaveOptions>,
    ) -> Result<Prepared> {
        let (model_name, options) = (model_name.into(), options.into());
        check_model_name(&model_name)?;
        refuse_kept(&options)?;
        let content = Content::new(self, &options)?;
        let mut weights = content.weights(NotLoaded::Refuse)?;
        weights.make_inline(|_| options.weight_files == WeightFiles::Embedded);
        Prepared::new(&content, weights, model_name, &options)
    }
}

/// Refuses to leave weights where they are.
pub(super) fn refuse_kept(options: &SaveOptions) -> Result<()> {
    if options.weight_files != WeightFiles::AsLoaded {
        return Ok(());
    }
    let reason = "there are no files here that weights could stay in";
    Err(Error::new(ErrorKind::CannotKeep, reason))
}

impl Prepared {
    pub(super) fn new<'c>(
        content: &'c Content<'_>,
        weights: GatheredWeights<'c>,
        model_name: String,
        options: &SaveOptions,
    ) -> Result<Self> {
        let kept = KeptFiles::default();
        let planned = PlannedFiles::new(content, weights, &kept, &model_name, options)?;
        planned.model.refuse_declared()?;
        let PlannedFiles { plan, model, model_len, .. } = planned;
        let files = plan.files.into_iter().map(PlannedFile::into_owned).collect();
        Ok(Self { files, model, model_len, model_name })
    }

    /// The weights files, with their lengths in bytes.
    pub fn files(&self) -> Vec<SavedFile> {
        self.files.iter().map(PlannedFile::to_saved).collect()
    }

    /// What the weights files consist of, in the order of the files and of the offsets in them.
    /// Between pieces the bytes are zero. Tensors on the same bytes have one piece.
    pub fn pieces(&self) -> impl Iterator<Item = PreparedPiece<'_>> {
        self.files.iter().enumerate().flat_map(|(number, file)| {
            file.pieces.iter().map(move |piece| PreparedPiece {
                file: number,
                offset: piece.offset,
                handle: piece.handle.as_deref(),
                initializer: &piece.initializer,
            })
        })
    }

    /// Fills `out` with the bytes of the weights file of the index `file` from `offset` (bytes) on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] where the file has no such bytes, [`ErrorKind::InvalidArgument`]
    /// for an index without a file, [`ErrorKind::MissingHandle`] for weights that are only
    /// declared, and those of the sources.
    pub fn read_at(&self, file: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file(file)?.read_at(offset, out)
    }

    /// Calls the weights file of the index `file` by another name, in the model too: one made of
    /// its contents, for instance.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a name that no data file of the model can have, or that
    /// another one has, and for an index without a file.
    pub fn rename(&mut self, file: usize, name: impl Into<String>) -> Result<()> {
        let old = self.file(file)?.name.clone();
        let others = self.files.iter().enumerate().filter(|(number, _)| *number != file);
        let others = others.map(|(_, other)| other.name.as_str());
        let name = new_data_name(name.into(), &self.model_name, others)?;
        self.model.rename_file(&old, &name);
        self.model_len = self.model.encoded_len()?;
        let renamed = self.files.get_mut(file).ok_or_else(|| no_file(file))?;
        renamed.name = name;
        Ok(())
    }

    /// The model with the names, offsets and lengths of the weights files in it. The message is
    /// built by this call.
    ///
    /// # Errors
    /// Those of weights that are stored in the model and cannot be read.
    pub fn model(&self) -> Result<ModelProto> {
        self.model.to_message()
    }

    /// Writes the encoded model to `out`.
    ///
    /// # Errors
    /// Errors of `out`, and those of [`model`](Self::model).
    pub fn encode_model(&self, out: &mut impl Write) -> Result<()> {
        self.model.encode(out)
    }

    /// The name that the model was prepared for.
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// The length of the encoded model in bytes.
    pub fn model_len(&self) -> u64 {
        self.model_len
    }

    /// Makes the weights file of the index `file` at `path`, in its full length: with what is no
    /// weight, and zeros where weights will be.
    #[cfg(feature = "jobs")]
    pub(crate) fn create_file(&self, file: usize, path: &Path, sync: bool) -> Result<()> {
        let planned = self.file(file)?;
        let fail = |error| Error::io(path, error);
        let made = create_whole(path, planned.len).map_err(fail)?;
        for header in planned.pieces.iter().filter(|piece| piece.handle.is_none()) {
            write_at(&made, &header.initializer.to_buffer()?, header.offset).map_err(fail)?;
        }
        if sync { made.sync_all().map_err(fail) } else { Ok(()) }
    }

    /// The encoded model.
    pub(super) fn model_bytes(&self) -> Result<Vec<u8>> {
        self.model.encode_to_vec()
    }

    /// The weights files with their pieces.
    pub(super) fn planned(&self) -> &[PlannedFile<'static>] {
        &self.files
    }

    fn file(&self, file: usize) -> Result<&PlannedFile<'static>> {
        self.files.get(file).ok_or_else(|| no_file(file))
    }
}

fn no_file(file: usize) -> Error {
    let reason = format!("there is no weights file of the index {file}");
    Error::new(ErrorKind::InvalidArgument, reason)
}
