//! [`Weights`]: objects of Python as initializers, many at a time.
//!
//! Models may have tens of thousands of tensors, so arrays of numpy that are written as they are in
//! memory are converted here. All others are rarer, or cost more by themselves:
//! `onnx_container._convert` converts them.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use onnx_container::edit::FillOptions;
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::{Buffer, Container, DataType, Initializer as Inner, Tensor, traversal};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::bytes::row_major;
use crate::error::OrRaise;
use crate::initializer::Initializer;

/// The type and the dimensions of a tensor, as a model declares them.
pub type Declaration = (i32, Vec<i64>);

/// What a model declares for its external tensors, by location. It is looked up when it is first
/// needed.
pub struct Declared<'a> {
    all: OnceCell<HashMap<String, Declaration>>,
    look_up: &'a dyn Fn() -> PyResult<HashMap<String, Declaration>>,
    /// Whether weights for which nothing is declared are left out.
    only: bool,
    /// The rules by which a name of weights becomes that of a tensor.
    rules: Option<&'a FillOptions>,
    /// The names of weights that those rules leave out.
    ignored: HashSet<String>,
}

impl<'a> Declared<'a> {
    pub fn new(
        look_up: &'a dyn Fn() -> PyResult<HashMap<String, Declaration>>,
        only: bool,
    ) -> Self {
        Self { all: OnceCell::new(), look_up, only, rules: None, ignored: HashSet::new() }
    }

    /// Looks weights up by the tensors that `rules` send them to; those called `ignored` are not
    /// looked at.
    pub fn with_rules(self, rules: &'a FillOptions, ignored: HashSet<String>) -> Self {
        Self { rules: Some(rules), ignored, ..self }
    }

    fn get(&self, name: &str) -> PyResult<Option<&Declaration>> {
        let all = match self.all.get() {
            Some(all) => all,
            None => {
                let found = (self.look_up)()?;
                self.all.get_or_init(|| found)
            }
        };
        let Some(rules) = self.rules else { return Ok(all.get(name)) };
        let names = rules.tensors_of(name).or_raise()?;
        Ok(names.iter().find_map(|name| all.get(name.as_ref())))
    }

    /// Whether the rules leave out weights called `name`.
    fn is_ignored(&self, name: &str) -> bool {
        self.ignored.contains(name)
    }
}

/// Weights by name or handle; how arrays are told, where numpy is in use; and what converts all
/// others.
#[derive(FromPyObject)]
pub struct Weights<'py>(Bound<'py, PyDict>, Option<Arrays<'py>>, Bound<'py, PyAny>);

/// numpy's class of arrays, and the numbers of the element types by numpy's names for them.
#[derive(FromPyObject)]
struct Arrays<'py>(Bound<'py, PyType>, Bound<'py, PyDict>);

impl Weights<'_> {
    /// All weights. Those without a type of their own, such as bytes, have that which is declared
    /// for their name. An object that is given several times is one weight.
    pub fn convert(&self, declared: &Declared<'_>) -> PyResult<Vec<(String, Inner)>> {
        let Self(given, arrays, other) = self;
        let mut others = Others { other, declared, done: HashMap::new() };
        let mut all = Vec::with_capacity(given.len());
        // Listed first: what converts the others runs code that may change the dict.
        let given: Vec<_> = given.iter().collect();
        for (name, weights) in given {
            let name: String = name.extract()?;
            if declared.only && declared.get(&name)?.is_none() {
                continue;
            }
            if declared.is_ignored(&name) {
                // Named, so that the rule counts as one with an effect, and not looked at.
                let nothing = Tensor::new(DataType::Uint8, [0], Buffer::default()).or_raise()?;
                all.push((name, nothing.into()));
                continue;
            }
            let array = arrays.as_ref().map_or(Ok(None), |arrays| arrays.convert(&weights))?;
            let found = array.map_or_else(|| others.convert(&name, weights), Ok)?;
            all.push((name, found));
        }
        Ok(all)
    }
}

