//! `verify`: what it takes as a proof, and that it has none for models that differ.

use onnx_container::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use onnx_container::{DataType, Tensor};
use serde_json::json;

use crate::support::Folder;
use crate::support::sums as model;

const DIM: [&str; 2] = ["--dim", "batch=2"];

fn with(change: impl FnOnce(&mut ModelProto)) -> ModelProto {
    let mut model = model();
    change(&mut model);
    model
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    folder
}

fn nodes(model: &mut ModelProto) -> &mut Vec<NodeProto> {
    &mut model.graph.as_mut().unwrap().node
}

#[test]
fn models_with_one_digest_are_the_same_for_all_inputs() {
    let folder = folder();
    folder.save("reversed.onnx", &with(|model| nodes(model).reverse()));
    folder.run(&["pack", "m.onnx", "packed.onnx", "--min-bytes", "0"]).done();
    for other in ["m.onnx", "reversed.onnx", "packed.onnx"] {
        // No size of a dimension is needed: nothing is run.
        let run = folder.run(&["verify", "m.onnx", other]).done();
        run.says(&["same      for all inputs: the semantic digests are the same"]);
        let json = folder.run(&["verify", "m.onnx", other, "--json"]).done().json();
        assert_eq!((&json["proof"], &json["seeds"]), (&"semantic".into(), &json!([])));
        // Nothing ran, and nothing parts.
        assert!(json["engine"].is_null() && json["semantic_difference"].is_null(), "{json}");
        assert!(json.get("semantic").is_none());
    }
}

