//! `Container::fill`: weights are matched by name with the tensors of a model.

use std::collections::BTreeSet;

use ndarray::{Array2, ArrayD, array};
use onnx_container::edit::{FillOptions, Filled, Sharing, Tied};
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
};
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, MmapChoice, Tensor,
};

/// An external FLOAT tensor.
fn place(name: &str, dims: &[i64], location: &str) -> TensorProto {
    TensorProto::external(name, TensorProto::FLOAT, dims, location)
}

/// As [`place`], at a range of a file that is not here.
fn range(name: &str, dims: &[i64], offset: u64, length: u64) -> TensorProto {
    let mut tensor = place(name, dims, "gone.data");
    for (key, value) in [("offset", offset), ("length", length)] {
        tensor.external_data.push(StringStringEntryProto::new(key, value.to_string()));
    }
    tensor
}

fn container(tensors: impl IntoIterator<Item = TensorProto>) -> Container {
    let mut graph = GraphProto::new("structure");
    graph.initializer = tensors.into_iter().collect();
    Container::new(ModelProto::new(graph))
}

fn weights<const N: usize>(named: [(&str, Initializer); N]) -> Vec<(String, Initializer)> {
    named.into_iter().map(|(name, initializer)| (name.to_owned(), initializer)).collect()
}

fn ones(rows: usize, columns: usize) -> Initializer {
    Array2::<f32>::ones((rows, columns)).into()
}

fn constant(value: f32) -> Initializer {
    array![[value, value]].into()
}

/// The first elements of the tensors, as an embedded model has them.
fn firsts(container: &Container) -> Vec<f32> {
    let model = container.embed().unwrap();
    let tensors = &model.graph.as_ref().unwrap().initializer;
    tensors.iter().map(|t| Tensor::try_from(t).unwrap().as_slice::<f32>().unwrap()[0]).collect()
}

/// The pairs of names, for messages and comparisons.
fn pairs(sharing: &[Sharing]) -> Vec<(&str, &str)> {
    sharing.iter().map(|it| (it.tensor.as_str(), it.with.as_str())).collect()
}

