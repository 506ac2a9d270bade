//! Which entries a safetensors file has, and in which order. Pure: nothing is read or written.
//!
//! An entry is named after the first tensor that has its bytes; the names of tied tensors are in
//! the metadata, as `safetensors.torch.save_model` writes them. The offsets of the entries are left
//! to `section`.

mod entry;
mod section;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::layout::{Layout, PlannedFile, WeightPlace};
use super::proportion::{refuse_overlaps, refuse_padding};
use crate::container::Handle;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, is_external};
use crate::files::safetensors_header::{FORMAT, METADATA, PADDING};
use crate::graph::traversal::{self, Site};
use crate::proto::ModelProto;
use crate::save::gather::equal::Equal;
use crate::save::gather::weights::{GatheredWeights, NO_BYTES, Weight, WeightTensor};
use crate::save::options::SaveOptions;
use crate::save::target::file_names::MAX_NAME;
use crate::tensor::initializer::Address;
use crate::util::names::UniqueNames;
use entry::{PlannedEntry, TensorsLikePadding, is_readable, plain_bytes};
use section::{Style, check_count, lay_out};

impl Layout<'_, '_> {
    /// Plans one safetensors file that the model refers into.
    pub(super) fn safetensors_file(
        &mut self,
        model: &ModelProto,
        tensors: &[WeightTensor],
        name: String,
        options: &SaveOptions,
    ) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let aliases = self.aliases(options);
        let mut all = Entries::of(model, tensors, self.rest(), self.equal, None)?;
        let is_alias =
            |entry: &PlannedEntry<'_>| entry.weight.is_some_and(|w| aliases.contains_key(&w));
        all.entries.retain(|entry| !is_alias(entry));
        let style = Style::new(&all.padding, &BTreeMap::new(), options, true);
        let laid = lay_out(name, &all.entries, &style, 1)?;
        for (entry, range) in all.entries.iter().zip(laid.ranges) {
            if let Some(weight) = entry.weight {
                let range = if entry.len() == 0 { NO_BYTES } else { range };
                self.place(weight, WeightPlace::File(0, range))?;
            }
        }
        self.files.push(laid.file);
        self.place_aliases(&aliases)
    }
}

/// How an export is written.
pub(crate) struct ExportStyle<'o> {
    /// The maximum number of bytes of tensors in one file.
    pub(crate) max_shard: Option<u64>,
    pub(crate) metadata: &'o BTreeMap<String, String>,
    /// Whether entries that are not tensors may fill the gaps that alignment leaves.
    pub(crate) padding: bool,
    pub(crate) save: &'o SaveOptions,
}

/// The files of an export, and the facts that its result reports.
pub(crate) struct Exports<'c> {
    /// The weights files; where there are several shards, their index is last.
    pub(crate) files: Vec<PlannedFile<'c>>,
    /// The number of entries that are tensors.
    pub(crate) tensors: usize,
    /// Entries that are declared as plain bytes.
    pub(crate) as_bytes: Vec<String>,
    /// Tensors without an entry of their own, and the entry that has their bytes.
    pub(crate) tied: BTreeMap<String, String>,
    /// Entries whose name differs from their tensor's: the name of the entry, and the tensor's.
    pub(crate) renamed: BTreeMap<String, String>,
    /// Inline tensors that are in no file.
    pub(crate) left_out: Vec<String>,
    /// Large initializers that no tensor refers to.
    pub(crate) unused: Vec<Handle>,
    /// Entries that are longer than the maximum of a shard, with their length in bytes.
    pub(crate) oversized: Vec<(String, u64)>,
}

