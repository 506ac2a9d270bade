//! What `sign` and `verify-signature` print as JSON.

use std::path::Path;

use onnx_container_signing::{ContentVerdict, FilesVerdict, Problem, Signed, Verdict};
use serde::Serialize;

use crate::args::SignArgs;
use crate::terminal::failure::JsonError;
use crate::terminal::output::{lossy, lossy_or_null};

/// How files were hashed.
fn method(shard_size: Option<u64>) -> &'static str {
    if shard_size.is_some() { "shards" } else { "files" }
}

/// What was signed.
#[derive(Debug, Serialize)]
pub struct SignReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    key: &'a str,
    curve: &'static str,
    #[serde(serialize_with = "lossy")]
    signature: &'a Path,
    method: &'static str,
    shard_size: Option<u64>,
    files: &'a [String],
    #[serde(serialize_with = "lossy_or_null")]
    content_signature: Option<&'a Path>,
    digest: Option<String>,
    unsigned_files: usize,
    nameless_files: usize,
    warnings: Vec<String>,
}

impl<'a> SignReport<'a> {
    pub fn new(args: &'a SignArgs, signed: &'a Signed) -> Self {
        Self {
            command: "sign",
            model: &args.model,
            key: &signed.key,
            curve: signed.curve,
            signature: &signed.signature,
            method: method(signed.shard_size),
            shard_size: signed.shard_size,
            files: &signed.files,
            content_signature: signed.content.as_ref().map(|content| &*content.signature),
            digest: signed.content.as_ref().map(|content| content.digest.to_string()),
            unsigned_files: signed.unsigned_files,
            nameless_files: signed.nameless_files,
            warnings: signed.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A verdict.
#[derive(Debug, Serialize)]
pub struct Judged<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    ok: bool,
    reason: Option<&'a str>,
    key: &'a str,
    curve: &'static str,
    files: Option<Files<'a>>,
    content: Option<Content<'a>>,
}

#[derive(Debug, Serialize)]
struct Files<'a> {
    #[serde(serialize_with = "lossy")]
    signature: &'a Path,
    as_signed: bool,
    method: &'static str,
    shard_size: Option<u64>,
    signed_files: usize,
    problems: Vec<Difference<'a>>,
    left_out: &'a [String],
}

#[derive(Debug, Serialize)]
struct Difference<'a> {
    path: &'a str,
    problem: &'static str,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct Content<'a> {
    #[serde(serialize_with = "lossy")]
    signature: &'a Path,
    model: &'a str,
    as_signed: Option<bool>,
    signed_digest: &'a str,
    digest: Option<&'a str>,
    reason: Option<&'a str>,
    error: Option<JsonError>,
    ambiguous: Option<&'a str>,
}

impl<'a> From<&'a Verdict> for Judged<'a> {
    fn from(verdict: &'a Verdict) -> Self {
        Self {
            command: "verify-signature",
            model: &verdict.model,
            ok: verdict.is_verified(),
            reason: verdict.reason.as_deref(),
            key: &verdict.key,
            curve: verdict.curve,
            files: verdict.files.as_ref().map(Files::from),
            content: verdict.content.as_ref().map(Content::from),
        }
    }
}

impl<'a> From<&'a FilesVerdict> for Files<'a> {
    fn from(files: &'a FilesVerdict) -> Self {
        Self {
            signature: &files.signature,
            as_signed: files.as_signed,
            method: method(files.shard_size),
            shard_size: files.shard_size,
            signed_files: files.signed_files,
            problems: files.problems.iter().map(Difference::from).collect(),
            left_out: &files.left_out,
        }
    }
}

impl<'a> From<&'a Problem> for Difference<'a> {
    fn from(problem: &'a Problem) -> Self {
        Self { path: &problem.path, problem: problem.kind.name(), reason: &problem.reason }
    }
}

impl<'a> From<&'a ContentVerdict> for Content<'a> {
    fn from(content: &'a ContentVerdict) -> Self {
        Self {
            signature: &content.signature,
            model: &content.signed_model,
            as_signed: content.as_signed,
            signed_digest: &content.signed_digest,
            digest: content.digest.as_deref(),
            reason: content.reason.as_deref(),
            error: content.error.as_ref().map(JsonError::from),
            ambiguous: content.ambiguous.as_deref(),
        }
    }
}
