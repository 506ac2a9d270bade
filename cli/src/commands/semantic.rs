//! `digest --semantic MODEL` and `diff --semantic A B`: what models compute, as digests.

use std::path::Path;

use onnx_container::digest::SemanticDifference;
use serde::Serialize;

use crate::args::{DiffArgs, DigestArgs, ReadArgs};
use crate::commands::leftovers;
use crate::model::{place, reading};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy};

/// What `digest --semantic` says of a model.
#[derive(Serialize)]
pub struct Meaning<'a> {
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    semantic: String,
    outputs: Vec<Digest>,
}

#[derive(Serialize)]
struct Digest {
    name: String,
    semantic: String,
}

impl<'a> Meaning<'a> {
    pub fn of(model: &'a Path, read: &ReadArgs) -> Result<Self, Failure> {
        let container = place::load(model, reading::of(read))?;
        let digest = container.semantic_digest().map_err(|error| error.with_path(model))?;
        let outputs = digest.outputs().iter();
        let outputs = outputs.map(|o| Digest { name: o.name().into(), semantic: o.to_string() });
        Ok(Self { model, semantic: digest.to_string(), outputs: outputs.collect() })
    }

    /// Prints the digest of the model, or those of its outputs.
    pub fn print(&self, args: &DigestArgs, out: &mut Output) -> Result<(), Failure> {
        if args.outputs {
            for output in &self.outputs {
                out.line(format_args!("{}  {}", output.semantic, output.name))?;
            }
        } else if args.models.len() == 1 {
            out.line(&self.semantic)?;
        } else {
            out.line(format_args!("{}  {}", self.semantic, self.model.display()))?;
        }
        Ok(())
    }
}

/// Tells whether the models compute the same, and where they first differ.
pub fn diff(args: &DiffArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let choice = reading::of(&args.read);
    let (a, b) = (place::load(&args.a, choice)?, place::load(&args.b, choice)?);
    let difference = a.semantic_difference(&b)?;
    if args.json {
        out.json(&Comparison::new(args, difference.as_ref()))?;
    } else {
        match &difference {
            None => out.line("the models compute the same")?,
            Some(difference) => out.prose("", format_args!("the models part at {difference}"))?,
        }
    }
    Ok(Outcome::of(difference.is_none()))
}

/// What `diff --json` prints.
#[derive(Serialize)]
struct Comparison<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    a: &'a Path,
    #[serde(serialize_with = "lossy")]
    b: &'a Path,
    same: bool,
    difference: Option<Difference<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Difference<'a> {
    /// The index of the first output that differs.
    output: Option<usize>,
    /// Its name in each model.
    output_names: [Option<&'a str>; 2],
    /// What differs in each model.
    places: [&'a str; 2],
    reason: &'a str,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a DiffArgs, difference: Option<&'a SemanticDifference>) -> Self {
        let told = difference.map(|difference| Difference {
            output: difference.output(),
            output_names: difference.output_names(),
            places: difference.places(),
            reason: difference.reason(),
        });
        let (a, b) = (args.a.as_path(), args.b.as_path());
        let warnings = leftovers::warnings([a].into_iter().chain((a != b).then_some(b)));
        Self { command: "diff", a, b, same: told.is_none(), difference: told, warnings }
    }
}
