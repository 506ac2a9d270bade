//! [`Container::load`]: from files, or bytes, to a container.
//!
//! The model is decoded without copying its payloads; every weights file is opened once, beneath
//! the model's directory, and every external tensor becomes a handle on its byte range. All faults
//! of a model are reported together.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::buffer::{Buffer, TensorBufferOptions};
use crate::consolidate::ConsolidateOptions;
use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, Directory, ExternalData, is_external, is_handle, without_dots};
use crate::mmap::MmapChoice;
use crate::placement::Alignment;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::traversal::{self, Place};
use crate::wire::{DecodeOptions, Message};

/// How a model is loaded. A [`MmapChoice`] converts.
///
/// ```
/// use onnx_container::{LoadOptions, MmapChoice};
///
/// // The structure alone: no weights file is touched, or has to be there.
/// let options = LoadOptions::new().mmap(MmapChoice::never()).weights(false);
/// ```
#[derive(Debug, Clone)]
pub struct LoadOptions {
    mmap: MmapChoice,
    weights: bool,
    base_dir: Option<PathBuf>,
    files: HashMap<String, Buffer>,
    decode: DecodeOptions,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            mmap: MmapChoice::never(),
            weights: true,
            base_dir: None,
            files: HashMap::new(),
            decode: DecodeOptions::new(),
        }
    }
}

impl From<DecodeOptions> for LoadOptions {
    fn from(decode: DecodeOptions) -> Self {
        Self { decode, ..Self::default() }
    }
}

impl From<TensorBufferOptions> for LoadOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self::from(DecodeOptions::from(buffers))
    }
}

impl AsRef<TensorBufferOptions> for LoadOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        self.decode.as_ref()
    }
}

impl From<LoadOptions> for TensorBufferOptions {
    fn from(options: LoadOptions) -> Self {
        options.decode.into()
    }
}

impl From<LoadOptions> for ConsolidateOptions {
    fn from(options: LoadOptions) -> Self {
        Self::from(TensorBufferOptions::from(options))
    }
}

impl From<MmapChoice> for LoadOptions {
    fn from(mmap: MmapChoice) -> Self {
        Self::default().mmap(mmap)
    }
}

impl LoadOptions {
    /// The defaults: files are read, weights are loaded, from the model's own directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether files are mapped or read. Default [`MmapChoice::never`].
    #[must_use]
    pub fn mmap(mut self, mmap: MmapChoice) -> Self {
        self.mmap = mmap;
        self
    }

    /// Whether weights are loaded. Without them no data file is touched and external entries stay
    /// as they are, for [`Container::attach`] or [`Container::insert`]. Default true.
    #[must_use]
    pub fn weights(mut self, weights: bool) -> Self {
        self.weights = weights;
        self
    }

