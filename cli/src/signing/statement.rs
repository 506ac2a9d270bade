//! What signature files state: an in-toto Statement v1, whose type of predicate says which statement it is.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::content::Content;
use super::manifest::Manifest;
use super::object::{Object, object, objects};
use super::{content, manifest};

const TYPE: &str = "https://in-toto.io/Statement/v1";

/// A statement that was signed.
#[derive(Debug)]
pub enum Statement {
    /// These are the files.
    Files(Manifest),
    /// This is the content of the model.
    Content(Content),
}

/// The form of every statement.
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

/// The statement in a payload whose signature was verified, or what is wrong with it.
pub fn parse(payload: &[u8]) -> Result<Statement, String> {
    let head: Form<IgnoredAny, IgnoredAny> = form(payload)?;
    if head.kind != TYPE {
        return Err(format!("the statement is of the type {:?}, not {TYPE}", head.kind));
    }
    match head.predicate_type.as_str() {
        manifest::PREDICATE => Manifest::of(form(payload)?).map(Statement::Files),
        content::PREDICATE => Content::of(form(payload)?).map(Statement::Content),
        other => Err(format!("a statement of an unknown type: {other:?}")),
    }
}

fn form<D: DeserializeOwned, P: DeserializeOwned>(payload: &[u8]) -> Result<Form<D, P>, String> {
    let form = serde_json::from_slice(payload).map(|Object(form)| form);
    form.map_err(|error| format!("the signed statement: {error}"))
}
