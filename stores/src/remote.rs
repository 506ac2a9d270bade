//! [`RemoteModel`]: a model in a store, opened by one request, and its container.
//!
//! A publication replaces a model by one request, and puts the weights files that it names there
//! first, under names of their content. So graph and weights of a load are of one publication as
//! long as its files are there. Where one is gone or was replaced, the model is read again: if it
//! is another one now, the load starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use onnx_container::external_data::{ExternalData, is_external, is_handle};
use onnx_container::load::FileSource;
use onnx_container::proto::TensorProto;
use onnx_container::{
    Alignment, Buffer, BufferMut, Container, DataType, Error, ErrorKind, LoadOptions, Outline,
    Result,
};

use crate::object::{AT_ONCE, Object, PART, Version};
use crate::options::StoreOptions;
use crate::runtime::run;
use crate::source::{RemoteFile, RemoteFiles};
use crate::store::Store;
use crate::url::{StoreUrl, plain};

/// How often a load starts again where the model is replaced meanwhile.
const ATTEMPTS: usize = 5;
/// Bytes between two tensors that are read with them, since a request takes as long.
const GAP: u64 = 1 << 20;

/// A model in a store: the bytes of its graph, in one version.
///
/// ```
/// use std::sync::Arc;
/// use object_store::{ObjectStoreExt, memory::InMemory};
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, LoadOptions, SaveOptions};
/// use onnx_container_store::{RemoteModel, Store, StoreUrl};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", onnx_container::ndarray::array![1_u8, 2])?;
///
/// let store = Store::new(Arc::new(InMemory::new()), "s3://models");
/// let url = StoreUrl::parse("s3://models/m.onnx")?;
/// onnx_container_store::publish_in(&store, &url, &container, SaveOptions::new())?;
///
/// let model = RemoteModel::open_in(&store, &url)?; // one request
/// let loaded = model.load(LoadOptions::new())?; // one for each weights file, none for weights
/// assert_eq!(loaded.tensor("w")?.as_slice::<u8>()?, [1, 2]); // by range
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RemoteModel {
    store: Store,
    url: StoreUrl,
    object: Object,
    bytes: Buffer,
}

impl RemoteModel {
    /// Reads the graph of the model at `url`.
    ///
    /// # Errors
    /// Those of [`StoreUrl::parse`] and [`Store::open`]; [`ErrorKind::MissingFile`] where there is
    /// no such object, [`ErrorKind::TooLarge`] from 2 GiB on, [`ErrorKind::Io`] for what the store
    /// or the network refuse, [`ErrorKind::WrongDigest`] for bytes that are not those whose digest
    /// the Hub states.
    pub fn open(url: &str, options: &StoreOptions) -> Result<Self> {
        let url = StoreUrl::parse(url)?;
        Self::open_in(&Store::open(&url, options)?, &url)
    }

    /// Reads the graph of the model at `url` from a store that is open.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in(store: &Store, url: &StoreUrl) -> Result<Self> {
        if url.key().is_empty() {
            let reason = format!("`{}` is a store: name a model in it", url.root());
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let (object, bytes) = run(Object::whole(store, url.key()))?;
        object.verify(&bytes)?;
        Ok(Self::new(store, url, object, bytes))
    }

    pub(crate) fn new(store: &Store, url: &StoreUrl, object: Object, bytes: Buffer) -> Self {
        Self { store: store.clone(), url: url.clone(), object, bytes }
    }

    /// Where the model is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The bytes of the model.
    pub fn bytes(&self) -> &Buffer {
        &self.bytes
    }

