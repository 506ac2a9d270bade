//! What docs/tensors.md says of types and errors is what the code says, and what onnx says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use microfloat::{f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu};
use num_complex::Complex;
use onnx_container::proto::{Packed, TensorProto};
use onnx_container::{Alignment, Buffer, BufferMut, DataType, Element, Error, Result, Tensor};

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tensors.md");
    fs::read_to_string(page).unwrap()
}

/// The rows of the tables that begin with a header of `first`, as their cells without backticks.
fn rows(page: &str, first: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        let cells = line.strip_prefix("| ").and_then(|line| line.strip_suffix('|'));
        let cells = cells.map(|cells| cells.split('|').map(|cell| cell.trim().replace('`', "")));
        match cells.map(Iterator::collect::<Vec<_>>) {
            Some(cells) if cells[0] == first => inside = true,
            Some(cells) if inside => rows.push(cells),
            Some(_) => {}
            None if line.starts_with("|-") => {}
            None => inside = false,
        }
    }
    rows
}

/// The types of Rust, as the page writes them.
fn rust_types() -> Vec<(DataType, &'static str)> {
    fn of<T: Element>() -> (DataType, &'static str) {
        (T::DTYPE, std::any::type_name::<T>())
    }
    vec![
        of::<f32>(),
        of::<f64>(),
        of::<f16>(),
        of::<bf16>(),
        of::<u8>(),
        of::<u16>(),
        of::<u32>(),
        of::<u64>(),
        of::<i8>(),
        of::<i16>(),
        of::<i32>(),
        of::<i64>(),
        of::<bool>(),
        of::<Complex<f32>>(),
        of::<Complex<f64>>(),
        of::<f8e4m3fn>(),
        of::<f8e4m3fnuz>(),
        of::<f8e5m2>(),
        of::<f8e5m2fnuz>(),
        of::<f8e8m0fnu>(),
    ]
}

#[test]
fn the_page_has_every_type_as_the_code_and_onnx_have_it() {
    let official: Vec<Vec<&str>> =
        include_str!("../data/types.tsv").lines().map(|line| line.split('\t').collect()).collect();
    let rows = rows(&page(), "number");
    assert_eq!(rows.len(), DataType::ALL.len() - 1);
    for ((row, official), dtype) in rows.iter().zip(&official).zip(&DataType::ALL[1..]) {
        let [number, name, bits, field, _, rust, safetensors, torch, numpy] = row.as_slice() else {
            panic!("{row:?}")
        };
        assert_eq!(
            [number, name, field, numpy],
            [official[0], official[1], official[3], official[4]]
        );
        assert_eq!((number, name), (&dtype.number().to_string(), &dtype.name().to_owned()));
        let width = dtype.bit_width().map(|bits| bits.to_string()).unwrap_or_default();
        assert_eq!(bits, &width);
        assert_eq!(width.parse().unwrap_or(0), official[2].parse::<u32>().unwrap());
        assert_eq!(safetensors, dtype.safetensors_name().unwrap_or_default(), "{name}");
        assert_eq!(torch, dtype.torch_name().unwrap_or_default(), "{name}");
        let of = rust_types().into_iter().find(|(of, _)| of == dtype).map(|(_, rust)| rust);
        let last = |path: &str| path.rsplit("::").next().unwrap().to_owned();
        assert_eq!(last(rust), last(of.unwrap_or_default()), "{name}");
    }
}

#[test]
fn the_codes_of_the_page_are_packed_as_it_says() {
    let page = page();
    let block = page.split_once("```codes\n").unwrap().1.split_once("```").unwrap().0;
    for line in block.lines() {
        let (name, bytes) = line.split_once(' ').unwrap();
        let dtype = *DataType::ALL.iter().find(|dtype| dtype.name() == name).unwrap();
        let tensor = Tensor::pack(dtype, [5], &[1, 2, 3, 0, 3]).unwrap();
        let hex: Vec<_> =
            tensor.as_bytes().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.join(" "), bytes, "{name}");
    }
    assert_eq!(block.lines().count(), 3);
}

