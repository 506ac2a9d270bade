//! `edit IN OUT`: the model with other names and metadata.
//!
//! Weights are not changed: where they can stay in their files, only the model is written.

use std::io;
use std::path::Path;

use onnx_container::{Container, Error, ErrorKind, Result as Edited, Saved, WeightFiles};
use serde::Serialize;

use crate::args::EditArgs;
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::commands::write::{Read, Verified, verify};
use crate::model::kept_name::kept_packed;
use crate::model::reading::Reading;
use crate::model::save::Written;
use crate::model::vouched::Vouched;
use crate::model::{reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::names::unescaped;
use crate::terminal::output::{Output, count, lossy};

impl Execute for EditArgs {
    fn name(&self) -> &'static str {
        "edit"
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

/// Edits, writes and prints a report.
fn run(args: &EditArgs, out: &mut Output) -> Result<Outcome, Failure> {
    if !args.is_given() {
        let reason = "nothing to change: give an option such as --set-metadata or --rename-tensor";
        return Err(Failure::Usage(reason.to_owned()));
    }
    refuse_names(args)?;
    save::refuse_weights(&args.paths.output, None)?;
    let reading = reading::of(&args.write.read);
    let vouched = Vouched::from(&args.write.target);
    let mut container = vouched::load(&args.paths.input, reading, vouched)?;
    save::warn(&container);
    let read = Read::of(&container, !args.write.read.no_mmap)?;
    let changed = edit(&mut container, args)?;
    let saved = write(&container, args, reading)
        .map_err(|error| save::refused(error, &args.paths.output, &args.write.target))?;
    let verified = args.write.verify.then(|| {
        let semantic = container.semantic_digest().ok();
        verify(&container, semantic, &saved, &args.paths.output, reading)
    });
    let report = EditReport::new(args, &container, read, changed, &saved, verified);
    if args.write.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.is_well()))
}

/// Refuses names that no value or graph should have.
fn refuse_names(args: &EditArgs) -> Result<(), Failure> {
    if args.graph_name.as_ref().is_some_and(String::is_empty) {
        let reason = "--graph-name: a graph needs a name, which readers check";
        return Err(Failure::Usage(reason.to_owned()));
    }
    for (from, to) in &args.rename_tensor {
        let scope = from.rsplit_once('/').map(|(scope, _)| scope);
        if let Some(rest) = scope.and_then(|scope| to.strip_prefix(scope)?.strip_prefix('/')) {
            return Err(Failure::Usage(format!(
                "--rename-tensor {from}={to}: the new name has no scope before it: \
                 --rename-tensor {from}={rest}"
            )));
        }
    }
    Ok(())
}

/// Saves the model alone where its weights can stay, else with one file of weights.
fn write(container: &Container, args: &EditArgs, reading: Reading) -> Result<Saved, Error> {
    let save_as = |layout| {
        let mut options = save::options(layout, Some(&args.packed), &args.write.target);
        if layout == WeightFiles::Packed {
            options = kept_packed(options, &args.packed, &args.paths.output, reading);
        }
        save::try_save(container, &args.paths.output, options, &args.write.target)
    };
    match args.packed.is_given() {
        true => save_as(WeightFiles::Packed),
        false => save::keeping_files(save_as),
    }
}

/// What was changed in the model.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    removed_metadata: &'a [String],
    set_metadata: Vec<&'a str>,
    producer: Option<&'a str>,
    doc_string: Option<&'a str>,
    graph_name: Option<&'a str>,
    renamed: Vec<Renamed<'a>>,
}

/// A value that has another name now.
#[derive(Debug, Serialize)]
struct Renamed<'a> {
    from: &'a str,
    to: &'a str,
    /// How many places were changed.
    places: usize,
}

