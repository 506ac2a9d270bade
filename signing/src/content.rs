//! The statement on content: the digest of what a model contains, however it is stored.

use std::collections::BTreeSet;

use onnx_container::digest::ContentDigest;
use onnx_container_files::sha256::hex;
use serde::{Deserialize, Serialize};

use crate::form::Form;
use crate::hashing::is_sha256;

/// The type of the statement.
pub const PREDICATE: &str = "https://onnx-container/content/v1";

/// How the digest is computed: docs/digests.md.
const SCHEME: &str = "onnx-container/content/1";

/// The signed digest of a model.
#[derive(Debug)]
pub struct Content {
    /// What the model was called in its folder.
    pub model: String,
    /// 64 hexadecimal digits.
    pub digest: String,
    /// The files that the model had, as the statement on files calls them. That one may be about
    /// others too, and says of none whether it is the model's.
    pub files: BTreeSet<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    scheme: String,
    #[serde(default)]
    files: BTreeSet<String>,
}

/// It is no digest of the bytes of any file, so that its name is not that of one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Digest {
    #[serde(rename = "onnxContainerContent1")]
    content: String,
}

impl Content {
    /// The content of `model`, which has these files.
    pub fn new(model: String, digest: &ContentDigest, files: BTreeSet<String>) -> Self {
        Self { model, digest: hex(digest.as_bytes()), files }
    }

    /// What the statement says, or what is wrong with it.
    pub fn of(form: Form<Digest, Predicate>) -> Result<Self, String> {
        let (subject, predicate) = form.parts()?;
        if predicate.scheme != SCHEME {
            return Err(format!("a digest by an unknown scheme: {:?}", predicate.scheme));
        }
        let (model, digest, files) = (subject.name, subject.digest.content, predicate.files);
        if is_sha256(&digest) {
            Ok(Self { model, digest, files })
        } else {
            Err(format!("no digest: {digest:?}"))
        }
    }

    /// The statement that says so.
    pub fn statement(self) -> Form<Digest, Predicate> {
        let Self { model, digest, files } = self;
        let predicate = Predicate { scheme: SCHEME.to_owned(), files };
        Form::new(model, Digest { content: digest }, PREDICATE, predicate)
    }
}
