//! [`Container`]: a model and the large initializers behind its handles.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use onnx_container::edit::{ConsolidateOptions, Kept, MatchOptions, Tied};
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{Message, ModelProto, TensorProto};
use onnx_container::{Alignment, Handle, Part, TensorRef, TensorStorage, traversal};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::bytes::{Bytes, buffer};
use crate::convert::{Declared, Weights, by_name, declarations};
use crate::error::{OrRaise, exception};
use crate::initializer::Initializer;
use crate::interrupt::{detached, interruptible};
use crate::looks::{self, Digests};
use crate::mapping::WeightMapping;
use crate::options::{Cast, Fill, Inline, Load, Save, dtype, externalizing};
use crate::saved::{CastFound, cast_found, filled, inlined, names, saved};

type Inner = onnx_container::Container;

/// A model, and the large initializers behind its handles. Threads may share it: who reads or saves
/// it has it as it was when the call began, whatever others change meanwhile.
///
/// Nothing that may run Python code is done under the lock: neither the callables of lazy weights
/// nor the `__del__` of weights that are replaced, which may use the container themselves.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Container(
    /// None when it is closed.
    RwLock<Option<Arc<Inner>>>,
    /// How often it was changed.
    AtomicU64,
);

impl Container {
    pub fn of(container: Inner) -> Self {
        Self(RwLock::new(Some(Arc::new(container))), AtomicU64::new(0))
    }

    /// The container as it is now. The holder of the lock may wait for the interpreter, so nobody
    /// waits for the lock and keeps the interpreter.
    pub fn now(&self, py: Python<'_>) -> PyResult<Arc<Inner>> {
        self.held(py).ok_or_else(closed)
    }

    fn held(&self, py: Python<'_>) -> Option<Arc<Inner>> {
        if let Ok(held) = self.0.try_read() {
            return held.clone();
        }
        py.detach(|| self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// What `work` makes of the container, while other threads run Python.
    pub fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Inner) -> onnx_container::Result<T> + Send,
    ) -> PyResult<T> {
        let container = self.now(py)?;
        detached(py, || work(&container))
    }

    /// Changes handles. `work` returns what it replaced, which is dropped after the lock; None
    /// where it changed nothing.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> onnx_container::Result<Option<T>> + Send,
    ) -> PyResult<Option<T>> {
        let changed = py.detach(|| {
            let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let changed = work(Arc::make_mut(held.as_mut()?));
            if matches!(changed, Ok(Some(_))) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
            Some(changed)
        });
        changed.ok_or_else(closed)?.or_raise()
    }

    /// Changes a copy of the container, which then takes its place.
    pub fn rework<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> onnx_container::Result<T> + Send,
    ) -> PyResult<T> {
        let before = self.now(py)?;
        let (result, copy) = detached(py, || {
            let mut copy = Inner::clone(&before);
            Ok((work(&mut copy)?, Arc::new(copy)))
        })?;
        let (is_same, old) = py.detach(|| {
            let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if !held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &before)) {
                return (false, Some(copy));
            }
            self.1.fetch_add(1, Ordering::Relaxed);
            (true, held.replace(copy))
        });
        drop(old);
        let overtaken = "the container was changed by others meanwhile: nothing was done";
        if is_same { Ok(result) } else { Err(PyRuntimeError::new_err(overtaken)) }
    }
}

#[pymethods]
impl Container {
    /// A container of the model whose bytes are given.
    #[new]
    fn new(py: Python<'_>, model: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = buffer(model)?;
        let model = detached(py, || ModelProto::decode(&bytes))?;
        Ok(Self::of(Inner::new(model)))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, options: Load) -> PyResult<Self> {
        let options = options.options()?;
        Ok(Self::of(detached(py, || Inner::load(path, options))?))
    }

    #[staticmethod]
    fn load_bytes(py: Python<'_>, model: &Bound<'_, PyAny>, options: Load) -> PyResult<Self> {
        let (bytes, options) = (buffer(model)?, options.options()?);
        Ok(Self::of(detached(py, || Inner::load_bytes(bytes, options))?))
    }

