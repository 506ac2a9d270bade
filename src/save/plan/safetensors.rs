//! Which entries a safetensors file has, in which order. Pure: nothing is read or written.
//!
//! The format allows no gap between tensors, and readers want them aligned. So tensors whose length
//! is a multiple of the alignment come first, each at an aligned offset by itself; what is left over
//! is filled by entries that hold nothing. An entry is called after the first tensor that shows its
//! bytes; the names of tied tensors stand in the metadata, as `safetensors.torch.save_model` does it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::{Piece, Placed, Plan, PlannedFile, Source, Used, hosts, location_name, with_suffix};
use crate::buffer::Buffer;
use crate::container::Handle;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, is_external};
use crate::initializer::{Address, Initializer};
use crate::names::UniqueNames;
use crate::placement::{Alignment, Cursor};
use crate::safetensors_header::{self as header, FORMAT, FORMAT_PT, Header, METADATA, PADDING};
use crate::save::options::SaveOptions;
use crate::tensor::Tensor;
use crate::traversal;

impl<'c> Plan<'c> {
    /// Plans one safetensors file that the model refers into.
    pub(super) fn safetensors_file(
        &mut self,
        source: Source<'c, '_>,
        used: &[Used<'c>],
        name: String,
        options: &SaveOptions,
    ) -> Result<()> {
        if used.is_empty() {
            return Ok(());
        }
        let hosts = hosts(used, options);
        let guests = used.iter().enumerate().filter(|(i, _)| hosts.contains_key(i));
        let guests: HashSet<_> = guests.map(|(_, guest)| guest.handle).collect();
        let mut entries = entries(source, used, None)?;
        entries.retain(|entry| !guests.contains(entry.handle));
        let style = Style::new(&entries, &BTreeMap::new(), options);
        let (file, ranges) = lay_out(name, &entries, &style)?;
        for (entry, range) in entries.iter().zip(ranges) {
            self.places.insert(entry.handle, Placed { file: 0, range });
        }
        self.files.push(file);
        self.guests(used, &hosts);
        Ok(())
    }
}

/// `<model stem>.safetensors`, cleaned where that makes no location.
pub(super) fn default_name(model_name: &str) -> String {
    location_name(model_name.strip_suffix(".onnx").unwrap_or(model_name), ".safetensors")
}

/// The files of an export, and what is to be said of it.
pub(crate) struct Exports<'c> {
    /// The weights, and after several shards their index.
    pub(crate) files: Vec<PlannedFile<'c>>,
    /// The number of entries that are tensors.
    pub(crate) tensors: usize,
    /// Entries that have plain bytes for a type.
    pub(crate) as_bytes: Vec<String>,
    /// Tensors without an entry of their own, and the entry that has their bytes.
    pub(crate) tied: BTreeMap<String, String>,
    /// Large initializers that no tensor refers to.
    pub(crate) unused: Vec<Handle>,
}

impl<'c> Exports<'c> {
    /// Plans the large initializers of `source` as the file `<stem>.safetensors`, or as shards
    /// of at most `max_shard` bytes of tensors and their index.
    pub(crate) fn new(
        source: Source<'c, '_>,
        stem: &str,
        max_shard: Option<u64>,
        metadata: &BTreeMap<String, String>,
        options: &SaveOptions,
    ) -> Result<Self> {
        if metadata.contains_key(PADDING) {
            let reason = format!("the metadata `{PADDING}` say which entries are no tensors");
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let used = source.used()?;
        let entries = entries(source, &used, Some(metadata))?;
        let tied = entries
            .iter()
            .flat_map(|entry| entry.tied.iter().map(|tied| (tied.clone(), entry.name.clone())));
        let as_bytes = entries.iter().filter(|entry| entry.stored().0 != entry.dtype);
        Ok(Self {
            tensors: entries.len(),
            as_bytes: as_bytes.map(|entry| entry.name.clone()).collect(),
            tied: tied.collect(),
            unused: source.unused(&used),
            files: files(entries, stem, max_shard, metadata, options)?,
        })
    }
}

/// The shards of `entries` and their index, or the one file that they fit.
fn files<'c>(
    entries: Vec<Entry<'c>>,
    stem: &str,
    max_shard: Option<u64>,
    metadata: &BTreeMap<String, String>,
    options: &SaveOptions,
) -> Result<Vec<PlannedFile<'c>>> {
    let style = Style::new(&entries, metadata, options);
    let shards = shards(entries, max_shard.unwrap_or(u64::MAX));
    if let [shard] = shards.as_slice() {
        let name = with_suffix(stem, ".safetensors");
        return Ok(vec![lay_out(name, shard, &style)?.0]);
    }
    let (mut files, mut weight_map, mut total) = (Vec::new(), BTreeMap::new(), 0_u64);
    for (i, shard) in shards.iter().enumerate() {
        let name = with_suffix(stem, &format!("-{:05}-of-{:05}.safetensors", i + 1, shards.len()));
        for entry in shard {
            weight_map.insert(entry.name.clone(), name.clone());
            total = total.saturating_add(entry.len());
        }
        files.push(lay_out(name, shard, &style)?.0);
    }
    files.push(index(with_suffix(stem, ".safetensors.index.json"), &weight_map, total)?);
    Ok(files)
}