    /// The directory that locations are relative to. Default: that of the model file; none for
    /// [`Container::load_bytes`].
    #[must_use]
    pub fn base_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(directory.into());
        self
    }

    /// The bytes of the weights file called `location`, which then is not looked for on disk. A
    /// handle of the model, `#w`, counts as such a name.
    #[must_use]
    pub fn file(mut self, location: impl AsRef<str>, bytes: impl Into<Buffer>) -> Self {
        self.files.insert(without_dots(location.as_ref()), bytes.into());
        self
    }

    /// Whether the bytes of tensors may not be copied, or have to be. Without this call they are slices
    /// of the files (mapped or read once), and only a tensor that does not lie at the
    /// [`alignment`](Self::alignment) that was asked for is copied.
    ///
    /// - `true`: nothing is copied. A tensor that is not aligned is
    ///   [`ErrorKind::Unsupported`].
    /// - `false`: each external tensor, and each inline one at or above the
    ///   [threshold](Self::raw_data_threshold), has memory of its own that is freed with it. No file
    ///   stays mapped or in memory.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, LoadOptions, Ownership};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", ndarray::array![1_u8, 2])?;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// container.save(&path, true)?;
    ///
    /// let copied = Container::load(&path, LoadOptions::new().no_copy(false))?;
    /// let bytes = copied.get("#w").unwrap().to_buffer()?;
    /// drop(copied);
    /// assert_eq!(bytes.ownership(), Ownership::Owned);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn no_copy(mut self, no_copy: bool) -> Self {
        self.decode = self.decode.no_copy(no_copy);
        self
    }

    /// From how many bytes on a tensor is aligned and, where bytes are copied, an inline one has memory
    /// of its own. Default 1024.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.decode = self.decode.raw_data_threshold(bytes);
        self
    }

    /// What the addresses of tensors at or above the threshold are multiples of: a tensor that does not
    /// lie like that in its file is copied. Default `None`, any address.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.decode = self.decode.alignment(alignment);
        self
    }

    /// How deep messages may nest; each subgraph takes three levels. Default 100, as in protobuf.
    ///
    /// Reading, walking and dropping such a model recurse: a level takes about 1 KiB of the stack.
    #[must_use]
    pub fn recursion_limit(mut self, levels: u32) -> Self {
        self.decode = self.decode.recursion_limit(levels);
        self
    }
}

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
    /// # Errors
    /// One error for all tensors whose file is missing, whose entries, path, range, dtype or dims
    /// are not valid, or whose handle nothing resolves; see [`ErrorKind`]. [`ErrorKind::Decode`]
    /// when the file is not a model.
    pub fn load(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Self> {
        let (path, mut options) = (path.as_ref(), options.into());
        if options.base_dir.is_none() {
            options.base_dir = Some(directory_of(path));
        }
        let bytes = options.mmap.buffer(path)?;
        // What concerns a weights file names it already.
        Self::load_bytes(bytes, options).map_err(|error| error.with_path(path))
    }

    /// Loads a model from memory, borrowing from `bytes`. Weights come from
    /// [`LoadOptions::base_dir`] or are handed in by [`LoadOptions::file`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_bytes(bytes: impl Into<Buffer>, options: impl Into<LoadOptions>) -> Result<Self> {
        let (bytes, options) = (bytes.into(), options.into());
        let model = decode_model(&bytes, &options.decode)?;
        let mut container = Self::new(model);
        if options.weights {
            container.load_weights(&options)?;
        }
        Ok(container)
    }

    /// Loads the weights of a container that was loaded without them, from `directory` (often not
    /// the one that the model came from).
    ///
    /// Handles that have their initializer already are left alone.
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
        let Resolver { errors, handles, found, warnings, .. } = resolver;
        if let Some(error) = Error::join(errors) {
            return Err(error);
        }
        self.initializers.extend(found.into_iter().map(|(h, tensor)| (h, tensor.into())));
        self.warnings.extend(warnings);
        let mut handles = handles.into_iter();
        traversal::tensors_mut(&mut self.model, |_, tensor| {
            if let Some(handle) = handles.next().flatten() {
                external_data::set_handle(tensor, handle.as_str());
            }
            Ok(())
        })
    }
}

/// The directory that holds the file `path`.
pub(crate) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Decodes a model; what is plainly something else is named.
pub(crate) fn decode_model(bytes: &Buffer, options: &DecodeOptions) -> Result<ModelProto> {
    if let Some(what) = external_data::not_the_file(bytes) {
        return Err(Error::new(ErrorKind::Decode, what));
    }
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::Decode, "the file is empty"));
    }
    // A header's length, of less than 16 MiB, and the `{` after it.
    let safetensors = bytes.get(3..9) == Some(b"\0\0\0\0\0{");
    let what = if safetensors {
        "a safetensors file, not an ONNX model"
    } else {
        "not an ONNX model, or cut off or damaged"
    };
    ModelProto::decode_with(bytes, options).map_err(|error| error.because(what))
}

/// A byte range of a weights file, as one type and shape.
#[derive(PartialEq, Eq, Hash)]
struct Entry {
    file: usize,
    offset: u64,
    len: u64,
    dtype: DataType,
    dims: Vec<i64>,
}

