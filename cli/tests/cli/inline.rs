//! `inline-functions`.

use std::fs;

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, ValueInfoProto,
};
use onnx_container::{Container, MmapChoice};

use crate::support::{Folder, floats, model, tensors};

pub fn call(name: &str, input: &str, output: &str) -> NodeProto {
    let mut call = NodeProto::new(name, [input], [output]);
    call.domain = Some("local".into());
    call
}

/// A function of one input and output whose body is `nodes`.
pub fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    let mut function = FunctionProto::new("local", name);
    function.input.push("a".into());
    function.output.push("b".into());
    function.node = nodes;
    function.opset_import = vec![OperatorSetIdProto::new("", 18)];
    function
}

/// A function that adds `value`.
fn adds(name: &str, value: TensorProto) -> FunctionProto {
    let mut constant = NodeProto::new("Constant", [""; 0], ["k"]);
    constant.attribute.push(AttributeProto::tensor("value", value));
    function(name, vec![constant, NodeProto::new("Add", ["a", "k"], ["b"])])
}

/// A model that calls `local::add` twice and `local::twice`, which calls `local::add` twice.
pub fn calls() -> ModelProto {
    let mut graph = GraphProto::new("main");
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [500]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [500]));
    graph.initializer.push(floats("w", 500));
    graph.node = vec![
        call("add", "x", "p"),
        call("add", "p", "q"),
        call("twice", "q", "r"),
        NodeProto::new("Add", ["r", "w"], ["y"]),
    ];
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(9);
    model.opset_import = vec![OperatorSetIdProto::new("", 18), OperatorSetIdProto::new("local", 1)];
    let mut twice = function("twice", vec![call("add", "a", "t"), call("add", "t", "b")]);
    twice.opset_import.push(OperatorSetIdProto::new("local", 1));
    model.functions = vec![adds("add", floats("", 500)), twice];
    model
}

/// The operators of the graph and the names of the functions in the model at `name`.
fn shape(folder: &Folder, name: &str) -> (Vec<String>, Vec<String>) {
    let container = Container::load(folder.path(name), MmapChoice::never()).unwrap();
    let model = container.model();
    let ops = model.graph.as_ref().unwrap().node.iter();
    let ops = ops.map(|node| node.op_type.as_ref().unwrap().to_string()).collect();
    let names = model.functions.iter().map(|f| f.name.as_ref().unwrap().to_string()).collect();
    (ops, names)
}

#[test]
fn functions_are_removed_and_inline_tensors_stay_inline() {
    let folder = Folder::new();
    folder.save("m.onnx", &calls());
    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--verify"]).done();
    run.says(&[
        "read      m.onnx: 2 tensors, 0 external",
        "inlined   5 calls: from 4 nodes to 9",
        "removed   2 functions",
        "wrote     1 file",
        "verified  5 tensors (10 kB, mapped) are the same bit for bit",
        "checked   no errors",
    ]);
    assert_eq!(folder.names(), ["m.onnx", "o.onnx"]);
    let ops = ["Constant", "Add"].repeat(4).into_iter().chain(["Add"]).collect::<Vec<_>>();
    assert_eq!(shape(&folder, "o.onnx"), (ops.iter().map(ToString::to_string).collect(), vec![]));
    // Once more, and over itself: there is nothing left to do.
    let run = folder.run(&["inline-functions", "o.onnx", "o.onnx", "--verify"]).done();
    run.says(&["inlined   0 calls: the model has no local functions", "wrote     nothing: "]);
    assert_eq!(folder.names(), ["m.onnx", "o.onnx"]);
}

