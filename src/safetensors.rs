//! safetensors files: read, attached to a model by name, and written.
//!
//! The [format](https://github.com/huggingface/safetensors#format) of Hugging Face is a header that
//! names tensors, and their bytes. Large models come in several such files, shards, with an index
//! that lists the file of each tensor. [`load`] opens either, with one map or buffer for each file;
//! [`Container::attach_safetensors`] fills a model by name; and [`Container::export_safetensors`]
//! writes them. A safetensors file that is also a model's external data is written by
//! [`WeightFiles::Safetensors`](crate::WeightFiles::Safetensors).
//!
//! Types: every safetensors type has one ONNX type. ONNX types that readers do not know are written
//! as `U8` entries of their packed bytes, and get type and shape back from the model that they
//! fill. `docs/safetensors.md` has the table.

mod export;
mod summary;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

pub use export::{ExportOptions, Exported};
pub use summary::inspect;

use crate::buffer::Buffer;
use crate::container::Container;
use crate::container::fill::{FillOptions, Filled};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::consistent_read::{OneSave, read_one_save};
use crate::files::external_data::Directory;
use crate::files::file_format::{failed_download, is_safetensors, known_format};
use crate::files::safetensors_header::{
    FORMAT, Header, HeaderEntry, MAX_HEADER, PADDING, Unique, json_error,
};
use crate::load::LoadOptions;
use crate::proto::{Message, ModelProto};
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

/// The tensors of a safetensors file, or of all shards of an index, by name.
///
/// The bytes are slices of the files, unless the options of the load ask for copies. A tensor that
/// is taken out keeps its file, or its copy, alive.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
    tied: BTreeMap<String, String>,
    metadata: BTreeMap<String, String>,
    files: Vec<PathBuf>,
    warnings: Vec<Error>,
    /// The padding entries, which only fill gaps.
    padding: HashSet<String>,
}

