//! The operators of ONNX as kernels: functions that read slices of memory and write others, with
//! the same bits on every machine.
//!
//! A [`Kernel`] says the types and shapes of its outputs first, and then computes their elements.
//! Where these lie is left to its caller, the crate `onnx-container-machine`, which makes models
//! into programs, plans their memory and runs them. It has all of this crate under the same paths.
//! The examples of the items say `onnx_container_machine` for that reason.
//!
//! ```
//! use onnx_container_kernels::{Profile, Registry};
//!
//! assert_eq!(Registry::of(Profile::Fast).profile().name(), "fast");
//! ```
//!
//! | type or module | what it is |
//! |---|---|
//! | [`Kernel`], [`Call`], [`RunCx`] | an operator, what it sees of its node and inputs, and what it writes |
//! | [`Registry`], [`Profile`] | which kernel computes an operator; whether bits or speed come first |
//! | [`Node`], [`Block`], [`Attributes`] | a node of a graph, the graph, and the constant parameters of a node |
//! | [`Value`], [`Type`] | tensors, sequences, maps and optionals |
//! | [`compare`], [`data`] | how far two values are apart; values as onnx's test data stores them |
//! | [`Memory`], [`TensorTable`] | a linear memory, and which range of it each tensor has |
//! | [`Error`], [`ErrorKind`] | one error type, with node and step |

#[cfg(target_endian = "big")]
compile_error!("onnx-container-kernels reads little-endian elements in place");

mod error;
mod exact;
mod kernel;
mod kernels;
mod memory;
mod numeric;
mod program;
mod value;

pub use value::compare;
pub use value::data;

pub use error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use kernel::Builtin;
pub use kernel::call::{Call, Operand, OutSpec};
pub use kernel::run_cx::RunCx;
pub use kernel::{Alias, Kernel};
pub use kernels::registry::Registry;
pub use memory::table::{Entry, Slot, TensorTable};
pub use memory::{ALIGNMENT, Memory, Weights};
#[doc(hidden)]
pub use memory::{Granted, Span, WEIGHTS};
pub use numeric::profile::Profile;
pub use program::{Attribute, Attributes, Block, Declared, Dim, Node, ValueId};
pub use value::{Map, Type, Value};

/// What `onnx-container-machine` needs besides. Not a part of the interface: it may change with any
/// version.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internal {
    pub mod error {
        pub use crate::error::{Error, ErrorKind, Errors, Result};
    }

    pub mod exact {
        pub use crate::exact::{Exact, OrBug, debug_aligned};
    }

    pub mod kernel {
        pub use crate::kernel::{Alias, Kernel};

        pub mod ahead {
            pub use crate::kernel::ahead::computed;
        }

        pub mod bodies {
            pub use crate::kernel::bodies::{Body, Composite, body, of};
        }

        pub mod call {
            pub use crate::kernel::call::{Call, Operand, OutSpec};
        }

        pub mod in_place {
            pub use crate::kernel::in_place::{Parts, place};
        }

        pub mod run_cx {
            pub use crate::kernel::run_cx::{Output, RunCx};
        }
    }

    pub mod kernels {
        pub use crate::kernels::{INTERNAL_DOMAIN, TRANSPOSED_MATMUL};

        pub mod registry {
            pub use crate::kernels::registry::Registry;
        }
    }

    pub mod memory {
        pub use crate::memory::{ALIGNMENT, Memory, Span, WEIGHT, WEIGHTS, Weights};

        pub mod elements {
            pub use crate::memory::elements::Elements;
        }

        pub mod table {
            pub use crate::memory::table::{Entry, Slot, Stored, TensorTable, byte_len, dims};
        }
    }

    pub mod numeric {
        pub use crate::numeric::{larger, number, smaller};

        pub mod broadcast {
            pub use crate::numeric::broadcast::{around, axis, count, saturated, size};
        }

        pub mod nan {
            pub use crate::numeric::nan::settle;
        }
    }

    pub mod program {
        pub use crate::program::FUNCTION_BODY;

        pub mod schema {
            pub use crate::program::schema::{Meaning, Written};
        }
    }

    pub mod value {
        pub use crate::value::{Type, Value};

        pub mod compare {
            pub use crate::value::compare::{chunks_of, to_f64};
        }

        pub mod data {
            pub use crate::value::data::{decode, write, write_tensor};
        }
    }
}

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
