//! Keyword arguments as options of `onnx-container-signing`.

use std::path::{Path, PathBuf};

use onnx_container::{Cancel, Result};
use onnx_container_signing::{PrivateKey, PublicKey, ShardForm, SignOptions, Term, VerifyOptions};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::options::{Raised, limits, mapping, none_of, policy};

/// How a model is signed.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Sign {
    private_key: Key,
    signature: Option<PathBuf>,
    all_files: bool,
    shard_size: Option<u64>,
    shard_form: Option<String>,
    ignore_stored_digests: bool,
    sync: bool,
    overwrite: bool,
    mmap: bool,
    paths: String,
    limits: Vec<(String, u64)>,
    progress: Option<Py<PyAny>>,
}

/// A key: the path of its file, or its PEM.
#[derive(FromPyObject)]
enum Key {
    Pem(Vec<u8>),
    Path(PathBuf),
}

impl Key {
    /// The key, as `from_pem` and `from_file` read it.
    fn read<K>(
        &self,
        from_pem: impl FnOnce(&str) -> Result<K>,
        from_file: impl FnOnce(&Path) -> Result<K>,
    ) -> PyResult<K> {
        let key = match self {
            // Bytes that are no text hold no key, as an empty text does.
            Self::Pem(bytes) => from_pem(std::str::from_utf8(bytes).unwrap_or_default()),
            Self::Path(path) => from_file(path),
        };
        key.or_raise()
    }
}

/// `$options` with the arguments that both calls have.
macro_rules! with_common {
    ($arguments:ident, $options:expr) => {{
        let options = $options
            .all_files($arguments.all_files)
            .mmap(mapping($arguments.mmap))
            .paths(policy(&$arguments.paths)?)
            .limits(limits(&$arguments.limits)?)
            .terms(argument);
        match $arguments.signature {
            Some(path) => options.signature(path),
            None => options,
        }
    }};
}

/// What reports the progress, and where the exception is kept that ends the work.
fn watched(progress: Option<Py<PyAny>>) -> (Cancel, Raised) {
    let raised = Raised::default();
    (Cancel::with_progress(raised.report(progress)), raised)
}

/// What messages of signatures call the arguments.
fn argument(term: &Term<'_>) -> String {
    match term {
        Term::Signature(None) => "signature=...".to_owned(),
        Term::Signature(Some(path)) => format!("signature={path:?}"),
        Term::ShardSize(bytes) => format!("shard_size={bytes}"),
        Term::RequireFiles => "require_files=True".to_owned(),
        Term::IgnoreUnsignedFiles => "ignore_unsigned_files=True".to_owned(),
        Term::Save => "Container.save()".to_owned(),
        other => other.to_string(),
    }
}

impl Sign {
    /// The options, what reports the progress, and where the exception is kept that ends the work.
    pub fn options(self) -> PyResult<(SignOptions, Cancel, Raised)> {
        let key = self.private_key.read(PrivateKey::from_pem, |path| PrivateKey::read(path))?;
        let mut options = with_common!(self, SignOptions::new(key))
            .ignore_stored_digests(self.ignore_stored_digests)
            .sync(self.sync)
            .overwrite(self.overwrite);
        if let Some(bytes) = self.shard_size {
            options = options.shard_size(bytes);
        }
        if let Some(form) = &self.shard_form {
            options = options.shard_form(shard_form(form)?);
        }
        let (cancel, raised) = watched(self.progress);
        Ok((options, cancel, raised))
    }
}

fn shard_form(name: &str) -> PyResult<ShardForm> {
    match name {
        "spec" => Ok(ShardForm::Spec),
        "model-signing" => Ok(ShardForm::ModelSigning),
        other => Err(none_of("shard_form", other, "'spec', 'model-signing'")),
    }
}

/// How a signature is verified.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Verify {
    public_key: Key,
    signature: Option<PathBuf>,
    ignore_unsigned_files: bool,
    all_files: bool,
    require_files: bool,
    mmap: bool,
    paths: String,
    limits: Vec<(String, u64)>,
    progress: Option<Py<PyAny>>,
}

impl Verify {
    /// The options, what reports the progress, and where the exception is kept that ends the work.
    pub fn options(self) -> PyResult<(VerifyOptions, Cancel, Raised)> {
        let key = self.public_key.read(PublicKey::from_pem, |path| PublicKey::read(path))?;
        let options = with_common!(self, VerifyOptions::new(key))
            .ignore_unsigned_files(self.ignore_unsigned_files)
            .require_files(self.require_files);
        let (cancel, raised) = watched(self.progress);
        Ok((options, cancel, raised))
    }
}
