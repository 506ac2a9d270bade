//! Saves that many processes write together: [`Job`].
//!
//! A model that outgrows one machine is written by many: the ranks of a training job, the tasks of
//! an array. They need one layout before anybody writes, and one process that puts the result in
//! place. A job has three phases, which no engine has to know:
//!
//! 1. [`Job::plan`] (or [`Job::rewrite`] of a model that is there): the layout, a folder beside the
//!    model, the files in their full length.
//! 2. [`Job::write`], [`Job::write_from`] or [`Job::slice_writer`], by any number of processes, in
//!    any order, again where one was killed. Each leaves a [`Receipt`].
//! 3. [`Job::commit`]: every tensor is written once, and the files are put in place as by a save.
//!
//! `description` has the value, `folder` what is on disk, `slice` the arithmetic of parts of
//! tensors. docs/jobs.md has the protocol.

mod begun;
mod commit;
mod committed;
mod description;
mod disk;
mod ended;
mod files;
mod folder;
mod mark;
mod options;
mod plan;
mod receipt;
mod slice;
mod slices;
mod source;
mod source_options;
mod staged;
mod stamp;
mod status;
mod write;

pub use commit::{commit_job, committed_job};
pub use committed::Committed;
pub use description::{Job, PlannedTensor};
pub use ended::{is_committed, remove_ended_jobs};
pub use options::{JobOptions, Recast};
pub use receipt::{Receipt, WrittenTensor};
pub use slice::TensorSlice;
pub use slices::SliceWriter;
pub use source::RewriteSource;
#[doc(hidden)] // for the jobs of stores
pub use source::changed;
pub use source_options::SourceOptions;
pub use status::{JobStatus, abort_job, jobs_in, jobs_of};
pub use write::Weights;
