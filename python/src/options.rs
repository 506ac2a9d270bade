//! Keyword arguments as options of the library. Their names and defaults are in the Python methods,
//! which pass them all.

mod signing;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onnx_container::edit::{CastOptions, ExternalizeOptions, FillOptions, Tied};
use onnx_container::external_data::PathPolicy;
use onnx_container::inline::InlineOptions;
use onnx_container::job::SourceOptions;
use onnx_container::load::Limit;
use onnx_container::save::{Progress, ShardNames};
use onnx_container::{
    Alignment, DataType, Error, Limits, LoadOptions, MmapChoice, SaveOptions, WeightFiles,
};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::places::{Place, Reached};
pub use signing::{Sign, Verify};

/// The error for a `value` of the argument `name` that is not one of `those`.
fn none_of(name: &str, value: &str, those: &str) -> PyErr {
    PyValueError::new_err(format!("{name} is {value:?}, not one of {those}"))
}

/// Whether files are mapped.
#[allow(unsafe_code)]
pub fn mapping(mmap: bool) -> MmapChoice {
    if !mmap {
        return MmapChoice::never();
    }
    // SAFETY: the caller of the Python method asks for a map, whose documentation says that no
    // process may truncate or write to the files meanwhile.
    unsafe { MmapChoice::auto() }
}

/// Which links are followed.
pub fn policy(name: &str) -> PyResult<PathPolicy> {
    match name {
        "strict" => Ok(PathPolicy::Strict),
        "model-dirs" => Ok(PathPolicy::ModelDirs),
        "trusted" => Ok(PathPolicy::Trusted),
        other => Err(none_of("paths", other, "'strict', 'model-dirs', 'trusted'")),
    }
}

/// Limits by their names.
pub fn limits(given: &[(String, u64)]) -> PyResult<Limits> {
    given.iter().try_fold(Limits::new(), |limits, (name, most)| {
        let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name.replace('_', "-"));
        let known = || Limit::ALL.map(Limit::name).join(", ");
        let unknown =
            || PyValueError::new_err(format!("limits has no {name:?}, it has {}", known()));
        Ok(limits.with(limit.ok_or_else(unknown)?, *most))
    })
}

/// How the source of a rewrite is opened: which links are followed, and limits.
pub type Source = (String, Vec<(String, u64)>, bool);

pub fn source((paths, most, mmap): &Source) -> PyResult<SourceOptions> {
    Ok(SourceOptions::new().paths(policy(paths)?).limits(limits(most)?).mmap(mapping(*mmap)))
}

fn alignment(bytes: u64) -> PyResult<Alignment> {
    Alignment::new(bytes).or_raise()
}

/// An element type by its number in onnx.proto.
pub fn dtype(number: i32) -> PyResult<DataType> {
    DataType::try_from(number).or_raise()
}

/// How a model is loaded.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Load {
    mmap: bool,
    weights: bool,
    base_dir: Option<PathBuf>,
    model_path: Option<PathBuf>,
    paths: String,
    limits: Vec<(String, u64)>,
    no_copy: Option<bool>,
    alignment: Option<u64>,
    verify_digests: bool,
    reached: Reached,
}

impl Load {
    /// Where the model at a path or a URL is read.
    pub fn place(&self, path: PathBuf) -> PyResult<Place> {
        Place::new(path, &self.reached).or_raise()
    }

    /// Which links to weights files are followed.
    pub fn policy(&self) -> PyResult<PathPolicy> {
        policy(&self.paths)
    }

    /// What the model may hold.
    pub fn limits(&self) -> PyResult<Limits> {
        limits(&self.limits)
    }

    pub fn options(self) -> PyResult<LoadOptions> {
        let mut options = LoadOptions::new()
            .mmap(mapping(self.mmap))
            .weights(self.weights)
            .paths(policy(&self.paths)?)
            .limits(limits(&self.limits)?)
            .verify_digests(self.verify_digests);
        if let Some(folder) = self.base_dir {
            options = options.base_dir(folder);
        }
        if let Some(path) = self.model_path {
            options = options.model_path(path);
        }
        if let Some(no_copy) = self.no_copy {
            options = options.no_copy(no_copy);
        }
        if let Some(bytes) = self.alignment {
            options = options.alignment(alignment(bytes)?);
        }
        Ok(options)
    }
}

/// Which functions are inlined: names as `FunctionSelector` reads them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Inline {
    only: Option<Vec<String>>,
    except: Vec<String>,
    max_nodes: Option<u64>,
    refuse_conflicts: bool,
}

