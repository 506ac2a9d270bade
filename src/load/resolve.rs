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

use super::options::LoadOptions;
use super::small_files::read_small_files;
use crate::buffer::Buffer;
use crate::container::{Container, Handle, HandleNames, Initializers};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, Directory, Entries, is_external, without_dots};
use crate::files::file_format::{failed_download, known_format};
use crate::files::model_files::{CutOff, ModelFiles, WeightsFile};
use crate::graph::traversal::{self, Place, Position};
use crate::limits::Limit;
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

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
    let directory = options.directory()?;
    let mut resolver = Resolver::new(container, options, directory.as_ref());
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
    bytes: Buffer,
    /// Whether the caller gave the bytes.
    is_given: bool,
    path: PathBuf,
    cut_off: CutOff,
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
        directory: Option<&'a Directory>,
    ) -> Self {
        let small = directory.map(|d| read_small_files(&container.model, options, d));
        Self {
            options,
            small: small.unwrap_or_default(),
            known: &container.initializers,
            names: None,
            files: ModelFiles::new(directory, &options.files),
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
        for OpenFile { bytes, is_given, path, cut_off } in self.files.take() {
            let len = u64::try_from(bytes.len()).map_err(Error::internal)?;
            self.errors.extend(cut_off.error(&path, known_format(&bytes), len));
            if !is_given {
                self.resolved.files.push(path);
            }
        }
        self.errors.join().map_or(Ok(self.resolved), Err)
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
        let Some(bytes) = self.slice(file, &range, place, tensor)? else { return Ok(None) };
        let bytes = self.options.decode.place(bytes)?;
        let weights = Tensor::new(dtype, tensor.dims.as_slice(), bytes)?;
        let text = self.insert(place, tensor, weights.into());
        self.share(extent, dtype, tensor, text.clone());
        Ok(Some(text))
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
            let path = files.path(location);
            let found = files.find(location)?;
            let is_given = matches!(found, WeightsFile::Given(_));
            let bytes = match (found, small.remove(&without_dots(location))) {
                (WeightsFile::Given(bytes), _) => bytes.clone(),
                (WeightsFile::Beneath(_), Some(bytes)) => bytes,
                (WeightsFile::Beneath(directory), None) => {
                    let (file, metadata) = directory.open_known(location)?;
                    options.mmap.open_known(&file, &metadata, &path)?
                }
            };
            match failed_download(&bytes) {
                Some(what) => Err(Error::new(ErrorKind::NotDownloaded, what).with_path(path)),
                None => Ok(OpenFile { bytes, is_given, path, cut_off: CutOff::default() }),
            }
        })
    }

    /// The bytes `range` of a file; `None` when they end beyond it, which `cut_off` records.
    fn slice(
        &mut self,
        number: usize,
        range: &Range<u64>,
        place: &Place<'_>,
        tensor: &TensorProto,
    ) -> Result<Option<Buffer>> {
        let file = self.files.get_mut(number)?;
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let Some(bytes) = bounds.and_then(|(start, end)| file.bytes.slice(start..end)) else {
            file.cut_off.add(range, || place.qualified_name(tensor));
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
