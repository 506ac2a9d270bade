//! safetensors files: what is read, what is refused, what is written, and the way there and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use onnx_container::buffer::Ownership;
use onnx_container::check::check_model;
use onnx_container::edit::{ExternalizeOptions, FillOptions};
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{AttributeProto, Message, ModelProto, TensorProto};
use onnx_container::safetensors::{ExportOptions, Weights, load, load_bytes};
use onnx_container::{
    Alignment, Buffer, Container, DataType, ErrorKind, LoadOptions, MmapChoice, SaveOptions,
    Tensor, WeightFiles, traversal,
};
use proptest::prelude::*;
use safetensors::SafeTensors;

use crate::support::{
    IS_64_BIT, all_bytes, assert_same, both_choices, contents, floats, graph, int64s, model, node,
};

/// A file of this header and data.
fn file(json: &str, data: &[u8]) -> Vec<u8> {
    let length = u64::try_from(json.len()).unwrap().to_le_bytes();
    [&length, json.as_bytes(), data].concat()
}

#[test]
fn options_of_a_load_apply_to_safetensors_files() {
    // The large tensor begins at an odd address of the file, the small one is below the threshold.
    let json = r#"{"small":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "large":{"dtype":"U8","shape":[5000],"data_offsets":[1,5001]}}"#;
    let json = format!("{json:<width$}", width = json.len().next_multiple_of(8));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.safetensors"), file(&json, &[7; 5001])).unwrap();
    let index = r#"{"weight_map":{"small":"w.safetensors","large":"w.safetensors"}}"#;
    fs::write(folder.path().join("w.safetensors.index.json"), index).unwrap();
    let aligned = Alignment::new(64).unwrap();
    // Whether the small and the large tensor are copied.
    let cases = [
        (LoadOptions::new(), Some([false, false])),
        (LoadOptions::new().no_copy(true), Some([false, false])),
        (LoadOptions::new().no_copy(false), Some([true, true])),
        (LoadOptions::new().alignment(aligned), Some([false, true])),
        (LoadOptions::new().alignment(aligned).raw_data_threshold(1), Some([true, true])),
        (LoadOptions::new().alignment(aligned).no_copy(true), None),
    ];
    for (name, mmap) in ["w.safetensors", "w.safetensors.index.json"]
        .into_iter()
        .flat_map(|name| both_choices().map(|mmap| (name, mmap)))
    {
        for (options, copied) in cases.clone() {
            let options = options.mmap(mmap);
            let what = format!("{name}, {options:?}");
            let path = folder.path().join(name);
            let tensors = [("small", 1), ("large", 5000)];
            let external = tensors.map(|(name, len)| {
                TensorProto::external(name, TensorProto::UINT8, [len], format!("#{name}"))
            });
            let structure = ModelProto::new(graph(external.to_vec(), vec![]));
            let mut container = Container::new(structure);
            let filled =
                container.attach_safetensors_with(&path, options.clone(), FillOptions::new());
            let weights = load(&path, options);
            let Some(copied) = copied else {
                assert_eq!(weights.unwrap_err().kind(), ErrorKind::Unsupported, "{what}");
                assert_eq!(filled.unwrap_err().kind(), ErrorKind::Unsupported, "{what}");
                continue;
            };
            filled.unwrap();
            let weights = weights.unwrap();
            for ((name, _), copied) in tensors.into_iter().zip(copied) {
                let buffer = weights.get(name).unwrap().buffer().unwrap();
                let attached = container.get(name).unwrap().to_buffer().unwrap();
                for buffer in [buffer, &attached] {
                    assert!(buffer.iter().all(|byte| *byte == 7), "{what}");
                    let is_aligned = buffer.as_ptr().addr().is_multiple_of(64);
                    assert!(is_aligned || !copied, "{what}: {name}");
                }
                let of_the_file = buffer.file_range().is_some();
                assert_eq!(of_the_file, !copied && mmap != MmapChoice::never(), "{what}: {name}");
            }
            // A copy is freed with its tensor; a slice shares its file with the others.
            let [_small, large] =
                tensors.map(|(name, _)| weights.get(name).unwrap().buffer().unwrap().clone());
            drop(weights);
            let expected = if copied[1] { Ownership::Owned } else { Ownership::Shared };
            assert_eq!(large.ownership(), expected, "{what}");
        }
    }
}

#[test]
fn files_are_read() {
    let plain = r#"{"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},
        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"__metadata__":{"format":"np"}}"#;
    let weights = load_bytes(file(plain, b"\x00\x00\x80\x3f\x01\x02")).unwrap();
    assert_eq!(weights.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(weights.get("a").unwrap().as_bytes(), Some(&[0, 0, 0x80, 0x3f][..]));
    assert_eq!(
        (weights.get("a").unwrap().dims(), weights.get("b").unwrap().dims()),
        (&[][..], &[2][..])
    );
    assert_eq!(weights.metadata()["format"], "np");

    let cases: &[(&str, &[u8], usize)] = &[
        ("{}", b"", 0),
        ("{}      ", b"", 0),
        (r#"{"__metadata__":null}"#, b"", 0),
        (r#"{"__metadata__":{}}"#, b"", 0),
        // Empty tensors lie anywhere between others.
        (
            r#"{"e":{"dtype":"F32","shape":[0,3],"data_offsets":[1,1]},
                "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                "b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
            b"xy",
            3,
        ),
        // A key that the format does not know, however deep.
        (r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[[{}]]}}"#, b"x", 1),
        // An escape and a name that looks like a path.
        (r#"{"\u0061/../b":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#, b"x", 1),
    ];
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let deep = format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{deep}}}}}"#);
    let deep = (deep.as_str(), &b"x"[..], 1);
    for (json, data, count) in cases.iter().chain([&deep]) {
        let weights = load_bytes(file(json, data)).unwrap_or_else(|e| panic!("{json}: {e}"));
        assert_eq!((weights.len(), weights.is_empty()), (*count, *count == 0), "{json}");
    }
}

