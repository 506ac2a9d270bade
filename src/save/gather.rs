//! What a save writes: the weights that the model needs, each once, and those that may stay in the
//! files where they are.

pub(in crate::save) mod attached;
pub(in crate::save) mod content;
pub(in crate::save) mod equal;
pub(in crate::save) mod kept;
pub(in crate::save) mod overlaps;
pub(in crate::save) mod readers;
pub(in crate::save) mod weights;
