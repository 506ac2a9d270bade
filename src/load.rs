//! [`Container::load`]: from files, or bytes, to a container.
//!
//! The model is decoded without copying its payloads; every weights file is opened once, beneath the
//! model's directory, and every external tensor becomes a handle on its byte range. All faults of a
//! model are reported together. The check that model and weights come from the same save is left to
//! `one_save`.

mod options;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use options::LoadOptions;

use crate::buffer::Buffer;
use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
pub(crate) use crate::external_data::directory_of;
use crate::external_data::{self, Directory, ExternalData, is_external, is_handle, without_dots};
use crate::file_format::{failed_download, known_format};
use crate::initializer::Initializer;
use crate::one_save::read_one_save;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::traversal::{self, Place, Position};
use crate::wire::{DecodeOptions, Message};

impl Container {
    /// Loads the model at `path` with its weights.
    ///
    /// Every external tensor becomes a handle named after it: `#encoder.w`. Tensors of one byte
    /// range share a handle when dtype and dims agree, and share the bytes in any case.
    ///
    /// ```no_run
    /// use onnx_container::{Container, MmapChoice};
    ///
    /// // SAFETY: nobody writes to or truncates these files while they are mapped.
    /// let container = Container::load("model.onnx", unsafe { MmapChoice::auto() })?;
    /// for (handle, weight) in container.iter() {
    ///     println!("{handle} {} {:?}", weight.dtype(), weight.dims());
    /// }
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// When a [`save`](Self::save) replaces the model during the load, the model is read again, so that
    /// graph and weights come from the same save.
    ///
    /// # Errors
    /// One error for all tensors whose file is missing, whose entries, path, range, dtype or dims are
    /// not valid, or whose handle was not supplied; see [`ErrorKind`]. [`ErrorKind::Decode`] when the
    /// file is not a model, [`ErrorKind::InvalidArgument`] when it is not a regular file,
    /// [`ErrorKind::Changed`] when it is replaced again and again.
    pub fn load(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Self> {
        let (path, mut options) = (path.as_ref(), options.into());
        if options.base_dir.is_none() {
            options.base_dir = Some(directory_of(path));
        }
        let loaded = read_one_save(path, options.mmap, |bytes| Self::from_model(&bytes, &options));
        // An error about a weights file already has that file's path, which is kept.
        loaded.map_err(|error| error.with_path(path))
    }

    /// Loads a model from memory, borrowing from `bytes`. Weights come from [`LoadOptions::base_dir`]
    /// or are supplied by [`LoadOptions::file`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_bytes(bytes: impl Into<Buffer>, options: impl Into<LoadOptions>) -> Result<Self> {
        Self::from_model(&bytes.into(), &options.into())
    }

    fn from_model(bytes: &Buffer, options: &LoadOptions) -> Result<Self> {
        let mut container = Self::new(decode_model(bytes, &options.decode)?);
        if options.weights {
            container.load_weights(options)?;
        }
        Ok(container)
    }

    /// Loads the weights of a container that was loaded without them, from `directory` (often not
    /// the one that the model came from).
    ///
    /// Handles that already have an initializer keep it.
    ///
    /// ```no_run
    /// use onnx_container::{Container, LoadOptions, MmapChoice};
    ///
    /// let mut container = Container::load("model.onnx", LoadOptions::new().weights(false))?;
    /// // ... look at the structure, decide, fetch the weights ...
    /// container.attach("/data/weights", MmapChoice::never())?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`load`](Self::load); the container is then unchanged.
    pub fn attach(
        &mut self,
        directory: impl Into<PathBuf>,
        options: impl Into<LoadOptions>,
    ) -> Result<()> {
        self.load_weights(&options.into().base_dir(directory))
    }

    /// Turns every external entry into a handle and its initializer.
    fn load_weights(&mut self, options: &LoadOptions) -> Result<()> {
        let mut resolver = Resolver::new(self, options)?;
        traversal::tensors(&self.model, |place, tensor| {
            resolver.tensor(place, tensor);
            Ok(())
        })?;
        let Resolved { handles, found, warnings } = resolver.finish()?;
        self.initializers.extend(found);
        self.warnings.extend(warnings);
        self.set_handles(handles)
    }

    fn set_handles(&mut self, mut handles: HashMap<Position, Handle>) -> Result<()> {
        traversal::tensors_mut(&mut self.model, |place, tensor| {
            if let Some(handle) = handles.remove(&place.position) {
                external_data::set_handle(tensor, handle.as_str());
            }
            Ok(())
        })?;
        match handles.len() {
            0 => Ok(()),
            left => Err(Error::internal(format!("{left} tensors were not met again"))),
        }
    }
}