#[test]
fn weights_stay_in_their_files_where_they_can() {
    let folder = Folder::new();
    folder.save("m.onnx", &calls());
    assert_eq!(folder.run(&["pack", "m.onnx", "p.onnx", "--all-tensors"]).code(), 0);
    folder.run(&["inline-functions", "m.onnx", "o.onnx"]).done();
    let expected = tensors(&folder.path("o.onnx"));
    fs::create_dir(folder.path("below")).unwrap();
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["p.onnx", "q.onnx"], &["q.onnx"], &["kept      1 file of weights", "p.onnx.data"]),
        (&["p.onnx", "s.onnx", "--no-mmap"], &["s.onnx"], &[]),
        (&["p.onnx", "below/o.onnx"], &["below/o.onnx", "below/o.onnx.data"], &["wrote     2"]),
        (&["p.onnx", "d.onnx", "--data-name", "w"], &["d.onnx", "w"], &["wrote     2 files"]),
        (
            &["p.onnx", "below/a.onnx", "--align", "4K", "--data-name", "w"],
            &["below/a.onnx", "below/w"],
            &["wrote     2 files", "below/w"],
        ),
        (&["p.onnx", "./p.onnx"], &["p.onnx"], &["kept      1 file of weights", "p.onnx.data"]),
    ];
    let weights = fs::read(folder.path("p.onnx.data")).unwrap();
    for (args, written, says) in cases {
        let run = folder.run(&[&["inline-functions", "--verify"][..], args].concat()).done();
        run.says(says).says(&["verified  5 tensors", "checked   no errors"]);
        assert_eq!(tensors(&folder.path(written[0])), expected, "{args:?}");
        assert!(written.iter().all(|name| folder.path(name).is_file()), "{args:?}");
        assert_eq!(fs::read(folder.path("p.onnx.data")).unwrap(), weights, "{args:?}");
    }
    // The copies of the function's tensor share its bytes in a file that is written, too.
    assert_eq!(fs::metadata(folder.path("w")).unwrap().len(), 2048 + 2000);
    let listed = folder.run(&["inspect", "below/a.onnx", "--json"]).done().json();
    let offsets = listed["tensors"].as_array().unwrap().iter();
    let offsets = offsets.filter_map(|tensor| tensor["stored"]["offset"].as_u64());
    assert!(offsets.inspect(|offset| assert_eq!(offset % 4096, 0)).count() == 5);
}

#[test]
fn only_the_selected_functions_are_inlined() {
    let folder = Folder::new();
    folder.save("m.onnx", &calls());
    // What is given, the calls that are replaced, the functions that stay.
    let cases: &[(&[&str], u64, &[&str])] = &[
        (&["--only", "local::twice"], 1, &["local::add"]),
        (&["--only", "local::add"], 4, &["local::twice"]),
        (&["--except", "local::add"], 1, &["local::add"]),
        (&["--only", "local::", "--except", "local::twice"], 4, &["local::twice"]),
        (&["--only", "local::add", "--only", "local::twice"], 5, &[]),
        (&["--except", "local::"], 0, &["local::add", "local::twice"]),
    ];
    for (args, calls, left) in cases {
        let run =
            folder.run(&[&["inline-functions", "m.onnx", "o.onnx", "--json"][..], args].concat());
        let said = run.done().json();
        assert_eq!(said["calls"].as_u64(), Some(*calls), "{args:?}");
        let found = said["left_functions"].as_array().unwrap();
        assert_eq!(
            found.iter().map(|f| f.as_str().unwrap()).collect::<Vec<_>>(),
            *left,
            "{args:?}"
        );
    }
    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--only", "local::add"]).done();
    run.says(&["inlined   4 calls", "left      1 function", "local::twice"]);
    assert_eq!(shape(&folder, "o.onnx").1, ["twice"]);
}

#[test]
fn json_reports_what_was_done() {
    let folder = Folder::new();
    folder.save("m.onnx", &calls());
    let args = ["inline-functions", "m.onnx", "o.onnx", "--json"];
    let plan = folder.run(&[&args[..], &["--dry-run"]].concat()).done().json();
    assert_eq!(folder.names(), ["m.onnx"]);
    let said = folder.run(&[&args[..], &["--verify"]].concat()).done().json();
    assert_eq!((&plan["files"], &plan["calls"]), (&said["files"], &said["calls"]));
    assert_eq!(said["command"], "inline-functions");
    assert_eq!((&said["nodes_before"], &said["nodes_after"]), (&4.into(), &9.into()));
    let removed: Vec<_> = said["removed_functions"].as_array().unwrap().iter().collect();
    assert_eq!(removed, ["local::add", "local::twice"]);
    assert_eq!((&said["verified"]["ok"], &said["verified"]["tensors"]), (&true.into(), &5.into()));
    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--dry-run"]).done();
    run.says(&["inlines   5 calls", "removes   2 functions", "nothing was written"]);
}

