//! `diff A B`: what differs, and what is read to know it.

use std::fs;

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorAnnotation, TensorProto, ValueInfoProto,
};
use serde_json::{Value, json};

use crate::support::{Folder, floats, model};

/// `y = x + w`, with a weight `v` that nothing uses.
fn small(w: &[f32]) -> ModelProto {
    let mut graph = GraphProto::new("g");
    let bytes: Vec<_> = w.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dims = [i64::try_from(w.len()).unwrap()];
    graph.initializer.push(TensorProto::new("w", 1, dims).with_raw_data(bytes));
    graph.initializer.push(floats("v", 500));
    graph.input.push(ValueInfoProto::tensor("x", 1, dims));
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", 1, dims));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// Numbers of which the first ones are `values`.
fn weights(values: &[f32]) -> Vec<f32> {
    values.iter().copied().chain((values.len()..600).map(|n| n as f32)).collect()
}

fn changed(change: impl FnOnce(&mut ModelProto)) -> ModelProto {
    let mut model = small(&weights(&[]));
    change(&mut model);
    model
}

fn diff(folder: &Folder, args: &[&str]) -> (i32, Value) {
    let run = folder.run(&[&["diff"], args, &["--json"]].concat());
    (run.code(), run.json())
}

#[test]
fn each_kind_of_difference_is_named() {
    let folder = Folder::new();
    folder.save("a.onnx", &small(&weights(&[])));
    fn graph(model: &mut ModelProto) -> &mut GraphProto {
        model.graph.as_mut().unwrap()
    }
    type Change = fn(&mut ModelProto);
    let cases: [(Change, &str); 20] = [
        (|m| m.ir_version = Some(11), "ir version: 10 -> 11\n"),
        (|m| m.opset_import[0].version = Some(20), "opset ai.onnx: 21 -> 20\n"),
        (|m| m.producer_name = Some("p".into()), "producer: (none) -> p\n"),
        (|m| m.model_version = Some(3), "model version: (none) -> 3\n"),
        (|m| m.doc_string = Some(Box::new("d".into())), "doc string: (none) -> d\n"),
        (|m| graph(m).name = Some("h".into()), "graph: g -> h\n"),
        (
            |m| m.metadata_props.push(StringStringEntryProto::new("k", "v")),
            "metadata k: (none) -> v\n",
        ),
        (
            |m| graph(m).input[0] = ValueInfoProto::tensor("x", 1, [-1]),
            "input x: FLOAT [600] -> FLOAT [?]\n",
        ),
        (|m| graph(m).output[0].name = Some("v".into()), "output v: (none) -> FLOAT [600]\n"),
        (
            |m| graph(m).node.push(NodeProto::new("Neg", ["y"], ["z"])),
            "nodes     Neg: 0 -> 1 node\n",
        ),
        (
            |m| graph(m).node[0].input.reverse(),
            "nodes     Add: 1 node, 1 node with other inputs, outputs or attributes\n",
        ),
        (
            |m| graph(m).value_info.push(ValueInfoProto::tensor("t", 1, [2])),
            "other     types of values between nodes: 1 added\n",
        ),
        (
            |m| graph(m).input[0].doc_string = Some(Box::new("d".into())),
            "other     documentation: 1 added\n",
        ),
        (
            |m| graph(m).quantization_annotation.push(TensorAnnotation::default()),
            "other     fields that this command does not compare one by one\n",
        ),
        (|m| graph(m).initializer.push(floats("n", 4)), "added     n  FLOAT [4] (16 B)\n"),
        (|m| drop(graph(m).initializer.pop()), "removed   v  FLOAT [500] (2.0 kB)\n"),
        (
            |m| graph(m).initializer[1].name = Some("u".into()),
            "renamed   v to u  FLOAT [500] (2.0 kB)\n",
        ),
        (
            |m| graph(m).initializer[1] = floats("v", 400),
            "changed   v  FLOAT [500] (2.0 kB) -> FLOAT [400] (1.6 kB)\n",
        ),
        (
            |m| graph(m).initializer[1].raw_data = Some(vec![0; 2000].into()),
            "changed   v  FLOAT [500] (2.0 kB)\n",
        ),
        (
            |m| graph(m).initializer[1].data_type = Some(TensorProto::INT32),
            "changed   v  FLOAT [500] (2.0 kB) -> INT32 [500] (2.0 kB)\n",
        ),
    ];
    for (change, text) in cases {
        folder.save("b.onnx", &changed(change));
        let run = folder.run(&["diff", "a.onnx", "b.onnx"]);
        assert_eq!((run.code(), run.stderr().as_str()), (1, ""), "{text}");
        assert!(run.stdout().contains(text), "no {text:?} in {}", run.stdout());
        let (code, json) = diff(&folder, &["a.onnx", "b.onnx"]);
        assert_eq!((code, &json["same"]), (1, &json!(false)), "{text}");
        // What differs from itself in nothing.
        assert_eq!(diff(&folder, &["b.onnx", "b.onnx"]).0, 0, "{text}");
    }
}

#[test]
fn the_size_of_changes_is_told_and_the_largest_comes_first() {
    let folder = Folder::new();
    folder.save("a.onnx", &small(&weights(&[])));
    let mut other = small(&weights(&[0.5, 1.0, f32::NAN]));
    other.graph.as_mut().unwrap().initializer[1] = floats("v", 500);
    let v = &mut other.graph.as_mut().unwrap().initializer[1];
    let mut bytes: Vec<u8> = (0..500).flat_map(|i| (i as f32).to_le_bytes()).collect();
    bytes[..4].copy_from_slice(&5.0_f32.to_le_bytes());
    v.raw_data = Some(bytes.into());
    folder.save("b.onnx", &other);
    let run = folder.run(&["diff", "a.onnx", "b.onnx", "--stats"]);
    run.says(&[
        "changed   v  FLOAT [500] (2.0 kB): at most 5, 0.01 on average, 1 of 500 elements\n\
         changed   w  FLOAT [600] (2.4 kB): at most 0.5, 0.000834725 on average, 2 of 600 elements, 1 NaN or infinite in B\n",
    ]);
    let (_, json) = diff(&folder, &["a.onnx", "b.onnx", "--stats"]);
    let expected = json!({"elements": 600, "differing": 2, "not_finite": 1, "not_finite_a": 0,
        "not_finite_b": 1, "max_abs": 0.5, "mean_abs": 0.5 / 599.0});
    assert_eq!(json["tensors"]["changed"][1]["difference"], expected);
    let (_, without) = diff(&folder, &["a.onnx", "b.onnx"]);
    assert_eq!(without["tensors"]["changed"][0]["difference"], json!(null));
    assert_eq!(without["tensors"]["changed"][0]["name"], "w", "by length");
}

/// Where no two finite elements differ, no number says how far the tensors are apart.
#[test]
fn elements_that_are_not_finite_are_told_by_their_model() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let cases: [(&[f32], &[f32], &str); 4] = [
        (&[0.0, 1.0], &[nan, inf], ": 2 of 600 elements, all of them NaN or infinite in B\n"),
        (&[nan, inf], &[nan, 1.0], ": 1 of 600 elements, all of them NaN or infinite in A\n"),
        (&[inf], &[-inf], ": 1 of 600 elements, all of them NaN or infinite in A or B\n"),
        (
            &[nan, 1.0],
            &[0.0, 2.0],
            "at most 1, 0.00166945 on average, 2 of 600 elements, 1 NaN or infinite in A\n",
        ),
    ];
    for (a, b, text) in cases {
        let folder = Folder::new();
        folder.save("a.onnx", &small(&weights(a)));
        folder.save("b.onnx", &small(&weights(b)));
        folder.run(&["diff", "a.onnx", "b.onnx", "--stats"]).says(&[text]);
        let (_, json) = diff(&folder, &["a.onnx", "b.onnx", "--stats"]);
        let apart = &json["tensors"]["changed"][0]["difference"];
        let has_number = !text.contains("all of them");
        assert_eq!(
            (apart["max_abs"].is_null(), apart["mean_abs"].is_null()),
            (!has_number, !has_number)
        );
    }
}

