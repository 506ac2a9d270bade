//! `extract-model` and `merge`.

use std::fs;

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};

use crate::support::{Folder, floats, tensors};

/// `h = x * w`, `y = h + v`.
pub fn chain() -> ModelProto {
    let vector = |name: &str| ValueInfoProto::tensor(name, TensorProto::FLOAT, [400]);
    let mut graph = GraphProto::new("chain");
    graph.node =
        vec![NodeProto::new("Mul", ["x", "w"], ["h"]), NodeProto::new("Add", ["h", "v"], ["y"])];
    graph.initializer = vec![floats("w", 400), floats("v", 400)];
    graph.input.push(vector("x"));
    graph.value_info.push(vector("h"));
    graph.output.push(vector("y"));
    ModelProto::new(graph).with_operator_set("", 21)
}

/// A folder with the model packed as `p.onnx`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &chain());
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    folder
}

#[test]
fn the_halves_of_a_model_make_it_whole_again() {
    let folder = folder();
    let data = fs::read(folder.path("p.onnx.data")).unwrap();
    let args = ["extract-model", "p.onnx", "a.onnx", "--inputs", "x", "--outputs", "h", "--verify"];
    folder.run(&args).done().says(&[
        "extracted 1 of 2 nodes, 1 of 2 tensors, 0 of 0 functions",
        "inputs    x",
        "outputs   h",
        "wrote     1 file",
        "kept      1 file of weights, unchanged",
        "checked   no errors",
    ]);
    folder.run(&["extract-model", "p.onnx", "b.onnx", "--inputs=h"]).done().says(&["outputs   y"]);
    let head = folder.run(&["extract-model", "p.onnx", "c.onnx", "--outputs=h"]).done();
    head.says(&["inputs    x"]);
    assert_eq!(fs::read(folder.path("a.onnx")).unwrap(), fs::read(folder.path("c.onnx")).unwrap());
    // With a weights file of its own, which has just its weights.
    let args = ["extract-model", "p.onnx", "d.onnx", "--inputs=h", "--data-name=d.data"];
    folder.run(&args).done().says(&["wrote     2 files"]);
    assert_eq!(fs::metadata(folder.path("d.data")).unwrap().len(), 1600);

    let args = ["merge", "a.onnx", "b.onnx", "o.onnx", "--connect=h=h", "--verify"];
    folder.run(&args).done().says(&[
        "merged    2 nodes, 2 tensors, 0 functions",
        "inputs    x",
        "outputs   y",
        "kept      1 file of weights",
    ]);
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("p.onnx")));
    folder.run(&["diff", "--semantic", "o.onnx", "p.onnx"]).done();
    assert_eq!(fs::read(folder.path("p.onnx.data")).unwrap(), data);
    // Weights of two folders go to one new file.
    fs::create_dir(folder.path("sub")).unwrap();
    let args = ["merge", "a.onnx", "d.onnx", "sub/o.onnx", "--connect=h=h"];
    folder.run(&args).done().says(&["wrote     2 files"]);
    folder.run(&["diff", "--semantic", "sub/o.onnx", "p.onnx"]).done();
}

