//! Models of stores that many processes write together: [`RemoteJob`].
//!
//! A job has three phases, as one in a folder has ([`onnx_container::job`]), and no engine has to
//! know them:
//!
//! 1. [`RemoteJob::plan`] (or [`RemoteJob::rewrite`] of a model that is there): the layout. Each
//!    part is one weights file. The description of the job is put beside the model.
//! 2. [`RemoteJob::write`] or [`RemoteJob::write_from`], by any number of processes, in any order,
//!    more than once. Each puts its weights file there under a name of its content, and a receipt.
//! 3. [`RemoteJob::commit`]: every part has a receipt and its file, and the model is published by
//!    one request with a condition.
//!
//! Nothing is visible at the model's URL before that request. docs/jobs.md has the protocol.

mod bytes;
mod commit;
mod committed;
mod description;
mod folder;
mod options;
mod plan;
mod receipt;
mod source;
mod status;
mod stores;
mod stream;
mod write;

pub use committed::RemoteCommitted;
pub use description::{FileTensor, RemoteJob};
pub(crate) use folder::{JobObject, job_of, model_key, read_text};
pub use options::RemoteJobOptions;
pub use receipt::{HashedRange, PartReceipt, StoredFile};
pub use status::{RemoteJobStatus, jobs_in};
pub use stores::Stores;
