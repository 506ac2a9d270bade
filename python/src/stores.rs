//! Models in stores: loads, publications, versions, sweeps.

use std::time::Duration;

use onnx_container::Cancel;
use onnx_container_store::{
    Abilities, IfPresent, OpenJob, Publication, PublishOptions, Published, StoreUrl, Sweep,
    SweepOptions, SweptObject,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::container::Container;
use crate::error::OrRaise;
use crate::interrupt::{detached, interruptible_by};
use crate::options::{Load, Raised, Save};
use crate::places::{Place, Reached, Stored};

/// The model at a URL, of which all weights are read now with `fetch`; and its tag.
#[pyfunction]
pub fn load_stored(
    py: Python<'_>,
    url: &str,
    fetch: bool,
    load: Load,
) -> PyResult<(Container, Option<String>)> {
    let (place, options) = (load.place(url.into())?, load.options()?);
    let Place::Stored(stored) = place else {
        return Err(onnx_container::Error::internal("a URL is no URL")).or_raise();
    };
    let loaded = detached(py, || {
        stored.read(|model| {
            let container = match fetch {
                true => model.fetch(options.clone()),
                false => model.load(options.clone()),
            };
            Ok((container?, model.e_tag().map(str::to_owned)))
        })
    });
    let (container, e_tag) = loaded?;
    Ok((Container::of(container), e_tag))
}

/// The URL as errors have it, and its key; None for what is no URL of a store.
#[pyfunction]
pub fn store_key(text: &str) -> PyResult<Option<(String, String)>> {
    if !onnx_container_store::is_url(text) {
        return Ok(None);
    }
    let url = StoreUrl::parse(text).or_raise()?;
    Ok(Some((url.to_string(), url.key().to_owned())))
}

/// How a model is published, beside how it is saved.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Publishing {
    if_present: String,
    keep: usize,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
}

impl Publishing {
    /// The options, what reports the progress, and where the exception is kept that ends the work.
    pub fn options(self) -> (PublishOptions, Cancel, Raised) {
        let if_present = match self.if_present.as_str() {
            "replace" => IfPresent::Replace,
            "refuse" => IfPresent::Refuse,
            "overwrite" => IfPresent::Overwrite,
            _ => IfPresent::ReplaceVersion(self.if_present),
        };
        let options =
            PublishOptions::new().if_present(if_present).keep(self.keep).dry_run(self.dry_run);
        let raised = Raised::default();
        (options, Cancel::with_progress(raised.report(self.progress)), raised)
    }
}

/// Publishes a container.
#[pyfunction]
pub fn publish<'py>(
    py: Python<'py>,
    container: &Container,
    url: &str,
    save: Save,
    publishing: Publishing,
    reached: Reached,
) -> PyResult<Bound<'py, PyDict>> {
    let (now, (save, _)) = (container.now(py)?, save.options()?);
    let Stored { store, url } = reached.at(url).or_raise()?;
    let (options, cancel, raised) = publishing.options();
    let done = interruptible_by(py, &cancel, || {
        let prepared = now.prepare(url.name(), save)?;
        Publication::new(&store, &url, &options)?.publish(prepared)
    })?;
    published(py, &raised.or(done)?)
}

/// Publishes an earlier version again.
#[pyfunction]
pub fn rollback<'py>(
    py: Python<'py>,
    url: &str,
    version: &str,
    publishing: Publishing,
    reached: Reached,
) -> PyResult<Bound<'py, PyDict>> {
    let Stored { store, url } = reached.at(url).or_raise()?;
    let version = reached.at(version).or_raise()?.url;
    let (options, ..) = publishing.options();
    let done = detached(py, || onnx_container_store::rollback(&store, &url, &version, &options))?;
    published(py, &done)
}

fn published<'py>(py: Python<'py>, done: &Published) -> PyResult<Bound<'py, PyDict>> {
    let files = done.files.iter().map(|file| {
        // That of a version that is published again is not known.
        let sum = file.sha256.as_ref().map(|sum| hex(sum));
        (file.name.clone(), file.bytes, sum, file.sent)
    });
    let report = PyDict::new(py);
    report.set_item("url", done.url.to_string())?;
    report.set_item("e_tag", &done.e_tag)?;
    report.set_item("model_nbytes", done.model_bytes)?;
    report.set_item("files", files.collect::<Vec<_>>())?;
    report.set_item("version", done.version.as_ref().map(ToString::to_string))?;
    report.set_item("removed", texts(&done.removed))?;
    let warnings: Vec<String> = done.warnings.iter().map(ToString::to_string).collect();
    report.set_item("warnings", warnings)?;
    Ok(report)
}

fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn texts(urls: &[StoreUrl]) -> Vec<String> {
    urls.iter().map(ToString::to_string).collect()
}

/// The versions of the model at a URL, the oldest first.
#[pyfunction]
pub fn versions(py: Python<'_>, url: &str, reached: Reached) -> PyResult<Vec<String>> {
    let Stored { store, url } = reached.at(url).or_raise()?;
    Ok(texts(&detached(py, || onnx_container_store::versions(&store, &url))?))
}

/// An object: URL, length in bytes, age in seconds.
type Swept = (String, u64, f64);
/// An open job: its folder, its model, age in seconds, written parts.
type Open = (String, String, f64, usize);

/// Finds, or deletes, what no model below a URL names, and is older than so many seconds: how many
/// models were read, how many files they name, old files, young ones, open jobs.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn sweep(
    py: Python<'_>,
    url: &str,
    older_than: Duration,
    delete: bool,
    reached: Reached,
) -> PyResult<(usize, usize, Vec<Swept>, Vec<Swept>, Vec<Open>)> {
    let Stored { store, url } = reached.at(url).or_raise()?;
    let options = SweepOptions::new().older_than(older_than).delete(delete);
    let found = detached(py, || onnx_container_store::sweep(&store, &url, &options))?;
    let Sweep { models, named, swept, young, jobs, .. } = found;
    Ok((models, named, told(&swept), told(&young), jobs.iter().map(open).collect()))
}

fn told(swept: &[SweptObject]) -> Vec<Swept> {
    swept.iter().map(|it| (it.url.to_string(), it.bytes, it.age.as_secs_f64())).collect()
}

fn open(job: &OpenJob) -> Open {
    (job.url.to_string(), job.model.to_string(), job.age.as_secs_f64(), job.written)
}

/// What the store of a URL can do.
#[pyfunction]
pub fn probe<'py>(py: Python<'py>, url: &str, reached: Reached) -> PyResult<Bound<'py, PyDict>> {
    let Stored { store, url } = reached.at(url).or_raise()?;
    let found = detached(py, || onnx_container_store::probe(&store, &url))?;
    let Abilities { create, replace, read_condition, tags, ranges, .. } = found;
    let report = PyDict::new(py);
    for (name, can) in [
        ("create", create),
        ("replace", replace),
        ("read_condition", read_condition),
        ("tags", tags),
        ("ranges", ranges),
    ] {
        report.set_item(name, can)?;
    }
    Ok(report)
}