    /// The tag that the store gave this version of the model.
    pub fn e_tag(&self) -> Option<&str> {
        self.object.version().e_tag.as_deref()
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// The model with its weights, of which none is read before it is needed. Each weights file is
    /// opened by one request, many at once; none with
    /// [`weights(false)`](LoadOptions::weights).
    ///
    /// # Errors
    /// Those of [`Container::load`]; [`ErrorKind::Changed`] where a weights file is replaced
    /// while it is read, now or later, with both versions.
    pub fn load(&self, options: impl Into<LoadOptions>) -> Result<Container> {
        Container::load_bytes(self.bytes.clone(), self.load_options(options)?)
            .map_err(|error| self.named(error))
    }

    /// The model with its weights, which are read now: each weights file into one buffer, by
    /// ranges that hold its tensors. A file of which less than an eighth is needed is left for
    /// later reads.
    ///
    /// Of a repository of the Hub, a file of which nearly all is needed is read whole and held to
    /// the SHA-256 that the Hub states.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and of the reads; [`ErrorKind::WrongDigest`] for a file that
    /// is not the one that the Hub states.
    pub fn fetch(&self, options: impl Into<LoadOptions>) -> Result<Container> {
        let ranges = self.ranges()?;
        let files = Arc::new(self.files(&ranges));
        let mut fetched = Vec::new();
        for (location, ranges) in &ranges {
            // What cannot be opened is an error of the load, with the tensors that need it.
            let Ok(file) = files.file(location) else { continue };
            fetched.extend(Fetched::new(file, ranges)?);
        }
        run(async {
            let fills = fetched.iter_mut().map(Fetched::fill);
            stream::iter(fills).buffer_unordered(AT_ONCE).try_collect::<()>().await
        })?;
        fetched.into_iter().try_for_each(Fetched::keep)?;
        let options = options.into().files_from(files).model_path(self.url.to_string());
        Container::load_bytes(self.bytes.clone(), options).map_err(|error| self.named(error))
    }

    /// `options` whose weights files are those beside this model, for calls that take a model from
    /// memory.
    ///
    /// ```no_run
    /// use onnx_container::LoadOptions;
    /// use onnx_container::check::{CheckOptions, check_bytes};
    /// use onnx_container_store::{RemoteModel, StoreOptions};
    ///
    /// let model = RemoteModel::open("s3://models/m.onnx", &StoreOptions::new())?;
    /// let options = CheckOptions::from(model.load_options(LoadOptions::new())?).digests(true);
    /// println!("{}", check_bytes(model.bytes().clone(), options)?);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where the bytes are not a model.
    pub fn load_options(&self, options: impl Into<LoadOptions>) -> Result<LoadOptions> {
        let files = self.files(&self.ranges()?);
        Ok(options.into().files_from(files).model_path(self.url.to_string()))
    }

    /// The weights files beside this model, which are opened when the first one is asked for.
    ///
    /// # Errors
    /// Where the bytes are not a model.
    pub fn weights_files(&self) -> Result<Arc<dyn FileSource>> {
        Ok(Arc::new(self.files(&self.ranges()?)))
    }

    /// The model with its weights as by [`load`](Self::load), and the versions of its weights
    /// files.
    pub(crate) fn load_versions(
        &self,
        options: LoadOptions,
    ) -> Result<(Container, BTreeMap<String, Version>)> {
        let ranges = self.ranges()?;
        let files = Arc::new(self.files(&ranges));
        let mut versions = BTreeMap::new();
        for location in ranges.into_keys() {
            let version = files.file(&location)?.object.version().clone();
            versions.insert(location, version);
        }
        let options = options.files_from(files).model_path(self.url.to_string());
        let container = Container::load_bytes(self.bytes.clone(), options);
        Ok((container.map_err(|error| self.named(error))?, versions))
    }

    /// The weights files that have these ranges.
    fn files(&self, ranges: &BTreeMap<String, Vec<Range<u64>>>) -> RemoteFiles {
        let locations = ranges.keys().cloned().collect();
        RemoteFiles::new(self.store.clone(), self.url.clone(), locations)
    }

    /// The locations of the weights files that the model names.
    ///
    /// # Errors
    /// Where that is not known of a tensor: other readers may take what is not valid here.
    pub(crate) fn locations(&self) -> Result<BTreeSet<String>> {
        let mut locations = BTreeSet::new();
        for (_, tensor) in self.outline()?.tensors().filter(|(_, tensor)| is_external(tensor)) {
            let place = ExternalData::parse(tensor).map_err(|error| self.named(error))?;
            if !is_handle(&place.location) {
                locations.insert(plain(&place.location));
            }
        }
        Ok(locations)
    }

    /// The model without its weights.
    fn outline(&self) -> Result<Outline> {
        let without = LoadOptions::new().weights(false);
        Outline::load_bytes(self.bytes.clone(), without).map_err(|error| self.named(error))
    }

    /// The ranges that tensors have in weights files, by location. What is not valid is left out:
    /// the load says so.
    fn ranges(&self) -> Result<BTreeMap<String, Vec<Range<u64>>>> {
        let outline = self.outline()?;
        let mut ranges = BTreeMap::<String, Vec<_>>::new();
        for (_, tensor) in outline.tensors().filter(|(_, tensor)| is_external(tensor)) {
            let Ok(place) = ExternalData::parse(tensor) else { continue };
            if is_handle(&place.location) {
                continue;
            }
            let start = place.offset;
            let len = place.length.map_or_else(|| len_of(tensor), Ok).unwrap_or(u64::MAX);
            let range = start..start.saturating_add(len);
            ranges.entry(plain(&place.location)).or_default().push(range);
        }
        Ok(ranges)
    }

    fn named(&self, error: Error) -> Error {
        // An error about a weights file already has that file's name, which is kept.
        error.with_path(self.url.to_string())
    }
}

/// The length of the elements of `tensor` in bytes.
fn len_of(tensor: &TensorProto) -> Result<u64> {
    DataType::try_from(tensor.data_type.unwrap_or_default())?.byte_len(&tensor.dims)
}

/// A weights file that is read into a buffer of its length. What is not read is zeros that take no
/// memory.
struct Fetched {
    file: Arc<RemoteFile>,
    bytes: BufferMut,
    ranges: Vec<Range<u64>>,
}

impl Fetched {
    /// A file of which `ranges` are needed; nothing where they are a small part of it.
    fn new(file: Arc<RemoteFile>, ranges: &[Range<u64>]) -> Result<Option<Self>> {
        let size = file.object.len();
        let mut ranges = joined(ranges, size);
        let needed: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let Ok(len) = usize::try_from(size) else { return Ok(None) };
        if len == 0 || needed < size / 8 {
            return Ok(None);
        }
        // The rest of the file costs little, and all of it can be compared with a digest.
        if file.object.stated_sum().is_some() && needed > size / 8 * 7 {
            ranges = std::iter::once(0..size).collect();
        }
        let bytes = BufferMut::zeroed(len, Alignment::PAGE)?;
        Ok(Some(Self { file, bytes, ranges }))
    }

