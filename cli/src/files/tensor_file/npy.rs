//! NumPy's file of one array.
//!
//! The header is read and written by `ndarray-npy`; the elements are bytes here, because ONNX has
//! types that numpy does not. A header is untrusted: its length and nesting are checked before it
//! is parsed, and its shape is compared with the length of the file. Row-major little-endian
//! elements are used without a copy; others are rearranged into one.
//!
//! Elements of types that numpy does not have are stored as integers when that was asked for:
//! `ml_dtypes` writes such arrays without their type, so no reader could restore it. A file of
//! signed integers has the numbers of INT4 and INT2, a file of unsigned ones the codes of any such
//! type: the INT4 -7 is -7 in the one and 9 in the other.

use std::io::{Read, Write};

use ndarray::{ArrayViewD, IxDyn, ShapeBuilder};
use ndarray_npy::npy::header::{FormatHeaderError, Header, Layout};
#[cfg(feature = "machine")]
use onnx_container::ByteSize;
use onnx_container::{Buffer, DataType, Error, ErrorKind, Result, Tensor, element_count};
use py_literal::Value;

use super::{bytes_of, failed};

/// numpy's letter and width in bytes for elements of `dtype`, when it has the type.
fn code(dtype: DataType) -> Option<&'static str> {
    Some(match dtype {
        DataType::Bool => "b1",
        DataType::Uint8 => "u1",
        DataType::Uint16 => "u2",
        DataType::Uint32 => "u4",
        DataType::Uint64 => "u8",
        DataType::Int8 => "i1",
        DataType::Int16 => "i2",
        DataType::Int32 => "i4",
        DataType::Int64 => "i8",
        DataType::Float16 => "f2",
        DataType::Float => "f4",
        DataType::Double => "f8",
        DataType::Complex64 => "c8",
        DataType::Complex128 => "c16",
        _ => return None,
    })
}

/// Whether NumPy has a type for elements of `dtype`.
#[cfg(feature = "machine")]
pub fn has(dtype: DataType) -> bool {
    code(dtype).is_some()
}

/// The types of NumPy that codes of `dtype` may have. The first one is written; the others, which
/// `ml_dtypes` and older programs write, are read too.
fn codes_of(dtype: DataType) -> &'static [&'static str] {
    match dtype.bit_width() {
        Some(16) => &["u2", "V2"],
        Some(_) if is_signed(dtype) => &["i1", "u1", "V1"],
        Some(_) => &["u1", "V1", "f1"],
        None => &[],
    }
}

/// Whether codes of `dtype` are numbers with a sign.
fn is_signed(dtype: DataType) -> bool {
    matches!(dtype, DataType::Int4 | DataType::Int2)
}

/// Writes `tensor`; with `codes` also of a type that numpy does not have.
pub fn write(tensor: &Tensor, codes: bool, out: &mut dyn Write) -> Result<()> {
    let bytes = bytes_of(tensor)?;
    let dtype = tensor.dtype();
    let of_codes = || codes_of(dtype).first().copied().filter(|_| codes);
    let code = code(dtype).or_else(of_codes).ok_or_else(|| no_such_type(dtype))?;
    let order = if code.ends_with('1') { '|' } else { '<' };
    let header = Header {
        type_descriptor: Value::String(format!("{order}{code}")),
        layout: Layout::Standard,
        shape: tensor.shape(),
    };
    let too_large = |e: FormatHeaderError| Error::new(ErrorKind::TooLarge, e.to_string());
    out.write_all(&header.to_bytes().map_err(too_large)?).map_err(failed)?;
    if is_signed(dtype) {
        let numbers = tensor.unpack_signed()?.into_iter().map(i8::cast_unsigned);
        return out.write_all(&numbers.collect::<Vec<_>>()).map_err(failed);
    }
    if Narrow::of(dtype).is_some() {
        return out.write_all(&tensor.unpack()?).map_err(failed);
    }
    out.write_all(bytes).map_err(failed)
}

fn no_such_type(dtype: DataType) -> Error {
    let reason = format!(
        "npy has no type {dtype}: --codes stores its elements as integers, and --format raw or pb \
         stores them unchanged"
    );
    Error::new(ErrorKind::DataType, reason)
}

/// The array in the file `bytes`, which has to hold elements of `dtype`, or its `codes`.
pub fn read(bytes: &Buffer, dtype: DataType, codes: bool) -> Result<Tensor> {
    let mut data = &bytes[..];
    let layout = Head::read(&mut data)?.layout(dtype, codes)?;
    layout.check(data.len())?;
    layout.tensor(&bytes.slice(bytes.len() - data.len()..).unwrap_or_default())
}

/// The header of a file.
pub struct Head(Header);

