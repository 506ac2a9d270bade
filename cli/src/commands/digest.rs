//! `digest MODEL...`: what models contain, their tensors or their files, as SHA-256; and the digest
//! of one model by many processes, each of which hashes a part.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::digest::PartialDigest;
use onnx_container::{Error, LoadOptions, Part};
use serde::Serialize;

use crate::args::DigestArgs;
use crate::commands::Execute;
use crate::commands::each::Each;
use crate::commands::files::not_an_option;
use crate::commands::semantic::Meaning;
use crate::files::sha256;
use crate::model::needed::needed;
use crate::model::{place, reading};
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
        self.models.iter().map(AsRef::as_ref).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the digests that were asked for.
fn run(args: &DigestArgs, out: &mut Output) -> Result<Outcome, Failure> {
    if args.models.len() > 1 && !args.json && (args.tensors || args.outputs) {
        let reason = "--tensors and --outputs list one model: their lines do not name it. --json \
                      takes several";
        return Err(Failure::Usage(reason.into()));
    }
    if let Some(part) = args.part {
        return print_part(args, part, out);
    }
    let each = Each {
        command: "digest",
        models: &args.models,
        json: args.json,
        look: &|model| Digests::new(args, model),
        print: &|digests, out| digests.print(args, out),
        spaced: false,
    };
    each.run(out)
}

/// Prints what `--join` joins.
fn print_part(args: &DigestArgs, part: Part, out: &mut Output) -> Result<Outcome, Failure> {
    let model = one_model(args)?;
    let container = place::load(model, reading::of(&args.read))?;
    let partial = container.partial_digest(part).and_then(|partial| partial.to_json());
    out.line(partial.map_err(|error| error.with_path(model))?)?;
    Ok(Outcome::Done)
}

/// The only model: parts are those of one.
fn one_model(args: &DigestArgs) -> Result<&Path, Failure> {
    match &args.models[..] {
        [model] => Ok(model),
        _ => Err(Failure::Usage("--part and --join take one model".into())),
    }
}

/// What is said of one model.
#[derive(Serialize)]
#[serde(untagged)]
enum Digests<'a> {
    Content(Content<'a>),
    Files(Files<'a>),
    Meaning(Meaning<'a>),
}

impl<'a> Digests<'a> {
    fn new(args: &DigestArgs, model: &'a Path) -> Result<Self, Failure> {
        if args.semantic {
            return Meaning::of(model, &args.read).map(Self::Meaning);
        }
        if args.files {
            Files::new(args, model).map(Self::Files)
        } else {
            Content::new(args, model).map(Self::Content)
        }
    }

    fn print(&self, args: &DigestArgs, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Content(content) => content.print(out),
            Self::Files(files) => files.print(out),
            Self::Meaning(meaning) => meaning.print(args, out),
        }
    }
}

/// The digest of a model, and with `--tensors` those of its tensors.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor>>,
}

#[derive(Serialize)]
struct Tensor {
    name: String,
    digest: String,
}

impl<'a> Content<'a> {
    fn new(args: &DigestArgs, model: &'a Path) -> Result<Self, Failure> {
        let digest = match args.join.is_empty() {
            true => place::load(model, reading::of(&args.read))?.digest(),
            false => {
                one_model(args)?;
                let graph = LoadOptions::from(reading::of(&args.read)).weights(false);
                let parts = args.join.iter().map(|path| partial(path));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                place::load(model, graph)?.digest_of_parts(parts)
            }
        };
        let digest = digest.map_err(|error| error.with_path(model))?;
        let tensors = digest.tensors().iter();
        let tensors = tensors.map(|t| Tensor { name: t.name().into(), digest: t.to_string() });
        let tensors = args.tensors.then(|| tensors.collect());
        Ok(Self { model, digest: digest.to_string(), tensors })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        match &self.tensors {
            Some(tensors) => {
                for Tensor { name, digest } in tensors {
                    out.line(format_args!("{digest}  {name}"))?;
                }
            }
            None => out.line(format_args!("{}  {}", self.digest, self.model.display()))?,
        }
        Ok(())
    }
}

/// What `--part` has printed into the file at `path`.
fn partial(path: &Path) -> Result<PartialDigest, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::from(error).with_path(path))?;
    PartialDigest::from_json(&text).map_err(|error| error.with_path(path))
}

/// The digests of a model file and its weights files.
#[derive(Serialize)]
struct Files<'a> {
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    files: Vec<Hashed>,
}

#[derive(Serialize)]
struct Hashed {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    sha256: String,
}

impl<'a> Files<'a> {
    fn new(args: &DigestArgs, model: &'a Path) -> Result<Self, Failure> {
        let (_, needed) = needed(model, reading::of(&args.read))?;
        if let Some(error) = needed.problems() {
            return Err(error.into());
        }
        let all: Vec<_> = [None].into_iter().chain(needed.files.iter().map(Some)).collect();
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        for (file, digest) in all.iter().zip(sha256::of_files(model, &needed, &all)) {
            let path = not_an_option(file.map_or(model, |file| file.path.as_path()));
            match digest {
                Ok(sha256) => files.push(Hashed { path, sha256 }),
                Err(error) => errors.push(error),
            }
        }
        match Error::join(errors) {
            Some(error) => Err(error.into()),
            None => Ok(Self { model, files }),
        }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        for Hashed { path, sha256 } in &self.files {
            out.write_all(&sha256::line(sha256, path))?;
        }
        Ok(())
    }
}