#[test]
fn a_function_of_other_operators_stays_with_a_warning() {
    let folder = Folder::new();
    let mut model = calls();
    let mut softmax = function("old", vec![NodeProto::new("Softmax", ["a"], ["b"])]);
    softmax.opset_import[0].version = Some(12);
    model.functions.push(softmax);
    model.graph.as_mut().unwrap().node[3].input[0] = "s".into();
    model.graph.as_mut().unwrap().node.insert(3, call("old", "r", "s"));
    folder.save("m.onnx", &model);

    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx"]);
    assert_eq!(run.code(), 0, "{run:?}");
    assert!(run.stderr().starts_with("warning: function `local::old` is kept"), "{run:?}");
    assert!(run.stderr().contains("Softmax"), "{run:?}");
    run.says(&["inlined   5 calls", "left      1 function", "local::old"]);
    assert_eq!(shape(&folder, "o.onnx").1, ["old"]);

    let said = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--json"]).json();
    assert_eq!(said["kept_functions"][0]["function"], "local::old");
    assert!(said["kept_functions"][0]["reason"].as_str().unwrap().contains("Softmax"));
    assert_eq!(said["warnings"].as_array().unwrap().len(), 1);
    fs::remove_file(folder.path("o.onnx")).unwrap();
    folder
        .run(&["inline-functions", "m.onnx", "o.onnx", "--strict"])
        .failed(&["local::old", "Softmax"]);
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn operator_sets_of_functions_become_the_models() {
    let folder = Folder::new();
    let mut model = calls();
    model.functions[0].opset_import.push(OperatorSetIdProto::new("ai.onnx.ml", 3));
    model.functions[0].node.push(NodeProto::new("Binarizer", ["a"], ["unused"]));
    model.functions[0].node[2].domain = Some("ai.onnx.ml".into());
    folder.save("m.onnx", &model);
    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx"]).done();
    run.says(&["imports   ai.onnx.ml 3"]);
    let said = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--json"]).done().json();
    let import = &said["imported"][0];
    assert_eq!((&import["domain"], &import["version"]), (&"ai.onnx.ml".into(), &3.into()));
}

#[test]
fn functions_that_cannot_be_inlined_are_named_and_nothing_is_written() {
    let folder = Folder::new();
    folder.save("m.onnx", &calls());
    let mut cycle = calls();
    cycle.functions[0].node.push(call("twice", "a", "c"));
    folder.save("cycle.onnx", &cycle);
    let mut twice = calls();
    twice.functions.push(adds("add", floats("", 1)));
    folder.save("twice.onnx", &twice);
    let before = folder.names();
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("cycle.onnx", &[], &["call themselves: local::", "local::add -> local::twice"]),
        ("twice.onnx", &[], &["local::add", "twice"]),
        ("m.onnx", &["--max-nodes", "8"], &["9 nodes", "8"]),
        (
            "m.onnx",
            &["--only", "local::ad"],
            &["no function `local::ad`; did you mean `local::add`?"],
        ),
        ("m.onnx", &["--except", "twice"], &["no function `twice`; did you mean `local::twice`?"]),
        ("m.onnx", &["--only", "lokal::"], &["no function `lokal::`; did you mean `local::`?"]),
        ("m.onnx", &["--only", "quite another"], &["no function `quite another`"]),
        ("m.onnx", &["--no-clobber"], &["o.onnx", "exists already"]),
    ];
    folder.save("o.onnx", &model());
    let untouched = fs::read(folder.path("o.onnx")).unwrap();
    for (input, options, says) in cases {
        let run = folder.run(&[&["inline-functions", input, "o.onnx"][..], options].concat());
        run.failed(says);
        assert_eq!(fs::read(folder.path("o.onnx")).unwrap(), untouched, "{options:?}");
    }
    folder.run(&["inline-functions", "m.onnx", "w.safetensors"]).failed(&["OUT must be the model"]);
    fs::remove_file(folder.path("o.onnx")).unwrap();
    assert_eq!(folder.names(), before);
}