impl Head {
    /// The header that `file` begins with.
    pub fn read(file: &mut impl Read) -> Result<Self> {
        let bytes = header_bytes(file)?;
        check_nesting(&bytes)?;
        let header =
            Header::from_reader(&mut &bytes[..]).map_err(|e| malformed(&first_line(&e)))?;
        Ok(Self(header))
    }

    /// The type that its elements have in NumPy.
    #[cfg(feature = "machine")]
    pub fn dtype(&self) -> Option<DataType> {
        let is_it = |dtype: &&DataType| {
            has(**dtype) && Elements::of(&self.0.type_descriptor, **dtype, true).is_ok()
        };
        DataType::ALL.iter().find(is_it).copied()
    }

    /// How its elements lie, which have to be of `dtype`, or its `codes`.
    pub fn layout(self, dtype: DataType, codes: bool) -> Result<ArrayLayout> {
        let Self(Header { type_descriptor, layout, shape }) = self;
        let elements = Elements::of(&type_descriptor, dtype, codes)?;
        let dims = shape.iter().map(|dim| i64::try_from(*dim));
        let dims: Vec<i64> =
            dims.collect::<Result<_, _>>().map_err(|_| malformed("a huge shape"))?;
        if dims.len() > MAX_RANK {
            return Err(malformed(&format!("{} dimensions, numpy has {MAX_RANK}", dims.len())));
        }
        let len = elements.byte_len(&dims)?;
        Ok(ArrayLayout { dtype, elements, shape, dims, len, is_fortran: layout.is_fortran() })
    }
}

/// How the elements of an array lie behind the header of its file.
pub struct ArrayLayout {
    dtype: DataType,
    elements: Elements,
    shape: Vec<usize>,
    dims: Vec<i64>,
    /// The length of all elements in bytes.
    len: usize,
    is_fortran: bool,
}

impl ArrayLayout {
    #[cfg(feature = "machine")]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The array whose elements are all that `file` still has. No more of it is read than they
    /// take.
    #[cfg(feature = "machine")]
    pub fn read(&self, file: &mut impl Read) -> Result<Tensor> {
        let mut data = Vec::new();
        // One more, to see whether there are more.
        let most = self.len.saturating_add(1);
        data.try_reserve_exact(most).map_err(|_| {
            let len = ByteSize(u64::try_from(self.len).unwrap_or(u64::MAX));
            Error::new(ErrorKind::Io, format!("there is no memory for the {len} of its elements"))
        })?;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut data).map_err(unreadable)?;
        if data.len() > self.len {
            return Err(self.other_len("more"));
        }
        self.check(data.len())?;
        self.tensor(&Buffer::from(data))
    }

    /// Refuses a file that has `found` bytes behind its header.
    fn check(&self, found: usize) -> Result<()> {
        if found == self.len { Ok(()) } else { Err(self.other_len(found)) }
    }

    fn other_len(&self, found: impl std::fmt::Display) -> Error {
        let Self { elements, dims, len, .. } = self;
        let reason = format!(
            "shape {dims:?} of `{}` needs {len} bytes, the npy file has {found} after its header",
            elements.descr
        );
        Error::new(ErrorKind::Shape, reason)
    }

    fn tensor(&self, data: &Buffer) -> Result<Tensor> {
        let Self { dtype, elements, shape, dims, is_fortran, .. } = self;
        let data = if *is_fortran && dims.len() > 1 {
            Buffer::from(row_major(data, shape, elements.width)?)
        } else {
            data.clone()
        };
        if let Some(narrow) = Narrow::of(*dtype) {
            return Tensor::pack(*dtype, dims.clone(), &narrow.codes(elements.kind, &data)?);
        }
        let tensor = Tensor::new(*dtype, dims.clone(), elements.little_endian(data))?;
        if *dtype == DataType::Bool {
            tensor.as_slice::<bool>()?;
        }
        Ok(tensor)
    }
}

/// A type whose elements are narrower than a byte, and take one byte each in a file.
struct Narrow {
    dtype: DataType,
    bits: u8,
}

impl Narrow {
    fn of(dtype: DataType) -> Option<Self> {
        let bits = dtype.bit_width().filter(|bits| *bits < 8)?;
        Some(Self { dtype, bits })
    }

    /// The codes of the elements in a file of this `kind`. A code that has too many bits is left to
    /// the caller.
    fn codes(&self, kind: char, data: &[u8]) -> Result<Vec<u8>> {
        match kind {
            'i' => data.iter().enumerate().map(|(i, byte)| self.code_of(i, *byte)).collect(),
            // For elements without a type, the file does not say whether the sign was extended.
            'V' if is_signed(self.dtype) => {
                let one =
                    |byte: &u8| if self.has_number(*byte) { byte & self.mask() } else { *byte };
                Ok(data.iter().map(one).collect())
            }
            _ => Ok(data.to_vec()),
        }
    }

