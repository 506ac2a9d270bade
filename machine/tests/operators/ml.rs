//! Operators of `ai.onnx.ml`: scores and labels as onnxruntime 1.32.0 has them, and attributes that
//! do not fit each other.

use onnx_container::proto::AttributeProto;
use onnx_container::{Buffer, DataType, Tensor};
use onnx_container_machine::{ErrorKind, Map, Result, Type, Value, data};

use crate::support::{output, outputs, tensor};

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto::ints(name, values)
}

fn floats(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto::floats(name, values)
}

fn strings(name: &str, values: &[&str]) -> AttributeProto {
    AttributeProto::strings(name, values.to_vec())
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto::string(name, value)
}

fn words(dims: impl Into<Vec<i64>>, words: &[&str]) -> Value {
    let words = words.iter().map(|word| Buffer::from(word.as_bytes().to_vec())).collect();
    Tensor::from_strings(dims, words).unwrap().into()
}

/// Whether both are the same, floats within a millionth.
fn assert_near(found: &Value, expected: &[f64], what: &str) {
    let found: Vec<f64> = match found.tensor().unwrap().dtype() {
        DataType::Float => {
            let all = found.tensor().unwrap().to_slice::<f32>().unwrap();
            all.iter().map(|x| f64::from(*x)).collect()
        }
        _ => {
            let all = found.tensor().unwrap().to_slice::<i64>().unwrap();
            all.iter().map(|x| f64::from(i32::try_from(*x).unwrap())).collect()
        }
    };
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}");
    for (a, b) in found.iter().zip(expected) {
        let is_same = (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() < 2e-6;
        assert!(is_same, "{what}: {found:?}, not {expected:?}");
    }
}

/// The attributes of a tree of one node, which asks whether feature 0 is at most 0, and two leaves
/// with these weights of `ids`: the first half belongs to the leaf of the rows that pass.
fn stump(prefix: &str, ids: &[i64], weights: &[f32]) -> Vec<AttributeProto> {
    let half = ids.len().div_ceil(2);
    let leaves: Vec<i64> = (0..ids.len()).map(|i| if i < half { 1 } else { 2 }).collect();
    vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[0, 0, 0]),
        strings("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        floats("nodes_values", &[0.0, 0.0, 0.0]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints(&format!("{prefix}_treeids"), &vec![0; ids.len()]),
        ints(&format!("{prefix}_nodeids"), &leaves),
        ints(&format!("{prefix}_ids"), ids),
        floats(&format!("{prefix}_weights"), weights),
    ]
}

/// A row for each leaf of a [`stump`].
fn two_rows() -> Value {
    tensor([2, 1], &[-1.0_f32, 1.0])
}