/// Decodes a model. When it fails and the bytes are recognized as something else, the error names that.
pub(crate) fn decode_model(bytes: &Buffer, options: &DecodeOptions) -> Result<ModelProto> {
    if let Some(what) = failed_download(bytes) {
        return Err(Error::new(ErrorKind::Decode, what));
    }
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::Decode, "the file is empty"));
    }
    ModelProto::decode_with(bytes, options).map_err(|error| error.because(&not_a_model(bytes)))
}

/// The most likely reason why `bytes` are not a model.
fn not_a_model(bytes: &[u8]) -> String {
    match (known_format(bytes), needed(bytes)) {
        (Some(format), _) => format!("{format}, not an ONNX model"),
        (None, Some(needed)) => {
            format!("cut off: {} bytes, at least {needed} needed", bytes.len())
        }
        (None, None) => "not an ONNX model, or cut off or damaged".to_owned(),
    }
}

/// The least length in bytes of the model that `bytes` is the beginning of, when all outermost fields
/// are fields of a model and the last one ends beyond `bytes`. The graph, which is most of a model, is
/// one field.
fn needed(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let field = ModelProto::FIELDS.iter().find(|field| u64::from(field.number) == tag >> 3)?;
        let value = usize::try_from(varint(bytes, &mut at)?).ok()?;
        match (tag & 7, field.kind) {
            (0, "int64") => {}
            (2, kind) if kind != "int64" => at = at.checked_add(value)?,
            _ => return None,
        }
    }
    Some(at).filter(|end| *end > bytes.len())
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A byte range of a weights file with a type and shape. Tensors with equal entries share a handle.
#[derive(PartialEq, Eq, Hash)]
struct Entry {
    file: usize,
    offset: u64,
    len: u64,
    dtype: DataType,
    dims: Vec<i64>,
}

/// A weights file, and the tensors that it is too short for.
struct OpenFile {
    bytes: Buffer,
    path: PathBuf,
    cut_off: Option<CutOff>,
}

/// The first tensor whose data end beyond the file, the number of such tensors, and the file length
/// that they need.
struct CutOff {
    tensor: String,
    range: Range<u64>,
    needed: u64,
    count: usize,
}

/// The handles and initializers of the external tensors of a model.
struct Resolved {
    handles: HashMap<Position, Handle>,
    found: Vec<(Handle, Initializer)>,
    warnings: Vec<Error>,
}

/// Resolves the external tensors of one model, each file once.
struct Resolver<'a> {
    options: &'a LoadOptions,
    directory: Option<Directory>,
    known: &'a HashMap<Handle, Initializer>,
    names: HandleNames,
    files: Vec<OpenFile>,
    /// By location: the index in `files`, or `None` for a file that could not be opened and was
    /// reported.
    opened: BTreeMap<String, Option<usize>>,
    shared: HashMap<Entry, Handle>,
    resolved: Resolved,
    errors: Vec<Error>,
}

impl<'a> Resolver<'a> {
    fn new(container: &'a Container, options: &'a LoadOptions) -> Result<Self> {
        let resolved =
            Resolved { handles: HashMap::new(), found: Vec::new(), warnings: Vec::new() };
        Ok(Self {
            options,
            directory: options.base_dir.as_deref().map(Directory::open).transpose()?,
            known: &container.initializers,
            names: HandleNames::with(container.initializers.keys()),
            files: Vec::new(),
            opened: BTreeMap::new(),
            shared: HashMap::new(),
            resolved,
            errors: Vec::new(),
        })
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        if !is_external(tensor) {
            return;
        }
        match self.external(place, tensor) {
            Ok(Some(handle)) => {
                self.resolved.handles.insert(place.position, handle);
            }
            Ok(None) => {}
            Err(error) => self.errors.push(error.with_tensor(place.qualified_name(tensor))),
        }
    }

    /// Everything that was found, or one error for all that was wrong.
    fn finish(mut self) -> Result<Resolved> {
        for file in self.files {
            if let Some(CutOff { tensor, range, needed, count }) = file.cut_off {
                let (path, format) = (file.path, known_format(&file.bytes));
                let len = u64::try_from(file.bytes.len()).map_err(Error::internal)?;
                let error = external_data::cut_off(path, format, len, needed, &range, count);
                self.errors.push(error.with_tensor(tensor));
            }
        }
        Error::join(self.errors).map_or(Ok(self.resolved), Err)
    }