/// A copy with inferred shapes, and one with other changes too.
#[test]
fn what_has_no_name_is_counted() {
    let folder = Folder::new();
    let model = |types: &[(&str, i64)], nodes: &[&str]| {
        changed(|model| {
            let graph = model.graph.as_mut().unwrap();
            graph.node = nodes.iter().map(|name| NodeProto::new("Neg", ["x"], [*name])).collect();
            let value = |(name, len): &(&str, i64)| ValueInfoProto::tensor(*name, 1, [*len]);
            graph.value_info = types.iter().map(value).collect();
        })
    };
    folder.save("a.onnx", &model(&[("s", 1), ("t", 2)], &["y", "z"]));
    folder.save("b.onnx", &model(&[("t", 3), ("u", 2), ("v", 2)], &["z", "y"]));
    folder
        .run(&["diff", "a.onnx", "b.onnx"])
        .says(&["other     types of values between nodes: 2 added, 1 removed, 1 changed\n\
         other     order of nodes: 2 in other places\n"]);
    // Attributes have no order: other nodes are told.
    let ordered = |names: [&str; 2], last: i64| {
        changed(|model| {
            let mut nodes =
                [NodeProto::new("Neg", ["x"], ["y"]), NodeProto::new("Op", ["y"], ["z"])];
            nodes[1].attribute = names.map(|name| AttributeProto::int(name, 1)).into();
            nodes[0].attribute.push(AttributeProto::int("last", last));
            model.graph.as_mut().unwrap().node = nodes.into();
        })
    };
    folder.save("c.onnx", &ordered(["p", "q"], 1));
    folder.save("d.onnx", &ordered(["q", "p"], 1));
    folder.save("e.onnx", &ordered(["q", "p"], 2));
    let said = |b: &str| folder.run(&["diff", "c.onnx", b]).stdout();
    let (order, other) = (said("d.onnx"), said("e.onnx"));
    assert!(order.contains("other     order of attributes: 1 node\n"), "{order}");
    assert!(!order.contains("nodes     "), "{order}");
    assert!(other.contains("nodes     Neg: 1 node, 1 node with other inputs"), "{other}");
    assert!(!other.contains("Op"), "{other}");
    let (code, json) = diff(&folder, &["a.onnx", "b.onnx"]);
    let expected = json!([
        {"what": "value_types", "added": 2, "removed": 1, "changed": 1},
        {"what": "node_order", "added": 0, "removed": 0, "changed": 2},
    ]);
    assert_eq!((code, &json["other"], &json["other_changes"]), (1, &json!(true), &expected));
}

