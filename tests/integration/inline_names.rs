//! The names that inlining makes, against every name that may be there: whatever a body defines,
//! wherever the call stands and whatever has the name already, nothing hides anything and the model
//! computes the same.

use std::collections::HashSet;

use onnx_container::Container;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, Str,
    TrainingInfoProto,
};

use crate::dump::dump;
use crate::flow::{inlining_faults, known_flow, nodes_of, nodes_of_function, text};
use crate::support::{
    branches, call, few_or, floats, function, graph_of, int64s, model_of, node, parameter, vectors,
};

/// The name that a body of call 1 makes of `t`.
const MADE: &str = "t__1";

fn op(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    node(op_type, inputs, outputs, vec![])
}

/// A graph that defines `name` as an output of a node.
fn computing(name: &str, from: &str) -> GraphProto {
    graph_of(&[], &[name], vec![op("Neg", &[from], &[name])])
}

fn with_initializer(name: &str) -> GraphProto {
    let mut graph = graph_of(&[], &[name], vec![]);
    graph.initializer.push(floats(name, 0, 2));
    graph
}

fn with_sparse(name: &str) -> GraphProto {
    let mut graph = graph_of(&[], &["q"], vec![op("Abs", &[name], &["q"])]);
    let sparse = SparseTensorProto::new(floats(name, 1, 1), int64s("", &[0]), [2]);
    graph.sparse_initializer.push(sparse);
    graph
}

/// A node with a graph whose input is `name`.
fn scanning(name: &str, from: &str, output: &str) -> NodeProto {
    let mut body = computing("r", name);
    body.input = vectors(&[name]);
    let inputs = AttributeProto::int("num_scan_inputs", 1);
    node("Scan", &[from], &[output], vec![inputs, AttributeProto::graph("body", body)])
}

fn named(mut node: NodeProto, name: &str) -> NodeProto {
    node.name = Some(name.into());
    node
}

fn passing(graph: GraphProto, inputs: &[&str], output: &str) -> NodeProto {
    call("g", inputs, &[output], vec![AttributeProto::graph("p", graph)])
}

/// `g(x, c)`, which has the graph `p` in both branches.
fn choosing() -> FunctionProto {
    let both =
        ["then_branch", "else_branch"].map(|name| parameter(name, AttributeProto::GRAPH, "p"));
    let mut g = function("g", &["a", "c"], &["b"], vec![node("If", &["c"], &["b"], both.to_vec())]);
    g.attribute.push("p".into());
    g
}

/// Functions `f(a, c)` that define `t`: what defines it, and the nodes.
fn bodies() -> Vec<(&'static str, Vec<NodeProto>)> {
    let both = |graph: GraphProto| branches(&["b"], graph.clone(), graph);
    let deep = both(graph_of(
        &[],
        &["d"],
        vec![branches(&["d"], computing("t", "a"), computing("t", "a"))],
    ));
    vec![
        ("a value", vec![op("Neg", &["a"], &["t"]), op("Abs", &["t"], &["b"])]),
        ("a value that the call does not use", vec![op("Split", &["a"], &["b", "t"])]),
        ("a node's name", vec![named(op("Neg", &["a"], &["b"]), "t")]),
        ("both branches", vec![both(computing("t", "a"))]),
        ("an initializer", vec![both(with_initializer("t"))]),
        ("a sparse initializer", vec![both(with_sparse("t"))]),
        ("an input of a graph", vec![scanning("t", "a", "b")]),
        ("a graph in a graph", vec![deep]),
        ("a graph that is passed on", vec![passing(computing("t", "a"), &["a", "c"], "b")]),
        (
            "a value that a graph captures",
            vec![op("Neg", &["a"], &["t"]), both(computing("q", "t"))],
        ),
    ]
}

/// Who has the name already: nodes before and after the call, from `x`, `z` and `c` to `w`.
struct Owner {
    what: &'static str,
    before: Vec<NodeProto>,
    after: Vec<NodeProto>,
    initializers: Vec<&'static str>,
}

