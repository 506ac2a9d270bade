//! `inline-functions IN OUT`: the model without local functions.
//!
//! Weights are not changed: where they can stay in their files, only the model is written. Only
//! when the inlined model file would be over 2 GiB are its large tensors moved out.

mod report;

use std::path::Path;

use std::mem;

use onnx_container::edit::{ExternalizeOptions, Externalized};
use onnx_container::inline::{InlineOptions, Inlined};
use onnx_container::proto::{ModelProto, NodeProto};
use onnx_container::{Container, Error, ErrorKind, SaveOptions, Saved, WeightFiles};

use crate::args::InlineArgs;
use crate::commands::Execute;
use crate::commands::inline::report::{Changed, InlineReport};
use crate::commands::write::{Read, verify};
use crate::model::vouched::Vouched;
use crate::model::{kept_name, reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, print_on_stderr};

impl Execute for InlineArgs {
    fn name(&self) -> &'static str {
        "inline-functions"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Inlines, writes and prints a report.
fn run(args: &InlineArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.paths.output, None)?;
    let reading = reading::of(&args.write.read);
    let vouched = Vouched::from(&args.write.target);
    let mut container = vouched::load(&args.paths.input, reading, vouched)?;
    save::warn(&container);
    let read = Read::of(&container, !args.write.read.no_mmap)?;
    let original = args.write.verify.then(|| container.clone());
    let nodes_before = nodes(container.model());

    let refused = |error| save::refused(error, &args.paths.output, &args.write.target);
    let written = write(&mut container, args).map_err(refused)?;
    let Written { saved, inlined, moved } = written;
    let changed =
        Changed::new(inlined, nodes_before, nodes(saved.structure()), &saved.structure().functions);
    changed.warnings().for_each(|warning| print_on_stderr(format_args!("warning: {warning}")));
    let verified = original.map(|mut original| {
        let semantic = original.semantic_digest().ok();
        // Copies of a tensor share its bytes: the result is compared with those that were read.
        original.inline_functions(options(args))?;
        Ok::<_, Error>(verify(&original, semantic, &saved, &args.paths.output, reading))
    });
    let report =
        InlineReport::new(args, &container, read, changed, moved, &saved, verified.transpose()?);
    if args.write.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    let outcome = Outcome::of(report.is_well());
    // The process ends now, so freeing millions of nodes one by one would be wasted work.
    mem::forget((container, saved));
    Ok(outcome)
}

fn options(args: &InlineArgs) -> InlineOptions {
    let options = InlineOptions::new().only(args.only.clone()).except(args.except.clone());
    options.max_nodes(args.max_nodes).refuse_conflicts(args.strict)
}

/// The nodes of all graphs, at any depth; those of functions are not counted.
fn nodes(model: &ModelProto) -> usize {
    let training = model.training_info.iter();
    let training = training.flat_map(|info| info.initialization.iter().chain(&info.algorithm));
    model.graph.iter().chain(training).map(|graph| count(&graph.node)).sum()
}

fn count(nodes: &[NodeProto]) -> usize {
    let attributes = nodes.iter().flat_map(|node| &node.attribute);
    let graphs = attributes.flat_map(|a| a.g.iter().map(AsRef::as_ref).chain(&a.graphs));
    nodes.len() + graphs.map(|graph| count(&graph.node)).sum::<usize>()
}

/// What was done.
struct Written {
    saved: Saved,
    inlined: Inlined,
    /// Out of a model file that readers would refuse.
    moved: Option<Externalized>,
}

/// Saves the model alone where its weights can stay, else with one file of weights.
fn write(container: &mut Container, args: &InlineArgs) -> Result<Written, Error> {
    let how = |layout| save_as(layout, container, args);
    let saved =
        if args.packed.is_given() { how(WeightFiles::Packed) } else { save::keeping_files(how) };
    match saved {
        Ok(mut saved) => {
            let mut inlined = mem::take(&mut saved.inlined).unwrap_or_default();
            // They are among those of the save.
            inlined.warnings.clear();
            Ok(Written { saved, inlined, moved: None })
        }
        Err(error) if error.kind() == ErrorKind::ModelTooLarge => write_small(container, args),
        Err(error) => Err(error),
    }
}

/// Saves with the large tensors out of the model file, in a file that has all weights.
fn write_small(container: &mut Container, args: &InlineArgs) -> Result<Written, Error> {
    let inlined = container.inline_functions(options(args))?;
    let moved = container.externalize(ExternalizeOptions::new())?;
    let how = save::options(WeightFiles::Packed, Some(&args.packed), &args.write.target);
    let how = named(how, args);
    let saved = save::try_save(container, &args.paths.output, how, &args.write.target)?;
    Ok(Written { saved, inlined, moved: Some(moved) })
}

fn save_as(layout: WeightFiles, container: &Container, args: &InlineArgs) -> Result<Saved, Error> {
    let how =
        save::options(layout, Some(&args.packed), &args.write.target).inline_with(options(args));
    let how = if layout == WeightFiles::Packed { named(how, args) } else { how };
    save::try_save(container, &args.paths.output, how, &args.write.target)
}

/// `how`, with the name that the weights file of the replaced model has.
fn named(how: SaveOptions, args: &InlineArgs) -> SaveOptions {
    kept_name::kept_packed(how, &args.packed, &args.paths.output, reading::of(&args.write.read))
}
