//! What signature files state: an in-toto Statement v1, whose type of predicate says which
//! statement it is.

use serde::de::{DeserializeOwned, IgnoredAny};

use crate::content::Content;
use crate::form::{Form, TYPE};
use crate::manifest::Manifest;
use crate::object::Object;
use crate::{content, manifest};

/// A statement that was signed.
#[derive(Debug)]
pub enum Statement {
    /// These are the files.
    Files(Manifest),
    /// This is the content of the model.
    Content(Content),
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