fn edit<'a>(container: &mut Container, args: &'a EditArgs) -> Edited<Changed<'a>> {
    for key in &args.remove_metadata {
        container.remove_metadata(key)?;
    }
    for (key, value) in &args.set_metadata {
        container.set_metadata(key, value)?;
    }
    describe(container, args);
    let mut renamed = Vec::new();
    let kinds: [(&'a [(String, String)], Rename); 3] = [
        (&args.rename_input, Container::rename_input),
        (&args.rename_output, Container::rename_output),
        (&args.rename_tensor, Container::rename),
    ];
    for (pairs, rename) in kinds {
        for (from, to) in pairs {
            let places = rename_shown(container, rename, from, to)?;
            renamed.push(Renamed { from, to, places });
        }
    }
    Ok(Changed {
        removed_metadata: &args.remove_metadata,
        set_metadata: args.set_metadata.iter().map(|(key, _)| key.as_str()).collect(),
        producer: args.producer.as_deref(),
        doc_string: args.doc_string.as_deref(),
        graph_name: args.graph_name.as_deref(),
        renamed,
    })
}

/// Sets what the model says of itself.
fn describe(container: &mut Container, args: &EditArgs) {
    let model = container.model_mut();
    if let Some(producer) = &args.producer {
        let is_same = model.producer_name.as_ref().is_some_and(|name| *name == **producer);
        model.producer_name = (!producer.is_empty()).then(|| producer.into());
        model.producer_version.take_if(|_| !is_same);
    }
    if let Some(text) = &args.doc_string {
        model.doc_string = (!text.is_empty()).then(|| Box::new(text.into()));
    }
    if let (Some(name), Some(graph)) = (&args.graph_name, &mut model.graph) {
        graph.name = Some(name.into());
    }
}

type Rename = fn(&mut Container, &str, &str) -> Edited<usize>;

/// Renames the value that `from` means, as it is or with its escapes read.
fn rename_shown(container: &mut Container, rename: Rename, from: &str, to: &str) -> Edited<usize> {
    match rename(container, from, to) {
        Err(error) if error.kind() == ErrorKind::MissingTensor => match unescaped(from) {
            Some(meant) => rename(container, &meant, to),
            None => Err(error),
        },
        done => done,
    }
}

impl Changed<'_> {
    fn print(&self, written: &Written, out: &mut Output) -> io::Result<()> {
        for key in self.removed_metadata {
            out.row(written.tense("removes", "removed"), format_args!("metadata {key}"))?;
        }
        let sets = written.tense("sets", "set");
        for key in &self.set_metadata {
            out.row(sets, format_args!("metadata {key}"))?;
        }
        let told = [
            (self.producer, "the producer"),
            (self.doc_string, "the description"),
            (self.graph_name, "the name of the graph"),
        ];
        for (value, what) in told {
            match value {
                Some("") => out.row(written.tense("removes", "removed"), what)?,
                Some(_) => out.row(sets, what)?,
                None => {}
            }
        }
        let tense = written.tense("renames", "renamed");
        for Renamed { from, to, places } in &self.renamed {
            out.row(tense, format_args!("{from} to {to}, in {}", count(*places, "place")))?;
        }
        Ok(())
    }
}

/// The report of an edit.
#[derive(Debug, Serialize)]
struct EditReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    #[serde(flatten)]
    changed: Changed<'a>,
    #[serde(flatten)]
    written: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

impl<'a> EditReport<'a> {
    fn new(
        args: &'a EditArgs,
        container: &Container,
        read: Read,
        changed: Changed<'a>,
        saved: &Saved,
        verified: Option<Verified>,
    ) -> Self {
        let (input, output) = (args.paths.input.as_path(), args.paths.output.as_path());
        let mut written = Written::new(container, output, saved, &args.write.target);
        written.warn(leftovers::warnings([input]));
        Self { command: "edit", input, output, read, changed, written, verified }
    }

    /// Whether nothing was found to be wrong.
    fn is_well(&self) -> bool {
        self.verified.as_ref().is_none_or(|verified| verified.ok)
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.input, out)?;
        self.changed.print(&self.written, out)?;
        self.written.print(out)?;
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }
}