/// Models of `onnx.save` declare no types between their inputs and outputs.
#[test]
fn types_follow_from_others_or_are_given() {
    let folder = Folder::new();
    let mut model = chain();
    let graph = model.graph.as_mut().unwrap();
    graph.value_info.clear();
    graph.node.insert(1, NodeProto::new("Custom", ["h"], ["c"]));
    graph.node[2].input[0] = "c".into();
    folder.save("m.onnx", &model);
    let declared = |name: &str| folder.run(&["inspect", name, "--json"]).done().json();
    folder.run(&["extract-model", "m.onnx", "a.onnx", "--outputs=h"]).done();
    assert_eq!(declared("a.onnx")["outputs"][0]["shape"], serde_json::json!([400]));

    let args = ["extract-model", "m.onnx", "b.onnx", "--inputs=c"];
    let said = folder.run(&args).failed(&["`c`", "does not declare the type of this value"]);
    let said = said.stderr().to_owned();
    let infer =
        "  python -c 'import onnx, sys; onnx.shape_inference.infer_shapes_path(*sys.argv[1:])' ";
    assert!(said.contains("\n  give it, such as --type 'c=FLOAT[N,128]', or"), "{said}");
    assert!(said.contains(&format!("\n{infer}m.onnx typed.onnx\n")), "{said}");
    let json = folder.run(&[&args[..], &["--json"]].concat()).failed(&[]).json();
    assert_eq!(json["error"]["kind"], "MissingType");
    // Names of any characters, and a file that is there.
    fs::copy(folder.path("m.onnx"), folder.path("it's.onnx")).unwrap();
    fs::write(folder.path("typed.onnx"), "mine").unwrap();
    let said = folder.run(&["extract-model", "it's.onnx", "b.onnx", "--inputs=c"]).failed(&[]);
    let said = said.stderr();
    assert!(said.contains(&format!("{infer}'it'\"'\"'s.onnx' typed-2.onnx\n")), "{said}");
    folder.run(&[&args[..], &["--type", "c=FLOAT[N, 400]"]].concat()).done();
    assert_eq!(declared("b.onnx")["inputs"][0]["shape"], serde_json::json!(["N", 400]));
    for (given, said) in [
        ("c=FLOAT", "no `[` in `FLOAT`"),
        ("c=FLOAT[4", "no `]` at the end"),
        ("c=FLOATS[4]", "no element type `FLOATS`"),
        ("c=UNDEFINED[4]", "no element type `UNDEFINED`"),
        ("c=FLOAT[4,,4]", "an empty dimension"),
        ("c=FLOAT[-1]", "`-1` is no dimension (a number, a name, or `?`)"),
        ("c=FLOAT[99999999999999999999]", "is too large"),
        ("nothing=FLOAT[4]", "no node of the main graph has an output of this name"),
        ("x=FLOAT[4]", "`x`: this is an input of the model: only values that nodes compute"),
        ("v=FLOAT[4]", "`v`: this is an initializer, which has a type"),
        ("y=FLOAT[4]", "`FLOAT[4]` contradicts what the model says of this value, `FLOAT[400]`"),
        ("h=INT64[400]", "`INT64[400]` contradicts what the model says"),
    ] {
        folder.run(&[&args[..], &["--type", given]].concat()).failed(&[said]);
    }
    folder.run(&[&args[..], &["--type", "c"]].concat()).misused(&["h=FLOAT[N,128]"]);
    let twice = ["--type=c=FLOAT[N,400]", "--type=c=FLOAT[N,400]"];
    folder.run(&[&args[..], &twice].concat()).misused(&["--type gives `c` twice"]);
}

/// The example that is given has the elements that are known.
#[test]
fn a_hint_has_the_elements_that_are_known() {
    let folder = Folder::new();
    let mut model = chain();
    let graph = model.graph.as_mut().unwrap();
    graph.value_info.clear();
    graph.node[0] = NodeProto::new("Reshape", ["x", "v"], ["r"]);
    let mut cast = NodeProto::new("Cast", ["r"], ["h"]);
    cast.attribute.push(AttributeProto::int("to", 10));
    graph.node.insert(1, cast);
    folder.save("m.onnx", &model);
    let run = folder.run(&["extract-model", "m.onnx", "o.onnx", "--outputs=h"]);
    run.failed(&["only the elements are known, FLOAT16", "--type 'h=FLOAT16[N,128]'"]);
}

