//! The files of a model: its own and the weights files that it names. No weight is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use onnx_container::external_data::{Directory, ExternalData, is_external};
use onnx_container::proto::ModelProto;
use onnx_container::{Container, Error, LoadOptions, Result, traversal};
use onnx_container_files::locations::plain;

use crate::options::Reading;

/// The weights files that a model names.
#[derive(Debug)]
pub(crate) struct Needed {
    directory: Directory,
    /// The locations that are written in the model, each by the one form of its file.
    pub(crate) locations: BTreeMap<String, String>,
    /// Tensors that name no file, or not one file.
    errors: Vec<Error>,
}

impl Needed {
    /// Those of `model`, which was read from `path`.
    pub(crate) fn by(model: &ModelProto, path: &Path, reading: Reading) -> Result<Self> {
        let directory = Directory::of_model(path, reading.paths)?;
        let (mut locations, mut errors) = (BTreeMap::new(), Vec::new());
        traversal::tensors(model, |place, tensor| {
            if !is_external(tensor) {
                return Ok(());
            }
            match ExternalData::parse(tensor) {
                Ok(data) => {
                    locations.entry(plain(&data.location)).or_insert(data.location);
                }
                Err(error) => errors.push(error.with_tensor(place.qualified_name(tensor))),
            }
            Ok(())
        })?;
        Ok(Self { directory, locations, errors })
    }

    /// Opens the file at a location, by the rules by which the model's reader finds it.
    pub(crate) fn open(&self, location: &str) -> Result<File> {
        self.directory.open_file(location)
    }

    /// The path of the file at a location.
    pub(crate) fn path(&self, location: &str) -> PathBuf {
        self.directory.join(location)
    }

    /// Those of the model at `path`. The model is decoded for this alone: weights that are attached
    /// to it would be those of another save, if one replaces the model meanwhile.
    fn at(path: &Path, reading: Reading) -> Result<Self> {
        let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
        Self::by(container.model(), path, reading)
    }
}

/// The files of the model at `path`, whose name is `model`, as a signature names them.
pub(crate) fn names(path: &Path, model: &str, reading: Reading) -> Result<BTreeSet<String>> {
    let Needed { locations, errors, .. } = Needed::at(path, reading)?;
    match Error::join(errors) {
        Some(error) => Err(error),
        None => Ok(locations.into_keys().chain([model.to_owned()]).collect()),
    }
}

/// The files of the model at `path` that are there, as absolute paths: they are not replaced.
pub(crate) fn paths(path: &Path, reading: Reading) -> Result<Vec<PathBuf>> {
    let needed = Needed::at(path, reading)?;
    let weights = needed.locations.values().map(|location| needed.path(location));
    Ok(weights.chain([path.to_owned()]).filter_map(|path| path.canonicalize().ok()).collect())
}
