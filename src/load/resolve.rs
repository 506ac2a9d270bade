//! Finds the bytes and a handle for every external tensor of a model.
//!
//! Every weights file is opened once, beneath the model's directory. All faults of a model are
//! reported together, and nothing is changed: the model gets its handles when everything was found.
//! Models have tens of thousands of tensors, mostly in one file, so what is done for each of them
//! allocates little.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::ops::Range;
use std::path::PathBuf;

use foldhash::fast::RandomState;

use super::file_part::FilePart;
use super::options::LoadOptions;
use super::small_files::read_small_files;
use crate::buffer::{Alignment, Buffer, TensorBufferOptions};
use crate::container::{Container, Handle, HandleNames, Initializers};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, Entries, is_external, without_dots};
use crate::files::file_format::{failed_download, known_format};
use crate::files::file_source::{FilesFrom, SourceFile};
use crate::files::model_files::{CutOff, ModelFiles, WeightsFile};
use crate::graph::traversal::{self, Place, Position};
use crate::limits::Limit;
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;
use crate::util::parallel;

/// The handles and initializers of the external tensors of a model.
#[derive(Default)]
pub(super) struct Resolved {
    /// The tensors that get a handle, in graph order, and where in `texts` it is.
    pub(super) handles: Vec<(Position, Range<usize>)>,
    /// All new handles, one after the other.
    pub(super) texts: String,
    pub(super) found: Initializers,
    /// The files that the weights are in.
    pub(super) files: Vec<PathBuf>,
    pub(super) warnings: Vec<Error>,
}

/// Everything that was found for the external tensors of `container`, or one error for all that is
/// wrong.
pub(super) fn resolve(container: &Container, options: &LoadOptions) -> Result<Resolved> {
    let from = options.files_place()?;
    let mut resolver = Resolver::new(container, options, from.as_ref());
    traversal::tensors(&container.model, |place, tensor| {
        resolver.tensor(place, tensor);
        Ok(())
    })?;
    resolver.finish()
}

/// A byte range of a weights file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Extent {
    file: usize,
    offset: u64,
    len: u64,
}

/// A byte range with a type and shape. Tensors with equal entries share a handle.
#[derive(PartialEq, Eq, Hash)]
struct TypedExtent {
    extent: Extent,
    dtype: DataType,
    dims: Vec<i64>,
}

/// The text of the handle of the first tensor at each range. Most models name ranges in ascending
/// order, which need no hash table: these are in a list, and only the others in a table.
#[derive(Default)]
struct FirstHandles {
    ascending: Vec<(Extent, Range<usize>)>,
    others: HashMap<Extent, Range<usize>, RandomState>,
}

impl FirstHandles {
    fn get(&self, extent: &Extent) -> Option<&Range<usize>> {
        if self.is_next(extent) {
            return None;
        }
        let index = self.ascending.binary_search_by_key(extent, |(extent, _)| *extent);
        let listed = index.ok().and_then(|index| self.ascending.get(index));
        listed.map(|(_, text)| text).or_else(|| self.others.get(extent))
    }

    /// Adds a range that is not there.
    fn insert(&mut self, extent: Extent, text: Range<usize>) {
        if self.is_next(&extent) {
            self.ascending.push((extent, text));
        } else {
            self.others.insert(extent, text);
        }
    }

    /// Whether the range comes after all of the list, and so is not there: ranges in the table come
    /// before the last one of the list.
    fn is_next(&self, extent: &Extent) -> bool {
        self.ascending.last().is_none_or(|(last, _)| last < extent)
    }
}

/// A weights file, and the tensors that it is too short for.
struct OpenFile {
    content: Content,
    /// Whether it is a file of the folder: the caller did not give it.
    is_in_folder: bool,
    path: PathBuf,
    cut_off: CutOff,
}

/// The bytes of a weights file.
enum Content {
    Here(Buffer),
    /// In a file that is read when the bytes are needed, and its first bytes.
    There(SourceFile, Vec<u8>),
}

impl Content {
    /// That of a file of a source.
    fn of(file: SourceFile) -> Result<Self> {
        match file.buffer()? {
            Some(bytes) => Ok(Self::Here(bytes)),
            None => file.head().map(|head| Self::There(file, head)),
        }
    }

    /// The first bytes, which tell what the file is; all of them where they are in memory.
    fn head(&self) -> &[u8] {
        match self {
            Self::Here(bytes) => bytes,
            Self::There(_, head) => head,
        }
    }

    /// The length in bytes.
    fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::There(file, _) => file.len(),
        }
    }

    /// The bytes `range`; `None` when they end beyond the file.
    fn part(&self, range: &Range<u64>) -> Option<Part> {
        if range.end > self.len() {
            return None;
        }
        match self {
            Self::There(file, _) if !range.is_empty() => {
                Some(Part::There(file.clone(), range.start))
            }
            Self::There(..) => Some(Part::Here(Buffer::default())),
            Self::Here(bytes) => {
                let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                bounds.and_then(|(start, end)| bytes.slice(start..end)).map(Part::Here)
            }
        }
    }
}

