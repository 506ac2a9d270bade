//! A model with its weights files as one thing: [`move_model`], [`copy_model`] and
//! [`remove_model`].
//!
//! No weight is decoded. A model is moved by giving its files second names (hard links) in the new
//! folder, so the weights stay where they are on the disk. Where the file system has no such links,
//! and for a copy, the two files share their bytes if the file system can, and otherwise the bytes
//! are copied, holes as holes. The new files are put in place as those of a save are, all or none;
//! only then is the old model removed, which is one step too. So whenever the process ends, the
//! model is complete at one of the two places, or at both.
//!
//! Weights files with a name that a save gives by default, such as `m.onnx.data`, follow the name
//! of the model, and the places in the model are changed; other files keep their names. A file that
//! another model needs stays, and is named in the report. A link is followed for its bytes, and is
//! itself removed where the model is: what it leads to stays.

mod edited;
mod options;
mod remove;
mod report;
mod share;
mod source;
mod transfer;

pub use crate::save::Placed;
pub use options::FileOptions;
pub use remove::remove_model;
pub use report::{KeptFile, PlacedFile, RemovedFile, RemovedModel, Transferred};
pub use share::{SharedWeights, share_weights};
pub use source::other_models_that_need;
pub use transfer::{copy_model, move_model};
