//! Which entries a safetensors file has, in which order. Pure: nothing is read or written.
//!
//! An entry is called after the first tensor that shows its bytes; the names of tied tensors stand in the
//! metadata, as `safetensors.torch.save_model` does it. Where the entries lie in a file is left to
//! `section`.

mod section;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{MAX_NAME, Piece, Placed, Plan, PlannedFile, Source, Used, hosts, location_name};
use crate::buffer::Buffer;
use crate::container::Handle;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, is_external};
use crate::initializer::{Address, Initializer};
use crate::names::UniqueNames;
use crate::safetensors_header::{FORMAT, METADATA, PADDING};
use crate::save::options::SaveOptions;
use crate::tensor::Tensor;
use crate::traversal::{self, Site};
use section::{Style, lay_out};

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
        let mut all = Entries::of(source, used, None)?;
        all.entries.retain(|entry| entry.handle().is_none_or(|handle| !guests.contains(handle)));
        let style = Style::new(&all.padding, &BTreeMap::new(), options, true);
        let laid = lay_out(name, &all.entries, &style, 1)?;
        for (entry, range) in all.entries.iter().zip(laid.ranges) {
            if let Some(handle) = entry.handle() {
                self.places.insert(handle, Placed { file: 0, range });
            }
        }
        self.files.push(laid.file);
        self.guests(used, &hosts);
        Ok(())
    }
}

/// `<model stem>.safetensors`, cleaned where that makes no location.
pub(super) fn default_name(model_name: &str) -> String {
    location_name(model_name.strip_suffix(".onnx").unwrap_or(model_name), ".safetensors")
}

/// How an export is written.
pub(crate) struct ExportStyle<'o> {
    /// The most bytes of tensors in one file.
    pub(crate) max_shard: Option<u64>,
    pub(crate) metadata: &'o BTreeMap<String, String>,
    /// Whether entries without a tensor may fill what alignment leaves.
    pub(crate) padding: bool,
    pub(crate) save: &'o SaveOptions,
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
    /// Names in the files that are not their tensor's, and the tensor's.
    pub(crate) renamed: BTreeMap<String, String>,
    /// Inline tensors that are in no file.
    pub(crate) left_out: Vec<String>,
    /// Large initializers that no tensor refers to.
    pub(crate) unused: Vec<Handle>,
}

impl<'c> Exports<'c> {
    /// Plans the large initializers of `source`, and inline ones without elements, as the file
    /// `<stem>.safetensors`, or as shards and their index.
    pub(crate) fn new(
        source: Source<'c, '_>,
        stem: &str,
        export: &ExportStyle<'_>,
    ) -> Result<Self> {
        let metadata = export.metadata;
        if metadata.contains_key(PADDING) {
            let reason = format!("the metadata `{PADDING}` say which entries are no tensors");
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let used = source.used()?;
        let Entries { entries, padding, renamed, left_out, .. } =
            Entries::of(source, &used, Some(metadata))?;
        let tensors = entries.len();
        let as_bytes = entries.iter().filter(|entry| !is_readable(entry.dtype, &entry.dims));
        let as_bytes = as_bytes.map(|entry| entry.name.clone()).collect();
        let style = Style::new(&padding, metadata, export.save, export.padding);
        // Planned first: it refuses metadata that are too long to be listed.
        let shards = shards(entries, export.max_shard.unwrap_or(u64::MAX));
        let files = files(&shards, stem, &style)?;
        let tied = shards
            .iter()
            .flatten()
            .flat_map(|entry| entry.tied.iter().map(|tied| (tied.clone(), entry.name.clone())));
        let (tied, unused) = (tied.collect(), source.unused(&used));
        Ok(Self { files, tensors, as_bytes, tied, renamed, left_out, unused })
    }
}

/// The files of `shards` and their index, or the one file.
fn files<'c>(
    shards: &[Vec<Entry<'c>>],
    stem: &str,
    style: &Style<'_>,
) -> Result<Vec<PlannedFile<'c>>> {
    if let [shard] = shards {
        let name = file_name(stem, ".safetensors")?;
        return Ok(vec![lay_out(name, shard, style, 1)?.file]);
    }
    let (mut files, mut weight_map, mut total) = (Vec::new(), BTreeMap::new(), 0_u64);
    let mut padding = 1;
    for (i, shard) in shards.iter().enumerate() {
        let name = file_name(stem, &format!("-{:05}-of-{:05}.safetensors", i + 1, shards.len()))?;
        let laid = lay_out(name.clone(), shard, style, padding)?;
        padding += laid.padding.len();
        // Padding too: there are readers that refuse entries which the index does not have.
        let names = shard.iter().map(|entry| entry.name.clone()).chain(laid.padding);
        weight_map.extend(names.map(|entry| (entry, name.clone())));
        total = shard.iter().fold(total, |total, entry| total.saturating_add(entry.len()));
        files.push(laid.file);
    }
    files.push(index(file_name(stem, ".safetensors.index.json")?, &weight_map, total)?);
    Ok(files)
}