/// What followed and what did not.
fn ties(filled: &Filled) -> [Vec<(&str, &str)>; 2] {
    [pairs(&filled.tied), pairs(&filled.untied)]
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn weights_are_matched_by_name() {
    let named = |name| place(name, &[1, 2], &format!("#{name}"));
    let cases: Vec<(&str, FillOptions, Vec<TensorProto>)> = vec![
        ("a.w", FillOptions::new(), vec![named("a.w")]),
        ("a.w", FillOptions::new(), vec![place("a.w", &[1, 2], "gone.data")]),
        ("a.w", FillOptions::new(), vec![place("a.w", &[1, 2], "")]),
        ("h", FillOptions::new(), vec![place("a.w", &[1, 2], "#h")]),
        ("#h", FillOptions::new(), vec![place("a.w", &[1, 2], "#h")]),
        ("model.a.w", FillOptions::new().strip_prefix("model."), vec![named("a.w")]),
        ("model.a.w", FillOptions::new().replace_prefix("model.", "m/"), vec![named("m/a.w")]),
        (
            "model.a.w",
            FillOptions::new().strip_prefix("model.").replace_prefix("model.a.", "b."),
            vec![named("b.w")],
        ),
        (
            "model.a.w",
            FillOptions::new().strip_prefix("model.").rename("model.a.w", "W"),
            vec![named("W")],
        ),
        // Only the beginning is a prefix, and only once.
        ("m.m.w", FillOptions::new().strip_prefix("m."), vec![named("m.w")]),
    ];
    for (name, options, tensors) in cases {
        let mut container = container(tensors);
        let filled = container.fill(weights([(name, constant(3.0))]), options).unwrap();
        assert_eq!((filled.filled, filled.bytes), (1, 8), "{name}");
        container.check().unwrap();
        assert_eq!(firsts(&container), [3.0], "{name}");
    }
}

#[test]
fn tensors_of_other_graphs_are_filled_by_scope() {
    let branch = |name: &str| {
        let mut graph = GraphProto::new(name);
        graph.initializer.push(place("w", &[1, 2], &format!("#{name}")));
        graph
    };
    let mut graph = GraphProto::new("main");
    let mut node = NodeProto::new("If", ["c"], ["y"]);
    node.attribute.push(AttributeProto::graph("then_branch", branch("t")));
    node.attribute.push(AttributeProto::graph("else_branch", branch("e")));
    graph.node.push(node);
    let mut container = Container::new(ModelProto::new(graph));

    let error = container.fill(weights([("w", constant(1.0))]), FillOptions::new()).unwrap_err();
    assert!(error.to_string().contains("weights `w`: `w` is the name of 2 tensors"), "{error}");
    let both = weights([("y.then_branch/w", constant(1.0)), ("e", constant(2.0))]);
    assert_eq!(container.fill(both, FillOptions::new()).unwrap().filled, 2);
    assert_eq!(
        container.get("#e").unwrap().to_tensor().unwrap().as_slice::<f32>().unwrap()[0],
        2.0
    );
}

#[test]
fn tied_tensors_are_filled_together() {
    let tied: Vec<Vec<TensorProto>> = vec![
        vec![place("a", &[1, 2], "#w"), place("b", &[1, 2], "#w")],
        vec![range("a", &[1, 2], 64, 8), range("b", &[1, 2], 64, 8)],
    ];
    for tensors in tied {
        for name in ["a", "b"] {
            let mut container = container(tensors.clone());
            let filled = container.fill(weights([(name, constant(5.0))]), FillOptions::new());
            let filled = filled.unwrap();
            let other = if name == "a" { "b" } else { "a" };
            assert_eq!((filled.filled, ties(&filled)), (1, [vec![(other, name)], vec![]]));
            assert_eq!(container.len(), 1);
            assert_eq!(firsts(&container), [5.0, 5.0]);
        }
        // A checkpoint may have both names, but not two values for what is to stay tied.
        let mut container = container(tensors);
        let error = container
            .fill(
                weights([("a", constant(1.0)), ("b", constant(2.0))]),
                FillOptions::new().tied(Tied::All),
            )
            .unwrap_err();
        let said = "`b`: tied to `a` in the model (both have the same bytes), but the weights `b` differ \
                    from the weights `a`";
        assert!(error.to_string().contains(said), "{error}");
        let both = weights([("a", constant(1.0)), ("b", constant(1.0))]);
        let filled = container.fill(both, FillOptions::new()).unwrap();
        assert_eq!(ties(&filled), [vec![], vec![]]);
        assert_eq!((firsts(&container), container.len()), (vec![1.0, 1.0], 1));
    }
    // Two values show that a location without offset and length is a placeholder.
    let mut apart = container([place("a", &[1, 2], "gone"), place("b", &[1, 2], "gone")]);
    let both = weights([("a", constant(1.0)), ("b", constant(2.0))]);
    apart.fill(both, FillOptions::new()).unwrap();
    assert_eq!(firsts(&apart), [1.0, 2.0]);
}

/// As [`place`], with the entries of its range that are given.
fn at(name: &str, dims: &[i64], location: &str, entries: &[(&str, u64)]) -> TensorProto {
    let mut tensor = place(name, dims, location);
    for (key, value) in entries {
        tensor.external_data.push(StringStringEntryProto::new(*key, value.to_string()));
    }
    tensor
}

#[test]
fn tensors_that_a_load_would_put_over_one_range_are_filled_together() {
    let whole = &[("offset", 64), ("length", 16)];
    let no_length = &[("offset", 64)];
    let (start, length) = (&[("offset", 0)], &[("length", 16)]);
    let cases: Vec<(&str, [TensorProto; 2])> = vec![
        ("shapes", [at("a", &[2, 2], "d", whole), at("b", &[4], "d", whole)]),
        ("shapes, no length", [at("a", &[2, 2], "d", no_length), at("b", &[4], "d", no_length)]),
        ("no length", [at("a", &[2, 2], "d", no_length), at("b", &[2, 2], "d", no_length)]),
        ("one length", [at("a", &[2, 2], "d", whole), at("b", &[2, 2], "d", no_length)]),
        ("dots", [at("a", &[2, 2], "d", whole), at("b", &[2, 2], "./d", whole)]),
        ("no entries", [at("a", &[2, 2], "d", &[]), at("b", &[2, 2], "d", &[])]),
        ("no entries, shapes", [at("a", &[2, 2], "d", &[]), at("b", &[4], "d", &[])]),
        ("no entries, dots", [at("a", &[2, 2], "d", &[]), at("b", &[2, 2], "./d", &[])]),
        ("one has an offset", [at("a", &[2, 2], "d", start), at("b", &[2, 2], "d", &[])]),
        ("one has a length", [at("a", &[2, 2], "d", &[]), at("b", &[4], ".//d", length)]),
    ];
    for (what, tensors) in cases {
        for (given, other) in [("a", "b"), ("b", "a")] {
            let mut container = container(tensors.clone());
            let dims = &tensors[usize::from(given == "b")].dims;
            let weight =
                ArrayD::from_elem(dims.iter().map(|d| *d as usize).collect::<Vec<_>>(), 5_f32);
            let given = || weights([(given, weight.clone().into())]);
            let one_form = tensors[0].dims == tensors[1].dims;
            if !one_form {
                // A tensor of another shape follows only where that is asked for.
                let error = container.fill(given(), FillOptions::new()).unwrap_err();
                let says = format!(
                    "tensor `{other}`: no weights of this name were given, and it does not follow"
                );
                assert!(error.to_string().contains(&says), "{what}: {error}");
            }
            let all = FillOptions::new().tied((!one_form).then_some(Tied::All));
            let filled = container.fill(given(), all).unwrap();
            assert_eq!(
                (filled.filled, filled.tied.len(), filled.untied.len()),
                (1, 1, 0),
                "{what}"
            );
            container.check().unwrap();
            assert_eq!(firsts(&container), [5.0, 5.0], "{what}, {other}");
            assert_eq!(container.len(), if one_form { 1 } else { 2 }, "{what}");
            let addresses: Vec<_> =
                container.iter().map(|(_, i)| i.as_buffer().unwrap().as_ptr().addr()).collect();
            assert!(addresses.iter().all(|a| *a == addresses[0]), "{what}: one copy of the bytes");
        }
    }
}

#[test]
fn tensors_that_are_to_stay_tied_do_not_get_two_values() {
    let whole = &[("offset", 64), ("length", 16)];
    let all = || FillOptions::new().tied(Tied::All);
    let mut tied = container([at("a", &[2, 2], "d", whole), at("b", &[4], "d", whole)]);
    let flat = |value: f32| Initializer::from(array![value, value, value, value]);
    let square = |value: f32| Initializer::from(array![[value, value], [value, value]]);
    let two = || weights([("a", square(1.0)), ("b", flat(2.0))]);
    let error = tied.fill(two(), all()).unwrap_err();
    assert!(error.to_string().contains("`b`: tied to `a` in the model"), "{error}");
    assert_eq!(ties(&tied.fill(two(), FillOptions::new()).unwrap()), [vec![], vec![("b", "a")]]);
    assert_eq!(firsts(&tied), [1.0, 2.0]);
    let mut tied = container([at("a", &[2, 2], "d", whole), at("b", &[4], "d", whole)]);
    tied.fill(weights([("a", square(1.0)), ("b", flat(1.0))]), all()).unwrap();
    assert_eq!(firsts(&tied), [1.0, 1.0]);

    // One has no entries, and lies at offset 0 with the other.
    let mut mixed = container([at("a", &[4], "d", &[("offset", 0)]), at("b", &[4], "d", &[])]);
    let two = || weights([("a", flat(1.0)), ("b", flat(2.0))]);
    let error = mixed.fill(two(), all()).unwrap_err();
    assert!(error.to_string().contains("`b`: tied to `a` in the model"), "{error}");
    mixed.fill(two(), FillOptions::new()).unwrap();
    assert_eq!(firsts(&mixed), [1.0, 2.0]);
}

/// `a`, `b` and `c` of one dtype and shape, `other_shape` and `other_type`, all on the same 8
/// bytes: behind handles with zeros, and on one range of a file.
fn sharing() -> [Container; 2] {
    let integers = |mut tensor: TensorProto| {
        tensor.data_type = Some(TensorProto::INT32);
        tensor
    };
    let on_range = container([
        range("a", &[1, 2], 64, 8),
        range("b", &[1, 2], 64, 8),
        range("other_shape", &[2], 64, 8),
        integers(range("other_type", &[1, 2], 64, 8)),
        range("c", &[1, 2], 64, 8),
    ]);
    let file = vec![0; 72];
    let options = onnx_container::LoadOptions::new().file("gone.data", file);
    let model = onnx_container::proto::Message::encode_to_vec(on_range.model()).unwrap();
    [Container::load_bytes(model, options).unwrap(), on_range]
}

/// The first elements of the tensors of [`sharing`] that have weights.
fn values(container: &Container) -> [Option<f32>; 5] {
    ["a", "b", "other_shape", "other_type", "c"].map(|name| {
        let tensor = container.tensor(name).ok()?;
        Some(f32::from_le_bytes(tensor.as_bytes()?[..4].try_into().unwrap()))
    })
}

#[test]
fn tensors_that_weights_do_not_name_keep_their_bytes_unless_they_are_alike() {
    // The weights, the decision, the values (0 where a tensor keeps what it had), what followed,
    // what is untied.
    type Case<'a> = (&'a [(&'a str, f32)], Option<Tied>, [f32; 5], &'a [&'a str], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (
            &[("a", 1.0)],
            None,
            [1.0, 1.0, 0.0, 0.0, 1.0],
            &["b", "c"],
            &["other_shape", "other_type"],
        ),
        (
            &[("c", 1.0)],
            None,
            [1.0, 1.0, 0.0, 0.0, 1.0],
            &["a", "b"],
            &["other_shape", "other_type"],
        ),
        (
            &[("b", 1.0)],
            Some(Tied::This),
            [0.0, 1.0, 0.0, 0.0, 0.0],
            &[],
            &["a", "other_shape", "other_type", "c"],
        ),
        // Different weights show that they are not tied.
        (
            &[("a", 1.0), ("c", 2.0)],
            None,
            [1.0, 0.0, 0.0, 0.0, 2.0],
            &[],
            &["b", "other_shape", "other_type", "c"],
        ),
        (
            &[("a", 1.0), ("b", 2.0), ("c", 1.0)],
            None,
            [1.0, 2.0, 0.0, 0.0, 1.0],
            &[],
            &["b", "other_shape", "other_type"],
        ),
        (
            &[("a", 1.0), ("b", 1.0), ("c", 1.0)],
            None,
            [1.0, 1.0, 0.0, 0.0, 1.0],
            &[],
            &["other_shape", "other_type"],
        ),
    ];
    for (given, tied, expected, followed, untied) in cases {
        for mut container in sharing() {
            let loaded = !container.is_empty();
            let weights = given.iter().map(|(name, value)| ((*name).to_owned(), constant(*value)));
            let options = FillOptions::new().partial(true).tied(*tied);
            let filled = container.fill(weights, options).unwrap();
            let names = |sharing: &[Sharing]| {
                strings(&pairs(sharing).iter().map(|p| p.0).collect::<Vec<_>>())
            };
            let what = format!("{given:?} {tied:?}");
            let expected = expected.map(|value| (loaded || value != 0.0).then_some(value));
            assert_eq!(values(&container), expected, "{what}");
            // What a load has put behind other handles is not even looked at.
            let of_handle = |name: &&&str| !loaded || !name.starts_with("other");
            let untied: Vec<_> = untied.iter().filter(of_handle).copied().collect();
            assert_eq!(names(&filled.tied), strings(followed), "{what}");
            assert_eq!(names(&filled.untied), strings(&untied), "{what}");
            if loaded {
                container.check().unwrap();
                let tensors = &container.model().graph.as_ref().unwrap().initializer;
                let used: BTreeSet<_> =
                    tensors.iter().map(|tensor| tensor.external_data[0].value.clone()).collect();
                assert_eq!(used.len(), container.len(), "{what}: no handle is left over");
            }
        }
    }
}

#[test]
fn tensors_on_the_same_bytes_follow_or_are_refused_as_asked() {
    let [loaded, on_range] = sharing();
    let given = || weights([("a", constant(1.0))]);
    for (mut container, unnamed) in
        [(loaded, "`b`, `c`,"), (on_range.clone(), "`b`, `other_shape`, `other_type`, `c`,")]
    {
        let refuse = FillOptions::new().partial(true).tied(Tied::Refuse);
        let error = container.fill(given(), refuse.clone()).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::Tied, Some("a")), "{error}");
        assert!(error.to_string().contains(&format!("also those of {unnamed}")), "{error}");
        let all = ["a", "b", "c"].map(|name| (name.to_owned(), constant(1.0)));
        if unnamed.len() < 12 {
            assert!(container.fill(all, refuse).unwrap().untied.is_empty());
        }
    }
    let mut all = on_range;
    let filled = all.fill(given(), FillOptions::new().tied(Tied::All)).unwrap();
    assert_eq!(pairs(&filled.tied).len(), 4);
    assert_eq!(values(&all), [Some(1.0); 5]);
    assert_eq!(all.len(), 3, "one handle for each dtype and shape");
}

