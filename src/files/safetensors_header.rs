//! Reading and writing the header of a safetensors file.
//!
//! Such a file is eight bytes of length, that many bytes of JSON, and the bytes of the tensors
//! without a gap. The crate `safetensors` implements the types and the rules; this module adds what
//! untrusted files need: names that occur once, errors that name the tensor, and memory use bounded
//! by the length of the file. Written headers are padded with spaces, as the [format] allows, so
//! that the data begin at an aligned offset. The use of the entries for a model is left to the
//! module `safetensors`.
//!
//! [format]: https://github.com/huggingface/safetensors#format

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::buffer::Alignment;
use crate::buffers::in_memory;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};

/// The longest header in bytes that the format allows.
pub(crate) const MAX_HEADER: usize = 100_000_000;
/// The number of bytes of the length at the start of the file.
const LENGTH: usize = 8;
/// The reserved name, which is not a tensor.
pub(crate) const METADATA: &str = "__metadata__";
/// The metadata key for the prefix of the names of padding entries, which fill the bytes between
/// aligned tensors because the format allows no gap.
pub(crate) const PADDING: &str = "onnx_container.padding";
/// The metadata key for the framework whose layout the tensors have, which some loaders require;
/// see [`FORMAT_PT`].
pub(crate) const FORMAT: &str = "format";
/// Row-major, as in PyTorch and in ONNX.
pub(crate) const FORMAT_PT: &str = "pt";
/// The most dimensions of a tensor: numpy and PyTorch have 64. Messages contain shapes, and a
/// header has room for millions of numbers.
const MAX_RANK: usize = 1024;
/// The most keys of metadata and tensors of an index. Large models have fewer than 100,000 tensors;
/// a key of a few bytes takes 200 bytes of memory, and a header has room for millions.
pub(crate) const MAX_KEYS: usize = 1 << 20;
/// The maximum number of characters of untrusted text (a JSON error, a name) in a message.
const QUOTED: usize = 200;

/// A tensor in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderEntry {
    pub(crate) name: String,
    pub(crate) dtype: DataType,
    pub(crate) dims: Vec<i64>,
    /// Its bytes, counted from the first byte of data.
    pub(crate) range: Range<u64>,
}

/// The parsed header of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) metadata: BTreeMap<String, String>,
    /// In the order of their data, which are without gaps.
    pub(crate) entries: Vec<HeaderEntry>,
}

impl Header {
    /// The header of the `file`, and the offset of its first byte of data.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] when the bytes are not a header, [`ErrorKind::DataType`] for a type
    /// that ONNX does not have, [`ErrorKind::Shape`] and [`ErrorKind::OutOfBounds`] when types,
    /// shapes and ranges disagree with each other or with the file.
    pub(crate) fn read(file: &[u8]) -> Result<(Self, usize)> {
        let json = json(file)?;
        let start = LENGTH + json.len();
        Ok((Self::parse(json, file.len() - start)?, start))
    }

    /// As [`read`](Self::read), of a file of which no more than the header is read.
    ///
    /// # Errors
    /// As [`read`](Self::read), and those of reading.
    pub(crate) fn read_from(file: &File) -> Result<(Self, usize)> {
        let len = file.metadata()?.len();
        let mut head = Vec::new();
        file.take(LENGTH as u64).read_to_end(&mut head)?;
        let declared = head.first_chunk::<LENGTH>().map(|length| u64::from_le_bytes(*length));
        let most = declared.filter(|length| *length <= MAX_HEADER as u64).unwrap_or_default();
        file.take(most).read_to_end(&mut head)?;
        let json = json(&head)?;
        let start = LENGTH + json.len();
        let there = len.saturating_sub(start as u64);
        let there = in_memory(there)?;
        Ok((Self::parse(json, there)?, start))
    }

    /// The header in `json`, with `there` bytes after it.
    fn parse(json: &[u8], there: usize) -> Result<Self> {
        let parsed: Parsed = serde_json::from_slice(json).map_err(|e| json_error(&e))?;
        let mut tensors = parsed.tensors;
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let entries = tensors.iter().map(|(name, info)| {
            entry(name, info).map_err(|error| error.with_tensor(clipped(name)))
        });
        let entries = entries.collect::<Result<Vec<_>>>()?;
        // The reference implementation checks for holes, overlaps and elements that end inside a
        // byte.
        Metadata::new(None, tensors).map_err(|error| refused(&error))?;
        check_coverage(&entries, there)?;
        Ok(Self { metadata: parsed.metadata, entries })
    }

    /// The header as bytes, padded so that data after it begin at a multiple of `alignment`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when it is longer than the format allows.
    pub(crate) fn to_bytes(&self, alignment: Alignment) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self);
        let mut json = json.map_err(|e| Error::internal(format!("a header is no JSON: {e}")))?;
        let too_large = || {
            let reason = format!("a safetensors header cannot be longer than {MAX_HEADER} bytes");
            Error::new(ErrorKind::TooLarge, reason)
        };
        let unpadded = u64::try_from(LENGTH + json.len()).ok();
        let end = unpadded.and_then(|len| usize::try_from(alignment.align_up(len)?).ok());
        let len = end.map(|end| end - LENGTH).filter(|len| *len <= MAX_HEADER);
        json.resize(len.ok_or_else(too_large)?, b' ');
        let length = u64::try_from(json.len()).map_err(|_| too_large())?;
        Ok([&length.to_le_bytes(), json.as_slice()].concat())
    }
}

