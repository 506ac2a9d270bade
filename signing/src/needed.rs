//! The files of a model: its own and the weights files that it names. No weight is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use onnx_container::external_data::Directory;
use onnx_container::proto::ModelProto;
use onnx_container::{Container, Error, LoadOptions, Result};
use onnx_container_files::needed;

use crate::options::Reading;

/// The weights files that a model names.
#[derive(Debug)]
pub(crate) struct Needed {
    directory: Directory,
    /// The locations that are written in the model, each by the one form of its file.
    pub(crate) locations: BTreeMap<String, String>,
}

impl Needed {
    /// Those of `model`, which was read from `path`.
    pub(crate) fn by(model: &ModelProto, path: &Path, reading: Reading) -> Result<Self> {
        let directory = Directory::of_model(path, reading.paths)?;
        let (locations, _) = needed::locations(model)?;
        Ok(Self { directory, locations })
    }

    /// Opens the file at a location, by the rules by which the model's reader finds it.
    pub(crate) fn open(&self, location: &str) -> Result<File> {
        self.directory.open_file(location)
    }

    /// The path of the file at a location.
    pub(crate) fn path(&self, location: &str) -> PathBuf {
        self.directory.join(location)
    }
}

/// The files of the model at `path`, whose name is `model`, as a signature names them.
pub(crate) fn names(path: &Path, model: &str, reading: Reading) -> Result<BTreeSet<String>> {
    let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
    let (locations, errors) = needed::locations(container.model())?;
    match Error::join(errors) {
        Some(error) => Err(error),
        None => Ok(locations.into_keys().chain([model.to_owned()]).collect()),
    }
}

/// The files of the model at `path` that are there, as absolute paths: they are not replaced.
pub(crate) fn paths(path: &Path, reading: Reading) -> Result<Vec<PathBuf>> {
    needed::paths(path, LoadOptions::from(reading), reading.paths)
}