#[test]
fn one_score_of_two_classes_becomes_two() {
    type Case = (&'static [i64], &'static [f32], &'static [f32], &'static str, [i64; 2], [f64; 4]);
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let cases: [Case; 18] = [
        (&[0, 0], &[0.3, 0.7], &[], "NONE", [10, 20], [0.7, 0.3, 0.3, 0.7]),
        (&[0, 0], &[0.3, 0.7], &[0.1], "NONE", [10, 20], [0.6, 0.4, 0.2, 0.8]),
        (&[0, 0], &[0.3, 0.7], &[0.1, 0.25], "NONE", [10, 20], [0.4, 0.0, 0.8, 0.0]),
        (&[1, 1], &[0.3, 0.7], &[0.1], "NONE", [10, 20], [0.0, 0.3, 0.0, 0.7]),
        (&[1, 1], &[0.3, 0.7], &[0.1, 0.25], "NONE", [10, 10], [0.0, 0.25, 0.0, 0.25]),
        (&[0, 0], &[-0.3, 0.7], &[], "NONE", [10, 20], [0.3, -0.3, -0.7, 0.7]),
        (&[0, 0], &[-0.3, 0.7], &[], "SOFTMAX", [10, 20], [0.3, -0.3, -0.7, 0.7]),
        (
            &[0, 0],
            &[0.3, 0.7],
            &[],
            "LOGISTIC",
            [10, 20],
            [0.425_557_5, 0.574_442_5, 0.331_812_26, 0.668_187_74],
        ),
        (&[1, 1], &[-0.3, 0.7], &[], "LOGISTIC", [10, 20], [0.5, 0.425_557_5, 0.5, 0.668_187_74]),
        (&[0, 1, 0, 1], &[0.3, 0.7, 0.6, 0.4], &[], "NONE", [1, 1], [0.3, 0.7, 0.6, 0.4]),
        (&[0, 1, 0, 1], &[0.3, -0.7, 0.6, -0.4], &[], "NONE", [0, 0], [0.3, -0.7, 0.6, -0.4]),
        (
            &[0, 1, 0, 1],
            &[0.3, 0.7, 0.6, 0.4],
            &[0.1, 0.25],
            "NONE",
            [1, 1],
            [-0.55, 0.55, -0.85, 0.85],
        ),
        (&[0, 1], &[0.3, 0.7], &[], "NONE", [1, 1], [-0.3, 0.3, 0.0, 0.7]),
        (&[0, 1], &[0.3, 0.7], &[0.1], "NONE", [1, 1], [0.4, 0.0, 0.0, 0.7]),
        (
            &[0, 1, 0, 1],
            &[0.3, 0.7, 0.6, 0.4],
            &[],
            "SOFTMAX",
            [1, 1],
            [0.401_312_32, 0.598_687_65, 0.549_834, 0.450_166],
        ),
        (&[1, 1], &[0.3, 0.7], &[], "SOFTMAX_ZERO", [10, 20], [0.0, 1.0, 0.0, 1.0]),
        (&[1, 1], &[-0.3, 0.7], &[], "PROBIT", [10, 20], [-inf, nan, -inf, 0.524_445_9]),
        (&[0, 0], &[0.3, 0.7], &[], "PROBIT", [10, 20], [-0.524_445_9, 0.0, 0.524_445_9, 0.0]),
    ];
    for (ids, weights, base, post, labels, scores) in cases {
        let mut attributes = stump("class", ids, weights);
        attributes.extend([text("post_transform", post), ints("classlabels_int64s", &[10, 20])]);
        attributes.extend((!base.is_empty()).then(|| floats("base_values", base)));
        let found =
            outputs(("ai.onnx.ml::TreeEnsembleClassifier", 3), &attributes, &[two_rows()], 2);
        let (what, found) = (format!("{ids:?} {weights:?} {base:?} {post}"), found.unwrap());
        assert_eq!(found[0], tensor([2], &labels), "{what}");
        assert_near(&found[1], &scores, &what);
    }
}

