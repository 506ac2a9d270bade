//! PyTorch tensors as initializers, and initializers as PyTorch tensors.
//!
//! The models in tests/data/torch were written by PyTorch itself; see scripts/make_torch_models.py.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onnx_container::edit::FillOptions;
use onnx_container::external_data::ExternalData;
use onnx_container::proto::{GraphProto, TensorProto};
use onnx_container::torch::{self, TorchInitializer};
use onnx_container::{
    Alignment, Buffer, Container, DataType, ErrorKind, Initializer, LoadOptions, MmapChoice,
    SaveOptions, Tensor, WeightFiles,
};
use tch::{Device, IndexOp, Kind};

use crate::drivers::run_driver;
use crate::support::{both_choices, graph, model};

const FLOAT: (Kind, Device) = (Kind::Float, Device::Cpu);

fn initializer(tensor: &tch::Tensor) -> Initializer {
    Initializer::try_from(tensor).unwrap()
}

fn bytes(initializer: &Initializer) -> Vec<u8> {
    let mut bytes = vec![0xaa; initializer.byte_len() as usize];
    initializer.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What tch itself says that the elements are.
fn elements(tensor: &tch::Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.contiguous().copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

fn floats(values: impl IntoIterator<Item = usize>) -> Vec<u8> {
    values.into_iter().flat_map(|value| (value as f32).to_le_bytes()).collect()
}

fn counted(dims: &[i64]) -> tch::Tensor {
    tch::Tensor::arange(dims.iter().product::<i64>(), FLOAT).reshape(dims)
}

/// Name, tensor, type, dimensions, bytes.
type Case = (&'static str, tch::Tensor, DataType, Vec<i64>, Vec<u8>);

const KINDS: [(Kind, DataType); 16] = [
    (Kind::Float, DataType::Float),
    (Kind::Double, DataType::Double),
    (Kind::Half, DataType::Float16),
    (Kind::BFloat16, DataType::Bfloat16),
    (Kind::Float8e4m3fn, DataType::Float8E4M3Fn),
    (Kind::Float8e5m2, DataType::Float8E5M2),
    (Kind::Float8e4m3fnuz, DataType::Float8E4M3Fnuz),
    (Kind::Float8e5m2fnuz, DataType::Float8E5M2Fnuz),
    (Kind::Int64, DataType::Int64),
    (Kind::Int, DataType::Int32),
    (Kind::Int16, DataType::Int16),
    (Kind::Int8, DataType::Int8),
    (Kind::Uint8, DataType::Uint8),
    (Kind::Bool, DataType::Bool),
    (Kind::ComplexFloat, DataType::Complex64),
    (Kind::ComplexDouble, DataType::Complex128),
];

/// Every kind that tch has a name for, with elements that differ.
fn kinds() -> impl Iterator<Item = Case> {
    KINDS.into_iter().map(|(kind, dtype)| {
        let tensor = (counted(&[3, 4]) - 5).to_kind(Kind::Int64).to_kind(kind);
        let bytes = elements(&tensor);
        (dtype.name(), tensor, dtype, vec![3, 4], bytes)
    })
}

/// Kinds by bytes that are written out.
fn literals() -> Vec<Case> {
    let f32s = tch::Tensor::from_slice(&[1.0_f32, -2.0]);
    let one = |kind| tch::Tensor::from_slice(&[1.0_f32]).to_kind(kind);
    vec![
        ("f32", f32s, DataType::Float, vec![2], vec![0, 0, 128, 63, 0, 0, 0, 192]),
        ("f16", one(Kind::Half), DataType::Float16, vec![1], vec![0, 0x3c]),
        ("bf16", one(Kind::BFloat16), DataType::Bfloat16, vec![1], vec![0x80, 0x3f]),
        ("e4m3fn", one(Kind::Float8e4m3fn), DataType::Float8E4M3Fn, vec![1], vec![0x38]),
        ("e5m2", one(Kind::Float8e5m2), DataType::Float8E5M2, vec![1], vec![0x3c]),
        ("e4m3fnuz", one(Kind::Float8e4m3fnuz), DataType::Float8E4M3Fnuz, vec![1], vec![0x40]),
        ("e5m2fnuz", one(Kind::Float8e5m2fnuz), DataType::Float8E5M2Fnuz, vec![1], vec![0x40]),
        (
            "bool",
            tch::Tensor::from_slice(&[true, false, true]),
            DataType::Bool,
            vec![3],
            vec![1, 0, 1],
        ),
        (
            "i64",
            tch::Tensor::from_slice(&[-2_i64]),
            DataType::Int64,
            vec![1],
            (-2_i64).to_le_bytes().to_vec(),
        ),
    ]
}

/// Layouts of the numbers from 0 on.
fn layouts() -> Vec<Case> {
    let base = counted(&[4, 6]);
    let cube = counted(&[2, 3, 4]);
    let at = |r: usize, c: usize| r * 6 + c;
    let cases: Vec<(&str, tch::Tensor, Vec<i64>, Vec<u8>)> = vec![
        ("contiguous", base.shallow_clone(), vec![4, 6], floats(0..24)),
        ("scalar", tch::Tensor::from(7.0_f32), vec![], floats([7])),
        ("selected scalar", base.i((2, 3)), vec![], floats([15])),
        ("empty", tch::Tensor::zeros([0], FLOAT), vec![0], vec![]),
        ("empty in the middle", tch::Tensor::zeros([3, 0, 2], FLOAT), vec![3, 0, 2], vec![]),
        ("transposed", base.tr(), vec![6, 4], floats((0..24).map(|i| at(i % 4, i / 4)))),
        ("transposed twice", base.tr().tr(), vec![4, 6], floats(0..24)),
        ("rows", base.i(1..3), vec![2, 6], floats(6..18)),
        ("columns", base.i((.., 1..3)), vec![4, 2], floats((0..8).map(|i| at(i / 2, i % 2 + 1)))),
        ("steps", base.slice(0, 1, 4, 2), vec![2, 6], floats((6..12).chain(18..24))),
        ("flipped", base.flip([0]), vec![4, 6], floats((0..24).map(|i| at(3 - i / 6, i % 6)))),
        (
            "permuted",
            cube.permute([2, 0, 1]),
            vec![4, 2, 3],
            floats((0..24).map(|i| i % 3 * 4 + i / 3 % 2 * 12 + i / 6)),
        ),
        (
            "expanded",
            base.i(1).unsqueeze(0).expand([3, 6], false),
            vec![3, 6],
            floats((0..18).map(|i| 6 + i % 6)),
        ),
        ("parameter", base.copy().set_requires_grad(true), vec![4, 6], floats(0..24)),
        (
            "computed from a parameter",
            base.copy().set_requires_grad(true) * 2,
            vec![4, 6],
            floats((0..24).map(|i| 2 * i)),
        ),
        ("lazily cloned", base.internal_lazy_clone(), vec![4, 6], floats(0..24)),
        (
            "zeros without memory",
            tch::Tensor::internal_efficientzerotensor([3], FLOAT),
            vec![3],
            floats([0, 0, 0]),
        ),
    ];
    let typed = |(name, tensor, dims, bytes)| (name, tensor, DataType::Float, dims, bytes);
    cases.into_iter().map(typed).collect()
}

/// Complex tensors whose conjugation or sign is only noted.
fn lazy_signs() -> Vec<Case> {
    let plain = tch::Tensor::complex(&counted(&[2]), &(counted(&[2]) + 3));
    let conjugated: Vec<u8> =
        [0.0_f32, -3.0, 1.0, -4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let negated = [-3.0_f32, -4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    assert!(plain.conj().is_conj() && plain.conj().imag().is_neg());
    vec![
        ("conjugated", plain.conj(), DataType::Complex64, vec![2], conjugated),
        ("imaginary part of it", plain.conj().imag(), DataType::Float, vec![2], negated),
        (
            "one imaginary part, contiguous as it is",
            plain.conj().imag().i(0..1),
            DataType::Float,
            vec![1],
            (-3.0_f32).to_le_bytes().to_vec(),
        ),
        ("conjugated twice", plain.conj().conj(), DataType::Complex64, vec![2], elements(&plain)),
    ]
}

fn cases() -> Vec<Case> {
    kinds().chain(literals()).chain(layouts()).chain(lazy_signs()).collect()
}

/// A container of `initializers`, named `w0`, `w1`, ...
fn container(initializers: Vec<Initializer>) -> Container {
    let mut graph = GraphProto::new("g");
    for (i, initializer) in initializers.iter().enumerate() {
        let (name, handle) = (format!("w{i}"), format!("#w{i}"));
        let (dtype, dims) = (initializer.dtype().number(), initializer.dims());
        graph.initializer.push(TensorProto::external(name, dtype, dims, &handle));
    }
    let mut container = Container::new(model(graph));
    for (i, initializer) in initializers.into_iter().enumerate() {
        container.insert(&format!("#w{i}"), initializer).unwrap();
    }
    container
}

/// What the graph's initializer `i` holds, inside or outside of the message.
fn weight(container: &Container, i: usize) -> Initializer {
    let proto = &container.model().graph.as_ref().unwrap().initializer[i];
    match ExternalData::parse(proto) {
        Ok(entry) => container.get(&entry.location).unwrap().clone(),
        Err(_) => Initializer::try_from(proto.clone()).unwrap(),
    }
}

#[test]
fn every_tensor_has_the_bytes_that_onnx_wants() {
    for (name, tensor, dtype, dims, expected) in cases() {
        let initializer = initializer(&tensor);
        assert_eq!((initializer.dtype(), initializer.dims()), (dtype, &dims[..]), "{name}");
        assert_eq!(initializer.byte_len(), expected.len() as u64, "{name}");
        assert_eq!(bytes(&initializer), expected, "{name}");
        assert_eq!(initializer.to_buffer().unwrap(), Buffer::from(expected.clone()), "{name}");
        let tensor = Tensor::new(dtype, dims, Buffer::from(expected)).unwrap();
        assert_eq!(initializer.to_tensor().unwrap(), tensor, "{name}");
        assert!(initializer.as_buffer().is_none(), "{name}: memory that others write to was lent");
    }
}

#[test]
fn what_is_saved_is_loaded() {
    for files in [WeightFiles::Packed, WeightFiles::PerTensor, WeightFiles::Embedded] {
        let all = cases();
        let container = container(all.iter().map(|(_, tensor, ..)| initializer(tensor)).collect());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        container.save(&path, SaveOptions::new().weight_files(files)).unwrap();
        for choice in both_choices() {
            let loaded = Container::load(&path, choice).unwrap();
            for (i, (name, _, dtype, dims, expected)) in all.iter().enumerate() {
                let weight = weight(&loaded, i);
                assert_eq!((weight.dtype(), weight.dims()), (*dtype, &dims[..]), "{name}");
                assert_eq!(bytes(&weight), *expected, "{name}");
            }
        }
    }
}

#[test]
fn large_tensors_are_written_in_shares() {
    let big = |len: i64| {
        let counted = tch::Tensor::arange(len, (Kind::Int, Device::Cpu));
        counted.remainder(251).to_kind(Kind::Uint8)
    };
    // The end of the first lies in a share of its own, and is short.
    let (first, second) = (big((32 << 20) + 100), big(60 << 20).reshape([3, 20 << 20]));
    let small = second.i((1, 5..70_005)).copy();
    let smaller = small.i(7..16).copy();
    let expected = [&first, &second, &small, &smaller].map(elements);
    let weights = [&first, &second, &small, &smaller].map(initializer).to_vec();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(weights).save(&path, true).unwrap();
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    for (i, expected) in expected.iter().enumerate() {
        let weight = loaded.get(&format!("#w{i}")).unwrap().to_buffer().unwrap();
        assert!(*weight == **expected, "w{i} differs");
    }
}

#[test]
fn tensors_on_one_storage_are_written_once() {
    let base = counted(&[4, 64]);
    let copied = base.copy();
    let cases: Vec<(&str, Vec<tch::Tensor>, u64)> = vec![
        ("one tensor twice", vec![base.shallow_clone(), base.shallow_clone()], 1024),
        ("a parameter and its detached value", vec![base.copy().set_requires_grad(true)], 1024),
        ("reshaped", vec![base.shallow_clone(), base.view([256])], 1024),
        ("rows inside", vec![base.i(1..2), base.shallow_clone(), base.i(2..4)], 1024),
        ("equal but apart", vec![base.shallow_clone(), copied], 2048),
        ("transposed copies", vec![base.tr(), base.tr()], 2048),
    ];
    for (name, mut tensors, expected) in cases {
        if tensors.len() == 1 {
            tensors.push(tensors[0].detach());
        }
        let container = container(tensors.iter().map(initializer).collect());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, true).unwrap();
        assert_eq!(saved.files[0].bytes, expected, "{name}");
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        for (i, tensor) in tensors.iter().enumerate() {
            assert_eq!(bytes(&weight(&loaded, i)), elements(&tensor.detach()), "{name}");
        }
    }
    // A clone of one initializer shares the copy that was made of a transposed tensor.
    let transposed = initializer(&base.tr());
    let container = container(vec![transposed.clone(), transposed]);
    assert_eq!(container.dry_run("m.onnx", true).unwrap().files[0].bytes, 1024);
}

#[test]
fn what_cannot_be_an_initializer_is_refused() {
    let base = counted(&[4, 6]);
    let lengths = tch::Tensor::from_slice(&[6_i64, 3, 5, 1]).reshape([4, 1]);
    let nested = tch::Tensor::internal_nested_from_padded(&base, &lengths, false);
    let cases: Vec<(tch::Tensor, ErrorKind, &str)> = vec![
        (tch::Tensor::new(), ErrorKind::Unsupported, "undefined"),
        (base.to_sparse(None, None::<i64>, None), ErrorKind::Unsupported, "to_dense"),
        (base.to_sparse_csr(None::<i64>), ErrorKind::Unsupported, "to_dense"),
        (base.to_mkldnn(), ErrorKind::Unsupported, "to_dense"),
        (nested, ErrorKind::Unsupported, "nested"),
        (base.quantize_per_tensor(0.1, 0, Kind::QUInt8), ErrorKind::DataType, "int_repr"),
        (base.quantize_per_tensor(0.1, 0, Kind::QInt32), ErrorKind::DataType, "int_repr"),
        (base.to_kind(Kind::ComplexHalf), ErrorKind::DataType, "view_as_real"),
    ];
    for (tensor, kind, part) in cases {
        let error = Initializer::try_from(&tensor).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        let mut container = Container::default();
        let error = container.insert("#w", tensor).unwrap_err();
        assert_eq!(error.tensor(), Some("#w"));
    }
}

#[test]
fn showing_an_initializer_reads_no_element() {
    let tensor = counted(&[2]);
    let lazy = tensor.internal_lazy_clone();
    let weight = initializer(&lazy);
    let shown = format!("{weight:?}");
    assert_eq!(shown, "Initializer { dtype: Float, dims: [2], .. }");
    let shown = format!("{:?}", TorchInitializer::new(&lazy).unwrap());
    assert_eq!(
        shown,
        "TorchInitializer { dtype: Float, dims: [2], memory: Memory { len: 8, .. } }"
    );
    // Two lazy clones still share what neither has asked to write to.
    let both = container(vec![weight, initializer(&tensor)]);
    assert_eq!(both.dry_run("m.onnx", true).unwrap().files[0].bytes, 8);
}

#[test]
fn reads_stay_inside() {
    let weight = initializer(&tch::Tensor::from_slice(&[1_u8, 2, 3]));
    let mut one = [0];
    weight.read_at(2, &mut one).unwrap();
    assert_eq!(one, [3]);
    weight.read_at(3, &mut []).unwrap();
    for offset in [3, 4, u64::MAX] {
        let error = weight.read_at(offset, &mut one).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::OutOfBounds, Some(offset)));
    }
}

#[test]
fn a_storage_that_others_change_is_read_where_it_is() {
    let mut original = counted(&[1000]);
    let weight = initializer(&original);
    let before = original.data_ptr();

    // A write shows: nothing was copied.
    let _ = original.i(0..1).fill_(7.0);
    assert_eq!(bytes(&weight)[..4], 7.0_f32.to_le_bytes());

    // Growing moves the storage and frees what was there.
    let _ = original.resize_([50_000_000]);
    assert_ne!(original.data_ptr(), before, "the storage did not move: the test shows nothing");
    assert_eq!(bytes(&weight)[4..], floats(1..1000)[..]);

    // Another storage in the original handle leaves this one alone.
    let weight = initializer(&original.i(..1000));
    let other = tch::Tensor::zeros([3], FLOAT);
    original.set_data(&other);
    assert_eq!(bytes(&weight)[4..], floats(1..1000)[..]);
    let mut third = counted(&[8]);
    let weight = initializer(&third);
    let _ = third.set_();
    drop(third);
    assert_eq!(bytes(&weight), floats(0..8));
}

#[test]
fn a_tensor_lives_as_long_as_its_initializer() {
    let weight = initializer(&counted(&[1 << 20]));
    let again = weight.clone();
    drop(weight);
    let read = std::thread::spawn(move || bytes(&again)).join().unwrap();
    assert!(read == floats(0..1 << 20));
}

#[test]
fn containers_with_tensors_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<TorchInitializer>();
    crosses::<Container>();
}

#[test]
fn many_threads_read_and_drop_one_tensor() {
    for round in 0..50 {
        let tensor = counted(&[4096]);
        let weight = initializer(&tensor);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let weight = weight.clone();
                scope.spawn(move || {
                    for i in 0..100 {
                        let mut out = [0; 64];
                        let element = (round * 7 + thread * 31 + i) % 4080;
                        weight.read_at(element as u64 * 4, &mut out).unwrap();
                        assert_eq!(out[..], floats(element..element + 16)[..]);
                    }
                });
            }
            drop(weight);
            drop(tensor);
        });
    }
}