    /// The tensor's new handle; `None` when it keeps its handle, or when the fault of its file is
    /// reported once for all its tensors.
    fn external(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<Option<Handle>> {
        let data = ExternalData::parse(tensor)?;
        if self.known.contains_key(data.location.as_str()) {
            return Ok(None);
        }
        let (dtype, len) = external_data::layout(tensor)?;
        let range = data.range(len)?;
        if let Some(key) = data.unknown_keys.first() {
            let reason = format!("unknown external data key `{key}`, which onnxruntime refuses");
            self.warn(ErrorKind::InvalidModel, reason, place, tensor);
        }
        let Some(file) = self.open(&data.location)? else { return Ok(None) };
        let entry = Entry { file, offset: range.start, len, dtype, dims: tensor.dims.clone() };
        if let Some(handle) = self.shared.get(&entry) {
            return Ok(Some(handle.clone()));
        }
        let Some(bytes) = self.slice(file, &range, place, tensor)? else { return Ok(None) };
        let bytes = self.options.decode.place(bytes)?;
        let handle = self.names.name(place, tensor);
        let initializer = Tensor::new(dtype, tensor.dims.clone(), bytes)?.into();
        self.resolved.found.push((handle.clone(), initializer));
        self.shared.insert(entry, handle.clone());
        Ok(Some(handle))
    }

    fn warn(&mut self, kind: ErrorKind, reason: String, place: &Place<'_>, tensor: &TensorProto) {
        let warning = Error::new(kind, reason).with_tensor(place.qualified_name(tensor));
        self.resolved.warnings.push(warning);
    }

    /// The index in `files` of the file at `location`; `None` when it could not be opened, which was
    /// reported before.
    fn open(&mut self, location: &str) -> Result<Option<usize>> {
        let name = without_dots(location);
        if let Some(number) = self.opened.get(&name) {
            return Ok(*number);
        }
        // Entered before the file is opened, so that a missing file is reported once and not for
        // each tensor.
        self.opened.insert(name.clone(), None);
        let bytes = self.bytes_of(location, &name)?;
        let number = self.files.len();
        self.files.push(OpenFile { bytes, path: self.path(location), cut_off: None });
        self.opened.insert(name, Some(number));
        Ok(Some(number))
    }

    /// The bytes of the file at `location`, whose `name` is the same without `.` components.
    fn bytes_of(&self, location: &str, name: &str) -> Result<Buffer> {
        if !is_handle(location) {
            external_data::check_location(location)
                .map_err(|e| e.with_path(self.path(location)))?;
        }
        let bytes = if let Some(bytes) = self.options.files.get(name) {
            bytes.clone()
        } else if is_handle(location) {
            let reason = format!("unresolved handle `{location}`: it names memory, not a file");
            return Err(Error::new(ErrorKind::MissingHandle, reason));
        } else if let Some(directory) = &self.directory {
            let path = directory.join(location);
            self.options.mmap.open(&directory.open_file(location)?, &path)?
        } else {
            let reason = "no directory and no bytes were given for this weights file";
            return Err(Error::new(ErrorKind::MissingFile, reason).with_path(location));
        };
        match failed_download(&bytes) {
            Some(what) => {
                Err(Error::new(ErrorKind::MissingFile, what).with_path(self.path(location)))
            }
            None => Ok(bytes),
        }
    }

    fn path(&self, location: &str) -> PathBuf {
        self.directory.as_ref().map_or_else(|| location.into(), |d| d.join(location))
    }

    /// The bytes `range` of a file; `None` when they end beyond it, which `cut_off` records.
    fn slice(
        &mut self,
        number: usize,
        range: &Range<u64>,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<Buffer>> {
        let unknown = || Error::internal(format!("no weights file has the number {number}"));
        let file = self.files.get_mut(number).ok_or_else(unknown)?;
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let Some(bytes) = bounds.and_then(|(start, end)| file.bytes.slice(start..end)) else {
            let first = || CutOff {
                tensor: place.qualified_name(tensor),
                range: range.clone(),
                needed: 0,
                count: 0,
            };
            let cut_off = file.cut_off.get_or_insert_with(first);
            cut_off.needed = cut_off.needed.max(range.end);
            cut_off.count += 1;
            return Ok(None);
        };
        if range.start == 0
            && !range.is_empty()
            && let Some(format) = known_format(&file.bytes)
        {
            let reason = format!("its data begin as {format} does: is this the right file?");
            self.warn(ErrorKind::InvalidModel, reason, place, tensor);
        }
        Ok(Some(bytes))
    }
}
