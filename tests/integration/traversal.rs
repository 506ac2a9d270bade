//! Every tensor is reached, in graph order.

use onnx_container::edit::ExternalizeOptions;
use onnx_container::external_data::is_external;
use onnx_container::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};
use onnx_container::proto::{TensorProto, TrainingInfoProto};
use onnx_container::traversal::{Body, BodyMut, Scope};
use onnx_container::{Container, MmapChoice, traversal};

use crate::support::{EVERYWHERE, assert_same, tensors_everywhere};

#[test]
fn every_place_is_visited_in_order() {
    let mut names = Vec::new();
    traversal::tensors(&tensors_everywhere(), |place, tensor| {
        names.push(place.qualified_name(tensor));
        Ok(())
    })
    .unwrap();
    assert_eq!(names, EVERYWHERE);
}

#[test]
fn both_walks_agree() {
    let mut model = tensors_everywhere();
    let (mut shared, mut exclusive) = (Vec::new(), Vec::new());
    traversal::tensors(&model, |place, tensor| {
        shared.push((place.qualified_name(tensor), place.site));
        Ok(())
    })
    .unwrap();
    traversal::tensors_mut(&mut model, |place, tensor| {
        exclusive.push((place.qualified_name(tensor), place.site));
        Ok(())
    })
    .unwrap();
    assert_eq!(shared, exclusive);
}

#[test]
fn all_of_them_go_out_and_come_back() {
    let model = tensors_everywhere();
    let mut container = Container::new(model.clone());
    let report = container.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    assert_eq!(report.moved, EVERYWHERE.len());
    assert_eq!(container.len(), EVERYWHERE.len(), "every handle is its own");
    traversal::tensors(container.model(), |place, tensor| {
        assert!(is_external(tensor), "{}", place.qualified_name(tensor));
        Ok(())
    })
    .unwrap();
    let original = Container::new(model.clone());
    assert_same(&container, &original);

    for one_file in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        container.save(&path, one_file).unwrap();
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        assert_eq!(loaded.len(), EVERYWHERE.len());
        assert_same(&loaded, &original);
        assert_eq!(loaded.embed().unwrap(), model, "nothing but the data changed");
    }
}

#[test]
fn a_walk_is_left_at_any_tensor_and_counts_positions() {
    let mut model = tensors_everywhere();
    for (at, expected) in EVERYWHERE.iter().enumerate() {
        let (place, tensor) = traversal::iter(&model).nth(at).unwrap();
        assert_eq!(place.position.index(), at);
        assert_eq!(place.qualified_name(tensor), *expected);
        let (place, _) = traversal::iter_mut(&mut model).nth(at).unwrap();
        assert_eq!(place.position.index(), at);
    }
    assert_eq!(traversal::iter(&model).count(), EVERYWHERE.len());
}

/// A node called `name`, with a subgraph of `count` tensors of one float.
fn around(name: &str, count: usize) -> NodeProto {
    let mut inner = GraphProto::new("inner");
    for i in 0..count {
        let tensor = TensorProto::new(format!("w{i}"), TensorProto::FLOAT, [1]);
        inner.initializer.push(tensor.with_raw_data(&[0; 4][..]));
    }
    let mut node = NodeProto::new("If", ["c"], ["y"]);
    node.name = Some(name.into());
    node.attribute.push(AttributeProto::graph("then_branch", inner));
    node
}