#[test]
fn packed_bytes_stand_for_types_that_torch_has_not() {
    let raw = tch::Tensor::from_slice(&[0x21_u8, 0x43, 0x05]);
    let cases: [(DataType, Vec<i64>); 6] = [
        (DataType::Int4, vec![5]),
        (DataType::Uint4, vec![2, 3]),
        (DataType::Float4E2M1, vec![6]),
        (DataType::Uint2, vec![3, 4]),
        (DataType::Float6E3M2, vec![4]),
        (DataType::Float8E8M0, vec![3]),
    ];
    for (dtype, dims) in cases {
        let weight = TorchInitializer::packed(&raw, dtype, dims.clone()).unwrap();
        assert_eq!((weight.dtype(), weight.dims()), (dtype, &dims[..]));
        let weight = Initializer::from(weight);
        assert_eq!(bytes(&weight), [0x21, 0x43, 0x05]);
        assert_eq!(elements(&weight.to_tch_bytes().unwrap()), [0x21, 0x43, 0x05]);
        assert_eq!(weight.to_tch().unwrap_err().kind(), ErrorKind::DataType);
    }
    let refused = |tensor: &tch::Tensor, dtype, dims: &[i64]| {
        TorchInitializer::packed(tensor, dtype, dims).unwrap_err().kind()
    };
    assert_eq!(refused(&raw, DataType::Int4, &[7]), ErrorKind::Shape);
    assert_eq!(refused(&raw, DataType::Int4, &[-1]), ErrorKind::Shape);
    assert_eq!(refused(&raw, DataType::String, &[3]), ErrorKind::DataType);
    assert_eq!(refused(&raw.to_kind(Kind::Int8), DataType::Int4, &[6]), ErrorKind::DataType);
}