#[test]
fn targets_are_aggregated_and_transformed() {
    type Case = (&'static [i64], i64, &'static str, &'static str, &'static [f32], &'static [f64]);
    let cases: [Case; 11] = [
        (&[0, 0, 0], 1, "SUM", "NONE", &[], &[1.0, 0.4]),
        (&[0, 0, 0], 1, "MIN", "NONE", &[1.0], &[1.3, 1.4]),
        (&[0, 0, 0], 1, "MAX", "NONE", &[1.0], &[1.7, 1.4]),
        (&[0, 0, 0], 2, "MAX", "NONE", &[1.0, 2.0], &[1.7, 0.0, 1.4, 0.0]),
        (&[0, 0, 0], 1, "AVERAGE", "NONE", &[1.0], &[2.0, 1.4]),
        (&[0, 1, 1], 2, "SUM", "NONE", &[1.0, 2.0], &[1.3, 2.7, 0.0, 2.4]),
        (
            &[0, 1, 1],
            2,
            "SUM",
            "SOFTMAX",
            &[],
            &[0.401_312_32, 0.598_687_65, 0.401_312_34, 0.598_687_7],
        ),
        (&[0, 1, 1], 2, "SUM", "SOFTMAX_ZERO", &[], &[0.401_312_32, 0.598_687_65, 0.0, 1.0]),
        (&[0, 1, 1], 2, "SUM", "LOGISTIC", &[], &[0.574_442_5, 0.668_187_74, 0.5, 0.598_687_65]),
        (&[0, 0, 0], 1, "SUM", "LOGISTIC", &[], &[1.0, 0.4]),
        (&[0, 0, 0], 1, "SUM", "PROBIT", &[], &[f64::INFINITY, -0.253_353_5]),
    ];
    for (ids, targets, aggregate, post, base, expected) in cases {
        let mut attributes = stump("target", ids, &[0.3, 0.7, 0.4]);
        attributes.extend([text("post_transform", post), text("aggregate_function", aggregate)]);
        attributes.push(AttributeProto::int("n_targets", targets));
        attributes.extend((!base.is_empty()).then(|| floats("base_values", base)));
        let found = output(("ai.onnx.ml::TreeEnsembleRegressor", 3), &attributes, &[two_rows()]);
        let what = format!("{ids:?} of {targets} {aggregate} {post} {base:?}");
        assert_near(&found.unwrap(), expected, &what);
    }
}

#[test]
fn what_is_no_double_is_compared_in_float() {
    let mut attributes = stump("class", &[0, 0], &[0.3, 0.7]);
    attributes.retain(|one| *one.name.as_ref().unwrap() != "nodes_values");
    attributes.push(floats("nodes_values", &[16_777_216.0, 0.0, 0.0]));
    attributes.push(ints("classlabels_int64s", &[10, 20]));
    let op = ("ai.onnx.ml::TreeEnsembleClassifier", 1);
    let labels = |input: Value| outputs(op, &attributes, &[input], 2).unwrap().remove(0);
    assert_eq!(labels(tensor([2, 1], &[16_777_217_i64, 16_777_218])), tensor([2], &[10_i64, 20]));
    assert_eq!(labels(tensor([2, 1], &[16_777_217_i32, 16_777_218])), tensor([2], &[10_i64, 20]));
    assert_eq!(labels(tensor([2, 1], &[16_777_217.0_f64, 1.0])), tensor([2], &[20_i64, 10]));
    // A vector is one row.
    assert_eq!(labels(tensor([1], &[1.0_f32])), tensor([1], &[10_i64]));
}

#[test]
fn linear_models_score_and_label() {
    let x = tensor([3, 2], &[-1.0_f32, 2.0, 1.0, 0.5, 0.3, -0.4]);
    let model = [floats("coefficients", &[0.5, 0.25]), floats("intercepts", &[0.1])];
    let labeled = [&model[..], &[ints("classlabels_ints", &[10, 20])]].concat();
    let two = [
        floats("coefficients", &[0.5, 0.25, -0.5, 0.3]),
        floats("intercepts", &[0.1, 0.2]),
        strings("classlabels_strings", &["a", "b"]),
    ];
    let logistic: &[f64] =
        &[0.475_020_8, 0.524_979_2, 0.326_292_9, 0.673_707_1, 0.462_570_2, 0.537_429_8];
    type Case<'a> = (&'a [AttributeProto], &'a str, &'a [i64], &'a [f64]);
    let cases: [Case<'_>; 4] = [
        (&labeled, "NONE", &[20, 20, 20], &[0.9, 0.1, 0.275, 0.725, 0.85, 0.15]),
        (&labeled, "LOGISTIC", &[20, 20, 20], logistic),
        (&model, "NONE", &[1, 1, 1], &[0.1, 0.725, 0.15]),
        (&model, "PROBIT", &[1, 1, 1], &[-1.281_713, 0.597_823_7, -1.036_613]),
    ];
    for (attributes, post, labels, scores) in cases {
        let attributes = [attributes, &[text("post_transform", post)]].concat();
        let found =
            outputs(("ai.onnx.ml::LinearClassifier", 1), &attributes, std::slice::from_ref(&x), 2)
                .unwrap();
        assert_eq!(found[0], tensor([3], labels), "{post}");
        assert_near(&found[1], scores, post);
    }
    let found =
        outputs(("ai.onnx.ml::LinearClassifier", 1), &two, std::slice::from_ref(&x), 2).unwrap();
    assert_eq!(found[0], words([3], &["b", "a", "a"]));
    assert_near(&found[1], &[0.1, 1.3, 0.725, -0.15, 0.15, -0.07], "two");
    let found = output(("ai.onnx.ml::LinearRegressor", 1), &model, &[x]).unwrap();
    assert_near(&found, &[0.1, 0.725, 0.15], "regressor");
}

#[test]
fn support_vectors_score_and_label() {
    let x = tensor([3, 2], &[-1.0_f32, 2.0, 1.0, 0.5, 0.3, -0.4]);
    let regressor = |kind: &str, more: &[AttributeProto]| {
        let attributes = [
            floats("coefficients", &[0.5, 0.25, -0.5]),
            floats("support_vectors", &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
            floats("rho", &[0.1]),
            floats("kernel_params", &[0.5, 0.25, 2.5]),
            AttributeProto::int("n_supports", 3),
            text("kernel_type", kind),
        ];
        output(
            ("ai.onnx.ml::SVMRegressor", 1),
            &[&attributes, more].concat(),
            std::slice::from_ref(&x),
        )
        .unwrap()
    };
    let cases = [
        ("LINEAR", [0.025, -0.075, 0.102_5]),
        ("POLY", [0.055_363_22, 0.010_114_98, 0.107_851_37]),
        ("RBF", [0.122_969_12, 0.174_466_55, 0.393_642_34]),
        ("SIGMOID", [0.136_978_98, 0.097_882_1, 0.162_488_18]),
    ];
    for (kind, expected) in cases {
        assert_near(&regressor(kind, &[]), &expected, kind);
    }
    let one_class = [AttributeProto::int("one_class", 1)];
    assert_near(&regressor("LINEAR", &one_class), &[1.0, -1.0, 1.0], "one class");
    // With no vectors every class adds the first element of `rho`.
    let linear = [
        floats("coefficients", &[0.5, 0.25, -0.5, 0.3, 0.2, 0.1]),
        floats("rho", &[0.1, 0.2, 0.3]),
        ints("classlabels_ints", &[3, 4, 5]),
    ];
    let found =
        outputs(("ai.onnx.ml::SVMClassifier", 1), &linear, std::slice::from_ref(&x), 2).unwrap();
    assert_eq!(found[0], tensor([3], &[4_i64, 3, 3]));
    let scores = [0.1, 1.2, 0.1, 0.725, -0.25, 0.35, 0.15, -0.17, 0.12];
    assert_near(&found[1], &scores, "linear");
    // One vector of each class: the score of (0, 1) is c . k + rho.
    let pair = |more: &[AttributeProto]| {
        let attributes = [
            floats("coefficients", &[1.0, -1.0]),
            floats("support_vectors", &[1.0, 0.0, 0.0, 1.0]),
            ints("vectors_per_class", &[1, 1]),
            floats("rho", &[0.5]),
            strings("classlabels_strings", &["a", "b"]),
        ];
        let attributes = [&attributes, more].concat();
        outputs(("ai.onnx.ml::SVMClassifier", 1), &attributes, std::slice::from_ref(&x), 2).unwrap()
    };
    let found = pair(&[]);
    assert_eq!(found[0], words([3], &["b", "a", "a"]));
    assert_near(&found[1], &[2.5, -2.5, -1.0, 1.0, -1.2, 1.2], "a pair");
    let found = pair(&[floats("prob_a", &[-1.0]), floats("prob_b", &[0.0])]);
    let p = |score: f64| 1.0 / (1.0 + libm::exp(-score));
    let expected = [-2.5, 1.0, 1.2].map(|score| [p(score), 1.0 - p(score)]).concat();
    for (found, expected) in
        found[1].tensor().unwrap().to_slice::<f32>().unwrap().iter().zip(expected)
    {
        assert!((f64::from(*found) - expected).abs() < 5e-3, "{found} {expected}");
    }
}

#[test]
fn categories_are_found() {
    let one_hot = |attributes: &[AttributeProto], input: Value| {
        output(("ai.onnx.ml::OneHotEncoder", 1), attributes, &[input])
    };
    let cats = ints("cats_int64s", &[1, 2, 1]);
    let expected = tensor([2, 3], &[0.0_f32, 0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(
        one_hot(std::slice::from_ref(&cats), tensor([2], &[1.5_f32, 2.0])).unwrap(),
        expected
    );
    assert_eq!(one_hot(std::slice::from_ref(&cats), tensor([2], &[1_i32, 2])).unwrap(), expected);
    let none = tensor([1, 1, 3], &[0.0_f32; 3]);
    assert_eq!(one_hot(std::slice::from_ref(&cats), tensor([1, 1], &[3_i64])).unwrap(), none);
    let error = one_hot(&[cats.clone(), AttributeProto::int("zeros", 0)], tensor([1], &[3_i64]));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Value);
    let strings_of = strings("cats_strings", &["a", "b"]);
    let found = one_hot(std::slice::from_ref(&strings_of), words([2], &["b", "c"])).unwrap();
    assert_eq!(found, tensor([2, 2], &[0.0_f32, 1.0, 0.0, 0.0]));
    for wrong in [vec![], vec![cats, strings_of.clone()], vec![strings_of]] {
        let error = one_hot(&wrong, tensor([1], &[3_i64])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModel, "{wrong:?}");
    }
    let mapped = [strings("cats_strings", &["x", "y", "x"]), ints("cats_int64s", &[1, 2, 3])];
    let map = |input| output(("ai.onnx.ml::CategoryMapper", 1), &mapped, &[input]).unwrap();
    assert_eq!(map(words([3], &["x", "y", "z"])), tensor([3], &[3_i64, 2, -1]));
    assert_eq!(map(tensor([2], &[1_i64, 9])), words([2], &["x", "_Unused"]));
    // Of keys that are there twice the first counts, and before version 4 a NaN is no key.
    let keys = [floats("keys_floats", &[f32::NAN, 1.0, 1.0]), ints("values_int64s", &[4, 5, 6])];
    let label = |version| {
        let input = tensor([2], &[1.0_f32, f32::NAN]);
        output(("ai.onnx.ml::LabelEncoder", version), &keys, &[input]).unwrap()
    };
    assert_eq!(label(2), tensor([2], &[5_i64, -1]));
    assert_eq!(label(4), tensor([2], &[5_i64, 4]));
}

#[test]
fn features_are_put_side_by_side() {
    let x = tensor([2, 3], &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let vectors = |dims: &[i64], inputs: &[Value]| {
        output(("ai.onnx.ml::FeatureVectorizer", 1), &[ints("inputdimensions", dims)], inputs)
    };
    let found = vectors(&[4, 2], &[x.clone(), x.clone()]).unwrap();
    assert_eq!(
        found,
        tensor([2, 6], &[0.0_f32, 1.0, 2.0, 0.0, 0.0, 1.0, 3.0, 4.0, 5.0, 0.0, 3.0, 4.0])
    );
    let row = tensor([3], &[7_i64, 8, 9]);
    assert_eq!(vectors(&[1], std::slice::from_ref(&row)).unwrap(), tensor([1, 1], &[7.0_f32]));
    assert!(vectors(&[3, 3], &[x.clone(), tensor([1, 3], &[0.0_f32; 3])]).is_err());
    for wrong in [&[3][..], &[3, -1], &[3, 1, 1], &[i64::MAX, i64::MAX]] {
        assert!(vectors(wrong, &[x.clone(), x.clone()]).is_err(), "{wrong:?}");
    }
    // A DOUBLE is scaled as one.
    let scaled = [floats("offset", &[1e8]), floats("scale", &[2.0])];
    let wide = tensor([1, 1], &[1e8_f64 + 0.5]);
    assert_eq!(
        output(("ai.onnx.ml::Scaler", 1), &scaled, &[wide]).unwrap(),
        tensor([1, 1], &[1.0_f32])
    );
}

fn map_of<T: onnx_container::Element>(keys: &Value, values: &[T]) -> Value {
    let values = tensor([i64::try_from(values.len()).unwrap()], values);
    Value::Map(Map::new(keys.tensor().unwrap().clone(), values.tensor().unwrap().clone()).unwrap())
}

#[test]
fn rows_become_maps_and_maps_tensors() {
    let x = tensor([2, 3], &[0.5_f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let zip = |attributes: &[AttributeProto], x: Value| {
        output(("ai.onnx.ml::ZipMap", 1), attributes, &[x])
    };
    let found = zip(&[strings("classlabels_strings", &["b", "a", "b"])], x.clone()).unwrap();
    let keys = words([2], &["a", "b"]);
    let maps = vec![map_of(&keys, &[1.0_f32, 2.0]), map_of(&keys, &[4.0_f32, 5.0])];
    assert_eq!(found, Value::Sequence(Type::Map(DataType::String, DataType::Float), maps));
    let row = tensor([3], &[0.5_f32, 1.0, 2.0]);
    let found = zip(&[ints("classlabels_int64s", &[3, -1, 2])], row).unwrap();
    let maps = vec![map_of(&tensor([3], &[-1_i64, 2, 3]), &[1.0_f32, 2.0, 0.5])];
    assert_eq!(found, Value::Sequence(Type::Map(DataType::Int64, DataType::Float), maps));
    for wrong in [vec![], vec![ints("classlabels_int64s", &[1, 2])]] {
        assert_eq!(zip(&wrong, x.clone()).unwrap_err().kind(), ErrorKind::InvalidModel);
    }
    let vector = |attribute: AttributeProto, map: &Value| {
        output(("ai.onnx.ml::DictVectorizer", 1), &[attribute], std::slice::from_ref(map))
    };
    let of_words = map_of(&keys, &[7_i64, 8]);
    let vocabulary = strings("string_vocabulary", &["b", "z", "b", "a"]);
    assert_eq!(vector(vocabulary, &of_words).unwrap(), tensor([1, 4], &[8_i64, 0, 8, 7]));
    let of_ints = map_of(&tensor([2], &[4_i64, 1]), &[0.5_f64, 1.5]);
    let vocabulary = ints("int64_vocabulary", &[1, 2, 4]);
    assert_eq!(vector(vocabulary.clone(), &of_ints).unwrap(), tensor([1, 3], &[1.5_f64, 0.0, 0.5]));
    assert_eq!(vector(vocabulary, &of_words).unwrap_err().kind(), ErrorKind::InvalidModel);
}

#[test]
fn maps_are_cast() {
    let keys = tensor([2], &[2_i64, 0]);
    let numbers = map_of(&keys, &[1.75_f32, -0.5]);
    let texts = words([2], &["3", " 4.5 "]);
    let texts = Map::new(keys.tensor().unwrap().clone(), texts.tensor().unwrap().clone()).unwrap();
    let texts = Value::Map(texts);
    let cast = |to: &str, max: i64, map: &Value| {
        let form = if max > 0 { "SPARSE" } else { "DENSE" };
        let mut attributes = vec![text("cast_to", to), text("map_form", form)];
        attributes.push(AttributeProto::int("max_map", max));
        output(("ai.onnx.ml::CastMap", 1), &attributes, std::slice::from_ref(map))
    };
    assert_eq!(cast("TO_FLOAT", 0, &numbers).unwrap(), tensor([1, 2], &[-0.5_f32, 1.75]));
    assert_eq!(cast("TO_FLOAT", 4, &numbers).unwrap(), tensor([1, 4], &[-0.5_f32, 0.0, 1.75, 0.0]));
    assert_eq!(cast("TO_INT64", 0, &numbers).unwrap(), tensor([1, 2], &[0_i64, 1]));
    assert_eq!(
        cast("TO_STRING", 3, &numbers).unwrap(),
        words([1, 3], &["-0.500000", "0.f", "1.750000"])
    );
    assert_eq!(cast("TO_FLOAT", 0, &texts).unwrap(), tensor([1, 2], &[4.5_f32, 3.0]));
    assert_eq!(cast("TO_INT64", 0, &texts).unwrap(), tensor([1, 2], &[4_i64, 3]));
    for (to, max) in [("TO_FLOAT", 2), ("TO_DOUBLE", 0), ("TO_FLOAT", -1)] {
        // A dense map has no place for `max_map`, so a negative one is refused there too.
        assert!(cast(to, max, &numbers).is_err(), "{to} {max}");
    }
}

#[test]
fn a_map_has_every_key_once_and_in_order() {
    let keys = |values: &[i64]| tensor([i64::try_from(values.len()).unwrap()], values);
    let new = |keys: &Value, values: &Value| -> Result<Map> {
        Map::new(keys.tensor().unwrap().clone(), values.tensor().unwrap().clone())
    };
    let map = new(&keys(&[3, -1, 2]), &words([3], &["c", "a", "b"])).unwrap();
    assert_eq!(Value::Tensor(map.keys().clone()), keys(&[-1, 2, 3]));
    assert_eq!(Value::Tensor(map.values().clone()), words([3], &["a", "b", "c"]));
    let cases = [
        (keys(&[1, 1]), keys(&[1, 2]), ErrorKind::Value),
        (keys(&[1, 2]), keys(&[1]), ErrorKind::Shape),
        (tensor([1, 1], &[1_i64]), tensor([1, 1], &[1_i64]), ErrorKind::Shape),
        (tensor([1], &[1_i32]), keys(&[1]), ErrorKind::Type),
    ];
    for (keys, values, kind) in cases {
        assert_eq!(new(&keys, &values).unwrap_err().kind(), kind);
    }
}

#[test]
fn a_map_is_read_as_it_is_written() {
    let of_ints = map_of(&tensor([2], &[4_i64, -1]), &[0.5_f64, 1.5]);
    let of_words = map_of(&words([2], &["b", ""]), &[7_i64, 8]);
    let texts = Map::new(
        tensor([2], &[1_i64, 2]).tensor().unwrap().clone(),
        words([2], &["x", ""]).tensor().unwrap().clone(),
    );
    let none = map_of(&tensor::<i64>([0], &[]), &[0.0_f32; 0]);
    for map in [of_ints.clone(), of_words.clone(), Value::Map(texts.unwrap()), none] {
        let list = Value::Sequence(map.ty(), vec![map.clone(), map.clone()]);
        for value in [map, list] {
            let bytes = Buffer::from(data::encode(&value).unwrap());
            assert_eq!(data::decode(&bytes, &value.ty()).unwrap(), value);
        }
    }
    let bytes = Buffer::from(data::encode(&of_ints).unwrap());
    let others = [
        of_words.ty(),
        Type::Map(DataType::Int64, DataType::Float),
        Type::Sequence(Box::new(of_ints.ty())),
        Type::Tensor(DataType::Double),
    ];
    for ty in others {
        assert!(data::decode(&bytes, &ty).is_err(), "{ty}");
    }
    // The first two bytes are the type of the keys: a map without any.
    for len in (1..bytes.len()).filter(|len| *len != 2) {
        assert!(data::decode(&bytes.slice(..len).unwrap(), &of_ints.ty()).is_err(), "{len}");
    }
}

/// An operator, its version, its attributes, its input, and the lists whose length decides nothing
/// else.
type Valid = (&'static str, i64, Vec<AttributeProto>, Value, &'static [&'static str]);

/// Valid nodes of every operator with lists among its attributes.
fn valid() -> Vec<Valid> {
    let mut classifier = stump("class", &[0, 1, 2, 0], &[0.1, 0.2, 0.3, 0.4]);
    classifier.push(ints("classlabels_int64s", &[5, 6, 7]));
    classifier.push(floats("base_values", &[0.5, 0.5, 0.5]));
    classifier.push(floats("nodes_hitrates", &[1.0, 1.0, 1.0]));
    classifier.push(ints("nodes_missing_value_tracks_true", &[1, 0, 0]));
    let mut regressor = stump("target", &[0, 1, 2, 0], &[0.1, 0.2, 0.3, 0.4]);
    regressor.push(AttributeProto::int("n_targets", 3));
    regressor.push(floats("base_values", &[0.5, 0.5, 0.5]));
    let x = tensor([2, 1], &[-1.0_f32, 1.0]);
    let wide = tensor([2, 2], &[-1.0_f32, 1.0, 0.5, 0.5]);
    vec![
        ("TreeEnsembleClassifier", 3, classifier, x.clone(), &[]),
        ("TreeEnsembleRegressor", 3, regressor, x, &[]),
        (
            "LinearClassifier",
            1,
            vec![
                floats("coefficients", &[1.0, 2.0, 3.0, 4.0]),
                floats("intercepts", &[0.5, 0.5]),
                ints("classlabels_ints", &[5, 6]),
            ],
            wide.clone(),
            &[],
        ),
        (
            "LinearRegressor",
            1,
            vec![
                floats("coefficients", &[1.0, 2.0, 3.0, 4.0]),
                floats("intercepts", &[0.5, 0.5]),
                AttributeProto::int("targets", 2),
            ],
            wide.clone(),
            &[],
        ),
        (
            "SVMClassifier",
            1,
            vec![
                floats("coefficients", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                floats("support_vectors", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                ints("vectors_per_class", &[1, 1, 1]),
                floats("rho", &[0.5, 0.5, 0.5]),
                floats("prob_a", &[0.5, 0.5, 0.5]),
                floats("prob_b", &[0.5, 0.5, 0.5]),
                floats("kernel_params", &[0.5, 0.5, 0.5]),
                ints("classlabels_ints", &[5, 6, 7]),
            ],
            wide.clone(),
            &[],
        ),
        (
            "SVMRegressor",
            1,
            vec![
                floats("coefficients", &[1.0, 2.0]),
                floats("support_vectors", &[1.0, 2.0, 3.0, 4.0]),
                floats("rho", &[0.5]),
                floats("kernel_params", &[0.5, 0.5, 0.5]),
                AttributeProto::int("n_supports", 2),
            ],
            wide.clone(),
            &[],
        ),
        (
            "CategoryMapper",
            1,
            vec![ints("cats_int64s", &[1, 2]), strings("cats_strings", &["a", "b"])],
            words([1], &["a"]),
            &[],
        ),
        (
            "LabelEncoder",
            4,
            vec![ints("values_int64s", &[1, 2]), strings("keys_strings", &["a", "b"])],
            words([1], &["a"]),
            &[],
        ),
        (
            "Scaler",
            1,
            vec![floats("offset", &[1.0; 3]), floats("scale", &[1.0; 3])],
            tensor([1, 3], &[1.0_f32; 3]),
            &[],
        ),
        (
            "Imputer",
            1,
            vec![floats("imputed_value_floats", &[1.0; 3])],
            tensor([1, 3], &[1.0_f32; 3]),
            &[],
        ),
        ("ZipMap", 1, vec![ints("classlabels_int64s", &[1, 2])], wide.clone(), &[]),
        ("FeatureVectorizer", 1, vec![ints("inputdimensions", &[2])], wide, &[]),
    ]
}

/// `attribute` with one element more, and with one less.
fn other_lengths(attribute: &AttributeProto) -> Vec<AttributeProto> {
    let (mut more, mut less) = (attribute.clone(), attribute.clone());
    more.floats.extend(attribute.floats.first().copied());
    more.ints.extend(attribute.ints.first().copied());
    more.strings.extend(attribute.strings.first().cloned());
    less.floats.pop();
    less.ints.pop();
    less.strings.pop();
    vec![more, less]
}

#[test]
fn lists_of_lengths_that_do_not_fit_are_refused() {
    for (op, version, attributes, input, free) in valid() {
        let name = format!("ai.onnx.ml::{op}");
        let run = |attributes: &[AttributeProto]| {
            let count = if op.ends_with("Classifier") { 2 } else { 1 };
            outputs((&name, version), attributes, std::slice::from_ref(&input), count)
        };
        run(&attributes).unwrap_or_else(|error| panic!("{op}: {error}"));
        for (i, attribute) in attributes.iter().enumerate() {
            let listed = attribute.name.as_ref().unwrap().to_string();
            let is_list =
                attribute.floats.len() + attribute.ints.len() + attribute.strings.len() > 0;
            if !is_list || free.contains(&listed.as_str()) {
                continue;
            }
            for other in other_lengths(attribute) {
                let mut changed = attributes.clone();
                changed[i] = other;
                let error =
                    run(&changed).err().unwrap_or_else(|| panic!("{op}: {listed} is taken"));
                let known = [ErrorKind::InvalidModel, ErrorKind::Shape, ErrorKind::Input];
                assert!(known.contains(&error.kind()), "{op}: {listed}: {error:?}");
            }
        }
    }
}

#[test]
fn trees_that_are_none_are_refused() {
    type Change = (&'static str, Box<dyn Fn(&str) -> AttributeProto>, &'static str);
    let change = |name: &'static str, values: &'static [i64], reason: &'static str| -> Change {
        (name, Box::new(move |name| ints(name, values)), reason)
    };
    let modes: Change = (
        "nodes_modes",
        Box::new(|name| strings(name, &["BRANCH_MAYBE", "LEAF", "LEAF"])),
        "the mode of a node is not known",
    );
    let twice: Change = (
        "nodes_values_as_tensor",
        Box::new(|name| {
            let values = tensor([3], &[0.0_f32; 3]);
            AttributeProto::tensor(name, values.tensor().unwrap().to_proto(""))
        }),
        "and one may",
    );
    let inner: Change = (
        "nodes_modes",
        Box::new(|name| strings(name, &["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"])),
        "a tree has a cycle",
    );
    let cases = [
        change("nodes_truenodeids", &[0, 0, 0], "a tree has a cycle"),
        change("nodes_truenodeids", &[9, 0, 0], "tree 0 has no node 9"),
        change("nodes_truenodeids", &[-1, 0, 0], "tree 0 has no node -1"),
        change("nodes_nodeids", &[0, 1, 1], "tree 0 has two nodes 1"),
        change("nodes_treeids", &[0, 1, 0], "the nodes of tree 0 are not one after the other"),
        change("nodes_featureids", &[7, 0, 0], "a node asks for feature 7 of 1"),
        change("nodes_featureids", &[-7, 0, 0], "is negative"),
        change("target_ids", &[0, 5], "a leaf belongs to target 5 of 2"),
        change("target_ids", &[0, -5], "is negative"),
        change("target_nodeids", &[0, 2], "has a weight and is no leaf"),
        change("target_treeids", &[0, 4], "tree 4 has no node 2"),
        modes,
        twice,
        inner,
    ];
    for (name, make, reason) in cases {
        let mut attributes = stump("target", &[0, 1], &[0.3, 0.7]);
        if reason == "a tree has a cycle" && name == "nodes_modes" {
            // Node 1 is no leaf any more, and has no weight.
            attributes = stump("target", &[0], &[0.3]);
            attributes.retain(|one| *one.name.as_ref().unwrap() != "target_nodeids");
            attributes.push(ints("target_nodeids", &[2]));
        }
        attributes.retain(|one| *one.name.as_ref().unwrap() != name);
        attributes.extend([make(name), AttributeProto::int("n_targets", 2)]);
        let error = output(("ai.onnx.ml::TreeEnsembleRegressor", 3), &attributes, &[two_rows()]);
        let error = error.unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
        assert!(error.kind() != ErrorKind::Internal, "{error}");
    }
}
