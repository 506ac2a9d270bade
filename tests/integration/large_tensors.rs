//! Tensors too large to be stored as goldens: their elements follow a rule, and what onnx makes of
//! them is held by its checksum. The rule is that of `scripts/make_tensor_goldens.py`.

use onnx_container::proto::{Message, Packed, TensorProto};
use onnx_container::{Buffer, DataType, Tensor};

use crate::tensors::hold_views;

const DIMS: [i64; 2] = [521, 1031];
const COUNT: usize = 521 * 1031;

/// The CRC-32 of zlib, in the form of the goldens: nothing at all has none.
fn checksum(bytes: &[u8]) -> String {
    let step = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    let table: Vec<u32> = (0..256).map(|byte| (0..8).fold(byte, step)).collect();
    let add = |crc: u32, byte: &u8| table[(crc as u8 ^ byte) as usize] ^ crc >> 8;
    match bytes {
        [] => "-".to_owned(),
        _ => format!("{:08x}", !bytes.iter().fold(!0, add)),
    }
}

/// A tensor by the rule: its scalars as numbers, those of a complex element side by side.
struct Ruled {
    dtype: DataType,
    scalars: Vec<u64>,
    /// Bytes of a scalar; 0 for types narrower than a byte.
    width: usize,
}

impl Ruled {
    fn new(dtype: DataType) -> Self {
        use DataType::*;
        let parts = if matches!(dtype, Complex64 | Complex128) { 2 } else { 1 };
        let element = u32::from(dtype.bit_width().unwrap());
        let bits = if dtype == Bool { 1 } else { element / parts };
        let floats = matches!(dtype, Float | Double | Complex64 | Complex128);
        let scalar = |i: u64| {
            let bits_of = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits);
            if floats { quiet(bits_of, bits) } else { bits_of }
        };
        let scalars = (1..=COUNT as u64 * u64::from(parts)).map(scalar).collect();
        Self { dtype, scalars, width: (element / parts / 8) as usize }
    }

    fn proto(&self) -> TensorProto {
        TensorProto::new("t", self.dtype, DIMS)
    }

    /// The packed bytes.
    fn bytes(&self) -> Vec<u8> {
        if let bits @ ..8 = self.dtype.bit_width().unwrap() {
            return self.packed(u32::from(bits));
        }
        let mut bytes = Vec::with_capacity(self.scalars.len() * self.width);
        for scalar in &self.scalars {
            bytes.extend_from_slice(&scalar.to_le_bytes()[..self.width]);
        }
        bytes
    }

    /// The scalars one behind the other, the first in the lowest bits.
    fn packed(&self, bits: u32) -> Vec<u8> {
        let (mut bytes, mut pending, mut filled) = (Vec::new(), 0, 0);
        for scalar in &self.scalars {
            pending |= scalar << filled;
            filled += bits;
            while filled >= 8 {
                bytes.push(pending as u8);
                (pending, filled) = (pending >> 8, filled - 8);
            }
        }
        if filled > 0 {
            bytes.push(pending as u8);
        }
        bytes
    }

    fn raw(&self) -> TensorProto {
        self.proto().with_raw_data(self.bytes())
    }

    /// The tensor in its typed field, with the entries that onnx writes.
    fn typed(&self) -> TensorProto {
        use DataType::*;
        let mut proto = self.proto();
        let all = self.scalars.iter();
        match self.dtype {
            Float | Complex64 => {
                let floats: Vec<_> = all.map(|bits| f32::from_bits(*bits as u32)).collect();
                *proto.float_data = Packed::from(floats);
            }
            Double | Complex128 => {
                let floats: Vec<_> = all.map(|bits| f64::from_bits(*bits)).collect();
                *proto.double_data = Packed::from(floats);
            }
            Int64 => {
                let numbers: Vec<_> = all.map(|bits| bits.cast_signed()).collect();
                *proto.int64_data = Packed::from(numbers);
            }
            Uint32 | Uint64 => *proto.uint64_data = Packed::from(self.scalars.clone()),
            _ => *proto.int32_data = Packed::from(self.int32_entries()),
        }
        proto
    }

    fn int32_entries(&self) -> Vec<i32> {
        use DataType::*;
        match self.dtype {
            Int8 => self.scalars.iter().map(|bits| i32::from(*bits as i8)).collect(),
            Int16 => self.scalars.iter().map(|bits| i32::from(*bits as i16)).collect(),
            // One entry for each byte of several elements.
            Uint4 | Int4 | Float4E2M1 | Uint2 | Int2 => {
                self.bytes().into_iter().map(i32::from).collect()
            }
            _ => self.scalars.iter().map(|bits| *bits as i32).collect(),
        }
    }
}