#[test]
fn tensors_come_back_by_copy() {
    for (name, tensor, dtype, dims, expected) in cases() {
        let sources = [
            initializer(&tensor),
            Tensor::new(dtype, dims.clone(), Buffer::from(expected.clone())).unwrap().into(),
        ];
        for source in sources {
            let mut back = source.to_tch().unwrap();
            assert_eq!((back.kind(), back.size()), (tensor.kind(), dims.clone()), "{name}");
            assert_eq!(elements(&back), expected, "{name}");
            let _ = back.zero_();
            assert_eq!(bytes(&source), expected, "{name}: a write to the copy shows");
        }
    }
    let large = counted(&[700_001]);
    assert!(initializer(&large).to_tch().unwrap() == large, "more than one chunk");
}

#[test]
fn what_torch_cannot_hold_does_not_come_back() {
    let none = || Buffer::default();
    let tensors = [
        Tensor::from_strings([1], vec![Buffer::from(&b"a"[..])]).unwrap(),
        Tensor::new(DataType::Uint16, [0], none()).unwrap(),
        Tensor::new(DataType::Int4, [0], none()).unwrap(),
        Tensor::new(DataType::Bool, [2], Buffer::from(vec![1_u8, 2])).unwrap(),
    ];
    for tensor in tensors {
        let error = Initializer::from(tensor).to_tch().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataType, "{error}");
    }
    // libtorch would end the process.
    let huge = Tensor::new(DataType::Float, [0, i64::MAX, 1], none()).unwrap();
    assert_eq!(Initializer::from(huge).to_tch().unwrap_err().kind(), ErrorKind::Shape);
    let bytes = Tensor::new(DataType::Uint16, [2], Buffer::from(vec![1_u8, 2, 3, 4])).unwrap();
    assert_eq!(elements(&Initializer::from(bytes).to_tch_bytes().unwrap()), [1, 2, 3, 4]);
}