#[test]
fn hostile_headers_are_refused() {
    let one = |info: &str| format!(r#"{{"w":{{{info}}}}}"#);
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[2],"data_offsets":{b}}}}}"#
        )
    };
    let deep = format!(r#"{{"w":{}"#, "[".repeat(100_000));
    let many_dims =
        format!(r#""dtype":"U8","shape":[{}1],"data_offsets":[0,0]"#, "1,".repeat(999_999));
    let many_dims = one(&many_dims);
    let long_name = format!(r#"{{"{}":1}}"#, "n".repeat(1 << 20));
    let cases: Vec<(String, &[u8], ErrorKind, &str)> = vec![
        (String::new(), b"", ErrorKind::Decode, "does not begin with `{`"),
        (" {}".into(), b"", ErrorKind::Decode, "does not begin with `{`"),
        ("[]".into(), b"", ErrorKind::Decode, "does not begin with `{`"),
        ("{".into(), b"", ErrorKind::Decode, "EOF"),
        ("{}x".into(), b"", ErrorKind::Decode, "trailing characters"),
        ("{}\0\0".into(), b"", ErrorKind::Decode, "trailing characters"),
        (r#"{"w":1}"#.into(), b"", ErrorKind::Decode, "tensor `w`"),
        (r#"{"w":null}"#.into(), b"", ErrorKind::Decode, "tensor `w`"),
        (r#"{"w":{}}"#.into(), b"", ErrorKind::Decode, "missing field"),
        (one(r#""dtype":"F32","shape":[1]"#), b"1234", ErrorKind::Decode, "missing field"),
        (one(r#""dtype":"F31","shape":[1],"data_offsets":[0,4]"#), b"1234", ErrorKind::Decode, "F31"),
        (one(r#""dtype":"U8","shape":[-1],"data_offsets":[0,1]"#), b"1", ErrorKind::Decode, "-1"),
        (one(r#""dtype":"U8","shape":[1.5],"data_offsets":[0,1]"#), b"1", ErrorKind::Decode, "1.5"),
        (one(r#""dtype":"U8","shape":[1],"data_offsets":[-1,0]"#), b"1", ErrorKind::Decode, "-1"),
        (one(r#""dtype":"U8","shape":[1],"data_offsets":[0]"#), b"1", ErrorKind::Decode, "length 1"),
        (
            one(r#""dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]"#),
            b"1",
            ErrorKind::Decode,
            "tensor `w`",
        ),
        (one(r#""dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]"#), b"1", ErrorKind::Decode, "duplicate field"),
        (one(r#""dtype":"U8","shape":[2],"data_offsets":[1,0]"#), b"1", ErrorKind::OutOfBounds, "end before they start"),
        (one(r#""dtype":"F32","shape":[1],"data_offsets":[0,5]"#), b"12345", ErrorKind::Shape, "needs 4 bytes"),
        (one(r#""dtype":"F4","shape":[3],"data_offsets":[0,2]"#), b"12", ErrorKind::Shape, "byte boundary"),
        (
            one(r#""dtype":"U8","shape":[9223372036854775807,2],"data_offsets":[0,1]"#),
            b"1",
            ErrorKind::Shape,
            "2^63",
        ),
        (
            one(r#""dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]"#),
            b"1",
            ErrorKind::Shape,
            "63 bits",
        ),
        (
            one(r#""dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]"#),
            b"",
            ErrorKind::Shape,
            "2^63",
        ),
        (one(r#""dtype":"U8","shape":[2],"data_offsets":[0,2]"#), b"1", ErrorKind::OutOfBounds, "cut off"),
        (one(r#""dtype":"U8","shape":[2],"data_offsets":[0,2]"#), b"123", ErrorKind::OutOfBounds, "longer than its header"),
        ("{}".into(), b"1", ErrorKind::OutOfBounds, "longer than its header"),
        (one(r#""dtype":"U8","shape":[1],"data_offsets":[1,2]"#), b"12", ErrorKind::OutOfBounds, "holes nor overlaps"),
        (two("[0,2]", "[3,5]"), b"12345", ErrorKind::OutOfBounds, "tensor `b`"),
        (two("[0,2]", "[1,3]"), b"123", ErrorKind::OutOfBounds, "tensor `b`"),
        (two("[0,2]", "[0,2]"), b"12", ErrorKind::OutOfBounds, "holes nor overlaps"),
        (
            r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#.into(),
            b"1",
            ErrorKind::Decode,
            "`w` occurs twice",
        ),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), b"", ErrorKind::Decode, "occurs twice"),
        (r#"{"__metadata__":{"a":"1","a":"2"}}"#.into(), b"", ErrorKind::Decode, "`a` occurs twice"),
        (r#"{"__metadata__":{"a":1}}"#.into(), b"", ErrorKind::Decode, "expected a string"),
        (r#"{"__metadata__":[]}"#.into(), b"", ErrorKind::Decode, "invalid type"),
        (deep, b"x", ErrorKind::Decode, "tensor `w`"),
        (many_dims, b"", ErrorKind::Shape, "1000000 dimensions"),
        (long_name, b"", ErrorKind::Decode, "nnn..."),
    ];
    for (json, data, kind, text) in cases {
        let shown: String = json.chars().take(100).collect();
        let error = load_bytes(file(&json, data)).map(|_| ()).expect_err(&shown);
        // Numbers of more than 32 bits are not read at all where addresses have 32.
        let is_read = IS_64_BIT || !error.to_string().contains("expected usize");
        let (kind, text) = if is_read { (kind, text) } else { (ErrorKind::Decode, "tensor `w`") };
        assert_eq!(error.kind(), kind, "{shown}: {error}");
        assert!(error.to_string().contains(text), "no {text:?} in {error}, for {shown}");
        assert!(error.to_string().len() < 600, "a message of {} bytes", error.to_string().len());
    }
}

/// Each key takes many times its bytes in memory, and a header has room for millions.
#[test]
fn keys_are_as_many_as_a_model_can_need() {
    let tie = |i: usize| format!("\"{i:x}\":\"w\"");
    for (keys, fits) in [(1 << 10, true), ((1 << 20) + 1, false)] {
        let ties = (0..keys).map(tie).collect::<Vec<_>>().join(",");
        let header = format!(
            r#"{{"__metadata__":{{{ties}}},"w":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#
        );
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("m.safetensors.index.json");
        std::fs::write(&index, format!(r#"{{"weight_map":{{{ties}}}}}"#)).unwrap();
        let of_index = load(&index, MmapChoice::never()).unwrap_err();
        match load_bytes(file(&header, b"1")) {
            Ok(weights) => {
                assert!(fits);
                assert_eq!(weights.tied().len(), keys);
                assert_eq!(of_index.kind(), ErrorKind::MissingFile, "{of_index}");
            }
            Err(error) => {
                assert!(!fits, "{error}");
                for error in [error, of_index] {
                    assert_eq!(error.kind(), ErrorKind::Decode);
                    assert!(error.to_string().contains("more than 1048576 keys"), "{error}");
                }
            }
        }
    }
}

#[test]
fn lengths_in_headers_are_checked() {
    let cases: &[(Vec<u8>, &str)] = &[
        (vec![], "only 0 bytes"),
        (vec![0; 7], "only 7 bytes"),
        (vec![0; 8], "does not begin"),
        (101_000_000_u64.to_le_bytes().to_vec(), "too long"),
        (100_000_001_u64.to_le_bytes().to_vec(), "too long"),
        (100_000_000_u64.to_le_bytes().to_vec(), "cut off"),
        (u64::MAX.to_le_bytes().to_vec(), "too long"),
        ([&3_u64.to_le_bytes()[..], b"{}"].concat(), "cut off"),
        ([&2_u64.to_le_bytes()[..], b"\xff\xff"].concat(), "does not begin"),
        ([&4_u64.to_le_bytes()[..], b"{\"\xff\""].concat(), "the JSON"),
        (
            b"PK\x03\x04\x14\0\x08\x08 and so on".to_vec(),
            "zip archive, not a safetensors file: saf",
        ),
        (
            b"{}".to_vec(),
            "JSON text, not a safetensors file: the name of an index of shards ends in",
        ),
        (b"{ \"weight_map\": {} }".to_vec(), "JSON text, not a safetensors file"),
        (
            model(graph(vec![], vec![])).encode_to_vec().unwrap(),
            "an ONNX model, not a safetensors file",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n".to_vec(), "Git LFS"),
    ];
    for (bytes, text) in cases {
        let error = load_bytes(bytes.clone()).unwrap_err();
        let kind =
            if text.contains("Git LFS") { ErrorKind::NotDownloaded } else { ErrorKind::Decode };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "no {text:?} in {error}");
    }
}

/// One tensor of every type that can be external, of an odd number of elements.
fn every_type() -> Vec<Tensor> {
    let dtypes = DataType::ALL.iter().copied().filter(|dtype| dtype.bit_width().is_some());
    let tensor = |dtype: DataType| {
        let len = usize::try_from(dtype.byte_len(&[3, 5]).unwrap()).unwrap();
        let bytes: Vec<u8> = (0..len).map(|i| (i % 2) as u8).collect();
        Tensor::new(dtype, [3, 5], Buffer::from(bytes)).unwrap()
    };
    dtypes.map(tensor).collect()
}

/// A container with `tensors` as initializers of these names, all behind handles.
fn container(tensors: Vec<(&str, Tensor)>) -> Container {
    let initializers = tensors.iter().map(|(name, tensor)| {
        TensorProto::external(*name, tensor.dtype().number(), tensor.dims(), format!("#{name}"))
    });
    let mut container = Container::new(model(graph(initializers.collect(), vec![])));
    for (name, tensor) in tensors {
        container.insert(&format!("#{name}"), tensor).unwrap();
    }
    container
}

fn bytes(len: i64, value: u8) -> Tensor {
    Tensor::new(DataType::Uint8, [len], Buffer::from(vec![value; len as usize])).unwrap()
}

/// The model of `container` without weights, as in a file that was exported without them.
fn structure(container: &Container) -> Container {
    let mut model = container.model().clone();
    traversal::tensors_mut(&mut model, |_, tensor| {
        if is_external(tensor) {
            tensor.external_data[0].value = Some("weights.bin".into());
        }
        Ok(())
    })
    .unwrap();
    Container::new(model)
}

#[test]
fn every_type_goes_out_and_comes_back() {
    let tensors = every_type();
    assert_eq!(tensors.len(), 27, "all of onnx 1.23 but strings");
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.dtype().name()).collect();
    let original = container(names.iter().copied().zip(tensors.clone()).collect());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    assert_eq!(exported.tensors, 27);
    // 15 elements: also FLOAT4E2M1, whose rows do not end at a byte.
    let mut as_bytes = exported.as_bytes.clone();
    as_bytes.sort();
    assert_eq!(
        as_bytes,
        [
            "COMPLEX128",
            "FLOAT4E2M1",
            "FLOAT6E2M3",
            "FLOAT6E3M2",
            "FLOAT8E4M3FNUZ",
            "FLOAT8E5M2FNUZ",
            "INT2",
            "INT4",
            "UINT2",
            "UINT4",
        ]
    );
    for mmap in both_choices() {
        let mut filled = structure(&original);
        let report =
            filled.attach_safetensors_with(&path, mmap, FillOptions::new().strict(true)).unwrap();
        assert_eq!((report.filled, report.missing.len()), (27, 0));
        for (name, tensor) in names.iter().zip(&tensors) {
            let found = filled.get(&format!("#{name}")).unwrap().to_tensor().unwrap();
            assert_eq!(found, *tensor, "{name}");
        }
    }
}

#[test]
fn four_bit_floats_have_their_type_where_rows_end_at_a_byte() {
    let tensor = Tensor::new(DataType::Float4E2M1, [3, 2], Buffer::from(vec![1, 2, 3])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported =
        container(vec![("w", tensor.clone())]).export_safetensors(&path, ExportOptions::new());
    assert_eq!(exported.unwrap().as_bytes, Vec::<String>::new());
    assert_eq!(load(&path, MmapChoice::never()).unwrap().get("w"), Some(&tensor));
}

/// Every tensor of the reference's view of `bytes`: offset in the file, length, name.
fn reference(bytes: &[u8]) -> Vec<(usize, usize, String)> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).unwrap();
    let start = bytes.len() - metadata.data_len();
    let infos = metadata.offset_keys().into_iter().map(|name| {
        let (from, to) = metadata.info(&name).unwrap().data_offsets;
        (start + from, to - from, name)
    });
    infos.collect()
}

/// Holds the file to the alignment that `docs/safetensors.md` states; how many entries are padding.
fn assert_aligned(bytes: &[u8], align: usize, large: usize) -> usize {
    let (mut padding, mut first) = (0, true);
    for (offset, len, name) in reference(bytes) {
        if name.starts_with("__padding__.") {
            padding += 1;
            assert!(bytes[offset..offset + len].iter().all(|byte| *byte == 0), "{name}");
        } else if len > 0 {
            let align = if len > 1 << 20 { align.max(large) } else { align };
            assert_eq!(offset % align, 0, "{name}: {len} bytes at {offset}");
            first = false;
        }
        assert!(!(first && padding > 0), "padding before the first tensor");
    }
    padding
}

#[test]
fn tensors_are_aligned_with_little_padding() {
    let cases: &[(&[i64], usize)] = &[
        (&[], 0),
        (&[0], 0),
        (&[3], 0),
        // Sorted so that only what has an odd length needs padding after it.
        (&[256, 512, 4096, 8192], 0),
        (&[100, 256, 512], 0),
        (&[100, 256, 101], 1),
        (&[100, 101, 102, 0, 0], 2),
        (&[256, 2 << 20, 4096, 1 << 20], 0),
        // The odd long one needs padding, whatever comes after it.
        (&[(1 << 20) + 1, 256, 2 << 20], 1),
        (&[(1 << 20) + 256, (1 << 20) + 512, 256], 1),
    ];
    for (lens, paddings) in cases {
        let names: Vec<_> = (0..lens.len()).map(|i| format!("t{i}")).collect();
        let tensors = names.iter().zip(*lens).zip(1..);
        let tensors = tensors.map(|((name, len), value)| (name.as_str(), bytes(*len, value)));
        let original = container(tensors.collect());
        let parts = original.to_parts(WeightFiles::Safetensors).unwrap();
        let Some((name, file)) = parts.files.first() else {
            assert!(lens.is_empty());
            continue;
        };
        assert_eq!(name, "model.safetensors");
        assert_eq!(assert_aligned(file, 256, 4096), *paddings, "{lens:?}");
        let weights = load_bytes(file.clone()).unwrap();
        assert_eq!(weights.len(), lens.len(), "padding is not shown");
        let options = LoadOptions::new().file(name, file.clone());
        let loaded = Container::load_bytes(parts.model, options).unwrap();
        assert_same(&loaded, &original);
    }
}

#[test]
fn a_tensor_may_have_the_name_of_padding() {
    let names = ["__padding__.1", "x", "__metadata__", "___padding__.2", "format"];
    let tensors = names.iter().zip(1..).map(|(name, i)| (*name, bytes(i64::from(i) + 10, i)));
    let original = container(tensors.collect());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    original.export_safetensors(&path, ExportOptions::new().padding(true)).unwrap();
    let weights = load(&path, MmapChoice::never()).unwrap();
    let found: Vec<_> = weights.iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["___padding__.2", "__metadata___2", "__padding__.1", "format", "x"]);
    assert!(reference(&fs::read(&path).unwrap()).len() > 5, "there is padding");
}

#[test]
fn padding_has_other_names_in_each_shard() {
    let names: Vec<_> = (0..9).map(|i| format!("t{i}")).collect();
    let tensors = names.iter().zip(1..).map(|(name, value)| (name.as_str(), bytes(11, value)));
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions::new().padding(true).max_shard_bytes(33);
    container(tensors.collect())
        .export_safetensors(folder.path().join("m.safetensors"), options)
        .unwrap();
    let files = contents(folder.path()).into_iter();
    let shards: Vec<_> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    let entries: Vec<_> = shards.iter().flat_map(|(_, bytes)| reference(bytes)).collect();
    let padding: Vec<_> =
        entries.iter().map(|(_, _, name)| name).filter(|n| n.contains("padding")).collect();
    let distinct: std::collections::BTreeSet<_> = padding.iter().collect();
    assert!(shards.len() == 3 && padding.len() == 6, "{padding:?}");
    assert_eq!(distinct.len(), padding.len(), "{padding:?}");
}

#[test]
fn padding_has_a_name_that_no_tensor_has() {
    let mut original =
        container(vec![("a", bytes(11, 1)), ("b", bytes(11, 2)), ("c", bytes(11, 3))]);
    let graph = original.model_mut().graph.as_mut().unwrap();
    // Tied, so it has no entry; in the other case it is in another shard.
    graph.initializer.push(TensorProto::external("__padding__.1", TensorProto::UINT8, [11], "#c"));
    graph.initializer.push(TensorProto::external("___padding__.1", TensorProto::UINT8, [1], "#d"));
    original.insert("#d", bytes(1, 4)).unwrap();
    for max in [u64::MAX, 33] {
        let folder = tempfile::tempdir().unwrap();
        let options = ExportOptions::new().padding(true).max_shard_bytes(max);
        original.export_safetensors(folder.path().join("m.safetensors"), options).unwrap();
        let mut padding = 0;
        for (name, bytes) in contents(folder.path()) {
            let tensors = if name.ends_with("json") { vec![] } else { reference(&bytes) };
            let names = tensors.into_iter().map(|(_, _, name)| name);
            let names: Vec<_> = names.filter(|name| name.contains("padding")).collect();
            assert!(!names.iter().any(|name| *name == "__padding__.1"), "{names:?}");
            padding += names.iter().filter(|name| name.starts_with("____padding__.")).count();
        }
        assert!(padding > 0);
    }
}

/// The names of the entries of every file but the index, and the names in the index.
fn names_in(folder: &Path) -> (Vec<String>, Vec<String>) {
    let (mut entries, mut indexed) = (Vec::new(), Vec::new());
    for (name, bytes) in contents(folder) {
        if name.ends_with(".json") {
            let index: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            indexed.extend(index["weight_map"].as_object().unwrap().keys().cloned());
        } else {
            entries.extend(reference(&bytes).into_iter().map(|(_, _, name)| name));
        }
    }
    entries.sort();
    (entries, indexed)
}

/// `safetensors.torch.load_model` takes no entry that the model has not, and `huggingface_hub` none
/// that the index has not.
#[test]
fn an_export_has_the_tensors_and_nothing_else_unless_padding_is_asked_for() {
    let lens = [100, 12, 101, 4096, 7, 256, 3 << 20, 0];
    let names: Vec<_> = (0..lens.len()).map(|i| format!("t{i}")).collect();
    let tensors = names.iter().zip(lens).zip(1..);
    let tensors = tensors.map(|((name, len), value)| (name.as_str(), bytes(len, value)));
    let original = container(tensors.collect());
    let aligned = SaveOptions::new().alignment(Alignment::DEVICE);
    let options = [
        (ExportOptions::new(), false),
        (ExportOptions::new().padding(true), true),
        (ExportOptions::from(aligned.clone()), true),
        (ExportOptions::from(aligned).padding(false), false),
    ];
    for (options, padded) in options {
        for max in [u64::MAX, 1 << 20, 200] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.safetensors");
            let options = options.clone().max_shard_bytes(max);
            let exported = original.export_safetensors(&path, options).unwrap();
            let (entries, indexed) = names_in(folder.path());
            let sharded = max < u64::MAX;
            assert_eq!(indexed, if sharded { entries.clone() } else { Vec::new() }, "{max}");
            let padding = entries.iter().filter(|name| name.starts_with("__padding__.")).count();
            assert_eq!(padding > 0, padded, "{entries:?}");
            assert_eq!(entries.len(), lens.len() + padding, "names occur once: {entries:?}");
            let first = folder.path().join(&exported.files.last().unwrap().name);
            let mut filled = structure(&original);
            let fill = FillOptions::new().strict(true);
            filled.attach_safetensors_with(&first, MmapChoice::never(), fill).unwrap();
            assert_same(&filled, &original);
        }
    }
}

#[test]
fn without_padding_tensors_are_aligned_as_far_as_their_lengths_go() {
    let lens = [6, 512, 100, 4096, (1 << 20) + 4, 8192, 3, 256, 16];
    let names: Vec<_> = (0..lens.len()).map(|i| format!("t{i}")).collect();
    let tensors = names.iter().zip(lens).map(|(name, len)| (name.as_str(), bytes(len, 1)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    container(tensors.collect()).export_safetensors(&path, ExportOptions::new()).unwrap();
    for (offset, len, name) in reference(&fs::read(&path).unwrap()) {
        let own = 1 << len.trailing_zeros().min(12);
        assert_eq!(offset % own, 0, "{name}: {len} bytes at {offset}");
    }
}

/// One name of a megabyte that begins as padding does was repeated for each of 1,200 gaps.
#[test]
fn names_of_padding_are_short_whatever_tensors_are_called() {
    let long = format!("{}padding__.", "_".repeat(1 << 20));
    let few: Vec<_> = (2..=16).map(|n| format!("{}padding__.x", "_".repeat(n))).collect();
    let numbered = ["__padding_2__.1".to_owned(), "__padding_3__.".to_owned()];
    let cases =
        [(vec![long], "__padding__."), ([few.as_slice(), &numbered].concat(), "__padding_4__.")];
    for (names, prefix) in cases {
        let odd: Vec<_> = (0..1200).map(|i| format!("t{i}")).collect();
        let all = names.iter().chain(&odd).map(|name| (name.as_str(), bytes(3, 1)));
        let original = container(all.collect());
        let parts = original.to_parts(WeightFiles::Safetensors).unwrap();
        let (_, file) = &parts.files[0];
        let named: usize = names.iter().map(String::len).sum();
        assert!(file.len() < named + 1200 * 600, "{} bytes", file.len());
        let padding = reference(file).into_iter().filter(|(_, _, name)| name.starts_with(prefix));
        assert!(padding.count() > 1000);
        assert_eq!(load_bytes(file.clone()).unwrap().len(), all_bytes(&original).len());
    }
}

/// A tensor inside another's bytes has no entry, and an inline one is in no file.
#[test]
fn padding_is_not_called_as_a_tensor_without_an_entry() {
    let whole = Buffer::from(vec![7; 300]);
    let slice = |range| Tensor::new(DataType::Uint8, [44], whole.slice(range).unwrap()).unwrap();
    let mut original = container(vec![("a", bytes(11, 1)), ("b", bytes(11, 2))]);
    original.insert("#w", Tensor::new(DataType::Uint8, [300], whole.clone()).unwrap()).unwrap();
    original.insert("#part", slice(256..300)).unwrap();
    let graph = original.model_mut().graph.as_mut().unwrap();
    let inline = TensorProto::new("___padding__.1", TensorProto::UINT8, [1]).with_raw_data(vec![9]);
    graph.initializer.extend([
        TensorProto::external("w", TensorProto::UINT8, [300], "#w"),
        TensorProto::external("__padding__.1", TensorProto::UINT8, [44], "#part"),
        inline,
    ]);
    let parts = original.to_parts(WeightFiles::Safetensors).unwrap();
    let names: Vec<_> = reference(&parts.files[0].1).into_iter().map(|(_, _, name)| name).collect();
    assert!(names.iter().any(|name| name == "____padding__.1"), "{names:?}");
    assert!(names.iter().all(|n| !["__padding__.1", "___padding__.1"].contains(&n.as_str())));
}

#[test]
fn a_numbered_name_differs_from_every_tensors_name_and_is_reported() {
    let mut tensors = Vec::new();
    let mut original = Container::new(ModelProto::default());
    for (i, name) in ["k", "k", "k_2", "k"].into_iter().enumerate() {
        let handle = format!("#{i}");
        tensors.push(TensorProto::external(name, TensorProto::UINT8, [2], handle.as_str()));
        original.insert(&handle, bytes(2, u8::try_from(i % 3).unwrap())).unwrap();
    }
    *original.model_mut() = model(graph(tensors, vec![]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    let weights = load(&path, MmapChoice::never()).unwrap();
    for (name, value) in [("k", 0), ("k_3", 1), ("k_2", 2), ("k_4", 0)] {
        assert_eq!(weights.get(name), Some(&bytes(2, value)), "{name}");
    }
    let renamed: Vec<_> = exported.renamed.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(renamed, [("k_3", "k"), ("k_4", "k")]);
}

#[test]
fn names_of_files_are_never_cut() {
    let original = container(vec![("a", bytes(3, 1)), ("b", bytes(3, 2))]);
    let folder = tempfile::tempdir().unwrap();
    // The stem's length, the shard's, and what comes of it.
    let cases = [(243, u64::MAX, true), (244, u64::MAX, false), (228, 3, true), (229, 3, false)];
    for (len, max, fits) in cases {
        let path = folder.path().join("n".repeat(len) + ".safetensors");
        let options = ExportOptions::new().max_shard_bytes(max);
        match original.export_safetensors(&path, options) {
            Ok(exported) => {
                assert!(fits, "{len}");
                assert!(exported.files.iter().all(|f| f.name.starts_with(&"n".repeat(len))));
            }
            Err(error) => {
                assert!(!fits, "{len}: {error}");
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(error.to_string().contains("the name is too long"), "{error}");
            }
        }
    }
}

#[test]
fn inline_tensors_are_reported_and_those_without_elements_written() {
    let mut original = container(vec![("a", bytes(3, 1))]);
    let graph = original.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::new("empty", TensorProto::FLOAT, [0, 4]));
    graph.initializer.push(floats("inline", 0, 2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    assert_eq!((exported.tensors, exported.left_out), (2, vec!["inline".to_owned()]));
    let weights = load(&path, MmapChoice::never()).unwrap();
    assert_eq!(weights.get("empty").unwrap().dims(), [0, 4]);
}

/// The name of an entry stands once for each tensor that is tied to it.
#[test]
fn ties_that_no_header_holds_are_refused_before_they_are_made() {
    let names = std::iter::once("n".repeat(1 << 20)).chain((0..20_000).map(|i| i.to_string()));
    let tied = names.map(|name| TensorProto::external(name, TensorProto::UINT8, [3], "#w"));
    let mut original = Container::new(model(graph(tied.collect(), vec![])));
    original.insert("#w", bytes(3, 1)).unwrap();
    let error = original.to_parts(WeightFiles::Safetensors).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

/// Two tied tensors, one of another shape on the same bytes, one inside them, and a subgraph.
fn tied() -> Container {
    let whole = Buffer::from((0..=255).collect::<Vec<u8>>());
    let part = whole.slice(..64).unwrap();
    let mut inner = graph(vec![], vec![]);
    inner.initializer.push(TensorProto::external("a", TensorProto::UINT8, [4], "#inner"));
    let branch = node("If", &["c"], &["y"], vec![AttributeProto::graph("then_branch", inner)]);
    let external = |name: &str, dims: &[i64], handle: &str| {
        TensorProto::external(name, TensorProto::UINT8, dims, handle)
    };
    let initializers = vec![
        external("a", &[256], "#a"),
        external("b", &[256], "#a"),
        external("c", &[256], "#c"),
        external("d", &[16, 16], "#a"),
        external("e", &[64], "#e"),
    ];
    let mut container = Container::new(model(graph(initializers, vec![branch])));
    let tensor =
        |dims: &[i64], bytes: &Buffer| Tensor::new(DataType::Uint8, dims, bytes.clone()).unwrap();
    container.insert("#a", tensor(&[256], &whole)).unwrap();
    container.insert("#c", tensor(&[256], &whole)).unwrap();
    container.insert("#e", tensor(&[64], &part)).unwrap();
    container.insert("#inner", bytes(4, 9)).unwrap();
    container
}

#[test]
fn tied_tensors_are_written_once_and_come_back_tied() {
    let original = tied();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    assert_eq!(exported.tied, map(&[("b", "a"), ("c", "a")]));
    let weights = load(&path, MmapChoice::never()).unwrap();
    let names: Vec<_> = weights.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "d", "e", "y.then_branch/a"]);
    assert_eq!(weights.tied(), &exported.tied);
    assert_eq!(weights.get("b"), weights.get("a"));

    let mut filled = structure(&original);
    let mut by_default = filled.clone();
    by_default.attach_safetensors(&path).unwrap();
    filled
        .attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new().strict(true))
        .unwrap();
    assert_eq!(by_default.digest().unwrap(), filled.digest().unwrap());
    assert_same(&filled, &original);
    let saved = filled.save(folder.path().join("m.onnx"), true).unwrap();
    let offset = |name: &str| {
        let model = saved.model().unwrap();
        let tensors = &model.graph.as_ref().unwrap().initializer;
        let tensor = tensors.iter().find(|t| t.name.as_ref().is_some_and(|n| *n == *name));
        ExternalData::parse(tensor.unwrap()).unwrap().offset
    };
    assert_eq!((offset("b"), offset("c")), (offset("a"), offset("a")));
    // A model with one of the names alone has nothing left over.
    let mut one = structure(&container(vec![("c", bytes(256, 0))]));
    let options = FillOptions::new().strict(true).ignore("d").ignore("e").ignore("y.then_branch/a");
    let error =
        one.attach_safetensors_with(&path, MmapChoice::never(), options.clone()).unwrap_err();
    assert!(error.to_string().contains("`a`"), "{error}");
    one.attach_safetensors_with(&path, MmapChoice::never(), options.rename("a", "c")).unwrap();
}

#[test]
fn tied_bytes_stand_for_a_type_once() {
    let tensor = Tensor::pack(DataType::Int4, [3], &[1, 2, 15]).unwrap();
    let mut original = container(vec![("a", tensor)]);
    let graph = original.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::external("b", TensorProto::INT4, [3], "#a"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    assert_eq!((exported.tensors, exported.as_bytes.len(), exported.tied.len()), (1, 1, 1));
    // One handle for both tensors, and a place for each.
    let mut shared = Container::new(original.model().clone());
    for filled in [&mut shared, &mut structure(&original)] {
        let options = FillOptions::new().strict(true);
        filled.attach_safetensors_with(&path, MmapChoice::never(), options).unwrap();
        assert_same(filled, &original);
    }
}

#[test]
fn a_handle_of_several_shapes_is_filled_by_any_of_them() {
    let original = tied();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    original.export_safetensors(&path, ExportOptions::new()).unwrap();
    // The handles are those of the export: `#a` stands for a vector and a matrix.
    let mut filled = Container::new(original.model().clone());
    filled
        .attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new().strict(true))
        .unwrap();
    filled.check().unwrap();
    assert_same(&filled, &original);
}

#[test]
fn a_tied_name_that_the_metadata_have_otherwise_is_an_entry() {
    let names = ["w", "format", "onnx_container.padding", "license", "head"];
    let tied = names.map(|name| TensorProto::external(name, TensorProto::UINT8, [4], "#w"));
    let mut original = Container::new(model(graph(tied.to_vec(), vec![])));
    original.insert("#w", bytes(4, 7)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let options = ExportOptions::new().metadata("license", "w");
    let exported = original.export_safetensors(&path, options).unwrap();
    assert_eq!(exported.tied, BTreeMap::from([("head".to_owned(), "w".to_owned())]));
    let weights = load(&path, MmapChoice::never()).unwrap();
    for name in names {
        assert_eq!(weights.get(name), Some(&bytes(4, 7)), "{name}");
    }
    let mut filled = structure(&original);
    filled
        .attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new().strict(true))
        .unwrap();
    assert_same(&filled, &original);
}

#[test]
fn metadata_that_would_hide_tensors_are_refused() {
    let original = container(vec![("w1", bytes(4, 7)), ("w2", bytes(4, 7))]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let options = ExportOptions::new().metadata("onnx_container.padding", "w");
    let error = original.export_safetensors(&path, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("onnx_container.padding"), "{error}");
    assert!(!path.exists());
}

#[test]
fn only_what_is_named_and_shaped_as_padding_is_hidden() {
    let file_of = |name: &str, dtype: &str, shape: &str| {
        let json = format!(
            r#"{{"__metadata__":{{"onnx_container.padding":"w"}},
                "{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,4]}}}}"#
        );
        load_bytes(file(&json, b"\0\0\0\0")).unwrap()
    };
    assert!(file_of("w12", "U8", "[4]").is_empty());
    for (name, dtype, shape) in [
        ("w", "U8", "[4]"),
        ("weight", "U8", "[4]"),
        ("w1.weight", "U8", "[4]"),
        ("w1", "I8", "[4]"),
        ("w1", "U8", "[2,2]"),
    ] {
        assert_eq!(file_of(name, dtype, shape).len(), 1, "{name} {dtype} {shape}");
    }
}

#[test]
fn the_external_data_are_a_safetensors_file() {
    let original = tied();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.v2.onnx");
    let plan = original.dry_run(&path, WeightFiles::Safetensors).unwrap();
    let saved = original.save(&path, WeightFiles::Safetensors).unwrap();
    assert_eq!(plan.files, saved.files);
    assert_eq!(saved.files[0].name, "m.v2.safetensors");
    let data = fs::read(folder.path().join("m.v2.safetensors")).unwrap();
    assert_eq!(data.len() as u64, saved.files[0].bytes);
    assert_eq!(assert_aligned(&data, 256, 4096), 0);
    // `d` has the bytes of `a` in another shape, `e` a part of them: they need no entry.
    let weights = load_bytes(data).unwrap();
    let names: Vec<_> = weights.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "y.then_branch/a"]);
    for mmap in both_choices() {
        let loaded = Container::load(&path, mmap).unwrap();
        assert_same(&loaded, &original);
        // Neither the header nor padding counts as bytes that nobody uses.
        let report = check_model(&path, mmap).unwrap().findings;
        assert!(
            !report.iter().any(|found| found.error.to_string().contains("used by no")),
            "{report:?}"
        );
    }
    let again = original.to_parts(WeightFiles::Safetensors).unwrap();
    let twice = original.to_parts(WeightFiles::Safetensors).unwrap();
    assert_eq!(again.files, twice.files, "two saves are the same bytes");
}

#[test]
fn a_checkpoint_that_lies_there_is_not_replaced() {
    let original = container(vec![("w", bytes(1000, 1))]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    fs::write(folder.path().join("model.safetensors"), "a checkpoint").unwrap();
    let before = contents(folder.path());
    let error = original.save(&path, WeightFiles::Safetensors).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(contents(folder.path()), before);
    let named = SaveOptions::from(WeightFiles::Safetensors).data_name("model.safetensors");
    original.save(&path, named).unwrap();
    // Now it is the model's own.
    original.save(&path, WeightFiles::Safetensors).unwrap();
    Container::load(&path, MmapChoice::never()).unwrap();
    // And an export does not take it away.
    let export =
        original.export_safetensors(folder.path().join("model.safetensors"), ExportOptions::new());
    let error = export.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("refers to this file"), "{error}");
}

#[test]
fn alignment_is_an_option() {
    let original =
        container(vec![("a", bytes(3 << 20, 1)), ("b", bytes(100, 2)), ("c", bytes(70, 2))]);
    for (align, large) in [(1, 1), (64, 64), (64, 65536), (4096, 64)] {
        let options = SaveOptions::from(WeightFiles::Safetensors)
            .alignment(Alignment::new(align).unwrap())
            .alignment_large(Alignment::new(large).unwrap());
        let parts = original.to_parts(options).unwrap();
        assert_aligned(&parts.files[0].1, align as usize, large as usize);
    }
}

fn shard(stem: &str, number: usize, of: usize) -> String {
    format!("{stem}-{number:05}-of-{of:05}.safetensors")
}

#[test]
fn shards_are_cut_where_the_next_tensor_does_not_fit() {
    let lens = [10, 20, 30, 100, 5, 5];
    let names: Vec<_> = (0..lens.len()).map(|i| format!("t{i}")).collect();
    let tensors = names.iter().zip(lens).zip(1..);
    let tensors = tensors.map(|((name, len), value)| (name.as_str(), bytes(len, value)));
    let original = container(tensors.collect());
    for (max, shards) in [(1000, 1), (170, 1), (169, 2), (60, 3), (30, 4), (1, 6)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        let options = ExportOptions::new().max_shard_bytes(max);
        let exported = original.export_safetensors(&path, options).unwrap();
        let mut expected: Vec<_> = (1..=shards).map(|i| shard("m", i, shards)).collect();
        expected.push("m.safetensors.index.json".to_owned());
        if shards == 1 {
            expected = vec!["m.safetensors".to_owned()];
        }
        let files: Vec<_> = exported.files.iter().map(|file| file.name.clone()).collect();
        assert_eq!(files, expected, "at most {max} bytes");
        let there = contents(folder.path());
        assert_eq!(there.keys().cloned().collect::<Vec<_>>(), {
            let mut e = expected.clone();
            e.sort();
            e
        });
        assert_eq!(exported.bytes, there.values().map(|bytes| bytes.len() as u64).sum::<u64>());
        let first = folder.path().join(expected.last().unwrap());
        let weights = load(&first, MmapChoice::never()).unwrap();
        assert_eq!(weights.len(), 6);
        assert_eq!(weights.files().len(), if shards == 1 { 1 } else { shards + 1 });
        let mut filled = structure(&original);
        filled.attach_safetensors_with(&first, MmapChoice::never(), FillOptions::new()).unwrap();
        assert_same(&filled, &original);
    }
}

#[test]
fn an_index_is_in_the_form_of_hugging_face() {
    let original = container(vec![("a", bytes(3, 1)), ("b", bytes(4, 2))]);
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions::new().max_shard_bytes(4).metadata("made", "today");
    original.export_safetensors(folder.path().join("m.safetensors"), options).unwrap();
    let there = contents(folder.path());
    let index = std::str::from_utf8(&there["m.safetensors.index.json"]).unwrap();
    let expected = r#"{
  "metadata": {
    "total_size": 7
  },
  "weight_map": {
    "a": "m-00001-of-00002.safetensors",
    "b": "m-00002-of-00002.safetensors"
  }
}
"#;
    assert_eq!(index, expected);
    let (_, header) = SafeTensors::read_metadata(&there[&shard("m", 1, 2)]).unwrap();
    let metadata = header.metadata().clone().unwrap();
    assert_eq!((metadata["format"].as_str(), metadata["made"].as_str()), ("pt", "today"));
}

/// A folder with two shards and an index that a test then spoils.
fn sharded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let original = container(vec![("a", bytes(3, 1)), ("b", bytes(4, 2))]);
    let options = ExportOptions::new().max_shard_bytes(4);
    original.export_safetensors(folder.path().join("m.safetensors"), options).unwrap();
    folder
}

#[test]
fn indexes_that_are_wrong_are_refused() {
    let one = shard("m", 1, 2);
    let map = |map: &str| format!(r#"{{"metadata":{{"total_size":7}},"weight_map":{map}}}"#);
    let cases: Vec<(String, ErrorKind, &[&str])> = vec![
        ("[]".into(), ErrorKind::Decode, &["the JSON"]),
        ("{}".into(), ErrorKind::Decode, &["weight_map"]),
        (map("[]"), ErrorKind::Decode, &["the JSON"]),
        (map(r#"{"a":1}"#), ErrorKind::Decode, &["the JSON"]),
        (map(&format!(r#"{{"a":"{one}","a":"{one}"}}"#)), ErrorKind::Decode, &["`a` occurs twice"]),
        (r#"{"weight_map":{},"weight_map":{}}"#.into(), ErrorKind::Decode, &["duplicate field"]),
        (map(r#"{"a":"../m.safetensors"}"#), ErrorKind::UnsafePath, &["`..` component"]),
        (map(r#"{"a":"/etc/passwd"}"#), ErrorKind::UnsafePath, &["absolute path"]),
        (map(r#"{"a":""}"#), ErrorKind::UnsafePath, &["empty"]),
        (map(r#"{"a":"link"}"#), ErrorKind::UnsafePath, &["leads out", "--paths trusted"]),
        (
            map(r#"{"a":"gone-1","b":"gone-2"}"#),
            ErrorKind::MissingFile,
            &["2 problems", "gone-1", "gone-2"],
        ),
        (
            map(&format!(r#"{{"b":"{one}"}}"#)),
            ErrorKind::InvalidModel,
            &["tensor `b`", "which does not have it", "tensor `a`", "not in the index"],
        ),
        (
            map(&format!(r#"{{"a":"{}","b":"{}"}}"#, shard("m", 2, 2), one)),
            ErrorKind::InvalidModel,
            &["4 problems", "the index places it in `m-00002-of-00002.safetensors`"],
        ),
    ];
    let has_links = |index: &str| cfg!(unix) || !index.contains("link");
    for (index, kind, texts) in cases.into_iter().filter(|(index, ..)| has_links(index)) {
        let folder = sharded();
        let path = folder.path().join("m.safetensors.index.json");
        fs::write(&path, &index).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).unwrap();
        let error = load(&path, MmapChoice::never()).map(|_| ()).expect_err(&index);
        assert_eq!(error.kind(), kind, "{index}: {error}");
        for text in texts {
            assert!(error.to_string().contains(text), "no {text:?} in {error}");
        }
    }
}

/// huggingface_hub leaves the ties of a sharded model in its index, and in no shard.
#[test]
fn an_index_ties_names_too() {
    let folder = sharded();
    let path = folder.path().join("m.safetensors.index.json");
    let index = fs::read_to_string(&path).unwrap();
    // The total is a number; a value that is no entry's name ties nothing.
    let more = r#""metadata": { "head": "b", "note": "hello", "deep": {"x": [1]}, "#;
    let index = index.replacen(r#""metadata": {"#, more, 1);
    fs::write(&path, index).unwrap();
    let weights = load(&path, MmapChoice::never()).unwrap();
    assert_eq!(weights.tied(), &BTreeMap::from([("head".to_owned(), "b".to_owned())]));
    assert_eq!(weights.metadata()["note"], "hello");
    let places = ["a", "b", "head"].map(|name| (name, bytes(if name == "a" { 3 } else { 4 }, 0)));
    let mut filled = structure(&container(places.to_vec()));
    filled
        .attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new().strict(true))
        .unwrap();
    assert_eq!(filled.tensor("head").unwrap(), bytes(4, 2));

    // An index without metadata, as some tools write it.
    let map =
        format!(r#"{{"weight_map":{{"a":"{}","b":"{}"}}}}"#, shard("m", 1, 2), shard("m", 2, 2));
    fs::write(&path, map).unwrap();
    assert!(load(&path, MmapChoice::never()).unwrap().tied().is_empty());
}

/// Millions of ties take the memory of one list, not of two.
#[test]
fn a_tie_is_no_other_metadata() {
    let json = r#"{"__metadata__":{"b":"a","format":"pt","note":"a thing","odd":"gone"},
        "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let weights = load_bytes(file(json, b"x")).unwrap();
    let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(weights.tied()), "b");
    assert_eq!(keys(weights.metadata()), "format note odd");
}

#[test]
fn an_entry_of_one_shard_counts_more_than_the_metadata_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    let entry =
        |name: &str| format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#);
    write("1", &file(&format!(r#"{{"__metadata__":{{"b":"a"}},{}}}"#, entry("a")), b"x"));
    write("2", &file(&format!("{{{}}}", entry("b")), b"y"));
    write("index.json", br#"{"weight_map":{"a":"1","b":"2"}}"#);
    let path = folder.path().join("index.json");
    assert!(load(&path, MmapChoice::never()).unwrap().tied().is_empty());
    let mut filled = structure(&container(vec![("a", bytes(1, 0)), ("b", bytes(1, 0))]));
    filled.attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new()).unwrap();
    assert_eq!(filled.tensor("b").unwrap(), bytes(1, b'y'));
}

#[test]
fn a_tie_that_does_not_fit_says_where_it_comes_from() {
    let json = r#"{"__metadata__":{"b":"a"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    fs::write(&path, file(json, b"x")).unwrap();
    let mut filled = structure(&container(vec![("a", bytes(1, 0)), ("b", bytes(2, 0))]));
    let error = filled.attach_safetensors_with(&path, MmapChoice::never(), FillOptions::new());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("weights `b`, which the metadata tie to others"), "{error}");
}

#[test]
fn a_damaged_shard_is_named() {
    let folder = sharded();
    let broken = folder.path().join(shard("m", 2, 2));
    let bytes = fs::read(&broken).unwrap();
    fs::write(&broken, &bytes[..bytes.len() - 1]).unwrap();
    let error =
        load(folder.path().join("m.safetensors.index.json"), MmapChoice::never()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::OutOfBounds, Some(broken.as_path())));
}

#[test]
fn paths_that_are_not_regular_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = load(folder.path(), MmapChoice::never()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = load(folder.path().join("gone.safetensors"), MmapChoice::never()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile);
}

/// Also in another case, by another name, and after the weights were read into memory.
#[test]
fn weights_that_were_attached_are_never_replaced() {
    for choice in both_choices() {
        let folder = sharded();
        let (one, two) = (shard("m", 1, 2), shard("m", 2, 2));
        let index = folder.path().join("m.safetensors.index.json");
        let before = contents(folder.path());
        let mut filled = structure(&container(vec![("a", bytes(3, 0)), ("b", bytes(4, 0))]));
        filled.attach_safetensors_with(&index, choice, FillOptions::new()).unwrap();
        // What is not in a file any more has no less been read.
        for handle in ["#a", "#b"] {
            filled.insert(handle, bytes(if handle == "#a" { 3 } else { 4 }, 9)).unwrap();
        }
        for name in ["m.safetensors.index.json", &one, &two] {
            let options = SaveOptions::new().data_name(name);
            let error = filled.save(folder.path().join("o.onnx"), options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name}: {error}");
        }
        let path = folder.path().join("m.safetensors");
        let options = ExportOptions::new().max_shard_bytes(4);
        let error = filled.export_safetensors(&path, options).unwrap_err();
        assert_eq!(error.each().count(), 3, "the index and both shards: {error}");
        assert_eq!(contents(folder.path()), before);
        filled.save(folder.path().join("o.onnx"), true).unwrap();
    }
}

#[test]
fn an_export_is_complete_or_leaves_no_file() {
    let original = container(vec![("a", bytes(3, 1)), ("b", bytes(4, 2))]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let shards = || ExportOptions::new().max_shard_bytes(4);
    original.export_safetensors(&path, shards()).unwrap();
    let before = contents(folder.path());

    let refuse: &[(&str, ErrorKind)] = &[
        ("m.onnx", ErrorKind::InvalidArgument),
        (".safetensors", ErrorKind::InvalidArgument),
        ("m.safetensors.index.json", ErrorKind::InvalidArgument),
        ("gone/m.safetensors", ErrorKind::MissingFile),
    ];
    for (name, kind) in refuse {
        let error = original.export_safetensors(folder.path().join(name), shards()).unwrap_err();
        assert_eq!(error.kind(), *kind, "{name}: {error}");
    }
    let keep = ExportOptions::from(SaveOptions::new().overwrite(false)).max_shard_bytes(4);
    assert_eq!(
        original.export_safetensors(&path, keep).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let cancel = SaveOptions::new().progress(|_| std::ops::ControlFlow::Break(()));
    let cancel = ExportOptions::from(cancel).max_shard_bytes(4);
    assert_eq!(
        original.export_safetensors(&path, cancel).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    let empty = Container::new(ModelProto::new(graph(vec![floats("w", 0, 4)], vec![])));
    assert_eq!(
        empty.export_safetensors(&path, shards()).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(contents(folder.path()), before);

    // One file instead of two: a reader would still find the old shards.
    let exported = original.export_safetensors(&path, ExportOptions::new()).unwrap();
    let left: Vec<_> = exported.left_behind.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(
        left,
        [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
            "m.safetensors.index.json"
        ]
    );
}

#[test]
fn attaching_checks_names_types_and_shapes() {
    let matrix = Tensor::new(DataType::Uint8, [2, 3], Buffer::from(vec![1; 6])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let named = |name: &'static str| container(vec![(name, matrix.clone())]);
    named("model.w").export_safetensors(&path, ExportOptions::new()).unwrap();
    let declared = |dtype: i32, dims: &[i64]| {
        let tensor = TensorProto::external("w", dtype, dims, "gone.bin");
        Container::new(model(graph(vec![tensor, int64s("s", &[1])], vec![])))
    };
    let strip = || FillOptions::new().strip_prefix("model.");
    type Refusal = Option<(ErrorKind, &'static str)>;
    let cases: Vec<(Container, FillOptions, Refusal)> = vec![
        (declared(TensorProto::UINT8, &[2, 3]), strip(), None),
        (declared(TensorProto::UINT8, &[2, 3]), FillOptions::new().rename("model.w", "w"), None),
        (
            declared(TensorProto::UINT8, &[2, 3]),
            FillOptions::new(),
            Some((ErrorKind::MissingTensor, "strip_prefix of \"model.\" makes \"w\"")),
        ),
        (declared(TensorProto::UINT8, &[3, 2]), strip(), Some((ErrorKind::Shape, "transpose"))),
        (declared(TensorProto::UINT8, &[6]), strip(), Some((ErrorKind::Shape, "[2, 3]"))),
        (declared(TensorProto::INT8, &[2, 3]), strip(), Some((ErrorKind::DataType, "INT8"))),
        (declared(TensorProto::UINT4, &[2, 6]), strip(), None),
        (declared(TensorProto::UINT4, &[3, 4]), strip(), Some((ErrorKind::DataType, "UINT4"))),
    ];
    for (mut container, options, wrong) in cases {
        let before = container.model().clone();
        let filled = container.attach_safetensors_with(&path, MmapChoice::never(), options);
        match wrong {
            None => assert_eq!(filled.unwrap().filled, 1),
            Some((kind, text)) => {
                let error = filled.unwrap_err();
                assert_eq!((error.kind(), error.path()), (kind, Some(path.as_path())), "{error}");
                assert!(error.to_string().contains(text), "{error}");
                assert_eq!(*container.model(), before, "unchanged");
            }
        }
    }
}

#[test]
fn attaching_copies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let original = container(vec![("w", bytes(5000, 1))]);
    original.export_safetensors(&path, ExportOptions::new()).unwrap();
    let mut filled = structure(&original);
    filled.attach_safetensors_with(&path, both_choices()[0], FillOptions::new()).unwrap();
    let buffer = filled.get("#w").unwrap().as_buffer().unwrap();
    let range = buffer.file_range().expect("lies in the mapped file");
    assert_eq!((range.path, range.range.start % 256), (path.as_path(), 0));
}

/// A tensor of any type with a fixed width, and any bytes.
fn any_tensor() -> impl Strategy<Value = Tensor> {
    let dtypes: Vec<_> =
        DataType::ALL.iter().copied().filter(|d| d.bit_width().is_some()).collect();
    let dims = prop::collection::vec(0_i64..40, 0..4);
    (prop::sample::select(dtypes), dims).prop_flat_map(|(dtype, dims)| {
        let len = dtype.byte_len(&dims).unwrap() as usize;
        (any::<u8>(), Just(dtype), Just(dims), Just(len)).prop_map(|(value, dtype, dims, len)| {
            let bytes: Vec<u8> = (0..len).map(|i| value.wrapping_add(i as u8)).collect();
            Tensor::new(dtype, dims, Buffer::from(bytes)).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_weights_come_back(
        tensors in prop::collection::btree_map("[a-z_./\"\\\\é]{1,8}", any_tensor(), 1..12),
        small in 0..13_u32,
        max in 1..4000_u64,
    ) {
        let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.clone()));
        let original = container(named.collect());
        let folder = tempfile::tempdir().unwrap();
        let options = SaveOptions::new().sync(false).alignment(Alignment::new(1 << small).unwrap());
        let options = ExportOptions::from(options).max_shard_bytes(max);
        let exported = original.export_safetensors(folder.path().join("w.safetensors"), options);
        let exported = exported.unwrap();
        let path = folder.path().join(&exported.files.last().unwrap().name);
        for mmap in both_choices() {
            let mut filled = structure(&original);
            let options = FillOptions::new().strict(true);
            filled.attach_safetensors_with(&path, mmap, options).unwrap();
            assert_same(&filled, &original);
        }
        for (name, bytes) in contents(folder.path()) {
            if name.ends_with(".safetensors") {
                assert_aligned(&bytes, 1 << small, 4096);
            }
        }
    }

    #[test]
    fn any_bytes_are_weights_or_an_error(
        json in "\\{.{0,80}",
        data in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let _ = load_bytes(file(&json, &data));
    }
}

#[test]
fn weights_build_a_container_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    tied().export_safetensors(&path, ExportOptions::new()).unwrap();
    let weights: Weights = load(&path, MmapChoice::never()).unwrap();
    let mut made = Container::new(ModelProto::default());
    for (name, initializer) in weights {
        made.insert(&format!("#{name}"), initializer).unwrap();
    }
    assert_eq!(made.len(), 6, "four entries and two names that are tied");
    assert_eq!(made.get("#c").unwrap().byte_len(), 256);
}

#[test]
fn names_are_unique_across_graphs() {
    let mut source = Container::new(crate::support::tensors_everywhere());
    source.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let exported = source.export_safetensors(&path, ExportOptions::new()).unwrap();
    let weights = load(&path, MmapChoice::never()).unwrap();
    assert_eq!((exported.tensors, weights.len()), (source.len(), source.len()));
    let missing = |name: &str| weights.get(name).is_none();
    assert_eq!(crate::support::EVERYWHERE.iter().find(|name| missing(name)), None);
    assert!(Path::new(&path).is_file());
}
