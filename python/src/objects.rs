//! [`Objects`]: a store of Python (an obstore store or an fsspec filesystem) as one of
//! object_store.
//!
//! `_stores.py` gives both the same few methods; this calls them on threads for what blocks, each
//! call under the interpreter lock. A long object is one call, which takes the parts from an
//! iterator as they are sent.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use chrono::DateTime;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use onnx_container::Buffer;
use onnx_container::bytes::Bytes;
use onnx_container_store::object_store::path::Path;
use onnx_container_store::object_store::{
    Attribute, Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyNotImplementedError, PyPermissionError,
    PyRuntimeError,
};
use pyo3::prelude::*;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::bytes::{Bytes as Shared, buffer};

/// A store of Python.
#[derive(Clone)]
pub struct Objects {
    /// An object with the methods of `_stores.Objects`.
    python: Arc<Py<PyAny>>,
    /// What errors call the store.
    root: String,
}

/// An object as Python tells of it: path, length, tag, version, seconds since 1970.
type Told = (String, u64, Option<String>, Option<String>, f64);
/// What a call that wrote an object returns: tag and version.
type Wrote = (Option<String>, Option<String>);

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.root).finish()
    }
}

impl Objects {
    pub fn new(python: Py<PyAny>, root: String) -> Self {
        Self { python: Arc::new(python), root }
    }

    /// Calls `work` with the store of Python, on a thread that may block.
    async fn call<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T> {
        let (this, key) = (self.clone(), key.to_owned());
        let called = spawn_blocking(move || this.call_now(&key, work)).await;
        called.unwrap_or_else(|ended| Err(generic(ended.to_string())))
    }

    fn call_now<T>(
        &self,
        key: &str,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        let called = Python::try_attach(|py| {
            work(self.python.bind(py)).map_err(|error| said(py, key, &error))
        });
        called.unwrap_or_else(|| Err(generic("the interpreter has ended".to_owned())))
    }

    fn cannot(&self, operation: &str) -> Error {
        Error::NotImplemented { operation: operation.to_owned(), implementer: self.root.clone() }
    }
}

fn generic(reason: String) -> Error {
    Error::Generic { store: "Python", source: reason.into() }
}

/// What a store of Python raised. obstore has classes of its own beside those of Python.
fn said(py: Python<'_>, key: &str, error: &PyErr) -> Error {
    let text = error.to_string();
    // obstore adds the insides of its error.
    let text = text.split("\n\nDebug source").next().unwrap_or_default();
    let (path, source) = (key.to_owned(), text.to_owned().into());
    let class = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    match class.as_str() {
        "NotFoundError" => Error::NotFound { path, source },
        "AlreadyExistsError" => Error::AlreadyExists { path, source },
        "PreconditionError" => Error::Precondition { path, source },
        "PermissionDeniedError" => Error::PermissionDenied { path, source },
        "UnauthenticatedError" => Error::Unauthenticated { path, source },
        "NotSupportedError" => Error::NotSupported { source },
        _ if error.is_instance_of::<PyFileNotFoundError>(py) => Error::NotFound { path, source },
        _ if error.is_instance_of::<PyFileExistsError>(py) => Error::AlreadyExists { path, source },
        _ if error.is_instance_of::<PyPermissionError>(py) => {
            Error::PermissionDenied { path, source }
        }
        _ if error.is_instance_of::<PyNotImplementedError>(py) => Error::NotSupported { source },
        _ => Error::Generic { store: "Python", source },
    }
}

fn meta((path, size, e_tag, version, modified): Told) -> Result<ObjectMeta> {
    // Microseconds of any time that a store tells are a number of this type.
    #[allow(clippy::cast_possible_truncation, reason = "as said")]
    let last_modified = DateTime::from_timestamp_micros((modified * 1e6) as i64);
    let last_modified = last_modified.unwrap_or_default();
    let location = Path::parse(path)?;
    Ok(ObjectMeta { location, last_modified, size, e_tag, version })
}