/// Neither in a branch nor in the body of a function.
#[test]
fn attributes_have_no_order_in_inner_graphs() {
    let folder = Folder::new();
    // `Op` with two attributes and a tensor, in the place that `wrap` has for it.
    let op = |names: [&str; 2], value: i64| {
        let mut node = NodeProto::new("Op", ["x"], ["y"]);
        node.attribute = names.map(|name| AttributeProto::int(name, value)).into();
        node.attribute.push(AttributeProto::tensor("t", floats("t", 4)));
        node
    };
    let branch = |node: NodeProto| {
        changed(|model| {
            let mut body = GraphProto::new("then");
            body.node.push(node);
            let mut branch = NodeProto::new("If", ["x"], ["y"]);
            branch.attribute.push(AttributeProto::graph("then_branch", body));
            model.graph.as_mut().unwrap().node.push(branch);
        })
    };
    let function = |node: NodeProto| {
        changed(|model| {
            let mut function = FunctionProto::default();
            (function.domain, function.name) = (Some("d".into()), Some("F".into()));
            function.node.push(node);
            model.functions.push(function);
        })
    };
    let cases: [(&dyn Fn(NodeProto) -> ModelProto, &str); 2] = [
        (&branch, "nodes     If: 1 node, 1 node with other inputs"),
        (&function, "function d::F: 1 node, digest "),
    ];
    for (wrap, other) in cases {
        folder.save("a.onnx", &wrap(op(["p", "q"], 1)));
        folder.save("b.onnx", &wrap(op(["q", "p"], 1)));
        folder.save("c.onnx", &wrap(op(["q", "p"], 2)));
        let run = folder.run(&["diff", "a.onnx", "b.onnx"]).failed(&[]);
        let order = run.stdout();
        assert!(order.contains("other     order of attributes: 1 node\n"), "{order}");
        assert!(!order.contains("nodes     ") && !order.contains("digest"), "{order}");
        let run = folder.run(&["diff", "a.onnx", "c.onnx"]).failed(&[]);
        let changed = run.stdout();
        assert!(changed.contains(other) && !changed.contains("order of"), "{changed}");
    }
}