#[test]
fn tensors_of_several_shapes_on_one_handle_are_one_thing() {
    let tensors = || [place("a", &[1, 2], "#w"), place("b", &[2], "#w"), place("c", &[2, 1], "#w")];
    for (name, weight) in [("b", Initializer::from(array![4.0_f32, 4.0])), ("w", constant(4.0))] {
        let mut container = container(tensors());
        container.fill(weights([(name, weight)]), FillOptions::new()).unwrap();
        container.check().unwrap();
        assert_eq!((firsts(&container), container.len()), (vec![4.0; 3], 1));
        let one = FillOptions::new().tied(Tied::This);
        container.fill(weights([("a", constant(5.0))]), one).unwrap();
        container.check().unwrap();
        assert_eq!((firsts(&container), container.len()), (vec![5.0, 4.0, 4.0], 2));
    }
}

#[test]
fn a_location_that_is_a_placeholder_ties_nothing() {
    let flat = |value: f32| Initializer::from(array![value, value, value, value]);
    let same = || ["a", "b", "c"].map(|name| place(name, &[4], "d"));
    let lengths = [place("a", &[4], "d"), place("b", &[4], "./d"), place("c", &[2], "d")];
    let cases = [
        ("two values were given", same(), vec![("a", flat(1.0)), ("b", flat(2.0))], vec!["c"]),
        ("lengths differ", lengths, vec![("a", flat(1.0))], vec!["b", "c"]),
    ];
    for (what, tensors, given, missing) in cases {
        let given: Vec<_> = given.into_iter().map(|(name, w)| (name.to_owned(), w)).collect();
        let mut whole = container(tensors.clone());
        let error = whole.fill(given.clone(), FillOptions::new()).unwrap_err();
        assert!(error.has(ErrorKind::MissingHandle), "{what}: {error}");
        assert!(whole.is_empty(), "{what}");
        let mut partly = container(tensors);
        let filled = partly.fill(given, FillOptions::new().partial(true)).unwrap();
        assert_eq!(filled.missing, missing, "{what}");
    }
}

