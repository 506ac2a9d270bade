//! A container for large ONNX models: weights out of the model file and back in, without copies.
//!
//! A protobuf message cannot be longer than 2 GiB, and reading one means reading its weights. ONNX
//! therefore lets a tensor name a byte range of another file, its *external data*. This crate holds
//! a model and such tensors together: the message stays small and can be edited, the weights stay
//! where they are (an array, a buffer, a mapped file) until a save writes them.
//!
//! - Every tensor is reached: initializers, attributes, subgraphs, functions, sparse tensors,
//!   training graphs.
//! - Mainstream readers take the files: onnxruntime, `onnx.checker` and onnx_ir. What they cannot
//!   read from a weights file is kept inline.
//! - Weights come from anywhere: files, arrays, PyTorch, a source of your own, a closure called
//!   when they are written.
//! - Local functions can be inlined, exactly and in linear time; weights are kept where they are.
//! - A save stages its files and renames them. One that fails leaves what was there, and none
//!   replaces a file that another model needs.
//! - A model that is read and written unchanged is the same, field by field; one that an official
//!   library wrote is the same byte for byte.
//! - Malformed input gives an error that names the tensor, the file and the byte.
//!
//! # Example
//!
//! ```
//! use onnx_container::ndarray::Array2;
//! use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
//! use onnx_container::{Container, MmapChoice, WeightFiles};
//!
//! // y = x + weight; the message names a handle where the weight should be.
//! let mut graph = GraphProto::new("demo");
//! graph.node.push(NodeProto::new("Add", ["x", "weight"], ["y"]));
//! graph.initializer.push(TensorProto::external("weight", TensorProto::FLOAT, [4, 8], "#weight"));
//!
//! let model = ModelProto::new(graph).with_operator_set("", 18); // "" is the domain ai.onnx
//! let mut container = Container::new(model);
//! container.insert("#weight", Array2::<f32>::ones((4, 8)))?;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("demo.onnx");
//! let saved = container.save(&path, WeightFiles::Packed)?; // one weights file
//! assert_eq!(saved.files[0].name, "demo.onnx.data");
//! assert_eq!(saved.files[0].bytes, 128);
//!
//! let loaded = Container::load(&path, MmapChoice::never())?;
//! let weight = loaded.get("#weight").ok_or("no such handle")?.to_tensor()?;
//! assert_eq!(weight.view::<f32>()?.sum(), 32.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types and modules
//!
//! | type | what it is |
//! |---|---|
//! | [`Container`] | a model and the large initializers behind its handles: [`load`](Container::load), [`insert`](Container::insert), [`check`](Container::check), [`save`](Container::save) |
//! | [`Handle`] | the name of a large initializer, `#encoder.w`, in the tensor's `location` |
//! | [`Initializer`] | what a handle stands for: an `ndarray` array, a message, a tensor, a PyTorch tensor, a source of your own |
//! | [`WeightSource`] | weights from anywhere: type, dimensions, length, bytes by range |
//! | [`Tensor`] | an element type, dimensions and the elements, with typed views |
//! | [`TensorRef`], [`TensorIndex`], [`TensorStorage`] | every tensor, wherever it is stored: [`Container::tensors`], [`Container::index`], [`Container::tensor`], [`Container::resolve`] |
//! | [`DataType`], [`Element`] | the element types of ONNX, and the Rust types that hold them |
//! | [`Buffer`], [`BufferMut`], [`Alignment`] | shared bytes that keep their owner alive; aligned memory to fill first |
//! | [`LoadOptions`], [`MmapChoice`] | how a load reads; whether files are mapped |
//! | [`SaveOptions`], [`WeightFiles`], [`Saved`] | how a save writes, to which files, and what it wrote |
//! | [`Outline`] | what a model file says, without its weights |
//! | [`Limits`], [`Cancel`] | how much an untrusted model may hold; the end of a long call, and its progress |
//! | [`Error`], [`ErrorKind`] | one error type, with tensor, path, byte and related errors |
//!
//! | module | what is in it |
//! |---|---|
//! | [`load`] | weights files that are in no folder, digests that a load verifies, where links may lead, limits by name |
//! | [`save`] | files, shards, progress and statistics of a save; which model needs a file |
//! | [`edit`] | weights by name, casts, other elements, deleted initializers, external or inline tensors, one aligned buffer: options and reports |
//! | [`inline`] | local functions into the graph |
//! | [`check`] | every fault of a model on disk, at once; what two readers take for two models |
//! | [`summary`] | what is in a model, as one value: inputs, versions, operators, tensors, modules |
//! | [`stats`] | what the elements of tensors are like: range, mean, deviation, histogram |
//! | [`compare`](mod@compare) | what differs between two models: structure, then tensors by content |
//! | [`digest`] | model and weights as one SHA-256, however they are stored; models that mean the same |
//! | [`guide`] | jobs with their code, the formats, what is promised |
//! | [`scan`] | every model below a folder, its files, and the files that no model needs |
//! | [`recovery`] | what is done after a save that was killed |
//! | [`buffer`] | who holds the memory of a buffer, and which file it is from |
//! | [`graph`], [`traversal`] | every tensor of a model with its place; operands that shape inference reads |
//! | [`external_data`] | the entries of an external tensor, and the way to its file |
//! | [`proto`] | the messages of onnx.proto, to build and edit |
//! | `safetensors` | safetensors files and their shards: loaded, attached by name, exported |
//!
//! # Who owns the bytes
//!
//! 1. A [`Buffer`] owns its bytes together with all its clones and slices; the last one frees them.
//! 2. A container that was loaded holds one buffer for each file, and slices of it everywhere else:
//!    in messages, strings, tensors. Dropping the container unmaps the files.
//! 3. An inserted array or tensor moves into the container and is read from its own memory.
//! 4. Whatever is handed out as a buffer or tensor keeps its owner alive: it may outlive the
//!    container.
//! 5. Borrowed bytes must be `'static` or come with their owner ([`Buffer::from_owner`]), so that
//!    nothing can be freed too early.
//! 6. An edit ([`Buffer::make_mut`]) is in place where nobody else holds the bytes, and on a copy
//!    otherwise.
//!
//! `docs/ownership.md` has every way to load, and when its memory is freed.
//!
//! # Mapping
//!
//! A mapped file costs no memory and no time before it is used, but mapping cannot be made safe:
//! another process may truncate the file. So mapping is a promise of the caller, `unsafe {
//! MmapChoice::auto() }`, given once. The default is [`MmapChoice::never`], which reads files into
//! aligned memory, in parallel. Both give the same container. A save never writes to a file that is
//! there: it renames a new one over it, so saving over mapped files is fine.
//!
//! # Features
//!
//! - `serde` (on with `safetensors`): reports ([`Saved`], [`check::Checked`], [`edit::Filled`] and
//!   the others), errors and digests implement `serde::Serialize`.
//! - `safetensors` (on by default): the module `safetensors`, `Container::attach_safetensors`,
//!   `Container::export_safetensors` and `WeightFiles::Safetensors`, with the crates `safetensors`,
//!   `serde` and `serde_json`. `docs/safetensors.md` has the types, the layout and the rules.
//! - `tch` (off by default): PyTorch tensors as initializers, and back, with the crate `tch`. It
//!   needs a libtorch and a C++ compiler. `docs/pytorch.md` says how to set it up, what is copied,
//!   and how to fill a model that Python exported. Everything it adds is the module `torch`, the
//!   conversions of tensors to `Initializer`, and `Initializer::to_tch`, `to_tch_bytes` and
//!   `map_tch`.
//!
//! # Platforms
//!
//! Tests run on Linux, and those of the library, the command and the machine as Windows programs
//! under wine; each Linux call has a portable fallback. What differs elsewhere:
//!
//! - Locations are kept inside the model's directory by the kernel on Linux (`openat2`), elsewhere
//!   on Unix by opening one component after the other; on Windows the resolved path is compared
//!   before the file is opened, and the file with that path after it.
//! - Free space is checked on Unix; space is preallocated on Linux.
//! - Directories are flushed on Unix. While a save renames its files, it locks their directory, on
//!   Windows by a file in it, so that saves at once to one folder take turns.
//! - Windows does not delete or replace a file that is mapped. So the model's own file is read
//!   there, and a save that replaces mapped weights leaves the old ones in its staging folder, with
//!   a warning, or fails with [`ErrorKind::Io`]. Drop the container first.
//! - Names that Windows takes for something else (`NUL`, `a:b`, `w.`) are refused there.
//! - Where addresses have 32 bits, a file or message that does not fit memory is an error
//!   ([`ErrorKind::TooLarge`]). Parts of a job read only what they write, so its files may be
//!   longer; a tensor that is cast or composed may not.
//!
//! # Lints
//!
//! Unsafe code is denied. Files are mapped, and libtorch is called, in the crate
//! `onnx-container-proto`. Unwrapping, panicking, indexing and casts that lose bits are denied
//! outside tests, because offsets and lengths come from untrusted files. Every public item is
//! documented.
//!
//! # More
//!
//! [`guide`] has the pages of `docs/`: jobs as short programs, the formats, what is promised.