/// The bytes of a tensor.
enum Part {
    Here(Buffer),
    /// In this file, from an offset (bytes) on.
    There(SourceFile, u64),
}

/// Resolves the external tensors of one model, each file once.
struct Resolver<'a> {
    options: &'a LoadOptions,
    known: &'a Initializers,
    /// Made when a name occurs twice: until then the handles in use are those of `known` and
    /// `found`.
    names: Option<HandleNames>,
    /// Small files that were read already, by location.
    small: HashMap<String, Buffer>,
    files: ModelFiles<'a, OpenFile>,
    first: FirstHandles,
    /// The text of the handle of tensors whose type or shape is not that of the first tensor at
    /// their range.
    others: HashMap<TypedExtent, Range<usize>>,
    resolved: Resolved,
    /// How many tensors share the bytes of another one.
    ties: u64,
    errors: Errors,
    /// How many tensors there probably are.
    expected: usize,
}

impl<'a> Resolver<'a> {
    fn new(
        container: &'a Container,
        options: &'a LoadOptions,
        from: Option<&'a FilesFrom>,
    ) -> Self {
        let small = match from {
            Some(FilesFrom::Folder(directory)) => {
                read_small_files(&container.model, options, directory)
            }
            Some(FilesFrom::Source(_)) | None => HashMap::new(),
        };
        Self {
            options,
            small,
            known: &container.initializers,
            names: None,
            files: ModelFiles::new(from, &options.files),
            first: FirstHandles::default(),
            others: HashMap::new(),
            resolved: Resolved::default(),
            ties: 0,
            errors: Errors::default(),
            expected: container.model.graph.as_ref().map_or(0, |graph| graph.initializer.len()),
        }
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        if !is_external(tensor) {
            return;
        }
        match self.external(place, tensor) {
            Ok(Some(text)) => self.resolved.handles.push((place.position, text)),
            Ok(None) => {}
            Err(error) => self.errors.push(error.with_tensor(place.qualified_name(tensor))),
        }
    }

    /// Everything that was found, or one error for all that was wrong.
    fn finish(mut self) -> Result<Resolved> {
        self.options.decode.limits.allow(Limit::Ties, self.ties)?;
        for OpenFile { content, is_in_folder, path, cut_off } in self.files.take() {
            self.errors.extend(cut_off.error(&path, known_format(content.head()), content.len()));
            if is_in_folder {
                self.resolved.files.push(path);
            }
        }
        match self.errors.join() {
            Some(error) => Err(error),
            None if self.options.decode.copies_all() => {
                read_parts(&mut self.resolved.found).map(|()| self.resolved)
            }
            None => Ok(self.resolved),
        }
    }

