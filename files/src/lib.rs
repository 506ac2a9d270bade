//! Files that programs write beside models and that are no models: plans, tensors, signatures.
//!
//! [`unfinished`] has files that are written beside their targets and then renamed, and what killed
//! programs left of them; [`targets`] says what nothing may replace; [`sha256`] has digests of
//! files, [`locations`] one name for each file of a folder, and [`needed`] the files that a model
//! names. A save of a model has all of this in the library itself.

pub mod locations;
pub mod needed;
pub mod sha256;
pub mod targets;
pub mod unfinished;