/// Names with commas and equals signs can be given, among others.
#[test]
fn names_may_have_the_characters_that_separate_them() {
    let folder = Folder::new();
    let mut model = chain();
    let graph = model.graph.as_mut().unwrap();
    graph.node[0].output[0] = "h,1=a".into();
    graph.node[1].input[0] = "h,1=a".into();
    graph.value_info[0].name = Some("h,1=a".into());
    folder.save("m.onnx", &model);
    let head = ["extract-model", "m.onnx", "a.onnx", "--outputs"];
    folder.run(&[&head[..], &["h,1=a,y"]].concat()).done().says(&["outputs   h,1=a, y"]);
    folder.run(&[&head[..], &["y,h,1=a"]].concat()).done().says(&["outputs   y, h,1=a"]);
    folder.run(&[&head[..], &["h,1=a"]].concat()).done().says(&["outputs   h,1=a\n"]);
    folder.run(&[&head[..], &["h,1"]].concat()).failed(&["`h`", "`1`"]);
    let tail = ["extract-model", "m.onnx", "b.onnx", "--inputs=h,1=a,v"];
    folder.run(&tail).done().says(&["inputs    h,1=a, v"]);
    let merge = ["merge", "a.onnx", "b.onnx", "o.onnx", "--connect"];
    folder.run(&[&merge[..], &["h,1=a=h,1=a"]].concat()).done().says(&["outputs   y"]);
    let merge = ["merge", "b.onnx", "b.onnx", "o.onnx", "--prefix-b=b/", "--same-input"];
    folder.run(&[&merge[..], &["h,1=a=h,1=a"]].concat()).done().says(&["inputs    h,1=a, v, b/v"]);
    folder.run(&[&merge[..], &["none=a=b"]].concat()).failed(&["`none`"]);
}

/// A text is refused where the values allow two ways to split it, and only there.
#[test]
fn a_text_that_can_be_split_in_two_ways_is_refused() {
    let folder = Folder::new();
    let vector = |name: &str| ValueInfoProto::tensor(name, TensorProto::FLOAT, [4]);
    let model = |inputs: &[&str], outputs: &[&str]| {
        let mut graph = GraphProto::new("g");
        graph.input = inputs.iter().map(|name| vector(name)).collect();
        graph.output = outputs.iter().map(|name| vector(name)).collect();
        graph.node =
            outputs.iter().map(|name| NodeProto::new("Abs", [inputs[0]], [*name])).collect();
        ModelProto::new(graph).with_operator_set("", 21)
    };
    folder.save("m.onnx", &model(&["x"], &["a", "b", "a,b", "c"]));
    let extract =
        |given: &str| folder.run(&["extract-model", "m.onnx", "o.onnx", "--outputs", given]);
    for (given, outputs) in [
        ("a", "a\n"),
        ("a,,b", "a,b\n"),
        ("b,a", "b, a\n"),
        ("a,c", "a, c\n"),
        ("c,a,,b", "c, a,b\n"),
    ] {
        extract(given).done().says(&[&format!("outputs   {outputs}")]);
    }
    let both = ["extract-model", "m.onnx", "o.onnx", "--outputs=a", "--outputs=b"];
    folder.run(&both).done().says(&["outputs   a, b\n"]);
    for (given, said) in [
        (
            "a,b",
            "--outputs a,b can mean two things: `a` and `b` is --outputs a --outputs b; `a,b` is \
             --outputs a,,b",
        ),
        ("c,a,b", "`c` and `a,b` is --outputs c --outputs a,,b"),
    ] {
        // The shell quotes a comma.
        let said = said.replace("a,b can", "'a,b' can").replace("a,,b", "'a,,b'");
        extract(given).misused(&[&said]);
    }
    extract("a,none").failed(&["`none`"]);
    // Outputs of the first and inputs of the second.
    folder.save("a.onnx", &model(&["x"], &["p", "p=q"]));
    folder.save("b.onnx", &model(&["q=r", "r"], &["y"]));
    let merge =
        |given: &str| folder.run(&["merge", "a.onnx", "b.onnx", "o.onnx", "--connect", given]);
    merge("p=q=r").misused(&[
        "--connect 'p=q=r' can mean two things: `p` and `q=r` is --connect 'p=q==r'; `p=q` and `r` \
         is --connect 'p==q=r'",
    ]);
    merge("p=q==r").done().says(&["inputs    x, r\n"]);
    merge("p==q=r").done().says(&["inputs    x, q=r\n"]);
    merge("p=r").done();
}