/// Saves `cases`, and loads them mapped.
fn mapped(folder: &std::path::Path, weights: Vec<Initializer>) -> Container {
    let path = folder.join("m.onnx");
    container(weights).save(&path, true).unwrap();
    Container::load(&path, both_choices()[0]).unwrap()
}

fn map(weight: &Initializer) -> onnx_container::Result<tch::Tensor> {
    // SAFETY: the tests replace or remove mapped files, but never truncate or write to one, and use
    // no tensor that was resized.
    #[allow(unsafe_code)]
    unsafe {
        weight.map_tch()
    }
}

#[test]
fn tensors_come_back_over_a_map_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let all = cases();
    let loaded = mapped(folder.path(), all.iter().map(|(_, t, ..)| initializer(t)).collect());
    let file = folder.path().join("m.onnx.data");
    let before = std::fs::read(&file).unwrap();
    let mut kept = Vec::new();
    for (i, (name, tensor, _, dims, expected)) in all.iter().enumerate() {
        let Some(weight) = loaded.get(&format!("#w{i}")) else { continue };
        let mut first = map(weight).unwrap();
        let second = map(weight).unwrap();
        assert_eq!((first.kind(), first.size()), (tensor.kind(), dims.clone()), "{name}");
        assert_eq!(elements(&first), *expected, "{name}");
        if !expected.is_empty() {
            assert_ne!(first.data_ptr(), second.data_ptr(), "{name}");
        }
        let _ = first.fill_(1);
        assert_eq!(elements(&second), *expected, "{name}: a write shows in another map");
        assert_eq!(bytes(weight), *expected, "{name}: a write shows in the container");
        kept.push((second, expected));
    }
    assert!(kept.len() > 30);
    assert!(std::fs::read(&file).unwrap() == before, "a write reached the file");
    // The maps outlive the container and the file's name, on any thread.
    drop(loaded);
    std::fs::remove_file(&file).unwrap();
    let views: Vec<_> = kept.into_iter().map(|(tensor, bytes)| (tensor.view(-1), bytes)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (view, expected) in views {
                assert_eq!(elements(&view), *expected);
            }
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_map_goes_with_its_last_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = mapped(folder.path(), vec![initializer(&counted(&[100_000]))]);
    let name = folder.path().join("m.onnx.data");
    let maps = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.ends_with(name.to_str().unwrap())).count()
    };
    assert_eq!(maps(), 1, "the container's own");
    let tensor = map(loaded.get("#w0").unwrap()).unwrap();
    let view = tensor.i(5..9);
    assert_eq!(maps(), 2);
    drop((loaded, tensor));
    assert_eq!(maps(), 1);
    assert_eq!(elements(&view), floats(5..9));
    drop(view);
    assert_eq!(maps(), 0);
}

