//! [`StoreJob`]: a model in a store that many processes write together.

use onnx_container::Result;
use onnx_container_store::StoreUrl;
use onnx_container_store::job::{
    PartReceipt, RemoteCommitted, RemoteJob, RemoteJobOptions, RemoteJobStatus,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::container::Container;
use crate::error::OrRaise;
use crate::interrupt::detached;
use crate::job::{Cast, Given, Planned, Status, recast};
use crate::options::{Save, Source, mapping, source as source_options};
use crate::places::Reached;
use crate::saved::{CastFound, cast_found, names};
use crate::stores::{Publishing, texts};

/// A job in a store, as the library has it.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct StoreJob(RemoteJob);

#[pymethods]
impl StoreJob {
    /// Plans a publication of a container. Tensors without weights are declared.
    #[staticmethod]
    fn plan(
        py: Python<'_>,
        container: &Container,
        url: &str,
        parts: usize,
        save: Save,
        publishing: Publishing,
        reached: Reached,
    ) -> PyResult<Self> {
        let options = options(parts, save, publishing)?;
        let (url, stores) = target(url, &reached).or_raise()?;
        let now = container.now(py)?;
        let planned = detached(py, move || {
            let mut declared = onnx_container::Container::clone(&now);
            declared.declare()?;
            RemoteJob::plan(&declared, &url, stores, options)
        });
        planned.map(Self)
    }

    /// Plans a rewrite of the model at `source`, a path or a URL.
    #[staticmethod]
    #[allow(clippy::too_many_arguments)]
    fn rewrite(
        py: Python<'_>,
        source: &str,
        url: &str,
        parts: usize,
        cast: Option<Cast>,
        save: Save,
        publishing: Publishing,
        reached: Reached,
        reading: Source,
    ) -> PyResult<Self> {
        let (recast, options) = (recast(cast)?, options(parts, save, publishing)?);
        let options = options.source(source_options(&reading)?);
        let (url, stores) = target(url, &reached).or_raise()?;
        detached(py, || RemoteJob::rewrite(source, &url, stores, recast, options)).map(Self)
    }

    #[staticmethod]
    fn open(py: Python<'_>, url: &str, reached: Reached) -> PyResult<Self> {
        let (url, stores) = target(url, &reached).or_raise()?;
        detached(py, || RemoteJob::open(&url, stores)).map(Self)
    }

    #[staticmethod]
    fn from_json(text: &str, reached: Reached) -> PyResult<Self> {
        let job = RemoteJob::from_json(text, reached.stores().or_raise()?).or_raise()?;
        reached.check(job.url()).or_raise()?;
        Ok(Self(job))
    }

    /// Whether this is the JSON of a job in a store.
    #[staticmethod]
    fn is_json(text: &str) -> bool {
        RemoteJob::is_json_of(text)
    }

    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().or_raise()
    }

    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    #[getter]
    fn path(&self) -> String {
        self.0.url().to_string()
    }

    #[getter]
    fn folder(&self) -> String {
        self.0.folder().to_string()
    }

    /// What the cast did, where this process has planned the job.
    #[getter]
    fn cast_report(&self) -> Option<CastFound> {
        self.0.cast_report().cloned().map(cast_found)
    }

    #[getter]
    fn parts(&self) -> usize {
        self.0.parts().len()
    }

    #[getter]
    fn files(&self) -> Vec<(String, u64)> {
        self.0.files().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
    }

    #[getter]
    fn tensors(&self) -> PyResult<Vec<Planned>> {
        let files = self.0.files().enumerate();
        let planned = files.flat_map(|(part, (file, _))| {
            self.0.file_tensors(part).iter().map(move |it| {
                let dims = it.dims.iter().map(|length| length.unsigned_abs()).collect();
                let (dtype, nbytes) = (it.dtype.number(), it.byte_len()?);
                Ok((it.name.clone(), dtype, dims, file.to_owned(), it.offset, nbytes, part))
            })
        });
        planned.collect::<Result<_>>().or_raise()
    }

    /// Writes a part: from the source of a rewrite, mapped or read, from a container, or from what
    /// `weights`, a function of names, returns.
    fn write(
        &self,
        py: Python<'_>,
        part: usize,
        container: Option<&Container>,
        weights: Option<Bound<'_, PyAny>>,
        mmap: bool,
    ) -> PyResult<String> {
        let receipt = Given::new(py, container, weights)?.write(py, |given| match given {
            Given::Source => self.0.clone().map_source(mapping(mmap)).write(part),
            given => self.0.write_from(part, given),
        })?;
        receipt.to_json().or_raise()
    }

    /// How far the job is. It has no writers of slices.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let it: RemoteJobStatus = detached(py, || self.0.status())?;
        let (committed, ended, replaced) = (it.is_committed, it.is_ended, it.is_replaced);
        let (written, bytes, infinite) = (it.bytes_written, it.bytes, it.infinite);
        Ok((it.done, it.missing, Vec::new(), written, bytes, committed, infinite, ended, replaced))
    }

    /// Publishes the model, with the receipts that are given as JSON, or with those in the store.
    fn commit<'py>(
        &self,
        py: Python<'py>,
        receipts: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let committed = detached(py, || match receipts {
            None => self.0.commit(),
            Some(given) => {
                let receipts = given.iter().map(|text| PartReceipt::from_json(text));
                self.0.commit_receipts(receipts.collect::<Result<Vec<_>>>()?)
            }
        })?;
        report(py, committed)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.clone().abort())
    }
}

/// The object at `url`, and how it and the source of a rewrite are reached.
fn target(url: &str, reached: &Reached) -> Result<(StoreUrl, onnx_container_store::job::Stores)> {
    Ok((reached.at(url)?.url, reached.stores()?))
}

fn options(parts: usize, save: Save, publishing: Publishing) -> PyResult<RemoteJobOptions> {
    let ((save, _), (publish, ..)) = (save.options()?, publishing.options());
    Ok(RemoteJobOptions::from(parts).publish(publish.save(save)))
}

fn report(py: Python<'_>, committed: RemoteCommitted) -> PyResult<Bound<'_, PyDict>> {
    let RemoteCommitted { published, digest, infinite, already, replaced, .. } = committed;
    let weights = published.files.into_iter().map(|file| (file.name, file.bytes));
    let model = (published.url.name().to_owned(), published.model_bytes);
    let files: Vec<_> = weights.chain([model]).collect();
    let report = PyDict::new(py);
    report.set_item(
        "nbytes",
        files.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes)),
    )?;
    report.set_item("files", files)?;
    report.set_item("digest", digest.to_string())?;
    report.set_item("already", already)?;
    report.set_item("replaced", replaced)?;
    report.set_item("removed", texts(&published.removed))?;
    report.set_item("left_behind", Vec::<String>::new())?;
    report.set_item("infinite", infinite)?;
    report.set_item("warnings", names(&published.warnings))?;
    report.set_item("url", published.url.to_string())?;
    report.set_item("e_tag", published.e_tag)?;
    report.set_item("version", published.version.as_ref().map(ToString::to_string))?;
    Ok(report)
}