#[test]
fn two_models_have_one_input() {
    let folder = folder();
    let args = ["merge", "p.onnx", "p.onnx", "o.onnx", "--prefix-b=b/", "--same-input=x=x"];
    folder.run(&args).done().says(&["merged    4 nodes", "inputs    x\n", "outputs   y, b/y"]);
    folder.run(&["merge", "p.onnx", "p.onnx", "o.onnx", "--same-input=x"]).misused(&["A=B"]);
}

/// A hint recommends a prefix that was not given.
#[test]
fn a_collision_has_a_hint_that_looks_at_the_prefixes() {
    let folder = folder();
    // The same model with `b/` before every name.
    let prefixed = ["merge", "p.onnx", "p.onnx", "both.onnx", "--prefix-b=b/"];
    folder.run(&prefixed).done();
    for (first, prefixes, hint) in [
        ("p.onnx", &[][..], "give all of one a prefix: --prefix-b b/"),
        ("both.onnx", &["--prefix-b=b/"], "give all of B another prefix: --prefix-b second/"),
        (
            "p.onnx",
            &["--prefix-a=b/", "--prefix-b=b/"],
            "give all of B another prefix: --prefix-b second/",
        ),
        ("p.onnx", &["--prefix-a=", "--prefix-b="], "give all of one a prefix: --prefix-b b/"),
    ] {
        let args = [&["merge", first, "p.onnx", "o.onnx"], prefixes].concat();
        folder.run(&args).failed(&[hint]);
    }
    let args = ["merge", "both.onnx", "p.onnx", "o.onnx", "--prefix-b", "second/"];
    folder.run(&args).done();
}

#[test]
fn a_part_that_is_nearly_the_whole_is_noted() {
    let folder = Folder::new();
    let mut model = chain();
    let graph = model.graph.as_mut().unwrap();
    graph.node = (0..40)
        .map(|i| NodeProto::new("Neg", [format!("h{i}")], [format!("h{}", i + 1)]))
        .collect();
    (graph.input[0].name, graph.output[0].name) = (Some("h0".into()), Some("h40".into()));
    folder.save("m.onnx", &model);
    let note = "39 of 40 nodes are kept: the inputs and outputs cut little";
    for (input, is_noted) in [("h1", true), ("h3", false)] {
        let args = ["extract-model", "m.onnx", "o.onnx", "--inputs", input];
        let run = folder.run(&args);
        assert_eq!((run.code(), run.stderr().contains(note)), (0, is_noted), "{run:?}");
        let json = folder.run(&[&args[..], &["--json"]].concat()).json();
        assert_eq!(json["warnings"].to_string().contains(note), is_noted, "{json}");
    }
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_is_written() {
    let folder = folder();
    let before = folder.names();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["extract-model", "p.onnx", "o.onnx", "--outputs=Y"], &["`Y`", "did you mean `y`?"]),
        (
            &["extract-model", "p.onnx", "o.onnx", "--inputs=v", "--outputs=y"],
            &["`y`", "needs `x`, an input of the model"],
        ),
        (
            &["extract-model", "p.onnx", "o.onnx", "--inputs=x,v", "--outputs=h"],
            &["`v`", "leave it out"],
        ),
        (&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y=x"], &["`h`", "--prefix-b b/"]),
        (&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=h=x"], &["`h`", "no output"]),
        (&["merge", "p.onnx", "gone.onnx", "o.onnx"], &["gone.onnx"]),
    ];
    for (args, texts) in cases {
        folder.run(args).failed(texts);
    }
    folder.run(&["extract-model", "p.onnx", "o.onnx"]).misused(&["--outputs"]);
    folder.run(&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y"]).misused(&["A=B"]);
    let args =
        ["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y=x", "--prefix-b=b/", "--dry-run"];
    folder.run(&args).done().says(&["outputs   b/y", "nothing was written"]);
    let json = folder.run(&[&args[..6], &["--json"]].concat()).done().json();
    assert_eq!(json["graph"]["outputs"], serde_json::json!(["b/y"]));
    fs::remove_file(folder.path("o.onnx")).unwrap();
    assert_eq!(folder.names(), before);
}
