//! `inspect MODEL...`: what is in models, or in safetensors files. Weights are not read, however
//! many files there are.

mod files;
mod patterns;
mod text;
mod tree;

use std::cmp::Reverse;
use std::path::Path;

use onnx_container::summary::{Stored, Summary, TensorSummary};
use onnx_container::{Error, LoadOptions, safetensors};
use serde::{Serialize, Serializer};

use crate::args::{InspectArgs, SortKey, is_url};
use crate::commands::Execute;
use crate::commands::each::Each;
use crate::commands::files::Listed;
use crate::commands::inspect::files::FileTotals;
use crate::commands::inspect::patterns::Patterns;
use crate::commands::inspect::tree::ModuleRow;
use crate::model::needed::{NeededFile, named};
use crate::model::reading;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy};
use crate::terminal::safetensors_names::is_safetensors;

/// How many tensors are listed as text, unless `--top` says otherwise.
const TOP: usize = 20;

impl Execute for InspectArgs {
    fn name(&self) -> &'static str {
        "inspect"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        self.models.iter().map(AsRef::as_ref).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        let patterns = Patterns::new(self);
        let each = Each {
            command: "inspect",
            models: &self.models,
            json: self.json,
            look: &|model| Inspected::new(self, model, &patterns),
            print: &|inspected, out| Ok(text::print(inspected, self, out)?),
            spaced: true,
        };
        let outcome = each.run(out)?;
        let Some(idle) = patterns.idle() else { return Ok(outcome) };
        idle.print(None);
        Ok(Outcome::Findings)
    }
}

/// Everything that is said of one model.
#[derive(Debug, Serialize)]
struct Inspected<'a> {
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    model_bytes: u64,
    #[serde(flatten)]
    summary: Summary,
    /// Whether it is a model, and not tensors alone.
    #[serde(skip)]
    is_model: bool,
    /// The number of tensors that `--name` selects.
    matching: usize,
    /// In the order of their first use.
    #[serde(serialize_with = "listed")]
    files: Vec<NeededFile>,
    file_totals: FileTotals,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Vec<ModuleRow>>,
}

fn listed<S: Serializer>(files: &[NeededFile], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(files.iter().map(Listed::from))
}

impl<'a> Inspected<'a> {
    fn new(args: &InspectArgs, path: &'a Path, patterns: &Patterns<'_>) -> Result<Self, Failure> {
        let Read { mut summary, mut files, model_bytes } = read(args, path)?;
        patterns.note(&summary, path)?;
        let file_totals = FileTotals::of(&files);
        if !args.name.is_empty() {
            summary.tensors.retain(|tensor| is_selected(tensor, args));
        }
        let matching = summary.tensors.len();
        let tree = args.tree.then(|| tree::rows(&summary.modules(), args.depth));
        sort(&mut summary.tensors, args.sort);
        let top = top(args);
        if top > 0 {
            summary.tensors.truncate(top);
            files.truncate(top);
        }
        let is_model = !is_safetensors(path);
        Ok(Self { model: path, model_bytes, summary, is_model, matching, files, file_totals, tree })
    }
}

/// How many of each list are shown; 0 shows all.
fn top(args: &InspectArgs) -> usize {
    args.top.unwrap_or(if args.json { 0 } else { TOP })
}

/// What was read of a model.
struct Read {
    summary: Summary,
    files: Vec<NeededFile>,
    model_bytes: u64,
}

/// What is in the file at `path`, and its weights files.
fn read(args: &InspectArgs, path: &Path) -> Result<Read, Failure> {
    let reading = reading::of(&args.read);
    if is_safetensors(path) {
        if is_url(path) {
            let reason = "is a safetensors file in a store: of those only models are read";
            return Err(Failure::Refused(format!("`{}`: {reason}", path.display())));
        }
        let summary = safetensors::inspect(path, LoadOptions::from(reading).weights(false))?;
        let files = files::of_safetensors(&summary, path);
        let model_bytes = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
        return Ok(Read { summary, files, model_bytes });
    }
    let (container, needed) = named(path, reading)?;
    let (summary, model_bytes) = (container.summary()?, needed.model_len()?);
    Ok(Read { summary, files: needed.files, model_bytes })
}

fn is_selected(tensor: &TensorSummary, args: &InspectArgs) -> bool {
    let name = tensor.qualified_name();
    args.name.iter().any(|glob| glob.matches(&name) || glob.matches(&tensor.name))
}

/// Puts tensors, of which the largest come first, into another order.
fn sort(tensors: &mut [TensorSummary], key: SortKey) {
    match key {
        SortKey::Bytes => tensors.sort_by_key(|tensor| Reverse(tensor.bytes)),
        SortKey::Name => {
            tensors.sort_by(|a, b| a.qualified_name().cmp(&b.qualified_name()));
        }
        SortKey::Dtype => tensors.sort_by(|a, b| a.dtype.cmp(&b.dtype)),
        SortKey::Place => tensors.sort_by(|a, b| place(a).cmp(&place(b))),
    }
}

/// The file of a tensor and the first byte there; nothing before files for an inline one.
fn place(tensor: &TensorSummary) -> Option<(&str, u64)> {
    match &tensor.stored {
        Stored::External { location, offset, .. } => Some((location, *offset)),
        _ => None,
    }
}