impl<'c> Exports<'c> {
    /// Plans the `weights` of `model`, and inline tensors without elements, as the file
    /// `<stem>.safetensors`, or as shards and their index.
    pub(crate) fn new(
        model: &ModelProto,
        weights: &GatheredWeights<'c>,
        stem: &str,
        export: &ExportStyle<'_>,
    ) -> Result<Self> {
        let metadata = export.metadata;
        if metadata.contains_key(PADDING) {
            let reason = format!("the metadata key `{PADDING}` is reserved for padding entries");
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let used = weights.used.iter().enumerate();
        let Entries { entries, padding, renamed, left_out, .. } =
            Entries::of(model, &weights.tensors, used, &Equal::default(), Some(metadata))?;
        let tensors = entries.len();
        let unreadable = entries.iter().filter(|entry| !is_readable(entry.dtype, &entry.dims));
        let as_bytes = unreadable.map(|entry| entry.name.clone()).collect();
        let style = Style::new(&padding, metadata, export.save, export.padding);
        let max = export.max_shard.unwrap_or(u64::MAX);
        let larger = entries.iter().filter(|entry| entry.len() > max);
        let oversized = larger.map(|entry| (entry.name.clone(), entry.len())).collect();
        // Planned before `tied` is listed, because planning refuses metadata that are too long.
        let shards = shards(entries, max);
        let files = files(&shards, stem, &style)?;
        refuse_padding(&files)?;
        refuse_overlaps(files.iter().flat_map(PlannedFile::initializers))?;
        let tied = shards
            .iter()
            .flatten()
            .flat_map(|entry| entry.tied.iter().map(|tied| (tied.clone(), entry.name.clone())));
        let (tied, unused) = (tied.collect(), weights.unused());
        Ok(Self { files, tensors, as_bytes, tied, renamed, left_out, unused, oversized })
    }
}

/// The files of `shards` and their index, or the one file.
fn files<'c>(
    shards: &[Vec<PlannedEntry<'c>>],
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
        // Padding entries are listed too, because some readers refuse entries that are not in the
        // index.
        let names = shard.iter().map(|entry| entry.name.clone()).chain(laid.padding);
        weight_map.extend(names.map(|entry| (entry, name.clone())));
        total = shard.iter().fold(total, |total, entry| total.saturating_add(entry.len()));
        files.push(laid.file);
    }
    files.push(index(file_name(stem, ".safetensors.index.json")?, &weight_map, total)?);
    Ok(files)
}