#[test]
fn one_handle_is_not_filled_for_two_types_or_lengths() {
    let of = |name: &str, dtype, dims: &[i64]| TensorProto::external(name, dtype, dims, "#w");
    let cases = [
        (of("b", TensorProto::INT32, &[1, 2]), ErrorKind::DataType),
        (of("b", TensorProto::FLOAT, &[3]), ErrorKind::Shape),
    ];
    for (other, kind) in cases {
        let mut container = container([of("a", TensorProto::FLOAT, &[1, 2]), other]);
        let error =
            container.fill(weights([("a", constant(1.0))]), FillOptions::new()).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (kind, Some("b")), "{error}");
        assert!(container.is_empty());
    }
}

#[test]
fn one_tensor_is_not_given_two_values() {
    let mut container = container([place("w", &[1, 2], "#w")]);
    let two = weights([("x", constant(1.0)), ("y", constant(2.0))]);
    let both = FillOptions::new().rename("x", "w").rename("y", "w");
    let error = container.fill(two, both).unwrap_err();
    let said = "tensor `w`: two weights are given for it, `x` and `y`, and they differ";
    assert_eq!(error.to_string(), said);
    // Equal ones are no contradiction, however long they are and wherever they lie in memory.
    let floats = (1 << 18) + 1;
    let long = |last: f32| {
        let mut all = Array2::<f32>::zeros((1, floats));
        all[[0, floats - 1]] = last;
        Initializer::from(all)
    };
    for (other, fits) in [(1.0, true), (2.0, false)] {
        let mut container = self::container([place("w", &[1, floats as i64], "#w")]);
        let two = weights([("x", long(1.0)), ("y", long(other))]);
        let both = FillOptions::new().rename("x", "w").rename("y", "w");
        assert_eq!(container.fill(two, both).is_ok(), fits, "{other}");
    }
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let mut container = container([place("w", &[1, 2], "#w")]);
    let rules = FillOptions::new().strip_prefix("m.").replace_prefix("m.", "n.");
    let error = container.fill(weights([("m.w", constant(1.0))]), rules).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("two rules for the prefix `m.`"), "{error}");
    let twice = FillOptions::new().strip_prefix("m.").strip_prefix("m.");
    container.fill(weights([("m.w", constant(1.0))]), twice).unwrap();
}