/// Resolves the external tensors of one model, each file once.
struct Resolver<'a> {
    options: &'a LoadOptions,
    directory: Option<Directory>,
    known: &'a HashMap<Handle, crate::Initializer>,
    names: HandleNames,
    files: Vec<Buffer>,
    /// By location; `None` for a file that could not be opened and was reported.
    opened: BTreeMap<String, Option<usize>>,
    shared: HashMap<Entry, Handle>,
    /// For every tensor of the model in graph order, its new handle.
    handles: Vec<Option<Handle>>,
    found: Vec<(Handle, Tensor)>,
    errors: Vec<Error>,
    warnings: Vec<Error>,
}

impl<'a> Resolver<'a> {
    fn new(container: &'a Container, options: &'a LoadOptions) -> Result<Self> {
        Ok(Self {
            options,
            directory: options.base_dir.as_deref().map(Directory::open).transpose()?,
            known: &container.initializers,
            names: HandleNames::with(container.initializers.keys()),
            files: Vec::new(),
            opened: BTreeMap::new(),
            shared: HashMap::new(),
            handles: Vec::new(),
            found: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        let handle = if is_external(tensor) { self.external(place, tensor) } else { Ok(None) };
        let handle = handle.unwrap_or_else(|error| {
            self.errors.push(error.with_tensor(place.qualified_name(tensor)));
            None
        });
        self.handles.push(handle);
    }

    /// The tensor's new handle; `None` when it keeps the one it has, or its file is missing.
    fn external(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<Option<Handle>> {
        let data = ExternalData::parse(tensor)?;
        if self.known.contains_key(data.location.as_str()) {
            return Ok(None);
        }
        let (dtype, len) = external_data::layout(tensor)?;
        let range = data.range(len)?;
        if let Some(key) = data.unknown_keys.first() {
            let reason = format!("unknown external data key `{key}`, which onnxruntime refuses");
            let warning = Error::new(ErrorKind::InvalidModel, reason);
            self.warnings.push(warning.with_tensor(place.qualified_name(tensor)));
        }
        let Some(file) = self.open(&data.location)? else { return Ok(None) };
        let entry = Entry { file, offset: range.start, len, dtype, dims: tensor.dims.clone() };
        if let Some(handle) = self.shared.get(&entry) {
            return Ok(Some(handle.clone()));
        }
        let bytes = self.slice(file, &data.location, range.start, range.end)?;
        let bytes = self.options.decode.place(bytes)?;
        let handle = self.names.name(place, tensor);
        self.found.push((handle.clone(), Tensor::new(dtype, tensor.dims.clone(), bytes)?));
        self.shared.insert(entry, handle.clone());
        Ok(Some(handle))
    }

    /// The number of the file at `location`; `None` when its absence was reported before.
    fn open(&mut self, location: &str) -> Result<Option<usize>> {
        let name = without_dots(location);
        if let Some(number) = self.opened.get(&name) {
            return Ok(*number);
        }
        // Noted first: a file that is missing is reported once, not for each of its tensors.
        self.opened.insert(name.clone(), None);
        let bytes = self.bytes_of(location, &name)?;
        let number = self.files.len();
        self.files.push(bytes);
        self.opened.insert(name, Some(number));
        Ok(Some(number))
    }

    /// The bytes of the file at `location`, whose `name` is the same without dots.
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
        match external_data::not_the_file(&bytes) {
            Some(what) => {
                Err(Error::new(ErrorKind::InvalidModel, what).with_path(self.path(location)))
            }
            None => Ok(bytes),
        }
    }

    fn path(&self, location: &str) -> PathBuf {
        self.directory.as_ref().map_or_else(|| location.into(), |d| d.join(location))
    }

    fn slice(&self, file: usize, location: &str, start: u64, end: u64) -> Result<Buffer> {
        let file = self.files.get(file).cloned().unwrap_or_default();
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        range.and_then(|(start, end)| file.slice(start..end)).ok_or_else(|| {
            let reason = format!("data end at byte {end}, the file has {}", file.len());
            let error = Error::new(ErrorKind::OutOfBounds, reason);
            error.with_path(self.path(location)).with_offset(start)
        })
    }
}
