//! Every element type in every form, held to the goldens of `scripts/make_tensor_goldens.py`.

use std::collections::BTreeSet;

use half::{bf16, f16};
use num_complex::Complex;
use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, DataType, Element, Initializer, Tensor};

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

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
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
            for shape in ["scalar", "empty", "odd", "large"] {
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

#[test]
fn external_bytes_are_imported() {
    for golden in goldens() {
        let mut proto = TensorProto::default();
        proto.dims = golden.proto.dims.clone();
        proto.data_type = golden.proto.data_type;
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
    for golden in goldens().iter().filter(|golden| golden.dtype().bit_width() < Some(8)) {
        if golden.is_string() {
            continue;
        }
        let tensor = Tensor::try_from(&golden.proto).unwrap();
        let codes = tensor.unpack().unwrap();
        let elements: Vec<u8> = match tensor.unpack_signed() {
            Ok(numbers) => numbers.into_iter().map(i8::cast_unsigned).collect(),
            Err(_) => codes.clone(),
        };
        assert_eq!(elements, golden.elements, "{}", golden.name);
        assert_eq!(Tensor::pack(tensor.dtype(), tensor.dims(), &codes).unwrap(), tensor);
    }
}

/// The bytes of a tensor through views and arrays of `T`, aligned and not.
fn hold_elements<T: Element>(golden: &Golden) {
    let tensor = Tensor::try_from(&golden.proto).unwrap();
    for skew in 0..2 {
        let shifted = [&vec![0; skew][..], tensor.as_bytes().unwrap()].concat();
        let bytes = Buffer::from(shifted).slice(skew..).unwrap();
        let tensor = Tensor::new(tensor.dtype(), tensor.dims(), bytes).unwrap();
        let slice = tensor.to_slice::<T>().unwrap();
        let array = tensor.to_array::<T>().unwrap();
        assert_eq!(array.shape(), tensor.shape());
        let again = Initializer::from(array).to_tensor().unwrap();
        assert_eq!(again, tensor, "{}", golden.name);
        assert_eq!(slice.len(), golden.count());
        if let Ok(view) = tensor.view::<T>() {
            assert_eq!(Initializer::from(view.to_owned()).to_tensor().unwrap(), tensor);
        }
    }
}

#[test]
fn elements_are_seen_as_their_rust_type() {
    let mut seen = BTreeSet::new();
    for golden in &goldens() {
        match golden.dtype() {
            DataType::Float => hold_elements::<f32>(golden),
            DataType::Double => hold_elements::<f64>(golden),
            DataType::Float16 => hold_elements::<f16>(golden),
            DataType::Bfloat16 => hold_elements::<bf16>(golden),
            DataType::Uint8 => hold_elements::<u8>(golden),
            DataType::Uint16 => hold_elements::<u16>(golden),
            DataType::Uint32 => hold_elements::<u32>(golden),
            DataType::Uint64 => hold_elements::<u64>(golden),
            DataType::Int8 => hold_elements::<i8>(golden),
            DataType::Int16 => hold_elements::<i16>(golden),
            DataType::Int32 => hold_elements::<i32>(golden),
            DataType::Int64 => hold_elements::<i64>(golden),
            DataType::Bool => hold_elements::<bool>(golden),
            DataType::Complex64 => hold_elements::<Complex<f32>>(golden),
            DataType::Complex128 => hold_elements::<Complex<f64>>(golden),
            _ => continue,
        }
        seen.insert(golden.dtype());
    }
    assert_eq!(seen.len(), 15);
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
