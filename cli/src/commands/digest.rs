//! `digest MODEL`: what a model contains, its tensors or its files, as SHA-256.

use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::digest::ContentDigest;
use onnx_container::{Container, Error, LoadOptions};
use serde::Serialize;

use crate::args::DigestArgs;
use crate::commands::Execute;
use crate::commands::files::not_an_option;
use crate::commands::{leftovers, semantic};
use crate::files::sha256;
use crate::model::needed::needed;
use crate::model::reading;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy};

impl Execute for DigestArgs {
    fn name(&self) -> &'static str {
        "digest"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the digests that were asked for.
fn run(args: &DigestArgs, out: &mut Output) -> Result<Outcome, Failure> {
    if args.semantic {
        return semantic::digest(args, out);
    }
    if args.files { files(args, out) } else { content(args, out) }
}

/// The digest of the model, or those of its tensors.
fn content(args: &DigestArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let container = Container::load(&args.model, reading::of(&args.read))?;
    let digest = container.digest().map_err(|error| error.with_path(&args.model))?;
    if args.json {
        out.json(&Content::new(args, &digest))?;
    } else if args.tensors {
        for tensor in digest.tensors() {
            out.line(format_args!("{tensor}  {}", tensor.name()))?;
        }
    } else {
        out.line(format_args!("{digest}  {}", args.model.display()))?;
    }
    Ok(Outcome::Done)
}

/// What `--json` prints of the content.
#[derive(Serialize)]
struct Content<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor<'a>>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    digest: String,
}

impl<'a> Content<'a> {
    fn new(args: &'a DigestArgs, digest: &'a ContentDigest) -> Self {
        let tensors = digest.tensors().iter();
        let tensors = tensors.map(|t| Tensor { name: t.name(), digest: t.to_string() });
        let tensors = args.tensors.then(|| tensors.collect());
        let warnings = leftovers::warnings([args.model.as_path()]);
        Self {
            command: "digest",
            model: &args.model,
            digest: digest.to_string(),
            tensors,
            warnings,
        }
    }
}

/// The digests of the model file and its weights files.
fn files(args: &DigestArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let options = LoadOptions::from(reading::of(&args.read)).weights(false);
    let container = Container::load(&args.model, options)?;
    let needed = needed(container.model(), &args.model, reading::of(&args.read).paths)?;
    if let Some(error) = needed.problems() {
        return Err(error.into());
    }
    let all: Vec<_> = [None].into_iter().chain(needed.files.iter().map(Some)).collect();
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for (file, digest) in all.iter().zip(sha256::of_files(&args.model, &needed, &all)) {
        let path = not_an_option(file.map_or(&args.model, |file| &file.path));
        match digest {
            Ok(sha256) => files.push(Hashed { path, sha256 }),
            Err(error) => errors.push(error),
        }
    }
    if let Some(error) = Error::join(errors) {
        return Err(error.into());
    }
    if args.json {
        let warnings = leftovers::warnings([args.model.as_path()]);
        out.json(&Files { command: "digest", model: &args.model, files, warnings })?;
    } else {
        for Hashed { path, sha256 } in &files {
            out.write_all(&sha256::line(sha256, path))?;
        }
    }
    Ok(Outcome::Done)
}

/// What `--files --json` prints.
#[derive(Serialize)]
struct Files<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    files: Vec<Hashed>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Hashed {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    sha256: String,
}