#[test]
fn only_what_lies_in_that_file_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx.data");
    let loaded = mapped(folder.path(), vec![initializer(&counted(&[100]))]);
    let weight = loaded.get("#w0").unwrap();
    assert!(map(weight).is_ok());

    for other in [initializer(&counted(&[100])), weight.to_tensor().unwrap().into()] {
        // The second shares the mapped bytes, the first has none.
        assert_eq!(map(&other).is_ok(), other.as_buffer().is_some());
    }
    let read = Container::load(folder.path().join("m.onnx"), MmapChoice::never()).unwrap();
    let error = map(read.get("#w0").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

    // A slice at an odd place of the file.
    let odd = weight.as_buffer().unwrap().slice(1..9).unwrap();
    let odd = Initializer::from(Tensor::new(DataType::Float, [2], odd).unwrap());
    assert_eq!(map(&odd).unwrap_err().kind(), ErrorKind::Unsupported);
    let odd = weight.as_buffer().unwrap().slice(4..12).unwrap();
    let odd = Initializer::from(Tensor::new(DataType::Float, [2], odd).unwrap());
    assert_eq!(elements(&map(&odd).unwrap()), floats([1, 2]));

    // Another file of that name and length.
    let same = std::fs::read(&path).unwrap();
    std::fs::rename(&path, folder.path().join("away")).unwrap();
    let error = map(weight).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::MissingFile, Some(&*path)));
    std::fs::write(&path, same).unwrap();
    let error = map(weight).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
    assert_eq!(bytes(weight), floats(0..100), "the container has the old file");
}

