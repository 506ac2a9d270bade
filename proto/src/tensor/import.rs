//! Converts a `TensorProto` to elements and back.
//!
//! A message can hold its elements in `raw_data` or in one of six typed fields, and narrow types
//! share fields with wide ones. All become the bytes that `raw_data` would have, shared with the
//! message where they are already in that form. The message is untrusted input: the size that the
//! dimensions need is compared with the bytes that are there before anything is allocated. Reading
//! external files is left to the loader, which passes the bytes.

use std::fmt::Display;

use bytemuck::Pod;

use super::packed::Width;
use super::storage::{Storage, filled, values_to_buffer};
use crate::buffer::Buffer;
use crate::dtype::{DataType, Element, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::TensorProto;
use crate::proto::wire::{Number, Packed, Str, Varint};

/// The fields of `TensorProto` that can hold elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Float,
    Int32,
    String,
    Int64,
    Raw,
    Double,
    Uint64,
}

impl Field {
    /// The field that holds elements of `dtype` if they are not in `raw_data`.
    fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::Undefined => None,
            DataType::Float | DataType::Complex64 => Some(Self::Float),
            DataType::Double | DataType::Complex128 => Some(Self::Double),
            DataType::Int64 => Some(Self::Int64),
            DataType::Uint32 | DataType::Uint64 => Some(Self::Uint64),
            DataType::String => Some(Self::String),
            _ => Some(Self::Int32),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Float => "float_data",
            Self::Int32 => "int32_data",
            Self::String => "string_data",
            Self::Int64 => "int64_data",
            Self::Raw => "raw_data",
            Self::Double => "double_data",
            Self::Uint64 => "uint64_data",
        }
    }

    /// The field of `proto` that is not empty, if any.
    fn filled(proto: &TensorProto) -> Result<Option<Self>> {
        let filled = [
            (Self::Float, !proto.float_data.is_empty()),
            (Self::Int32, !proto.int32_data.is_empty()),
            (Self::String, !proto.string_data.is_empty()),
            (Self::Int64, !proto.int64_data.is_empty()),
            (Self::Raw, proto.raw_data.as_ref().is_some_and(|bytes| !bytes.is_empty())),
            (Self::Double, !proto.double_data.is_empty()),
            (Self::Uint64, !proto.uint64_data.is_empty()),
        ];
        let mut fields = filled.into_iter().filter(|(_, filled)| *filled).map(|(field, _)| field);
        match (fields.next(), fields.next()) {
            (Some(one), Some(two)) => {
                let reason = format!("elements in both `{}` and `{}`", one.name(), two.name());
                Err(Error::new(ErrorKind::InvalidModel, reason))
            }
            (field, _) => Ok(field),
        }
    }
}

