//! Tensors of a container as safetensors files.

use std::collections::HashSet;
use std::path::PathBuf;

use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::safetensors::{ExportOptions, Exported};
use onnx_container::{Error, ErrorKind, Result, TensorStorage};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::container::Container;
use crate::files::mapped;
use crate::interrupt::interruptible;
use crate::options::{Save, externalizing};
use crate::saved::{files, names};

type Inner = onnx_container::Container;

/// How tensors are exported, beside the options of a save.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Export {
    /// The tensors that are exported, wherever they are; without, the large ones.
    names: Option<Vec<String>>,
    min_bytes: Option<u64>,
    all_tensors: bool,
    shard_bytes: Option<u64>,
    metadata: Vec<(String, String)>,
    padding: bool,
}

/// Writes tensors of the container to the safetensors file `path`, or to shards beside it.
#[pyfunction]
pub fn export_safetensors(
    py: Python<'_>,
    container: &Container,
    path: PathBuf,
    export: Export,
    save: Save,
) -> PyResult<Py<PyDict>> {
    let ((save, raised), now) = (save.options()?, container.now(py)?);
    let result = interruptible(py, || {
        let mut all = Inner::clone(&now);
        let (least, everything) = match export.names {
            Some(_) => (Some(0), true),
            None => (export.min_bytes, export.all_tensors),
        };
        all.externalize(externalizing(least, everything, true))?;
        let read = mapped(&all);
        let chosen = match &export.names {
            Some(names) => only(&all, &names.iter().map(String::as_str).collect())?,
            None => all,
        };
        let mut options = ExportOptions::from(save.protect(read)).padding(export.padding);
        for (key, value) in export.metadata {
            options = options.metadata(key, value);
        }
        options = export.shard_bytes.into_iter().fold(options, ExportOptions::max_shard_bytes);
        chosen.export_safetensors(path, options)
    });
    report(py, &raised.or(result?)?)
}

/// A container of those tensors alone, as initializers of one graph, which share the weights.
fn only(container: &Inner, names: &HashSet<&str>) -> Result<Inner> {
    let mut chosen = Inner::new(ModelProto::new(GraphProto::new("weights")));
    for tensor in container.tensors().filter(|tensor| names.contains(tensor.name())) {
        let TensorStorage::Handle { handle, initializer } = tensor.storage()? else {
            let reason = "a safetensors file has no strings and no tensors without elements";
            let error = Error::new(ErrorKind::Unsupported, reason);
            return Err(error.with_tensor(tensor.name()));
        };
        let (dtype, dims) = (initializer.dtype(), tensor.dims());
        let entry = TensorProto::external(tensor.name(), dtype, dims, handle.as_str());
        chosen.model_mut().graph.get_or_insert_default().initializer.push(entry);
        chosen.insert(handle.as_str(), initializer.clone())?;
    }
    Ok(chosen)
}

/// What was written.
fn report(py: Python<'_>, exported: &Exported) -> PyResult<Py<PyDict>> {
    let report = PyDict::new(py);
    report.set_item("files", files(&exported.files))?;
    report.set_item("nbytes", exported.bytes)?;
    report.set_item("tensors", exported.tensors)?;
    report.set_item("as_bytes", &exported.as_bytes)?;
    report.set_item("tied", &exported.tied)?;
    report.set_item("renamed", &exported.renamed)?;
    report.set_item("left_out", &exported.left_out)?;
    report.set_item("unused", names(&exported.unused))?;
    report.set_item("left_behind", &exported.left_behind)?;
    report.set_item("warnings", names(&exported.warnings))?;
    Ok(report.unbind())
}
