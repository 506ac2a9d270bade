//! Weights that an exporter renamed, turned, cast, joined and cut are found by their elements, and
//! filled again.

use std::collections::BTreeMap;

use half::{bf16, f16};
use ndarray::{Array, ArrayD, Axis, IxDyn, Slice, concatenate};
use onnx_container::edit::{FillOptions, MatchOptions, WeightMapping};
use onnx_container::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use onnx_container::{
    Container, DataType, Error, ErrorKind, Initializer, MmapChoice, WeightSource,
};

use crate::support::{constant, floats, graph, model};

type Values = BTreeMap<String, ArrayD<f32>>;

/// Elements that look like those of a trained model, other ones for each name and seed.
fn random(name: &str, seed: u64, dims: &[usize]) -> ArrayD<f32> {
    let mut state = name.bytes().fold(seed ^ 0x9e37_79b9, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Array::from_shape_simple_fn(IxDyn(dims), || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    })
}

/// A checkpoint.
fn checkpoint(seed: u64) -> Values {
    let shapes: [(&str, &[usize]); 24] = [
        ("embed.weight", &[50, 16]),
        ("layers.0.attn.q.weight", &[16, 16]),
        ("layers.0.attn.k.weight", &[8, 16]),
        ("layers.0.attn.v.weight", &[8, 16]),
        ("layers.0.attn.q.bias", &[16]),
        ("layers.0.attn.k.bias", &[8]),
        ("layers.0.attn.v.bias", &[8]),
        ("layers.0.mlp.up.weight", &[40, 16]),
        ("layers.0.mlp.gate.weight", &[40, 16]),
        ("layers.1.attn.qkv.weight", &[48, 16]),
        ("layers.1.attn.qkv.bias", &[48]),
        ("conv.weight", &[6, 4, 3, 5]),
        ("experts.0.w", &[12, 16]),
        ("experts.1.w", &[12, 16]),
        ("experts.2.w", &[12, 16]),
        ("experts.3.w", &[12, 16]),
        ("experts.4.w", &[12, 16]),
        ("experts.5.w", &[12, 16]),
        ("experts.6.w", &[12, 16]),
        ("experts.7.w", &[12, 16]),
        ("experts.8.w", &[12, 16]),
        ("experts.9.w", &[12, 16]),
        ("experts.10.w", &[12, 16]),
        ("spare.weight", &[30, 2]),
    ];
    shapes.iter().map(|(name, dims)| ((*name).to_owned(), random(name, seed, dims))).collect()
}

fn initializers(values: &Values) -> Vec<(String, Initializer)> {
    values.iter().map(|(name, values)| (name.clone(), values.clone().into())).collect()
}

type Make = fn(&Values) -> ArrayD<f32>;

fn turned(values: &ArrayD<f32>) -> ArrayD<f32> {
    values.t().as_standard_layout().into_owned()
}

fn joined(parts: &[&ArrayD<f32>], axis: usize) -> ArrayD<f32> {
    let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
    concatenate(Axis(axis), &views).unwrap()
}

fn cut(values: &ArrayD<f32>, axis: usize, start: isize, end: isize) -> ArrayD<f32> {
    values.slice_axis(Axis(axis), Slice::from(start..end)).as_standard_layout().into_owned()
}

fn shaped(values: ArrayD<f32>, dims: &[usize]) -> ArrayD<f32> {
    values.to_shape(IxDyn(dims)).unwrap().into_owned()
}

fn permuted(values: &ArrayD<f32>, axes: &[usize]) -> ArrayD<f32> {
    values.clone().permuted_axes(IxDyn(axes)).as_standard_layout().into_owned()
}