fn owners() -> Vec<Owner> {
    let w = |from: &str| op("Relu", &[from], &["w"]);
    let both = |graph: GraphProto| branches(&["w"], graph.clone(), graph);
    let owner = |what, before, after| Owner { what, before, after, initializers: vec![] };
    let early = |what, node| owner(what, vec![node], vec![]);
    let late = |what, node| owner(what, vec![], vec![node]);
    let h = |name: &str| call(name, &["z", "c"], &["w"], vec![]);
    vec![
        late("nobody", w("z")),
        owner("a value before", vec![op("Abs", &["z"], &[MADE])], vec![w(MADE)]),
        owner("a value after", vec![], vec![op("Abs", &["z"], &[MADE]), w(MADE)]),
        owner("a value that nothing reads", vec![op("Abs", &["z"], &[MADE])], vec![w("z")]),
        early("a node before", named(w("z"), MADE)),
        late("a node after", named(w("z"), MADE)),
        early("a branch before", both(computing(MADE, "z"))),
        late("a branch after", both(computing(MADE, "z"))),
        late("a branch after, from the call", both(computing(MADE, "y"))),
        late("an initializer of a branch", both(with_initializer(MADE))),
        late("a sparse initializer of a branch", both(with_sparse(MADE))),
        late("an input of a graph", scanning(MADE, "z", "w")),
        late(
            "a graph in a graph",
            both(graph_of(
                &[],
                &["e"],
                vec![branches(&["e"], computing(MADE, "y"), computing(MADE, "z"))],
            )),
        ),
        late("a graph that is passed on", passing(computing(MADE, "y"), &["z", "c"], "w")),
        early("a function before", h("of a value")),
        late("a function after", h("of a value")),
        late("a graph in a function", h("of a graph")),
        late("the name of a node in a function", h("of a node")),
        Owner {
            initializers: vec![MADE],
            ..late("an initializer", op("Add", &[MADE, "z"], &["w"]))
        },
    ]
}

/// The functions that have the name in their bodies.
fn others() -> Vec<FunctionProto> {
    let value = vec![op("Abs", &["a"], &[MADE]), op("Neg", &[MADE], &["b"])];
    let graph = vec![branches(&["b"], computing(MADE, "a"), computing(MADE, "a"))];
    let name = vec![named(op("Abs", &["a"], &["b"]), MADE)];
    [("of a value", value), ("of a graph", graph), ("of a node", name)]
        .map(|(name, nodes)| function(name, &["a", "c"], &["b"], nodes))
        .into()
}

/// Where the call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Main,
    Branch,
    /// A function that is kept.
    Kept,
    BranchOfKept,
    /// A function that is inlined too.
    Inlined,
    Training,
}

const PLACES: [Place; 6] =
    [Place::Main, Place::Branch, Place::Kept, Place::BranchOfKept, Place::Inlined, Place::Training];

/// A model with these nodes, from `x`, `z` and `c` to `y` and `w`, at `place`, and the functions
/// that are called; `None` where they cannot be.
fn model(
    place: Place,
    nodes: Vec<NodeProto>,
    initializers: &[&str],
    f: &FunctionProto,
) -> Option<ModelProto> {
    let with_initializers = |mut graph: GraphProto| {
        graph.initializer.extend(initializers.iter().map(|name| floats(name, 0, 2)));
        graph
    };
    let inner = |nodes| with_initializers(graph_of(&[], &["y", "w"], nodes));
    let other = || {
        let nodes = vec![op("Neg", &["x"], &["not_y"]), op("Neg", &["z"], &["not_w"])];
        graph_of(&[], &["not_y", "not_w"], nodes)
    };
    let branch = |nodes| {
        let graph = |graph: GraphProto| AttributeProto::graph("graph", graph);
        let mut attributes = vec![graph(inner(nodes)), graph(other())];
        attributes[0].name = Some("then_branch".into());
        attributes[1].name = Some("else_branch".into());
        vec![node("If", &["c"], &["y", "w"], attributes)]
    };
    let kept = |nodes| {
        let kept = function("kept", &["x", "z", "c"], &["y", "w"], nodes);
        (vec![call("kept", &["x", "z", "c"], &["y", "w"], vec![])], vec![kept])
    };
    let in_function = matches!(place, Place::Kept | Place::Inlined);
    if in_function && !initializers.is_empty() {
        return None;
    }
    let mut training = None;
    let (nodes, functions) = match place {
        Place::Main => (nodes, vec![]),
        Place::Branch => (branch(nodes), vec![]),
        Place::Kept | Place::Inlined => kept(nodes),
        Place::BranchOfKept => kept(branch(nodes)),
        Place::Training => {
            training = Some(with_initializers(graph_of(&[], &["v", "w"], nodes)));
            (vec![op("Neg", &["x"], &["y"]), op("Neg", &["z"], &["w_of_main"])], vec![])
        }
    };
    let mut main = graph_of(&["x", "z", "c"], &["y", "w"], nodes);
    if place == Place::Main {
        main = with_initializers(main);
    }
    if let Some(training) = &mut training {
        main.output = vectors(&["y"]);
        for name in training.node.iter_mut().flat_map(|n| n.input.iter_mut().chain(&mut n.output)) {
            if *name == "y" {
                *name = "v".into();
            }
        }
    }
    let mut model = model_of(main, functions);
    model.functions.push(f.clone());
    if let Some(training) = training {
        let mut info = TrainingInfoProto::default();
        info.algorithm = Some(Box::new(training));
        model.training_info.push(info);
    }
    let called = called_in(&model);
    let more = others().into_iter().chain([choosing()]);
    model.functions.extend(more.filter(|f| called.contains(&text(&f.name))));
    Some(model)
}

