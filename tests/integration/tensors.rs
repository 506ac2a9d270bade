//! Every element type in every form, held to the goldens of `scripts/make_tensor_goldens.py`.

use std::collections::BTreeSet;

use half::{bf16, f16};
use microfloat::{
    f4e2m1fn, f6e2m3fn, f6e3m2fn, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu,
};
use num_complex::Complex;
use onnx_container::proto::{Message, TensorProto};
use onnx_container::{
    Alignment, Buffer, BufferMut, Container, DataType, Element, ErrorKind, Initializer,
    LoadOptions, MmapChoice, Tensor,
};

use crate::support::unhex;

/// One line of the goldens.
struct Golden {
    name: String,
    proto: TensorProto,
    /// The packed bytes; of strings, each.
    bytes: Vec<Vec<u8>>,
    /// The elements of narrow types, one a byte.
    elements: Vec<u8>,
}

impl Golden {
    fn dtype(&self) -> DataType {
        DataType::try_from(self.proto.data_type.unwrap()).unwrap()
    }

    fn is_string(&self) -> bool {
        self.dtype() == DataType::String
    }

    fn count(&self) -> usize {
        self.proto.dims.iter().product::<i64>().try_into().unwrap()
    }
}

fn goldens() -> Vec<Golden> {
    let lines = include_str!("../data/tensors.tsv").lines();
    let golden = |line: &str| {
        let [name, proto, bytes, elements] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        Golden {
            name: name.to_owned(),
            proto: TensorProto::decode(&Buffer::from(unhex(proto))).unwrap(),
            bytes: bytes.split(',').map(unhex).collect(),
            elements: unhex(elements),
        }
    };
    lines.map(golden).collect()
}

fn hold(tensor: &Tensor, golden: &Golden) {
    assert_eq!(tensor.dtype(), golden.dtype());
    assert_eq!(tensor.dims(), &golden.proto.dims[..]);
    assert_eq!(tensor.element_count(), golden.count());
    assert!(tensor.padding_is_zero());
    if golden.is_string() {
        let strings = tensor.strings().unwrap();
        assert_eq!(strings.len(), golden.count());
        assert!(strings.iter().zip(&golden.bytes).all(|(ours, theirs)| **ours == **theirs));
    } else {
        assert_eq!(tensor.as_bytes().unwrap(), golden.bytes[0], "{}", golden.name);
        assert_eq!(tensor.byte_len() as u64, golden.dtype().byte_len(tensor.dims()).unwrap());
    }
}

#[test]
fn the_goldens_are_complete() {
    let names: BTreeSet<String> = goldens().into_iter().map(|golden| golden.name).collect();
    for dtype in DataType::ALL.iter().filter(|dtype| **dtype != DataType::Undefined) {
        for form in ["raw", "typed"] {
            for shape in ["scalar", "empty", "odd", "matrix"] {
                let expected = *dtype != DataType::String || form == "typed";
                assert_eq!(names.contains(&format!("{dtype}/{form}/{shape}")), expected);
            }
        }
    }
}

#[test]
fn messages_are_imported() {
    for golden in goldens() {
        let tensor = Tensor::try_from(&golden.proto)
            .unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        hold(&tensor, &golden);
        let initializer = Initializer::try_from(golden.proto.clone()).unwrap();
        assert_eq!(initializer.to_tensor().unwrap(), tensor, "{}", golden.name);
    }
}

/// The golden's tensor as in its message, and of raw goldens as onnx's own external file has
/// it.
fn in_every_form(golden: &Golden, external: &Container) -> Vec<Tensor> {
    let mut tensors = vec![Tensor::try_from(&golden.proto).unwrap()];
    if golden.name.contains("/raw/") {
        let handle = format!("#{}", golden.name);
        tensors.push(external.get(&handle).unwrap().to_tensor().unwrap());
    }
    tensors
}