/// What an exporter makes of weights: a name, the weights that it is made of, and how.
const FORMS: &[(&str, &[&str], Make)] = &[
    ("as it is", &["embed.weight"], |w| w["embed.weight"].clone()),
    ("transposed", &["layers.0.attn.q.weight"], |w| turned(&w["layers.0.attn.q.weight"])),
    ("transposed, not square", &["layers.0.mlp.up.weight"], |w| {
        turned(&w["layers.0.mlp.up.weight"])
    }),
    ("reshaped", &["layers.0.mlp.gate.weight"], |w| {
        shaped(w["layers.0.mlp.gate.weight"].clone(), &[5, 8, 16])
    }),
    ("flat", &["layers.0.mlp.gate.weight"], |w| {
        shaped(w["layers.0.mlp.gate.weight"].clone(), &[640])
    }),
    ("transposed and flat", &["layers.0.mlp.gate.weight"], |w| {
        shaped(turned(&w["layers.0.mlp.gate.weight"]), &[640])
    }),
    ("in heads", &["layers.0.attn.q.weight"], |w| {
        permuted(&shaped(w["layers.0.attn.q.weight"].clone(), &[4, 4, 16]), &[0, 2, 1])
    }),
    ("of four axes", &["conv.weight"], |w| permuted(&w["conv.weight"], &[2, 3, 1, 0])),
    ("of four axes, another order", &["conv.weight"], |w| {
        permuted(&w["conv.weight"], &[3, 0, 2, 1])
    }),
    (
        "fused",
        &["layers.0.attn.q.weight", "layers.0.attn.k.weight", "layers.0.attn.v.weight"],
        |w| {
            let parts = ["q", "k", "v"].map(|name| &w[&format!("layers.0.attn.{name}.weight")]);
            joined(&parts, 0)
        },
    ),
    (
        "fused and transposed",
        &["layers.0.attn.q.weight", "layers.0.attn.k.weight", "layers.0.attn.v.weight"],
        |w| {
            let parts = ["q", "k", "v"].map(|name| &w[&format!("layers.0.attn.{name}.weight")]);
            turned(&joined(&parts, 0))
        },
    ),
    (
        "fused in another order",
        &["layers.0.attn.v.bias", "layers.0.attn.q.bias", "layers.0.attn.k.bias"],
        |w| {
            let parts = ["v", "q", "k"].map(|name| &w[&format!("layers.0.attn.{name}.bias")]);
            joined(&parts, 0)
        },
    ),
    ("two, one after the other", &["layers.0.mlp.gate.weight", "layers.0.mlp.up.weight"], |w| {
        joined(&[&w["layers.0.mlp.gate.weight"], &w["layers.0.mlp.up.weight"]], 0)
    }),
    ("two, side by side", &["layers.0.mlp.up.weight", "layers.0.mlp.gate.weight"], |w| {
        joined(&[&w["layers.0.mlp.up.weight"], &w["layers.0.mlp.gate.weight"]], 1)
    }),
    (
        "stacked, in the order of their numbers",
        &[
            "experts.0.w",
            "experts.1.w",
            "experts.2.w",
            "experts.3.w",
            "experts.4.w",
            "experts.5.w",
            "experts.6.w",
            "experts.7.w",
            "experts.8.w",
            "experts.9.w",
            "experts.10.w",
        ],
        |w| {
            let parts: Vec<_> = (0..11).map(|n| turned(&w[&format!("experts.{n}.w")])).collect();
            shaped(joined(&parts.iter().collect::<Vec<_>>(), 0), &[11, 16, 12])
        },
    ),
    ("the first third", &["layers.1.attn.qkv.weight"], |w| {
        cut(&w["layers.1.attn.qkv.weight"], 0, 0, 16)
    }),
    ("the last third, transposed", &["layers.1.attn.qkv.weight"], |w| {
        turned(&cut(&w["layers.1.attn.qkv.weight"], 0, 32, 48))
    }),
    ("a slice that is no third", &["layers.1.attn.qkv.weight"], |w| {
        cut(&w["layers.1.attn.qkv.weight"], 0, 7, 20)
    }),
    ("columns", &["layers.1.attn.qkv.weight"], |w| cut(&w["layers.1.attn.qkv.weight"], 1, 8, 16)),
    ("a slice of one axis", &["layers.1.attn.qkv.bias"], |w| {
        cut(&w["layers.1.attn.qkv.bias"], 0, 16, 32)
    }),
    ("a slice of four axes", &["conv.weight"], |w| {
        permuted(&cut(&w["conv.weight"], 1, 1, 3), &[1, 2, 3, 0])
    }),
];

