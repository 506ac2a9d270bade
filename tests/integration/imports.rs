//! Tensor messages with small faults: which ones an import accepts, and the errors of the others.

use onnx_container::proto::{Packed, TensorProto};
use onnx_container::{Buffer, DataType, ErrorKind, Tensor};
use proptest::prelude::*;

fn proto(dtype: DataType, dims: &[i64]) -> TensorProto {
    let mut proto = TensorProto::default();
    proto.dims = dims.to_vec();
    proto.data_type = Some(dtype.number());
    proto
}

fn with(mut proto: TensorProto, change: impl FnOnce(&mut TensorProto)) -> TensorProto {
    change(&mut proto);
    proto
}

fn int32(dtype: DataType, dims: &[i64], entries: &[i32]) -> TensorProto {
    with(proto(dtype, dims), |proto| *proto.int32_data = Packed::from(entries.to_vec()))
}

fn with_raw(dtype: DataType, dims: &[i64], bytes: &[u8]) -> TensorProto {
    with(proto(dtype, dims), |proto| proto.raw_data = Some(bytes.into()))
}

fn strings(dims: &[i64], strings: &[&str]) -> TensorProto {
    let strings = strings.iter().map(|text| Buffer::from(text.as_bytes())).collect();
    with(proto(DataType::String, dims), |proto| *proto.string_data = strings)
}

fn floats(proto: TensorProto, entries: &[f32]) -> TensorProto {
    with(proto, |proto| *proto.float_data = Packed::from(entries.to_vec()))
}

#[test]
fn entries_count_by_their_low_bits() {
    use DataType::*;
    let cases: &[(DataType, &[i32], &[u8])] = &[
        (Int8, &[-128, 127, 255], &[128, 127, 255]),
        (Uint8, &[-1, 0, 255], &[255, 0, 255]),
        (Int16, &[-32768, 65535, 1], &[0, 128, 255, 255, 1, 0]),
        (Float16, &[0x3c00, 0, -1], &[0, 0x3c, 0, 0, 255, 255]),
        (Float8E4M3Fn, &[0x38, 255, -1], &[0x38, 255, 255]),
        (Bool, &[0, 1, 2], &[0, 1, 1]),
        (Float6E2M3, &[63, 0, 63], &[0x3f, 0xf0, 0x03]),
    ];
    for (dtype, entries, bytes) in cases {
        let tensor = Tensor::try_from(&int32(*dtype, &[3], entries)).unwrap();
        assert_eq!(tensor.as_bytes(), Some(*bytes), "{dtype} {entries:?}");
    }
    // One entry holds two elements, and its padding is kept.
    let tensor = Tensor::try_from(&int32(Uint4, &[3], &[0x21, 0xf3])).unwrap();
    assert_eq!(tensor.unpack().unwrap(), [1, 2, 3]);
    assert!(!tensor.padding_is_zero());
}

#[test]
fn entries_that_would_lose_bits_are_refused() {
    use DataType::*;
    let cases: &[(DataType, i32)] = &[
        (Int8, 256),
        (Int8, -129),
        (Uint8, 300),
        (Int16, 65_536),
        (Float16, -32_769),
        (Bool, 256),
        (Float8E5M2, 256),
        (Uint4, 256),
        (Float6E3M2, 64),
        (Float6E3M2, -1),
    ];
    for (dtype, entry) in cases {
        let error = Tensor::try_from(&int32(*dtype, &[1], &[*entry])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModel, "{dtype} {entry}");
        assert!(error.to_string().contains(&entry.to_string()), "{error}");
    }
    let entries = Packed::from(vec![1 << 32]);
    let wide = with(proto(Uint32, &[1]), |proto| *proto.uint64_data = entries);
    assert_eq!(Tensor::try_from(&wide).unwrap_err().kind(), ErrorKind::InvalidModel);
}

