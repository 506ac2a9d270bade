//! Traces: the same for the same run, read back as they were written, refused when a line changed,
//! and aligned by value with those of other models.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashMap;

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::trace::{Part, Trace, TraceDiff, TraceOptions, TraceWriter};
use onnx_container_machine::{
    ErrorKind, Machine, Program, ProgramOptions, Registry, RunLimits, Value, random_inputs,
};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

fn floats(name: &str, values: &[f32]) -> TensorProto {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let dims = [i64::try_from(values.len()).unwrap()];
    TensorProto::new(name, TensorProto::FLOAT, dims).with_raw_data(bytes)
}

/// A model of `nodes` from x to y, with a weight w.
fn model(nodes: Vec<NodeProto>) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, ["n".into()]));
    graph.initializer.push(floats("w", &[1.0, -2.0, 0.5]));
    graph.output.push(ValueInfoProto::tensor_with("y", DataType::Float, ["n".into()]));
    graph.node = nodes;
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// y = |x + w| - w
fn plain() -> ModelProto {
    model(vec![
        NodeProto::new("Add", ["x", "w"], ["sum"]),
        NodeProto::new("Abs", ["sum"], ["abs"]),
        NodeProto::new("Sub", ["abs", "w"], ["y"]),
    ])
}

/// An If whose branch adds a weight of its own to x.
fn branched() -> ModelProto {
    let branch = |name: &str, op: &str| {
        let mut graph = GraphProto::new(name);
        graph.initializer.push(floats("inner", &[3.0, 3.0, 3.0]));
        graph.node.push(NodeProto::new(op, ["x", "inner"], [name]));
        graph.output.push(ValueInfoProto::tensor_with(name, DataType::Float, ["n".into()]));
        graph
    };
    let mut node = NodeProto::new("If", ["flag"], ["y"]);
    node.attribute.push(AttributeProto::graph("then_branch", branch("a", "Add")));
    node.attribute.push(AttributeProto::graph("else_branch", branch("b", "Sub")));
    let mut model = model(vec![node]);
    let flag =
        TensorProto::new("flag", TensorProto::BOOL, [] as [i64; 0]).with_raw_data(vec![1_u8]);
    model.graph.as_mut().unwrap().initializer.push(flag);
    model
}