/// The goldens that onnx saved with external data. Miri, which stands in for a big-endian host,
/// does not know the system calls that open them.
fn external() -> Container {
    if cfg!(miri) {
        let weights = &include_bytes!("../data/external/model.onnx.data")[..];
        let options = LoadOptions::new().file("model.onnx.data", weights);
        return Container::load_bytes(&include_bytes!("../data/external/model.onnx")[..], options)
            .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/external/model.onnx");
    Container::load(path, MmapChoice::never()).unwrap()
}

#[test]
fn external_files_are_imported() {
    let container = external();
    let mut seen = 0;
    for golden in goldens().iter().filter(|golden| golden.name.contains("/raw/")) {
        let tensors = in_every_form(golden, &container);
        tensors.iter().for_each(|tensor| hold(tensor, golden));
        seen += tensors.len() - 1;
    }
    assert_eq!(seen, 27 * 4);
    assert_eq!(container.iter().count(), seen, "every tensor of the file has a golden");
}

#[test]
fn external_bytes_are_imported() {
    for golden in goldens() {
        let mut proto = TensorProto::new("t", golden.dtype(), golden.proto.dims.clone());
        proto.data_location = Some(TensorProto::EXTERNAL);
        let bytes = Buffer::from(golden.bytes[0].clone());
        match Tensor::from_external(&proto, bytes) {
            Ok(tensor) => hold(&tensor, &golden),
            Err(error) => assert!(golden.is_string(), "{}: {error}", golden.name),
        }
        assert!(Tensor::try_from(&proto).is_err(), "{}: nothing resolved it", golden.name);
    }
}

#[test]
fn tensors_become_messages() {
    for golden in goldens() {
        let tensor = Tensor::try_from(&golden.proto).unwrap();
        let proto = tensor.to_proto("t");
        if golden.name.contains("/raw/") || golden.is_string() {
            assert_eq!(proto, golden.proto, "{}", golden.name);
        }
        let wire = Buffer::from(proto.encode_to_vec().unwrap());
        hold(&Tensor::try_from(&TensorProto::decode(&wire).unwrap()).unwrap(), &golden);
    }
}

#[test]
fn narrow_elements_are_unpacked() {
    let container = external();
    let mut seen = 0;
    for golden in goldens().iter().filter(|golden| golden.dtype().bit_width() < Some(8)) {
        for tensor in in_every_form(golden, &container) {
            if golden.is_string() {
                assert_eq!(tensor.unpack().unwrap_err().kind(), ErrorKind::DataType);
                continue;
            }
            let codes = tensor.unpack().unwrap();
            let elements: Vec<u8> = match tensor.unpack_signed() {
                Ok(numbers) => numbers.into_iter().map(i8::cast_unsigned).collect(),
                Err(_) => codes.clone(),
            };
            assert_eq!(elements, golden.elements, "{}", golden.name);
            assert_eq!(Tensor::pack(tensor.dtype(), tensor.dims(), &codes).unwrap(), tensor);
            seen += 1;
        }
    }
    assert_eq!(seen, 7 * 4 * 3, "7 types, 4 shapes, 3 forms");
}

/// `bytes` in memory that is aligned, or `skew` bytes off.
fn skewed(bytes: &[u8], skew: usize) -> Buffer {
    let mut memory = BufferMut::zeroed(bytes.len() + skew, Alignment::CACHE_LINE).unwrap();
    memory[skew..].copy_from_slice(bytes);
    memory.freeze().slice(skew..).unwrap()
}

/// The elements as onnx has them in its files.
fn bytes_of<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = bytemuck::cast_slice(elements).to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(T::SCALAR_BYTES).for_each(<[u8]>::reverse);
    }
    bytes
}

