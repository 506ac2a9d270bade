//! Indices of safetensors shards, which name files of their folder as models do.

use std::path::Path;

use crate::error::Result;
use crate::save::target::skim::{Skimmed, skim};

/// What the file at `path` refers to: a model, or an index of shards, which is no model.
///
/// # Errors
/// Those of [`skim`].
pub(crate) fn skim_any(path: &Path) -> Result<Skimmed> {
    if is_index(path) { skim_index(path) } else { skim(path) }
}

/// Whether `path` has the name of an index of safetensors shards.
pub(crate) fn is_index(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    name.is_some_and(|name| name.ends_with(".safetensors.index.json"))
}

/// The shards that an index names. A file that is not an index names none.
#[cfg(feature = "safetensors")]
fn skim_index(path: &Path) -> Result<Skimmed> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: std::collections::HashMap<String, String>,
    }
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if crate::save::target::skim::leads_nowhere(&error) => {
            return Ok(Skimmed::default());
        }
        Err(error) => return Err(crate::error::Error::io(path, error)),
    };
    match serde_json::from_reader::<_, Index>(std::io::BufReader::new(file)) {
        Ok(index) => {
            let locations = index.weight_map.into_values().collect();
            Ok(Skimmed { locations, ..Skimmed::default() })
        }
        Err(error) if error.is_io() => Err(crate::error::Error::io(path, error.into())),
        Err(_) => Ok(Skimmed::default()),
    }
}

#[cfg(not(feature = "safetensors"))]
fn skim_index(_: &Path) -> Result<Skimmed> {
    Ok(Skimmed::default())
}
