//! [`Place`] in a build without stores: a path.

use std::path::{Path, PathBuf};

use onnx_container::check::{CheckOptions, Checked, check_model};
use onnx_container::{Container, LoadOptions, Result};
use pyo3::prelude::*;

/// How stores are reached: not at all.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Reached {
    #[expect(dead_code, reason = "Python has refused all options")]
    store_options: Vec<(String, String)>,
}

/// Where a model is read.
pub enum Place {
    Path(PathBuf),
}

impl Place {
    /// The model at a path. Python refuses URLs.
    #[expect(clippy::unnecessary_wraps, reason = "a URL may be wrong")]
    pub fn new(path: PathBuf, _reached: &Reached) -> Result<Self> {
        Ok(Self::Path(path))
    }

    /// The path of a model that is at one.
    #[expect(clippy::unnecessary_wraps, reason = "as above")]
    pub fn path(&self) -> Option<&Path> {
        let Self::Path(path) = self;
        Some(path)
    }

    /// The model with its weights.
    pub fn load(&self, options: LoadOptions) -> Result<Container> {
        let Self::Path(path) = self;
        Container::load(path, options)
    }

    /// Every fault of the model that `checks` of a load look for.
    pub fn check(
        &self,
        load: LoadOptions,
        checks: impl Fn(LoadOptions) -> CheckOptions,
    ) -> Result<Checked> {
        let Self::Path(path) = self;
        check_model(path, checks(load))
    }
}