/// Opens a `.safetensors` file, or all shards of a `.safetensors.index.json`.
///
/// Shards are opened only beneath the directory of their index.
///
/// Of the options, those of files and memory apply: [`mmap`](LoadOptions::mmap),
/// [`no_copy`](LoadOptions::no_copy), [`alignment`](LoadOptions::alignment) and
/// [`raw_data_threshold`](LoadOptions::raw_data_threshold). A [`MmapChoice`](crate::MmapChoice)
/// converts.
///
/// ```
/// use ndarray::array;
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, MmapChoice, safetensors};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", array![1_u8, 2])?;
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("w.safetensors");
/// container.export_safetensors(&path, safetensors::ExportOptions::new())?;
/// let weights = safetensors::load(&path, MmapChoice::never())?;
/// assert_eq!(weights.get("w").unwrap().as_slice::<u8>()?, [1, 2]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Decode`] for an invalid header, [`ErrorKind::NotDownloaded`] for what a failed
/// download left, [`ErrorKind::OutOfBounds`], [`ErrorKind::Shape`] or [`ErrorKind::DataType`] when
/// the header disagrees with itself or its file; for an index one error for
/// all shards that are missing, damaged, or do not hold what the index says
/// ([`ErrorKind::InvalidModel`]). [`ErrorKind::Unsupported`] for a tensor that is not aligned and
/// may not be copied.
pub fn load(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Weights> {
    let (path, options) = (path.as_ref(), options.into());
    let is_index = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let weights = read_one_save(path, options.mmap, |bytes| {
        if let Some(what) = failed_download(&bytes) {
            return Err(Error::new(ErrorKind::NotDownloaded, what));
        }
        if is_index {
            Weights::of_shards(&bytes, &Directory::of_model(path, options.paths)?, &options)
        } else {
            Weights::of_file(&bytes, &options)
        }
    });
    let OneSave { value: mut weights, warning } = weights.map_err(|error| error.with_path(path))?;
    weights.files.insert(0, path.to_path_buf());
    weights.warnings.extend(warning);
    Ok(weights)
}

/// The tensors of a safetensors file in memory, as slices of `bytes`.
///
/// # Errors
/// As [`load`] for one file.
pub fn load_bytes(bytes: impl Into<Buffer>) -> Result<Weights> {
    Weights::of_file(&bytes.into(), &LoadOptions::new())
}

/// The format of `bytes` that cannot be read as a safetensors file, for the error; `None` where it
/// is not recognised.
fn what_else(bytes: &Buffer) -> Option<String> {
    // The length at the beginning of a safetensors file is at most 100 MB, so its last bytes are
    // zeros.
    let is_text = bytes.iter().take(8).all(|byte| *byte != 0);
    let what = match known_format(bytes) {
        Some(_) if is_safetensors(bytes) => return None,
        Some(format) => format,
        None if is_text && bytes.trim_ascii_start().starts_with(b"{") => "JSON text",
        None if ModelProto::decode(bytes).is_ok_and(|model| model.graph.is_some()) => {
            "an ONNX model"
        }
        None => return None,
    };
    let hint = match what {
        "JSON text" => ": the name of an index of shards ends in .json",
        what if what.contains("PyTorch") || what == "a zip archive" => {
            ": safetensors.torch.save_file writes one"
        }
        _ => "",
    };
    Some(format!("{what}, not a safetensors file{hint}"))
}

/// Whether `entry` is padding: `prefix` and a number, type `U8`, one dimension. Any other entry
/// whose name begins with `prefix` is a tensor.
fn is_padding(entry: &HeaderEntry, prefix: &str) -> bool {
    let number = entry.name.strip_prefix(prefix);
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    number.is_some_and(is_number) && entry.dtype == DataType::Uint8 && entry.dims.len() == 1
}

/// The index of a sharded model.
#[derive(Deserialize)]
struct Index {
    metadata: Option<Unique<Note>>,
    weight_map: Unique<String>,
}

/// The value of a metadata key in an index; only strings are used.
#[derive(Deserialize)]
#[serde(untagged)]
enum Note {
    Text(String),
    Other(IgnoredAny),
}

impl Index {
    fn parse(index: &[u8]) -> Result<Self> {
        if index.len() > MAX_HEADER {
            let reason = format!("an index of {} bytes is too long", index.len());
            return Err(Error::new(ErrorKind::Decode, reason));
        }
        serde_json::from_slice(index)
            .map_err(|e| json_error(&e).because("not an index of safetensors shards"))
    }

    fn texts(metadata: Option<Unique<Note>>) -> BTreeMap<String, String> {
        let notes = metadata.map(|metadata| metadata.0).unwrap_or_default().into_iter();
        let text = |(key, note)| match note {
            Note::Text(text) => Some((key, text)),
            Note::Other(_) => None,
        };
        notes.filter_map(text).collect()
    }
}

impl Weights {
    /// The tensor called `name`, which is an entry or is tied to one.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name).or_else(|| self.tensors.get(self.tied.get(name)?))
    }

    /// The entries, sorted by name. Padding is not among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Tensors without an entry of their own, and the entry whose bytes they share, as
    /// `safetensors.torch.save_model` and an export record them in the metadata.
    pub fn tied(&self) -> &BTreeMap<String, String> {
        &self.tied
    }

    /// The `__metadata__` of the file, without what is in [`tied`](Self::tied). For shards, the
    /// first value of a key counts, in the order of the shards and then the strings in the metadata
    /// of their index.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// What was done before the files were read: an export that was interrupted was completed or
    /// undone, or that was not possible.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    /// The files that were opened; the file given to [`load`] is the first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Adds the metadata of a file, once its tensors are known. There may be very many keys, so
    /// they are moved and each is stored once.
    fn note(&mut self, metadata: BTreeMap<String, String>) {
        let tensors = &self.tensors;
        let is_tie = |(key, value): &(String, String)| {
            let says_else = key == FORMAT || key == PADDING || tensors.contains_key(key);
            !says_else && tensors.contains_key(value)
        };
        let (ties, others): (Vec<_>, Vec<_>) = metadata.into_iter().partition(is_tie);
        add_new(&mut self.tied, ties);
        add_new(&mut self.metadata, others);
    }

    /// Adds another shard.
    fn add_shard(&mut self, shard: Self) {
        self.tensors.extend(shard.tensors);
        self.tied.extend(shard.tied);
        add_new(&mut self.metadata, shard.metadata);
    }

    /// The tensors of a file, in memory as `options` ask for.
    fn of_file(bytes: &Buffer, options: &LoadOptions) -> Result<Self> {
        if let Some(what) = failed_download(bytes) {
            return Err(Error::new(ErrorKind::NotDownloaded, what));
        }
        let (header, start) = Header::read(bytes).map_err(|error| match what_else(bytes) {
            Some(what) => Error::new(ErrorKind::Decode, what),
            None => error,
        })?;
        let Header { metadata, entries } = header;
        let padding = metadata.get(PADDING).filter(|prefix| !prefix.is_empty());
        let mut weights = Self::default();
        for entry in entries {
            if padding.is_some_and(|prefix| is_padding(&entry, prefix)) {
                weights.padding.insert(entry.name);
            } else {
                let range = usize::try_from(entry.range.start)
                    .ok()
                    .zip(usize::try_from(entry.range.end).ok());
                let data = range.and_then(|(from, to)| {
                    bytes.slice(start.checked_add(from)?..start.checked_add(to)?)
                });
                // The header was checked against the length of the file.
                let data = data.ok_or_else(|| Error::internal("an entry goes beyond its file"));
                let placed = data.and_then(|data| options.decode.place(data));
                let tensor = placed.and_then(|data| Tensor::new(entry.dtype, entry.dims, data));
                let tensor = tensor.map_err(|e| e.with_tensor(&entry.name))?;
                weights.tensors.insert(entry.name, tensor);
            }
        }
        weights.note(metadata);
        Ok(weights)
    }

    /// The tensors of all shards of an index.
    fn of_shards(index: &[u8], directory: &Directory, options: &LoadOptions) -> Result<Self> {
        let index = Index::parse(index)?;
        let places = index.weight_map.0;
        let mut shards: BTreeMap<_, Vec<_>> = BTreeMap::new();
        places
            .iter()
            .for_each(|(name, shard)| shards.entry(shard.as_str()).or_default().push(name));
        let (mut all, mut errors) = (Self::default(), Errors::default());
        for (shard, names) in shards {
            let path = directory.join(shard);
            let opened =
                directory.open_file(shard).and_then(|file| options.mmap.open(&file, &path));
            match opened.and_then(|bytes| Self::of_file(&bytes, options)) {
                Ok(weights) => {
                    let wrong = misplaced(&places, shard, &names, &weights);
                    errors.extend(wrong.into_iter().map(|error| error.with_path(&path)));
                    all.add_shard(weights);
                    all.files.push(path);
                }
                Err(error) => errors.push(error.with_path(path)),
            }
        }
        // A name that is tied in one shard may be an entry of another.
        all.tied.retain(|name, _| !all.tensors.contains_key(name));
        all.note(Index::texts(index.metadata));
        errors.join().map_or(Ok(all), Err)
    }
}

