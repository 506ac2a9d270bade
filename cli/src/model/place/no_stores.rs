//! In a build that reaches no store: the arguments refuse URLs, so that none comes here.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use onnx_container::check::{CheckOptions, Checked};
use onnx_container::compare::{CompareOptions, Comparison};
use onnx_container::{Container, Error, LoadOptions, Outline, Result};

use super::Opened;

fn without<T>() -> Result<T> {
    Err(Error::internal("a URL in a build that reaches no store"))
}

pub fn load(_: &Path, _: LoadOptions) -> Result<Container> {
    without()
}

#[cfg(feature = "machine")]
pub fn fetch(_: &Path, _: LoadOptions) -> Result<Container> {
    without()
}

pub fn outline(_: &Path, _: LoadOptions) -> Result<Outline> {
    without()
}

pub fn check(_: &Path, _: LoadOptions, _: impl Fn(LoadOptions) -> CheckOptions) -> Result<Checked> {
    without()
}

pub fn compare(_: [&Path; 2], _: LoadOptions, _: &CompareOptions, _: bool) -> Result<Comparison> {
    without()
}

pub fn attaching(_: &Path, _: LoadOptions) -> Result<LoadOptions> {
    without()
}

#[cfg(feature = "machine")]
pub fn bytes(_: &Path) -> Result<onnx_container::Buffer> {
    without()
}

pub fn graph(_: &Path, _: LoadOptions) -> Result<(Container, Files)> {
    without()
}

/// There are none.
pub struct Files(Infallible);

impl Files {
    pub fn path(&self, _: &str) -> PathBuf {
        match self.0 {}
    }

    pub fn look(&self, _: &str) -> Result<Opened> {
        match self.0 {}
    }

    pub fn open(&self, _: &str) -> Result<Box<dyn std::io::Read>> {
        match self.0 {}
    }

    pub fn model(&self) -> &[u8] {
        match self.0 {}
    }
}
