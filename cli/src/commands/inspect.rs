//! `inspect MODEL`: what is in a model. Weights are not read, however many files there are.

mod graphs;
mod tensors;
mod text;
mod values;

use std::path::Path;

use onnx_container::proto::{ModelProto, Str};
use onnx_container::{Container, Error, LoadOptions};
use serde::Serialize;

use crate::args::InspectArgs;
use crate::commands::Execute;
use crate::commands::files::Listed;
use crate::commands::inspect::graphs::Graphs;
use crate::commands::inspect::tensors::{FileTotals, TensorInfo, Totals};
use crate::commands::inspect::values::GraphValue;
use crate::commands::leftovers;
use crate::model::needed::needed;
use crate::model::reading;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy};

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
        vec![&self.model]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints what is in the model.
fn run(args: &InspectArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let options = LoadOptions::from(reading::of(&args.read)).weights(false);
    let container = Container::load(&args.model, options)?;
    let needed = needed(container.model(), &args.model, reading::of(&args.read).paths)?;
    let mut summary = Summary::of(container.model(), &args.model)?;
    summary.files = needed.files.iter().map(Listed::from).collect();
    summary.file_totals = FileTotals::of(&summary.files);
    let default = if args.json { 0 } else { TOP };
    summary.keep(args.top.unwrap_or(default));
    if args.json {
        out.json(&summary)?;
    } else {
        text::print(&summary, out)?;
    }
    Ok(Outcome::Done)
}

/// Everything that `inspect` says.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    model_bytes: u64,
    ir_version: Option<i64>,
    producer: Option<String>,
    producer_version: Option<String>,
    opsets: Vec<Opset>,
    graph: Option<String>,
    inputs: Vec<GraphValue>,
    outputs: Vec<GraphValue>,
    #[serde(flatten)]
    graphs: Graphs,
    totals: Totals,
    /// The largest first.
    tensors: Vec<TensorInfo>,
    /// In the order of their first use.
    files: Vec<Listed<'a>>,
    file_totals: FileTotals,
    warnings: Vec<String>,
    /// How many of each list are printed; 0 prints all.
    #[serde(skip)]
    top: usize,
}

#[derive(Debug, Serialize)]
struct Opset {
    domain: String,
    version: Option<i64>,
}

impl<'a> Summary<'a> {
    fn of(model: &ModelProto, path: &'a Path) -> Result<Self, Error> {
        let tensors = tensors::of(model)?;
        Ok(Self {
            command: "inspect",
            warnings: leftovers::warnings([path]),
            model: path,
            model_bytes: std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len(),
            ir_version: model.ir_version,
            producer: text_of(model.producer_name.as_ref()),
            producer_version: text_of(model.producer_version.as_ref()),
            opsets: opsets(model),
            graph: model.graph.as_ref().and_then(|graph| text_of(graph.name.as_ref())),
            inputs: values::inputs(model),
            outputs: values::outputs(model),
            graphs: Graphs::of(model),
            totals: Totals::of(&tensors),
            tensors,
            files: Vec::new(),
            file_totals: FileTotals::default(),
            top: 0,
        })
    }

    /// Keeps the `top` largest tensors and the `top` first files; 0 keeps all.
    fn keep(&mut self, top: usize) {
        self.top = top;
        if top > 0 {
            self.tensors.truncate(top);
            self.files.truncate(top);
        }
    }
}

fn opsets(model: &ModelProto) -> Vec<Opset> {
    let opset = |opset: &onnx_container::proto::OperatorSetIdProto| Opset {
        domain: domain(opset.domain.as_ref()),
        version: opset.version,
    };
    model.opset_import.iter().map(opset).collect()
}

/// The domain's name; the empty one is ONNX's own.
fn domain(domain: Option<&Str>) -> String {
    text_of(domain).unwrap_or_else(|| "ai.onnx".to_owned())
}

/// The text, unless it is empty.
fn text_of(text: Option<&Str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| text.to_string_lossy().into_owned())
}