#[test]
fn models_with_other_nodes_are_the_same_on_the_inputs_of_the_runs() {
    let folder = folder();
    // By commutativity, with other names of the input and of an output.
    let swapped = with(|model| {
        nodes(model)[0] = NodeProto::new("Add", ["w", "renamed"], ["sum"]);
        nodes(model)[1] = NodeProto::new("Abs", ["renamed"], ["z"]);
        let graph = model.graph.as_mut().unwrap();
        graph.input[0].name = Some("renamed".into());
        graph.output[0].name = Some("sum".into());
    });
    folder.save("swapped.onnx", &swapped);
    let verify = [&["verify", "m.onnx", "swapped.onnx"], &DIM[..]].concat();
    let run = folder.run(&[&verify[..], &["--runs", "3", "--seed", "5"]].concat()).done();
    run.says(&["same      bit by bit in 3 runs on random inputs", "digests   they part at "]);
    let json = folder.run(&[&verify[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["proof"], &json["seeds"]), (&"outputs".into(), &json!([0, 1, 2])));
    let parts = json["semantic_difference"].as_str().unwrap();
    assert!(parts.starts_with("they part at ") && json["engine"] == "machine", "{json}");
    // After the largest seed comes the first.
    let seeds = ["--seed", "18446744073709551615", "--runs", "2", "--json"];
    let json = folder.run(&[&verify[..], &seeds].concat()).done().json();
    assert_eq!(json["seeds"], json!([u64::MAX, 0]));
    // Without a run there is no proof.
    let run = folder.run(&[&verify[..], &["--runs", "0"]].concat());
    assert_eq!(run.code(), 1);
    run.says(&["not shown that the models compute the same"]);
    folder.run(&[&verify[..], &DIM].concat()).misused(&["--dim gives `batch` twice"]);
    // Also where the digests are enough.
    for more in [&["--runs", "0"][..], &[]] {
        let args = [&["verify", "m.onnx", "m.onnx", "--dim", "none=2"], more].concat();
        folder.run(&args).misused(&["no input has an open dimension `none`"]);
    }
}

#[test]
fn models_that_differ_are_exit_code_1_with_what_differs() {
    let folder = folder();
    folder.save("neg.onnx", &with(|model| nodes(model)[1] = NodeProto::new("Neg", ["x"], ["z"])));
    let verify = [&["verify", "m.onnx", "neg.onnx"], &DIM[..]].concat();
    let run = folder.run(&verify);
    assert_eq!(run.code(), 1, "{run:?}");
    run.says(&[
        "the models do not compute the same",
        "digests   they part at ",
        "differs   output `z`, seed 0: element ",
    ]);
    let json = folder.run(&[&verify[..], &["--json"]].concat()).json();
    assert_eq!((&json["proof"], json["differences"].as_array().unwrap().len()), (&json!(null), 1));
    folder.run(&["verify", "m.onnx", "neg.onnx"]).misused(&["its dimension `batch` has no size"]);
    folder.save("less.onnx", &with(|model| drop(model.graph.as_mut().unwrap().output.pop())));
    let run = folder.run(&[&["verify", "m.onnx", "less.onnx"], &DIM[..]].concat());
    assert_eq!(run.code(), 1, "{run:?}");
    run.says(&["A has 2 outputs, B 1"]);
    folder.run(&["verify", "m.onnx", "gone.onnx"]).misused(&["gone.onnx"]);
    folder.run(&["verify", "m.onnx"]).misused(&["B"]);
}

/// Equal outputs are no proof where the inputs do not reach what differs.
#[test]
fn a_weight_that_differs_unseen_is_no_proof() {
    let folder = Folder::new();
    // y = max(x, w): no input of the runs is as small as the weight.
    let below = |bytes: [u8; 4]| {
        with(|model| {
            nodes(model)[0] = NodeProto::new("Max", ["x", "w"], ["y"]);
            let weight = &mut model.graph.as_mut().unwrap().initializer[0];
            weight.raw_data = Some(bytes.repeat(4).into());
        })
    };
    folder.save("m.onnx", &below((-1e30_f32).to_le_bytes()));
    folder.save("n.onnx", &below((-2e30_f32).to_le_bytes()));
    let verify = [&["verify", "m.onnx", "n.onnx"], &DIM[..]].concat();
    let run = folder.run(&verify).failed(&[]);
    run.says(&["not shown ", "a weight may have other elements,\n          and 3 runs"]);
    let json = folder.run(&[&verify[..], &["--json"]].concat()).failed(&[]).json();
    assert_eq!((json["proof"].as_str(), &json["other_elements"]), (None, &true.into()), "{json}");
    let run = folder.run(&[&verify[..], &["--rtol", "1e-3"]].concat()).done();
    run.says(&["same      bit by bit in 3 runs"]);
}

/// The same where the models differ in nodes or float types as well.
#[test]
fn a_weight_that_differs_unseen_is_found_beside_other_differences() {
    // y = max(x, w), with the inputs of the node in this order.
    let below = |inputs: [&str; 2], value: f32| {
        with(|model| {
            nodes(model)[0] = NodeProto::new("Max", inputs, ["y"]);
            let weight = &mut model.graph.as_mut().unwrap().initializer[0];
            weight.raw_data = Some(value.to_le_bytes().repeat(4).into());
        })
    };
    // The weight is stored as FLOAT16, and a node makes it FLOAT.
    let stored_half = |value: f32| {
        let mut model = below(["x", "full"], value);
        let mut cast = NodeProto::new("Cast", ["w"], ["full"]);
        cast.attribute.push(AttributeProto::int("to", 1));
        nodes(&mut model).insert(0, cast);
        let half = Tensor::from_f32(DataType::Float16, [4], &[value; 4]).unwrap();
        model.graph.as_mut().unwrap().initializer[0] = half.to_proto("w");
        model
    };
    let folder = Folder::new();
    folder.save("m.onnx", &below(["x", "w"], -1e4));
    folder.save("other.onnx", &below(["w", "x"], -2e4));
    folder.save("same.onnx", &below(["w", "x"], -1e4));
    folder.save("other_stored.onnx", &stored_half(-2e4));
    folder.save("same_stored.onnx", &stored_half(-1e4));
    for name in ["other", "same"] {
        let (model, half) = (format!("{name}.onnx"), format!("{name}_half.onnx"));
        folder.run(&["cast", &model, &half, "--to", "float16", "--min-bytes", "0"]).done();
    }
    // What is said of models whose weights are the same, and the proof in JSON.
    let cases = [
        ("", "bit by bit in 3 runs", "outputs"),
        ("_stored", "bit by bit in 3 runs", "outputs"),
        ("_half", "equal as numbers in 3 runs", "numbers"),
    ];
    for (kind, said, proof) in cases {
        let (other, same) = (format!("other{kind}.onnx"), format!("same{kind}.onnx"));
        for [a, b] in [["m.onnx", &other], [&other, "m.onnx"]] {
            let verify = [&["verify", a, b], &DIM[..]].concat();
            folder
                .run(&verify)
                .failed(&[])
                .says(&["not shown ", "a weight may have other elements"]);
            let json = folder.run(&[&verify[..], &["--json"]].concat()).failed(&[]).json();
            assert_eq!((json["proof"].as_str(), &json["other_elements"]), (None, &true.into()));
        }
        for [a, b] in [["m.onnx", &same], [&same, "m.onnx"]] {
            let verify = [&["verify", a, b], &DIM[..]].concat();
            folder.run(&verify).done().says(&["same      ", said]);
            let json = folder.run(&[&verify[..], &["--json"]].concat()).done().json();
            assert_eq!((&json["proof"], &json["other_elements"]), (&proof.into(), &false.into()));
        }
    }
}

/// `y = Max(inputs)` with the input `x` and these weights.
fn max_of(inputs: [&str; 2], weights: &[(&str, Tensor)]) -> ModelProto {
    let dtype = weights[0].1.dtype().number();
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", dtype, [4]));
    graph.output.push(ValueInfoProto::tensor("y", dtype, [4]));
    graph.node.push(NodeProto::new("Max", inputs, ["y"]));
    graph.initializer.extend(weights.iter().map(|(name, weight)| weight.to_proto(name)));
    ModelProto::new(graph).with_operator_set("", 21)
}

fn fours(value: f32) -> Tensor {
    Tensor::from(vec![value; 4])
}

/// An optimizer replaces weights by others of the same type and shape, and a name that two weights
/// have says nothing of either.
#[test]
fn weights_of_other_names_are_not_compared() {
    let folder = Folder::new();
    // `y = Max(x, w)` with `w` behind `op`, which an optimizer folds.
    let computed = |op: &str, name: &str, value: f32| {
        let mut model = max_of(["x", "w"], &[(name, fours(value))]);
        nodes(&mut model).insert(0, NodeProto::new(op, [name], ["w"]));
        model
    };
    let plain = |name: &str, value: f32| max_of([name, "x"], &[(name, fours(value))]);
    let constants = |values: [f32; 2]| {
        let mut model = max_of(["x", "a"], &[("w", fours(0.0))]);
        model.graph.as_mut().unwrap().initializer.clear();
        for (output, value) in ["a", "b"].into_iter().zip(values) {
            let mut node = NodeProto::new("Constant", [""; 0], [output]);
            node.attribute.push(AttributeProto::tensor("value", fours(value).to_proto("value")));
            nodes(&mut model).insert(0, node);
        }
        model
    };
    // The models, and whether a weight may have other elements.
    let cases = [
        ("another name", plain("w", -1e4), plain("v", -1e4), false),
        ("a folded weight", computed("Neg", "c", 1e4), plain("v", -1e4), false),
        ("one name", computed("Identity", "c", -1e4), plain("c", -2e4), true),
        ("one name for two", constants([-1e4, 5.0]), constants([-1e4, 6.0]), false),
    ];
    for (what, a, b, is_other) in cases {
        folder.save("a.onnx", &a);
        folder.save("b.onnx", &b);
        for [a, b] in [["a.onnx", "b.onnx"], ["b.onnx", "a.onnx"]] {
            let run = folder.run(&["verify", a, b, "--json"]);
            let json = run.json();
            if json["proof"] != "semantic" {
                assert_eq!(json["other_elements"], is_other, "{what}: {json}");
            }
            assert_eq!(run.code(), i32::from(is_other), "{what}: {json}");
        }
    }
}

/// A number is rounded to the narrower type in one step.
#[test]
fn a_weight_that_was_rounded_once_has_the_same_elements() {
    let folder = Folder::new();
    // The numbers of 64 bits and of 16 bits, and whether these are those, rounded.
    let close = 1.0 + 2_f64.powi(-11) + 2_f64.powi(-30);
    let cases = [
        (-1024.0 * close, -1025.0, true),
        (-1024.0 * close, -1024.0, false),
        (-1024.5, -1024.0, true),
        (-2000.0, -2000.0, true),
        (-1e300, f32::NEG_INFINITY, false),
        (-f64::INFINITY, f32::NEG_INFINITY, true),
    ];
    for (exact, half, is_same) in cases {
        let double = Tensor::from(vec![exact; 4]);
        let half = Tensor::from_f32(DataType::Float16, [4], &[half; 4]).unwrap();
        folder.save("a.onnx", &max_of(["x", "w"], &[("w", double)]));
        folder.save("b.onnx", &max_of(["w", "x"], &[("w", half)]));
        for [a, b] in [["a.onnx", "b.onnx"], ["b.onnx", "a.onnx"]] {
            let json = folder.run(&["verify", a, b, "--json"]).json();
            assert_eq!(json["other_elements"], !is_same, "{exact}: {json}");
        }
    }
}

#[test]
fn a_number_that_became_infinite_is_another_one() {
    let folder = Folder::new();
    // No input of the runs is as small, so none shows the weight.
    for (value, is_other) in [(-1e6, true), (-1e4, false), (f32::NEG_INFINITY, false)] {
        folder.save("a.onnx", &max_of(["x", "w"], &[("w", fours(value))]));
        let cast =
            ["cast", "a.onnx", "h.onnx", "--to", "float16", "--min-bytes", "1", "--weights-only"];
        folder.run(&cast).done();
        let run = folder.run(&["verify", "a.onnx", "h.onnx", "--json"]);
        assert_eq!(run.json()["other_elements"], is_other, "{value}: {run:?}");
    }
}

/// `cast` numbers the name of a weight where it is taken.
#[test]
fn a_weight_with_a_number_in_its_name_is_that_of_before() {
    let folder = Folder::new();
    for (name, value) in [("a.onnx", -1e4), ("b.onnx", -2e4)] {
        let taken = ("w_float16", Tensor::from(vec![1.0_f32]));
        folder.save(name, &max_of(["x", "w"], &[("w", fours(value)), taken]));
    }
    for way in [&["--weights-only"][..], &["--keep-io"]] {
        for (of, is_other) in [("a.onnx", false), ("b.onnx", true)] {
            let cast = ["cast", of, "h.onnx", "--to", "float16", "--min-bytes", "16"];
            folder.run(&[&cast[..], way].concat()).done();
            let json = folder.run(&["verify", "a.onnx", "h.onnx", "--json"]).json();
            let expected =
                if json["outputs"][0]["differing"] == 0 { json!(is_other) } else { json!(null) };
            assert_eq!(json["other_elements"], expected, "{of} {way:?}: {json}");
        }
    }
}

/// Weights are not compared where the answer does not count.
#[test]
fn other_elements_are_looked_for_where_they_count() {
    let folder = Folder::new();
    folder.save("a.onnx", &max_of(["x", "w"], &[("w", fours(-1e4))]));
    folder.save("b.onnx", &max_of(["w", "x"], &[("w", fours(-2e4))]));
    folder.save("c.onnx", &max_of(["w", "x"], &[("w", fours(9.0))]));
    let cases = [
        ("b.onnx", &[][..], json!(true)),
        ("b.onnx", &["--runs", "0"], json!(null)),
        ("b.onnx", &["--rtol", "1e-3"], json!(null)),
        ("c.onnx", &[], json!(null)),
    ];
    for (b, args, expected) in cases {
        let json = folder.run(&[&["verify", "a.onnx", b, "--json"], args].concat()).json();
        assert_eq!(json["other_elements"], expected, "{b} {args:?}: {json}");
    }
}

/// Models of other float types get the same numbers and are compared as numbers.
#[test]
fn a_cast_model_is_compared_with_its_original() {
    let folder = folder();
    folder.run(&["cast", "m.onnx", "h.onnx", "--to", "float16", "--min-bytes", "0"]).done();
    for (a, b) in [("m.onnx", "h.onnx"), ("h.onnx", "m.onnx")] {
        let verify = [&["verify", a, b, "--rtol", "1e-2", "--atol", "1e-2"], &DIM[..]].concat();
        folder.run(&verify).done().says(&["within the tolerance in 3 runs", "largest   "]);
        let json = folder.run(&[&verify[..], &["--json"]].concat()).done().json();
        assert_eq!(
            (&json["proof"], &json["outputs"][0]["output"]),
            (&"tolerance".into(), &"y".into())
        );
        let verify = [&["verify", a, b, "--rtol", "1e-9"], &DIM[..]].concat();
        folder.run(&verify).failed(&[]).says(&["differs   output `y`", "largest   y: "]);
    }
}

/// A model in DOUBLE gets the numbers that FLOAT holds, and its outputs are not rounded.
#[test]
fn a_model_in_double_is_compared_with_one_in_float() {
    let folder = Folder::new();
    let gather = |dtype: DataType, op: &str, last: f32| {
        let values = [0.5, 2.0, -1.0, last];
        let weight = Tensor::from_f32(dtype, [4], &values).unwrap().to_proto("w");
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("x", dtype.number(), [4]));
        graph.output.push(ValueInfoProto::tensor("y", dtype.number(), [4]));
        graph.node.push(NodeProto::new(op, ["x", "w"], ["y"]));
        graph.initializer.push(weight);
        ModelProto::new(graph).with_operator_set("", 21)
    };
    use DataType::{Double, Float};
    for (name, model) in [
        ("max_double.onnx", gather(Double, "Max", 3.0)),
        ("max_float.onnx", gather(Float, "Max", 3.0)),
        ("max_other.onnx", gather(Float, "Max", 4.0)),
        ("div_double.onnx", gather(Double, "Div", 3.0)),
        ("div_float.onnx", gather(Float, "Div", 3.0)),
    ] {
        folder.save(name, &model);
    }
    for (a, b) in [("max_double.onnx", "max_float.onnx"), ("max_float.onnx", "max_double.onnx")] {
        folder.run(&["verify", a, b]).done().says(&["same      equal as numbers in 3 runs"]);
    }
    let run = folder.run(&["verify", "max_double.onnx", "max_other.onnx", "--rtol", "1e-5"]);
    run.failed(&[]).says(&["differs   output `y`, seed 0: element 3 is 4, not 3 (1 of 4 differ)"]);
    let args = ["verify", "div_double.onnx", "div_float.onnx"];
    folder
        .run(&args)
        .failed(&[])
        .says(&["differs   output `y`", "largest   y: elements differ by"]);
    folder.run(&[&args[..], &["--rtol", "1e-6"]].concat()).done().says(&["within the tolerance"]);
}

