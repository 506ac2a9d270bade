//! ONNX models with large weights in object stores.
//!
//! A model opens from `s3://`, `gs://`, `az://`, `https://` and `hf://` as from a folder: the graph
//! by one request, weights by range when they are needed. It is published there so that a reader
//! sees the old model or the new one, never a mix.
//!
//! - [`load`] and [`RemoteModel`]: a [`Container`](onnx_container::Container) of a model in a
//!   store.
//! - [`publish`]: a container into a store, and [`rollback`] to an earlier version.
//! - [`job`]: a model that many processes write together.
//! - [`sweep`]: removes weights files that no model names.
//! - [`probe`]: what a store can do.
//!
//! Everything is synchronous. Requests run on two threads of their own. In an async program, call
//! from `spawn_blocking`.

mod again;
mod client;
#[cfg(feature = "https")]
mod clients;
mod errors;
#[cfg(feature = "http")]
mod hub;
pub mod job;
mod listing;
mod missing;
mod names;
mod object;
mod options;
mod probe;
#[cfg(feature = "aws")]
mod profile;
mod publish;
mod publishing;
mod put;
mod remote;
mod rollback;
mod runtime;
mod source;
mod store;
mod streams;
mod sums;
mod sweep;
mod url;

pub use object_store;

pub use options::StoreOptions;
pub use probe::{Abilities, probe};
pub use publish::{Publication, publish, publish_in, versions};
pub use publishing::{IfPresent, PublishOptions, Published, PublishedFile};
pub use remote::{RemoteModel, fetch, load, read, read_in};
pub use rollback::rollback;
pub use store::Store;
pub use sweep::{OpenJob, Sweep, SweepOptions, SweptObject, sweep};
pub use url::{Scheme, StoreUrl, is_url};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