/// The digest of a map is that of a sequence of its keys, in ascending order, and its values.
#[test]
fn a_map_has_the_digest_that_the_page_defines() {
    let mut node = NodeProto::new("ZipMap", ["x"], ["y"]);
    node.domain = Some("ai.onnx.ml".into());
    node.attribute.push(AttributeProto::ints("classlabels_int64s", vec![7, 5, 6]));
    let mut model = model(vec![node]);
    model.graph.as_mut().unwrap().output[0].r#type = None;
    model.opset_import.push(OperatorSetIdProto::new("ai.onnx.ml", 1));
    let trace = String::from_utf8(traced(model, TraceOptions::new())).unwrap();
    let hex = |bytes: &[u8]| -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let line = |dt: &str, sh: &str, sha: &str| {
        format!(r#"{{"dt":"{dt}","sh":{sh},"sha":"{sha}"}}"#) + "\n"
    };
    let keys: Vec<u8> = [5_i64, 6, 7].into_iter().flat_map(i64::to_le_bytes).collect();
    let values: Vec<u8> = [1.0_f32, 0.25, -4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let map = line("INT64", "[3]", &hex(&keys)) + &line("FLOAT", "[3]", &hex(&values));
    let sequence = line("map(INT64,tensor(FLOAT))", "null", &hex(map.as_bytes()));
    let expected = format!(
        r#""off":null,"dt":"seq(map(INT64,tensor(FLOAT)))","sh":null,"sha":"{}""#,
        hex(sequence.as_bytes())
    );
    assert!(trace.contains(&expected), "{trace}");
}

fn traced(model: ModelProto, options: TraceOptions) -> Vec<u8> {
    traced_on(model, options, &[-4.0, 1.0, 0.25])
}

fn traced_on(model: ModelProto, options: TraceOptions, x: &[f32]) -> Vec<u8> {
    traced_to(model, options, x, None)
}

/// The trace; every value is written to the folder `dump`, too.
fn traced_to(
    model: ModelProto,
    options: TraceOptions,
    x: &[f32],
    dump: Option<&std::path::Path>,
) -> Vec<u8> {
    let container = Container::new(model);
    let program = Program::new(&container, ProgramOptions::new()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    machine.bind("x", Value::from_elements([3], x).unwrap()).unwrap();
    let mut lines = Vec::new();
    let mut trace = TraceWriter::new(&mut lines, &container, &mut machine, options).unwrap();
    if let Some(folder) = dump.map(std::path::Path::to_path_buf) {
        trace = trace.dump(move |name, value| {
            value.write(&mut std::fs::File::create_new(folder.join(name)).unwrap())
        });
    }
    trace.run(&mut machine).unwrap();
    trace.finish(&machine).unwrap();
    lines
}

fn read(lines: &[u8]) -> Trace {
    Trace::read(lines).unwrap()
}

fn lines(trace: &[u8]) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(trace).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn a_trace_has_what_every_step_read_and_wrote() {
    let trace = traced(plain(), TraceOptions::new().model("m".repeat(64)));
    let lines = lines(&trace);
    let [head, add, abs, sub, end] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(
        (&head["t"], &head["v"], &head["profile"]),
        (&"head".into(), &1.into(), &"strict-1".into())
    );
    assert_eq!(
        (&head["model"], &head["opset"]),
        (&"m".repeat(64).into(), &serde_json::json!({"ai.onnx": 21}))
    );
    assert_eq!((&head["dims"], &head["N"]), (&serde_json::json!({"n": 3}), &12.into()));
    assert_eq!(
        (&head["weights"][0]["name"], &head["weights"][0]["bytes"]),
        (&"w".into(), &12.into())
    );
    assert_eq!(head["in"][0]["sha"], sha(&bytes(&[-4.0, 1.0, 0.25])));
    for (step, op) in [(add, "Add"), (abs, "Abs"), (sub, "Sub")] {
        assert_eq!(step["op"], format!("ai.onnx.{op}-21"));
    }
    assert_eq!((&add["i"], &add["path"], &sub["i"]), (&0.into(), &"0".into(), &2.into()));
    assert_eq!(add["in"][1]["off"], 1_u64 << 46);
    assert_eq!((&add["out"][0]["n"], &add["out"][0]["dt"]), (&"sum".into(), &"FLOAT".into()));
    assert_eq!(
        (&add["out"][0]["sh"], &add["out"][0]["sha"]),
        (&serde_json::json!([3]), &sha(&bytes(&[-3.0, -1.0, 0.75])).into())
    );
    assert_eq!((&end["steps"], &end["out"][0]["sha"]), (&3.into(), &sub["out"][0]["sha"]));
    assert!(end["high_water"].as_u64().unwrap() >= 12);
}

/// As in docs/machine.md: a digest of the digest before and of the line without `chain` and
/// `stats`.
#[test]
fn the_chain_can_be_computed_from_the_lines_alone() {
    for options in [TraceOptions::new(), TraceOptions::new().stats(true)] {
        let trace = traced(branched(), options);
        let mut chain = [0; 32];
        for line in std::str::from_utf8(&trace).unwrap().lines() {
            let stated = line.rsplit_once("\"chain\":\"").unwrap().1.strip_suffix("\"}").unwrap();
            let mut canonical = line.rsplit_once(",\"chain\":").unwrap().0.to_owned() + "}";
            if let Some((front, _)) = canonical.split_once(",\"stats\":") {
                canonical = format!("{front}}}");
            }
            chain = Sha256::new().chain_update(chain).chain_update(canonical).finalize().into();
            let hex: String = chain.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, stated, "{line}");
        }
    }
}

#[test]
fn the_same_run_has_the_same_trace_and_it_is_read_as_it_was_written() {
    for model in [plain(), branched()] {
        let [a, b] = [0, 1].map(|_| traced(model.clone(), TraceOptions::new()));
        assert_eq!(a, b);
        assert!(TraceDiff::new(&read(&a), &read(&b)).is_same());
        let with_stats = traced(model, TraceOptions::new().stats(true));
        assert_eq!(
            read(&with_stats).end.chain,
            read(&a).end.chain,
            "stats are no part of the chain"
        );
        assert!(read(&with_stats).steps.iter().all(|step| step.stats.is_some()));
    }
}

#[test]
fn steps_of_inner_graphs_come_before_that_of_their_node() {
    let trace = read(&traced(branched(), TraceOptions::new()));
    let paths: Vec<_> = trace.steps.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(paths, ["0/then_branch/0", "0"]);
    let names: Vec<_> = trace.head.weights.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["w", "flag", "0/else_branch/inner", "0/then_branch/inner"]);
}

#[test]
fn stats_leave_out_what_is_not_finite() {
    let model = model(vec![NodeProto::new("Div", ["x", "w"], ["y"])]);
    let trace = traced_on(model, TraceOptions::new().stats(true), &[f32::INFINITY, f32::NAN, 2.0]);
    let stats = read(&trace).steps[0].stats.clone().unwrap()[0];
    assert_eq!((stats.min, stats.max, stats.nan, stats.inf), (Some(4.0), Some(4.0), 1, 1));
}

#[test]
fn a_trace_that_is_wrong_is_refused_with_its_line() {
    let good = String::from_utf8(traced(plain(), TraceOptions::new())).unwrap();
    let lines: Vec<_> = good.lines().collect();
    let of =
        |order: &[usize]| order.iter().map(|i| lines[*i].to_owned() + "\n").collect::<String>();
    let cases = [
        (String::new(), "the file is empty"),
        ("{\n".to_owned(), "line 1: "),
        ("[]\n".to_owned(), "line 1: "),
        (of(&[1, 0]), "line 1: "),
        (of(&[0, 1, 2]), "the trace has no end: the run stopped after 2 steps"),
        (of(&[0, 2]), "line 2: its digest `chain` is another"),
        (of(&[0, 0]), "line 2: "),
        (of(&[0, 1, 2, 3, 4, 4]), "line 6: "),
        (good.replacen("\"node\":\"\"", "\"node\":\"x\"", 1), "line 2: its digest"),
        (good.replacen("\"i\":1", "\"i\":7", 1), "line 3: "),
        (good.replacen("\"v\":1", "\"v\":2", 1), "line 1: "),
        (good.replacen("\"path\":", "\"pfad\":", 1), "line 2: missing field `path`"),
        (good.replace(",\"chain\":", ",\"kette\":"), "line 1: missing field `chain`"),
    ];
    for (trace, expected) in cases {
        let error = Trace::read(trace.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Trace, "{error}");
        assert!(error.to_string().starts_with(expected), "{error}: not {expected}");
    }
}

proptest! {
    #[test]
    fn a_trace_with_another_byte_is_refused_or_reads_as_the_same(at in 0..2000_usize, byte: u8) {
        let good = traced(plain(), TraceOptions::new());
        let mut bad = good.clone();
        let at = at % bad.len();
        bad[at] = byte;
        if let Ok(trace) = Trace::read(&bad[..]) {
            prop_assert_eq!(trace, read(&good));
        }
    }
}

#[test]
fn other_names_and_another_order_are_the_same_run() {
    let renamed = model(vec![
        NodeProto::new("Sub", ["c", "w"], ["y"]),
        NodeProto::new("Abs", ["b"], ["c"]),
        NodeProto::new("Identity", ["a"], ["b"]),
        NodeProto::new("Add", ["x", "w"], ["a"]),
    ]);
    let [a, b] = [plain(), renamed].map(|model| read(&traced(model, TraceOptions::new())));
    assert!(TraceDiff::new(&a, &b).is_same());
    assert!(TraceDiff::new(&b, &a).is_same());
}

#[test]
fn the_first_step_that_differs_is_named() {
    let other = model(vec![
        NodeProto::new("Add", ["x", "w"], ["first"]),
        NodeProto::new("Neg", ["first"], ["second"]),
        NodeProto::new("Sub", ["second", "w"], ["y"]),
    ]);
    let [a, b] = [plain(), other].map(|model| read(&traced(model, TraceOptions::new())));
    let diff = TraceDiff::new(&a, &b);
    let first = Part { a: Some(1), b: Some(1), output: 0, same_inputs: true };
    assert_eq!((diff.first, diff.steps, &diff.outputs[..]), (Some(first), [2, 2], &[0][..]));
    // One run is a part of the other.
    let longer = model(vec![
        NodeProto::new("Add", ["x", "w"], ["sum"]),
        NodeProto::new("Exp", ["sum"], ["unused"]),
        NodeProto::new("Abs", ["sum"], ["abs"]),
        NodeProto::new("Sub", ["abs", "w"], ["y"]),
    ]);
    let longer = read(&traced(longer, TraceOptions::new()));
    let diff = TraceDiff::new(&a, &longer);
    assert_eq!(diff.first.map(|part| (part.a, part.b)), Some((None, Some(1))));
    assert_eq!((diff.steps, diff.outputs.len(), diff.is_same()), ([0, 1], 0, false));
    // The inputs differ, so all that follows does.
    let elsewhere = read(&traced_on(plain(), TraceOptions::new(), &[1.0, 1.0, 1.0]));
    let diff = TraceDiff::new(&a, &elsewhere);
    assert_eq!((diff.inputs, diff.first.map(|part| part.a)), (vec![0], Some(Some(0))));
}

/// A result that the other run has elsewhere too does not hide the step that was changed.
#[test]
fn a_changed_step_is_named_whatever_its_result_is() {
    let node = |name: &str, op: &str, inputs: [&str; 2], output: &str| {
        let inputs = inputs.into_iter().filter(|input| !input.is_empty());
        let mut node = NodeProto::new(op, inputs, [output]);
        node.name = Some(name.into());
        node
    };
    let with = |first: &str, second: &str| {
        let nodes = vec![
            node("na", first, ["x", "x"], "a"),
            node("nb", second, ["x", "x"], "b"),
            node("nc", "Exp", ["b", ""], "c"),
            node("nd", "Mul", ["a", "c"], "y"),
        ];
        read(&traced(model(nodes), TraceOptions::new()))
    };
    let cases = [
        (["Add", "Sub"], ["Add", "Add"], 1),
        (["Add", "Add"], ["Add", "Sub"], 1),
        (["Add", "Sub"], ["Sub", "Sub"], 0),
        (["Add", "Sub"], ["Mul", "Sub"], 0),
        (["Sub", "Add"], ["Add", "Add"], 0),
        (["Add", "Add"], ["Sub", "Add"], 0),
    ];
    for (a, b, step) in cases {
        let diff = TraceDiff::new(&with(a[0], a[1]), &with(b[0], b[1]));
        let first = Part { a: Some(step), b: Some(step), output: 0, same_inputs: true };
        assert_eq!(diff.first, Some(first), "{a:?} {b:?}");
    }
}

/// Steps of one operator that read the same, and of whose outputs one is another.
#[test]
fn the_output_that_differs_is_named() {
    let mut a = read(&traced(plain(), TraceOptions::new()));
    let same = a.steps[0].outputs[0].clone();
    a.steps[1].outputs.insert(0, same);
    let mut b = a.clone();
    // Another value, which A has too.
    b.steps[1].outputs[1] = b.steps[0].outputs[0].clone();
    let first = Part { a: Some(1), b: Some(1), output: 1, same_inputs: true };
    for [a, b] in [[&a, &b], [&b, &a]] {
        let diff = TraceDiff::new(a, b);
        assert_eq!((diff.first, diff.steps), (Some(first), [1, 1]));
    }
}

#[test]
fn dumped_values_are_those_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let x = [-4.0, 1.0, 0.25];
    let trace = read(&traced_to(plain(), TraceOptions::new(), &x, Some(folder.path())));
    let value = trace.dumped(folder.path(), 1, 0).unwrap().unwrap();
    assert_eq!(value.tensor().unwrap().to_slice::<f32>().unwrap()[..], [3.0, 1.0, 0.75]);
    std::fs::copy(folder.path().join("0_0.pb"), folder.path().join("1_0.pb")).unwrap();
    let error = trace.dumped(folder.path(), 1, 0).unwrap_err();
    assert!(error.to_string().contains("is not the value that the trace has at step 1"), "{error}");
    std::fs::remove_file(folder.path().join("1_0.pb")).unwrap();
    assert!(trace.dumped(folder.path(), 1, 0).unwrap_err().to_string().contains("1_0.pb"));
}