/// The bytes of a number as an element of one type.
type Round = fn(f32) -> Vec<u8>;

/// The element types that a tensor may have been cast to, and how a cast rounds.
const TYPES: &[(DataType, Round)] = &[
    (DataType::Float, |x| x.to_le_bytes().to_vec()),
    (DataType::Double, |x| f64::from(x).to_le_bytes().to_vec()),
    (DataType::Float16, |x| f16::from_f32(x).to_le_bytes().to_vec()),
    (DataType::Bfloat16, |x| bf16::from_f32(x).to_le_bytes().to_vec()),
];

fn bytes(values: &ArrayD<f32>, dtype: DataType) -> Vec<u8> {
    let cast = TYPES.iter().find(|(of, _)| *of == dtype).unwrap().1;
    values.iter().flat_map(|value| cast(*value)).collect()
}

fn tensor(name: &str, values: &ArrayD<f32>, dtype: DataType) -> TensorProto {
    let dims: Vec<_> = values.shape().iter().map(|dim| *dim as i64).collect();
    TensorProto::new(name, dtype, dims).with_raw_data(bytes(values, dtype))
}

/// A model of all forms, each in every type; some are external, some are in nodes of a branch.
fn exported(values: &Values) -> Container {
    let mut initializers = Vec::new();
    let mut inner = Vec::new();
    for (number, (_, _, make)) in FORMS.iter().enumerate() {
        for (dtype, _) in TYPES {
            let tensor = tensor(&format!("val_{number}_{dtype}"), &make(values), *dtype);
            match number % 3 {
                0 => inner.push(constant(&format!("val_{number}_{dtype}"), tensor)),
                _ => initializers.push(tensor),
            }
        }
    }
    let mut node = NodeProto::new("If", ["c"], ["y"]);
    node.name = Some("choice".into());
    node.attribute.push(AttributeProto::graph("then_branch", graph(vec![], inner)));
    let mut container = Container::new(model(graph(initializers, vec![node])));
    container.externalize(700).unwrap();
    container
}

fn mapped(container: &Container, values: &Values) -> WeightMapping {
    let mapping = container.match_weights(initializers(values), MatchOptions::new()).unwrap();
    // What is saved is what is used.
    WeightMapping::from_json(&mapping.to_json().unwrap()).unwrap()
}

#[test]
fn every_form_is_found_and_filled_with_other_weights() {
    let (old, new) = (checkpoint(1), checkpoint(2));
    let mut container = exported(&old);
    let mapping = mapped(&container, &old);
    assert_eq!(mapping.unused, ["spare.weight"]);
    assert!(mapping.unmatched.is_empty() && mapping.uniform.is_empty(), "{mapping:?}");
    assert_eq!(mapping.matched.len(), FORMS.len() * TYPES.len());
    for (number, (form, weights, _)) in FORMS.iter().enumerate() {
        for (dtype, _) in TYPES {
            let end = format!("val_{number}_{dtype}");
            let matched = mapping.matched.iter().find(|one| one.tensor.ends_with(&end)).unwrap();
            assert!(matched.source.weights().eq(weights.iter().copied()), "{form}: {matched:?}");
            assert!(matched.alternatives.is_empty(), "{form} {dtype}: {matched:#?}");
        }
    }
    let mut from_double = container.clone();
    let filled = container.fill_mapped(&mapping, initializers(&new), FillOptions::new()).unwrap();
    assert_eq!(
        (filled.filled, filled.unused.as_slice()),
        (mapping.matched.len(), &["spare.weight".to_owned()][..])
    );
    let doubles = new.iter().map(|(name, values)| (name.clone(), values.mapv(f64::from).into()));
    from_double.fill_mapped(&mapping, doubles, FillOptions::new()).unwrap();
    let expected = exported(&new);
    for (found, expected) in container.tensors().zip(expected.tensors()) {
        let name = expected.name();
        let wanted = expected.tensor().unwrap();
        assert!(found.tensor().unwrap().as_bytes() == wanted.as_bytes(), "{name}");
        let found = from_double.tensor(name).unwrap();
        assert!(found.as_bytes() == wanted.as_bytes(), "{name} from doubles");
    }
    // A save reads in pieces.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container.save(&path, true).unwrap();
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    for (found, expected) in loaded.tensors().zip(expected.tensors()) {
        let wanted = expected.tensor().unwrap();
        assert!(found.tensor().unwrap().as_bytes() == wanted.as_bytes(), "{}", found.name());
    }
}

