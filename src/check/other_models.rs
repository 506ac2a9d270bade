//! What other models use of a weights file: models that share their weights leave bytes to each
//! other, and those are not unused.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files::consistent_read::read_one_save;
use crate::files::external_data::{self, ExternalData, directory_of, is_external};
use crate::graph::traversal;
use crate::load::{LoadOptions, decode_model};
use crate::proto::{ModelProto, TensorProto};
use crate::save::{FileId, ModelFolder, file_ids};

/// The other models that need a file, and the bytes of it that their tensors use.
#[derive(Default)]
pub(super) struct OtherModels {
    pub(super) paths: Vec<PathBuf>,
    pub(super) used: Vec<Range<u64>>,
}

impl OtherModels {
    /// Those that need the file at `location` of the model at `path`.
    ///
    /// # Errors
    /// Where a file cannot be read that may be such a model.
    pub(super) fn find(path: &Path, location: &str, options: &LoadOptions) -> Result<Self> {
        // Bytes that the caller gave are in no file.
        if options.files.contains_key(location) {
            return Ok(Self::default());
        }
        let folder = directory_of(path);
        let Some(file) = file_ids(&folder.join(location))?.pop() else {
            return Ok(Self::default());
        };
        let users = ModelFolder::new(&folder, "").users_below([location.to_owned()], Some(path))?;
        let mut others = Self { paths: users.into_values().flatten().collect(), used: Vec::new() };
        for other in &others.paths {
            let read = read_one_save(other, options.mmap, |bytes| {
                let model = decode_model(&bytes, &options.decode)?;
                used_by(&model, &directory_of(other), &file)
            });
            others.used.extend(read.map_err(|error| error.with_path(other))?.value);
        }
        Ok(others)
    }

    /// Their paths in words: the first, and how many more there are.
    pub(super) fn named(&self) -> Option<String> {
        let (first, more) = self.paths.split_first()?;
        let first = first.display();
        Some(match more.len() {
            0 => format!("`{first}`"),
            more => format!("`{first}` and {more} more"),
        })
    }
}

/// The bytes of the `file` that the tensors of `model` use, which is in `folder`.
fn used_by(model: &ModelProto, folder: &Path, file: &FileId) -> Result<Vec<Range<u64>>> {
    let (mut used, mut last) = (Vec::new(), None::<(String, bool)>);
    traversal::tensors(model, |_, tensor| {
        // What is wrong with the other model is found where that one is checked.
        let Some((location, range)) = place_of(tensor) else { return Ok(()) };
        let is_it = match &last {
            Some((known, is_it)) if *known == location => *is_it,
            _ => file_ids(&folder.join(&location))?.contains(file),
        };
        last = Some((location, is_it));
        used.extend(is_it.then_some(range));
        Ok(())
    })?;
    Ok(used)
}

fn place_of(tensor: &TensorProto) -> Option<(String, Range<u64>)> {
    if !is_external(tensor) {
        return None;
    }
    let data = ExternalData::parse(tensor).ok()?;
    let (_, len) = external_data::layout(tensor).ok()?;
    let range = data.range(len).ok()?;
    Some((data.location, range))
}