/// NaNs that computing leaves as they are; `width` is that of the float in bits.
fn quiet(bits: u64, width: u32) -> u64 {
    match width {
        32 if f32::from_bits(bits as u32).is_nan() => bits | 1 << 22,
        64 if f64::from_bits(bits).is_nan() => bits | 1 << 51,
        _ => bits,
    }
}

/// The elements of a narrow type, one a byte, signs extended.
fn elements(tensor: &Tensor) -> Vec<u8> {
    match tensor.unpack_signed() {
        Ok(numbers) => numbers.into_iter().map(i8::cast_unsigned).collect(),
        Err(_) => tensor.unpack().unwrap_or_default(),
    }
}

#[test]
fn every_type_is_imported_at_length() {
    let mut seen = 0;
    for line in include_str!("../data/large_tensors.tsv").lines() {
        let [name, raw, typed, bytes, codes] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        if name == "STRING" {
            continue;
        }
        let dtype = *DataType::ALL.iter().find(|dtype| dtype.name() == name).unwrap();
        let ruled = Ruled::new(dtype);
        let packed = ruled.bytes();
        assert_eq!(checksum(&packed), bytes, "{name}");
        let mut tensors = Vec::new();
        for (proto, expected) in [(ruled.raw(), raw), (ruled.typed(), typed)] {
            let wire = proto.encode_to_vec().unwrap();
            assert_eq!(checksum(&wire), expected, "{name}: not the message that onnx writes");
            let proto = TensorProto::decode(&Buffer::from(wire)).unwrap();
            tensors.push(Tensor::try_from(&proto).unwrap());
        }
        let external = TensorProto::external("t", dtype, DIMS, "f");
        tensors.push(Tensor::from_external(&external, Buffer::from(packed.clone())).unwrap());
        let first = elements(&tensors[0]);
        assert_eq!(checksum(&first), codes, "{name}");
        for tensor in tensors {
            assert_eq!((tensor.dtype(), tensor.dims()), (dtype, &DIMS[..]));
            assert!(tensor.as_bytes().unwrap() == packed && elements(&tensor) == first, "{name}");
            let whole = dtype.bit_width() >= Some(8);
            assert_eq!(hold_views(&tensor, &packed), whole, "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, DataType::ALL.len() - 2, "all but strings and the undefined type");
}

#[test]
fn many_strings_are_imported() {
    let lines = include_str!("../data/large_tensors.tsv").lines();
    let line = lines.filter_map(|line| line.strip_prefix("STRING\t-\t")).next().unwrap();
    let words = ["", "onnx", "größe", "\0", "模型"].map(|word| Buffer::from(word.as_bytes()));
    let strings: Vec<_> = words.iter().cycle().take(COUNT).cloned().collect();
    let mut proto = TensorProto::new("t", DataType::String, DIMS);
    *proto.string_data = strings.clone();
    let wire = proto.encode_to_vec().unwrap();
    assert!(line.starts_with(&checksum(&wire)), "not the message that onnx writes");
    let tensor = Tensor::try_from(&TensorProto::decode(&Buffer::from(wire)).unwrap()).unwrap();
    assert_eq!(tensor.strings(), Some(&strings[..]));
}