/// Holds views and arrays of `T` to the bytes that `tensor` is known to have, aligned and not.
fn hold_elements<T: Element>(tensor: &Tensor, expected: &[u8]) {
    for skew in 0..2 {
        let bytes = skewed(tensor.as_bytes().unwrap(), skew);
        let tensor = Tensor::new(tensor.dtype(), tensor.dims(), bytes).unwrap();
        let array = tensor.to_array::<T>().unwrap();
        assert_eq!(array.shape(), tensor.shape());
        assert!(bytes_of(array.as_slice().unwrap()) == expected, "{}", T::DTYPE);
        assert!(bytes_of(&tensor.to_slice::<T>().unwrap()) == expected, "{}", T::DTYPE);
        assert!(Initializer::from(array).to_tensor().unwrap() == tensor, "{}", T::DTYPE);
        let aligned = align_of::<T>() == 1 || skew == 0;
        let ordered = cfg!(target_endian = "little") || T::SCALAR_BYTES == 1;
        let lends = expected.is_empty() || aligned && ordered;
        match tensor.view::<T>() {
            Ok(view) => {
                assert!(lends, "{}", T::DTYPE);
                assert_eq!(view.shape(), tensor.shape());
                assert!(bytes_of(view.as_slice().unwrap()) == expected, "{}", T::DTYPE);
            }
            Err(error) => {
                assert!(!lends, "{}: {error}", T::DTYPE);
                assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
        }
    }
}

/// The same by the tensor's own type; `false` for types that have no Rust type.
pub fn hold_views(tensor: &Tensor, expected: &[u8]) -> bool {
    let hold = match tensor.dtype() {
        DataType::Float => hold_elements::<f32>,
        DataType::Double => hold_elements::<f64>,
        DataType::Float16 => hold_elements::<f16>,
        DataType::Bfloat16 => hold_elements::<bf16>,
        DataType::Uint8 => hold_elements::<u8>,
        DataType::Uint16 => hold_elements::<u16>,
        DataType::Uint32 => hold_elements::<u32>,
        DataType::Uint64 => hold_elements::<u64>,
        DataType::Int8 => hold_elements::<i8>,
        DataType::Int16 => hold_elements::<i16>,
        DataType::Int32 => hold_elements::<i32>,
        DataType::Int64 => hold_elements::<i64>,
        DataType::Bool => hold_elements::<bool>,
        DataType::Complex64 => hold_elements::<Complex<f32>>,
        DataType::Complex128 => hold_elements::<Complex<f64>>,
        DataType::Float8E4M3Fn => hold_elements::<f8e4m3fn>,
        DataType::Float8E4M3Fnuz => hold_elements::<f8e4m3fnuz>,
        DataType::Float8E5M2 => hold_elements::<f8e5m2>,
        DataType::Float8E5M2Fnuz => hold_elements::<f8e5m2fnuz>,
        DataType::Float8E8M0 => hold_elements::<f8e8m0fnu>,
        _ => return false,
    };
    hold(tensor, expected);
    true
}

#[test]
fn elements_are_seen_as_their_rust_type() {
    let container = external();
    let mut seen = BTreeSet::new();
    for golden in &goldens() {
        if golden.is_string() {
            continue;
        }
        for tensor in in_every_form(golden, &container) {
            if hold_views(&tensor, &golden.bytes[0]) {
                seen.insert(golden.dtype());
            }
        }
    }
    let whole = |dtype: &&DataType| dtype.bit_width() >= Some(8);
    assert!(seen.iter().eq(DataType::ALL.iter().filter(whole)), "all types that fill bytes");
}

#[test]
fn codes_of_small_floats_are_the_numbers_that_onnx_means() {
    let mut seen = 0;
    for line in include_str!("../data/small_floats.tsv").lines() {
        let (name, floats) = line.split_once('\t').unwrap();
        let convert: fn(u8) -> f32 = match name {
            "FLOAT8E4M3FN" => |code| f8e4m3fn::from_bits(code).to_f32(),
            "FLOAT8E4M3FNUZ" => |code| f8e4m3fnuz::from_bits(code).to_f32(),
            "FLOAT8E5M2" => |code| f8e5m2::from_bits(code).to_f32(),
            "FLOAT8E5M2FNUZ" => |code| f8e5m2fnuz::from_bits(code).to_f32(),
            "FLOAT8E8M0" => |code| f8e8m0fnu::from_bits(code).to_f32(),
            "FLOAT4E2M1" => |code| f4e2m1fn::from_bits(code).to_f32(),
            "FLOAT6E2M3" => |code| f6e2m3fn::from_bits(code).to_f32(),
            "FLOAT6E3M2" => |code| f6e3m2fn::from_bits(code).to_f32(),
            _ => panic!("{name}"),
        };
        for (code, float) in (0..=255).zip(unhex(floats).as_chunks().0) {
            let (ours, theirs) = (convert(code), f32::from_le_bytes(*float));
            let same = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
            assert!(same, "{name} {code:#x}: {ours} for {theirs}");
            seen += 1;
        }
    }
    assert_eq!(seen, 5 * 256 + 2 * 64 + 16);
}

#[test]
fn fixed_width_fields_are_shared_with_the_input() {
    for golden in goldens() {
        let shared = matches!(golden.dtype(), DataType::Float | DataType::Double)
            || golden.name.contains("/raw/");
        if shared && golden.count() > 0 {
            let wire = Buffer::from(golden.proto.encode_to_vec().unwrap());
            let tensor = Tensor::try_from(&TensorProto::decode(&wire).unwrap()).unwrap();
            assert!(tensor.buffer().unwrap().same_owner(&wire), "{}", golden.name);
        }
    }
}