#[test]
fn a_map_is_not_outgrown() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = mapped(folder.path(), vec![initializer(&counted(&[100]))]);
    let mut tensor = map(loaded.get("#w0").unwrap()).unwrap();
    assert!(tensor.f_resize_([1 << 20]).is_err());
    // libtorch refuses only after it has changed the size. That tensor is not read here.
    assert_eq!(tensor.size(), [1 << 20], "libtorch was mended: `map_tch` may promise more");
    assert_eq!(Initializer::try_from(&tensor).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn bytes_that_are_no_bools_do_not_come_back() {
    // torch has such bytes by `view`; they are written as they are, as from `raw_data`.
    let odd = initializer(&tch::Tensor::from_slice(&[1_u8, 2]).view_dtype(Kind::Bool));
    assert_eq!((odd.dtype(), bytes(&odd)), (DataType::Bool, vec![1, 2]));
    assert_eq!(odd.to_tch().unwrap_err().kind(), ErrorKind::DataType);
    let folder = tempfile::tempdir().unwrap();
    let loaded = mapped(folder.path(), vec![odd]);
    assert_eq!(map(loaded.get("#w0").unwrap()).unwrap_err().kind(), ErrorKind::DataType);
}

#[test]
#[cfg(unix)]
fn a_pipe_in_the_place_of_the_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx.data");
    let loaded = mapped(folder.path(), vec![initializer(&counted(&[100]))]);
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let weight = loaded.get("#w0").unwrap().clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(map(&weight).map(|_| ())));
    let answer = receiver.recv_timeout(Duration::from_secs(10));
    let error = answer.expect("waits for a writer").unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
}