    /// Reads the ranges.
    async fn fill(&mut self) -> Result<()> {
        let mut reads = Vec::new();
        let (mut rest, mut at) = (&mut self.bytes[..], 0);
        for range in &self.ranges {
            let (skipped, length) = (range.start - at, range.end - range.start);
            let lengths = usize::try_from(skipped).ok().zip(usize::try_from(length).ok());
            let parts = lengths.and_then(|(skipped, length)| {
                let after = std::mem::take(&mut rest).split_at_mut_checked(skipped)?.1;
                after.split_at_mut_checked(length)
            });
            let Some((wanted, left)) = parts else {
                return Err(Error::internal("a range is beyond its file"));
            };
            let starts = (0_u64..).map(|number| range.start + number * PART as u64);
            reads.extend(starts.zip(wanted.chunks_mut(PART)));
            (rest, at) = (left, range.end);
        }
        self.file.object.fill_many(&mut reads).await
    }

    /// Hands the bytes to the file. All bytes are held to the digest that the store states.
    fn keep(self) -> Result<()> {
        let object = &self.file.object;
        if self.ranges.first().is_some_and(|range| *range == (0..object.len())) {
            object.verify(&self.bytes)?;
        }
        self.file.keep(self.bytes.freeze());
        Ok(())
    }
}

/// `ranges` in order, within `len` bytes, with those joined that are near.
fn joined(ranges: &[Range<u64>], len: u64) -> Vec<Range<u64>> {
    let within = |range: &Range<u64>| range.start.min(len)..range.end.min(len);
    let mut sorted: Vec<_> = ranges.iter().map(within).filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Loads the model at `url`: [`RemoteModel::load`], again where the model was replaced meanwhile.
///
/// # Errors
/// Those of [`RemoteModel::open`] and [`RemoteModel::load`].
pub fn load(url: &str, store: &StoreOptions, options: impl Into<LoadOptions>) -> Result<Container> {
    let options = options.into();
    read(url, store, |model| model.load(options.clone()))
}

/// Loads the model at `url` with all of its weights: [`RemoteModel::fetch`], again where the model
/// was replaced meanwhile.
///
/// # Errors
/// Those of [`RemoteModel::open`] and [`RemoteModel::fetch`].
pub fn fetch(
    url: &str,
    store: &StoreOptions,
    options: impl Into<LoadOptions>,
) -> Result<Container> {
    let options = options.into();
    read(url, store, |model| model.fetch(options.clone()))
}

/// What `read` makes of the model at `url`. Where the model was replaced while it was read, `read`
/// is called again with the new one.
///
/// # Errors
/// Those of [`RemoteModel::open`] and of `read`.
pub fn read<T>(
    url: &str,
    store: &StoreOptions,
    read: impl Fn(&RemoteModel) -> Result<T>,
) -> Result<T> {
    again_if_replaced(|| RemoteModel::open(url, store), read)
}

/// As [`read`], for a model in a store that is open.
///
/// # Errors
/// Those of [`read`].
pub fn read_in<T>(
    store: &Store,
    url: &StoreUrl,
    read: impl Fn(&RemoteModel) -> Result<T>,
) -> Result<T> {
    again_if_replaced(|| RemoteModel::open_in(store, url), read)
}

/// The result of `read`, for a model that was not replaced while it was read.
pub(crate) fn again_if_replaced<T>(
    open: impl Fn() -> Result<RemoteModel>,
    read: impl Fn(&RemoteModel) -> Result<T>,
) -> Result<T> {
    let mut model = open()?;
    let mut attempt = 1;
    loop {
        let error = match read(&model) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let may_be_replaced = error.has(ErrorKind::MissingFile) || error.has(ErrorKind::Changed);
        if !may_be_replaced || attempt == ATTEMPTS {
            return Err(error);
        }
        let now = open()?;
        if now.object.version().is(model.object.version()) {
            return Err(error);
        }
        (model, attempt) = (now, attempt + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_one() {
        const MIB: u64 = 1 << 20;
        // The ranges, the length of the file, and what is read.
        let cases = [
            (vec![], 5, vec![]),
            (vec![(4, 8), (0, 4)], 8, vec![(0, 8)]),
            (vec![(0, 4), (2, 3), (4 + MIB, 5 + MIB)], 9 * MIB, vec![(0, 5 + MIB)]),
            (vec![(0, 4), (5 + MIB, 6 + MIB)], 9 * MIB, vec![(0, 4), (5 + MIB, 6 + MIB)]),
            (vec![(2, u64::MAX), (9, 12)], 8, vec![(2, 8)]),
        ];
        for (ranges, len, expected) in cases {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
            let joined: Vec<_> =
                joined(&ranges, len).into_iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(joined, expected, "{ranges:?}");
        }
    }
}