/// One name of 1 MB before each of 1,000 names would be 1 GB.
#[test]
fn a_huge_name_around_tensors_is_not_spelled_out_for_each() {
    let (huge, count) = ("\u{e4}".repeat(500_000), 1000);
    let mut of_node = GraphProto::new("g");
    of_node.node.push(around(&huge, count));
    let mut of_nodes = GraphProto::new("g");
    let mut nested = around(&huge, count);
    for _ in 0..20 {
        let mut outer = around(&huge, 0);
        outer.attribute[0].g.as_mut().unwrap().node.push(nested);
        nested = outer;
    }
    of_nodes.node.push(nested);
    let mut of_function = ModelProto::new(GraphProto::new("g"));
    let mut function = FunctionProto::default();
    function.domain = Some((&huge).into());
    function.name = Some((&huge).into());
    function.node.push(around("n", count));
    of_function.functions.push(function);
    let mut of_list = GraphProto::new("g");
    let mut node = NodeProto::new("Lists", ["x"], [huge.as_str()]);
    let mut tensors = around("n", count).attribute[0].g.take().unwrap().initializer;
    tensors.iter_mut().for_each(|tensor| tensor.name = None);
    node.attribute.push(AttributeProto::tensors("ts", tensors));
    of_list.node.push(node);

    let models = [ModelProto::new(of_node), ModelProto::new(of_nodes), of_function];
    for model in models.into_iter().chain([ModelProto::new(of_list)]) {
        let names: Vec<_> =
            traversal::iter(&model).map(|(place, tensor)| place.qualified_name(tensor)).collect();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| name.len() < 600 && !name.contains('\u{fffd}')));
        let scopes: Vec<Scope> = traversal::iter(&model).map(|(place, _)| place.scope).collect();
        assert!(scopes.iter().all(|scope| scope.path().as_ptr() == scopes[0].path().as_ptr()));
        let mut container = Container::new(model);
        container.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
        assert_eq!(container.len(), count);
        assert!(container.iter().all(|(handle, _)| handle.as_str().len() < 610));
    }
}

#[test]
fn names_that_are_cut_keep_their_ends() {
    let scope_of = |name: &str| {
        let mut graph = GraphProto::new("g");
        graph.node.push(around(name, 1));
        let model = ModelProto::new(graph);
        traversal::iter(&model).next().unwrap().0.scope.path().to_owned()
    };
    assert_eq!(scope_of(&"n".repeat(200)), format!("{}.then_branch", "n".repeat(200)));
    let long = format!("{}{}", "a".repeat(150), "b".repeat(150));
    assert_eq!(scope_of(&long), format!("{}~{}.then_branch", "a".repeat(100), "b".repeat(100)));
}

#[test]
fn every_graph_is_reached_and_its_changes_are_walked() {
    let mut model = tensors_everywhere();
    model.training_info.push(TrainingInfoProto::default());
    let mut expected = Vec::new();
    traversal::graphs(&model, |scope, body| {
        let kind = if matches!(body, Body::Function(_)) { "function" } else { "graph" };
        expected.push((scope.path().to_owned(), scope.in_function(), scope.depth(), kind));
        Ok(())
    })
    .unwrap();
    let paths: Vec<_> = expected.iter().map(|(path, ..)| path.as_str()).collect();
    let reached = [
        "",
        "if_node.then_branch",
        "if_node.then_branch/deep.body",
        "if_node.else_branch",
        "graphs_out.branches",
        "local::F",
        "local::F/f_if.then_branch",
        "training_info[0].initialization",
        "training_info[0].algorithm",
    ];
    assert_eq!(paths, reached);
    assert_eq!((expected[5].1, expected[5].2, expected[5].3), (true, 1, "function"));

    let before = model.clone();
    let mut found = Vec::new();
    traversal::graphs_mut(&mut model, |scope, body| {
        let kind = if matches!(body, BodyMut::Function(_)) { "function" } else { "graph" };
        found.push((scope.path().to_owned(), scope.in_function(), scope.depth(), kind));
        if scope.is_main() {
            body.nodes().push(around("added", 0));
        }
        Ok(())
    })
    .unwrap();
    assert!(found.iter().any(|(path, ..)| path == "added.then_branch"));
    found.retain(|(path, ..)| path != "added.then_branch");
    assert_eq!(found, expected);
    model.graph.as_mut().unwrap().node.pop();
    assert_eq!(model, before);
    let rare = |node: &NodeProto| node.attribute.iter().filter(|a| a.more.is_set()).count();
    let count =
        |model: &ModelProto| model.graph.as_ref().unwrap().node.iter().map(rare).sum::<usize>();
    assert_eq!(count(&model), count(&before), "the walk makes no rare fields");
}