impl Inline {
    pub fn options(self) -> PyResult<InlineOptions> {
        let mut options = InlineOptions::new().except(self.except);
        if let Some(only) = self.only {
            options = options.only(only);
        }
        if let Some(max) = self.max_nodes {
            options = options.max_nodes(max);
        }
        Ok(options.refuse_conflicts(self.refuse_conflicts))
    }
}

/// Which tensors are moved out of the model.
pub fn externalizing(
    min_bytes: Option<u64>,
    all_tensors: bool,
    attributes: bool,
) -> ExternalizeOptions {
    let options = ExternalizeOptions::new().all_tensors(all_tensors).attributes(attributes);
    min_bytes.into_iter().fold(options, ExternalizeOptions::min_bytes)
}

/// How weights are put into a model.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Fill {
    rename: Vec<(String, String)>,
    rename_with: Option<Py<PyAny>>,
    strip_prefix: Option<String>,
    replace_prefix: Vec<(String, String)>,
    ignore: Vec<String>,
    partial: bool,
    strict: bool,
    tied: Option<String>,
}

impl Fill {
    /// The names of weights that are left out.
    pub fn ignored(&self) -> HashSet<String> {
        self.ignore.iter().cloned().collect()
    }

    /// The options, and where the exception is kept that ends the fill.
    pub fn options(self) -> PyResult<(FillOptions, Raised)> {
        let raised = Raised::default();
        let mut options = FillOptions::new().partial(self.partial).strict(self.strict);
        for (from, to) in self.rename {
            options = options.rename(from, to);
        }
        for name in self.ignore {
            options = options.ignore(name);
        }
        if let Some(function) = self.rename_with {
            let made = Made { function, names: Mutex::default(), raised: raised.clone() };
            options = options.rename_with(move |name| made.name(name));
        }
        for (from, to) in self.replace_prefix {
            options = options.replace_prefix(from, to);
        }
        if let Some(prefix) = self.strip_prefix {
            options = options.strip_prefix(prefix);
        }
        let options = match self.tied.as_deref() {
            None => options,
            Some("all") => options.tied(Tied::All),
            Some("this") => options.tied(Tied::This),
            Some(other) => return Err(none_of("tied", other, "'all', 'this'")),
        };
        Ok((options, raised))
    }
}

/// The names that a function of the caller makes. It is called once for each name, since it may
/// count its calls.
struct Made {
    function: Py<PyAny>,
    names: Mutex<HashMap<String, onnx_container::Result<String>>>,
    raised: Raised,
}

impl Made {
    /// The name that is made of `name`. What the function raises is the error.
    fn name(&self, name: &str) -> onnx_container::Result<String> {
        if let Some(made) = self.names().get(name) {
            return made.clone();
        }
        let made = self.call(name);
        self.names().insert(name.to_owned(), made.clone());
        made
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, onnx_container::Result<String>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, name: &str) -> onnx_container::Result<String> {
        if self.raised.is_set() {
            return Err(Error::other("the function that renames has ended the fill"));
        }
        let made = Python::try_attach(|py| {
            let made = self.function.call1(py, (name,))?.into_bound(py);
            made.extract::<String>().map_err(|_| {
                PyTypeError::new_err(format!(
                    "rename returned {made:?} for {name:?}, which is no name"
                ))
            })
        });
        let made = made.ok_or_else(|| Error::other("the interpreter has ended"))?;
        made.map_err(|error| {
            self.raised.set_if_it_ends_the_program(&error);
            Error::other(error)
        })
    }
}

/// Which weights are cast.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Cast {
    from_: Option<i32>,
    min_bytes: Option<u64>,
    except_: Vec<String>,
    compute: bool,
    keep_io: bool,
    keep_ops: Vec<String>,
}

impl Cast {
    pub fn options(self) -> PyResult<CastOptions> {
        let options = CastOptions::new().except(self.except_).compute(self.compute);
        let mut options = options.keep_io(self.keep_io).keep_ops(self.keep_ops);
        if let Some(from) = self.from_ {
            options = options.from_dtype(dtype(from)?);
        }
        if let Some(bytes) = self.min_bytes {
            options = options.min_bytes(bytes);
        }
        Ok(options)
    }
}

/// How a model is saved.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Save {
    files: String,
    max_shard_bytes: Option<u64>,
    shard_names: String,
    data_name: Option<String>,
    data_suffix: Option<String>,
    externalize: bool,
    threshold: Option<u64>,
    alignment: Option<u64>,
    alignment_large: Option<u64>,
    dedup: bool,
    inline: Option<Inline>,
    digests: bool,
    checksums: bool,
    max_model_bytes: Option<u64>,
    max_bytes_in_flight: Option<u64>,
    sync: bool,
    direct_io: bool,
    overwrite: bool,
    remove_superseded: bool,
    protect: Vec<PathBuf>,
    progress: Option<Py<PyAny>>,
}

