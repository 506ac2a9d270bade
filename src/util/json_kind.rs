//! [`JsonKind`]: what a JSON text says first of itself, before the rest of it is read.

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

/// A kind of JSON object that is written and read again. Beside its value it has `format` and
/// `version`.
#[derive(Debug, Clone, Copy)]
pub struct JsonKind {
    /// What its `format` is.
    pub format: &'static str,
    /// The version that is written, and the only one that is read.
    pub version: u32,
    /// What errors call one: `a job`.
    pub name: &'static str,
}

#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl JsonKind {
    /// Refuses another kind of text, and another version: what else there is depends on it.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] and [`ErrorKind::Unsupported`].
    pub fn check(&self, text: &str) -> Result<()> {
        let Header { format, version } =
            serde_json::from_str(text).map_err(|error| self.not_one(error))?;
        if format != self.format {
            return Err(self.not_one(format!("its format is `{format}`, not `{}`", self.format)));
        }
        if version != self.version {
            let reason = format!("version {version} of {}; {} is known", self.name, self.version);
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        Ok(())
    }

    /// Whether `text` is of this kind, of any version.
    pub fn is_of(&self, text: &str) -> bool {
        serde_json::from_str(text).is_ok_and(|header: Header| header.format == self.format)
    }

    /// The error of a text that is not of this kind.
    pub fn not_one(&self, reason: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Decode, format!("not {}: {reason}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_looked_at_first_and_then_the_version() {
        const KIND: JsonKind = JsonKind { format: "letters", version: 2, name: "a letter" };
        for (text, expected) in [
            (r#"{"format":"letters","version":2,"letter":[1]}"#, None),
            (r#"{"format":"letters","version":3}"#, Some("version 3 of a letter; 2 is known")),
            (r#"{"format":"bills","version":3}"#, Some("not a letter: its format is `bills`")),
            (r#"{"format":"letters"}"#, Some("not a letter: missing field `version`")),
            ("[]", Some("not a letter:")),
            ("", Some("not a letter: EOF")),
        ] {
            let found = KIND.check(text);
            match expected {
                None => found.unwrap(),
                Some(reason) => {
                    let error = found.unwrap_err().to_string();
                    assert!(error.contains(reason), "{text}: {error}");
                }
            }
            assert_eq!(KIND.is_of(text), text.contains("letters\",\"version"), "{text}");
        }
    }
}
