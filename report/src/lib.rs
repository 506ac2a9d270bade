//! One HTML page that shows what is in a model and its weights files: [`report`].
//!
//! The page has everything in it, asks for nothing on the network, and its policy forbids that. It
//! has a map of the weights by the parts of their names, a table of all tensors, the places in the
//! weights files, operators, inputs and outputs, and the findings of a check; on request the
//! statistics of the tensors, a plan of memory, and what differs from another model.
//!
//! ```
//! use onnx_container::proto::{GraphProto, ModelProto};
//! use onnx_container::{Container, LoadOptions, Tensor, WeightFiles};
//! use onnx_container_report::{ReportOptions, report};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.onnx");
//! let mut graph = GraphProto::new("g");
//! graph.initializer.push(Tensor::from(vec![1.0_f32, 3.0]).to_proto("layers.0.w"));
//! Container::new(ModelProto::new(graph)).save(&path, WeightFiles::Packed)?;
//! let page = report(&path, None, &ReportOptions::new(LoadOptions::new()).stats(true))?;
//! page.save(&folder.path().join("model.html"), false)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same model, path and options give the same bytes on every machine. `data` writes what the
//! page shows as JSON, which `encoded` takes; `html` makes the page, and `place` writes it. The
//! scripts of the page are in `page/`; they set texts and never markup.

mod columns;
mod data;
mod encoded;
mod files;
mod findings;
mod html;
mod options;
mod place;
#[cfg(feature = "machine")]
mod plan;
mod rows;
mod statistics;
mod tree;
mod values;

pub use data::{own_files, report};
pub use options::{MemoryPlan, PlannedBlock, ReportOptions};
pub use place::Page;
#[cfg(feature = "machine")]
pub use plan::plan_memory;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