/// `stem` followed by `suffix`. A name that is too long for file systems is refused: if it were
/// cut, it could be the name of another export's file.
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
fn shards(entries: Vec<PlannedEntry<'_>>, max: u64) -> Vec<Vec<PlannedEntry<'_>>> {
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
    check_count(weight_map.len(), "an index")?;
    let index = serde_json::json!({
        "metadata": { "total_size": total },
        "weight_map": weight_map,
    });
    let no_json = |e| Error::internal(format!("an index is no JSON: {e}"));
    let mut text = serde_json::to_vec_pretty(&index).map_err(no_json)?;
    text.push(b'\n');
    let piece = plain_bytes(text)?;
    Ok(PlannedFile { name, len: piece.initializer.byte_len(), pieces: vec![piece] })
}

/// The entries and metadata of a safetensors file of a model.
#[derive(Default)]
struct Entries<'c, 'm> {
    /// In graph order, except that inline tensors without elements come last.
    entries: Vec<PlannedEntry<'c>>,
    names: UniqueNames,
    /// The names that padding must not have.
    padding: TensorsLikePadding,
    renamed: BTreeMap<String, String>,
    /// Inline tensors that have no entry.
    left_out: Vec<String>,
    /// Metadata keys that are in use, so that they cannot record that a tensor is tied.
    keys: HashSet<&'m str>,
    /// Whether readers must find every tensor by its name.
    every: bool,
    /// The entries that have the same bytes.
    same: HashMap<Shown, Vec<usize>>,
}

/// Identifies the bytes of a tensor.
#[derive(PartialEq, Eq, Hash)]
enum Shown {
    Memory {
        address: Address,
        len: u64,
    },
    /// The bytes of the weight of this number: its address is not known, or others are equal to it.
    Of(usize),
}

impl<'c, 'm> Entries<'c, 'm> {
    /// The entries for `weights`, in graph order. Tensors of the same bytes, type and shape share
    /// one entry. In an export, which has `metadata`, tensors of the same bytes have separate
    /// entries where their types or shapes differ, or where the metadata cannot record that they
    /// are tied. Inline initializers without elements are then entries too, since readers ask for
    /// every name.
    fn of<'a>(
        model: &ModelProto,
        tensors: &[WeightTensor],
        weights: impl Iterator<Item = (usize, &'a Weight<'c>)>,
        equal: &Equal,
        metadata: Option<&'m BTreeMap<String, String>>,
    ) -> Result<Self>
    where
        'c: 'a,
    {
        let given = metadata.into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        let keys = given.chain([FORMAT, PADDING]).collect();
        let mut all = Self { keys, every: metadata.is_some(), ..Self::default() };
        all.names.take(METADATA);
        let (mut external, mut empty) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        let mut resolved = tensors.iter().filter(|tensor| !tensor.inline).peekable();
        traversal::tensors(model, |place, tensor| {
            all.padding.add(&place.name_of(tensor));
            let name = place.qualified_name(tensor);
            let this = resolved.next_if(|next| next.position == place.position);
            if let Some(WeightTensor { weight, .. }) = this {
                let (dtype, _) = external_data::layout(tensor)?;
                let declared = Declared { name, dtype, dims: tensor.dims.clone() };
                external.entry(*weight).or_default().push(declared);
            } else if is_external(tensor) {
                // The tensor was not loaded, or goes into the model.
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
        if resolved.next().is_some() {
            return Err(Error::internal("a resolved tensor is not in the model"));
        }
        for (number, weight) in weights {
            for declared in external.remove(&number).into_iter().flatten() {
                all.add(number, weight, equal, declared);
            }
        }
        if all.every {
            empty.into_iter().for_each(|declared| all.push(declared, None));
        }
        Ok(all)
    }

    /// Adds a tensor that has the bytes of `weight`.
    fn add(&mut self, number: usize, weight: &Weight<'c>, equal: &Equal, declared: Declared) {
        let shown = match (equal.class(number), weight.address) {
            (Some(class), _) => Shown::Of(class),
            (None, Some(address)) => Shown::Memory { address, len: weight.len },
            (None, None) => Shown::Of(number),
        };
        let same = self.same.entry(shown).or_default();
        let entries = &mut self.entries;
        let is_equal =
            |entry: &PlannedEntry<'_>| entry.dtype == declared.dtype && entry.dims == declared.dims;
        let equal = same.iter().find(|i| entries.get(**i).is_some_and(is_equal));
        let may_be_tied = !self.keys.contains(declared.name.as_str());
        if let Some(entry) = equal.filter(|_| may_be_tied).and_then(|i| entries.get_mut(*i)) {
            let name = unique(&mut self.names, &mut self.renamed, declared.name);
            entry.tied.push(name);
        } else if self.every || same.is_empty() {
            same.push(entries.len());
            self.push(declared, Some((number, weight)));
        }
    }

    fn push(&mut self, declared: Declared, shown: Option<(usize, &Weight<'c>)>) {
        let Declared { name, dtype, dims } = declared;
        let name = unique(&mut self.names, &mut self.renamed, name);
        let bytes = shown.map(|(_, weight)| (weight.handle, weight.initializer));
        let weight = shown.map(|(number, _)| number);
        self.entries.push(PlannedEntry { name, dtype, dims, bytes, weight, tied: Vec::new() });
    }
}

/// A unique name for the tensor called `name`; records it where it differs.
fn unique(names: &mut UniqueNames, renamed: &mut BTreeMap<String, String>, name: String) -> String {
    let given = names.name(&name, "");
    if given != name {
        renamed.insert(given.clone(), name);
    }
    given
}

/// The name and the declared type and shape of a tensor of the model.
struct Declared {
    name: String,
    dtype: DataType,
    dims: Vec<i64>,
}
