//! `import-safetensors MODEL WEIGHTS OUT`: a model filled with other weights, by name.
//!
//! The model's structure is read first, then filled; what is left without weights is looked for in
//! the model's own files. So a model without weights will do, and one with weights gets some of
//! them replaced. Nothing is written when a tensor has no weights anywhere.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use onnx_container::edit::{FillOptions, Filled, PrefixRule, Sharing, Tied};
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::{ByteSize, Container, Error, LoadOptions, traversal};
use serde::Serialize;

use super::WriteJob;
use crate::args::ImportArgs;
use crate::model::vouched::{self, Vouched};
use crate::model::{place, reading, save};
use crate::terminal::failure::{Failed, Failure, Outcome};
use crate::terminal::output::{Output, count, lossy};

/// `import-safetensors MODEL WEIGHTS OUT`, by the names of the weights.
pub fn import(args: &ImportArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.output, Some(&args.weights))?;
    let reading = reading::of(&args.write.read);
    let options = LoadOptions::from(reading).weights(false);
    let mut container = place::load(&args.model, options)?;
    let filled = container.attach_safetensors_with(&args.weights, reading, fill_options(args))?;
    if filled.filled == 0 {
        let failure = Failure::Refused(nothing_fits(&container, &filled));
        return Imported::new(&args.weights, filled).refuse(&failure, args, out);
    }
    let own = own_weights(&mut container, args, &filled);
    let mut imported = Imported::new(&args.weights, filled);
    if let Err(error) = own {
        let here = names_with_files(&container, args)?;
        imported.missing.retain(|name| !here.contains(name));
        return imported.refuse(&error.into(), args, out);
    }
    imported.own = std::mem::take(&mut imported.missing);
    if Vouched::from(&args.write.target) == Vouched::Compared && container.had_digests() {
        let used = imported.own.iter().chain(&imported.kept).map(String::as_str).collect();
        vouched::compare(&args.model, reading, &used)?;
    }
    let ImportArgs { model, output, write, moving, layout, .. } = args;
    let mut job = WriteJob::packed("import-safetensors", model, output, write, moving, layout);
    // The shards are protected by the container, which they were attached to.
    job.options = job.options.protect([&args.weights]);
    job.write(container, Some(imported), out)
}

/// The error when no weights have the name of a tensor, with an option that would help.
fn nothing_fits(container: &Container, filled: &Filled) -> String {
    let hint = container.prefix_rule(&filled.unused).map_or_else(
        || "--strip-prefix, --replace-prefix and --rename change the names of weights".to_owned(),
        |PrefixRule { from, to, weights, tensor, .. }| match to.is_empty() {
            true => format!("--strip-prefix {from} makes `{tensor}` of `{weights}`"),
            false => format!("--replace-prefix {from}={to} makes `{tensor}` of `{weights}`"),
        },
    );
    format!("no tensor of the model has the name of any of the weights: {hint}")
}

fn fill_options(args: &ImportArgs) -> FillOptions {
    let plain = FillOptions::new().partial(true).strict(args.strict).allow_no_match(true);
    let plain = plain.tied(args.tied.map(Tied::from));
    let renaming = args.rename.iter().fold(plain, |options, (a, b)| options.rename(a, b));
    let ignoring = args.ignore.iter().fold(renaming, FillOptions::ignore);
    let stripping = args.strip_prefix.iter().fold(ignoring, FillOptions::strip_prefix);
    args.replace_prefix.iter().fold(stripping, |options, (a, b)| options.replace_prefix(a, b))
}

/// Takes what the import left open from the files that the model itself names.
fn own_weights(container: &mut Container, args: &ImportArgs, filled: &Filled) -> Result<(), Error> {
    if filled.missing.is_empty() {
        return Ok(());
    }
    let options = place::attaching(&args.model, reading::of(&args.write.read).into())?;
    container.attach(directory(args), options)
}