#[test]
fn variables_come_sorted_by_name() {
    let store = tch::nn::VarStore::new(Device::Cpu);
    let root = store.root();
    let _ = tch::nn::linear(&root / "fc2", 3, 2, Default::default());
    let _ = tch::nn::linear(&root / "fc1", 4, 3, Default::default());
    let _ = tch::nn::batch_norm1d(&root / "bn", 3, Default::default());
    let named = torch::variables(&store).unwrap();
    let names: Vec<_> = named.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
        "bn.weight",
        "fc1.bias",
        "fc1.weight",
        "fc2.bias",
        "fc2.weight",
    ];
    assert_eq!(names, expected);
    for (name, weight) in &named {
        let variable = &store.variables()[name];
        assert_eq!(bytes(weight), elements(&variable.detach()), "{name}");
    }
    let _ = root.zeros("half", &[2]).internal_cast_half(false);
    let bad =
        store.root().add("bad", tch::Tensor::zeros([1], (Kind::ComplexHalf, Device::Cpu)), false);
    assert!(bad.defined());
    let error = torch::variables(&store).unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::DataType, Some("bad")));
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch").join(name)
}

fn names(named: &[(String, Initializer)]) -> Vec<&str> {
    named.iter().map(|(name, _)| name.as_str()).collect()
}

const PARAMETERS: [&str; 11] = [
    "bn.bias",
    "bn.weight",
    "embed.weight",
    "fc1.bias",
    "fc1.weight",
    "fc2.bias",
    "fc2.weight",
    "head.weight",
    "mix.weight",
    "norm.bias",
    "norm.weight",
];

#[test]
fn a_script_tells_its_parameters_and_buffers() {
    let module = tch::CModule::load(data("module.pt")).unwrap();
    let parameters = torch::named_parameters(&module).unwrap();
    assert_eq!(names(&parameters), PARAMETERS);

    let all = torch::script_file(data("module.pt")).unwrap();
    let mut expected = PARAMETERS.to_vec();
    expected.extend(["bn.num_batches_tracked", "bn.running_mean", "bn.running_var"]);
    expected.sort_unstable();
    assert_eq!(names(&all), expected);
    for (name, weight) in &parameters {
        let (_, same) = all.iter().find(|(other, _)| other == name).unwrap();
        assert_eq!(weight.to_tensor().unwrap(), same.to_tensor().unwrap(), "{name}");
    }
    // The output layer of this module is its embedding.
    let tied: Vec<_> = all.into_iter().map(|(_, weight)| weight).collect();
    let len: u64 = tied.iter().map(Initializer::byte_len).sum();
    let embedding = 24 * 80 * 4;
    let options = SaveOptions::from(true).alignment(Alignment::DENSE);
    let saved = container(tied).dry_run("m.onnx", options).unwrap();
    assert_eq!(saved.files[0].bytes, len - embedding);
}

#[test]
fn types_that_tch_has_no_name_for_are_read() {
    let expected: Vec<u8> = (1..=48).collect();
    let cases = [
        ("float4_e2m1fn_x2", DataType::Float4E2M1, [2, 48]),
        ("float8_e8m0fnu", DataType::Float8E8M0, [2, 24]),
        ("uint16", DataType::Uint16, [2, 12]),
        ("uint32", DataType::Uint32, [2, 6]),
        ("uint64", DataType::Uint64, [2, 3]),
    ];
    let found = torch::script_file(data("types.pt")).unwrap();
    assert_eq!(names(&found), cases.map(|(name, ..)| name));
    for ((name, dtype, dims), (_, weight)) in cases.into_iter().zip(&found) {
        assert_eq!((weight.dtype(), weight.dims()), (dtype, &dims[..]), "{name}");
        assert_eq!(bytes(weight), expected, "{name}");
        assert_eq!(weight.to_tch().unwrap_err().kind(), ErrorKind::DataType, "{name}");
        assert_eq!(elements(&weight.to_tch_bytes().unwrap()), expected, "{name}");
    }
}

#[test]
fn bytes_fill_types_that_torch_has_not() {
    let raw = tch::Tensor::from_slice(&[0x21_u8, 0x43, 0x05]);
    let place = TensorProto::external("w", DataType::Int4.number(), [5], "#w");
    let mut container = Container::new(model(graph(vec![place], vec![])));
    let filled = container.fill([("w".to_owned(), initializer(&raw))], FillOptions::new()).unwrap();
    assert_eq!((filled.filled, filled.bytes), (1, 3));
    let weight = container.get("#w").unwrap();
    assert!(weight.as_buffer().is_none(), "the bytes were copied");
    assert_eq!(weight.to_tensor().unwrap().unpack().unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn what_is_no_script_is_refused() {
    let cases = [("structure.onnx", ErrorKind::Unsupported), ("gone.pt", ErrorKind::MissingFile)];
    for (name, kind) in cases {
        let error = torch::script_file(data(name)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (kind, Some(&*data(name))), "{error}");
        assert!(error.to_string().lines().count() == 1, "{error}");
    }
}

/// Opening a FIFO waits until somebody writes to it.
#[cfg(unix)]
#[test]
fn a_script_is_a_regular_file() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("m.pt");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [fifo.as_path(), folder.path(), std::path::Path::new("/dev/null")] {
        let error = torch::script_file(path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::UnsafePath, Some(path)), "{error}");
    }
}