/// A source whose bytes are in no one piece of memory.
struct Far(ArrayD<f32>, Vec<i64>, bool);

impl WeightSource for Far {
    fn dtype(&self) -> DataType {
        DataType::Float
    }

    fn dims(&self) -> &[i64] {
        &self.1
    }

    fn byte_len(&self) -> u64 {
        self.0.len() as u64 * 4
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let bytes = bytes(&self.0, DataType::Float);
        out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
        Ok(())
    }

    fn is_lazy(&self) -> bool {
        self.2
    }
}

#[test]
fn weights_that_are_no_slice_of_memory_are_matched_and_filled_as_well() {
    let (old, new) = (checkpoint(1), checkpoint(2));
    let far = |values: &Values, lazy| {
        let each = values.iter().map(move |(name, values)| {
            let dims = values.shape().iter().map(|dim| *dim as i64).collect();
            let source = Far(values.clone(), dims, lazy);
            (name.clone(), Initializer::from_source(source).unwrap())
        });
        each.collect::<Vec<_>>()
    };
    let container = exported(&old);
    let expected = mapped(&container, &old);
    let filled = exported(&new);
    for lazy in [false, true] {
        let mapping = container.match_weights(far(&old, lazy), MatchOptions::new()).unwrap();
        assert_eq!(mapping, expected);
        let mut container = container.clone();
        container.fill_mapped(&mapping, far(&new, lazy), FillOptions::new()).unwrap();
        for (found, expected) in container.tensors().zip(filled.tensors()) {
            let wanted = expected.tensor().unwrap();
            assert!(found.tensor().unwrap().as_bytes() == wanted.as_bytes(), "{}", found.name());
        }
    }
}

#[test]
fn what_differs_in_one_element_is_no_match() {
    let old = checkpoint(1);
    for (number, (form, _, make)) in FORMS.iter().enumerate() {
        let mut values = make(&old);
        let (first, last) = (0, values.len() - 1);
        for at in [first, last / 2, last] {
            let element = values.iter_mut().nth(at).unwrap();
            *element = f32::from_bits(element.to_bits() ^ 1);
            let container =
                Container::new(model(graph(vec![tensor("val", &values, DataType::Float)], vec![])));
            let mapping = mapped(&container, &old);
            assert_eq!(mapping.unmatched, ["val"], "{number} {form} {at}: {mapping:?}");
            let element = values.iter_mut().nth(at).unwrap();
            *element = f32::from_bits(element.to_bits() ^ 1);
        }
        // Two elements that changed their places: the fingerprint is the same.
        let elements: Vec<f32> = values.iter().copied().collect();
        let other = elements.iter().position(|element| *element != elements[0]).unwrap();
        let mut swapped = elements.clone();
        swapped.swap(0, other);
        let swapped = ArrayD::from_shape_vec(values.raw_dim(), swapped).unwrap();
        let weights = vec![tensor("val", &swapped, DataType::Float)];
        let mapping = mapped(&Container::new(model(graph(weights, vec![]))), &old);
        assert_eq!(mapping.unmatched, ["val"], "{form}: {mapping:?}");
    }
}

