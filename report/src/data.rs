//! What a page shows: what the library says of a model. It is written as JSON, part after part, so
//! that the JSON is never in memory as a whole.

use std::path::{Path, PathBuf};

use onnx_container::compare::{CompareOptions, compare_models};
use onnx_container::proto::{FunctionProto, ModelProto};
use onnx_container::stats::TensorStats;
use onnx_container::{Container, Error, Result};
use onnx_container_files::needed::paths;
use serde::Serialize;

use crate::columns::columns;
use crate::encoded::Encoder;
use crate::files::files;
use crate::findings::findings;
use crate::html::html;
use crate::options::ReportOptions;
use crate::place::Page;
use crate::rows::{Row, rows, unique_names};
use crate::statistics::statistics;
use crate::tree::tree;
use crate::values::{Exact, Object, Text};

/// The page of the model at `model`, and of what differs in the model at `other`.
///
/// # Errors
/// When a model cannot be read; with [`ReportOptions::stats`], when a weight cannot be read. What a
/// check finds is no error: the page lists it.
pub fn report(model: &Path, other: Option<&Path>, options: &ReportOptions) -> Result<Page> {
    let own = own_files(model, other, options)?;
    // It fails where a weight cannot be read: before the other parts are made for nothing.
    let stats = stats(model, options)?;
    let mut encoder = Encoder::default();
    let mut data = Object::begin(&mut encoder)?;
    // One part after the other, so that what a part is made of is not held beside the next one.
    about(&mut data, model, options)?;
    findings(&mut data, model, options)?;
    differences(&mut data, model, other, options)?;
    let rows = structure(&mut data, model, options)?;
    weights(&mut data, &rows, model, options)?;
    statistics(&mut data, stats.as_deref(), &rows)?;
    drop((rows, stats));
    data.end()?;
    Ok(Page { html: html(&title(model, other), encoder.end()?)?, own })
}

/// Writes where the model is, and what was given for its page.
fn about(data: &mut Object<'_>, model: &Path, options: &ReportOptions) -> Result<()> {
    let bytes = std::fs::metadata(model).map_err(|error| Error::io(model, error))?.len();
    data.add("program", &concat!("onnx-container ", env!("CARGO_PKG_VERSION")))?;
    data.add("model", &Text(&model.to_string_lossy()))?;
    data.add("model_bytes", &Exact(bytes.into()))?;
    data.add_tidy("plan", &options.plan)
}

/// Writes what is in the graph, and returns its tensors.
fn structure(data: &mut Object<'_>, model: &Path, options: &ReportOptions) -> Result<Vec<Row>> {
    let container = Container::load(model, options.load.clone().weights(false))?;
    let names = unique_names(&container);
    let mut summary = container.summary()?;
    data.add_tidy("functions", &functions(container.model()))?;
    drop(container);
    let rows = rows(names, std::mem::take(&mut summary.tensors));
    data.add_tidy("summary", &summary)?;
    Ok(rows)
}

/// Writes what is said of `rows`, which are the tensors.
fn weights(
    data: &mut Object<'_>,
    rows: &[Row],
    model: &Path,
    options: &ReportOptions,
) -> Result<()> {
    let files = files(rows, model, options)?;
    columns(data.object("tensors")?, rows, &files)?;
    data.add("files", &files)?;
    drop(files);
    data.add("tree", &tree(rows))
}

/// The files of the models that a page shows, which it does not replace: [`Page::check_target`]
/// takes them, before much is read for the page.
///
/// # Errors
/// When a model cannot be read.
pub fn own_files(
    model: &Path,
    other: Option<&Path>,
    options: &ReportOptions,
) -> Result<Vec<PathBuf>> {
    let mut own = Vec::new();
    for path in [Some(model), other].into_iter().flatten() {
        own.extend(paths(path, options.load.clone(), options.paths)?);
    }
    Ok(own)
}

/// The names of the models; of models with one name, their paths.
fn title(model: &Path, other: Option<&Path>) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match other {
        Some(other) if name(model) == name(other) => {
            format!("{} and {}", model.display(), other.display())
        }
        Some(other) => format!("{} and {}", name(model), name(other)),
        None => name(model),
    }
}

/// A local function.
#[derive(Serialize)]
struct Function {
    name: String,
    nodes: usize,
    inputs: usize,
    outputs: usize,
}

/// The local functions, in their order.
fn functions(model: &ModelProto) -> Vec<Function> {
    let text = |text: Option<&onnx_container::proto::Str>| {
        text.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).unwrap_or_default()
    };
    let function = |function: &FunctionProto| {
        let domain = text(function.domain.as_ref());
        let name = text(function.name.as_ref());
        Function {
            name: if domain.is_empty() { name } else { format!("{domain}::{name}") },
            nodes: function.node.len(),
            inputs: function.input.len(),
            outputs: function.output.len(),
        }
    };
    model.functions.iter().map(function).collect()
}

/// The statistics, if the options ask for them.
fn stats(model: &Path, options: &ReportOptions) -> Result<Option<Vec<TensorStats>>> {
    if !options.stats {
        return Ok(None);
    }
    let container = Container::load(model, options.load.clone())?;
    container.stats(|_| true).map(Some).map_err(|error| error.with_path(model))
}

/// What the page has where a part was not asked for.
const NOTHING: Option<()> = None;

/// Writes what differs from the other model, if there is one.
fn differences(
    data: &mut Object<'_>,
    model: &Path,
    other: Option<&Path>,
    options: &ReportOptions,
) -> Result<()> {
    let Some(other) = other else { return data.add("differences", &NOTHING) };
    let compare = CompareOptions::new().load(options.load.clone()).differences(options.stats);
    let mut differences = data.object("differences")?;
    differences.add("other", &Text(&other.to_string_lossy()))?;
    differences.add_tidy("found", &compare_models(model, other, &compare)?)?;
    findings(&mut differences, other, options)?;
    differences.end()
}