#[test]
fn a_model_that_is_stored_otherwise_is_the_same() {
    let folder = Folder::new();
    folder.save("a.onnx", &model());
    for (args, files) in [
        (&["pack", "a.onnx", "b.onnx"][..], Some("from the model to b.onnx.data")),
        (&["split", "a.onnx", "b.onnx"], Some("from the model to")),
        (&["embed", "a.onnx", "b.onnx"], None),
    ] {
        folder.run(args).done();
        let run = folder.run(&["diff", "a.onnx", "b.onnx"]).done();
        assert!(run.stdout().contains("the same: "), "{args:?} {run:?}");
        assert_eq!(files.is_none(), !run.stdout().contains("moved"), "{args:?} {run:?}");
        assert!(files.is_none_or(|text| run.stdout().contains(text)), "{args:?} {run:?}");
        folder.run(&["diff", "a.onnx", "b.onnx", "--no-mmap"]).done();
    }
}

#[test]
fn weights_are_read_only_where_nothing_else_tells() {
    let folder = Folder::new();
    folder.save("m.onnx", &small(&weights(&[])));
    folder.run(&["pack", "m.onnx", "a.onnx", "--digests"]).done();
    folder.run(&["edit", "a.onnx", "b.onnx", "--set-metadata", "k=v"]).done();
    folder.run(&["pack", "m.onnx", "c.onnx", "--digests"]).done();
    fs::copy(folder.path("m.onnx"), folder.path("d.onnx")).unwrap();
    let read = |a: &str, b: &str, args: &[&str]| {
        let (code, json) = diff(&folder, &[&[a, b], args].concat());
        (code, json["tensors"]["bytes_read"].as_u64().unwrap())
    };
    // One file, and stored digests.
    assert_eq!(read("a.onnx", "b.onnx", &[]), (1, 0));
    assert_eq!(read("a.onnx", "c.onnx", &[]), (0, 0));
    assert_eq!(read("a.onnx", "c.onnx", &["--no-mmap"]), (0, 0));
    // Neither.
    assert_eq!(read("a.onnx", "m.onnx", &[]), (0, 8800));
    assert_eq!(read("m.onnx", "d.onnx", &[]), (0, 8800));
    // Digests that are stored are believed, and no file has to be there.
    fs::remove_file(folder.path("c.onnx.data")).unwrap();
    assert_eq!(read("a.onnx", "c.onnx", &[]), (0, 0));
    let run = folder.run(&["diff", "m.onnx", "c.onnx"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr().contains("c.onnx.data"), "{run:?}");
}

/// Functions of one name and two overloads are two functions.
#[test]
fn functions_are_told_by_their_overloads() {
    let folder = Folder::new();
    let overloaded = |overload: &str, values: [(&str, i64); 2]| {
        let mut function = FunctionProto::new("local", "f");
        function.overload = Some(Box::new(overload.into()));
        let mut node = NodeProto::new("Own", ["x"], ["y"]);
        node.attribute = values.map(|(name, value)| AttributeProto::int(name, value)).into();
        function.node.push(node);
        function
    };
    let with = |of_f: [(&str, i64); 2], of_g: [(&str, i64); 2]| {
        changed(|model| model.functions = vec![overloaded("f", of_f), overloaded("g", of_g)])
    };
    let [pq, qp, other] = [[("p", 1), ("q", 2)], [("q", 2), ("p", 1)], [("p", 1), ("q", 3)]];
    folder.save("a.onnx", &with(pq, pq));
    for (model, functions, is_reordered) in [
        (with(other, pq), &["local::f:f"][..], false),
        (with(pq, other), &["local::f:g"], false),
        (with(other, other), &["local::f:f", "local::f:g"], false),
        (with(pq, qp), &[], true),
        (with(qp, qp), &[], true),
    ] {
        folder.save("b.onnx", &model);
        let (code, found) = diff(&folder, &["a.onnx", "b.onnx"]);
        let named = found["properties"].as_array().unwrap().iter();
        let named: Vec<_> = named.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((code, &named[..]), (1, functions), "{found}");
        let text = folder.run(&["diff", "a.onnx", "b.onnx"]).stdout();
        assert_eq!(text.contains("order of attributes"), is_reordered, "{text}");
    }
}

#[test]
fn lists_are_as_long_as_asked_for() {
    let folder = Folder::new();
    let graph = |count: i64| {
        let mut graph = GraphProto::new("g");
        graph.initializer = (0..count).map(|n| floats(&format!("w{n}"), 4 + n)).collect();
        let mut model = ModelProto::new(graph);
        model.opset_import.push(OperatorSetIdProto::new("", 21));
        model
    };
    folder.save("a.onnx", &graph(0));
    folder.save("b.onnx", &graph(30));
    let lines = |args: &[&str]| {
        let run = folder.run(&[&["diff", "a.onnx", "b.onnx"], args].concat());
        run.stdout().lines().filter(|line| line.starts_with("added")).count()
    };
    assert_eq!((lines(&[]), lines(&["--top", "3"]), lines(&["--top", "0"])), (20, 3, 30));
    folder.run(&["diff", "a.onnx", "b.onnx"]).says(&["and 10 more", "added     w29  FLOAT [33]"]);
}

#[test]
fn what_cannot_be_compared_is_exit_code_2() {
    let folder = Folder::new();
    folder.save("a.onnx", &small(&weights(&[])));
    fs::write(folder.path("x.onnx"), "hello").unwrap();
    for args in [&["a.onnx", "gone.onnx"], &["x.onnx", "a.onnx"]] {
        for semantic in [&[][..], &["--semantic"]] {
            let (code, json) = diff(&folder, &[&args[..], semantic].concat());
            assert_eq!(code, 2, "{args:?} {json}");
            assert!(json["error"]["message"].is_string(), "{json}");
        }
    }
}

/// A float of 64 bits does not tell the ends of Slice apart.
#[test]
fn long_integers_that_differ_by_one_differ() {
    let folder = Folder::new();
    let with = |last: i64| {
        changed(|model| {
            let bytes =
                [i64::MIN, last].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
            let tensor = TensorProto::new("ends", TensorProto::INT64, [2]).with_raw_data(bytes);
            model.graph.as_mut().unwrap().initializer.push(tensor);
        })
    };
    folder.save("a.onnx", &with(i64::MAX));
    folder.save("b.onnx", &with(i64::MAX - 1));
    let (code, found) = diff(&folder, &["a.onnx", "b.onnx", "--stats"]);
    let apart = &found["tensors"]["changed"][0]["difference"];
    assert_eq!((code, &apart["max_abs"], &apart["differing"]), (1, &json!(1.0), &json!(1)));
}

/// Parts of complex elements are not counted as elements.
#[test]
fn complex_elements_are_counted_whole() {
    let folder = Folder::new();
    let with = |parts: [f32; 6]| {
        changed(|model| {
            let bytes = parts.iter().flat_map(|part| part.to_le_bytes()).collect::<Vec<_>>();
            let tensor = TensorProto::new("c", TensorProto::COMPLEX64, [3]).with_raw_data(bytes);
            model.graph.as_mut().unwrap().initializer.push(tensor);
        })
    };
    folder.save("a.onnx", &with([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    for (b, said) in [
        ([4.0, 6.0, 3.0, 5.0, 5.0, 6.0], "at most 5, 2 on average, 2 of 3 elements\n"),
        ([1.0, 2.0, f32::NAN, 5.0, 5.0, 7.0], "0.5 on average, 2 of 3 elements, 1 NaN or infinite"),
    ] {
        folder.save("b.onnx", &with(b));
        folder.run(&["diff", "a.onnx", "b.onnx", "--stats"]).says(&[said]);
    }
}

/// Tied tensors of two types are not compared by the numbers of one of them.
#[test]
fn tied_tensors_of_two_types_are_compared_each() {
    let folder = Folder::new();
    for (name, byte) in [("a", 1), ("b", 255)] {
        let location = format!("{name}.bin");
        fs::write(folder.path(&location), [byte; 8]).unwrap();
        let mut graph = GraphProto::new("g");
        for (name, dtype) in [("u", TensorProto::UINT8), ("i", TensorProto::INT8)] {
            graph.initializer.push(TensorProto::external(name, dtype, [8], &location));
        }
        folder.save(&format!("{name}.onnx"), &ModelProto::new(graph));
    }
    let run = folder.run(&["diff", "a.onnx", "b.onnx", "--stats"]);
    run.says(&["u  UINT8 [8] (8 B): at most 254", "i  INT8 [8] (8 B): at most 2,"]);
}

/// Stored digests are believed unless that is declined.
#[test]
fn damage_behind_stored_digests_is_found_on_request() {
    let folder = Folder::new();
    folder.save("m.onnx", &small(&weights(&[])));
    for name in ["a.onnx", "b.onnx"] {
        folder.run(&["pack", "m.onnx", name, "--digests"]).done();
    }
    let mut bytes = fs::read(folder.path("b.onnx.data")).unwrap();
    bytes[5] ^= 1;
    fs::write(folder.path("b.onnx.data"), bytes).unwrap();
    let run = folder.run(&["diff", "a.onnx", "b.onnx"]).done();
    run.says(&["the same", "0 B of weights read; 2 tensors told by stored digests"]);
    let (code, found) = diff(&folder, &["a.onnx", "b.onnx", "--ignore-stored-digests"]);
    assert_eq!((code, found["tensors"]["by_digests"].as_u64()), (1, Some(0)));
    assert_eq!(found["tensors"]["changed"][0]["name"], "w");
}

/// Tied tensors are read once, and ranges out of all proportion are refused.
#[test]
fn what_is_read_is_in_proportion_to_what_there_is() {
    let folder = Folder::new();
    let ranges = |location: &str, step: u64, count: u64, len: u64| {
        let mut graph = GraphProto::new("g");
        for number in 0..count {
            let mut tensor = TensorProto::external(
                format!("w{number}"),
                TensorProto::UINT8,
                [i64::try_from(len).unwrap()],
                location,
            );
            for (key, value) in [("offset", number * step), ("length", len)] {
                tensor.external_data.push(StringStringEntryProto::new(key, value.to_string()));
            }
            graph.initializer.push(tensor);
        }
        ModelProto::new(graph)
    };
    const MIB: u64 = 1 << 20;
    for location in ["a.bin", "b.bin"] {
        fs::File::create(folder.path(location)).unwrap().set_len(MIB + 1000).unwrap();
    }
    folder.save("a.onnx", &ranges("a.bin", 0, 10, MIB));
    folder.save("b.onnx", &ranges("b.bin", 0, 10, MIB));
    let (code, found) = diff(&folder, &["a.onnx", "b.onnx"]);
    assert_eq!((code, found["tensors"]["bytes_read"].as_u64()), (0, Some(2 * MIB)));
    // One pass to know that they differ, and one to know how far.
    let mut bytes = vec![0; 1 << 20];
    bytes[7] = 3;
    fs::write(folder.path("b.bin"), bytes).unwrap();
    let (code, found) = diff(&folder, &["a.onnx", "b.onnx", "--stats"]);
    assert_eq!((code, found["tensors"]["bytes_read"].as_u64()), (1, Some(4 * MIB)));
    let changed = found["tensors"]["changed"].as_array().unwrap();
    assert_eq!(changed.len(), 10);
    assert!(changed.iter().all(|one| one["difference"]["max_abs"] == 3.0), "{changed:?}");
    fs::File::create(folder.path("b.bin")).unwrap().set_len(MIB + 1000).unwrap();
    for (args, step) in [(&["a.onnx", "b.onnx"][..], 1), (&["a.onnx", "b.onnx", "--stats"], 1)] {
        folder.save("a.onnx", &ranges("a.bin", step, 900, MIB));
        folder.save("b.onnx", &ranges("b.bin", step, 900, MIB));
        let run = folder.run(&[&["diff"], args].concat());
        assert!(run.code() == 2 && run.stderr().contains("overlap"), "{run:?}");
    }
}