/// Cuts `entries` where the next one would make a shard longer than `max` bytes. A longer entry has
/// a shard of its own.
fn shards(entries: Vec<Entry<'_>>, max: u64) -> Vec<Vec<Entry<'_>>> {
    let (mut shards, mut shard, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
    for entry in entries {
        let longer = bytes.saturating_add(entry.len());
        if longer > max && !shard.is_empty() {
            shards.push(std::mem::take(&mut shard));
            bytes = 0;
        }
        bytes = bytes.saturating_add(entry.len());
        shard.push(entry);
    }
    shards.push(shard);
    shards
}

/// The file that says which shard holds which tensor, in the form of Hugging Face.
fn index(
    name: String,
    weight_map: &BTreeMap<String, String>,
    total: u64,
) -> Result<PlannedFile<'static>> {
    let json = serde_json::json!({
        "metadata": { "total_size": total },
        "weight_map": weight_map,
    });
    let json = serde_json::to_vec_pretty(&json);
    let mut json = json.map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))?;
    json.push(b'\n');
    let piece = plain_bytes(json)?;
    Ok(PlannedFile { name, len: piece.initializer.byte_len(), pieces: vec![piece] })
}

/// Bytes at the start of a file that are no tensor of the model.
fn plain_bytes(bytes: Vec<u8>) -> Result<Piece<'static>> {
    let dims = i64::try_from(bytes.len());
    let dims = dims.map_err(|_| Error::new(ErrorKind::TooLarge, "a header of 2^63 bytes"))?;
    let bytes = Tensor::new(DataType::Uint8, [dims], Buffer::from(bytes))?;
    Ok(Piece { offset: 0, initializer: Cow::Owned(bytes.into()), handle: None })
}

/// Bytes that become one entry.
struct Entry<'c> {
    name: String,
    dtype: DataType,
    dims: Vec<i64>,
    handle: &'c Handle,
    initializer: &'c Initializer,
    /// Other tensors of the same bytes, type and shape.
    tied: Vec<String>,
}

impl<'c> Entry<'c> {
    /// In bytes.
    fn len(&self) -> u64 {
        self.initializer.byte_len()
    }

    /// Its bytes at `offset` of a file.
    fn piece(&self, offset: u64) -> Piece<'c> {
        Piece::new(offset, self.handle, self.initializer)
    }

    /// The type and shape that stand in the header: plain bytes where readers have no such type.
    fn stored(&self) -> (DataType, Vec<i64>) {
        if is_readable(self.dtype, &self.dims) {
            return (self.dtype, self.dims.clone());
        }
        // A length in bytes was seen to fit 63 bits when the tensor was.
        (DataType::Uint8, vec![i64::try_from(self.len()).unwrap_or(i64::MAX)])
    }
}

/// Whether readers take entries of this type and shape. One name that a reader does not know makes
/// the whole file unreadable to it, so the newest are not used: no framework has the 6-bit floats,
/// and onnx_ir does not know the `FNUZ` types. PyTorch reads 4-bit floats as pairs.
fn is_readable(dtype: DataType, dims: &[i64]) -> bool {
    use DataType::{Float4E2M1, Float6E2M3, Float6E3M2, Float8E4M3Fnuz, Float8E5M2Fnuz};
    match dtype {
        Float6E2M3 | Float6E3M2 | Float8E4M3Fnuz | Float8E5M2Fnuz => false,
        Float4E2M1 => dims.last().is_some_and(|last| last % 2 == 0),
        _ => dtype.safetensors_name().is_some(),
    }
}