    /// The text of the tensor's new handle; `None` when it keeps its handle, or when the fault of
    /// its file is reported once for all its tensors.
    fn external(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<Range<usize>>> {
        let (location, entries) = Entries::of(tensor)?;
        if self.known.contains_key(location) {
            return Ok(None);
        }
        let (dtype, len) = external_data::layout(tensor)?;
        let range = entries.range(len)?;
        if let Some(key) = entries.unknown_key() {
            let reason = external_data::about_unknown_key(key);
            self.warn(ErrorKind::Unsupported, reason, place, tensor);
        }
        let Some(file) = self.open(location)? else { return Ok(None) };
        let extent = Extent { file, offset: range.start, len };
        if let Some(text) = self.shared(extent, dtype, tensor) {
            self.ties = self.ties.saturating_add(1);
            return Ok(Some(text));
        }
        let Some(part) = self.part(file, &range, place, tensor)? else { return Ok(None) };
        let weights = self.weights(part, (dtype, len), tensor)?;
        let text = self.insert(place, tensor, weights);
        self.share(extent, dtype, tensor, text.clone());
        Ok(Some(text))
    }

    /// What `tensor` of `len` bytes has its elements from.
    fn weights(
        &self,
        part: Part,
        (dtype, len): (DataType, u64),
        tensor: &TensorProto,
    ) -> Result<Initializer> {
        let decode = &self.options.decode;
        match part {
            Part::Here(bytes) => {
                let bytes = decode.place(bytes)?;
                Ok(Tensor::new(dtype, tensor.dims.as_slice(), bytes)?.into())
            }
            Part::There(file, offset) => {
                let buffers: &TensorBufferOptions = decode.as_ref();
                let is_aligned = usize::try_from(len).is_ok_and(|len| buffers.concerns(len));
                let aligned = if is_aligned { buffers.alignment } else { None };
                let shape = (dtype, tensor.dims.clone());
                let part = FilePart::new(file, offset, shape, aligned.unwrap_or(Alignment::DENSE));
                Initializer::from_source(part?)
            }
        }
    }

    /// The handle of an earlier tensor with the same bytes, type and shape.
    fn shared(
        &self,
        extent: Extent,
        dtype: DataType,
        tensor: &TensorProto,
    ) -> Option<Range<usize>> {
        let first = self.first.get(&extent)?;
        let handle = self.resolved.texts.get(first.clone())?;
        let weights = self.resolved.found.get(handle)?;
        if weights.dtype() == dtype && weights.dims() == tensor.dims {
            return Some(first.clone());
        }
        self.others.get(&TypedExtent { extent, dtype, dims: tensor.dims.clone() }).cloned()
    }

    /// Lets later tensors with the same bytes, type and shape find the handle.
    fn share(&mut self, extent: Extent, dtype: DataType, tensor: &TensorProto, text: Range<usize>) {
        if self.first.get(&extent).is_some() {
            self.others.insert(TypedExtent { extent, dtype, dims: tensor.dims.clone() }, text);
        } else {
            self.first.insert(extent, text);
        }
    }

    /// Puts `weights` behind a new handle that is named after the tensor, and returns its text.
    fn insert(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        weights: Initializer,
    ) -> Range<usize> {
        self.reserve();
        let handle = Handle::of_name(&place.borrowed_name(tensor));
        let is_known = self.names.is_some() || self.known.contains_key(&handle);
        let text = self.add_text(handle.as_str());
        let weights = match self.resolved.found.entry(handle) {
            MapEntry::Vacant(entry) if !is_known => {
                entry.insert(weights);
                return text;
            }
            _ => weights,
        };
        self.resolved.texts.truncate(text.start);
        let handle = self.numbered(place, tensor);
        let text = self.add_text(handle.as_str());
        self.resolved.found.insert(handle, weights);
        text
    }

    /// A handle that is not in use, where one was asked for twice.
    fn numbered(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Handle {
        let in_use = || HandleNames::with(self.known.keys().chain(self.resolved.found.keys()));
        self.names.get_or_insert_with(in_use).name(place, tensor)
    }

    fn add_text(&mut self, handle: &str) -> Range<usize> {
        let texts = &mut self.resolved.texts;
        let start = texts.len();
        texts.push_str(handle);
        start..texts.len()
    }

    /// Reserves room for all tensors when the first one is found, so that no list is moved as it
    /// grows.
    fn reserve(&mut self) {
        if self.resolved.found.is_empty() {
            self.resolved.handles.reserve(self.expected);
            self.resolved.found.reserve(self.expected);
            self.first.ascending.reserve(self.expected);
        }
    }

    fn warn(&mut self, kind: ErrorKind, reason: String, place: &Place<'_>, tensor: &TensorProto) {
        let warning = Error::new(kind, reason).with_tensor(place.qualified_name(tensor));
        self.resolved.warnings.push(warning);
    }

    /// The number of the file at `location`; `None` when it could not be opened, which was reported
    /// before.
    fn open(&mut self, location: &str) -> Result<Option<usize>> {
        let Self { files, small, options, .. } = self;
        files.number(location, |files| {
            let mut path = files.path(location);
            let found = files.find(location)?;
            let is_in_folder = matches!(found, WeightsFile::Beneath(_));
            let content = match (found, small.remove(&without_dots(location))) {
                (WeightsFile::Given(bytes), _) => Content::Here(bytes.clone()),
                (WeightsFile::Beneath(_), Some(bytes)) => Content::Here(bytes),
                (WeightsFile::Beneath(directory), None) => {
                    let (file, metadata) = directory.open_known(location)?;
                    Content::Here(options.mmap.open_known(&file, &metadata, &path)?)
                }
                (WeightsFile::From(source), _) => {
                    let file = source.open(location)?;
                    path = file.path();
                    Content::of(file)?
                }
            };
            match failed_download(content.head()) {
                Some(what) => Err(Error::new(ErrorKind::NotDownloaded, what).with_path(path)),
                None => Ok(OpenFile { content, is_in_folder, path, cut_off: CutOff::default() }),
            }
        })
    }

    /// The bytes `range` of a file; `None` when they end beyond it, which `cut_off` records.
    fn part(
        &mut self,
        number: usize,
        range: &Range<u64>,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<Part>> {
        let file = self.files.get_mut(number)?;
        let Some(part) = file.content.part(range) else {
            file.cut_off.add(range, || place.qualified_name(tensor));
            return Ok(None);
        };
        if range.start == 0
            && !range.is_empty()
            && let Some(format) = known_format(file.content.head())
        {
            let reason = format!("its data begin as {format} does: is this the right file?");
            self.warn(ErrorKind::InvalidModel, reason, place, tensor);
        }
        Ok(Some(part))
    }
}

/// How many parts of files are read at once: each may wait for a store.
const AT_ONCE: usize = 8;

/// Reads the elements that are still in files into memory.
fn read_parts(found: &mut Initializers) -> Result<()> {
    let parts = found.iter_mut().filter(|(_, weights)| weights.as_buffer().is_none());
    parallel::for_each(AT_ONCE, parts, |(handle, weights)| {
        let read = weights.to_tensor().map_err(|error| error.with_tensor(handle.as_str()));
        *weights = Initializer::from(read?);
        Ok(())
    })
}
