//! What becomes of the weights files of a model that a save replaces, where the new model does not
//! need them: no model does, or others still do.

use std::path::PathBuf;

/// The files of a replaced model that the new one does not need.
#[derive(Debug, Default)]
pub(crate) struct OldFiles {
    /// No model needs these any more.
    pub(crate) left: Vec<PathBuf>,
    /// Other models need these.
    pub(crate) still_needed: Vec<StillNeeded>,
}

/// A weights file of the replaced model that stays, because other models need it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StillNeeded {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// The models that need it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub needed_by: Vec<PathBuf>,
}
