//! The `external_data` entries of a tensor, and opening the file at a `location`: [`Directory`].
//!
//! Entries and locations are untrusted input. So entries are parsed strictly, a location is checked
//! component by component, and files are opened only beneath the model's directory. The
//! [specification] leaves defaults open; where readers differ, only what every reader accepts is
//! accepted, and the rest is refused with an error that says why.
//!
//! [specification]: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md

mod directory;
mod location;
mod root;
mod windows_names;

use std::borrow::Cow;
use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::LazyLock;

use crate::buffer::Buffer;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{StringStringEntryProto, TensorProto};
use crate::wire::Str;

pub use directory::{Directory, PathPolicy};
pub use location::{STRIPPED, check_location, is_stripped};
pub(crate) use location::{directory_of, refuse_nul, stripped, windows_meaning, without_dots};

/// The parsed `external_data` of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalData {
    /// The file, relative to the model's directory, or a handle such as `#w`.
    pub location: String,
    /// The first byte of the data in the file; 0 where the entry is absent.
    pub offset: u64,
    /// The length in bytes. When it is absent or `0`, it follows from dtype and dims.
    pub length: Option<u64>,
    /// The SHA-1 of the whole file, as written.
    pub checksum: Option<String>,
    /// Keys that the specification does not name. Some readers refuse them.
    pub unknown_keys: Vec<String>,
}

/// Whether the data of `tensor` are outside the model file.
pub fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location == Some(TensorProto::EXTERNAL)
}

/// Whether `location` is a symbolic handle, which refers to memory and not to a file.
pub fn is_handle(location: &str) -> bool {
    location.starts_with('#')
}

