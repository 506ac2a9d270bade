//! [`Outline`]: a model of which only what holds tensors is decoded, to move its weights.
//!
//! Storing weights inside a model changes its tensors and nothing else. For a graph of hundreds of
//! thousands of nodes, making and freeing the messages of the others would be most of the work.
//! They are kept as the bytes that they were read as. Whatever needs the operators of a graph, such
//! as moving tensors out of it without those that shape inference reads, needs a [`Container`].

use std::path::Path;

use crate::buffer::Buffer;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal::{self, Tensors};
use crate::load::LoadOptions;
use crate::save::{SaveOptions, Saved, WeightFiles};
use crate::tensor::initializer::Initializer;

/// A model whose weights are to be stored inside it: its tensors, with the weights behind them.
///
/// Nodes without tensors and the types of values are not decoded. They are written as they were
/// read, byte for byte, so this takes a fraction of the time and memory of a [`Container`].
///
/// ```
/// use ndarray::array;
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
/// use onnx_container::{Container, MmapChoice, Outline, WeightFiles};
///
/// let mut graph = GraphProto::new("g");
/// graph.node.push(NodeProto::new("Relu", ["w"], ["y"]));
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", array![1_u8, 2])?;
/// let folder = tempfile::tempdir().unwrap();
/// let [packed, whole] = ["packed.onnx", "whole.onnx"].map(|name| folder.path().join(name));
/// container.save(&packed, WeightFiles::Packed)?;
///
/// let outline = Outline::load(&packed, MmapChoice::never())?;
/// assert_eq!(outline.tensors().count(), 1);
/// let saved = outline.embed(&whole, true)?;
/// assert_eq!(saved.files.len(), 1);
/// let graph = saved.model()?.graph.unwrap();
/// assert_eq!(graph.node.len(), 1);
/// assert_eq!(&graph.initializer[0].raw_data.as_ref().unwrap()[..], [1, 2]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Outline(Container);

impl Outline {
    /// Loads the model at `path` with its weights, as [`Container::load`] does.
    ///
    /// # Errors
    /// Those of [`Container::load`]. What is not decoded is checked as strictly.
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) with
    /// [`LoadOptions::verify_digests`] or [`LoadOptions::expect_digest`], which need all of it.
    pub fn load(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Self> {
        Self::of(options, |options| Container::load(path, options))
    }

    /// Loads a model from memory, as [`Container::load_bytes`] does.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn load_bytes(bytes: impl Into<Buffer>, options: impl Into<LoadOptions>) -> Result<Self> {
        Self::of(options, |options| Container::load_bytes(bytes, options))
    }

    fn of(
        options: impl Into<LoadOptions>,
        load: impl FnOnce(LoadOptions) -> Result<Container>,
    ) -> Result<Self> {
        let mut options = options.into();
        options.decode.outline = true;
        let mut container = load(options)?;
        container.is_outline = true;
        Ok(Self(container))
    }

    /// Every tensor with its place, in graph order. External ones have handles for locations.
    pub fn tensors(&self) -> Tensors<'_> {
        traversal::iter(self.0.model())
    }

    /// The large initializer behind `handle`, with or without its `#`.
    pub fn get(&self, handle: &str) -> Option<&Initializer> {
        self.0.get(handle)
    }

    /// What a load found that some readers refuse.
    pub fn warnings(&self) -> &[Error] {
        self.0.warnings()
    }

    /// Whether digests were stored with the model, which a save leaves out:
    /// [`Container::had_digests`].
    pub fn had_digests(&self) -> bool {
        self.0.had_digests()
    }

    /// Saves the model to `path` with all weights inside it, as [`Container::save`] does with
    /// [`WeightFiles::Embedded`]; other [`WeightFiles`] in `options` are not regarded.
    ///
    /// # Errors
    /// Those of [`Container::save`]; [`ErrorKind::InvalidArgument`] for options that inline
    /// functions or move tensors out of the model.
    pub fn embed(&self, path: impl AsRef<Path>, options: impl Into<SaveOptions>) -> Result<Saved> {
        self.0.save(path, embedding(options.into())?)
    }

    /// What [`embed`](Self::embed) would write, as [`Container::dry_run`] tells it.
    ///
    /// # Errors
    /// Those of [`embed`](Self::embed) before it writes.
    pub fn dry_run(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<SaveOptions>,
    ) -> Result<Saved> {
        self.0.dry_run(path, embedding(options.into())?)
    }
}

/// `options` for a model whose weights are all inside it.
fn embedding(mut options: SaveOptions) -> Result<SaveOptions> {
    if options.externalize || options.inline_functions.is_some() || options.digests {
        let reason = "an outline does not know the operators of the model, only its tensors";
        return Err(Error::new(ErrorKind::InvalidArgument, reason));
    }
    options.weight_files = WeightFiles::Embedded;
    Ok(options)
}
