//! `inline IN OUT`: the model without local functions.
//!
//! The weights are no part of it: where they may stay, the model alone is written. Only a model file
//! that inlining brings over 2 GiB has its large tensors moved out.

mod report;
mod selection;

use onnx_container::proto::{Message, ModelProto, NodeProto};
use onnx_container::{
    Container, ErrorKind, ExternalizeOptions, Externalized, InlineOptions, MAX_PROTOBUF, Saved,
    WeightFiles, inline_functions,
};

use crate::args::InlineArgs;
use crate::failure::{Failure, Outcome};
use crate::inline::report::{Changed, Report};
use crate::output::{Output, complain};
use crate::write::{Read, verify};
use crate::{mapping, save};

/// Inlines, writes and says what was done.
pub fn run(args: &InlineArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.output, None)?;
    let map = mapping::choice(&args.map);
    let mut container = Container::load(&args.input, map)?;
    save::warn(&container);
    let read = Read::of(&container, !args.map.no_mmap)?;
    let changed = inline(&mut container, args)?;
    changed.warnings().for_each(|warning| complain(format_args!("warning: {warning}")));
    // Copies of a tensor share its bytes, so that what was read is held against the result here too.
    let inlined = args.verify.verify.then(|| container.clone());
    let moved = move_out(&mut container, args)?;
    let saved = write(&container, args, moved.is_some())?;
    let verified = inlined.map(|inlined| verify(&inlined, &saved, &args.output, map));
    let report = Report::new(args, &container, read, changed, moved, &saved, verified);
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.is_well()))
}

fn inline(container: &mut Container, args: &InlineArgs) -> Result<Changed, Failure> {
    let options = InlineOptions::new().only(args.only.clone()).except(args.except.clone());
    let options = options.max_nodes(args.max_nodes).refuse_conflicts(args.strict);
    let nodes_before = nodes(container.model());
    let inlined = inline_functions(container.model_mut(), options);
    let inlined = inlined.map_err(|error| match error.kind() {
        ErrorKind::InvalidArgument => selection::explain(container.model(), args, error),
        _ => error.into(),
    })?;
    let model = container.model();
    Ok(Changed::new(inlined, nodes_before, nodes(model), &model.functions))
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

/// Moves large tensors out of a model file that readers would refuse.
fn move_out(container: &mut Container, args: &InlineArgs) -> Result<Option<Externalized>, Failure> {
    // What is not near the limit, or over it, is not planned: a save adds places of weights only.
    let is_near = container.model().encoded_len() > MAX_PROTOBUF / 2;
    if args.target.allow_over_2gib || !is_near {
        return Ok(None);
    }
    let plan = container.dry_run(&args.output, WeightFiles::One)?;
    if plan.files.last().is_none_or(|model| model.bytes <= MAX_PROTOBUF) {
        return Ok(None);
    }
    Ok(Some(container.externalize(ExternalizeOptions::new())?))
}

/// Saves the model alone where its weights can stay, else with one file of weights: always so when
/// some were `moved` out of the model file, which is not to hold the weights of another.
fn write(container: &Container, args: &InlineArgs, moved: bool) -> Result<Saved, Failure> {
    let save = |layout| {
        let options = save::options(layout, &args.packed, &args.target);
        save::save(container, &args.output, &options, &args.target)
    };
    if moved || args.packed.data_name.is_some() {
        return save(WeightFiles::One);
    }
    match save(WeightFiles::AsLoaded) {
        Err(Failure::Model(error)) if error.kind() == ErrorKind::Unsupported => {
            save(WeightFiles::One)
        }
        other => other,
    }
}
