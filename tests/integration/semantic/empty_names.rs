//! Empty names at the end of inputs and outputs: they count where an operator has a list, and where
//! nothing is known of it.
//!
//! The operators are those of the table that `scripts/make_opset.py` writes from onnx's schemas.

use onnx_container::digest::SemanticDigest;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use onnx_container::{Container, ErrorKind};

use self::arities::ARITIES;
use self::row::Row;
use crate::support::{branches, call, function, graph_of, model_of, node};

#[path = "../../../src/graph/opset/arities.rs"]
mod arities;
#[path = "../../../src/graph/opset/row.rs"]
mod row;

/// Where a node may stand.
#[derive(Debug, Clone, Copy)]
enum Place {
    Main,
    Branch,
    Function,
    BranchOfFunction,
}

const PLACES: [Place; 4] = [Place::Main, Place::Branch, Place::Function, Place::BranchOfFunction];

/// A node from `a` with `inputs` inputs and `outputs` outputs of which the first is `y`, with empty
/// names behind them.
fn with_places(op: &str, inputs: [usize; 2], outputs: [usize; 2]) -> NodeProto {
    let names = |[named, empty]: [usize; 2], name: &dyn Fn(usize) -> String| {
        (0..named).map(name).chain(vec![String::new(); empty]).collect::<Vec<_>>()
    };
    let output = |i: usize| if i == 0 { "y".to_owned() } else { format!("o{i}") };
    NodeProto::new(op, names(inputs, &|_| "a".to_owned()), names(outputs, &output))
}

/// Wraps nodes from `a` to `y`, so that they stand at `place` of a model over `domain` in
/// `version`.
fn placed(nodes: Vec<NodeProto>, place: Place, import: Option<(&str, i64)>) -> ModelProto {
    let branch = || {
        let other = graph_of(&[], &["a"], vec![]);
        let inner = graph_of(&[], &["y"], nodes.clone());
        vec![branches(&["z"], inner, other)]
    };
    let inner = |nodes, output| function("f", &["c", "a"], &[output], nodes);
    let (nodes, functions, output) = match place {
        Place::Main => (nodes, vec![], "y"),
        Place::Branch => (branch(), vec![], "z"),
        Place::Function => {
            (vec![call("f", &["c", "a"], &["z"], vec![])], vec![inner(nodes, "y")], "z")
        }
        Place::BranchOfFunction => {
            (vec![call("f", &["c", "a"], &["z"], vec![])], vec![inner(branch(), "z")], "z")
        }
    };
    let mut model = model_of(graph_of(&["c", "a"], &[output], nodes), functions);
    let imports =
        import.into_iter().map(|(domain, version)| OperatorSetIdProto::new(domain, version));
    model.opset_import.retain(|own| own.domain.as_ref().is_some_and(|d| *d == *"local"));
    model.opset_import.extend(imports);
    model.functions.iter_mut().for_each(|function| function.opset_import.clear());
    model
}

fn digest(model: ModelProto) -> SemanticDigest {
    Container::new(model).semantic_digest().unwrap_or_else(|error| panic!("{error}"))
}

/// Holds the digest of a node with and without empty names to `may_be_left_out`.
fn hold(
    said: &str,
    of: &dyn Fn([usize; 2]) -> SemanticDigest,
    single: usize,
    known: bool,
    first: usize,
) {
    for named in first..=single + 1 {
        let without = of([named, 0]);
        for empty in 1..=2 {
            let may_be_left_out = known && named + empty <= single;
            let same = of([named, empty]) == without;
            assert_eq!(same, may_be_left_out, "{said}: {named} names and {empty} empty ones");
        }
    }
}

/// How many of the formal parameters are no list.
fn single(formals: &str) -> usize {
    let formals = formals.trim_start_matches('?');
    formals.find('*').unwrap_or(formals.len())
}

#[test]
fn they_count_in_lists_of_every_operator() {
    let mut lists = 0;
    for (i, row) in ARITIES.iter().enumerate() {
        let (domain, op, version) = row.key();
        if op == "Gradient" {
            continue;
        }
        // An If of branches is no node of the version; each place has operators of every kind.
        let place = PLACES[i % PLACES.len()];
        let said = format!("{domain}.{op} {version} ({place:?})");
        let of = |inputs, outputs| {
            let mut node = with_places(op, inputs, outputs);
            node.domain = Some(domain.into());
            digest(placed(vec![node], place, Some((domain, version))))
        };
        hold(&format!("inputs of {said}"), &|names| of(names, [1, 0]), single(row.inputs), true, 0);
        hold(
            &format!("outputs of {said}"),
            &|names| of([1, 0], names),
            single(row.outputs),
            true,
            1,
        );
        lists += [row.inputs, row.outputs].iter().filter(|formals| formals.contains('*')).count();
    }
    assert!(lists > 25, "{lists}");
}