/// The JSON of the header of `file`.
fn json(file: &[u8]) -> Result<&[u8]> {
    let decode = |reason: String| Error::new(ErrorKind::Decode, reason);
    let Some((length, rest)) = file.split_first_chunk::<LENGTH>() else {
        return Err(decode(format!("not a safetensors file: only {} bytes", file.len())));
    };
    let length = u64::from_le_bytes(*length);
    let len = usize::try_from(length).ok().filter(|len| *len <= MAX_HEADER);
    let Some(len) = len else {
        let reason = format!(
            "not a safetensors file: it would have a header of {length} bytes, which is too long"
        );
        return Err(decode(reason));
    };
    let json = rest.get(..len).ok_or_else(|| {
        let there = rest.len();
        decode(format!(
            "not a safetensors file, or cut off: a header of {len} bytes, {there} are there"
        ))
    })?;
    if json.first() == Some(&b'{') {
        return Ok(json);
    }
    Err(decode("not a safetensors file: the header does not begin with `{`".into()))
}

/// The tensor `name` as `info` declares it, after checking its length against type and shape.
fn entry(name: &str, info: &TensorInfo) -> Result<HeaderEntry> {
    let dtype = DataType::from_safetensors_name(&info.dtype.to_string()).ok_or_else(|| {
        Error::new(ErrorKind::DataType, format!("ONNX has no type like {}", info.dtype))
    })?;
    if info.shape.len() > MAX_RANK {
        let reason = format!("{} dimensions are more than {MAX_RANK}", info.shape.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let dims = info.shape.iter().map(|dim| i64::try_from(*dim)).collect::<Result<Vec<_>, _>>();
    let dims =
        dims.map_err(|_| Error::new(ErrorKind::Shape, "a dimension does not fit 63 bits"))?;
    let (start, end) = info.data_offsets;
    let range = u64::try_from(start).ok().zip(u64::try_from(end).ok());
    let Some((start, end)) = range.filter(|(start, end)| start <= end) else {
        let reason = format!("data_offsets [{start}, {end}] end before they start");
        return Err(Error::new(ErrorKind::OutOfBounds, reason));
    };
    let wanted = dtype.byte_len(&dims)?;
    if end - start != wanted {
        let reason = format!(
            "{dtype} {dims:?} needs {wanted} bytes, data_offsets [{start}, {end}] are {}",
            end - start
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(HeaderEntry { name: name.to_owned(), dtype, dims, range: start..end })
}

/// Checks that the entries, which leave no gap, end where the file ends.
fn check_coverage(entries: &[HeaderEntry], there: usize) -> Result<()> {
    let wanted = entries.last().map_or(0, |last| last.range.end);
    let there = u64::try_from(there).map_err(|_| Error::internal("a file of 2^64 bytes"))?;
    if wanted == there {
        return Ok(());
    }
    let how = if wanted > there { "cut off" } else { "longer than its header says" };
    let reason = format!("the file is {how}: the tensors have {wanted} bytes, there are {there}");
    Err(Error::new(ErrorKind::OutOfBounds, reason))
}

fn refused(error: &SafeTensorError) -> Error {
    match error {
        SafeTensorError::InvalidOffset(name) => {
            let reason = "the data do not begin where the tensor before ends: the format allows \
                          neither holes nor overlaps";
            Error::new(ErrorKind::OutOfBounds, reason).with_tensor(clipped(name))
        }
        other => Error::new(ErrorKind::Shape, other.to_string()),
    }
}

/// The error for a parser error, whose text is shortened because it may quote much of the file.
pub(crate) fn json_error(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Decode, format!("the JSON: {}", clipped(&error.to_string())))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The JSON form of a header.
struct Parsed {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Parsed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let (mut names, mut tensors) = (HashSet::new(), Vec::new());
                let mut metadata = None::<Unique<String>>;
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(twice(&name));
                    }
                    if name == METADATA {
                        metadata = map.next_value()?;
                    } else {
                        let info = map.next_value::<TensorInfo>();
                        let named =
                            |e| A::Error::custom(format!("tensor `{}`: {e}", clipped(&name)));
                        tensors.push((name.clone(), info.map_err(named)?));
                    }
                }
                Ok(Parsed { metadata: metadata.map(|m| m.0).unwrap_or_default(), tensors })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn twice<E: serde::de::Error>(name: &str) -> E {
    E::custom(format!("`{}` occurs twice", clipped(name)))
}

/// A JSON object of at most [`MAX_KEYS`] unique keys; a plain map would accept equal keys and keep
/// the last one.
pub(crate) struct Unique<V>(pub(crate) BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Members<V> {
            type Value = Unique<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<V>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, V>()? {
                    if members.len() >= MAX_KEYS {
                        return Err(A::Error::custom(format!("more than {MAX_KEYS} keys")));
                    }
                    match members.entry(name) {
                        Place::Occupied(member) => return Err(twice(member.key())),
                        Place::Vacant(place) => place.insert(value),
                    };
                }
                Ok(Unique(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, &self.metadata)?;
        }
        for entry in &self.entries {
            map.serialize_entry(&entry.name, entry)?;
        }
        map.end()
    }
}

impl Serialize for HeaderEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        let dtype = self.dtype.safetensors_name().ok_or_else(|| {
            serde::ser::Error::custom(format!("safetensors has no name for {}", self.dtype))
        })?;
        map.serialize_entry("dtype", dtype)?;
        map.serialize_entry("shape", &self.dims)?;
        map.serialize_entry("data_offsets", &[self.range.start, self.range.end])?;
        map.end()
    }
}