impl Save {
    /// The options, and where the exception is kept that ends the save.
    pub fn options(self) -> PyResult<(SaveOptions, Raised)> {
        let raised = Raised::default();
        let mut options = SaveOptions::new()
            .weight_files(weight_files(&self.files, self.max_shard_bytes)?)
            .shard_names(shard_names(&self.shard_names)?)
            .externalize(self.externalize)
            .dedup(self.dedup)
            .digests(self.digests)
            .checksums(self.checksums)
            .max_model_bytes(self.max_model_bytes)
            .sync(self.sync)
            .direct_io(self.direct_io)
            .overwrite(self.overwrite)
            .remove_superseded(self.remove_superseded)
            .protect(self.protect)
            .progress(raised.report(self.progress));
        if let Some(name) = self.data_name {
            options = options.data_name(name);
        }
        if let Some(suffix) = self.data_suffix {
            options = options.data_suffix(suffix);
        }
        if let Some(bytes) = self.threshold {
            options = options.raw_data_threshold(bytes);
        }
        if let Some(bytes) = self.alignment {
            options = options.alignment(alignment(bytes)?);
        }
        if let Some(bytes) = self.alignment_large {
            options = options.alignment_large(alignment(bytes)?);
        }
        if let Some(bytes) = self.max_bytes_in_flight {
            options = options.max_bytes_in_flight(bytes);
        }
        if let Some(inline) = self.inline {
            options = options.inline_with(inline.options()?);
        }
        Ok((options, raised))
    }
}

fn weight_files(files: &str, max_bytes: Option<u64>) -> PyResult<WeightFiles> {
    let found = match files {
        "packed" => WeightFiles::Packed,
        "per-tensor" => WeightFiles::PerTensor,
        "safetensors" => WeightFiles::Safetensors,
        "embedded" => WeightFiles::Embedded,
        "as-loaded" => WeightFiles::AsLoaded,
        other => {
            let those = "'packed', 'per-tensor', 'safetensors', 'embedded', 'as-loaded'";
            return Err(none_of("files", other, those));
        }
    };
    match (found, max_bytes) {
        (found, None) => Ok(found),
        (WeightFiles::Packed, Some(max_bytes)) => Ok(WeightFiles::Sharded { max_bytes }),
        _ => Err(PyValueError::new_err("max_shard_bytes is for files=\"packed\"")),
    }
}

fn shard_names(names: &str) -> PyResult<ShardNames> {
    match names {
        "numbered" => Ok(ShardNames::Numbered),
        "transformers-js" => Ok(ShardNames::TransformersJs),
        other => Err(none_of("shard_names", other, "'numbered', 'transformers-js'")),
    }
}

/// The exception of the caller's callback that ended some work.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// What a save calls while it writes: `callback(done, total)`, with bytes, which cancels the
    /// save by returning False or raising.
    pub fn report(
        &self,
        callback: Option<Py<PyAny>>,
    ) -> impl Fn(Progress) -> ControlFlow<()> + use<> {
        let raised = self.clone();
        move |progress| {
            let Some(callback) = &callback else { return ControlFlow::Continue(()) };
            let goes_on = Python::try_attach(|py| {
                let said = callback.call1(py, (progress.done, progress.total))?;
                Ok(said.is_none(py) || said.is_truthy(py)?)
            });
            match goes_on.unwrap_or(Ok(false)) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    raised.lock().get_or_insert(error);
                    ControlFlow::Break(())
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    /// Keeps `error` if it is one that ends the program, such as that of Ctrl-C: among the errors
    /// of other weights it would not be seen.
    fn set_if_it_ends_the_program(&self, error: &PyErr) {
        let copy = Python::try_attach(|py| {
            (!error.is_instance_of::<PyException>(py)).then(|| error.clone_ref(py))
        });
        if let Some(Some(error)) = copy {
            self.lock().get_or_insert(error);
        }
    }

    /// `result`, or what was raised meanwhile.
    pub fn before<T>(&self, result: PyResult<T>) -> PyResult<T> {
        let raised = self.lock().take();
        match (result, raised) {
            (Err(_), Some(raised)) => Err(raised),
            (result, _) => result,
        }
    }

    /// `result`, or what was raised meanwhile.
    pub fn or<T>(&self, result: onnx_container::Result<T>) -> PyResult<T> {
        self.before(result.or_raise())
    }
}