#[test]
fn what_content_does_not_tell_is_said() {
    let twice = |seed| {
        let mut values = checkpoint(seed);
        values.insert("head.weight".into(), values["embed.weight"].clone());
        values.insert("norm.weight".into(), Array::ones(IxDyn(&[16])));
        values.insert("other.weight".into(), Array::ones(IxDyn(&[16])));
        values
    };
    let old = twice(1);
    let weights = vec![
        tensor("val_0", &old["embed.weight"], DataType::Float),
        tensor("norm.weight", &old["norm.weight"], DataType::Float),
        tensor("val_1", &old["other.weight"], DataType::Float),
        tensor("val_2", &random("derived", 1, &[20]), DataType::Float),
        tensor("val_3", &random("few", 1, &[7]), DataType::Float),
        TensorProto::new("val_4", DataType::Int64, [20]).with_raw_data(vec![7; 160]),
    ];
    let container = Container::new(model(graph(weights, vec![])));
    let mapping = mapped(&container, &old);
    assert_eq!(mapping.uniform, ["val_1"]);
    assert_eq!(mapping.unmatched, ["val_2"]);
    assert_eq!(mapping.skipped, ["val_3", "val_4"]);
    let matched = mapping.get("val_0").unwrap();
    assert_eq!(matched.source.weights().collect::<Vec<_>>(), ["embed.weight"]);
    assert_eq!(matched.alternatives.len(), 1);
    assert_eq!(matched.alternatives[0].weights().collect::<Vec<_>>(), ["head.weight"]);
    assert_eq!(mapping.get("norm.weight").unwrap().alternatives, []);

    // The twins are still equal: either will do.
    let filled =
        container.clone().fill_mapped(&mapping, initializers(&twice(2)), FillOptions::new());
    let filled = filled.unwrap();
    assert_eq!(filled.kept, ["val_1", "val_2"]);
    // They are not: nobody knows which is meant.
    let mut parted = twice(2);
    parted.insert("head.weight".into(), random("head", 2, &[50, 16]));
    let refused =
        container.clone().fill_mapped(&mapping, initializers(&parted), FillOptions::new());
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::InvalidArgument, Some("val_0")));
    // Who knows says so.
    let mut said = mapping.clone();
    said.matched[0].source = said.matched[0].alternatives.remove(0);
    let mut container = container;
    container.fill_mapped(&said, initializers(&parted), FillOptions::new()).unwrap();
    let found = container.tensor("val_0").unwrap();
    assert_eq!(found.view::<f32>().unwrap(), parted["head.weight"]);
}

