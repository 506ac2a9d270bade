//! What a verification finds, and what follows from it.
//!
//! Why a model is not verified is in `reason`, and how all of it is told in `told`.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::terminal::failure::JsonError;
use crate::terminal::output::lossy;

/// Why files are not as they were signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Other bytes than those that were signed.
    Changed,
    /// Signed, and not there.
    Missing,
    /// There, or needed by the model, and not signed.
    Unsigned,
    /// Not opened: a link, or no regular file.
    Refused,
}

/// A file that is not as it was signed.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// Beneath the folder of the model.
    pub path: String,
    #[serde(rename = "problem")]
    pub kind: Kind,
    pub reason: String,
}

/// What was found about the files.
#[derive(Debug, Serialize)]
pub struct Files<'a> {
    #[serde(serialize_with = "lossy")]
    pub signature: &'a Path,
    pub as_signed: bool,
    pub method: &'static str,
    pub shard_size: Option<u64>,
    pub signed_files: usize,
    pub problems: Vec<Problem>,
    /// What is in the folder, was not signed, and is left out by the signature itself.
    pub left_out: Vec<String>,
    /// The files that the model has now.
    #[serde(skip)]
    pub own: BTreeSet<String>,
    /// The file of the model; none for a folder.
    #[serde(skip)]
    pub model: Option<String>,
}

/// What was found about the content.
#[derive(Debug, Serialize)]
pub struct Content<'a> {
    #[serde(serialize_with = "lossy")]
    pub signature: &'a Path,
    /// What the model was called that was signed.
    #[serde(rename = "model")]
    pub signed_model: String,
    /// Whether the model has that name now.
    #[serde(skip)]
    pub is_of_that_name: bool,
    /// Nothing where the content was not compared.
    pub as_signed: Option<bool>,
    pub signed_digest: String,
    /// That of the model, where it was compared.
    pub digest: Option<String>,
    /// Why it does not hold, or was not compared.
    pub reason: Option<String>,
    /// Why it could not be compared.
    pub error: Option<JsonError>,
    /// Why other readers may take the file for another model than the one of this content.
    pub ambiguous: Option<String>,
    /// The files that the model had when it was signed.
    #[serde(skip)]
    pub files: BTreeSet<String>,
}

/// The whole verdict, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Verdict<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    ok: bool,
    /// Why it is not verified.
    pub reason: Option<String>,
    pub key: String,
    pub curve: &'static str,
    pub files: Option<Files<'a>>,
    pub content: Option<Content<'a>>,
}

/// What the verification was asked, beside the statements.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Whether only files are proof.
    pub files_required: bool,
    /// Whether content was signed, and a folder given, which has none.
    pub content_of_folder: bool,
}

impl<'a> Verdict<'a> {
    /// The verdict for a `reason` why the model is not verified, or none.
    pub fn new(
        model: &'a Path,
        (key, curve): (String, &'static str),
        (files, content): (Option<Files<'a>>, Option<Content<'a>>),
        reason: Option<String>,
    ) -> Self {
        let ok = reason.is_none();
        Self { command: "verify-signature", model, ok, reason, key, curve, files, content }
    }

    pub fn ok(&self) -> bool {
        self.ok
    }
}

impl Content<'_> {
    /// Whether nothing is said of this model, but of another one that was signed with it.
    pub fn is_of_another(&self) -> bool {
        self.as_signed.is_none() && self.error.is_none()
    }
}

impl Files<'_> {
    /// The problems that `content`, which is as signed, does not excuse: it speaks for the files
    /// that the model has or had, and for no others. A file that was signed under another name and
    /// that the model now uses is not covered by the content digest.
    pub fn not_excused<'s>(
        &'s self,
        content: &'s Content<'_>,
    ) -> impl Iterator<Item = &'s Problem> {
        self.problems.iter().filter(|Problem { path, kind, .. }| match kind {
            Kind::Missing => !content.files.contains(path),
            Kind::Changed => !(self.own.contains(path) && content.files.contains(path)),
            Kind::Unsigned => !self.own.contains(path),
            Kind::Refused => true,
        })
    }
}