fn written((e_tag, version): Wrote) -> PutResult {
    PutResult { e_tag, version, extensions: Default::default() }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let key = location.to_string();
        let wrote = self.call(location.as_ref(), move |store| {
            let (mode, update) = match options.mode {
                PutMode::Overwrite => ("overwrite", None),
                PutMode::Create => ("create", None),
                PutMode::Update(version) => ("update", Some((version.e_tag, version.version))),
            };
            let bytes = shared(payload.into());
            store.call_method1("put", (key, bytes, mode, update))?.extract::<Wrote>()
        });
        wrote.await.map(written)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (store, key) = (self.clone(), location.to_string());
        Ok(Box::new(Upload { store, key, failed: Arc::default(), running: None }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match options.range {
            None => None,
            Some(GetRange::Bounded(range)) => Some((range.start, range.end)),
            Some(_) => return Err(self.cannot("a range without an end")),
        };
        let (key, head, if_match) = (location.to_string(), options.head, options.if_match);
        let answer = self.call(location.as_ref(), move |store| {
            if head {
                let told: Told = store.call_method1("head", (key,))?.extract()?;
                return Ok((told, (0, 0), None, Bytes::new()));
            }
            let answer = store.call_method1("get", (key, range, if_match))?;
            let (told, range, encoding, body): (_, _, _, Bound<'_, PyAny>) = answer.extract()?;
            Ok((told, range, encoding, Bytes::from_owner(buffer(&body)?)))
        });
        let (told, (start, end), encoding, body): (Told, (u64, u64), Option<String>, Bytes) =
            answer.await?;
        let mut attributes = Attributes::new();
        if let Some(encoding) = encoding {
            attributes.insert(Attribute::ContentEncoding, encoding.into());
        }
        let payload = GetResultPayload::Stream(stream::iter([Ok(body)]).boxed());
        let (meta, range) = (meta(told)?, start..end);
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |location: Path| {
            let (this, key) = (this.clone(), location.to_string());
            async move {
                let work =
                    |store: &Bound<'_, PyAny>| store.call_method1("delete", (key,)).map(drop);
                this.call(location.as_ref(), work).await.map(|()| location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.map(Path::to_string).unwrap_or_default());
        let listed = async move {
            let key = prefix.clone();
            let work = move |store: &Bound<'_, PyAny>| {
                store.call_method1("listed", (prefix,))?.extract::<Vec<Told>>()
            };
            let listed = this.call(&key, work).await?;
            Ok::<_, Error>(stream::iter(listed.into_iter().map(meta)))
        };
        listed.into_stream().try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(Path::to_string).unwrap_or_default();
        let key = prefix.clone();
        let listed = self.call(&key, move |store| {
            let listed = store.call_method1("folder", (prefix,))?;
            listed.extract::<(Vec<Told>, Vec<String>)>()
        });
        let (objects, folders) = listed.await?;
        let objects = objects.into_iter().map(meta).collect::<Result<_>>()?;
        let folders = folders.into_iter().map(|path| Ok(Path::parse(path)?));
        let common_prefixes = folders.collect::<Result<_>>()?;
        Ok(ListResult { objects, common_prefixes, extensions: Default::default() })
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(self.cannot("a copy"))
    }
}

/// Bytes of a store as Python takes them, without a copy.
fn shared(bytes: Bytes) -> Shared {
    Shared(Buffer::from_owner(bytes))
}

/// A long object that is being written.
#[derive(Debug)]
struct Upload {
    store: Objects,
    key: String,
    /// Why the call ended early.
    failed: Arc<Mutex<Option<Error>>>,
    running: Option<(Sender<Step>, JoinHandle<Option<Wrote>>)>,
}

enum Step {
    /// Bytes, and who waits until they are taken.
    Part(Bytes, oneshot::Sender<()>),
    End,
}

impl Upload {
    /// Begins the call that writes the object in parts of `part` bytes.
    fn begin(&self, part: usize) -> (Sender<Step>, JoinHandle<Option<Wrote>>) {
        let (sender, steps) = channel();
        let (store, key, failed) = (self.store.clone(), self.key.clone(), self.failed.clone());
        let call = spawn_blocking(move || {
            let wrote = store.call_now(&key, |python| {
                let parts = Bound::new(python.py(), Parts(Mutex::new(Some(steps))))?;
                let wrote = python.call_method1("put_parts", (&key, &parts, part));
                let wrote = wrote.and_then(|wrote| wrote.extract::<Wrote>());
                if let Err(error) = &wrote {
                    let reason = said(python.py(), &key, error);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
                }
                // A traceback may keep the iterator, and so those who wait for their parts.
                parts.get().close();
                Ok(wrote.ok())
            });
            wrote.ok().flatten()
        });
        (sender, call)
    }

    fn reason(failed: &Mutex<Option<Error>>) -> Error {
        let reason = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        reason.unwrap_or_else(|| generic("the object was not written to its end".to_owned()))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (taken, is_taken) = oneshot::channel();
        let running = match self.running.take() {
            Some(running) => running,
            None => self.begin(data.content_length()),
        };
        // Where the call has ended, the part is dropped with who waits for it.
        let _ = running.0.send(Step::Part(data.into(), taken));
        self.running = Some(running);
        let failed = Arc::clone(&self.failed);
        async move { is_taken.await.map_err(|_| Self::reason(&failed)) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some((sender, call)) = self.running.take() else {
            return Err(generic("an object in parts has none".to_owned()));
        };
        let _ = sender.send(Step::End);
        match call.await {
            Ok(Some(wrote)) => Ok(written(wrote)),
            _ => Err(Self::reason(&self.failed)),
        }
    }

    async fn abort(&mut self) -> Result<()> {
        if let Some((sender, call)) = self.running.take() {
            // The iterator raises, so that the call ends.
            drop(sender);
            let _ = call.await;
        }
        Ok(())
    }
}

/// The parts of an object as an iterator of Python.
#[pyclass(frozen, module = "onnx_container._core")]
struct Parts(Mutex<Option<Receiver<Step>>>);

impl Parts {
    /// Drops the parts that were not taken, with those who wait for it.
    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[pymethods]
impl Parts {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Shared>> {
        let next = || {
            let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            steps.as_ref().and_then(|steps| steps.recv().ok())
        };
        match py.detach(next) {
            Some(Step::Part(bytes, taken)) => {
                let _ = taken.send(());
                Ok(Some(shared(bytes)))
            }
            Some(Step::End) => Ok(None),
            None => Err(PyRuntimeError::new_err("the rest of the object is not to be written")),
        }
    }
}