/// `name` as an inline tensor of zeros.
fn inline(name: &str, dtype: DataType, dims: &[i64]) -> TensorProto {
    let len = usize::try_from(dtype.byte_len(dims).unwrap()).unwrap();
    TensorProto::new(name, dtype.number(), dims).with_raw_data(vec![0; len])
}

#[test]
fn inline_tensors_that_keep_their_elements_are_listed() {
    let constant_node = |output: &str, value| {
        let mut node = NodeProto::new("Constant", [""; 0], [output]);
        node.attribute.push(AttributeProto::tensor("value", value));
        node
    };
    let model = || {
        let mut own = NodeProto::new("Own", ["row", "grid"], ["z"]);
        own.domain = Some("x".into());
        let mut graph = GraphProto::new("g");
        graph.initializer = vec![
            inline("bias", DataType::Float, &[2]),
            inline("scale", DataType::Float, &[]),
            inline("table", DataType::Int8, &[2, 2]),
            inline("shape", DataType::Int64, &[2]),
            inline("row", DataType::Int64, &[2]),
            inline("grid", DataType::Int64, &[2, 2]),
            inline("none", DataType::Float, &[0]),
        ];
        graph.node = vec![
            NodeProto::new("Reshape", ["bias", "shape"], ["y"]),
            // What an operator that nobody knows does with its inputs is not known either.
            own,
            constant_node("matrix", inline("", DataType::Float, &[2, 2])),
            constant_node("epsilon", inline("", DataType::Float, &[])),
            constant_node("axes", inline("", DataType::Int64, &[3])),
        ];
        Container::new(ModelProto::new(graph))
    };
    let bias = || weights([("bias", array![1_f32, 2.0].into())]);
    let filled = model().fill([], FillOptions::new().allow_no_match(true)).unwrap();
    assert_eq!(filled.kept, strings(&["bias", "scale", "table", "grid", "matrix"]));
    let filled = model().fill(bias(), FillOptions::new().strict(true).partial(true)).unwrap();
    assert_eq!(filled.kept, strings(&["scale", "table", "grid", "matrix"]));
    // One element is a number of the graph's own as a rule: it is listed, and no error.
    let error = model().fill(bias(), FillOptions::new().strict(true)).unwrap_err();
    let wrong: Vec<_> = error.each().filter_map(onnx_container::Error::tensor).collect();
    assert_eq!(wrong, ["table", "grid", "matrix"]);
    assert!(error.each().all(|error| error.kind() == ErrorKind::MissingTensor), "{error}");
}

