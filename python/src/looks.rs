//! What is in models, what their elements are like, and what differs between two: as JSON, of which
//! Python makes its own classes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use onnx_container::compare::{CompareOptions, Comparison, compare_models, compare_with};
use onnx_container::digest::PartialDigest;
use onnx_container::stats::TensorStats;
use onnx_container::{Container, Error, Part, Result, TensorRef, safetensors};
use pyo3::prelude::*;

use crate::interrupt::detached;
use crate::options::Load;

/// What is in the model, which may be at a URL, or in the safetensors file at `path`.
#[pyfunction]
pub fn inspect(py: Python<'_>, path: PathBuf, load: Load) -> PyResult<String> {
    let (place, options) = (load.place(path)?, load.options()?.weights(false));
    detached(py, || match place.path().filter(|path| is_safetensors(path)) {
        Some(path) => text(&safetensors::inspect(path, options)?),
        None => summary(&place.load(options)?),
    })
}

/// Whether the name is that of a safetensors file, or of the index of several.
fn is_safetensors(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
}

/// What is in the model of `container`.
pub fn summary(container: &Container) -> Result<String> {
    text(&container.summary()?)
}

/// The digest of a model, and the names and digests of its tensors.
pub type Digests = (String, Vec<(String, String)>);

/// The digests of the model, or what those of all parts, each as JSON, make of it.
pub fn digest(container: &Container, parts: Option<&[String]>) -> Result<Digests> {
    let digest = match parts {
        None => container.digest()?,
        Some(parts) => {
            let parts = parts.iter().map(|text| PartialDigest::from_json(text));
            container.digest_of_parts(parts.collect::<Result<Vec<_>>>()?)?
        }
    };
    let tensors = digest.tensors().iter().map(|it| (it.name().to_owned(), it.to_string()));
    Ok((digest.to_string(), tensors.collect()))
}

/// The part of this number, and of how many it is.
pub fn part(given: Option<(usize, usize)>) -> Result<Option<Part>> {
    given.map(|(number, of)| Part::new(number, of)).transpose()
}

/// What the elements of the tensors with these names are like, or those of all; or of those among
/// them that a part has.
pub fn stats(
    container: &Container,
    names: Option<&[String]>,
    part: Option<Part>,
) -> Result<String> {
    let names = names.map(|names| names.iter().map(String::as_str).collect::<HashSet<_>>());
    let in_part = part.map(|part| part.selects(container));
    let is_selected = |tensor: &TensorRef<'_>| {
        in_part.as_ref().is_none_or(|has| has(tensor))
            && names.as_ref().is_none_or(|names| names.contains(tensor.name()))
    };
    let stats: Vec<TensorStats> = container.stats(is_selected)?;
    text(&stats)
}

/// What differs between two containers.
pub fn compare(a: &Container, b: &Container, options: &CompareOptions) -> Result<String> {
    compared(&compare_with(a, b, options)?)
}

/// How two models are compared.
pub fn comparing(stats: bool, ignore_stored_digests: bool) -> CompareOptions {
    CompareOptions::new().differences(stats).ignore_stored_digests(ignore_stored_digests)
}

/// What differs between the models at two paths or URLs.
#[pyfunction]
pub fn diff(
    py: Python<'_>,
    a: PathBuf,
    b: PathBuf,
    load: Load,
    stats: bool,
    ignore_stored_digests: bool,
) -> PyResult<String> {
    let options = comparing(stats, ignore_stored_digests);
    let (a, b, load) = (load.place(a)?, load.place(b)?, load.options()?);
    detached(py, || match (a.path(), b.path()) {
        (Some(a), Some(b)) => compared(&compare_models(a, b, &options.load(load))?),
        _ => compare(&a.load(load.clone())?, &b.load(load)?, &options),
    })
}

fn compared(found: &Comparison) -> Result<String> {
    text(found)
}

fn text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(Error::other)
}
