//! `strip IN OUT`: the model without the elements of its weights.
//!
//! The model file is read, and no weights file: only where one has tensors that shape inference
//! reads, these are taken from it.

use std::io;
use std::path::Path;

use onnx_container::edit::{ExternalizeOptions, Stripped};
use onnx_container::{ByteSize, Container, Error, ErrorKind, LoadOptions, WeightFiles};
use serde::Serialize;

use crate::args::StripArgs;
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::model::save::Written;
use crate::model::{place, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy};

impl Execute for StripArgs {
    fn name(&self) -> &'static str {
        "strip"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Strips, writes and prints a report.
fn run(args: &StripArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let (input, output, target) = (&args.paths.input, &args.paths.output, args.target());
    let real = |path: &Path| path.canonicalize().ok();
    if real(input).is_some_and(|input| Some(input) == real(output)) {
        let reason = "OUT is IN: nothing would say any more where its weights are in their files. \
                      Write to another name";
        return Err(Failure::Refused(reason.to_owned()));
    }
    save::refuse_weights(output, None)?;
    let (container, stripped, not_loaded) = strip(args)?;
    let options = save::options(WeightFiles::AsLoaded, None, &target);
    let saved = save::save(&container, output, options, &target)?;
    let mut written = Written::new(&container, output, &saved, &target);
    written.warn(leftovers::warnings([input.as_path()]));
    save::print_warnings(not_loaded.as_slice());
    written.warn(not_loaded.iter().map(ToString::to_string));
    let report = StripReport { command: "strip", input, output, stripped, written };
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

/// The model without weights. Where tensors that shape inference reads are in weights files that
/// can be loaded, it has their elements; else the error says why not.
fn strip(args: &StripArgs) -> Result<(Container, Stripped, Option<Error>), Failure> {
    let options = ExternalizeOptions::new().min_bytes(args.min_bytes);
    let reading = LoadOptions::from(reading::of(&args.read));
    let mut container = place::load(&args.paths.input, reading.clone().weights(false))?;
    let bare = container.clone();
    let stripped = container.strip(options)?;
    if stripped.operands.is_empty() {
        return Ok((container, stripped, None));
    }
    match place::load(&args.paths.input, reading) {
        Ok(loaded) => {
            let mut container = bare;
            let stripped = container.strip_with(options, &loaded)?;
            Ok((container, stripped, None))
        }
        Err(error) if error.has(ErrorKind::Cancelled) => Err(error.into()),
        Err(error) => Ok((container, stripped, Some(error))),
    }
}

#[derive(Debug, Serialize)]
struct StripReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    stripped: Stripped,
    #[serde(flatten)]
    written: Written,
}

impl StripReport<'_> {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Stripped { stripped, bytes, small, small_bytes, kept, operands, .. } = &self.stripped;
        let (tensors, bytes) = (count(*stripped, "tensor"), ByteSize(*bytes));
        let tense = self.written.tense("strips", "stripped");
        out.row(tense, format_args!("{tensors} of their elements ({bytes})"))?;
        if *small > 0 {
            let (tensors, bytes) = (count(*small, "tensor"), ByteSize(*small_bytes));
            let (their, them) = if *small == 1 { ("its", "it") } else { ("their", "them") };
            let kept = format!("{tensors} with {their} elements ({bytes})");
            out.row("kept", format_args!("{kept}: --min-bytes 0 strips {them} too"))?;
        }
        if !operands.is_empty() {
            let tensors = count(operands.len(), "tensor");
            let reason = "that shape inference reads: the weights files cannot be loaded";
            out.row("also", format_args!("{tensors} {reason}"))?;
            self.written.list(operands.iter().map(|name| format!("{:>14}{name}", "")), out)?;
        }
        if !kept.is_empty() {
            out.row("kept", format_args!("{} inline", count(kept.len(), "large tensor")))?;
            let kept = kept.iter();
            let lines =
                kept.map(|kept| format!("{:>12}  {}: {}", kept.bytes, kept.tensor, kept.reason));
            self.written.list(lines, out)?;
        }
        self.written.print(out)
    }
}