impl ExternalData {
    /// Parses the entries of `tensor`.
    ///
    /// ```
    /// use onnx_container::external_data::ExternalData;
    /// use onnx_container::proto::{StringStringEntryProto, TensorProto};
    ///
    /// let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [2], "model.onnx.data");
    /// tensor.external_data.push(StringStringEntryProto::new("offset", "256"));
    /// let data = ExternalData::parse(&tensor)?;
    /// assert_eq!(data.range(8)?, 256..264);
    ///
    /// tensor.external_data.push(StringStringEntryProto::new("length", "+8"));
    /// assert!(ExternalData::parse(&tensor).is_err());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when `location` is missing or empty, a key occurs twice, a
    /// number is not plain decimal digits or does not fit 63 bits, or the tensor also carries
    /// inline data; [`ErrorKind::Unsupported`] for a segment.
    pub fn parse(tensor: &TensorProto) -> Result<Self> {
        let (location, entries) = Entries::of(tensor)?;
        Ok(Self {
            location: location.to_owned(),
            offset: entries.offset.unwrap_or(0),
            length: entries.declared_length(),
            checksum: entries.checksum.map(str::to_owned),
            unknown_keys: entries.unknown_keys.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The bytes of the file that hold `len` bytes of tensor data.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the entry's length differs from `len`; [`ErrorKind::OutOfBounds`]
    /// when the range passes 2^63.
    pub fn range(&self, len: u64) -> Result<Range<u64>> {
        range(self.offset, self.length, len)
    }
}

/// The range of `len` bytes from `offset` on, where the entries give the length `declared`.
fn range(offset: u64, declared: Option<u64>, len: u64) -> Result<Range<u64>> {
    if let Some(length) = declared.filter(|length| *length != len) {
        let reason = format!("external data length is {length} bytes, dtype and shape need {len}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    let end = end.ok_or_else(|| {
        let reason = format!("external data offset {offset} plus {len} bytes overflows");
        Error::new(ErrorKind::OutOfBounds, reason)
    })?;
    Ok(offset..end)
}

/// The handle of the external `tensor`, with its `#`, borrowed from it; `None` where
/// [`ExternalData::parse`] fails or the location is a file.
pub(crate) fn handle_of(tensor: &TensorProto) -> Option<&str> {
    if !is_external(tensor) {
        return None;
    }
    let (location, _) = Entries::of(tensor).ok()?;
    is_handle(location).then_some(location)
}

/// The entries of one tensor, borrowed from it; each key at most once.
#[derive(Default)]
pub(crate) struct Entries<'t> {
    location: Option<&'t str>,
    offset: Option<u64>,
    length: Option<u64>,
    checksum: Option<&'t str>,
    unknown_keys: Vec<&'t str>,
    unknown: HashSet<&'t str>,
}

impl<'t> Entries<'t> {
    /// The location of `tensor`, which is not empty, and all its entries.
    pub(crate) fn of(tensor: &'t TensorProto) -> Result<(&'t str, Self)> {
        let mut entries = Self::default();
        for entry in &tensor.external_data {
            entries.take(entry)?;
        }
        if inline_payload(tensor) {
            return Err(invalid("has both external and inline data"));
        }
        if tensor.segment.is_some() {
            let reason = "is a segment of a tensor, which no reader supports";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let location = entries.location.filter(|location| !location.is_empty());
        let location = location.ok_or_else(|| invalid("external data has no location"))?;
        Ok((location, entries))
    }

    /// As [`ExternalData::range`].
    pub(crate) fn range(&self, len: u64) -> Result<Range<u64>> {
        range(self.offset.unwrap_or(0), self.declared_length(), len)
    }

    /// The length in bytes, where one is given.
    fn declared_length(&self) -> Option<u64> {
        self.length.filter(|length| *length > 0)
    }

    /// The first of the keys that the specification does not name.
    pub(crate) fn unknown_key(&self) -> Option<&'t str> {
        self.unknown_keys.first().copied()
    }

    fn take(&mut self, entry: &'t StringStringEntryProto) -> Result<()> {
        // Compared as bytes: models have thousands of entries, and the known keys are ASCII.
        let again = match entry.key.as_ref().map_or(&[][..], Str::as_bytes) {
            b"location" => self.location.replace(text(&entry.value)?).is_some(),
            b"offset" => self.offset.replace(number("offset", &entry.value)?).is_some(),
            b"length" => self.length.replace(number("length", &entry.value)?).is_some(),
            b"checksum" => self.checksum.replace(text(&entry.value)?).is_some(),
            _ => {
                let (key, _) = (text(&entry.key)?, text(&entry.value)?);
                self.unknown_keys.push(key);
                !self.unknown.insert(key)
            }
        };
        if again {
            return Err(invalid(format!("external data key `{}` occurs twice", text(&entry.key)?)));
        }
        Ok(())
    }
}

/// The text of a key or value, empty where there is none.
fn text(string: &Option<Str>) -> Result<&str> {
    string.as_ref().map_or(Ok(""), |string| {
        string.to_str().map_err(|_| {
            invalid(format!("external data entry `{}` is not UTF-8", string.to_string_lossy()))
        })
    })
}

/// The number below 2^63 that `digits` are: decimal digits and nothing else, because readers differ
/// on signs, spaces and underscores.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    };
    let number = digits.iter().try_fold(0, add).filter(|n| i64::try_from(*n).is_ok());
    number.filter(|_| !digits.is_empty())
}

fn number(key: &str, value: &Option<Str>) -> Result<u64> {
    match decimal(value.as_ref().map_or(&[][..], Str::as_bytes)) {
        Some(number) => Ok(number),
        None => {
            let value = text(value)?;
            let reason =
                format!("external data {key} {value:?} is not a decimal number below 2^63");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}

/// Whether any value field holds data.
pub(crate) fn inline_payload(tensor: &TensorProto) -> bool {
    tensor.raw_data.as_ref().is_some_and(|raw| !raw.is_empty())
        || !tensor.float_data.is_empty()
        || !tensor.int32_data.is_empty()
        || !tensor.string_data.is_empty()
        || !tensor.int64_data.is_empty()
        || !tensor.double_data.is_empty()
        || !tensor.uint64_data.is_empty()
}

/// A copy of `tensor` without value fields and external entries: no element is copied.
pub(crate) fn header_of(tensor: &TensorProto) -> TensorProto {
    let TensorProto { dims, segment, name, doc_string, metadata_props, unknown, .. } = tensor;
    let mut header = TensorProto::default();
    header.dims.clone_from(dims);
    header.data_type = tensor.data_type;
    header.segment.clone_from(segment);
    header.name.clone_from(name);
    header.doc_string.clone_from(doc_string);
    header.metadata_props.clone_from(metadata_props);
    header.unknown.clone_from(unknown);
    header
}

/// Removes every value field and external entry from `tensor`.
pub(crate) fn clear_payload(tensor: &mut TensorProto) {
    clear_values(tensor);
    tensor.external_data.clear();
    tensor.data_location = None;
}

/// Removes every value field from `tensor`.
fn clear_values(tensor: &mut TensorProto) {
    tensor.raw_data = None;
    tensor.float_data.clear();
    tensor.int32_data.clear();
    tensor.string_data.clear();
    tensor.int64_data.clear();
    tensor.double_data.clear();
    tensor.uint64_data.clear();
}

/// Makes `tensor` external with exactly these `entries`, in place of whatever data it had.
fn set_entries(tensor: &mut TensorProto, entries: Vec<StringStringEntryProto>) {
    clear_payload(tensor);
    tensor.data_location = Some(TensorProto::EXTERNAL);
    tensor.external_data = entries;
}

/// Makes `tensor` hold `bytes` itself, in place of whatever data it had.
pub(crate) fn set_inline(tensor: &mut TensorProto, bytes: Buffer) {
    clear_payload(tensor);
    tensor.raw_data = Some(bytes);
}

/// Makes `tensor` refer to the handle `#name`.
pub(crate) fn set_handle(tensor: &mut TensorProto, handle: &str) {
    set_entries(tensor, vec![StringStringEntryProto::new("location", handle)]);
}

/// Makes the external `tensor` refer to the handle `location`. Entries with keys that the
/// specification does not name stay behind it, so that no digest leaves them out unsaid. The list
/// is used again and the key is shared, so that nothing is allocated.
pub(crate) fn move_to_handle(tensor: &mut TensorProto, location: Str) {
    static KEY: LazyLock<Str> = LazyLock::new(|| Str::from("location"));
    clear_values(tensor);
    tensor.external_data.retain(is_unknown);
    let mut entry = StringStringEntryProto::default();
    (entry.key, entry.value) = (Some(KEY.clone()), Some(location));
    tensor.external_data.insert(0, entry);
}

/// Whether `entry` has a key that the specification does not name.
fn is_unknown(entry: &StringStringEntryProto) -> bool {
    let key = entry.key.as_ref().map_or(&[][..], Str::as_bytes);
    !matches!(key, b"location" | b"offset" | b"length" | b"checksum")
}

/// Whether `tensor` is external and has such an entry.
pub(crate) fn has_unknown_keys(tensor: &TensorProto) -> bool {
    is_external(tensor) && tensor.external_data.iter().any(is_unknown)
}

/// Removes these entries.
pub(crate) fn remove_unknown_keys(tensor: &mut TensorProto) {
    tensor.external_data.retain(|entry| !is_unknown(entry));
}

/// Refuses an external `tensor` with such an entry: readers may take bytes that it names for the
/// elements.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub(crate) fn refuse_unknown_keys(tensor: &TensorProto) -> Result<()> {
    let unknown =
        tensor.external_data.iter().filter(|_| is_external(tensor)).find(|e| is_unknown(e));
    unknown.map_or(Ok(()), |entry| {
        let key = entry.key.as_ref().map_or(Cow::default(), Str::to_string_lossy);
        Err(Error::new(ErrorKind::Unsupported, about_unknown_key(&key)))
    })
}

/// What is to be said about a `key` that the specification does not name.
pub(crate) fn about_unknown_key(key: &str) -> String {
    if key.starts_with("prepacked") {
        format!(
            "external data key `{key}`: weights that onnxruntime prepacked for one machine, which it uses in place of \
             the tensor's; no digest covers them, and a save (`pack`) drops them"
        )
    } else {
        format!(
            "unknown external data key `{key}`, which onnxruntime refuses; no digest covers it, and a save (`pack`) \
             drops it"
        )
    }
}

/// Calls `visit` with the key and the value of each entry of a tensor that has `range` (bytes) of
/// the file `location`, which has the SHA-1 `checksum` if one is given. Nothing is allocated: a
/// save does this several times for each tensor.
pub(crate) fn entries_of_range<E>(
    (location, checksum): (&Str, Option<&Str>),
    range: &Range<u64>,
    mut visit: impl FnMut(&str, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    visit("location", location.as_bytes())?;
    visit("offset", Decimal::new(range.start).as_bytes())?;
    visit("length", Decimal::new(range.end.saturating_sub(range.start)).as_bytes())?;
    checksum.map_or(Ok(()), |checksum| visit("checksum", checksum.as_bytes()))
}

/// A number in digits.
struct Decimal {
    /// Filled from the end.
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    fn new(mut value: u64) -> Self {
        let mut made = Self { digits: [b'0'; 20], start: 20 };
        for digit in made.digits.iter_mut().rev() {
            let [low, ..] = (value % 10).to_le_bytes();
            *digit += low;
            made.start -= 1;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        made
    }

    fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

/// Makes `tensor` refer to `range` (bytes) of a file, by the entries of [`entries_of_range`].
pub(crate) fn set_range(tensor: &mut TensorProto, file: (&Str, Option<&Str>), range: &Range<u64>) {
    let mut entries = Vec::new();
    let Ok(()) = entries_of_range::<Infallible>(file, range, |key, value| {
        entries.push(StringStringEntryProto::new(key, value));
        Ok(())
    });
    set_entries(tensor, entries);
}

/// The data type and byte length of `tensor`, packed as the spec says.
pub(crate) fn layout(tensor: &TensorProto) -> Result<(DataType, u64)> {
    let dtype = DataType::try_from(tensor.data_type.unwrap_or(0))?;
    if dtype == DataType::String {
        return Err(Error::new(ErrorKind::DataType, "a STRING tensor cannot be external"));
    }
    Ok((dtype, dtype.byte_len(&tensor.dims)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(entries: &[(&str, &str)]) -> TensorProto {
        let mut tensor = TensorProto::new("w", DataType::Float.number(), [4]);
        let entries = entries.iter().map(|(k, v)| StringStringEntryProto::new(*k, *v)).collect();
        set_entries(&mut tensor, entries);
        tensor
    }

    #[test]
    fn numbers_are_written_in_digits() {
        for value in [0, 1, 9, 10, 4096, u64::MAX / 10, u64::MAX] {
            assert_eq!(Decimal::new(value).as_bytes(), value.to_string().as_bytes());
        }
    }

    #[test]
    fn numbers_are_plain_digits() {
        for (value, number) in
            [("0", 0), ("16", 16), ("007", 7), ("9223372036854775807", i64::MAX as u64)]
        {
            let parsed = ExternalData::parse(&tensor(&[("location", "w.bin"), ("offset", value)]));
            assert_eq!(parsed.unwrap().offset, number);
        }
        for value in [
            "",
            " 0",
            "+0",
            "-1",
            "1_6",
            "0x0",
            "1e3",
            "9223372036854775808",
            "18446744073709551616",
        ] {
            for key in ["offset", "length"] {
                let error = ExternalData::parse(&tensor(&[("location", "w.bin"), (key, value)]))
                    .unwrap_err();
                assert!(error.reason().contains(key), "{error}");
            }
        }
    }

    #[test]
    fn each_value_field_is_a_payload() {
        let fields: [fn(&mut TensorProto); 7] = [
            |tensor| tensor.raw_data = Some(vec![0].into()),
            |tensor| *tensor.float_data = vec![0.0].into(),
            |tensor| *tensor.int32_data = vec![0].into(),
            |tensor| *tensor.string_data = vec![Buffer::from(&b""[..])],
            |tensor| *tensor.int64_data = vec![0].into(),
            |tensor| *tensor.double_data = vec![0.0].into(),
            |tensor| *tensor.uint64_data = vec![0].into(),
        ];
        for (number, set) in fields.into_iter().enumerate() {
            let mut tensor = TensorProto::new("w", DataType::Float.number(), [1]);
            assert!(!inline_payload(&tensor));
            set(&mut tensor);
            assert!(inline_payload(&tensor), "field {number}");
            assert!(!inline_payload(&header_of(&tensor)), "field {number}");
        }
        let empty = TensorProto::default().with_raw_data(vec![]);
        assert!(!inline_payload(&empty));
    }

    #[test]
    fn keys_that_the_specification_does_not_name_count_where_the_data_are_external() {
        let known = [("location", "w"), ("offset", "0"), ("length", "4"), ("checksum", "0")];
        assert!(!has_unknown_keys(&tensor(&known)) && refuse_unknown_keys(&tensor(&known)).is_ok());
        let mut more = tensor(&[&known[..], &[("prepacked_0", "a|0;4;0")]].concat());
        assert!(has_unknown_keys(&more));
        let error = refuse_unknown_keys(&more).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.reason().contains("prepacked_0"));
        more.data_location = None;
        assert!(!has_unknown_keys(&more) && refuse_unknown_keys(&more).is_ok());
        remove_unknown_keys(&mut more);
        assert_eq!(more.external_data.len(), known.len());
    }

    #[test]
    fn entries_are_strict() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "no location"),
            (&[("location", "")], "no location"),
            (&[("location", "a"), ("location", "a")], "`location` occurs twice"),
            (&[("location", "a"), ("offset", "0"), ("offset", "0")], "`offset` occurs twice"),
            (&[("location", "a"), ("x", "0"), ("x", "0")], "`x` occurs twice"),
        ];
        for (entries, reason) in cases {
            let error = ExternalData::parse(&tensor(entries)).unwrap_err();
            assert!(error.reason().contains(reason), "{error}");
        }
        let both = tensor(&[("location", "a")]).with_raw_data(vec![0; 16]);
        assert!(ExternalData::parse(&both).unwrap_err().reason().contains("inline"));
    }

    #[test]
    fn unknown_keys_are_kept_apart_and_zero_length_is_unset() {
        let parsed = ExternalData::parse(&tensor(&[
            ("location", "w.bin"),
            ("length", "0"),
            ("basepath", "/x"),
            ("prepacked_0", "y"),
        ]))
        .unwrap();
        assert_eq!(parsed.unknown_keys, ["basepath", "prepacked_0"]);
        assert_eq!(parsed.length, None);
        assert_eq!(parsed.range(16).unwrap(), 0..16);
    }

    #[test]
    fn ranges_are_exact() {
        let entry = |offset: u64, length: Option<u64>| ExternalData {
            location: "w".into(),
            offset,
            length,
            checksum: None,
            unknown_keys: Vec::new(),
        };
        assert_eq!(entry(8, Some(16)).range(16).unwrap(), 8..24);
        for length in [15, 17, 1_000_000_000_000_000] {
            assert_eq!(entry(0, Some(length)).range(16).unwrap_err().kind(), ErrorKind::Shape);
        }
        for offset in [i64::MAX as u64 - 15, u64::MAX] {
            assert_eq!(entry(offset, None).range(16).unwrap_err().kind(), ErrorKind::OutOfBounds);
        }
    }
}