/// The directory of the model, where its own files are.
fn directory(args: &ImportArgs) -> &Path {
    let parent = args.model.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The tensors whose files are beside the model.
fn names_with_files(container: &Container, args: &ImportArgs) -> Result<HashSet<String>, Error> {
    let (_, own) = place::graph(&args.model, reading::of(&args.write.read))?;
    let (mut names, mut files) = (HashSet::new(), HashMap::new());
    traversal::tensors(container.model(), |place, tensor| {
        let data = is_external(tensor).then(|| ExternalData::parse(tensor).ok()).flatten();
        let is_here = data.is_some_and(|data| {
            let opened = |location: &String| own.look(location).is_ok();
            *files.entry(data.location).or_insert_with_key(opened)
        });
        if is_here {
            names.insert(place.qualified_name(tensor));
        }
        Ok(())
    })?;
    Ok(names)
}

/// What came from other weights than the model's.
#[derive(Debug, Serialize)]
pub struct Imported {
    #[serde(serialize_with = "lossy")]
    weights: PathBuf,
    filled: usize,
    filled_bytes: u64,
    /// Tensors without weights, in WEIGHTS or in a file of the model's own that is there.
    missing: Vec<String>,
    /// External tensors that are not in WEIGHTS and have what the model's own files say.
    own: Vec<String>,
    /// Inline tensors that are not in WEIGHTS, or floats that a mapping has no weights for, and
    /// that keep their elements.
    kept: Vec<String>,
    /// Whether the places of the weights are those of a mapping.
    #[serde(skip)]
    mapped: bool,
    /// Weights that no tensor of the model uses.
    left_over: Vec<String>,
    /// Rules that apply to no weights.
    idle_rules: Vec<String>,
    /// Tensors that are not in WEIGHTS and changed with one that is.
    tied: Vec<Shared>,
    /// Tensors that no longer have the bytes of one that is in WEIGHTS.
    untied: Vec<Shared>,
}

/// A tensor, and another one whose bytes it had.
#[derive(Debug, Serialize)]
struct Shared {
    tensor: String,
    with: String,
}

impl Shared {
    fn all(sharing: Vec<Sharing>) -> Vec<Self> {
        let shared = |Sharing { tensor, with, .. }| Self { tensor, with };
        sharing.into_iter().map(shared).collect()
    }

    fn lines(all: &[Self]) -> impl ExactSizeIterator<Item = String> {
        all.iter().map(|Self { tensor, with }| format!("{:>14}{tensor}, with {with}", ""))
    }
}

impl Imported {
    fn new(weights: &Path, filled: Filled) -> Self {
        Self {
            weights: weights.to_path_buf(),
            filled: filled.filled,
            filled_bytes: filled.bytes,
            missing: filled.missing,
            own: Vec::new(),
            kept: filled.kept,
            mapped: false,
            left_over: filled.unused,
            idle_rules: filled.idle_rules,
            tied: Shared::all(filled.tied),
            untied: Shared::all(filled.untied),
        }
    }

    /// Of a fill by a mapping.
    pub fn mapped(weights: &Path, filled: Filled) -> Self {
        Self { mapped: true, ..Self::new(weights, filled) }
    }

    /// Prints what is missing; nothing was written.
    fn refuse(
        &self,
        failure: &Failure,
        args: &ImportArgs,
        out: &mut Output,
    ) -> Result<Outcome, Failure> {
        failure.print(None);
        if args.write.json {
            let failed = Failed::new("import-safetensors", failure);
            out.json(&Refused { failed, imported: self })?;
        } else {
            self.print(out)?;
        }
        Ok(Outcome::Findings)
    }

    /// Prints the lines of a report.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let (tensors, bytes) = (count(self.filled, "tensor"), ByteSize(self.filled_bytes));
        out.row("filled", format_args!("{tensors} ({bytes}) from {}", self.weights.display()))?;
        if !self.tied.is_empty() {
            let tensors = count(self.tied.len(), "tensor");
            out.row(
                "tied",
                format_args!("{tensors} not in WEIGHTS, changed with one on the same bytes"),
            )?;
            save::short(Shared::lines(&self.tied), out)?;
        }
        if !self.untied.is_empty() {
            let tensors = count(self.untied.len(), "tensor");
            out.row("untied", format_args!("{tensors} that shared the bytes of one in WEIGHTS"))?;
            save::short(Shared::lines(&self.untied), out)?;
        }
        if !self.own.is_empty() {
            let tensors = count(self.own.len(), "tensor");
            out.row(
                "own",
                format_args!("{tensors} not in WEIGHTS, taken from the model's own files"),
            )?;
            save::short(self.own.iter().map(|name| format!("{:>14}{name}", "")), out)?;
        }
        if !self.kept.is_empty() {
            let tensors = count(self.kept.len(), "tensor");
            let why = match self.mapped {
                true => "of floats that the mapping has no weights for",
                false => "inline in the model, not in WEIGHTS",
            };
            out.row("unchanged", format_args!("{tensors} {why}"))?;
            save::short(self.kept.iter().map(|name| format!("{:>14}{name}", "")), out)?;
        }
        if !self.left_over.is_empty() {
            let weights = count(self.left_over.len(), "weight");
            out.row("left over", format_args!("{weights} that no tensor of the model uses"))?;
            save::short(self.left_over.iter().map(|name| format!("{:>14}{name}", "")), out)?;
        }
        if !self.idle_rules.is_empty() {
            let rules: Vec<_> = self.idle_rules.iter().map(|rule| as_option(rule)).collect();
            let rules = rules.join(", ");
            out.row(
                "no effect",
                format_args!("{rules}: no such names in WEIGHTS, or other rules come first"),
            )?;
        }
        if !self.missing.is_empty() {
            let tensors = count(self.missing.len(), "tensor");
            out.row("missing", format_args!("{tensors} without weights; nothing was written"))?;
            for name in &self.missing {
                out.line(format_args!("{:>14}{name}", ""))?;
            }
        }
        Ok(())
    }
}

/// A rule of a fill as the option that gave it: `ignore "w"` as `--ignore "w"`.
fn as_option(rule: &str) -> String {
    let (name, rest) = rule.split_once(' ').unwrap_or((rule, ""));
    format!("--{} {rest}", name.replace('_', "-"))
}

/// The report of an import that did not write.
#[derive(Serialize)]
struct Refused<'a> {
    #[serde(flatten)]
    failed: Failed,
    imported: &'a Imported,
}