/// The elements that `proto` holds itself, and their type.
pub(super) fn import(proto: &TensorProto) -> Result<(DataType, Storage)> {
    refuse_segment(proto)?;
    if proto.data_location == Some(TensorProto::EXTERNAL) {
        let reason = "its elements are external and were not resolved";
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    let dtype = data_type(proto)?;
    let storage = match (Field::filled(proto)?, Field::of(dtype)) {
        (None, _) => without_payload(dtype, &proto.dims)?,
        (Some(Field::Raw), Some(field)) if field != Field::String => raw(dtype, proto)?,
        (Some(Field::String), Some(Field::String)) => strings(proto)?,
        (Some(found), Some(field)) if found == field => typed(field, dtype, proto)?,
        (Some(found), _) => return Err(wrong_field(found, dtype)),
    };
    Ok((dtype, storage))
}

/// The type of the external tensor `proto`; an error if the tensor cannot be external.
pub(super) fn external_data_type(proto: &TensorProto) -> Result<DataType> {
    refuse_segment(proto)?;
    let dtype = data_type(proto)?;
    match Field::filled(proto)? {
        Some(field) => {
            let reason = format!("elements both external and in `{}`", field.name());
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
        None if dtype == DataType::String => {
            Err(Error::new(ErrorKind::DataType, "STRING elements cannot be external"))
        }
        None => Ok(dtype),
    }
}

/// A message called `name` that shares the elements.
pub(super) fn to_proto(
    dtype: DataType,
    dims: &[i64],
    storage: &Storage,
    name: &str,
) -> TensorProto {
    let mut proto = TensorProto {
        dims: dims.to_vec(),
        data_type: Some(dtype.number()),
        name: Some(Str::from(name)),
        ..TensorProto::default()
    };
    match storage {
        Storage::Bytes(bytes) => proto.raw_data = Some(bytes.clone()),
        Storage::Strings(strings) => *proto.string_data = strings.to_vec(),
    }
    proto
}

/// Adds the name of `proto`, if it has one, to an `error` about it.
pub(super) fn name_tensor(error: Error, proto: &TensorProto) -> Error {
    match &proto.name {
        Some(name) if !name.is_empty() => error.with_tensor(name.to_string_lossy()),
        _ => error,
    }
}

/// Checks that `bytes` has the length that type and dimensions need.
pub(super) fn check_byte_len(dtype: DataType, dims: &[i64], bytes: &[u8]) -> Result<()> {
    let expected = dtype.byte_len(dims)?;
    if usize::try_from(expected) == Ok(bytes.len()) {
        return Ok(());
    }
    let found = bytes.len();
    let reason = format!("shape {dims:?} of {dtype} needs {expected} bytes, there are {found}");
    Err(Error::new(ErrorKind::Shape, reason))
}

/// Checks that there are as many `strings` as the dimensions need.
pub(super) fn check_string_count(dims: &[i64], strings: &[Buffer]) -> Result<()> {
    check_count(dims, strings.len(), "strings")
}

/// Checks that `found`, a number of elements called `what`, is what the dimensions need.
pub(super) fn check_count(dims: &[i64], found: usize, what: &str) -> Result<()> {
    let expected = element_count(dims)?;
    if usize::try_from(expected) == Ok(found) {
        return Ok(());
    }
    let reason = format!("shape {dims:?} needs {expected} {what}, there are {found}");
    Err(Error::new(ErrorKind::Shape, reason))
}

fn refuse_segment(proto: &TensorProto) -> Result<()> {
    match proto.segment {
        None => Ok(()),
        Some(_) => {
            let reason = "the tensor is a segment of a larger one, which is not supported";
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
    }
}

fn data_type(proto: &TensorProto) -> Result<DataType> {
    match DataType::try_from(proto.data_type.unwrap_or_default())? {
        DataType::Undefined => Err(Error::new(ErrorKind::DataType, "its data type is undefined")),
        dtype => Ok(dtype),
    }
}

fn without_payload(dtype: DataType, dims: &[i64]) -> Result<Storage> {
    match element_count(dims)? {
        0 if dtype == DataType::String => Ok(Storage::Strings([].into())),
        0 => Ok(Storage::Bytes(Buffer::default())),
        _ => {
            let reason = format!("shape {dims:?} of {dtype} has elements, but there is no data");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn wrong_field(found: Field, dtype: DataType) -> Error {
    let expected = Field::of(dtype).map_or("no field", Field::name);
    let found = found.name();
    let reason = format!("elements of {dtype} are in `{found}`, their field is `{expected}`");
    Error::new(ErrorKind::DataType, reason)
}

fn raw(dtype: DataType, proto: &TensorProto) -> Result<Storage> {
    let bytes = proto.raw_data.clone().unwrap_or_default();
    check_byte_len(dtype, &proto.dims, &bytes)?;
    Ok(Storage::Bytes(bytes))
}

fn strings(proto: &TensorProto) -> Result<Storage> {
    check_string_count(&proto.dims, &proto.string_data)?;
    Ok(Storage::Strings(proto.string_data.as_slice().into()))
}

fn typed(field: Field, dtype: DataType, proto: &TensorProto) -> Result<Storage> {
    let entries = Entries { dtype, dims: &proto.dims, field };
    let bytes = match field {
        Field::Float => entries.fixed(&proto.float_data),
        Field::Double => entries.fixed(&proto.double_data),
        Field::Int64 => entries.varints(&proto.int64_data, |entry| (entry, true)),
        Field::Uint64 if dtype == DataType::Uint64 => {
            entries.varints(&proto.uint64_data, |entry| (entry, true))
        }
        Field::Uint64 => entries
            .varints(&proto.uint64_data, |entry| (low_half(entry), entry <= u64::from(u32::MAX))),
        Field::Int32 if dtype == DataType::Int32 => {
            entries.varints(&proto.int32_data, |entry| (entry, true))
        }
        Field::Int32 => entries.narrow(&proto.int32_data),
        Field::Raw | Field::String => Err(wrong_field(field, dtype)),
    };
    bytes.map(Storage::Bytes)
}

/// The type and dimensions that the entries of a typed field must match.
#[derive(Clone, Copy)]
struct Entries<'a> {
    dtype: DataType,
    dims: &'a [i64],
    field: Field,
}

impl Entries<'_> {
    /// The bytes of entries of a fixed width, which have the same form in the message as in
    /// `raw_data`.
    fn fixed<T: Element + Number>(self, packed: &Packed<T>) -> Result<Buffer> {
        self.check_count(packed.len())?;
        match packed.wire_buffer() {
            Some(bytes) => Ok(bytes.clone()),
            None => Ok(values_to_buffer(packed.values()?.into_owned())),
        }
    }

    /// The bytes of entries of `int32_data`, for every type narrower than 32 bits.
    fn narrow(self, packed: &Packed<i32>) -> Result<Buffer> {
        let byte = |entry| (-128..=255).contains(&entry);
        match (self.dtype, self.dtype.bit_width()) {
            (DataType::Bool, _) => {
                self.varints(packed, |entry| (u8::from(entry != 0), byte(entry)))
            }
            (_, Some(16)) => self.varints(packed, |entry| {
                let [a, b, ..] = entry.to_le_bytes();
                (u16::from_le_bytes([a, b]), (-32_768..=65_535).contains(&entry))
            }),
            (_, Some(6)) => {
                let codes = self.varints(packed, |entry| (low_byte(entry), entry & 63 == entry))?;
                Ok(Buffer::from(Width::Six.pack(&codes)))
            }
            _ => self.varints(packed, |entry| (low_byte(entry), byte(entry))),
        }
    }

    /// The bytes of what `element` makes of each entry. The second value of `element` is whether
    /// the entry fits the type; all must fit, and their number must match the dimensions.
    fn varints<T, E>(
        self,
        packed: &Packed<T>,
        element: impl Fn(T) -> (E, bool) + Sync,
    ) -> Result<Buffer>
    where
        T: Varint + Display,
        E: Element + Pod,
    {
        let entries = packed.counted();
        self.check_count(entries.len())?;
        let (bytes, fit) = filled(entries.len(), |slots| entries.decode(slots, &element))?;
        if fit {
            return Ok(bytes);
        }
        Err(self.too_wide(&packed.values()?, |entry| element(entry).1))
    }

    /// The error about the first entry that would lose bits.
    fn too_wide<T: Copy + Display>(self, entries: &[T], fits: impl Fn(T) -> bool) -> Error {
        let Self { dtype, field, .. } = self;
        let field = field.name();
        let reason = match entries.iter().enumerate().find(|(_, entry)| !fits(**entry)) {
            Some((index, entry)) => {
                format!("entry {index} of `{field}` is {entry}, too wide for {dtype}")
            }
            // A mapped file can change between two reads.
            None => format!("an entry of `{field}` was too wide for {dtype}"),
        };
        Error::new(ErrorKind::InvalidModel, reason)
    }

    /// Checks that the number of entries is what the dimensions need. A complex element is two
    /// entries; one entry of a 4- or 2-bit type is a byte of elements, one entry of a 6-bit type is
    /// one element.
    fn check_count(self, found: usize) -> Result<()> {
        let count = element_count(self.dims)?;
        let expected = match self.dtype {
            DataType::Complex64 | DataType::Complex128 => count.saturating_mul(2),
            dtype => match dtype.bit_width() {
                Some(2 | 4) => dtype.byte_len(self.dims)?,
                _ => count,
            },
        };
        if usize::try_from(expected) == Ok(found) {
            return Ok(());
        }
        let Self { dtype, dims, field } = self;
        let field = field.name();
        let reason = format!(
            "shape {dims:?} of {dtype} needs {expected} entries in `{field}`, there are {found}"
        );
        Err(Error::new(ErrorKind::Shape, reason))
    }
}

fn low_byte(entry: i32) -> u8 {
    let [low, ..] = entry.to_le_bytes();
    low
}

fn low_half(entry: u64) -> u32 {
    let [a, b, c, d, ..] = entry.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