mod attach_model;
pub mod check;
pub mod compare;
mod container;
pub mod digest;
mod files;
pub mod graph;
#[cfg(feature = "jobs")]
pub mod job;
pub mod load;
pub mod model_files;
mod outline;
#[cfg(feature = "safetensors")]
pub mod safetensors;
pub mod save;
pub mod scan;
pub mod stats;
pub mod summary;
mod util;

pub use container::part::Part;
pub use container::tensors::{TensorIndex, TensorRef, TensorStorage};
pub use container::{Container, Handle};
pub use files::external_data;
#[doc(inline)]
pub use graph::traversal;
#[doc(inline)]
pub use load::LoadOptions;
pub use outline::Outline;
#[doc(inline)]
pub use save::{SaveOptions, Saved, WeightFiles};

// The messages and their tensors, which are a crate of their own.
#[cfg(feature = "tch")]
#[doc(inline)]
pub use onnx_container_proto::torch;
#[doc(inline)]
pub use onnx_container_proto::{
    Alignment, Buffer, BufferMut, Cancel, DataType, Element, Error, ErrorKind, Initializer, Limits,
    MmapChoice, Result, Tensor, WeightSource, buffer, proto,
};

// What modules here name as `crate::error`, as they name modules of this crate.
use onnx_container_proto::internal::{buffers, dtype, error, limits, tensor, wire};

