//! Models that commands read and write: options of reading, what is refused, what is needed, saves.

pub(crate) mod data_files;
pub(crate) mod findings;
pub(crate) mod kept_name;
pub(crate) mod mapped_leftovers;
pub(crate) mod needed;
pub(crate) mod place;
pub(crate) mod reading;
pub(crate) mod save;
pub(crate) mod vouched;
