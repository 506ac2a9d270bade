//! Where a model is: a file in a folder, or an object in a store. The one door by which commands
//! read models.
//!
//! Of a model in a store the graph is read by one request. Weights files are asked for when a call
//! needs them, and weights are read by range.

#[cfg(not(feature = "stores"))]
mod no_stores;
#[cfg(feature = "stores")]
mod stores;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use onnx_container::check::{CheckOptions, Checked, Checker};
use onnx_container::compare::{CompareOptions, Comparison, compare_models};
use onnx_container::external_data::{Directory, PathPolicy};
use onnx_container::{Container, Error, LoadOptions, Outline, Result};

use crate::args::is_url;
use crate::model::reading::Reading;
#[cfg(not(feature = "stores"))]
use no_stores as stores;
#[cfg(feature = "stores")]
pub use stores::{options, set_options, tag_of_read};

/// Loads the model at `path`. Weights in a store are read when they are needed.
pub fn load(path: &Path, options: impl Into<LoadOptions>) -> Result<Container> {
    let options = options.into();
    match is_url(path) {
        true => stores::load(path, options),
        false => Container::load(path, options),
    }
}

/// Loads the model at `path`, of which all weights are needed. Those in a store are read now, many
/// at once.
#[cfg(feature = "machine")]
pub fn fetch(path: &Path, options: impl Into<LoadOptions>) -> Result<Container> {
    let options = options.into();
    match is_url(path) {
        true => stores::fetch(path, options),
        false => Container::load(path, options),
    }
}

/// Loads the outline of the model at `path`.
pub fn outline(path: &Path, options: impl Into<LoadOptions>) -> Result<Outline> {
    let options = options.into();
    match is_url(path) {
        true => stores::outline(path, options),
        false => Outline::load(path, options),
    }
}

/// Checks the model at `path` by `checker`, which has these options.
pub fn check(
    checker: &mut Checker,
    path: &Path,
    reading: Reading,
    options: impl Fn(LoadOptions) -> CheckOptions,
) -> Result<Checked> {
    match is_url(path) {
        true => stores::check(path, reading.into(), options),
        false => checker.check(path),
    }
}

/// Compares the models at two paths, which are loaded by `load`.
pub fn compare(
    a: &Path,
    b: &Path,
    load: LoadOptions,
    options: CompareOptions,
    by_digests: bool,
) -> Result<Comparison> {
    if !is_url(a) && !is_url(b) {
        return compare_models(a, b, &options.load(load));
    }
    stores::compare([a, b], load, &options, by_digests)
}

/// The graph of the model at `path`, and where its weights files are.
pub fn graph(path: &Path, reading: Reading) -> Result<(Container, Files)> {
    if is_url(path) {
        let (container, files) = stores::graph(path, reading.into())?;
        return Ok((container, Files(Kind::Store(files))));
    }
    let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
    Ok((container, Files::beside(path, reading.paths)?))
}

/// The options by which [`Container::attach`] finds the weights files of the model at `path`.
pub fn attaching(path: &Path, options: LoadOptions) -> Result<LoadOptions> {
    match is_url(path) {
        true => stores::attaching(path, options),
        false => Ok(options.model_path(path)),
    }
}

/// The bytes of the model at `path` where it is in a store.
#[cfg(feature = "machine")]
pub fn bytes_in_store(path: &Path) -> Result<Option<onnx_container::Buffer>> {
    is_url(path).then(|| stores::bytes(path)).transpose()
}

/// A model file, and the weights files beside it.
pub struct Files(Kind);

enum Kind {
    Folder { directory: Directory, model: PathBuf },
    Store(stores::Files),
}

/// What the beginning and the length of a weights file say.
pub struct Opened {
    pub len: u64,
    pub head: Vec<u8>,
}

/// How many bytes at the beginning of a file are read.
const HEAD: u64 = 256;

impl Files {
    /// Those of the model at `path`, which is not read.
    pub fn beside(path: &Path, paths: PathPolicy) -> Result<Self> {
        let directory = Directory::of_model(path, paths)?;
        Ok(Self(Kind::Folder { directory, model: path.to_owned() }))
    }

    /// Whether weights files are at hand. Those in a store take a request each.
    pub fn are_at_hand(&self) -> bool {
        matches!(self.0, Kind::Folder { .. })
    }

    /// The path or the URL of the file at `location`.
    pub fn path(&self, location: &str) -> PathBuf {
        match &self.0 {
            Kind::Folder { directory, .. } => directory.join(location),
            Kind::Store(files) => files.path(location),
        }
    }

    /// The length of the file at `location`, and its first bytes.
    pub fn look(&self, location: &str) -> Result<Opened> {
        let directory = match &self.0 {
            Kind::Folder { directory, .. } => directory,
            Kind::Store(files) => return files.look(location),
        };
        let file = directory.open_file(location)?;
        let failed = |e| Error::io(directory.join(location), e);
        let len = file.metadata().map_err(failed)?.len();
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
        Ok(Opened { len, head })
    }

    /// Opens the file at `location`.
    pub fn open(&self, location: &str) -> Result<Box<dyn Read>> {
        match &self.0 {
            Kind::Folder { directory, .. } => Ok(Box::new(directory.open_file(location)?)),
            Kind::Store(files) => files.open(location),
        }
    }

    /// Opens the model file.
    pub fn open_model(&self) -> Result<Box<dyn Read + '_>> {
        match &self.0 {
            Kind::Folder { model, .. } => {
                let opened = File::open(model).map_err(|error| Error::io(model, error))?;
                Ok(Box::new(opened))
            }
            Kind::Store(files) => Ok(Box::new(files.model())),
        }
    }

    /// The length of the model file in bytes.
    pub fn model_len(&self) -> Result<u64> {
        match &self.0 {
            Kind::Folder { model, .. } => {
                Ok(std::fs::metadata(model).map_err(|error| Error::io(model, error))?.len())
            }
            Kind::Store(files) => Ok(files.model().len() as u64),
        }
    }
}