#[test]
fn wrong_options_are_wrong_usage() {
    let folder = Folder::with_model();
    let cases: &[&[&str]] = &[
        &["--min-bytes", "4"],
        &["--all-tensors"],
        &["--safetensors"],
        &["--max-nodes", "many"],
        &["--verify", "--dry-run"],
    ];
    for options in cases {
        let run = folder.run(&[&["inline-functions", "m.onnx", "o.onnx"][..], options].concat());
        assert_eq!(run.code(), 2, "{options:?}");
    }
    folder.run(&["inline-functions", "--help"]).done().says(&[
        "--only <FUNCTION>",
        "domain::",
        "--strict",
    ]);
}

/// 64 calls of a function with 40 MB: a result that readers would refuse is not written so.
#[test]
fn tensors_that_calls_multiply_past_2_gib_move_out() {
    let folder = Folder::new();
    let bytes = 40_000_000;
    let large = TensorProto::new("", TensorProto::UINT8, [bytes]);
    let large = large.with_raw_data(vec![7; usize::try_from(bytes).unwrap()]);
    let mut model = calls();
    model.functions[0] = adds("add", large);
    let graph = model.graph.as_mut().unwrap();
    let between = (1..64).map(|i| format!("v{i}"));
    let names: Vec<_> = ["x".into()].into_iter().chain(between).chain(["y".into()]).collect();
    graph.node = names.windows(2).map(|pair| call("add", &pair[0], &pair[1])).collect();
    folder.save("m.onnx", &model);
    let args = ["inline-functions", "m.onnx", "o.onnx", "--no-sync"];
    let plan = folder.run(&[&args[..], &["--allow-over-2gib", "--dry-run"]].concat());
    assert!(plan.stderr().contains("onnx and onnxruntime refuse more than"), "{}", plan.stderr());
    plan.says(&["inlines   64 calls", "writes    1 file (2.6 GB)"]);
    let run = folder.run(&[&args[..], &["--verify", "--only", "local::"]].concat()).done();
    run.says(&["moved     65 tensors", "which would be over 2 GiB", "wrote     2 files (40 MB)"]);
    assert_eq!(folder.names(), ["m.onnx", "o.onnx", "o.onnx.data"]);
}

/// Every option that the page on inlining names is one of the command.
#[test]
fn the_page_and_the_help_agree() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/inlining.md");
    let page = fs::read_to_string(page).unwrap();
    let help = Folder::new().run(&["inline-functions", "--help"]).done().stdout();
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect()
    };
    let named: Vec<_> = page.split("`--").skip(1).map(|rest| format!("--{}", word(rest))).collect();
    assert!(named.len() > 4, "{named:?}");
    for option in named {
        let is_it = |line: &str| line.trim_start().split([' ', ',']).any(|word| word == option);
        assert!(help.lines().any(is_it), "{option}");
    }
}

#[test]
fn functions_that_readers_took_for_operators_are_named() {
    let folder = Folder::new();
    let mut model = calls();
    let mut relu = function("Relu", vec![NodeProto::new("Neg", ["a"], ["b"])]);
    relu.domain = Some("".into());
    model.functions = vec![relu];
    model.graph.as_mut().unwrap().node = vec![NodeProto::new("Relu", ["x"], ["y"])];
    folder.save("m.onnx", &model);
    let run = folder.run(&["inline-functions", "m.onnx", "o.onnx"]);
    let warning = "warning: function `Relu` has the name of an operator of ONNX";
    assert_eq!((run.code(), run.stderr().matches(warning).count()), (0, 1), "{run:?}");
    let json = folder.run(&["inline-functions", "m.onnx", "o.onnx", "--json"]).json();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1, "{json}");
    folder.run(&["check", "m.onnx"]).done().says(&["the function has the name of an operator"]);
}