#[test]
fn bytes_stand_for_elements_in_one_dimension_or_in_dimensions_that_fit() {
    let cases: &[(DataType, &[i64], &[usize], bool)] = &[
        (DataType::Float8E4M3Fn, &[4, 2], &[8], true),
        (DataType::Float8E4M3Fn, &[4, 2], &[4, 2], true),
        (DataType::Float8E4M3Fn, &[4, 2], &[2, 4], false),
        (DataType::Float8E4M3Fn, &[4, 2], &[8, 1], false),
        (DataType::Float8E4M3Fn, &[4, 2], &[4, 2, 1], false),
        (DataType::Float8E4M3Fn, &[], &[], true),
        (DataType::Int4, &[4, 4], &[8], true),
        (DataType::Int4, &[4, 4], &[4, 2], true),
        (DataType::Int4, &[4, 4], &[2, 4], false),
        (DataType::Int4, &[2, 3], &[1, 3], false),
        (DataType::Complex64, &[2, 1], &[2, 8], true),
        (DataType::Complex64, &[2, 1], &[8, 2], false),
    ];
    for (dtype, dims, bytes, fits) in cases {
        let mut container = container([TensorProto::external("w", dtype.number(), *dims, "#w")]);
        let given = Initializer::from(ArrayD::<u8>::zeros(bytes.to_vec()));
        let result = container.fill(weights([("w", given)]), FillOptions::new());
        assert_eq!(result.is_ok(), *fits, "{dtype} {dims:?} from {bytes:?}: {result:?}");
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::DataType, "{error}");
        }
    }
}

