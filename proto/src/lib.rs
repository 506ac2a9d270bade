//! The messages of ONNX, at any length, and what their tensors hold.
//!
//! Protobuf libraries refuse messages of more than 2 GiB or copy every payload. This crate decodes
//! a model of any length into slices of its input, which may be a mapped file, and writes one as a
//! stream, payloads straight from where they lie. A model that is read and written unchanged is the
//! same byte for byte, unknown fields included.
//!
//! ```
//! use onnx_container_proto::proto::{GraphProto, Message, ModelProto, TensorProto};
//! use onnx_container_proto::{MmapChoice, Tensor};
//!
//! let mut graph = GraphProto::new("demo");
//! let weight = Tensor::from(vec![1.0_f32, 2.0]).to_proto("w");
//! graph.initializer.push(weight);
//! let model = ModelProto::new(graph).with_operator_set("", 21);
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("demo.onnx");
//! model.encode(&mut std::fs::File::create(&path)?)?;
//!
//! let bytes = MmapChoice::never().buffer(&path)?; // or a map of the file
//! let model = ModelProto::decode(&bytes)?;
//! let weight = &model.graph.as_ref().ok_or("no graph")?.initializer[0];
//! assert_eq!(*Tensor::try_from(weight)?.to_slice::<f32>()?, [1.0, 2.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what | where |
//! |---|---|
//! | the messages, to read, build and write | [`proto`] |
//! | shared bytes that keep their owner alive; mapped files | [`Buffer`], [`BufferMut`], [`MmapChoice`], [`buffer`] |
//! | the element types | [`DataType`], [`Element`] |
//! | elements with typed views, from and to messages | [`Tensor`] |
//! | elements from anywhere | [`Initializer`], [`WeightSource`] |
//! | how much an untrusted message may hold | [`Limits`], [`Limit`] |
//! | one error type, with tensor, path and byte | [`Error`], [`ErrorKind`] |
//!
//! External data, saves and checks are in the crate `onnx-container`, which has all of this one
//! under the same paths, except [`Limit`] (`load::Limit`) and [`Progress`] (`save::Progress`). The
//! examples of the items say `onnx_container` for that reason.
//!
//! # Features
//!
//! - `serde` (off by default): errors and element types implement `serde::Serialize`.
//! - `tch` (off by default): PyTorch tensors as initializers, and back: the module `torch`. It
//!   needs a libtorch and a C++ compiler.

pub mod buffer;
mod dtype;
mod error;
mod limits;
pub mod proto;
mod tensor;
mod util;

#[doc(inline)]
pub use buffer::{Alignment, Buffer, BufferMut, MmapChoice};
pub use dtype::{DataType, Element};
pub use error::{Error, ErrorKind, Result};
pub use limits::{Limit, Limits};
pub use tensor::Tensor;
pub use tensor::initializer::Initializer;
#[cfg(feature = "tch")]
pub use tensor::initializer::torch;
pub use tensor::source::WeightSource;
pub use util::cancel::{Cancel, Progress};

// The crates whose types stand in this crate's interface, in the versions that it takes.
pub use {bytes, half, microfloat, ndarray, num_complex};

/// What the crates above need besides. Not a part of the interface: it may change with any
/// version.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internal {
    pub mod buffers {
        pub use crate::buffer::FileInMemory;
        pub use crate::buffer::alignment::Cursor;
        pub use crate::buffer::file_identity::FileIdentity;
        #[cfg(debug_assertions)]
        #[cfg(unix)]
        pub use crate::buffer::file_identity::coarse::within_a_tick;
        pub use crate::buffer::mmap::{copy_into, read_at};
        pub use crate::buffer::zeroed::in_memory;
    }

    pub mod dtype {
        pub use crate::dtype::{DataType, Element, element_count};
    }

    pub mod error {
        pub use crate::error::{
            Error, ErrorKind, Errors, Joined, Result, Several, leads_nowhere, write_listed,
        };
    }

    pub mod limits {
        pub use crate::limits::{Counter, Limit, Limits, exceeded};
    }

    pub mod tensor {
        pub use crate::tensor::Tensor;

        pub mod initializer {
            pub use crate::tensor::initializer::{Address, Initializer};
        }

        pub mod rounding {
            pub use crate::tensor::rounding::{SmallFloat, to_bf16, to_f16};
        }

        pub mod source {
            pub use crate::tensor::source::{PREFERRED_READ, WeightSource};
        }
    }

    pub mod util {
        pub use crate::util::process_memory;

        pub mod byte_size {
            pub use crate::util::byte_size::ByteSize;
        }

        pub mod cancel {
            pub use crate::util::cancel::{Cancel, Progress, Token, advance, begin, check};
        }

        pub mod file_id {
            pub use crate::util::file_id::{FileId, at, name_count, name_count_at, of, of_entry};
        }

        pub mod parallel {
            pub use crate::util::parallel::{alongside, cores, for_each};
        }

        pub mod retry {
            pub use crate::util::retry::{exists, is_link, retried};
        }
    }

    pub mod wire {
        pub use crate::proto::wire::{
            DecodeOptions, Field, FieldInfo, Label, Message, Overlay, Replacement, Sizes, Str,
            Unknown, Wire, Writer, delimited_size, encode_over, encode_over_to_vec,
            encoded_len_over, has_no_value, walk, write_one,
        };
    }
}

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
