//! [`Job`]: a save that many processes write together.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use onnx_container::job::{JobOptions, JobStatus, Recast, Receipt, Weights};
use onnx_container::{DataType, Error, Initializer, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::container::Container;
use crate::error::OrRaise;
use crate::initializer::converted;
use crate::interrupt::detached;
use crate::options::{Save, Source, mapping, source as source_options};
use crate::saved::{CastFound, cast_found, files, names};

/// A job, as the library has it.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Job(onnx_container::job::Job);

/// A tensor: name, type, dimensions, file, offset, length in bytes, part.
pub type Planned = (String, i32, Vec<u64>, String, u64, u64, usize);

/// A cast: the number of the float type, whether inputs and outputs stay, names that are not cast,
/// operators or nodes that compute in the old type.
pub type Cast = (i32, bool, Vec<String>, Vec<String>);

/// How far a job is: parts that are written, parts that are not, writers of slices, bytes that are
/// written, all bytes, whether it is committed, weights that became infinite, whether it has ended,
/// whether its model was replaced since.
pub type Status = (Vec<usize>, Vec<usize>, Vec<String>, u64, u64, bool, Vec<String>, bool, bool);

/// The cast of a rewrite.
pub fn recast(cast: Option<Cast>) -> PyResult<Option<Recast>> {
    let recast = cast.map(|(to, keep_io, except, keep_ops)| {
        let to = DataType::try_from(to).or_raise()?;
        Ok(Recast::new(to).keep_io(keep_io).except(except).keep_ops(keep_ops))
    });
    recast.transpose()
}

#[pymethods]
impl Job {
    /// Plans a save of a container. Tensors without weights are declared.
    #[staticmethod]
    fn plan(
        py: Python<'_>,
        container: &Container,
        path: PathBuf,
        parts: usize,
        slices: bool,
        options: Save,
    ) -> PyResult<Self> {
        let ((options, _), now) = (options.options()?, container.now(py)?);
        let options = JobOptions::from(parts).slices(slices).save(options);
        let planned = detached(py, move || {
            let mut declared = onnx_container::Container::clone(&now);
            declared.declare()?;
            onnx_container::job::Job::plan(&declared, path, options)
        });
        planned.map(Self)
    }

    /// Plans a rewrite of the model at `source`.
    #[staticmethod]
    fn rewrite(
        py: Python<'_>,
        source: PathBuf,
        path: PathBuf,
        parts: usize,
        cast: Option<Cast>,
        options: Save,
        reading: Source,
    ) -> PyResult<Self> {
        let (options, _) = options.options()?;
        let recast = recast(cast)?;
        let options = JobOptions::from(parts).save(options).source(source_options(&reading)?);
        let planned =
            detached(py, move || onnx_container::job::Job::rewrite(source, path, recast, options));
        planned.map(Self)
    }

    #[staticmethod]
    fn open(path: PathBuf) -> PyResult<Self> {
        onnx_container::job::Job::open(path).or_raise().map(Self)
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        onnx_container::job::Job::from_json(text).or_raise().map(Self)
    }

    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().or_raise()
    }

    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path()
    }

    #[getter]
    fn folder(&self) -> PathBuf {
        self.0.folder()
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
        files(&self.0.files())
    }

    #[getter]
    fn tensors(&self) -> PyResult<Vec<Planned>> {
        let files = self.0.files();
        let planned = self.0.tensors().iter().map(|it| {
            let file = files.get(it.file).map(|file| file.name.clone()).unwrap_or_default();
            let (dims, nbytes) = (it.dims.clone(), it.byte_len()?);
            Ok((it.name.clone(), it.dtype.number(), dims, file, it.offset, nbytes, it.part))
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

    /// Writes slices: names, offsets, and anything that can be weights.
    fn write_slices(
        &self,
        py: Python<'_>,
        writer: String,
        slices: &Bound<'_, PyAny>,
    ) -> PyResult<String> {
        let writer = self.0.slice_writer(writer).or_raise()?;
        for slice in slices.try_iter()? {
            let (name, offsets, weights): (String, Vec<u64>, Bound<'_, PyAny>) =
                slice?.extract()?;
            let weights = converted(&weights)?.get().0.clone();
            detached(py, || writer.write_from(&name, offsets, &weights))?;
        }
        let receipt = detached(py, move || writer.finish())?;
        receipt.to_json().or_raise()
    }

    /// How far the job is.
    fn status(&self) -> PyResult<Status> {
        let it: JobStatus = self.0.status().or_raise()?;
        let (committed, ended, replaced) = (it.is_committed, it.is_ended, it.is_replaced);
        let (written, bytes, infinite) = (it.bytes_written, it.bytes, it.infinite);
        let parts = (it.done, it.missing, it.writers);
        Ok((parts.0, parts.1, parts.2, written, bytes, committed, infinite, ended, replaced))
    }

    /// Puts the model in place, with the receipts that are given as JSON, or with those in the
    /// folder.
    fn commit<'py>(
        &self,
        py: Python<'py>,
        receipts: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let committed = detached(py, || match receipts {
            None => self.0.commit(),
            Some(given) => {
                let receipts = given.iter().map(|text| Receipt::from_json(text));
                self.0.commit_receipts(receipts.collect::<Result<Vec<_>>>()?)
            }
        })?;
        let report = PyDict::new(py);
        report.set_item("files", files(&committed.files))?;
        report.set_item("nbytes", committed.bytes)?;
        report.set_item("digest", committed.digest.map(|digest| digest.to_string()))?;
        report.set_item("already", committed.already)?;
        report.set_item("replaced", committed.replaced)?;
        report.set_item("removed", &committed.removed)?;
        report.set_item("left_behind", &committed.left_behind)?;
        report.set_item("infinite", committed.infinite)?;
        report.set_item("warnings", names(&committed.warnings))?;
        Ok(report)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.clone().abort())
    }
}

/// What a part is written from.
pub enum Given {
    /// The source of a rewrite.
    Source,
    Container(Arc<onnx_container::Container>),
    Asked(Asked),
}

impl Given {
    /// A container, what `weights`, a function of names, returns, or neither.
    pub fn new(
        py: Python<'_>,
        container: Option<&Container>,
        weights: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(match (container, weights) {
            (Some(container), _) => Self::Container(container.now(py)?),
            (None, Some(function)) => {
                Self::Asked(Asked { function: function.unbind(), raised: Mutex::default() })
            }
            (None, None) => Self::Source,
        })
    }

    /// What `write` does with it, or what the function of weights raised.
    pub fn write<T: Send>(
        self,
        py: Python<'_>,
        write: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> PyResult<T> {
        let written = detached(py, || write(&self));
        let Self::Asked(asked) = self else { return written };
        let raised = asked.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        raised.map_or(written, Err)
    }
}

impl Weights for Given {
    fn weights_of(&self, name: &str) -> Result<Initializer> {
        match self {
            Self::Source => Err(Error::internal("a source has its own weights")),
            Self::Container(container) => container.weights_of(name),
            Self::Asked(asked) => asked.weights_of(name),
        }
    }

    fn are_here(&self) -> bool {
        matches!(self, Self::Container(_))
    }
}

/// Weights that a Python function returns when they are written.
pub struct Asked {
    function: Py<PyAny>,
    /// What it raised first.
    raised: Mutex<Option<PyErr>>,
}

impl Asked {
    fn weights_of(&self, name: &str) -> Result<Initializer> {
        let asked = Python::try_attach(|py| {
            let returned = self.function.bind(py).call1((name,))?;
            Ok::<_, PyErr>(converted(&returned)?.get().0.clone())
        });
        let ended = || Error::other("the interpreter has ended");
        asked.ok_or_else(ended)?.map_err(|error| {
            let said = Error::other(format!("the function of weights raised: {error}"));
            let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.get_or_insert(error);
            said
        })
    }
}
