//! [`consolidate`] moves the bytes of many tensors into one aligned buffer.
//!
//! A model that was built or edited holds its tensors in many allocations and files. Runtimes and
//! devices prefer one region. Steps that can fail come first: the plan, the allocation, the reading
//! of sources. Then the bytes are moved tensor by tensor, and each source is freed at once, so that
//! a model is never in memory twice. Reading and writing files is left to `load` and `save`.

mod options;
mod plan;
mod survey;

use crate::buffer::{Buffer, BufferMut};
use crate::container::{Container, Initializers};
use crate::error::Result;
use crate::proto::ModelProto;
use crate::util::cancel;

pub use self::options::ConsolidateOptions;
use self::plan::Plan;
use self::survey::Survey;

/// Moves the bytes of the tensors of `model` into one buffer, which is returned.
///
/// Moves every tensor that [`traversal::tensors`](crate::graph::traversal::tensors) visits and that
/// has at least [`raw_data_threshold`](ConsolidateOptions::raw_data_threshold) bytes: initializers
/// and tensors in attributes, subgraphs, functions, sparse tensors and training graphs. Strings,
/// empty tensors and external tensors are not moved; [`Container::consolidate`] also moves the
/// initializers behind handles. The elements do not change, bit for bit.
///
/// The buffer lives as long as the returned handle or any of the tensors. Tensors that share their
/// bytes share them in it. A second call with the same options moves nothing and returns the same
/// buffer; where no tensor takes part the buffer is empty.
///
/// The old memory of a tensor is freed as soon as its bytes are moved: a separate allocation at
/// once, a map or buffer with many tensors (a file) when nothing refers to it any more. The names
/// in a decoded model refer to its input; to have the input freed, decode with
/// [`no_copy(false)`](crate::proto::DecodeOptions::no_copy).
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::edit::{ConsolidateOptions, consolidate};
/// use onnx_container::Alignment;
///
/// let mut graph = GraphProto::new("g");
/// for name in ["a", "b"] {
///     let tensor = TensorProto::new(name, TensorProto::UINT8, [100]);
///     graph.initializer.push(tensor.with_raw_data(vec![7; 100]));
/// }
/// let mut model = ModelProto::new(graph);
/// let buffer = consolidate(&mut model, ConsolidateOptions::new().alignment(Alignment::CACHE_LINE))?;
/// assert_eq!(buffer.len(), 228); // 100 bytes, 28 up to the next multiple of 64, 100 bytes
///
/// let b = model.graph.as_ref().unwrap().initializer[1].raw_data.as_ref().unwrap();
/// assert_eq!(b.as_ptr(), buffer[128..].as_ptr());
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`BufferMut::zeroed`], [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), and, where
/// typed fields take part, one error for all that are not valid. The model is then unchanged.
pub fn consolidate(
    model: &mut ModelProto,
    options: impl Into<ConsolidateOptions>,
) -> Result<Buffer> {
    consolidate_all(model, &mut Initializers::default(), &options.into())
}

impl Container {
    /// As [`consolidate`] on the model, but includes the initializers behind its handles: each of
    /// these is then a tensor in the same buffer, whatever it was made from.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::buffer::TensorBufferOptions;
    /// use onnx_container::{Alignment, Container};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", array![1.0_f32, 2.0])?;
    ///
    /// let options = TensorBufferOptions::new().alignment(Alignment::DEVICE);
    /// let buffer = container.consolidate(options)?;
    /// assert_eq!(buffer.as_ptr().addr() % 256, 0);
    /// assert!(container.get("#w").unwrap().to_buffer()?.same_owner(&buffer));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`consolidate`] and of [`check`](Self::check), and the error of an initializer that
    /// cannot be read, with its handle.
    pub fn consolidate(&mut self, options: impl Into<ConsolidateOptions>) -> Result<Buffer> {
        self.check()?;
        let Self { model, initializers, .. } = self;
        consolidate_all(model, initializers, &options.into())
    }
}

fn consolidate_all(
    model: &mut ModelProto,
    initializers: &mut Initializers,
    options: &ConsolidateOptions,
) -> Result<Buffer> {
    let survey = Survey::of(model, initializers, options)?;
    if let Some(buffer) = survey.consolidated() {
        return Ok(buffer);
    }
    let members = survey.members;
    if members.is_empty() {
        return Ok(Buffer::default());
    }
    let alignment = options.buffers.alignment_or_dense();
    let mut plan = Plan::new(members, alignment)?;
    let mut memory = BufferMut::zeroed(plan.len, alignment)?;
    cancel::begin(plan.bytes());
    plan.read(&mut memory)?;
    // The model is unchanged so far. From here on only the plan holds the bytes.
    let shapes = plan.take_out(model, initializers);
    let moved = plan.move_bytes(&mut memory);
    let buffer = memory.freeze();
    plan.put_back(&buffer, model, initializers, shapes)?;
    moved.map(|()| buffer)
}