/// What a tensor of the model is called and declared as.
struct Declared {
    name: String,
    dtype: DataType,
    dims: Vec<i64>,
}

/// What the tensors behind every handle are called and declared as, in graph order.
fn declared<'c>(source: Source<'c, '_>) -> Result<HashMap<&'c Handle, Vec<Declared>>> {
    let mut declared: HashMap<_, Vec<_>> = HashMap::new();
    traversal::tensors(source.model, |place, tensor| {
        if is_external(tensor) {
            let (handle, _) = source.container.initializer_of(tensor)?;
            let (dtype, _) = external_data::layout(tensor)?;
            let (name, dims) = (place.qualified_name(tensor), tensor.dims.clone());
            declared.entry(handle).or_default().push(Declared { name, dtype, dims });
        }
        Ok(())
    })?;
    Ok(declared)
}

/// The entries for `used`, in graph order. Tensors of the same bytes, type and shape are one. For an
/// export, which has `metadata`, they are entries of their own where their type or shape is another,
/// or where the metadata cannot say that they are tied.
fn entries<'c>(
    source: Source<'c, '_>,
    used: &[Used<'c>],
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<Vec<Entry<'c>>> {
    let mut declared = declared(source)?;
    let keys = metadata.into_iter().flat_map(BTreeMap::keys).map(String::as_str);
    let keys = keys.chain([FORMAT, PADDING]).collect();
    let mut names = UniqueNames::default();
    names.take(METADATA);
    declared.values().flatten().for_each(|declared| names.reserve(&declared.name));
    let mut all = Entries { keys, names, every: metadata.is_some(), ..Entries::default() };
    for tensor in used {
        for declared in declared.remove(tensor.handle).unwrap_or_default() {
            all.add(tensor, declared);
        }
    }
    Ok(all.entries)
}

/// The entries so far.
#[derive(Default)]
struct Entries<'c, 'm> {
    entries: Vec<Entry<'c>>,
    names: UniqueNames,
    /// The keys of metadata that say something else than which entry has a tensor's bytes.
    keys: HashSet<&'m str>,
    /// Whether every tensor has to be found by its name.
    every: bool,
    /// The entries that show the same bytes.
    same: HashMap<Shown<'c>, Vec<usize>>,
}

/// Which bytes a tensor shows.
#[derive(PartialEq, Eq, Hash)]
enum Shown<'c> {
    Memory {
        address: Address,
        len: u64,
    },
    /// Nobody can tell where they are.
    Of(&'c Handle),
}

impl<'c> Entries<'c, '_> {
    fn add(&mut self, tensor: &Used<'c>, declared: Declared) {
        let shown = match tensor.address {
            Some(address) => Shown::Memory { address, len: tensor.len },
            None => Shown::Of(tensor.handle),
        };
        let same = self.same.entry(shown).or_default();
        let Declared { name, dtype, dims } = declared;
        let entries = &mut self.entries;
        let is_equal = |entry: &Entry<'_>| entry.dtype == dtype && entry.dims == dims;
        let equal = same.iter().find(|i| entries.get(**i).is_some_and(is_equal));
        let equal = equal.filter(|_| !self.keys.contains(name.as_str()));
        if let Some(entry) = equal.and_then(|i| entries.get_mut(*i)) {
            if self.names.take(&name) {
                entry.tied.push(name);
            }
        } else if self.every || same.is_empty() {
            same.push(entries.len());
            let (name, handle) = (self.names.name(&name, ""), tensor.handle);
            let (initializer, tied) = (tensor.initializer, Vec::new());
            entries.push(Entry { name, dtype, dims, handle, initializer, tied });
        }
    }
}

/// What the files of one export have in common.
struct Style<'o> {
    options: &'o SaveOptions,
    metadata: BTreeMap<String, String>,
    /// How the names of padding begin, and no tensor's in any of the files.
    prefix: String,
}