/// What cannot be filled.
#[test]
fn what_does_not_fit_a_mapping_is_refused_and_nothing_is_changed() {
    let old = checkpoint(1);
    let container = exported(&old);
    let mapping = mapped(&container, &old);
    let name = "layers.0.attn.q.weight".to_owned();
    let mut missing = old.clone();
    missing.remove(&name);
    let mut longer = old.clone();
    longer.insert(name.clone(), random("q", 1, &[17, 16]));
    let integers = initializers(&old).into_iter().map(|(name, weights)| {
        let count = (weights.byte_len() / 4) as usize;
        let dims = weights.dims().to_vec();
        let zeros =
            onnx_container::Tensor::new(DataType::Int32, dims, vec![0; 4 * count].into()).unwrap();
        (name, Initializer::from(zeros))
    });
    let strict = FillOptions::new().strict(true);
    let other = Container::new(model(graph(vec![floats("w", 0, 4)], vec![])));
    let mut reshaped = mapping.clone();
    reshaped.matched[0].dims = vec![1];
    let cases: Vec<(&str, &Container, &WeightMapping, Vec<_>, FillOptions, ErrorKind)> = vec![
        (
            "missing",
            &container,
            &mapping,
            initializers(&missing),
            FillOptions::new(),
            ErrorKind::MissingTensor,
        ),
        (
            "longer",
            &container,
            &mapping,
            initializers(&longer),
            FillOptions::new(),
            ErrorKind::Shape,
        ),
        (
            "integers",
            &container,
            &mapping,
            integers.collect(),
            FillOptions::new(),
            ErrorKind::DataType,
        ),
        ("left over", &container, &mapping, initializers(&old), strict, ErrorKind::InvalidArgument),
        (
            "other model",
            &other,
            &mapping,
            initializers(&old),
            FillOptions::new(),
            ErrorKind::MissingTensor,
        ),
        (
            "other form",
            &container,
            &reshaped,
            initializers(&old),
            FillOptions::new(),
            ErrorKind::Shape,
        ),
    ];
    for (case, container, mapping, weights, options, kind) in cases {
        let mut changed = container.clone();
        let error = changed.fill_mapped(mapping, weights, options).unwrap_err();
        assert!(error.has(kind), "{case}: {error}");
        assert_eq!(changed.digest().unwrap(), container.digest().unwrap(), "{case}");
    }
    let twice = [("w", 1.0_f32), ("w", 2.0)].map(|(name, x)| (name.to_owned(), vec![x; 8].into()));
    let error = container.match_weights(twice, MatchOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_mapping_that_says_what_cannot_be_is_refused() {
    let old = checkpoint(1);
    let container = exported(&old);
    let json = mapped(&container, &old).to_json().unwrap();
    let wrong = [
        ("", ErrorKind::Decode),
        ("{}", ErrorKind::Decode),
        (&json.replace("onnx-container.weight-mapping", "another"), ErrorKind::Decode),
        (&json.replace("\"version\": 1", "\"version\": 2"), ErrorKind::Unsupported),
        (&json.replace("\"FLOAT16\"", "\"FLOAT15\""), ErrorKind::Decode),
        (&json.replace("\"matched\"", "\"matches\""), ErrorKind::Decode),
    ];
    for (text, kind) in wrong {
        assert_eq!(WeightMapping::from_json(text).unwrap_err().kind(), kind);
    }
    // Of the right form, and about what there is not.
    let changes: [fn(&mut WeightMapping); 7] = [
        |m| m.matched[0].source.parts[0].shape = vec![i64::MAX, i64::MAX],
        |m| m.matched[0].source.parts[0].shape = vec![-1],
        |m| m.matched[0].source.parts[0].permutation = vec![0, 0],
        |m| m.matched[0].source.parts[0].permutation = vec![9],
        |m| m.matched[0].source.parts.clear(),
        |m| {
            let part = m.matched[0].source.parts[0].clone();
            m.matched[0].source.parts.push(part);
        },
        |m| {
            let cut = m.matched.iter_mut().find_map(|one| one.source.parts[0].slice.as_mut());
            cut.unwrap().start = i64::MAX;
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut mapping = WeightMapping::from_json(&json).unwrap();
        change(&mut mapping);
        let mut changed = container.clone();
        let filled = changed.fill_mapped(&mapping, initializers(&old), FillOptions::new());
        assert!(filled.is_err(), "{number}");
        assert_eq!(changed.digest().unwrap(), container.digest().unwrap());
    }
}

#[test]
fn the_json_of_a_mapping_is_as_documented() {
    let q = random("q", 1, &[3, 4]);
    let weights = vec![tensor("val_1", &turned(&cut(&q, 0, 1, 3)), DataType::Float16)];
    let mut graph = GraphProto::new("g");
    graph.initializer = weights;
    let container = Container::new(ModelProto::new(graph));
    let weights = [("q.weight".to_owned(), Initializer::from(q))];
    let json = container.match_weights(weights, MatchOptions::new()).unwrap().to_json().unwrap();
    let page = include_str!("../../docs/safetensors.md");
    assert!(page.contains(&format!("```json\n{json}\n```")), "docs/safetensors.md has no\n{json}");
}