#[test]
fn faults_are_named() {
    use DataType::*;
    let external = with(proto(Float, &[1]), |proto| proto.data_location = Some(1));
    let both = floats(with_raw(Float, &[1], &[0; 4]), &[1.0]);
    let unknown = with(with_raw(Float, &[1], &[0; 4]), |proto| proto.data_type = Some(99));
    let segment =
        with(with_raw(Float, &[1], &[0; 4]), |proto| proto.segment = Some(Box::default()));
    let cases: Vec<(TensorProto, ErrorKind, &str)> = vec![
        (external, ErrorKind::MissingHandle, "its elements are external and were not resolved"),
        (segment, ErrorKind::Unsupported, "segment of a larger"),
        (proto(Undefined, &[1]), ErrorKind::DataType, "its data type is undefined"),
        (TensorProto::default(), ErrorKind::DataType, "its data type is undefined"),
        (unknown, ErrorKind::DataType, "data type 99"),
        (both, ErrorKind::InvalidModel, "elements in both `float_data` and `raw_data`"),
        (proto(Float, &[2]), ErrorKind::Shape, "there is no data"),
        (with_raw(Float, &[2], &[]), ErrorKind::Shape, "there is no data"),
        (proto(String, &[1 << 40]), ErrorKind::Shape, "there is no data"),
        (with_raw(Float, &[2], &[0; 4]), ErrorKind::Shape, "needs 8 bytes, there are 4"),
        (with_raw(Float, &[0], &[0; 4]), ErrorKind::Shape, "needs 0 bytes, there are 4"),
        (with_raw(Float, &[-1], &[0; 4]), ErrorKind::Shape, "negative"),
        (proto(Float, &[-1]), ErrorKind::Shape, "negative"),
        (with_raw(Float, &[1 << 62, 4], &[0; 4]), ErrorKind::Shape, "more than 2^63"),
        (with_raw(Float, &[1 << 61], &[0; 4]), ErrorKind::Shape, "more than 2^63 bytes"),
        (with_raw(String, &[1], b"abc"), ErrorKind::DataType, "their field is `string_data`"),
        (int32(Float, &[1], &[1]), ErrorKind::DataType, "their field is `float_data`"),
        (floats(proto(Int8, &[1]), &[1.0]), ErrorKind::DataType, "field is `int32_data`"),
        (floats(proto(Float, &[2]), &[1.0]), ErrorKind::Shape, "2 entries in `float_data`"),
        (floats(proto(Complex64, &[1]), &[1.0]), ErrorKind::Shape, "needs 2 entries"),
        (int32(Uint8, &[1 << 40], &[1]), ErrorKind::Shape, "there are 1"),
        (int32(Int4, &[3], &[1, 2, 3]), ErrorKind::Shape, "needs 2 entries"),
        (int32(Int2, &[5], &[1]), ErrorKind::Shape, "needs 2 entries"),
        (strings(&[2], &["a"]), ErrorKind::Shape, "needs 2 strings, there are 1"),
        (strings(&[], &["a", "b"]), ErrorKind::Shape, "needs 1 strings, there are 2"),
        (strings(&[-1], &["a"]), ErrorKind::Shape, "negative"),
        (int32(Uint8, &[-1], &[1]), ErrorKind::Shape, "negative"),
        (int32(Uint8, &[1 << 62, 4], &[1]), ErrorKind::Shape, "more than 2^63 elements"),
        (with_raw(Float6E2M3, &[5], &[0; 3]), ErrorKind::Shape, "needs 4 bytes, there are 3"),
    ];
    for (proto, kind, reason) in cases {
        let proto = with(proto, |proto| proto.name = Some("w".into()));
        let error = Tensor::try_from(&proto).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.tensor(), Some("w"));
        assert!(error.reason().contains(reason), "{error}: {reason}");
    }
}

/// A field by name, and what puts an element there.
type Filler = (&'static str, fn(&mut TensorProto));

/// Elements of every type in every field that is not theirs.
#[test]
fn every_other_field_is_refused() {
    let fill: &[Filler] = &[
        ("float_data", |proto| *proto.float_data = Packed::from(vec![0.0])),
        ("int32_data", |proto| *proto.int32_data = Packed::from(vec![0])),
        ("string_data", |proto| *proto.string_data = vec![Buffer::default()]),
        ("int64_data", |proto| *proto.int64_data = Packed::from(vec![0])),
        ("raw_data", |proto| proto.raw_data = Some(vec![0; 16].into())),
        ("double_data", |proto| *proto.double_data = Packed::from(vec![0.0])),
        ("uint64_data", |proto| *proto.uint64_data = Packed::from(vec![0])),
    ];
    let mut refused = 0;
    for line in include_str!("../data/types.tsv").lines() {
        let [number, name, _, own, _] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let dtype = DataType::try_from(number.parse::<i32>().unwrap()).unwrap();
        for (field, fill) in fill {
            let tensor = Tensor::try_from(&with(proto(dtype, &[1]), fill));
            if *field == own || (*field == "raw_data" && name != "STRING") {
                // The right field, if perhaps not as many elements as there should be.
                assert_ne!(tensor.err().map(|e| e.kind()), Some(ErrorKind::DataType), "{name}");
                continue;
            }
            let error = tensor.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DataType);
            let reason = format!("elements of {name} are in `{field}`, their field is `{own}`");
            assert_eq!(error.reason(), reason);
            refused += 1;
        }
    }
    assert_eq!(refused, 27 * 5 + 6);
}

/// One entry that does not fit, far behind where one thread would have stopped to look.
#[test]
fn an_entry_of_millions_that_does_not_fit_is_named() {
    let mut entries = vec![1; 3 << 20];
    entries[2_500_000] = 256;
    let dims = [entries.len() as i64];
    let error = Tensor::try_from(&int32(DataType::Uint8, &dims, &entries)).unwrap_err();
    assert_eq!(error.reason(), "entry 2500000 of `int32_data` is 256, too wide for UINT8");
    entries[2_500_000] = 255;
    let tensor = Tensor::try_from(&int32(DataType::Uint8, &dims, &entries)).unwrap();
    assert_eq!(tensor.as_slice::<u8>().unwrap()[2_500_000], 255);
    assert_eq!(
        tensor.as_bytes().unwrap().iter().map(|byte| u64::from(*byte)).sum::<u64>(),
        (3 << 20) + 254
    );
}