#[test]
fn a_tolerance_is_said_to_be_one() {
    let folder = folder();
    let nearly = with(|model| {
        nodes(model)[1] = NodeProto::new("Abs", ["x"], ["a"]);
        nodes(model).push(NodeProto::new("Add", ["a", "w"], ["b"]));
        nodes(model).push(NodeProto::new("Sub", ["b", "w"], ["z"]));
    });
    folder.save("nearly.onnx", &nearly);
    let verify = ["verify", "m.onnx", "nearly.onnx", "--dim", "batch=9"];
    assert_eq!(folder.run(&verify).code(), 1);
    let run = folder.run(&[&verify[..], &["--rtol", "1e-5", "--runs", "1"]].concat()).done();
    run.says(&["same      within the tolerance in 1 run"]);
    let json = folder.run(&[&verify[..], &["--atol", "1e-5", "--json"]].concat()).done().json();
    assert_eq!(json["proof"], "tolerance");
}

#[test]
fn every_command_that_writes_verifies_by_the_digest() {
    let folder = folder();
    for command in ["pack", "split", "embed", "inline-functions"] {
        let args = [command, "m.onnx", &format!("{command}.onnx"), "--verify"];
        folder.run(&args).done().says(&["verified  it computes the same"]);
        let json = folder.run(&[&args[..], &["--json"]].concat()).done().json();
        let digest = json["verified"]["semantic"].as_str().unwrap_or_else(|| panic!("{json}"));
        let printed = folder.run(&["digest", "--semantic", "m.onnx"]).done().stdout();
        assert_eq!(digest, printed.trim());
    }
}