    /// A container that shares everything with this one until either is changed.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self(RwLock::new(Some(self.now(py)?)), AtomicU64::new(self.changes())))
    }

    /// Lets go of the model and of all weights: what has tensors of it, or works on it, keeps
    /// those.
    fn close(&self, py: Python<'_>) {
        let held = py.detach(|| self.0.write().unwrap_or_else(PoisonError::into_inner).take());
        // Maps of long files take time to remove, and what other objects lent may run Python code.
        py.detach(|| drop(held));
    }

    /// A number that is another one after each change, and 0 where there was none.
    fn changes(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// The bytes of the large initializers.
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.now(py)?.iter().map(|(_, initializer)| initializer.byte_len()).sum())
    }

    fn is_closed(&self, py: Python<'_>) -> bool {
        self.held(py).is_none()
    }

    fn attach(&self, py: Python<'_>, folder: PathBuf, options: Load) -> PyResult<()> {
        let options = options.options()?;
        self.rework(py, |container| container.attach(folder, options))
    }

    fn attach_safetensors(
        &self,
        py: Python<'_>,
        path: PathBuf,
        load: Load,
        fill: Fill,
    ) -> PyResult<Py<PyDict>> {
        let (load, (options, raised)) = (load.options()?, fill.options()?);
        let attach = |container: &mut Inner| container.attach_safetensors_with(path, load, options);
        Ok(filled(py, &raised.before(self.rework(py, attach))?)?.unbind())
    }

    /// The model as bytes; its external tensors name handles.
    fn model_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.read(py, |container| container.model().encode_to_vec())?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn set_model_bytes(&self, py: Python<'_>, model: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = buffer(model)?;
        self.rework(py, |container| {
            *container.model_mut() = ModelProto::decode(&bytes)?;
            Ok(())
        })
    }

    /// The model with every tensor inline, as bytes.
    fn embedded_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.read(py, |container| container.embed()?.encode_to_vec())?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// What the model declares for every tensor: its unique name, its handle or file if it is
    /// external, type and dimensions.
    #[allow(clippy::type_complexity)]
    fn declared(&self, py: Python<'_>) -> PyResult<Vec<(String, Option<String>, i32, Vec<i64>)>> {
        let container = self.now(py)?;
        let declared = container.tensors().map(|tensor| {
            let proto = tensor.proto();
            let location = is_external(proto).then(|| ExternalData::parse(proto));
            let location = location.transpose()?.map(|entry| entry.location);
            let dtype = proto.data_type.unwrap_or_default();
            Ok((tensor.name().to_owned(), location, dtype, proto.dims.to_vec()))
        });
        declared.collect::<onnx_container::Result<_>>().or_raise()
    }

    /// The names of all tensors, with and without their scope.
    fn names(&self, py: Python<'_>) -> PyResult<HashSet<String>> {
        let container = self.now(py)?;
        let both = |(place, tensor): (traversal::Place<'_>, &TensorProto)| {
            [place.name_of(tensor), place.qualified_name(tensor)]
        };
        Ok(traversal::iter(container.model()).flat_map(both).collect())
    }

    /// The prefix rule that makes the name of a tensor of one of these, as a hint.
    fn prefix_rule(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Option<String>> {
        let container = self.now(py)?;
        let rule = py.detach(|| container.prefix_rule(&names));
        Ok(rule.map(|rule| rule.to_string()))
    }

    fn handles(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let container = self.now(py)?;
        Ok(container.iter().map(|(handle, _)| handle.as_str().to_owned()).collect())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.now(py)?.len())
    }

    fn get(&self, py: Python<'_>, handle: &str) -> PyResult<Option<Initializer>> {
        Ok(self.now(py)?.get(handle).cloned().map(Initializer))
    }

    /// Several at once; with `named_only`, those alone that the model names.
    fn update(&self, py: Python<'_>, all: Weights<'_>, named_only: bool) -> PyResult<()> {
        let look_up = || declarations(&*self.now(py)?);
        let all = all.convert(&Declared::new(&look_up, named_only))?;
        // Before the lock, so that nothing fails and is dropped under it.
        all.iter().try_for_each(|(handle, _)| handle.parse::<Handle>().map(drop)).or_raise()?;
        let changed = self.change(py, |container| {
            let mut replaced = Vec::with_capacity(all.len());
            for (handle, initializer) in all {
                replaced.push(container.insert(&handle, initializer)?);
            }
            Ok((!replaced.is_empty()).then_some(replaced))
        });
        changed.map(drop)
    }

    fn remove(&self, py: Python<'_>, handle: &str) -> PyResult<bool> {
        // To remove what is not there would forget stored digests.
        let remove = |container: &mut Inner| match container.get(handle) {
            Some(_) => Ok(container.remove(handle)),
            None => Ok(None),
        };
        Ok(self.change(py, remove)?.is_some())
    }

    /// Adds an initializer to the main graph, and returns its handle.
    fn add(&self, py: Python<'_>, name: &str, initializer: &Initializer) -> PyResult<String> {
        let initializer = initializer.0.clone();
        let added = |container: &mut Inner| container.add_initializer(name, initializer).map(Some);
        let handle = self.change(py, added)?;
        let none = || PyRuntimeError::new_err("an initializer was added without a handle");
        Ok(handle.ok_or_else(none)?.as_str().to_owned())
    }

    /// Every tensor of the model: their unique names, and the elements of each or why there are
    /// none. Two lists, because there may be very many.
    fn tensors(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<Py<PyAny>>)> {
        let container = self.now(py)?;
        let listed = py.detach(|| {
            let each =
                container.tensors().map(|tensor| (tensor.name().to_owned(), weights_of(&tensor)));
            each.collect::<Vec<_>>()
        });
        let mut all = (Vec::with_capacity(listed.len()), Vec::with_capacity(listed.len()));
        for (name, found) in listed {
            all.0.push(name);
            all.1.push(match found {
                Ok(found) => Py::new(py, Initializer(found))?.into_any(),
                Err(error) => exception(&error).into_value(py).into_any(),
            });
        }
        Ok(all)
    }

    /// The tensor of this name.
    fn tensor(&self, py: Python<'_>, name: &str) -> PyResult<Initializer> {
        let found = self.read(py, |container| {
            let index = container.index();
            weights_of(index.get(name)?)
        });
        Ok(Initializer(found?))
    }

    fn replace(
        &self,
        py: Python<'_>,
        name: &str,
        initializer: &Initializer,
        tied_all: bool,
    ) -> PyResult<Vec<String>> {
        let initializer = initializer.0.clone();
        let tied = if tied_all { Tied::All } else { Tied::This };
        Ok(self.rework(py, |container| container.replace(name, initializer, tied))?.tied)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.read(py, Inner::check)
    }

    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(names(self.now(py)?.warnings()))
    }

    /// How many tensors were moved, their bytes, and those that stay: name, bytes, reason.
    #[allow(clippy::type_complexity)]
    fn externalize(
        &self,
        py: Python<'_>,
        min_bytes: Option<u64>,
        all_tensors: bool,
        attributes: bool,
        sparse: bool,
    ) -> PyResult<(usize, u64, Vec<(String, u64, String)>)> {
        let options = externalizing(min_bytes, all_tensors, attributes).sparse(sparse);
        let report = self.rework(py, |container| container.externalize(options))?;
        Ok((report.moved, report.moved_bytes, kept(&report.kept)))
    }

    fn inline_functions(&self, py: Python<'_>, options: Inline) -> PyResult<Py<PyDict>> {
        let options = options.options()?;
        let report = self.rework(py, |container| container.inline_functions(options))?;
        Ok(inlined(py, &report)?.unbind())
    }

    /// One buffer with all tensors, which are slices of it from here on.
    fn consolidate(
        &self,
        py: Python<'_>,
        threshold: Option<u64>,
        alignment: Option<u64>,
        typed_fields: bool,
    ) -> PyResult<Bytes> {
        let mut options = ConsolidateOptions::new().typed_fields(typed_fields);
        if let Some(bytes) = threshold {
            options = options.raw_data_threshold(bytes);
        }
        if let Some(bytes) = alignment {
            options = options.alignment(Alignment::new(bytes).or_raise()?);
        }
        Ok(Bytes(self.rework(py, |container| container.consolidate(options))?))
    }

    fn fill(&self, py: Python<'_>, weights: Weights<'_>, options: Fill) -> PyResult<Py<PyDict>> {
        let ignored = options.ignored();
        let (options, raised) = options.options()?;
        let look_up = || Ok(by_name(&*self.now(py)?));
        let declared = Declared::new(&look_up, false).with_rules(&options, ignored);
        let weights = weights.convert(&declared)?;
        let report = self.rework(py, |container| container.fill(weights, options));
        Ok(filled(py, &raised.before(report)?)?.unbind())
    }

    /// Which of `weights` the tensors of the model are made of.
    fn match_weights(
        &self,
        py: Python<'_>,
        weights: Weights<'_>,
        min_elements: Option<u64>,
    ) -> PyResult<WeightMapping> {
        let look_up = || Ok(HashMap::new());
        let weights = weights.convert(&Declared::new(&look_up, false))?;
        let options = MatchOptions::new();
        let options = min_elements.map_or(options.clone(), |least| options.min_elements(least));
        self.read(py, |container| container.match_weights(weights, options)).map(WeightMapping)
    }

    fn fill_mapped(
        &self,
        py: Python<'_>,
        mapping: &WeightMapping,
        weights: Weights<'_>,
        options: Fill,
    ) -> PyResult<Py<PyDict>> {
        let (options, raised) = options.options()?;
        let look_up = || Ok(HashMap::new());
        let weights = weights.convert(&Declared::new(&look_up, false))?;
        let fill = |container: &mut Inner| container.fill_mapped(&mapping.0, weights, options);
        Ok(filled(py, &raised.before(self.rework(py, fill))?)?.unbind())
    }

    /// What the cast did.
    fn cast(&self, py: Python<'_>, to: i32, options: Cast) -> PyResult<CastFound> {
        let (to, options) = (dtype(to)?, options.options()?);
        Ok(cast_found(self.rework(py, |container| container.cast(to, options))?))
    }

    /// The digest of model and weights, or what parts make of it, and those of the tensors.
    #[pyo3(signature = (parts = None))]
    fn digest(&self, py: Python<'_>, parts: Option<Vec<String>>) -> PyResult<Digests> {
        self.read(py, |container| looks::digest(container, parts.as_deref()))
    }

    /// The digests of the tensors of a part, as JSON.
    fn partial_digest(&self, py: Python<'_>, part: usize, of: usize) -> PyResult<String> {
        self.read(py, |container| container.partial_digest(Part::new(part, of)?)?.to_json())
    }

    /// What is in the model, as JSON.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, looks::summary)
    }

    /// What the elements of the tensors with these names, or of all, are like; or those of a part.
    #[pyo3(signature = (names = None, part = None))]
    fn stats(
        &self,
        py: Python<'_>,
        names: Option<Vec<String>>,
        part: Option<(usize, usize)>,
    ) -> PyResult<String> {
        self.read(py, |container| looks::stats(container, names.as_deref(), looks::part(part)?))
    }

    /// What differs from another container, as JSON.
    fn compare(
        &self,
        py: Python<'_>,
        other: &Self,
        stats: bool,
        ignore_stored_digests: bool,
    ) -> PyResult<String> {
        let (other, options) = (other.now(py)?, looks::comparing(stats, ignore_stored_digests));
        self.read(py, |container| looks::compare(container, &other, &options))
    }

    fn semantic_digest(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.read(py, Inner::semantic_digest)?.to_string())
    }

    /// Where two models that do not compute the same part; None if they do.
    fn semantic_difference(&self, py: Python<'_>, other: &Self) -> PyResult<Option<String>> {
        let other = other.now(py)?;
        let found = self.read(py, |container| container.semantic_difference(&other))?;
        Ok(found.map(|difference| difference.to_string()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf, options: Save) -> PyResult<Py<PyDict>> {
        let ((options, raised), now) = (options.options()?, self.now(py)?);
        let result = interruptible(py, || now.save(path, options))?;
        Ok(saved(py, raised.or(result)?)?.unbind())
    }

    fn dry_run(&self, py: Python<'_>, path: PathBuf, options: Save) -> PyResult<Py<PyDict>> {
        let ((options, raised), now) = (options.options()?, self.now(py)?);
        let result = interruptible(py, || now.dry_run(path, options))?;
        Ok(saved(py, raised.or(result)?)?.unbind())
    }

    /// The bytes of the model and of each weights file, without writing any.
    fn to_parts(&self, py: Python<'_>, options: Save) -> PyResult<(Bytes, Vec<(String, Bytes)>)> {
        let ((options, raised), now) = (options.options()?, self.now(py)?);
        let parts = raised.or(interruptible(py, || now.to_parts(options))?)?;
        let files = parts.files.into_iter().map(|(name, bytes)| (name, Bytes(bytes)));
        Ok((Bytes(parts.model), files.collect()))
    }
}

/// The error of a container that was closed, as of a file that was.
fn closed() -> PyErr {
    PyValueError::new_err("the container is closed: Container.load(path) loads the model again")
}

/// Tensors that stay inline: name, bytes, reason.
pub fn kept(kept: &[Kept]) -> Vec<(String, u64, String)> {
    kept.iter().map(|it| (it.tensor.clone(), it.bytes, it.reason.to_string())).collect()
}

/// The weights of `tensor` in the shape that the model declares; those of a handle that have it
/// stay as they are, lazy ones too.
fn weights_of(tensor: &TensorRef<'_>) -> onnx_container::Result<onnx_container::Initializer> {
    match tensor.storage()? {
        TensorStorage::Handle { initializer, .. } if initializer.dims() == tensor.dims() => {
            Ok(initializer.clone())
        }
        _ => tensor.tensor().map(Into::into),
    }
}