/// Adds `more` to `all`; a key that is already there keeps its value.
fn add_new(all: &mut BTreeMap<String, String>, more: impl IntoIterator<Item = (String, String)>) {
    if all.is_empty() {
        *all = more.into_iter().collect();
    } else {
        more.into_iter().for_each(|(key, value)| {
            all.entry(key).or_insert(value);
        });
    }
}

/// The differences between the `names` that the index has for this shard and the shard.
fn misplaced(
    places: &BTreeMap<String, String>,
    shard: &str,
    names: &[&String],
    weights: &Weights,
) -> Vec<Error> {
    let wrong =
        |name: &str, reason: String| Error::new(ErrorKind::InvalidModel, reason).with_tensor(name);
    let there = |name: &&String| weights.get(name).is_some() || weights.padding.contains(*name);
    let lacking = names.iter().copied().filter(|name| !there(name));
    let lacking = lacking.map(|name| {
        wrong(name, "the index places it in this shard, which does not have it".to_owned())
    });
    let extra = weights.tensors.keys().filter_map(|name| match places.get(name) {
        Some(place) if place == shard => None,
        Some(place) => {
            Some(wrong(name, format!("is in this shard, but the index places it in `{place}`")))
        }
        None => Some(wrong(name, "is in this shard, but not in the index".to_owned())),
    });
    lacking.chain(extra).collect()
}