fn proto(dtype: DataType, dims: &[i64], change: impl FnOnce(&mut TensorProto)) -> TensorProto {
    let mut proto = TensorProto::new("", dtype, dims);
    change(&mut proto);
    proto
}

fn raw(len: usize) -> impl FnOnce(&mut TensorProto) {
    move |proto| proto.raw_data = Some(vec![0; len].into())
}

fn floats(proto: &mut TensorProto) {
    *proto.float_data = Packed::from(vec![0.0]);
}

fn int32(entries: &[i32]) -> impl FnOnce(&mut TensorProto) {
    let entries = entries.to_vec();
    |proto| *proto.int32_data = Packed::from(entries)
}

/// Every error of import.
fn import_errors() -> Vec<Error> {
    use DataType::*;
    let import = |proto: TensorProto| Tensor::try_from(&proto).unwrap_err();
    let outside =
        |proto: TensorProto| Tensor::from_external(&proto, Buffer::default()).unwrap_err();
    let both = |proto: &mut TensorProto| {
        floats(proto);
        raw(4)(proto);
    };
    let one = Buffer::from(&b"a"[..]);
    vec![
        import(proto(Undefined, &[1], raw(1))),
        import(proto(Float, &[1], |proto| proto.data_type = Some(99))),
        import(proto(Float, &[1], int32(&[0]))),
        outside(proto(String, &[1], |_| {})),
        import(proto(Float, &[1], both)),
        outside(proto(Float, &[1], raw(4))),
        import(proto(Uint8, &[4], int32(&[1, 2, 3, 256]))),
        import(proto(Float, &[2, -1], raw(4))),
        import(proto(Float, &[1 << 62, 4], raw(4))),
        import(proto(Float, &[1 << 61], raw(4))),
        import(proto(Float, &[2], raw(4))),
        import(proto(Float, &[2], floats)),
        import(proto(String, &[2], |proto| *proto.string_data = vec![one])),
        import(proto(Float, &[2], |_| {})),
        Packed::<i64>::from_wire(vec![0x80].into()).unwrap_err(),
        import(proto(Float, &[1], |proto| proto.data_location = Some(TensorProto::EXTERNAL))),
        import(proto(Float, &[1], |proto| proto.segment = Some(Box::default()))),
    ]
}

/// Every error of views.
fn view_errors() -> Vec<Error> {
    let tensor = |dtype, len: usize| {
        let memory = BufferMut::zeroed(len + 1, Alignment::CACHE_LINE).unwrap();
        Tensor::new(dtype, [1], memory.freeze().slice(1..).unwrap()).unwrap()
    };
    let bools = Tensor::new(DataType::Bool, [2], Buffer::from(vec![1, 7])).unwrap();
    let refused = |result: Result<&[f32]>| result.unwrap_err();
    vec![
        refused(tensor(DataType::Int32, 4).as_slice()),
        bools.as_slice::<bool>().unwrap_err(),
        tensor(DataType::Float, 4).unpack().unwrap_err(),
        tensor(DataType::Uint4, 1).unpack_signed().unwrap_err(),
        refused(tensor(DataType::Float, 4).as_slice()),
    ]
}

#[test]
fn the_page_prints_every_error() {
    if cfg!(target_endian = "big") {
        return eprintln!("SKIPPED: this host has its own reason not to lend elements");
    }
    let printed: BTreeSet<Vec<String>> = rows(&page(), "kind").into_iter().collect();
    let mut given: BTreeSet<Vec<String>> = import_errors()
        .iter()
        .chain(&view_errors())
        .map(|error| vec![format!("{:?}", error.kind()), error.reason().replace('`', "")])
        .collect();
    given.insert(vec![
        "Unsupported".to_owned(),
        "little-endian elements cannot be borrowed on a big-endian host".to_owned(),
    ]);
    let missing: Vec<_> = given.symmetric_difference(&printed).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
