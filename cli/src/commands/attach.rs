//! `attach MODEL WEIGHTS OUT`: a stripped model with its weights again.

use std::io;
use std::path::Path;

use onnx_container::edit::{AttachOptions, AttachedWeights};
use onnx_container::{ByteSize, Container, Error, LoadOptions, Saved, WeightFiles};
use serde::Serialize;

use crate::args::AttachArgs;
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::commands::write::{Read, Verified, verify};
use crate::model::save::Written;
use crate::model::{kept_name, place, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy};

impl Execute for AttachArgs {
    fn name(&self) -> &'static str {
        "attach"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model, &self.weights]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Attaches, writes and prints a report.
fn run(args: &AttachArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.output, None)?;
    let reading = reading::of(&args.write.read);
    let weights = place::load(&args.weights, reading)?;
    save::warn(&weights);
    let read = Read::of(&weights, !args.write.read.no_mmap)?;
    let mut container = place::load(&args.model, LoadOptions::from(reading).weights(false))?;
    let options = AttachOptions::new().edited(args.edited);
    let attached = container.attach_model(&weights, options)?;
    let saved = write(&container, args)
        .map_err(|error| save::refused(error, &args.output, &args.write.target))?;
    let verified = args.write.verify.then(|| {
        let semantic = container.semantic_digest().ok();
        verify(&container, semantic, &saved, &args.output, reading)
    });
    let report = AttachReport::new(args, &container, (read, attached), &saved, verified);
    if args.write.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.is_well()))
}

/// Saves with weights in the files that they are in, or in the layout that was asked for.
fn write(container: &Container, args: &AttachArgs) -> Result<Saved, Error> {
    let AttachArgs { output, layout, write, .. } = args;
    let options = match args.keep_files {
        true => save::options(WeightFiles::AsLoaded, None, &write.target),
        false => {
            let options = save::packed(layout, &write.target).keep_placement(false);
            kept_name::kept(options, layout, output, reading::of(&write.read))
        }
    };
    save::try_save(container, output, options, &write.target)
}

#[derive(Debug, Serialize)]
struct AttachReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    weights: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    attached: AttachedWeights,
    #[serde(flatten)]
    written: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

impl<'a> AttachReport<'a> {
    fn new(
        args: &'a AttachArgs,
        container: &Container,
        (read, attached): (Read, AttachedWeights),
        saved: &Saved,
        verified: Option<Verified>,
    ) -> Self {
        let AttachArgs { model, weights, output, .. } = args;
        let mut written = Written::new(container, output, saved, &args.write.target);
        written.warn(leftovers::warnings([model.as_path(), weights.as_path()]));
        Self { command: "attach", input: model, weights, output, read, attached, written, verified }
    }

    /// Whether nothing was found to be wrong.
    fn is_well(&self) -> bool {
        self.verified.as_ref().is_none_or(|verified| verified.ok)
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.weights, out)?;
        let AttachedWeights { attached, bytes, differing, unused, digests, .. } = &self.attached;
        let (tensors, bytes) = (count(*attached, "tensor"), ByteSize(*bytes));
        let tense = self.written.tense("attaches", "attached");
        let same = "names, types and shapes are the same";
        out.row(tense, format_args!("the elements of {tensors} ({bytes}): {same}"))?;
        if digests.tensors > 0 {
            let tensors = count(digests.tensors, "tensor");
            out.row("compared", format_args!("{tensors} with the stored digests: the same"))?;
        }
        for (label, names, what) in [
            ("kept", differing, "that MODEL has with other elements"),
            ("unused", unused, "that MODEL does not have"),
        ] {
            if !names.is_empty() {
                let tensors = count(names.len(), "tensor");
                out.row(label, format_args!("{tensors} {what}"))?;
                self.written.list(names.iter().map(|name| format!("{:>14}{name}", "")), out)?;
            }
        }
        self.written.print(out)?;
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }
}