#[test]
fn inline_initializers_stay_inline() {
    let raw: Vec<u8> = [7.0_f32, 7.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let inline = TensorProto::new("w", TensorProto::FLOAT, [1, 2]).with_raw_data(raw);
    let mut container = container([inline]);
    let nothing = container.fill([], FillOptions::new().allow_no_match(true)).unwrap();
    assert_eq!(nothing.missing, strings(&[]), "what is inline is not missing");
    assert_eq!(nothing.kept, strings(&["w"]), "and is told");
    container.fill(weights([("w", constant(8.0))]), FillOptions::new()).unwrap();
    assert!(container.is_empty());
    assert_eq!(firsts(&container), [8.0]);
}

#[test]
fn values_of_constants_are_filled_by_their_outputs() {
    let value = TensorProto::new("", TensorProto::FLOAT, [1, 2]).with_raw_data(&[0; 8][..]);
    let mut node = NodeProto::new("Constant", [""; 0], ["c"]);
    node.attribute.push(AttributeProto::tensor("value", value));
    let mut graph = GraphProto::new("g");
    graph.node.push(node);
    let mut container = Container::new(ModelProto::new(graph));
    container.fill(weights([("c", constant(8.0))]), FillOptions::new().strict(true)).unwrap();
    assert!(container.is_empty());
    assert_eq!(container.tensor("c").unwrap().as_slice::<f32>().unwrap(), [8.0, 8.0]);
}

#[test]
fn uint8_weights_are_accepted_for_types_that_a_format_may_lack() {
    let bytes = |bytes: &[u8]| {
        Initializer::from(ArrayD::from_shape_vec(vec![bytes.len()], bytes.to_vec()).unwrap())
    };
    let cases: &[(DataType, &[i64], &[u8], bool)] = &[
        (DataType::Int4, &[3], &[0x21, 0x03], true),
        (DataType::Uint2, &[2, 2], &[0xe4], true),
        (DataType::Float6E2M3, &[4], &[1, 2, 3], true),
        (DataType::Float8E5M2, &[1, 2], &[1, 2], true),
        (DataType::Complex128, &[1], &[0; 16], true),
        (DataType::Int4, &[3], &[0x21], false),
        (DataType::Int8, &[2], &[1, 2], false),
        (DataType::Float, &[1], &[0; 4], false),
    ];
    for (dtype, dims, data, fits) in cases {
        let tensor = TensorProto::external("w", dtype.number(), *dims, "#w");
        let mut container = container([tensor]);
        let result = container.fill(weights([("w", bytes(data))]), FillOptions::new());
        assert_eq!(result.is_ok(), *fits, "{dtype} {dims:?}: {result:?}");
        if *fits {
            let tensor = Tensor::new(*dtype, *dims, Buffer::from(*data)).unwrap();
            assert_eq!(container.get("#w").unwrap().to_tensor().unwrap(), tensor);
        }
    }
}

#[test]
fn weights_of_another_type_are_told_both_types() {
    let as_bytes =
        "the weights are UINT8 [3], the model declares INT4 [4]: packed bytes have one dimension";
    let cases = [
        (DataType::Float, array![1_i32].into(), "the weights are INT32, the model declares FLOAT"),
        (DataType::Float, array![1_u8].into(), "the weights are UINT8, the model declares FLOAT"),
        (DataType::Int4, array![1_i32].into(), "the weights are INT32, the model declares INT4"),
        (DataType::Int4, array![1_u8, 2, 3].into(), as_bytes),
    ];
    for (dtype, given, said) in cases {
        let given: Initializer = given;
        let mut container = container([TensorProto::external("w", dtype.number(), [4], "#w")]);
        let error = container.fill(weights([("w", given)]), FillOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataType);
        assert!(error.reason().starts_with(said), "{error}");
        assert_eq!(error.reason().contains("bytes have"), said == as_bytes, "{error}");
    }
}

#[test]
fn every_fault_is_reported_and_nothing_changed() {
    let model = || {
        container([
            place("missing", &[1, 2], "#missing"),
            place("transposed", &[3, 2], "#transposed"),
            place("shape", &[3, 2], "#shape"),
            place("dtype", &[1, 2], "#dtype"),
            place("good", &[1, 2], "#good"),
        ])
    };
    let given = || {
        weights([
            ("transposed", ones(2, 3)),
            ("shape", ones(6, 1)),
            ("given", array![[1_i32, 2]].into()),
            ("good", constant(1.0)),
            ("left.over", constant(1.0)),
            ("renamed", constant(1.0)),
        ])
    };
    let options = FillOptions::new()
        .strict(true)
        .rename("renamed", "nowhere")
        .rename("given", "dtype")
        .rename("x", "good");
    let mut container = model();
    let error = container.fill(given(), options).unwrap_err();
    let found: Vec<_> = error.related().iter().map(|e| (e.kind(), e.to_string())).collect();
    let expected = [
        (
            ErrorKind::Shape,
            "tensor `transposed`: the weights are [2, 3], the model declares \
             [3, 2]: the exporter stored them transposed; transpose the weights first",
        ),
        (ErrorKind::Shape, "tensor `shape`: the weights are [6, 1], the model declares [3, 2]"),
        (
            ErrorKind::DataType,
            "tensor `dtype`: weights `given`: the weights are INT32, the model declares FLOAT",
        ),
        (
            ErrorKind::InvalidArgument,
            "weights `renamed`: renamed to `nowhere`, which the model does not have",
        ),
        (ErrorKind::MissingHandle, "tensor `missing`: no weights of this name were given"),
        (ErrorKind::InvalidArgument, "there are no weights `x` to rename"),
        (
            ErrorKind::InvalidArgument,
            "weights `left.over`: no tensor has this name: ignore or rename them",
        ),
    ];
    let expected = expected.map(|(kind, text)| (kind, text.to_owned()));
    assert_eq!(found, expected);
    assert!(container.is_empty());
    assert_eq!(container.model(), model().model());
}

#[test]
fn what_is_missing_or_left_over_is_listed() {
    let mut container = container([place("a", &[1, 2], "#a"), range("b", &[1, 2], 0, 8)]);
    let given = || weights([("z", constant(1.0)), ("a", constant(1.0)), ("skip", constant(1.0))]);
    let options = FillOptions::new().partial(true).ignore("skip");
    let filled = container.fill(given(), options).unwrap();
    assert_eq!((filled.filled, filled.bytes), (1, 8));
    assert_eq!(filled.unused, strings(&["z"]));
    assert_eq!(filled.missing, strings(&["b"]));
    assert_eq!(filled.own, strings(&[]));
    // The rest from elsewhere; what is there counts as given.
    let rest = weights([("b", constant(2.0))]);
    let filled = container.fill(rest, FillOptions::new().strict(true)).unwrap();
    assert_eq!(filled.own, strings(&["a"]));
    assert_eq!(firsts(&container), [1.0, 2.0]);
    // And again, with other weights.
    container.fill(weights([("a", constant(4.0))]), FillOptions::new()).unwrap();
    assert_eq!(firsts(&container), [4.0, 2.0]);
}

#[test]
fn rules_that_apply_to_no_weights_are_listed() {
    let new = FillOptions::new;
    let cases: [(FillOptions, &[&str]); 6] = [
        (new().ignore("skip"), &[]),
        (new().ignore("skipped"), &["ignore \"skipped\""]),
        (
            new().replace_prefix("sk", "x").replace_prefix("y.", "z."),
            &["replace_prefix \"y.\" by \"z.\""],
        ),
        // The longest prefix, an ignored name and a rename take precedence.
        (new().strip_prefix("s").strip_prefix("skip"), &["strip_prefix \"s\""]),
        (new().ignore("skip").strip_prefix("skip"), &["strip_prefix \"skip\""]),
        (new().rename("skip", "b").strip_prefix("skip"), &["strip_prefix \"skip\""]),
    ];
    for (options, expected) in cases {
        let mut container = container([place("a", &[1, 2], "#a"), place("b", &[1, 2], "#b")]);
        let given = weights([("a", constant(1.0)), ("skip", constant(1.0))]);
        let filled = container.fill(given, options.clone().partial(true)).unwrap();
        assert_eq!(filled.idle_rules, strings(expected), "{options:?}");
    }
}

/// In time that grows with the square of their number this would take minutes.
#[test]
fn very_many_weights_that_fit_nothing_are_listed() {
    let names = |prefix: &str| (0..60_000).map(|n| format!("{prefix}.{n}")).collect::<Vec<_>>();
    let tensors = names("model").into_iter().map(|name| place(&name, &[1, 2], &format!("#{name}")));
    let mut container = container(tensors);
    let weight = constant(1.0);
    let given: Vec<_> =
        names("checkpoint").into_iter().map(|name| (name, weight.clone())).collect();
    let options = FillOptions::new().partial(true);
    let filled = container.fill(given.clone(), options.clone().allow_no_match(true)).unwrap();
    assert_eq!((filled.filled, filled.missing.len(), filled.unused.len()), (0, 60_000, 60_000));
    assert_eq!(container.fill(given, options).unwrap_err().kind(), ErrorKind::MissingTensor);
}

/// Models without weights, with all, and with inline ones: a fill that takes nothing is an error
/// for each.
#[test]
fn a_fill_that_takes_nothing_is_an_error_with_a_hint() {
    let empty = || container([place("m.a", &[1, 2], "#m.a")]);
    let full = || {
        let mut container = empty();
        container.insert("#m.a", constant(1.0)).unwrap();
        container
    };
    let inlined = || container([inline("m.a", DataType::Float, &[1, 2])]);
    let none = "no tensor of the model has the name of any of the weights: ";
    let plain = FillOptions::new;
    let cases: [(&[&str], FillOptions, &str); 6] = [
        (&[], plain(), "no weights were given"),
        (&["b"], plain(), "rename, strip_prefix and replace_prefix change the names of weights"),
        (&["b"], plain().ignore("b"), "no weights were given"),
        (&["b", "x.m.a"], plain(), r#"strip_prefix of "x." makes "m.a" of "x.m.a""#),
        (&["w", "n.a"], plain().strip_prefix("n."), none),
        (&["b"], plain().rename_with(|name| Ok(format!("{name}.b"))), none),
    ];
    for container in [&empty as &dyn Fn() -> Container, &full, &inlined] {
        for (names, options, text) in &cases {
            for partial in [false, true] {
                let mut container = container();
                let before = container.clone();
                let given = names.iter().map(|name| ((*name).to_owned(), constant(4.0)));
                let error = container.fill(given, options.clone().partial(partial)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::MissingTensor, "{error}");
                assert!(error.to_string().contains(text), "{error}, not {text}");
                assert_eq!(container.model(), before.model());
                let given = names.iter().map(|name| ((*name).to_owned(), constant(4.0)));
                let allowed = options.clone().partial(true).allow_no_match(true);
                assert_eq!(container.fill(given, allowed).unwrap().filled, 0);
            }
        }
        let given = || weights([("a", constant(4.0))]);
        let error = container().fill(given(), plain()).unwrap_err().to_string();
        assert!(error.contains(r#"replace_prefix of "" by "m." makes "m.a" of "a""#), "{error}");
        let named = plain().rename_with(|name| Ok(format!("m.{name}")));
        assert_eq!(container().fill(given(), named.clone()).unwrap().filled, 1);
        let error = container().fill(given(), named.strip_prefix("x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let fails = plain().rename_with(|_| Err(Error::other("no name")));
        let error = container().fill(given(), fails).unwrap_err();
        assert!(error.to_string().contains("weights `a`: no name"), "{error}");
    }
}

#[test]
fn an_attach_that_has_nothing_to_do_is_an_error() {
    let mut full = container([place("a", &[1, 2], "#a"), inline("b", DataType::Float, &[1, 2])]);
    full.insert("#a", constant(1.0)).unwrap();
    for mut container in [container([]), container([inline("b", DataType::Float, &[1, 2])]), full] {
        let error = container.attach(".", MmapChoice::never()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("there are no weights to attach"), "{error}");
    }
}

#[test]
fn one_weight_may_be_renamed_to_several_tensors() {
    let mut container = container([place("a", &[1, 2], "#a"), place("b", &[1, 2], "#b")]);
    let options = FillOptions::new().rename("wte", "a").rename("wte", "b");
    let filled = container.fill(weights([("wte", constant(4.0))]), options).unwrap();
    assert_eq!((filled.filled, filled.bytes), (1, 8));
    assert_eq!(firsts(&container), [4.0, 4.0]);
    let (a, b) = (container.get("#a").unwrap(), container.get("#b").unwrap());
    let address = |i: &Initializer| i.as_buffer().unwrap().as_ptr().addr();
    assert_eq!(address(a), address(b), "they are tied");
}