/// Options and reports of the edits of a [`Container`]: weights by name, casts, replaced elements,
/// tensors that move out of the model, tensors in one buffer.
pub mod edit {
    pub use crate::attach_model::{AttachOptions, AttachedWeights};
    pub use crate::container::add_delete::Deleted;
    pub use crate::container::cast::{
        CastOptions, CastReport, NotCast, NotCastReason, unknown_operators,
    };
    pub use crate::container::consolidate::{ConsolidateOptions, consolidate};
    pub use crate::container::externalize::{ExternalizeOptions, Externalized, KeepReason, Kept};
    pub use crate::container::fill::{FillOptions, Filled, PrefixRule, Sharing};
    #[cfg(feature = "safetensors")]
    pub use crate::container::match_weights::{
        Composition, MatchOptions, MatchedTensor, WeightMapping, WeightPart, WeightSlice,
    };
    pub use crate::container::merge::MergeOptions;
    pub use crate::container::replace::{Replaced, Tied};
    pub use crate::container::strip::Stripped;
}

/// Local functions into the graphs that call them. `docs/inlining.md` says what is kept.
pub mod inline {
    pub use crate::graph::inline::{
        FunctionId, FunctionSelector, InlineOptions, Inlined, KeptFunction, inline_functions,
    };
}

/// What is done after a save that was killed. Each load and each save does it for its own model.
pub mod recovery {
    #[cfg(feature = "jobs")]
    pub use crate::files::recovery::new_job_name;
    pub use crate::files::recovery::{
        Recovery, interrupted_saves, is_left_by_saves, is_of_job, recover, recover_model,
    };
}

// The structs below run the examples of its pages.
#[cfg(all(doc, not(doctest)))]
pub mod guide;

// For the crates above this one: not a part of the interface.
#[doc(hidden)]
pub use {
    container::reader_limits::MAX_PROTOBUF, dtype::element_count,
    files::file_format::failed_download, onnx_container_proto::internal::util::process_memory,
    util::byte_size::ByteSize,
};

/// What the crates above this one need: work that [`Cancel`] ends, on several threads, kinds of
/// JSON, and how file systems compare names.
#[doc(hidden)]
pub mod work {
    pub use crate::util::cancel::{advance, begin, check};
    #[cfg(any(feature = "jobs", feature = "safetensors"))]
    pub use crate::util::json_kind::JsonKind;
    pub use crate::util::names::fold_case;
    pub use crate::util::parallel::{cores, for_each};
}

// The crates whose types stand in this crate's interface, in the versions that it takes.
pub use onnx_container_proto::{bytes, half, microfloat, ndarray, num_complex};

/// Runs the examples of the page on PyTorch.
#[cfg(all(doctest, feature = "tch"))]
#[doc = include_str!("../docs/pytorch.md")]
struct PyTorchPage;

/// Runs the recipes.
#[cfg(all(doctest, feature = "safetensors"))]
#[doc = include_str!("../docs/recipes.md")]
struct Recipes;

/// Runs the example of the page on inlining.
#[cfg(doctest)]
#[doc = include_str!("../docs/inlining.md")]
struct InliningPage;

/// Runs the examples of the page on ownership.
#[cfg(doctest)]
#[doc = include_str!("../docs/ownership.md")]
struct OwnershipPage;

/// Runs the example of the page on sources.
#[cfg(doctest)]
#[doc = include_str!("../docs/sources.md")]
struct SourcesPage;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
