//! `trace` and `trace diff`.

use std::fs;

use onnx_container::DataType;
use onnx_container::proto::{NodeProto, ValueInfoProto};
use serde_json::json;

use crate::run::of_one;
use crate::support::Folder;
use crate::support::sums as model;

/// The model with other names and another order; with another operator for z when `other`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    let mut renamed = model();
    let graph = renamed.graph.as_mut().unwrap();
    graph.node.reverse();
    graph.output[0].name = Some("sum".into());
    graph.node[1].output[0] = "sum".into();
    folder.save("renamed.onnx", &renamed);
    let mut other = model();
    other.graph.as_mut().unwrap().node[1] = NodeProto::new("Neg", ["x"], ["z"]);
    folder.save("other.onnx", &other);
    folder
}

const DIM: [&str; 2] = ["--dim", "batch=2"];

#[test]
fn a_trace_is_lines_of_json_and_the_same_every_time() {
    let folder = folder();
    let trace = |more: &[&str]| folder.run(&[&["trace", "m.onnx"], &DIM[..], more].concat());
    let printed = trace(&[]).done().stdout();
    assert_eq!(trace(&["-o", "t.jsonl"]).done().stdout(), "");
    assert_eq!(fs::read_to_string(folder.path("t.jsonl")).unwrap(), printed);
    let lines: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [head, add, abs, end] = lines.as_slice() else { panic!("{printed}") };
    assert_eq!(
        (&head["t"], &head["profile"], &head["dims"]),
        (&"head".into(), &"strict-1".into(), &json!({"batch": 2}))
    );
    assert_eq!(
        (head["model"].as_str().unwrap().len(), &head["weights"][0]["name"]),
        (64, &"w".into())
    );
    assert_eq!(
        (&add["op"], &abs["op"], &end["steps"]),
        (&"ai.onnx.Add-21".into(), &"ai.onnx.Abs-21".into(), &2.into())
    );
    assert_ne!(trace(&["--seed", "1"]).done().stdout(), printed);
    let stats = trace(&["--stats"]).done().stdout();
    assert!(stats.contains("\"stats\":[{\"min\":") && !printed.contains("stats"), "{stats}");
    trace(&["--dump", "dumped"]).done();
    assert!(folder.path("dumped/0_0.pb").is_file() && folder.path("dumped/1_0.pb").is_file());
    trace(&["--max-steps", "1", "-o", "cut.jsonl"]).failed(&["more than 1 steps"]);
    assert_eq!(folder.names(), ["dumped", "m.onnx", "other.onnx", "renamed.onnx", "t.jsonl"]);
    // Of values as long as these the digests are made while the run goes on.
    let long = ["trace", "m.onnx", "--dim", "batch=20000"];
    let whole = folder.run(&long).done().stdout();
    let cut = folder.run(&[&long[..], &["--max-steps", "1"]].concat());
    assert!(cut.stdout().lines().eq(whole.lines().take(2)), "the steps before the error");
    cut.failed(&["more than 1 steps"]);
}

#[test]
fn runs_of_renamed_models_are_the_same() {
    let folder = folder();
    let diff = |a: &str, b: &str| folder.run(&[&["trace", "diff", a, b], &DIM[..]].concat());
    diff("m.onnx", "m.onnx").done().says(&["same      all values of 2 steps and 2 steps"]);
    diff("m.onnx", "renamed.onnx").done();
    folder.run(&[&["trace", "renamed.onnx", "-o", "r.jsonl"], &DIM[..]].concat()).done();
    diff("m.onnx", "r.jsonl").done();
}

