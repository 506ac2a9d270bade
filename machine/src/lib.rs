//! The ONNX runtime as a state machine: a graph G, a linear memory M, and a tensor table T between them.
//!
//! A model is made into a flat program, every tensor of a run has a place in one byte-addressable
//! memory `[0, N)`, and a public step reads a node's inputs from M through T, applies its operator and
//! writes its outputs back. Weights are ranges borrowed from the container and are never copied.

mod error;
pub mod plan;

pub use error::{Error, ErrorKind, Result};