impl Arrays<'_> {
    /// The elements of `weights` where they are; None if it is no array, or one that has to be
    /// converted first.
    fn convert(&self, weights: &Bound<'_, PyAny>) -> PyResult<Option<Inner>> {
        let Self(class, numbers) = self;
        // One of another class may be a masked array, which has elements that are not there.
        let is_array = weights.get_type().is(class)
            || weights.is_instance(class)? && !weights.hasattr("mask")?;
        if !is_array {
            return Ok(None);
        }
        let py = weights.py();
        let name = weights.getattr(intern!(py, "dtype"))?;
        let Some(number) = numbers.get_item(name)? else { return Ok(None) };
        let dtype = DataType::try_from(number.extract::<i32>()?).or_raise()?;
        let dims: Vec<i64> = weights.getattr(intern!(py, "shape"))?.extract()?;
        // Of an array without dimensions there is no view that has a shape.
        let memory = if dims.is_empty() { None } else { memory(weights, dtype)? };
        let tensor = memory.map(|memory| Tensor::new(dtype, dims, memory).or_raise());
        Ok(tensor.transpose()?.map(Inner::from))
    }
}

/// The memory of an array, where it is in row-major order. An array of a type that ml_dtypes adds
/// to numpy shows its memory by a view of bytes alone.
fn memory(array: &Bound<'_, PyAny>, dtype: DataType) -> PyResult<Option<onnx_container::Buffer>> {
    use DataType::*;
    let added = [Bfloat16, Float8E4M3Fn, Float8E4M3Fnuz, Float8E5M2, Float8E5M2Fnuz, Float8E8M0];
    if !added.contains(&dtype) {
        return row_major(array);
    }
    let flags = array.getattr(intern!(array.py(), "flags"))?;
    if !flags.getattr(intern!(array.py(), "c_contiguous"))?.is_truthy()? {
        return Ok(None);
    }
    row_major(&array.call_method1(intern!(array.py(), "view"), ("uint8",))?)
}

/// What Python code converts.
struct Others<'a, 'py> {
    other: &'a Bound<'py, PyAny>,
    declared: &'a Declared<'a>,
    /// What was converted, with the object, whose address is not that of another one while it
    /// lives.
    done: HashMap<(usize, Option<Declaration>), (Inner, Bound<'py, PyAny>)>,
}

impl<'py> Others<'_, 'py> {
    fn convert(&mut self, name: &str, weights: Bound<'py, PyAny>) -> PyResult<Inner> {
        let declared = self.declared.get(name)?;
        let key = (weights.as_ptr().addr(), declared.cloned());
        if let Some((found, _)) = self.done.get(&key) {
            return Ok(found.clone());
        }
        let declared = match declared {
            Some((dtype, dims)) => Some((*dtype, PyTuple::new(weights.py(), dims)?)),
            None => None,
        };
        let found = self.other.call1((&weights, declared)).map_err(|error| named(error, name))?;
        let found = found.cast::<Initializer>()?.get().0.clone();
        self.done.insert(key, (found.clone(), weights));
        Ok(found)
    }
}

/// An error of what was given, with the name that it was given for.
fn named(error: PyErr, name: &str) -> PyErr {
    Python::attach(|py| {
        if error.is_instance_of::<crate::error::Error>(py) {
            let value = error.value(py);
            let text = format!("tensor `{name}`: {value}");
            // Of the library: it knows of no name where bytes are made weights.
            let is_nameless = value.getattr("tensor").is_ok_and(|tensor| tensor.is_none());
            if is_nameless && value.setattr("args", (text,)).is_ok() {
                return value.setattr("tensor", name).err().unwrap_or(error);
            }
            return error;
        }
        if !error.get_type(py).is(py.get_type::<PyTypeError>()) {
            return error;
        }
        let named = PyTypeError::new_err(format!("{name:?}: {}", error.value(py)));
        named.set_cause(py, Some(error));
        named
    })
}

/// What the model of `container` declares for its tensors, by their names.
pub fn by_name(container: &Container) -> HashMap<String, Declaration> {
    let each = container.tensors().map(|tensor| {
        let proto = tensor.proto();
        (tensor.name().to_owned(), (proto.data_type.unwrap_or_default(), proto.dims.to_vec()))
    });
    each.collect()
}

/// What the model of `container` declares for its external tensors.
pub fn declarations(container: &Container) -> PyResult<HashMap<String, Declaration>> {
    let external = traversal::iter(container.model()).map(|(_, tensor)| tensor);
    let external = external.filter(|tensor| is_external(tensor));
    let declared = external.map(|tensor| {
        let location = ExternalData::parse(tensor)?.location;
        Ok((location, (tensor.data_type.unwrap_or_default(), tensor.dims.to_vec())))
    });
    declared.collect::<onnx_container::Result<_>>().or_raise()
}
