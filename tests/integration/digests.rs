//! The digest of a model's content: what leaves it as it is, what changes it, and what it is made
//! of.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::digest::{ContentDigest, SemanticDigest};
use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{
    AttributeProto, Message, ModelProto, Packed, StringStringEntryProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{
    Buffer, Container, DataType, ErrorKind, Initializer, LoadOptions, MmapChoice, Result,
    SaveOptions, Tensor, WeightFiles, WeightSource, traversal,
};
use sha2::{Digest, Sha256};

use crate::support::{
    LAYOUTS, both_choices, constant, floats, graph, int64s, model, node, tensors_everywhere,
};

fn digest(model: &ModelProto) -> String {
    Container::new(model.clone()).digest().unwrap().to_string()
}

/// The digest as docs/digests.md defines it, from a message whose tensors are inline, without the
/// code under test.
fn as_defined(model: &ModelProto) -> String {
    let mut model = model.clone();
    let not_ours = |entry: &StringStringEntryProto| {
        entry.key.as_ref().is_none_or(|key| *key != "onnx_container.sha256")
    };
    model.metadata_props.retain(not_ours);
    traversal::tensors_mut(&mut model, |_, tensor| {
        let elements = Tensor::try_from(&*tensor)?;
        let mut bytes = Sha256::new();
        match elements.strings() {
            Some(strings) => strings.iter().for_each(|text| {
                bytes.update((text.len() as u64).to_le_bytes());
                bytes.update(text);
            }),
            None => bytes.update(elements.as_bytes().unwrap()),
        }
        let mut whole = Sha256::new_with_prefix("onnx-container/tensor/1\0");
        whole.update(i64::from(elements.dtype().number()).to_le_bytes());
        whole.update((tensor.dims.len() as u64).to_le_bytes());
        tensor.dims.iter().for_each(|dim| whole.update(dim.to_le_bytes()));
        whole.update(bytes.finalize());
        let (name, doc) = (tensor.name.clone(), tensor.doc_string.clone());
        let mut metadata = tensor.metadata_props.clone();
        metadata.retain(not_ours);
        let unknown = tensor.unknown.clone();
        let mut new = TensorProto::default();
        (new.dims, new.data_type) = (tensor.dims.clone(), tensor.data_type);
        (new.name, new.doc_string, new.metadata_props, new.unknown) =
            (name, doc, metadata, unknown);
        new.external_data = tensor.external_data.clone();
        new.raw_data = Some(whole.finalize().to_vec().into());
        *tensor = new;
        Ok(())
    })
    .unwrap();
    let mut whole = Sha256::new_with_prefix("onnx-container/content/1\0");
    whole.update(model.encode_to_vec().unwrap());
    format!("sha256:{:x}", whole.finalize())
}

/// The encoded message, and a record behind it.
fn joined(message: &impl Message, record: &[u8]) -> Buffer {
    [&message.encode_to_vec().unwrap(), record].concat().into()
}

/// A tensor in every place, strings and narrow elements among them.
pub fn everything() -> ModelProto {
    let mut model = tensors_everywhere();
    let main = model.graph.as_mut().unwrap();
    let mut texts = TensorProto::new("texts", TensorProto::STRING, [2]);
    *texts.string_data = vec![Buffer::from(&b"a"[..]), Buffer::from(&b"bc"[..])];
    main.initializer.push(texts);
    main.initializer.push(TensorProto::new("empty", TensorProto::FLOAT, [0]));
    let narrow = TensorProto::new("narrow", TensorProto::INT4, [3]).with_raw_data(vec![0x21, 0xf3]);
    main.initializer.push(narrow);
    let mut metadata = floats("described", 0, 700);
    metadata.doc_string = Some(Box::new("what it is".into()));
    metadata.metadata_props.push(StringStringEntryProto::new("key", "value"));
    main.initializer.push(metadata);
    model
}

#[test]
fn it_is_what_the_page_defines() {
    let models = [model(graph(vec![], vec![])), tensors_everywhere(), everything()];
    for model in models {
        assert_eq!(digest(&model), as_defined(&model));
    }
    assert_ne!(digest(&tensors_everywhere()), digest(&everything()));
}

#[test]
fn every_layout_has_the_same() {
    let model = everything();
    let expected = digest(&model);
    let mut container = Container::new(model.clone());
    container.externalize(ExternalizeOptions::new().min_bytes(1).all_tensors(true)).unwrap();
    assert!(container.len() > 15);
    assert_eq!(container.digest().unwrap().to_string(), expected);
    let folder = tempfile::tempdir().unwrap();
    let layouts = LAYOUTS.into_iter();
    #[cfg(feature = "safetensors")]
    let layouts = layouts.chain([onnx_container::WeightFiles::Safetensors]);
    for (i, layout) in layouts.enumerate() {
        let path = folder.path().join(format!("{i}.onnx"));
        container.save(&path, SaveOptions::from(layout)).unwrap();
        for choice in both_choices() {
            let loaded = Container::load(&path, choice).unwrap();
            assert_eq!(loaded.digest().unwrap().to_string(), expected, "{layout:?}");
        }
    }
    let all = container.digest().unwrap();
    let names: Vec<_> =
        all.tensors().iter().map(onnx_container::digest::TensorDigest::name).collect();
    assert_eq!(&names[..3], ["w", "texts", "empty"]);
    assert_eq!(all.tensors().len(), traversal::iter(&model).count());
}

#[test]
fn typed_fields_count_as_the_bytes_that_they_hold() {
    let new = |kind: i32, dims: &[i64]| TensorProto::new("t", kind, dims);
    let mut cases = Vec::new();
    let mut typed = new(TensorProto::FLOAT, &[2]);
    *typed.float_data = Packed::from(vec![1.5_f32, -2.0]);
    cases.push((typed, [1.5_f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect()));
    let mut typed = new(TensorProto::DOUBLE, &[1]);
    *typed.double_data = Packed::from(vec![0.25_f64]);
    cases.push((typed, 0.25_f64.to_le_bytes().to_vec()));
    let mut typed = new(TensorProto::INT64, &[1]);
    *typed.int64_data = Packed::from(vec![-3_i64]);
    cases.push((typed, (-3_i64).to_le_bytes().to_vec()));
    let mut typed = new(TensorProto::UINT32, &[1]);
    *typed.uint64_data = Packed::from(vec![9_u64]);
    cases.push((typed, vec![9, 0, 0, 0]));
    for (kind, values, bytes) in [
        (TensorProto::INT32, vec![-1], vec![255; 4]),
        (TensorProto::FLOAT16, vec![0x3c00], vec![0, 0x3c]),
        (TensorProto::INT8, vec![-2], vec![254]),
        (TensorProto::BOOL, vec![1], vec![1]),
        (TensorProto::INT4, vec![0x0f], vec![0x0f]),
    ] {
        let mut typed = new(kind, &[1]);
        *typed.int32_data = Packed::from(values);
        cases.push((typed, bytes));
    }
    for (typed, bytes) in cases {
        let mut raw = new(typed.data_type.unwrap(), &typed.dims);
        raw.raw_data = Some(bytes.into());
        raw.data_location = Some(TensorProto::DEFAULT);
        let [typed, raw] = [typed, raw].map(|tensor| model(graph(vec![tensor], vec![])));
        assert_eq!(digest(&typed), digest(&raw));
        assert_eq!(digest(&raw), as_defined(&raw));
    }
}

#[test]
fn storage_does_not_count() {
    let plain = model(graph(vec![floats("w", 0, 4)], vec![]));
    let expected = digest(&plain);
    // Handles, entries of external data.
    for handle in ["#w", "#another"] {
        let mut external = TensorProto::external("w", TensorProto::FLOAT, [4], handle);
        external.external_data.push(StringStringEntryProto::new("checksum", "00"));
        let mut container = Container::new(model(graph(vec![external], vec![])));
        container.insert(handle, vec![0.0_f32, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(container.digest().unwrap().to_string(), expected);
    }
    let mut changed = plain.clone();
    let tensor = &mut changed.graph.as_mut().unwrap().initializer[0];
    // Digests that are stored with tensors and models.
    let stored = || StringStringEntryProto::new("onnx_container.sha256", "00");
    tensor.metadata_props.push(stored());
    changed.metadata_props.push(stored());
    assert_eq!(digest(&changed), expected);
    // The order of fields, and two records of one message.
    let mut opsets = ModelProto::default();
    opsets.opset_import = plain.opset_import.clone();
    let mut rest = plain.clone();
    rest.opset_import.clear();
    let bytes = [opsets.encode_to_vec().unwrap(), rest.encode_to_vec().unwrap()].concat();
    assert_ne!(bytes, plain.encode_to_vec().unwrap());
    let other = Container::load_bytes(bytes, LoadOptions::new()).unwrap();
    assert_eq!(other.digest().unwrap().to_string(), expected);
}

/// A value that the enum does not have is none for every reader of ONNX, so that a tensor stays
/// external.
#[test]
fn a_tensor_is_external_for_all_readers_or_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let inline = floats("w", 1, 4);
    let mut external = inline.clone();
    let entries = [("location", "evil.bin"), ("offset", "0"), ("length", "16")];
    external.external_data =
        entries.map(|(key, value)| StringStringEntryProto::new(key, value)).to_vec();
    let load = |tensor: &TensorProto, records: &[u8]| {
        let tensor = TensorProto::decode(&joined(tensor, records)).unwrap();
        let model = model(graph(vec![tensor], vec![]));
        std::fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
        Container::load(&path, MmapChoice::never()).map(|container| container.digest().unwrap())
    };
    let signed = load(&inline, &[]).unwrap();
    std::fs::write(folder.path().join("evil.bin"), [6; 16]).unwrap();
    // Its own elements and those of a file: what readers take may differ.
    let error = load(&external, &[0x70, 1, 0x70, 2]).unwrap_err();
    assert!(error.to_string().contains("both external and inline data"), "{error}");
    for records in [&[0x70, 2, 0x70, 0][..], &[0x70, 0], &[0x70, 2]] {
        assert_ne!(load(&external, records).unwrap(), signed);
    }
    external.raw_data = None;
    let found = load(&external, &[0x70, 1, 0x70, 2]).unwrap();
    assert_ne!(found, signed);
    let container = Container::load(&path, MmapChoice::never()).unwrap();
    assert_eq!(container.tensor("w").unwrap().as_bytes().unwrap(), [6; 16]);
}

#[test]
fn everything_else_counts() {
    let plain = everything();
    let mut seen = HashMap::from([(digest(&plain), "unchanged")]);
    let mut change = |name: &'static str, f: &dyn Fn(&mut ModelProto)| {
        let mut changed = plain.clone();
        f(&mut changed);
        assert_eq!(seen.insert(digest(&changed), name), None, "{name}");
    };
    change("producer", &|m| m.producer_name = Some("another".into()));
    change("metadata", &|m| m.metadata_props.push(StringStringEntryProto::new("a", "b")));
    change("opset", &|m| m.opset_import[0].version = Some(20));
    change("function", &|m| m.functions[0].name = Some("another".into()));
    change("input", &|m| {
        m.graph.as_mut().unwrap().input.push(ValueInfoProto::tensor("x", 1, [2]));
    });
    change("order of nodes", &|m| m.graph.as_mut().unwrap().node.reverse());
    change("order of tensors", &|m| m.graph.as_mut().unwrap().initializer.reverse());
    change("documentation", &|m| {
        m.graph.as_mut().unwrap().node[0].doc_string = Some("new".into());
    });
    let tensor = |m: &mut ModelProto, f: &dyn Fn(&mut TensorProto)| {
        f(&mut m.graph.as_mut().unwrap().initializer[0]);
    };
    change("name", &|m| tensor(m, &|t| t.name = Some("another".into())));
    change("type", &|m| tensor(m, &|t| t.data_type = Some(TensorProto::INT32)));
    change("dims", &|m| tensor(m, &|t| t.dims = vec![2, 4]));
    change("tensor's documentation", &|m| {
        tensor(m, &|t| t.doc_string = Some(Box::new("x".into())))
    });
    change("tensor's metadata", &|m| {
        tensor(m, &|t| t.metadata_props.push(StringStringEntryProto::new("a", "b")));
    });
    change("entries of a tensor that is not external", &|m| {
        tensor(m, &|t| t.external_data.push(StringStringEntryProto::new("location", "left over")));
    });
    change("a data_location that is none", &|m| {
        tensor(m, &|t| *t = TensorProto::decode(&joined(t, &[0x70, 2])).unwrap());
    });
    change("the type of an attribute that is none", &|m| {
        let attribute = &mut m.graph.as_mut().unwrap().node[0].attribute[0];
        *attribute = AttributeProto::decode(&joined(attribute, &[0xa0, 1, 99])).unwrap();
    });
    change("an unknown field", &|m| {
        *m = ModelProto::decode(&joined(m, &[0xa0, 0x3f, 1])).unwrap();
    });
    // A byte of each tensor, wherever it is.
    for at in 0..traversal::iter(&plain).count() {
        let mut changed = plain.clone();
        let (_, tensor) = traversal::iter_mut(&mut changed).nth(at).unwrap();
        let Some(raw) = &mut tensor.raw_data else { continue };
        let mut bytes = raw.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        *raw = bytes.into();
        assert_eq!(seen.insert(digest(&changed), "a byte"), None, "tensor {at}");
    }
    // The bits behind the last element of a narrow type are bytes as all others.
    let mut changed = plain.clone();
    changed.graph.as_mut().unwrap().initializer[3].raw_data = Some(vec![0x21, 0x03].into());
    assert_eq!(seen.insert(digest(&changed), "padding"), None);
}

/// A source that is only read in parts, and counts the bytes.
struct Parts {
    dims: [i64; 1],
    read: Arc<AtomicUsize>,
}

impl WeightSource for Parts {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.dims[0] as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        assert!(out.len() <= 1 << 20);
        self.read.fetch_add(out.len(), Ordering::Relaxed);
        out.iter_mut().zip(offset..).for_each(|(byte, i)| *byte = (i % 251) as u8);
        Ok(())
    }
}

#[test]
fn sources_are_read_in_parts_and_once() {
    let len = 3_500_000_usize;
    let bytes: Vec<_> = (0..len).map(|i| (i % 251) as u8).collect();
    let inline = |name: &str, dims: &[i64]| {
        TensorProto::new(name, TensorProto::UINT8, dims).with_raw_data(bytes.clone())
    };
    let both = vec![inline("a", &[len as i64]), inline("b", &[1, len as i64])];
    let expected = digest(&model(graph(both, vec![])));
    let read = Arc::new(AtomicUsize::new(0));
    let source = Parts { dims: [len as i64], read: read.clone() };
    let shared = Initializer::from_source(source).unwrap();
    let lazy = {
        let bytes = bytes.clone();
        let make = move || Ok(Buffer::from(bytes.clone()));
        Initializer::lazy(DataType::Uint8, [len as i64], make).unwrap()
    };
    for (a, b, times) in [(shared.clone(), shared, 1), (lazy.clone(), lazy, 0)] {
        read.store(0, Ordering::Relaxed);
        let external = |name, dims: &[i64]| {
            TensorProto::external(name, TensorProto::UINT8, dims, format!("#{name}"))
        };
        let tensors = vec![external("a", &[len as i64]), external("b", &[1, len as i64])];
        let mut container = Container::new(model(graph(tensors, vec![])));
        container.insert("#a", a).unwrap();
        container.insert("#b", b).unwrap();
        assert_eq!(container.digest().unwrap().to_string(), expected);
        assert_eq!(read.load(Ordering::Relaxed), times * len);
    }
}

#[test]
fn what_has_no_elements_has_no_digest() {
    let missing = |name: &str| TensorProto::external(name, TensorProto::FLOAT, [2], "#gone");
    let short = TensorProto::new("short", TensorProto::FLOAT, [2]).with_raw_data(vec![0; 4]);
    let nodes = vec![constant("c", short), node("Neg", &["c"], &["y"], vec![])];
    let broken = model(graph(vec![missing("a"), int64s("good", &[1]), missing("b")], nodes));
    let error = Container::new(broken).digest().unwrap_err();
    let kinds: Vec<_> = error.related().iter().map(|e| (e.tensor(), e.kind())).collect();
    let missing = ErrorKind::MissingHandle;
    let expected = [("a", missing), ("b", missing), ("short", ErrorKind::Shape)];
    assert_eq!(kinds, expected.map(|(name, kind)| (Some(name), kind)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut container = Container::new(everything());
    container.externalize(ExternalizeOptions::new()).unwrap();
    container.save(&path, true).unwrap();
    let bare = LoadOptions::from(MmapChoice::never()).weights(false);
    let error = Container::load(&path, bare).unwrap().digest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingHandle);
}

#[test]
fn digests_are_parsed_hashed_and_expected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut container = Container::new(model(graph(
        vec![TensorProto::external("w", TensorProto::FLOAT, [2], "#w")],
        vec![],
    )));
    container.insert("#w", vec![1.0_f32, 2.0]).unwrap();
    container.save(&path, WeightFiles::Packed).unwrap();
    let digest = container.digest().unwrap();

    let parsed: ContentDigest = digest.to_string().parse().unwrap();
    assert_eq!(parsed, digest);
    assert!(parsed.tensors().is_empty() && digest.tensors().len() == 1);
    assert!(HashSet::from([digest.clone()]).contains(&parsed));
    let upper = digest.to_string().to_ascii_uppercase().replace("SHA256", "sha256");
    assert_eq!(upper.parse::<ContentDigest>().unwrap(), digest);
    let semantic = container.semantic_digest().unwrap();
    let parsed: SemanticDigest = semantic.to_string().parse().unwrap();
    assert!(HashSet::from([semantic]).contains(&parsed));
    let digits = "0f".repeat(32);
    for wrong in ["", "sha256:", &digits, &format!("sha512:{digits}"), &format!("sha256:{digits}0")]
    {
        for error in [wrong.parse::<ContentDigest>().err(), wrong.parse::<SemanticDigest>().err()] {
            assert_eq!(error.unwrap().kind(), ErrorKind::InvalidArgument, "{wrong}");
        }
    }

    let other: ContentDigest = format!("sha256:{digits}").parse().unwrap();
    for mmap in both_choices() {
        let expecting =
            |digest: &ContentDigest| LoadOptions::from(mmap).expect_digest(digest.clone());
        let loaded = Container::load(&path, expecting(&digest)).unwrap();
        assert_eq!(loaded.digest().unwrap(), digest);
        let error = Container::load(&path, expecting(&other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongDigest);
        assert!(error.to_string().contains(&digest.to_string()), "{error}");
        let outline = expecting(&digest).weights(false);
        let error = Container::load(&path, outline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);

        let bare = Container::load(&path, LoadOptions::from(mmap).weights(false)).unwrap();
        let (mut right, mut wrong) = (bare.clone(), bare);
        right.attach(folder.path(), expecting(&digest)).unwrap();
        let error = wrong.attach(folder.path(), expecting(&other)).unwrap_err();
        assert_eq!((error.kind(), wrong.len()), (ErrorKind::WrongDigest, 0));
    }
}
