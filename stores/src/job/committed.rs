//! [`RemoteCommitted`]: what a commit has published, and how it is stored in the folder of the job,
//! where a later call finds it.

use onnx_container::digest::ContentDigest;
use onnx_container::work::JsonKind;
use onnx_container::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::names::hex;
use crate::publishing::{Published, PublishedFile};
use crate::sums::Sum;
use crate::url::StoreUrl;

const KIND: JsonKind = JsonKind {
    format: "onnx-container store job end",
    version: 1,
    name: "the end of a job of a store",
};

/// What a commit has published.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RemoteCommitted {
    /// The model, its weights files, and its versions.
    pub published: Published,
    /// The [digest](onnx_container::Container::digest) of the model, known from the receipts
    /// without reading a weight.
    pub digest: ContentDigest,
    /// The weights, by their old names, of which finite numbers became infinite by a cast; see
    /// [`CastReport::infinite`](onnx_container::edit::CastReport::infinite).
    pub infinite: Vec<String>,
    /// Whether an earlier call had published the model.
    pub already: bool,
    /// Whether another model is there now, or none. Where the store does not tell a commit that is
    /// done again, this is `false`, and a warning of [`Published`] says so.
    pub replaced: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    committed: Option<Stored>,
}

/// What a commit has published, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    e_tag: Option<String>,
    model_bytes: u64,
    files: Vec<(String, u64, String)>,
    version: Option<String>,
    removed: Vec<String>,
    digest: String,
    infinite: Vec<String>,
}

impl RemoteCommitted {
    /// What says later that it was published.
    pub(super) fn to_json(&self) -> Result<String> {
        ended(Some(Stored::of(self)))
    }

    /// What an earlier call has published at `url`.
    pub(super) fn from_json(text: &str, url: &StoreUrl) -> Result<Self> {
        KIND.check(text)?;
        let Ended { committed, .. } =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        let stored = committed.ok_or_else(|| KIND.not_one("it says nothing of a commit"))?;
        stored.committed(url)
    }
}

/// What says later that a job was aborted.
pub(super) fn aborted_json() -> Result<String> {
    ended(None)
}

fn ended(committed: Option<Stored>) -> Result<String> {
    let (format, version) = (KIND.format.to_owned(), KIND.version);
    serde_json::to_string(&Ended { format, version, committed }).map_err(Error::internal)
}

/// The digest of 64 hexadecimal digits.
pub(super) fn sum_of(digits: &str) -> Option<Sum> {
    let digest: ContentDigest = format!("sha256:{digits}").parse().ok()?;
    Some(*digest.as_bytes())
}

impl Stored {
    fn of(RemoteCommitted { published, digest, infinite, .. }: &RemoteCommitted) -> Self {
        let file = |file: &PublishedFile| {
            let sha256 = file.sha256.as_ref().map(hex).unwrap_or_default();
            (file.name.clone(), file.bytes, sha256)
        };
        Self {
            e_tag: published.e_tag.clone(),
            model_bytes: published.model_bytes,
            files: published.files.iter().map(file).collect(),
            version: published.version.as_ref().map(|url| url.key().to_owned()),
            removed: published.removed.iter().map(|url| url.key().to_owned()).collect(),
            digest: digest.to_string(),
            infinite: infinite.clone(),
        }
    }

    fn committed(self, url: &StoreUrl) -> Result<RemoteCommitted> {
        let files = self.files.into_iter().map(|(name, bytes, sha256)| PublishedFile {
            name,
            bytes,
            sha256: sum_of(&sha256),
            sent: true,
        });
        let published = Published {
            url: url.clone(),
            e_tag: self.e_tag,
            model_bytes: self.model_bytes,
            files: files.collect(),
            version: self.version.map(|key| url.with_key(key)),
            removed: self.removed.into_iter().map(|key| url.with_key(key)).collect(),
            warnings: Vec::new(),
        };
        let (digest, infinite) = (self.digest.parse()?, self.infinite);
        Ok(RemoteCommitted { published, digest, infinite, already: true, replaced: false })
    }
}