impl IntoIterator for Weights {
    type Item = (String, Initializer);
    type IntoIter = std::collections::btree_map::IntoIter<String, Initializer>;

    /// All tensors by name, tied ones too: what [`Container::fill`] takes.
    fn into_iter(self) -> Self::IntoIter {
        let tied = self
            .tied
            .iter()
            .filter_map(|(name, entry)| Some((name.clone(), self.tensors.get(entry)?.clone())));
        let mut all: BTreeMap<_, Initializer> = tied.map(|(n, t)| (n, t.into())).collect();
        all.extend(self.tensors.into_iter().map(|(name, tensor)| (name, tensor.into())));
        all.into_iter()
    }
}

impl Container {
    /// Fills this model by name with the tensors of a safetensors file, or of the shards of an
    /// index, which are read into memory:
    /// [`attach_safetensors_with`](Self::attach_safetensors_with) and its defaults.
    ///
    /// # Errors
    /// Those of [`attach_safetensors_with`](Self::attach_safetensors_with).
    pub fn attach_safetensors(&mut self, path: impl AsRef<Path>) -> Result<Filled> {
        self.attach_safetensors_with(path, LoadOptions::new(), FillOptions::new())
    }

    /// Fills this model by name with the tensors of a safetensors file, or of the shards of an
    /// index: [`load`] and [`fill`](Self::fill).
    ///
    /// The tensors are slices of the files, unless `options` ask for copies; with
    /// [`MmapChoice::auto`](crate::MmapChoice::auto) nothing is read before it is used. A tensor
    /// that the file ties to another is filled with the same bytes, and is not counted as unused
    /// when the model has only one of the two. No save or export of this container replaces the
    /// files, or the index.
    ///
    /// ```no_run
    /// use onnx_container::edit::FillOptions;
    /// use onnx_container::{Container, LoadOptions, MmapChoice, WeightFiles};
    ///
    /// let mut container = Container::load("structure.onnx", LoadOptions::new().weights(false))?;
    /// let fill = FillOptions::new().strip_prefix("model.");
    /// container.attach_safetensors_with("model.safetensors.index.json", MmapChoice::never(), fill)?;
    /// container.save("model.onnx", WeightFiles::Packed)?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load`] and of [`fill`](Self::fill): type and shape have to be the declared ones,
    /// and a transposed matrix is refused. The container is then unchanged.
    pub fn attach_safetensors_with(
        &mut self,
        path: impl AsRef<Path>,
        options: impl Into<LoadOptions>,
        fill: impl Into<FillOptions>,
    ) -> Result<Filled> {
        let path = path.as_ref();
        let Weights { tensors, tied, files, warnings, .. } = load(path, options)?;
        let weights = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.clone().into()));
        let spares = tied
            .iter()
            .filter_map(|(name, entry)| Some((name.clone(), tensors.get(entry)?.clone().into())));
        let filled = self.fill_with_spares(weights, spares, fill);
        let filled = filled.map_err(|error| error.with_path(path))?;
        self.warnings.extend(warnings);
        for file in files {
            self.attached.push(std::path::absolute(&file).map_err(|e| Error::io(&file, e))?);
        }
        Ok(filled)
    }
}