#[test]
fn external_messages_bring_no_elements() {
    use DataType::*;
    let bytes = Buffer::from(vec![0; 4]);
    let cases: Vec<(TensorProto, ErrorKind)> = vec![
        (with_raw(Float, &[1], &[0; 4]), ErrorKind::InvalidModel),
        (proto(String, &[1]), ErrorKind::DataType),
        (proto(Undefined, &[1]), ErrorKind::DataType),
        (proto(Double, &[1]), ErrorKind::Shape),
        (proto(Int8, &[-4]), ErrorKind::Shape),
        (
            with(proto(Float, &[1]), |proto| proto.segment = Some(Box::default())),
            ErrorKind::Unsupported,
        ),
    ];
    for (proto, kind) in cases {
        let error = Tensor::from_external(&proto, bytes.clone()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let external = with(proto(Float, &[1]), |proto| proto.data_location = Some(1));
    let tensor = Tensor::from_external(&external, bytes.clone()).unwrap();
    assert_eq!(tensor.buffer().map(|buffer| buffer.as_ptr()), Some(bytes.as_ptr()));
}

#[test]
fn absent_and_empty_fields_are_the_same() {
    for proto in [proto(DataType::Float, &[0]), with_raw(DataType::Float, &[2, 0], &[])] {
        assert_eq!(Tensor::try_from(&proto).unwrap().as_bytes(), Some(&[][..]));
    }
    let strings = Tensor::try_from(&proto(DataType::String, &[0])).unwrap();
    assert_eq!(strings.strings(), Some(&[][..]));
    let floats = floats(with_raw(DataType::Float, &[1], &[]), &[1.0]);
    assert_eq!(Tensor::try_from(&floats).unwrap().as_slice::<f32>().unwrap(), [1.0]);
}

#[test]
fn raw_bytes_are_shared() {
    let proto = with_raw(DataType::Float, &[1], &[0; 4]);
    let address = proto.raw_data.as_ref().map(|bytes| bytes.as_ptr());
    let tensor = Tensor::try_from(&proto).unwrap();
    assert_eq!(tensor.buffer().map(|bytes| bytes.as_ptr()), address);
    let again = tensor.to_proto("w");
    assert_eq!(again.raw_data.as_ref().map(|bytes| bytes.as_ptr()), address);

    let floats = floats(self::proto(DataType::Float, &[1]), &[1.0]);
    let address = floats.float_data.wire_buffer().map(|bytes| bytes.as_ptr());
    let tensor = Tensor::try_from(&floats).unwrap();
    assert_eq!(tensor.buffer().map(|bytes| bytes.as_ptr()), address);
}

prop_compose! {
    /// A message that is seldom right: any type, small shapes, payloads in some fields.
    fn any_proto()(
        number in -1_i32..30,
        dims in prop::collection::vec(prop_oneof![0_i64..4, any::<i64>()], 0..3),
        raw in prop::option::of(prop::collection::vec(any::<u8>(), 0..16)),
        int32 in prop::collection::vec(prop_oneof![0_i32..256, any::<i32>()], 0..4),
        float in prop::collection::vec(any::<f32>(), 0..4),
        uint64 in prop::collection::vec(any::<u64>(), 0..3),
        strings in prop::collection::vec(any::<Vec<u8>>(), 0..3),
        fields in 0_u8..16,
        location in prop::option::of(0_i32..3),
    ) -> TensorProto {
        let mut proto = TensorProto::default();
        proto.dims = dims;
        proto.data_type = Some(number);
        proto.raw_data = raw.map(Buffer::from);
        proto.data_location = location;
        if fields & 1 != 0 { *proto.int32_data = Packed::from(int32); }
        if fields & 2 != 0 { *proto.float_data = Packed::from(float); }
        if fields & 4 != 0 { *proto.uint64_data = Packed::from(uint64); }
        if fields & 8 != 0 {
            *proto.string_data = strings.into_iter().map(Buffer::from).collect();
        }
        proto
    }
}

proptest! {
    #[test]
    fn any_message_is_read_or_refused(proto in any_proto()) {
        if let Ok(tensor) = Tensor::try_from(&proto) {
            let again = Tensor::try_from(&tensor.to_proto("w")).unwrap();
            prop_assert_eq!(&again, &tensor);
            let _ = (tensor.unpack(), tensor.to_slice::<f32>(), tensor.to_array::<bool>());
        }
    }

    #[test]
    fn bytes_come_back(number in 1_i32..29, dims in prop::collection::vec(0_i64..6, 0..4)) {
        let dtype = DataType::try_from(number).unwrap();
        if let Ok(len) = dtype.byte_len(&dims) {
            let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
            let tensor = Tensor::new(dtype, dims, Buffer::from(bytes)).unwrap();
            prop_assert_eq!(Tensor::try_from(&tensor.to_proto("w")).unwrap(), tensor);
        }
    }
}
