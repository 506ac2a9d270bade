//! Gathers what a page shows: what the library says of a model, as JSON.

use std::path::{Path, PathBuf};

use onnx_container::compare::{CompareOptions, compare_models};
use onnx_container::proto::{FunctionProto, ModelProto};
use onnx_container::{Container, Error, Result};
use onnx_container_files::needed::paths;
use serde::Serialize;

use crate::columns::columns;
use crate::files::files;
use crate::findings::findings;
use crate::html::html;
use crate::options::ReportOptions;
use crate::place::Page;
use crate::rows::{Row, rows, unique_names};
use crate::statistics::statistics;
use crate::tree::tree;
use crate::values::{Exact, Text, json, object, tidy_json};

/// The page of the model at `model`, and of what differs in the model at `other`.
///
/// # Errors
/// When a model cannot be read; with [`ReportOptions::stats`], when a weight cannot be read. What a
/// check finds is no error: the page lists it.
pub fn report(model: &Path, other: Option<&Path>, options: &ReportOptions) -> Result<Page> {
    // One part after the other, so that what a part is made of is not held beside the next one.
    let findings = findings(model, options)?;
    let differences = differences(model, other, options)?;
    let own = own_files(model, other, options)?;
    let container = Container::load(model, options.load.clone().weights(false))?;
    let names = unique_names(&container);
    let mut summary = container.summary()?;
    let functions = tidy_json(&functions(container.model()))?;
    let rows = rows(names, std::mem::take(&mut summary.tensors));
    drop(container);
    let summary = tidy_json(&summary)?;
    let files = files(&rows, model, options)?;
    let tensors = columns(&rows, &files)?;
    let files = json(&files)?;
    let program = concat!("onnx-container ", env!("CARGO_PKG_VERSION"));
    let bytes = std::fs::metadata(model).map_err(|error| Error::io(model, error))?.len();
    let data = object([
        ("program", json(&program)?),
        ("model", json(&Text(&model.to_string_lossy()))?),
        ("model_bytes", json(&Exact(bytes.into()))?),
        ("summary", summary),
        ("functions", functions),
        ("tensors", tensors),
        ("tree", json(&tree(&rows))?),
        ("files", files),
        ("findings", findings),
        ("stats", stats(model, &rows, options)?),
        ("plan", tidy_json(&options.plan)?),
        ("differences", differences),
    ]);
    drop(rows);
    Ok(Page { html: html(&title(model, other), &data)?, own })
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

/// What the page has where a part was not asked for.
const NOTHING: &str = "null";

/// The statistics, if the options ask for them.
fn stats(model: &Path, rows: &[Row], options: &ReportOptions) -> Result<String> {
    if !options.stats {
        return Ok(NOTHING.to_owned());
    }
    let container = Container::load(model, options.load.clone())?;
    statistics(&container, rows).map_err(|error| error.with_path(model))
}

/// What differs from the other model, if there is one.
fn differences(model: &Path, other: Option<&Path>, options: &ReportOptions) -> Result<String> {
    let Some(other) = other else { return Ok(NOTHING.to_owned()) };
    let compare = CompareOptions::new().load(options.load.clone()).differences(options.stats);
    let found = tidy_json(&compare_models(model, other, &compare)?)?;
    let findings = findings(other, options)?;
    Ok(object([
        ("other", tidy_json(&other.to_string_lossy())?),
        ("found", found),
        ("findings", findings),
    ]))
}