impl<'o> Style<'o> {
    fn new(
        entries: &[Entry<'_>],
        metadata: &BTreeMap<String, String>,
        options: &'o SaveOptions,
    ) -> Self {
        let names =
            entries.iter().flat_map(|entry| std::iter::once(&entry.name).chain(&entry.tied));
        let alike = names.filter_map(|name| {
            let rest = name.trim_start_matches('_');
            rest.starts_with("padding__.").then_some(name.len() - rest.len())
        });
        let underscores = alike.max().map_or(2, |most| (most + 1).max(2));
        let prefix = format!("{}padding__.", "_".repeat(underscores));
        let mut metadata = metadata.clone();
        metadata.entry(FORMAT.to_owned()).or_insert_with(|| FORMAT_PT.to_owned());
        Self { options, metadata, prefix }
    }
}

/// The file `name` with `entries`, and their ranges in it.
fn lay_out<'c>(
    name: String,
    entries: &[Entry<'c>],
    style: &Style<'_>,
) -> Result<(PlannedFile<'c>, Vec<Range<u64>>)> {
    let mut section = Section::new(entries, style);
    let mut order: Vec<_> = entries.iter().enumerate().collect();
    order.sort_by_key(|(_, entry)| section.rank(entry.len()));
    let mut placed = Vec::new();
    for (i, entry) in order {
        placed.push((i, section.push(entry)?, entry));
    }
    let (alignment, end) = (section.alignment(), section.cursor.end());
    let header = plain_bytes(section.into_header(entries).to_bytes(alignment)?)?;
    let start = header.initializer.byte_len();
    let len = start.checked_add(end).filter(|len| i64::try_from(*len).is_ok());
    let len =
        len.ok_or_else(|| Error::new(ErrorKind::TooLarge, "more than 2^63 bytes of weights"))?;
    let data = placed.iter().map(|(_, offset, entry)| entry.piece(start + offset));
    let pieces = std::iter::once(header).chain(data).collect();
    placed.sort_unstable_by_key(|(i, ..)| *i);
    let ranges = placed.iter().map(|(_, offset, entry)| {
        let first = start + offset;
        first..first + entry.len()
    });
    Ok((PlannedFile { name, len, pieces }, ranges.collect()))
}

/// The data of one file, being laid out; offsets count from the first byte of data.
struct Section<'s> {
    style: &'s Style<'s>,
    /// Whether an entry is long enough for the greater alignment.
    large: bool,
    cursor: Cursor,
    entries: Vec<header::Entry>,
    paddings: usize,
}

impl<'s> Section<'s> {
    fn new(entries: &[Entry<'_>], style: &'s Style<'s>) -> Self {
        let large = entries.iter().any(|entry| entry.len() > SaveOptions::LARGE);
        Self { style, large, cursor: Cursor::default(), entries: Vec::new(), paddings: 0 }
    }

    /// The alignment that the first byte of data needs.
    fn alignment(&self) -> Alignment {
        self.style.options.alignment_of(if self.large { u64::MAX } else { 0 })
    }

    /// The place of entries of `len` bytes in the order that needs the least padding.
    fn rank(&self, len: u64) -> u8 {
        if len == 0 {
            4 // at the end, where nothing has to be aligned after it
        } else if self.large && self.alignment().is_aligned(len) {
            0
        } else if len > SaveOptions::LARGE {
            1
        } else if self.style.options.alignment_of(0).is_aligned(len) {
            2
        } else {
            3
        }
    }

    /// Places `entry`, after padding where its alignment needs some.
    fn push(&mut self, entry: &Entry<'_>) -> Result<u64> {
        let (end, len) = (self.cursor.end(), entry.len());
        let offset = match len {
            0 => end,
            _ => self.cursor.place(len, self.style.options.alignment_of(len))?,
        };
        if offset > end {
            self.paddings += 1;
            let name = format!("{}{}", self.style.prefix, self.paddings);
            let dims = vec![i64::try_from(offset - end).unwrap_or(i64::MAX)];
            let dtype = DataType::Uint8;
            self.entries.push(header::Entry { name, dtype, dims, range: end..offset });
        }
        let (dtype, dims) = entry.stored();
        let (name, range) = (entry.name.clone(), offset..self.cursor.end());
        self.entries.push(header::Entry { name, dtype, dims, range });
        Ok(offset)
    }

    fn into_header(self, entries: &[Entry<'_>]) -> Header {
        let mut metadata = self.style.metadata.clone();
        if self.paddings > 0 {
            metadata.insert(PADDING.to_owned(), self.style.prefix.clone());
        }
        for entry in entries {
            let tied = entry.tied.iter().map(|tied| (tied.clone(), entry.name.clone()));
            metadata.extend(tied);
        }
        Header { metadata, entries: self.entries }
    }
}