/// `stem` and `suffix`. A name that is too long for file systems is refused: cut, it could be that of
/// another export's file.
fn file_name(stem: &str, suffix: &str) -> Result<String> {
    let name = format!("{stem}{suffix}");
    if name.len() <= MAX_NAME {
        return Ok(name);
    }
    let reason = format!(
        "the name is too long: that of a file of this export would have {} bytes, and {MAX_NAME} is \
         the most",
        name.len()
    );
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name))
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
    let mut json = json.map_err(|e| Error::internal(format!("an index is no JSON: {e}")))?;
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
    /// Where the bytes are; `None` for an inline tensor, which has no elements.
    bytes: Option<(&'c Handle, &'c Initializer)>,
    /// Other tensors of the same bytes, type and shape.
    tied: Vec<String>,
}

impl<'c> Entry<'c> {
    /// In bytes.
    fn len(&self) -> u64 {
        self.bytes.map_or(0, |(_, initializer)| initializer.byte_len())
    }

    fn handle(&self) -> Option<&'c Handle> {
        self.bytes.map(|(handle, _)| handle)
    }

    /// Its bytes at `offset` of a file, where it has some.
    fn piece(&self, offset: u64) -> Option<Piece<'c>> {
        self.bytes.map(|(handle, initializer)| Piece::new(offset, handle, initializer))
    }

    /// The type and shape that stand in the header: plain bytes where readers have no such type.
    fn stored(&self) -> Result<(DataType, Vec<i64>)> {
        if is_readable(self.dtype, &self.dims) {
            return Ok((self.dtype, self.dims.clone()));
        }
        let len = i64::try_from(self.len());
        let len = len.map_err(|_| Error::internal("a tensor of 2^63 bytes is to be written"))?;
        Ok((DataType::Uint8, vec![len]))
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

/// What a safetensors file of a model has to hold.
#[derive(Default)]
struct Entries<'c, 'm> {
    /// In graph order, those without elements that are inline in the model last.
    entries: Vec<Entry<'c>>,
    names: UniqueNames,
    /// How padding may not be called.
    padding: TensorsLikePadding,
    renamed: BTreeMap<String, String>,
    /// Inline tensors that have no entry.
    left_out: Vec<String>,
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

impl<'c, 'm> Entries<'c, 'm> {
    /// The entries for `used`, in graph order. Tensors of the same bytes, type and shape are one. For
    /// an export, which has `metadata`, they are entries of their own where their type or shape is
    /// another, or where the metadata cannot say that they are tied; and inline initializers without
    /// elements are entries too, since readers ask for every name.
    fn of(
        source: Source<'c, '_>,
        used: &[Used<'c>],
        metadata: Option<&'m BTreeMap<String, String>>,
    ) -> Result<Self> {
        let keys = metadata.into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        let keys = keys.chain([FORMAT, PADDING]).collect();
        let mut all = Self { keys, every: metadata.is_some(), ..Self::default() };
        all.names.take(METADATA);
        let (mut external, mut empty) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        traversal::tensors(source.model, |place, tensor| {
            all.padding.add(&place.name_of(tensor));
            let name = place.qualified_name(tensor);
            if is_external(tensor) {
                let (handle, _) = source.container.initializer_of(tensor)?;
                let (dtype, _) = external_data::layout(tensor)?;
                let declared = Declared { name, dtype, dims: tensor.dims.clone() };
                external.entry(handle).or_default().push(declared);
            } else if let (Site::Initializer, Ok((dtype, 0))) =
                (place.site, external_data::layout(tensor))
            {
                empty.push(Declared { name, dtype, dims: tensor.dims.clone() });
            } else if all.every {
                all.left_out.push(name);
            }
            Ok(())
        })?;
        let real = external.values().flatten().chain(empty.iter().filter(|_| all.every));
        real.for_each(|declared| all.names.reserve(&declared.name));
        for tensor in used {
            for declared in external.remove(tensor.handle).unwrap_or_default() {
                all.add(tensor, declared);
            }
        }
        if all.every {
            empty.into_iter().for_each(|declared| all.push(declared, None));
        }
        Ok(all)
    }

    /// Adds a tensor that shows the bytes of `used`.
    fn add(&mut self, used: &Used<'c>, declared: Declared) {
        let shown = match used.address {
            Some(address) => Shown::Memory { address, len: used.len },
            None => Shown::Of(used.handle),
        };
        let same = self.same.entry(shown).or_default();
        let entries = &mut self.entries;
        let is_equal =
            |entry: &Entry<'_>| entry.dtype == declared.dtype && entry.dims == declared.dims;
        let equal = same.iter().find(|i| entries.get(**i).is_some_and(is_equal));
        let equal = equal.filter(|_| !self.keys.contains(declared.name.as_str()));
        if let Some(entry) = equal.and_then(|i| entries.get_mut(*i)) {
            let name = unique(&mut self.names, &mut self.renamed, declared.name);
            entry.tied.push(name);
        } else if self.every || same.is_empty() {
            same.push(entries.len());
            self.push(declared, Some((used.handle, used.initializer)));
        }
    }

    fn push(&mut self, declared: Declared, bytes: Option<(&'c Handle, &'c Initializer)>) {
        let Declared { name, dtype, dims } = declared;
        let name = unique(&mut self.names, &mut self.renamed, name);
        self.entries.push(Entry { name, dtype, dims, bytes, tied: Vec::new() });
    }
}

/// A name for the tensor called `name`; one that is another is noted.
fn unique(names: &mut UniqueNames, renamed: &mut BTreeMap<String, String>, name: String) -> String {
    let given = names.name(&name, "");
    if given != name {
        renamed.insert(given.clone(), name);
    }
    given
}

/// What a tensor of the model is called and declared as.
struct Declared {
    name: String,
    dtype: DataType,
    dims: Vec<i64>,
}

/// The tensors of a model that are called as padding could be.
#[derive(Default)]
struct TensorsLikePadding {
    /// How many underscores are before `padding__.`.
    underscores: HashSet<usize>,
    /// The numbers in `__padding_N__.`.
    numbers: HashSet<u64>,
}

impl TensorsLikePadding {
    /// The most underscores in front: the names of padding stay short, whatever tensors are called.
    const MOST: usize = 16;

    fn add(&mut self, name: &str) {
        let rest = name.trim_start_matches('_');
        if rest.starts_with("padding__.") {
            self.underscores.insert(name.len() - rest.len());
        }
        let numbered = name.strip_prefix("__padding_").and_then(|rest| rest.split_once("__."));
        if let Some(number) = numbered.and_then(|(number, _)| number.parse().ok()) {
            self.numbers.insert(number);
        }
    }

    /// How the names of padding begin: as no tensor's does.
    fn prefix(&self) -> String {
        let underscores = (2..=Self::MOST).find(|count| !self.underscores.contains(count));
        if let Some(count) = underscores {
            return format!("{}padding__.", "_".repeat(count));
        }
        let mut number = 2_u64;
        while self.numbers.contains(&number) {
            number += 1;
        }
        format!("__padding_{number}__.")
    }
}
