//! [`Receipt`]: what one writer of a job has written.

use serde::{Deserialize, Serialize};

use super::slice::TensorSlice;
use crate::error::{Error, ErrorKind, Result};
use crate::util::json_kind::JsonKind;

const KIND: JsonKind =
    JsonKind { format: "onnx-container job receipt", version: 1, name: "a receipt of a job" };

/// What one writer of a job has written: the answer of [`Job::write`](super::Job::write). It was
/// flushed to the disk unless the job was planned without that.
///
/// It is stored in the folder of the job too, so no engine has to carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Receipt {
    /// The [id](super::Job::id) of the job.
    pub job: String,
    /// Who has written: `part-00017`, or the name of a writer of slices.
    pub writer: String,
    /// How many bytes.
    pub bytes: u64,
    /// What of which tensors.
    pub tensors: Vec<WrittenTensor>,
    /// The weights, by their old names, of which finite numbers became infinite by a cast, as far
    /// as this writer has seen; see [`CastReport::infinite`](crate::edit::CastReport::infinite).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub infinite: Vec<String>,
}

/// A tensor, or a part of one, that a writer has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WrittenTensor {
    /// The name of the tensor in the job.
    pub name: String,
    /// The part of it; `None` for the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<TensorSlice>,
    /// The SHA-256 of the bytes of a whole tensor, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Stamped<R> {
    format: String,
    version: u32,
    receipt: R,
}

impl Receipt {
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

    /// The receipt of a text in the folder of a job. What is no receipt stands for nothing: its
    /// part is written again. One of another version says what this program cannot read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for another version.
    pub(super) fn of_stored(text: &str) -> Result<Option<Self>> {
        match Self::from_json(text) {
            Err(error) if error.kind() == ErrorKind::Decode => Ok(None),
            read => read.map(Some),
        }
    }
}

/// The name of the writer of a part.
pub(super) fn part_name(part: usize) -> String {
    format!("part-{part:05}")
}

/// The part that a writer of this name has written.
pub(super) fn part_of(writer: &str) -> Option<usize> {
    let part = writer.strip_prefix("part-").and_then(|number| number.parse().ok());
    part.filter(|part| part_name(*part) == writer)
}

/// Refuses a name of a writer that cannot be the name of a file, or that a part has.
pub(super) fn check_writer(writer: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_name = (1..=100).contains(&writer.len()) && writer.bytes().all(is_plain);
    // `job` is the name of the lock of all.
    if is_name && !writer.starts_with("part-") && writer != "job" {
        return Ok(());
    }
    let reason = format!(
        "`{writer}` is no name of a writer: 1 to 100 letters, digits, `-` and `_`, and not \
         `job` or `part-...`, which others have"
    );
    Err(Error::new(ErrorKind::InvalidArgument, reason))
}
