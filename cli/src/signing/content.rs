//! The statement on content: the digest of what a model contains, however it is stored.

use onnx_container::ContentDigest;
use serde::{Deserialize, Serialize};

use super::hashing::is_sha256;
use super::statement::Form;
use crate::sha256::hex;

/// The type of the statement.
pub const PREDICATE: &str = "https://onnx-container/content/v1";

/// How the digest is computed: docs/digests.md.
const SCHEME: &str = "onnx-container/content/1";

/// The signed digest of a model.
#[derive(Debug)]
pub struct Content {
    /// 64 hexadecimal digits.
    pub digest: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    scheme: String,
}

/// It is no digest of the bytes of any file, so that its name is not that of one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Digest {
    #[serde(rename = "onnxContainerContent1")]
    content: String,
}

impl Content {
    pub fn new(digest: &ContentDigest) -> Self {
        Self { digest: hex(digest.as_bytes()) }
    }

    /// What the statement says, or what is wrong with it.
    pub fn of(form: Form<Digest, Predicate>) -> Result<Self, String> {
        let (subject, predicate) = form.parts()?;
        if predicate.scheme != SCHEME {
            return Err(format!("a digest by an unknown scheme: {:?}", predicate.scheme));
        }
        let digest = subject.digest.content;
        if is_sha256(&digest) { Ok(Self { digest }) } else { Err(format!("no digest: {digest:?}")) }
    }

    /// The statement that `name`, a model, has this content.
    pub fn statement(&self, name: String) -> Form<Digest, Predicate> {
        let digest = Digest { content: self.digest.clone() };
        Form::new(name, digest, PREDICATE, Predicate { scheme: SCHEME.to_owned() })
    }
}
