//! What was moved, copied or removed.

use std::path::PathBuf;

use crate::error::Error;
use crate::save::Placed;

/// What [`move_model`](super::move_model) or [`copy_model`](super::copy_model) did, or would do.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Transferred {
    /// The files at the new place, the model first.
    pub files: Vec<PlacedFile>,
    /// The files of the old model that stay because another model needs them. None where the old
    /// model stays.
    pub kept: Vec<KeptFile>,
    /// The weights files of the replaced model that were removed with it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub superseded: Vec<PathBuf>,
    /// The weights files of the replaced model that no model needs and that stay.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub left_behind: Vec<PathBuf>,
    /// The files of the old model that were links and are gone: what they led to stays.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub links_removed: Vec<PathBuf>,
    /// What else the user should know.
    pub warnings: Vec<Error>,
}

/// A file of a model at its new place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PlacedFile {
    /// The old path.
    pub from: PathBuf,
    /// The new path.
    pub to: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether another file had this name before.
    pub replaces: bool,
    /// How it got there; in a dry run, how it is expected to.
    pub placed: Placed,
}

/// A file that is not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeptFile {
    /// Its path.
    pub path: PathBuf,
    /// A model that needs it.
    pub needed_by: PathBuf,
}

/// A file that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RemovedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes; of a link, none.
    pub bytes: u64,
    /// Whether it is a link: what it leads to stays.
    pub is_link: bool,
}

/// What [`remove_model`](super::remove_model) did, or would do.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RemovedModel {
    /// The files that are gone, the model first.
    pub removed: Vec<RemovedFile>,
    /// The files that stay because another model needs them.
    pub kept: Vec<KeptFile>,
    /// Files of the model that were not removed for another reason, and what else the user should
    /// know.
    pub warnings: Vec<Error>,
}