/// A link is another name of the same bytes.
#[test]
fn a_file_that_got_a_hard_link_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut container = Container::new(model(graph(
        vec![TensorProto::external("w", DataType::Float.number(), [4], "#w")],
        vec![],
    )));
    container.insert("#w", ndarray::array![1_f32, 2.0, 3.0, 4.0]).unwrap();
    container.save(&path, true).unwrap();
    let loaded = Container::load(&path, both_choices()[0]).unwrap();
    std::fs::hard_link(folder.path().join("m.onnx.data"), folder.path().join("link")).unwrap();
    let (_, weight) = loaded.iter().next().unwrap();
    // SAFETY: nobody writes to the file or truncates it.
    #[allow(unsafe_code)]
    let tensor = unsafe { weight.map_tch() }.unwrap();
    assert_eq!(elements(&tensor)[..4], 1_f32.to_le_bytes());
}

#[test]
fn a_script_fills_the_structure_that_the_exporter_wrote() {
    let weights = torch::script_file(data("module.pt")).unwrap();
    let structure = LoadOptions::new().weights(false);
    let mut plain = Container::load(data("structure.onnx"), structure.clone()).unwrap();
    fill_and_save(&mut plain, &weights);

    // The exporter transposed one weight and gave it a name of its own. Nothing passes over that.
    let mut container = Container::load(data("optimized.onnx"), structure).unwrap();
    let error = container.fill(weights.clone(), FillOptions::new()).unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingHandle, Some("val_1")));
    let error = container.fill(weights.clone(), FillOptions::new().partial(true).strict(true));
    let error = error.unwrap_err().to_string();
    for left_over in ["bn.num_batches_tracked", "embed.weight", "mix.weight"] {
        assert!(error.contains(left_over), "{left_over} is not named: {error}");
    }

    let mut weights = weights;
    let mix = weights.iter_mut().find(|(name, _)| name == "mix.weight").unwrap();
    *mix = ("val_1".into(), initializer(&mix.1.to_tch().unwrap().tr()));
    fill_and_save(&mut container, &weights);
}

/// Fills `container` with weights that are left under their names, saves it and looks at every
/// tensor.
fn fill_and_save(container: &mut Container, weights: &[(String, Initializer)]) {
    let options = FillOptions::new()
        .rename("embed.weight", "head.weight") // tied: the same bytes twice
        .ignore("bn.num_batches_tracked")
        .strict(true);
    let filled = container.fill(weights.iter().cloned(), options).unwrap();
    assert_eq!((filled.filled, filled.unused.len(), filled.missing.len()), (12, 0, 0));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = container.save(&path, true).unwrap();
    assert_eq!(saved.unused, []);
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    let graph = loaded.model().graph.as_ref().unwrap();
    let mut seen = 0;
    for (i, proto) in graph.initializer.iter().enumerate() {
        let name = proto.name.as_ref().unwrap().to_str().unwrap();
        if let Some((_, given)) = weights.iter().find(|(other, _)| other == name) {
            assert_eq!(weight(&loaded, i).to_tensor().unwrap(), given.to_tensor().unwrap());
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
}

/// Anonymous memory of this process in bytes, as the kernel counts it.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or_default() * 1024
}

/// How much anonymous memory `work` adds at its peak.
fn peak_of(work: impl FnOnce()) -> u64 {
    let (before, done) = (anonymous(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = before;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(anonymous());
                std::thread::sleep(Duration::from_millis(1));
            }
            peak - before
        });
        work();
        done.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    })
}

#[test]
#[ignore = "measures memory; scripts/test.sh runs it alone"]
fn saving_a_tensor_does_not_copy_it() {
    assert!(anonymous() > 0, "SKIPPED: there is no /proc here");
    const LEN: i64 = 256 << 20;
    let tensor = tch::Tensor::ones([LEN / 1024, 1024], (Kind::Uint8, Device::Cpu));
    let container = container(vec![initializer(&tensor)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saving =
        peak_of(|| drop(container.save(&path, SaveOptions::from(true).sync(false)).unwrap()));
    let copying = peak_of(|| drop(container.get("#w0").unwrap().to_buffer().unwrap()));
    println!("saving adds {} KiB, a copy {} KiB", saving >> 10, copying >> 10);
    assert!(copying > LEN as u64 / 2, "the measure does not see a copy");
    assert!(saving < 16 << 20, "saving adds {} MiB", saving >> 20);
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn onnxruntime_computes_what_tch_computes() {
    run_driver("torch_export.py");
}