#[test]
fn the_first_step_that_differs_is_reported_with_its_distance() {
    let folder = folder();
    let diff = ["trace", "diff", "m.onnx", "other.onnx", "--dim", "batch=2"];
    let told = folder.run(&diff);
    assert_eq!(told.code(), 1, "{told:?}");
    told.says(&[
        "first A   step 1, node (ai.onnx.Abs-21): z, FLOAT [2, 4]",
        "first B   step 1, node (ai.onnx.Neg-21): z, FLOAT [2, 4]",
        "reads     the same values",
        " of 8 elements differ, by at most ",
        "steps     1 of 2 steps differ in A, 1 of 2 steps in B",
        "outputs   differ: z",
    ]);
    let by_models = folder.run(&[&diff[..], &["--json"]].concat()).json();
    assert_eq!((&by_models["same"], &by_models["outputs"]), (&false.into(), &json!(["z"])));
    assert_eq!(
        (&by_models["first"]["a"]["op"], &by_models["first"]["b"]["op"]),
        (&"ai.onnx.Abs-21".into(), &"ai.onnx.Neg-21".into())
    );
    // The same from traces, once without and once with dumps.
    for (model, name) in [("m.onnx", "a"), ("other.onnx", "b")] {
        let trace =
            ["trace", model, "--dim", "batch=2", "-o", &format!("{name}.jsonl"), "--dump", name];
        folder.run(&trace).done();
    }
    let by_traces = ["trace", "diff", "a.jsonl", "b.jsonl", "--json"];
    let json = folder.run(&by_traces).json();
    assert_eq!(
        (&json["first"]["a"], &json["first"]["by"]),
        (&by_models["first"]["a"], &json!(null))
    );
    let dumps = [&by_traces[..], &["--dump-a", "a", "--dump-b", "b"]].concat();
    assert_eq!(folder.run(&dumps).json()["first"]["by"], by_models["first"]["by"]);
    assert!(by_models["first"]["by"]["max_abs"].as_f64().unwrap() > 0.0);
    folder
        .run(&[&by_traces[..], &["--dump-a", "b", "--dump-b", "b"]].concat())
        .misused(&["is not the value that the trace has"]);
}

#[test]
fn other_profiles_are_named() {
    let folder = Folder::new();
    let mut model = of_one("Tanh", DataType::Float);
    let graph = model.graph.as_mut().unwrap();
    graph.input = vec![ValueInfoProto::tensor_with("x", DataType::Float, [1000.into()])];
    folder.save("tanh.onnx", &model);
    for (profile, trace) in [("strict", "a.jsonl"), ("fast", "b.jsonl")] {
        folder.run(&["trace", "tanh.onnx", "--profile", profile, "-o", trace]).done();
    }
    let named = "profiles  strict-1 for A, fast for B, which round otherwise";
    let differ = folder.run(&["trace", "diff", "a.jsonl", "b.jsonl"]);
    assert!(differ.code() == 1 && differ.stdout().contains(named), "{}", differ.stdout());
    let json = folder.run(&["trace", "diff", "b.jsonl", "b.jsonl", "--json"]).done().json();
    assert_eq!(json["profiles"], json!(["fast", "fast"]));
    assert!(!folder.run(&["trace", "diff", "b.jsonl", "b.jsonl"]).stdout().contains("profiles"));
}

#[test]
fn a_step_without_a_counterpart_is_named() {
    let folder = folder();
    let mut longer = model();
    longer.graph.as_mut().unwrap().node.push(NodeProto::new("Exp", ["z"], ["more"]));
    folder.save("longer.onnx", &longer);
    let step = "step 2, node (ai.onnx.Exp-21): more, FLOAT [2, 4]";
    for (models, lines) in [
        (["m.onnx", "longer.onnx"], ["first A   the step of B has no counterpart", step]),
        (["longer.onnx", "m.onnx"], [step, "first B   the step of A has no counterpart"]),
    ] {
        let told = folder.run(&[&["trace", "diff"], &models[..], &DIM].concat());
        assert!(!told.stdout().contains("reads"), "{told:?}");
        told.says(&lines);
    }
}

#[test]
fn other_inputs_are_reported_first() {
    let folder = folder();
    for seed in ["1", "2"] {
        let file = format!("{seed}.jsonl");
        folder.run(&[&["trace", "m.onnx", "--seed", seed, "-o", &file], &DIM[..]].concat()).done();
    }
    let told = folder.run(&["trace", "diff", "1.jsonl", "2.jsonl"]);
    assert_eq!(told.code(), 1);
    told.says(&["input     x differs\nfirst A   step 0", "reads     other values"]);
    // Traces are not run, a model beside one is.
    let (traces, one) =
        (["trace", "diff", "1.jsonl", "2.jsonl"], ["trace", "diff", "1.jsonl", "m.onnx"]);
    for option in
        [["--dim", "batch=2"], ["--seed", "1"], ["--input", "x=x.npy"], ["--max-steps", "9"]]
    {
        folder.run(&[&traces[..], &option].concat()).misused(&["are traces, which are not run"]);
    }
    folder.run(&[&one[..], &["--seed", "1"], &DIM].concat()).done();
}

