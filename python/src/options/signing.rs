//! Keyword arguments as options of `onnx-container-signing`.

use std::path::PathBuf;

use onnx_container::Cancel;
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

/// The text of a PEM; an empty one of bytes that are no text, which holds no key either.
fn pem(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
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
        let key = match &self.private_key {
            Key::Pem(bytes) => PrivateKey::from_pem(pem(bytes)),
            Key::Path(path) => PrivateKey::read(path),
        };
        let mut options = SignOptions::new(key.or_raise()?)
            .all_files(self.all_files)
            .ignore_stored_digests(self.ignore_stored_digests)
            .sync(self.sync)
            .overwrite(self.overwrite)
            .mmap(mapping(self.mmap))
            .paths(policy(&self.paths)?)
            .limits(limits(&self.limits)?)
            .terms(argument);
        if let Some(path) = self.signature {
            options = options.signature(path);
        }
        if let Some(bytes) = self.shard_size {
            options = options.shard_size(bytes);
        }
        if let Some(form) = &self.shard_form {
            options = options.shard_form(shard_form(form)?);
        }
        let raised = Raised::default();
        let cancel = Cancel::with_progress(raised.report(self.progress));
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
        let key = match &self.public_key {
            Key::Pem(bytes) => PublicKey::from_pem(pem(bytes)),
            Key::Path(path) => PublicKey::read(path),
        };
        let mut options = VerifyOptions::new(key.or_raise()?)
            .ignore_unsigned_files(self.ignore_unsigned_files)
            .all_files(self.all_files)
            .require_files(self.require_files)
            .mmap(mapping(self.mmap))
            .paths(policy(&self.paths)?)
            .limits(limits(&self.limits)?)
            .terms(argument);
        if let Some(path) = self.signature {
            options = options.signature(path);
        }
        let raised = Raised::default();
        let cancel = Cancel::with_progress(raised.report(self.progress));
        Ok((options, cancel, raised))
    }
}
