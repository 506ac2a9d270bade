//! [`PartReceipt`]: what was written of a job, and the digests of it.

use onnx_container::work::JsonKind;
use onnx_container::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

const KIND: JsonKind = JsonKind {
    format: "onnx-container store job receipt",
    version: 1,
    name: "a receipt of a job of a store",
};

/// What one writer of a part has written. It is stored beside the job too, so no engine has to
/// carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PartReceipt {
    /// The [id](super::RemoteJob::id) of the job.
    pub job: String,
    /// The number of the part.
    pub part: usize,
    /// Its weights file; none for a part without tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<StoredFile>,
    /// The weights, by their old names, of which finite numbers became infinite by a cast, as far
    /// as this writer has seen; see
    /// [`CastReport::infinite`](onnx_container::edit::CastReport::infinite).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub infinite: Vec<String>,
}

/// A weights file that a part has put into the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StoredFile {
    /// Its name beside the model.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes, 64 hexadecimal digits.
    pub sha256: String,
    /// Those of the ranges that tensors have in it.
    pub ranges: Vec<HashedRange>,
}

/// Bytes of a weights file that a tensor has, and their digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HashedRange {
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Their SHA-256, 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Stamped<R> {
    format: String,
    version: u32,
    receipt: R,
}

impl PartReceipt {
    /// The receipt as JSON.
    ///
    /// # Errors
    /// None that a receipt of names that are text can have.
    pub fn to_json(&self) -> Result<String> {
        let (format, version) = (KIND.format.to_owned(), KIND.version);
        let stamped = Stamped { format, version, receipt: self };
        serde_json::to_string(&stamped).map_err(Error::internal)
    }

    /// The receipt of a JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for text that is no such JSON, [`ErrorKind::Unsupported`] for another
    /// version of it.
    pub fn from_json(text: &str) -> Result<Self> {
        KIND.check(text)?;
        let Stamped { receipt, .. }: Stamped<Self> =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        Ok(receipt)
    }

    /// The receipt of the object at `shown`. What is no receipt stands for nothing: its part is
    /// written again. One of another version names a file that this program does not know.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for another version.
    pub(crate) fn of_stored(text: &str, shown: &str) -> Result<Option<Self>> {
        match Self::from_json(text) {
            Err(error) if error.kind() == ErrorKind::Decode => Ok(None),
            read => read.map(Some).map_err(|error| error.with_path(shown)),
        }
    }
}