#[test]
fn files_that_are_no_traces_are_reported_with_their_line() {
    let folder = folder();
    folder.run(&[&["trace", "m.onnx", "-o", "t.jsonl"], &DIM[..]].concat()).done();
    let good = fs::read_to_string(folder.path("t.jsonl")).unwrap();
    let cases = [
        ("", "`bad.jsonl`: the file is empty"),
        (
            "{\n",
            "`bad.jsonl`: line 1: the file was cut off: the head of the trace is not all there",
        ),
        (&good[..good.len() - 40], "line 4: the file was cut off: a step or the end of the trace"),
        (&good.replace("ai.onnx.Abs", "ai.onnx.Neg"), "line 3: its digest `chain` is another"),
        (good.split_inclusive('\n').next().unwrap(), "the trace has no end"),
    ];
    for (text, reason) in cases {
        fs::write(folder.path("bad.jsonl"), text).unwrap();
        folder.run(&["trace", "diff", "t.jsonl", "bad.jsonl"]).misused(&[reason]);
        let json = folder.run(&["trace", "diff", "t.jsonl", "bad.jsonl", "--json"]).json();
        assert_eq!(
            (&json["command"], &json["error"]["kind"]),
            (&"trace diff".into(), &"Trace".into())
        );
    }
    folder.run(&["trace"]).misused(&["MODEL"]);
    folder.run(&["trace", "diff", "t.jsonl"]).misused(&["B"]);
    folder.run(&["trace", "--stats", "diff", "t.jsonl", "t.jsonl"]).misused(&[]);
}

#[cfg(target_os = "linux")]
mod cores {
    use std::fs;
    use std::process::Command;

    use onnx_container::DataType;
    use onnx_container::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
        ValueInfoProto,
    };

    use crate::support::{Folder, Run};

    /// The digests of values are made by another thread where there is a core for it, and those of
    /// weights by several.
    #[test]
    fn a_trace_is_the_same_on_one_core_and_on_all() {
        let folder = Folder::new();
        folder.save("m.onnx", &quantized());
        let all = folder.run(&["trace", "m.onnx"]).done().stdout();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let allowed =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let core = allowed.trim().split([',', '-']).next().unwrap();
        let command = folder.command(&["trace", "m.onnx"]);
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", core]).arg(command.get_program()).args(command.get_args());
        let output = pinned.current_dir(command.get_current_dir().unwrap()).output().unwrap();
        assert_eq!(Run::of(output).done().stdout(), all);
        assert!(all.contains("com.microsoft.MatMulNBits-1"), "{all}");
    }

    /// A product with 1 MiB of codes, and a norm of its rows.
    fn quantized() -> ModelProto {
        let (n, k) = (1024_i64, 2048_i64);
        let byte = |i: i64| u8::try_from(i * 7919 % 251).unwrap();
        let bytes = |len: i64| (0..len).map(byte).collect::<Vec<_>>();
        let codes = TensorProto::new("b", TensorProto::UINT8, [n, k / 32, 16]);
        let scales = |name: &str, dims: [i64; 2]| {
            let count = usize::try_from(dims[0] * dims[1]).unwrap();
            TensorProto::new(name, TensorProto::FLOAT, dims)
                .with_raw_data(0.01_f32.to_le_bytes().repeat(count))
        };
        let node = |op: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]| {
            let mut node = NodeProto::new(op, inputs.iter().copied(), [output]);
            node.domain = Some("com.microsoft".into());
            node.attribute =
                attributes.iter().map(|(name, i)| AttributeProto::int(*name, *i)).collect();
            node
        };
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [4, k]));
        graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [4, n]));
        graph.initializer = vec![
            codes.with_raw_data(bytes(n * k / 2)),
            scales("s", [n, k / 32]),
            scales("skip", [4, n]),
            scales("gamma", [1, n]),
        ];
        graph.initializer[3].dims = vec![n];
        let product = [("N", n), ("K", k), ("bits", 4), ("block_size", 32)];
        graph.node.push(node("MatMulNBits", &["x", "b", "s"], "h", &product));
        graph.node.push(node(
            "SkipSimplifiedLayerNormalization",
            &["h", "skip", "gamma"],
            "y",
            &[],
        ));
        let mut model = ModelProto::new(graph);
        model.opset_import =
            vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("com.microsoft", 1)];
        model
    }
}