/// The operators of all nodes.
fn called_in(model: &ModelProto) -> HashSet<Str> {
    let training = model.training_info.iter().filter_map(|info| info.algorithm.as_deref());
    let graphs = model.graph.as_deref().into_iter().chain(training);
    let nodes = graphs.flat_map(|graph| nodes_of(&graph.node));
    let nodes = nodes.chain(model.functions.iter().flat_map(nodes_of_function));
    nodes.map(|node| text(&node.op_type)).collect()
}

/// Whether inlining `before` leaves no fault, and what it means.
fn check(what: &str, place: Place, before: &ModelProto) {
    let options = match place {
        Place::Kept | Place::BranchOfKept => InlineOptions::new().except(["local::kept"]),
        _ => InlineOptions::new(),
    };
    let mut after = before.clone();
    let outcome = inline_functions(&mut after, options);
    assert!(outcome.is_ok(), "{what}: {outcome:?}\n{}", dump(before));
    let both = || format!("{what}: {}became\n{}", dump(before), dump(&after));
    assert_eq!(inlining_faults(before, &after), Vec::<String>::new(), "{}", both());
    let differences = known_flow(before).differences(&known_flow(&after));
    assert_eq!(differences, Vec::<String>::new(), "{}", both());
    let [a, b] = [before, &after].map(|model| Container::new(model.clone()));
    let difference = a.semantic_difference(&b).unwrap_or_else(|e| panic!("{e}\n{}", both()));
    assert!(difference.is_none(), "{difference:?}\n{}", both());
}

#[test]
fn a_made_name_hides_nothing_wherever_the_name_is_already() {
    let mut cases = 0;
    for (body, nodes) in bodies() {
        let f = function("f", &["a", "c"], &["b"], nodes);
        for (number, owner) in owners().into_iter().enumerate() {
            // By default, one of the places for each pair, and another one for each body and owner.
            let first = (number + body.len()) % PLACES.len();
            for place in PLACES.into_iter().cycle().skip(first).take(few_or(1, PLACES.len())) {
                let Owner { before, after, initializers, .. } = &owner;
                let calls = [call("f", &["x", "c"], &["y"], vec![])];
                let nodes = before.iter().chain(&calls).chain(after).cloned().collect();
                let Some(model) = model(place, nodes, initializers, &f) else { continue };
                check(&format!("{body}, {}, {place:?}", owner.what), place, &model);
                cases += 1;
            }
        }
    }
    assert!(cases > few_or(150, 1000), "{cases}");
}

type Change = fn(&mut ModelProto);

/// The call itself, and the values around it, may have the name too.
#[test]
fn a_made_name_is_none_of_those_around_the_call() {
    let changes: [(&str, Change); 4] = [
        ("its input", |model| rename(model, "x")),
        ("its output", |model| rename(model, "y")),
        ("an input that it does not take", |model| rename(model, "z")),
        ("its own name", |model| {
            main_of(model).node[0].name = Some(MADE.into());
        }),
    ];
    for (body, nodes) in bodies() {
        let f = function("f", &["a", "c"], &["b"], nodes);
        for (what, change) in changes {
            let nodes =
                vec![call("f", &["x", "c"], &["y"], vec![]), op("Add", &["y", "z"], &["w"])];
            let mut model = model(Place::Main, nodes, &[], &f).unwrap();
            change(&mut model);
            check(&format!("{body}, {what}"), Place::Main, &model);
        }
    }
}

fn main_of(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

/// Calls the value `from` of the main graph as the made name.
fn rename(model: &mut ModelProto, from: &str) {
    let mut container = Container::new(model.clone());
    container.rename(from, MADE).unwrap();
    *model = container.model().clone();
}