    /// The code of a signed number.
    fn code_of(&self, index: usize, byte: u8) -> Result<u8> {
        if self.has_number(byte) {
            return Ok(byte & self.mask());
        }
        let (dtype, number, half) = (self.dtype, byte.cast_signed(), self.half());
        let reason = format!(
            "element {index} is {number}: {dtype} has the numbers from -{half} to {}, and codes from 0 on \
             are stored as `u1`",
            half - 1
        );
        Err(Error::new(ErrorKind::InvalidArgument, reason))
    }

    /// Whether the signed number `byte` is one of the type.
    fn has_number(&self, byte: u8) -> bool {
        let half = i16::from(self.half());
        (-half..half).contains(&i16::from(byte.cast_signed()))
    }

    /// The number of negative numbers.
    fn half(&self) -> u8 {
        1 << (self.bits - 1)
    }

    fn mask(&self) -> u8 {
        (1 << self.bits) - 1
    }
}

/// The longest header that numpy reads, in bytes.
const MAX_HEADER: usize = 10_000;
/// The most dimensions that numpy has. A longer list would also make long messages.
const MAX_RANK: usize = 64;
/// A dict with a list of tuples, which structured arrays have, is three deep.
const MAX_NESTING: usize = 4;

/// The bytes of the header that `file` begins with.
fn header_bytes(file: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>, len: usize| {
        let most = u64::try_from(len).unwrap_or(u64::MAX);
        let read = file.by_ref().take(most).read_to_end(bytes).map_err(unreadable)?;
        Ok::<_, Error>(read == len)
    };
    let within = || malformed("it ends within its header");
    if !more(&mut bytes, 6)? || bytes != b"\x93NUMPY" {
        return Err(malformed("it does not begin with the npy magic number"));
    }
    if !more(&mut bytes, 4)? {
        return Err(within());
    }
    let len = if let [.., 1, _, a, b] = *bytes.as_slice() {
        u32::from(u16::from_le_bytes([a, b]))
    } else if more(&mut bytes, 2)? {
        bytes.last_chunk().map_or(0, |len| u32::from_le_bytes(*len))
    } else {
        return Err(within());
    };
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > MAX_HEADER {
        return Err(malformed(&format!("a header of {len} bytes, numpy reads {MAX_HEADER}")));
    }
    if more(&mut bytes, len)? { Ok(bytes) } else { Err(within()) }
}

/// Refuses a header that would take its parser too long.
fn check_nesting(header: &[u8]) -> Result<()> {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in header {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_NESTING { Err(malformed("its header is nested too deeply")) } else { Ok(()) }
}

fn unreadable(error: std::io::Error) -> Error {
    malformed(&error.to_string())
}

/// The parser's messages show the source over several lines.
fn first_line(error: &impl std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().trim().to_owned()
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Decode, format!("not an npy file that can be read: {what}"))
}

/// How elements are stored in a file.
struct Elements {
    descr: String,
    /// numpy's letter for the sort of elements, such as `i` for signed integers.
    kind: char,
    big_endian: bool,
    /// In bytes.
    width: usize,
    /// The width of what has a byte order: half of a complex number.
    scalar: usize,
}

impl Elements {
    /// What the file says of its elements, which have to be of `dtype`, or its `codes`.
    fn of(descriptor: &Value, dtype: DataType, codes: bool) -> Result<Self> {
        let Value::String(descr) = descriptor else {
            let reason = "the npy file holds a structured array, not a plain one";
            return Err(Error::new(ErrorKind::DataType, reason));
        };
        let (order, kind) = match descr.strip_prefix(['<', '>', '|']) {
            Some(kind) => (descr.chars().next(), kind),
            None => (None, descr.as_str()),
        };
        let fits = match code(dtype) {
            Some(code) => code == kind,
            None => codes && codes_of(dtype).contains(&kind),
        };
        if !fits {
            return Err(other_type(descr, kind, dtype, codes));
        }
        let width = kind.get(1..).and_then(|width| width.parse().ok()).unwrap_or(1);
        let letter = kind.chars().next().unwrap_or('V');
        let scalar = if letter == 'c' { width / 2 } else { width };
        let (descr, big_endian) = (descr.clone(), order == Some('>'));
        Ok(Self { descr, kind: letter, big_endian, width, scalar })
    }

    fn byte_len(&self, dims: &[i64]) -> Result<usize> {
        let count = usize::try_from(element_count(dims)?).ok();
        count
            .and_then(|count| count.checked_mul(self.width))
            .ok_or_else(|| malformed("a huge shape"))
    }

    /// `data` with its scalars reversed where they are big-endian.
    fn little_endian(&self, data: Buffer) -> Buffer {
        if !self.big_endian || self.scalar < 2 {
            return data;
        }
        let mut bytes = data.to_vec();
        bytes.chunks_exact_mut(self.scalar).for_each(<[u8]>::reverse);
        Buffer::from(bytes)
    }
}