#[test]
fn random_inputs_are_the_same_for_every_type() {
    let mut graph = GraphProto::new("g");
    let types = [
        DataType::Float,
        DataType::Int64,
        DataType::Bool,
        DataType::Float16,
        DataType::Uint4,
        DataType::String,
        DataType::Complex64,
    ];
    for dtype in &types {
        graph.input.push(ValueInfoProto::tensor_with(dtype.name(), *dtype, ["n".into(), 1.into()]));
    }
    let program =
        Program::new(&Container::new(ModelProto::new(graph)), ProgramOptions::new()).unwrap();
    let error = random_inputs::all(&program, 0, &HashMap::new()).unwrap_err();
    assert_eq!((error.kind(), error.related().len()), (ErrorKind::Input, types.len()));
    let sizes: HashMap<_, _> = [("n".to_owned(), 2)].into();
    let [a, b, c] = [7, 7, 8].map(|seed| random_inputs::all(&program, seed, &sizes).unwrap());
    assert_eq!(a, b);
    assert_ne!(a, c);
    for ((name, value), dtype) in a.iter().zip(&types) {
        let tensor = value.tensor().unwrap();
        assert_eq!(
            (name.as_str(), tensor.dims(), tensor.dtype()),
            (dtype.name(), &[2, 1][..], *dtype)
        );
    }
    // By the generator as it is documented, computed elsewhere.
    assert_eq!(a[0].1.tensor().unwrap().as_slice::<f32>().unwrap(), [0.443_016_3, 0.299_408_56]);
    assert_eq!(a[1].1.tensor().unwrap().as_slice::<i64>().unwrap(), [0, 0]);
}