#[test]
fn they_count_where_nothing_is_known_of_the_operator() {
    let cases = [
        ("com.microsoft", "QLinearConcat", Some(("com.microsoft", 1)), ""),
        ("mine", "Relu", Some(("mine", 1)), ""),
        ("", "Mine", Some(("", 21)), ""),
        ("ai.onnx.ml", "Mine", Some(("ai.onnx.ml", 3)), ""),
        ("", "Gemm", Some(("", 0)), ""),
        ("", "Gemm", Some(("", 999)), ""),
        ("", "Gemm", None, ""),
        ("", "Gemm", Some(("", 21)), "overload"),
    ];
    for ((domain, op, import, overload), place) in
        cases.into_iter().flat_map(|case| PLACES.map(|place| (case, place)))
    {
        let of = |inputs, outputs| {
            let mut node = with_places(op, inputs, outputs);
            node.domain = Some(domain.into());
            node.overload = (!overload.is_empty()).then(|| Box::new(overload.into()));
            digest(placed(vec![node], place, import))
        };
        let said = format!("{domain}.{op} {import:?} ({place:?})");
        hold(&said, &|names| of(names, [1, 0]), 2, false, 0);
        hold(&said, &|names| of([1, 0], names), 2, false, 1);
    }
}

/// What a call leaves out is an empty name in the body, whether or not the call has a place for it.
#[test]
fn they_count_where_a_call_leaves_an_input_out() {
    for (op, counts) in
        [("Concat", true), ("SequenceConstruct", true), ("Max", true), ("Clip", false)]
    {
        let body = |inputs: &[&str]| vec![node(op, inputs, &["b"], vec![])];
        let called = |inputs: &[&str], given: &[&str]| {
            let functions = vec![function("f", &["p", "q"], &["b"], body(inputs))];
            let nodes = vec![call("f", given, &["y"], vec![])];
            model_of(graph_of(&["x"], &["y"], nodes), functions)
        };
        let (both, one) = (called(&["p", "q"], &["x"]), called(&["p"], &["x"]));
        let written = called(&["p", "q"], &["x", ""]);
        assert_eq!(digest(both.clone()), digest(written), "{op}");
        assert_eq!(digest(both.clone()) != digest(one), counts, "{op}");
        let mut inlined = both.clone();
        inline_functions(&mut inlined, InlineOptions::new()).unwrap();
        assert_eq!(digest(both), digest(inlined), "{op}");
    }
}

#[test]
fn models_part_at_a_node_with_an_empty_name_more() {
    let split = |outputs: [usize; 2]| {
        let node = with_places("Split", [1, 0], outputs);
        Container::new(placed(vec![node], Place::Main, Some(("", 13))))
    };
    let parted = split([2, 0]).semantic_difference(&split([2, 1])).unwrap().unwrap();
    assert_eq!(parted.reason(), "they have other outputs");
    let concat = |inputs: [usize; 2]| {
        let node = with_places("Concat", inputs, [1, 0]);
        Container::new(placed(vec![node], Place::Main, Some(("", 13))))
    };
    let parted = concat([2, 0]).semantic_difference(&concat([2, 1])).unwrap().unwrap();
    assert_eq!(parted.reason(), "2 inputs became 3");
}

/// `Gradient` names values in its attributes: what it gives depends on more than its inputs.
#[test]
fn an_operator_that_names_values_has_no_digest() {
    let domain = "ai.onnx.preview.training";
    let gradient = |import| {
        let mut gradient = node("Gradient", &["a", "a"], &["y"], vec![]);
        gradient.domain = Some(domain.into());
        PLACES.map(|place| placed(vec![gradient.clone()], place, import))
    };
    for model in gradient(Some((domain, 1))).into_iter().chain(gradient(None)) {
        let error = Container::new(model).semantic_digest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("(Gradient)"), "{error}");
    }
    // One that no output depends on is not looked at.
    let unused = |mut model: ModelProto| {
        let graph: &mut GraphProto = model.graph.as_mut().unwrap();
        graph.output = crate::support::vectors(&["a"]);
        model
    };
    let [main, ..] = gradient(None);
    digest(unused(main));
}