fn other_type(descr: &str, kind: &str, dtype: DataType, codes: bool) -> Error {
    if code(dtype).is_none() && !codes {
        return no_such_type(dtype);
    }
    let known = DataType::ALL.iter().find(|dtype| code(**dtype) == Some(kind));
    let known = match known {
        Some(dtype) => format!(" ({dtype})"),
        None if kind == "O" => " (pickled Python objects, which are never read)".to_owned(),
        None => String::new(),
    };
    let wanted = code(dtype).or(codes_of(dtype).first().copied()).unwrap_or("none");
    let reason =
        format!("the npy file holds `{descr}`{known}, {dtype} elements are `{wanted}` there");
    Error::new(ErrorKind::DataType, reason)
}

/// `data` of `shape` in row-major order, where it is in column-major order.
fn row_major(data: &[u8], shape: &[usize], width: usize) -> Result<Vec<u8>> {
    match width {
        1 => rearranged::<1>(data, shape),
        2 => rearranged::<2>(data, shape),
        4 => rearranged::<4>(data, shape),
        8 => rearranged::<8>(data, shape),
        _ => rearranged::<16>(data, shape),
    }
}

fn rearranged<const WIDTH: usize>(data: &[u8], shape: &[usize]) -> Result<Vec<u8>> {
    let (elements, _) = data.as_chunks::<WIDTH>();
    let array = ArrayViewD::from_shape(IxDyn(shape).f(), elements);
    let array = array.map_err(|e| malformed(&e.to_string()))?;
    Ok(array.iter().copied().collect::<Vec<_>>().into_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code that each byte of a file stands for, by the kind of the file.
    fn expected(dtype: DataType, kind: char, byte: u8) -> Option<u8> {
        let (bits, signed) = match dtype {
            DataType::Int4 => (4, true),
            DataType::Int2 => (2, true),
            DataType::Uint2 => (2, false),
            _ => (4, false),
        };
        let codes = 0..(1_i16 << bits);
        let number = |code: i16| if code >= 1 << (bits - 1) { code - (1 << bits) } else { code };
        let is_code = codes.contains(&i16::from(byte));
        let of_number = codes.clone().find(|code| number(*code) == i16::from(byte.cast_signed()));
        let found = match kind {
            'u' => is_code.then_some(i16::from(byte)),
            'i' => of_number,
            _ if signed => of_number.or(is_code.then_some(i16::from(byte))),
            _ => is_code.then_some(i16::from(byte)),
        };
        found.map(|code| u8::try_from(code).unwrap())
    }

    #[test]
    fn every_byte_is_the_code_that_its_kind_of_file_says() {
        let unsigned = [DataType::Uint4, DataType::Uint2, DataType::Float4E2M1];
        let cases = unsigned.map(|dtype| (dtype, &['u', 'V'][..]));
        let signed = [DataType::Int4, DataType::Int2].map(|dtype| (dtype, &['u', 'V', 'i'][..]));
        let mut accepted = 0;
        for (dtype, kinds) in cases.into_iter().chain(signed) {
            for (kind, byte) in kinds.iter().flat_map(|kind| (0..=255).map(move |b| (*kind, b))) {
                let header = Header {
                    type_descriptor: Value::String(format!("|{kind}1")),
                    layout: Layout::Standard,
                    shape: vec![1],
                };
                let mut file = header.to_bytes().unwrap();
                file.push(byte);
                let read = read(&Buffer::from(file), dtype, true);
                let expected = expected(dtype, kind, byte).map(|code| vec![code]);
                accepted += usize::from(expected.is_some());
                let code = read.ok().map(|tensor| tensor.unpack().unwrap());
                assert_eq!(code, expected, "{dtype} {kind}1 {byte}");
            }
        }
        assert_eq!(accepted, 2 * (16 + 4 + 16) + (16 + 24 + 16) + (4 + 6 + 4));
    }

    #[test]
    fn every_code_is_read_as_it_was_written() {
        let types = [
            (DataType::Int4, 16),
            (DataType::Uint4, 16),
            (DataType::Int2, 4),
            (DataType::Uint2, 4),
            (DataType::Float4E2M1, 16),
        ];
        for (dtype, count) in types {
            let codes: Vec<u8> = (0..count).collect();
            let tensor = Tensor::pack(dtype, [i64::from(count)], &codes).unwrap();
            let mut file = Vec::new();
            write(&tensor, true, &mut file).unwrap();
            let read = read(&Buffer::from(file), dtype, true).unwrap();
            assert_eq!(read.as_bytes(), tensor.as_bytes(), "{dtype}");
        }
    }
}
