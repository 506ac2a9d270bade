//! `sign` and `verify-signature`, by the crate `onnx-container-signing`.
//!
//! `sign` signs a model and prints what was signed, `verify` prints the verdict, for people by
//! `told` and as JSON by `json`. `terms` has the names of options that messages of the crate use;
//! docs/signing.md has what all of it means.

mod json;
mod sign;
mod terms;
mod told;
mod verify;

pub use sign::run as sign;
pub use verify::run as verify;
