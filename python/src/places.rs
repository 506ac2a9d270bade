//! [`Place`]: where a model is read, a path or a URL, and [`Store`]: the store of a caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnx_container::check::{CheckOptions, Checked, check_bytes, check_model};
use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result};
use onnx_container_store::job::Stores;
use onnx_container_store::{RemoteModel, Store as Opened, StoreOptions, StoreUrl, is_url, read_in};
use pyo3::prelude::*;

use crate::objects::Objects;

/// A store that the caller opened: an obstore store, or a filesystem of fsspec.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Store(Opened);

#[pymethods]
impl Store {
    /// The store that `objects`, a `_stores.Objects`, reaches. `root` is what errors call it.
    #[new]
    fn new(objects: Py<PyAny>, root: String) -> Self {
        let objects = Objects::new(objects, root.clone());
        Self(Opened::new(Arc::new(objects), root))
    }

    fn __repr__(&self) -> String {
        format!("<Store {}>", self.0.root())
    }
}

/// How stores are reached: one that is open, or options by their names.
#[derive(FromPyObject, Default)]
#[pyo3(from_item_all)]
pub struct Reached {
    store: Option<Py<Store>>,
    store_options: Vec<(String, String)>,
}

impl Reached {
    /// The same for the stores of a job.
    pub fn stores(&self) -> Result<Stores> {
        match &self.store {
            Some(store) => Ok(store.get().0.clone().into()),
            None => Ok(options(&self.store_options)?.into()),
        }
    }

    /// Refuses the object at `url` where it is not in the store that is open.
    pub fn check(&self, url: &StoreUrl) -> Result<()> {
        let other = self.store.as_ref().map(|store| store.get().0.root());
        let Some(root) = other.filter(|root| *root != url.root()) else { return Ok(()) };
        let reason = format!("the job is of another store than `{root}`, which was given");
        Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(url.to_string()))
    }

    /// The object at `text`: a URL, or the key of an object in the store that is open.
    pub fn at(&self, text: &str) -> Result<Stored> {
        if let Some(store) = &self.store {
            let store = store.get().0.clone();
            let url = StoreUrl::of(store.root(), text)?;
            return Ok(Stored { store, url });
        }
        let url = StoreUrl::parse(text)?;
        let store = Opened::open(&url, &options(&self.store_options)?)?;
        Ok(Stored { store, url })
    }
}

/// The options of a store that have these names.
fn options(given: &[(String, String)]) -> Result<StoreOptions> {
    // Values may be secret, so errors have none.
    let wrong = |name: &str, wanted: &str| {
        Error::new(ErrorKind::InvalidArgument, format!("the store option `{name}` is {wanted}"))
    };
    given.iter().try_fold(StoreOptions::new(), |options, (name, value)| match name.as_str() {
        "max_retries" => {
            let retries = value.parse().map_err(|_| wrong(name, "a number"))?;
            Ok(options.max_retries(retries))
        }
        "trust_conditions" => {
            let trust = value.parse().map_err(|_| wrong(name, "true or false"))?;
            Ok(options.trust_conditions(trust))
        }
        _ => Ok(options.set(name, value)),
    })
}

/// An object of a store, or a folder there.
pub struct Stored {
    pub store: Opened,
    pub url: StoreUrl,
}

impl Stored {
    /// What `read` makes of the model, which was not replaced meanwhile.
    pub fn read<T>(&self, read: impl Fn(&RemoteModel) -> Result<T>) -> Result<T> {
        read_in(&self.store, &self.url, read)
    }
}

/// Where a model is read.
pub enum Place {
    Path(PathBuf),
    Stored(Stored),
}

impl Place {
    /// The model at a path, or at a URL whose store is reached as `reached` says.
    pub fn new(path: PathBuf, reached: &Reached) -> Result<Self> {
        match path.to_str() {
            Some(text) if reached.store.is_some() || is_url(text) => {
                reached.at(text).map(Self::Stored)
            }
            _ => Ok(Self::Path(path)),
        }
    }

    /// The path of a model that is at one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Stored(_) => None,
        }
    }

    /// The model with its weights; those in a store are read when they are needed.
    pub fn load(&self, options: LoadOptions) -> Result<Container> {
        match self {
            Self::Path(path) => Container::load(path, options),
            Self::Stored(stored) => stored.read(|model| model.load(options.clone())),
        }
    }

    /// Every fault of the model that `checks` of a load look for.
    pub fn check(
        &self,
        load: LoadOptions,
        checks: impl Fn(LoadOptions) -> CheckOptions,
    ) -> Result<Checked> {
        match self {
            Self::Path(path) => check_model(path, checks(load)),
            Self::Stored(stored) => stored.read(|model| {
                check_bytes(model.bytes().clone(), checks(model.load_options(load.clone())?))
            }),
        }
    }
}
