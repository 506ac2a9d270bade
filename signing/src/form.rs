//! The form of every statement: an in-toto Statement v1, <https://github.com/in-toto/attestation>.

use serde::{Deserialize, Serialize};

use crate::object::{object, objects};

/// The type of every statement.
pub const TYPE: &str = "https://in-toto.io/Statement/v1";

/// A statement: subjects, and a predicate of a type.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "D: Deserialize<'de>, P: Deserialize<'de>"))]
pub struct Form<D, P> {
    #[serde(rename = "_type")]
    pub kind: String,
    #[serde(deserialize_with = "objects")]
    pub subject: Vec<Subject<D>>,
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    #[serde(deserialize_with = "object")]
    pub predicate: P,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "D: Deserialize<'de>"))]
pub struct Subject<D> {
    pub name: String,
    #[serde(deserialize_with = "object")]
    pub digest: D,
}

impl<D, P> Form<D, P> {
    /// A statement about one subject.
    pub fn new(name: String, digest: D, predicate_type: &str, predicate: P) -> Self {
        let (kind, predicate_type) = (TYPE.to_owned(), predicate_type.to_owned());
        Self { kind, subject: vec![Subject { name, digest }], predicate_type, predicate }
    }

    /// The only subject, and the predicate.
    pub fn parts(self) -> Result<(Subject<D>, P), String> {
        let count = self.subject.len();
        match (self.subject.into_iter().next(), count) {
            (Some(subject), 1) if !subject.name.is_empty() => Ok((subject, self.predicate)),
            (Some(_), 1) => Err("the subject has no name".to_owned()),
            _ => Err(format!("{count} subjects where there has to be one")),
        }
    }
}
