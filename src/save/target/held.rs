//! What an old weights file holds besides the tensors of the model that is replaced. A checkpoint
//! that a model refers to is not only weights of that model: other programs read it by itself.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::file_format::known_format;
use crate::util::retry::retried;

/// How many bytes tell the format of a file.
const HEAD: u64 = 512;
/// What may follow the last tensor of a file: the padding of the largest alignment that writers
/// commonly use.
const PADDING: u64 = 64 << 10;

/// Whether the file at `path` may hold something else than the tensors of `models`, which end at
/// the byte `end` of it: it has a format of its own, or goes on after them. A
/// safetensors file does not where all its tensors are the model's.
///
/// # Errors
/// Those of reading.
pub(crate) fn holds_more(
    path: &Path,
    end: u64,
    models: &[PathBuf],
    location: &str,
) -> Result<bool> {
    let fail = |error| Error::io(path, error);
    let file = retried(|| File::open(path)).map_err(fail)?;
    let len = retried(|| file.metadata()).map_err(fail)?.len();
    let mut head = Vec::new();
    (&file).take(HEAD).read_to_end(&mut head).map_err(fail)?;
    match known_format(&head) {
        Some("a safetensors file") => Ok(!safetensors::are_all_used(path, models, location)),
        Some(_) => Ok(true),
        None => Ok(len > end.saturating_add(PADDING)),
    }
}

#[cfg(not(feature = "safetensors"))]
mod safetensors {
    use std::path::{Path, PathBuf};

    /// Nobody can tell without this feature.
    pub(super) fn are_all_used(_: &Path, _: &[PathBuf], _: &str) -> bool {
        false
    }
}

#[cfg(feature = "safetensors")]
mod safetensors {
    use std::collections::HashSet;
    use std::fs::File;
    use std::ops::Range;
    use std::path::{Path, PathBuf};

    use crate::buffer::Buffer;
    use crate::error::Result;
    use crate::files::external_data::{ExternalData, is_external, layout, without_dots};
    use crate::files::safetensors_header::{Header, PADDING};
    use crate::graph::traversal;
    use crate::proto::{Message, ModelProto};

    /// Whether each tensor of the safetensors file at `path` is one that `models` have at
    /// `location`. Where that cannot be told, it is not.
    pub(super) fn are_all_used(path: &Path, models: &[PathBuf], location: &str) -> bool {
        let all_used = || {
            let (header, start) = Header::read_from(&File::open(path)?)?;
            let mut used = HashSet::new();
            for model in models {
                used.extend(used_ranges(model, location)?);
            }
            let padding = header.metadata.get(PADDING).filter(|prefix| !prefix.is_empty());
            let start = start as u64;
            Ok::<_, crate::Error>(header.entries.iter().all(|entry| {
                let range = start + entry.range.start..start + entry.range.end;
                range.is_empty()
                    || used.contains(&range)
                    || padding.is_some_and(|prefix| entry.name.starts_with(prefix.as_str()))
            }))
        };
        all_used().unwrap_or(false)
    }

    fn used_ranges(model: &Path, location: &str) -> Result<HashSet<Range<u64>>> {
        let model = ModelProto::decode(&Buffer::from(std::fs::read(model)?))?;
        let mut used = HashSet::new();
        for (_, tensor) in traversal::iter(&model).filter(|(_, tensor)| is_external(tensor)) {
            let data = ExternalData::parse(tensor)?;
            if without_dots(&data.location) == location {
                used.insert(data.range(layout(tensor)?.1)?);
            }
        }
        Ok(used)
    }
}
