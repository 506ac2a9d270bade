//! `run`: inputs from files and by a seed, outputs to files, comparisons, limits.

use std::fs;
use std::path::Path;

use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TypeProto, ValueInfoProto, type_proto,
};
use onnx_container::{DataType, Tensor};
use serde_json::json;

use crate::support::{Folder, sums};

pub fn of_one(op: &str, dtype: DataType) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", dtype, [2.into()]));
    graph.node.push(NodeProto::new(op, ["x"], ["y"]));
    graph.output.push(ValueInfoProto::tensor_with("y", dtype, [2.into()]));
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

fn write_pb(path: &Path, values: &[f32], dims: &[i64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let proto = TensorProto::new("", TensorProto::FLOAT, dims.to_vec()).with_raw_data(bytes);
    fs::write(path, proto.encode_to_vec().unwrap()).unwrap();
}

const X: [f32; 4] = [-1.5, 0.0, 2.0, -8.0];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &sums());
    fs::create_dir(folder.path("data")).unwrap();
    write_pb(&folder.path("data/input_0.pb"), &X, &[1, 4]);
    write_pb(&folder.path("data/output_0.pb"), &[-1.5, 1.0, 4.0, -5.0], &[1, 4]);
    write_pb(&folder.path("data/output_1.pb"), &[1.5, 0.0, 2.0, 8.0], &[1, 4]);
    folder
}

#[test]
fn inputs_of_every_format_give_the_same_outputs() {
    let folder = folder();
    let in_format = |format: &str| {
        let run = ["run", "m.onnx", "--input-dir", "data", "-o", format, "--format", format];
        folder.run(&run).done();
    };
    ["npy", "npz", "pb"].into_iter().for_each(in_format);
    fs::rename(folder.path("npy/output_1.npy"), folder.path("z.npy")).unwrap();
    // z is |x|, so it is an input as well as an output.
    let by_name = |file: &str| {
        let run = folder.run(&["run", "m.onnx", "--input", file, "--json"]).done().json();
        run["outputs"][0]["first"].clone()
    };
    fs::copy(folder.path("pb/output_1.pb"), folder.path("z.pb")).unwrap();
    let expected = json!(["1.5", "1", "4", "11"]);
    assert_eq!(by_name("x=z.npy"), expected);
    assert_eq!(by_name("x=z.pb"), expected);
    let missing = folder.run(&["run", "m.onnx", "--input", "x=npz/outputs.npz"]);
    missing.failed(&["npz/outputs.npz", "no array `x`; it has y, z"]);
    for format in ["npy", "npz", "pb"] {
        let run = ["run", "m.onnx", "--input-dir", "data", "--expect", format];
        if format == "npy" {
            fs::rename(folder.path("z.npy"), folder.path("npy/output_1.npy")).unwrap();
        }
        folder.run(&run).done().says(&["2 outputs are as expected (rtol 0.001, atol 1e-7)"]);
    }
}

#[test]
#[cfg(unix)]
fn more_outputs_are_written_than_files_may_be_open() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [1]));
    for name in (0..200).map(|i| format!("y{i}")) {
        graph.node.push(NodeProto::new("Neg", ["x"], [name.as_str()]));
        graph.output.push(ValueInfoProto::tensor(name.as_str(), DataType::Float, [1]));
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    folder.save("m.onnx", &model);
    let command = folder.command(&["run", "m.onnx", "-o", "out"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""]).current_dir(folder.path(""));
    let output = shell.arg(command.get_program()).args(command.get_args()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 200);
}

#[test]
fn outputs_are_shown_and_in_json() {
    let folder = folder();
    let run = ["run", "m.onnx", "--input-dir", "data"];
    folder.run(&run).done().says(&[
        "input     x: FLOAT [1, 4] (data/input_0.pb)",
        "ran       2 steps",
        "output    y: FLOAT [1, 4]",
        "min -5, max 4, mean -0.375",
        "[-1.5, 1, 4, -5]",
    ]);
    let json = folder.run(&[&run[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["command"], &json["steps"]), (&"run".into(), &2.into()));
    assert_eq!(json["inputs"][0]["source"]["file"], "data/input_0.pb");
    let y = &json["outputs"][0];
    assert_eq!(
        (&y["name"], &y["dtype"], &y["shape"]),
        (&"y".into(), &"FLOAT".into(), &json!([1, 4]))
    );
    assert_eq!((&y["min"], &y["max"], &y["nan"]), (&(-5.0).into(), &4.0.into(), &0.into()));
    assert_eq!((&json["expected"], &y["path"]), (&json!(null), &json!(null)));
}

#[test]
fn expected_files_are_found_by_the_names_of_outputs() {
    let folder = folder();
    let write = |output: &str, format: &str| {
        let args = ["run", "m.onnx", "--input-dir", "data", "-o", output, "--format", format];
        folder.run(&args).done();
    };
    write("npy", "npy");
    write("pb", "pb");
    fs::create_dir(folder.path("named")).unwrap();
    fs::copy(folder.path("npy/output_0.npy"), folder.path("named/y.npy")).unwrap();
    fs::copy(folder.path("pb/output_1.pb"), folder.path("named/z.pb")).unwrap();
    let run = ["run", "m.onnx", "--input-dir", "data", "--expect", "named"];
    let json = folder.run(&[&run[..], &["--json"]].concat()).done().json();
    let outputs = json["expected"]["outputs"].as_array().unwrap();
    let names: Vec<_> = outputs.iter().map(|output| &output["output"]).collect();
    assert_eq!(names, ["y", "z"]);
    assert_eq!(outputs[0]["differing"], 0);
    // By number comes first, and no output is left out.
    write_pb(&folder.path("named/output_1.pb"), &[1.0, 0.0, 2.0, 8.0], &[1, 4]);
    folder.run(&run).says(&["largest   z: elements differ by at most 0.5"]);
    fs::remove_file(folder.path("named/y.npy")).unwrap();
    folder
        .run(&run)
        .misused(&["has none of output_0.pb, output_0.npy, y.npy, y.pb and outputs.npz"]);
}

/// An output that was lost or renamed is not compared with the array of another one.
#[test]
fn the_only_array_of_a_file_is_expected_of_its_output_alone() {
    let folder = folder();
    let run = ["run", "m.onnx", "--input-dir", "data"];
    folder.run(&[&run[..], &["-o", "out", "--format", "npz"]].concat()).done();
    folder.run(&[&run[..], &["--expect", "out"]].concat()).done();
    folder.save("one.onnx", &with_output("y"));
    let one = ["run", "one.onnx", "--input-dir", "data", "-o", "less", "--format", "npz"];
    folder.run(&one).done();
    folder.run(&[&run[..], &["--expect", "less"]].concat()).misused(&["no array `z`; it has y"]);
}

/// The model with its output `name` alone.
fn with_output(name: &str) -> ModelProto {
    let mut model = sums();
    model.graph.as_mut().unwrap().output.retain(|output| output.name == Some(name.into()));
    model
}

#[test]
fn one_output_is_compared_with_a_file() {
    let folder = folder();
    folder.run(&["run", "m.onnx", "--input-dir", "data", "-o", "npy"]).done();
    folder.run(&["extract-model", "m.onnx", "one.onnx", "--outputs=y"]).done();
    let expect = ["--input-dir", "data", "--expect", "npy/output_0.npy"];
    let run = folder.run(&[&["run", "one.onnx"][..], &expect].concat()).done();
    run.says(&["1 output is as expected"]);
    let run = folder.run(&[&["run", "m.onnx"][..], &expect].concat());
    run.misused(&["is a file, and the model has 2 outputs: give a folder"]);
    let other = ["run", "one.onnx", "--input-dir", "data", "--expect", "npy/output_1.npy"];
    assert_eq!(folder.run(&other).code(), 1);
}

#[test]
fn outputs_that_are_not_the_expected_ones_are_exit_code_1() {
    let folder = folder();
    write_pb(&folder.path("data/output_1.pb"), &[1.5, 0.0, 2.0, 8.1], &[1, 4]);
    let run = ["run", "m.onnx", "--input-dir", "data", "--expect", "data"];
    let failed = folder.run(&run);
    assert_eq!(failed.code(), 1);
    failed.says(&["1 of 2 outputs are as expected", "differs   z: element 3 is 8, not 8.1"]);
    folder.run(&run).says(&["largest   z: elements differ by at most 0.1", "1 of 4"]);
    folder.run(&[&run[..], &["--rtol", "0.1"]].concat()).done();
    folder.run(&[&run[..], &["--atol", "0.2"]].concat()).done();
    let json = folder.run(&[&run[..], &["--json"]].concat());
    assert_eq!((json.code(), &json.json()["expected"]["ok"]), (1, &false.into()));
    // How far they are is said where they are as expected, too.
    let close = folder.run(&[&run[..], &["--rtol", "0.1", "--json"]].concat()).done().json();
    let largest = &close["expected"]["largest"];
    assert_eq!((&largest["output"], &largest["differing"]), (&"z".into(), &1.into()));
    assert!((largest["max_abs"].as_f64().unwrap() - 0.1).abs() < 1e-6, "{largest}");
    let same = ["run", "m.onnx", "--input-dir", "data", "--expect", "same"];
    folder.run(&["run", "m.onnx", "--input-dir", "data", "-o", "same"]).done();
    folder
        .run(&same)
        .done()
        .says(&["largest   y: all elements are equal\nlargest   z: all elements are equal\n"]);
    // Another shape, another type, and a file that is not there.
    write_pb(&folder.path("data/output_1.pb"), &[1.5, 0.0], &[2]);
    folder.run(&run).says(&["differs   z: the shape is [1, 4], not [2]"]);
    let ints = Tensor::from_vec([1, 4], vec![1_i64; 4]).unwrap().to_proto("");
    fs::write(folder.path("data/output_1.pb"), ints.encode_to_vec().unwrap()).unwrap();
    assert_eq!(
        folder.run(&run).says(&["differs   z: ", "the tensor is INT64, not FLOAT"]).code(),
        1
    );
    fs::remove_file(folder.path("data/output_1.pb")).unwrap();
    folder.run(&run).misused(&["has none of output_1.pb, output_1.npy, z.npy"]);
}

#[test]
fn random_inputs_depend_on_the_seed_alone() {
    let folder = folder();
    let run = |more: &[&str]| {
        let args = [&["run", "m.onnx", "--dim", "batch=3", "--json"], more].concat();
        folder.run(&args).done().json()["outputs"].clone()
    };
    assert_eq!(run(&[]), run(&["--seed", "0"]));
    assert_eq!(run(&["--seed", "18446744073709551615"])[0]["shape"], json!([3, 4]));
    assert_ne!(run(&["--seed", "1"]), run(&["--seed", "0"]));
    folder.run(&["run", "m.onnx"]).failed(&[
        "value `x`",
        "its dimension `batch` has no size",
        "--dim",
    ]);
    folder
        .run(&["run", "m.onnx", "--dim", "b=1"])
        .failed(&["no input has an open dimension `b`; open are batch"]);
    const NOT_THERE: &str = if cfg!(windows) { "(os error 3)" } else { "No such file" };
    let folders: [&[&str]; 3] = [
        &["--input-dir", "nowhere"],
        &["--input-dir", "nowhere", "--seed", "1"],
        &["--expect", "nowhere"],
    ];
    for args in folders {
        let missing = folder.run(&[&["run", "m.onnx", "--dim", "batch=1"], args].concat());
        match args.contains(&"--expect") {
            true => missing.misused(&["nowhere", NOT_THERE]),
            false => missing.failed(&["nowhere", NOT_THERE]),
        };
    }
}

#[test]
fn wrong_inputs_are_reported() {
    let folder = folder();
    fs::create_dir(folder.path("empty")).unwrap();
    write_pb(&folder.path("short.pb"), &X, &[2, 2]);
    fs::write(folder.path("bad.npy"), "x").unwrap();
    fs::write(folder.path("bad.npz"), "x").unwrap();
    fs::write(folder.path("bad.pb"), [0xff; 3]).unwrap();
    fs::write(folder.path("lfs.pb"), "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n")
        .unwrap();
    let cases: [(&[&str], &str); 11] = [
        (
            &["--input-dir", "empty", "--seed", "1"],
            "`empty` has a file of no input: neither input_0.pb",
        ),
        (&["--input", "a=short.pb"], "`a`: the graph has no such input; it has x"),
        (&["--input", "x=short.pb"], "dimension 1 is 2 in [2, 2], not 4"),
        (&["--input", "x=gone.pb"], "gone.pb"),
        (&["--input", "x=bad.npy"], "`bad.npy`"),
        (&["--input", "x=bad.npz"], "not an npz file"),
        (&["--input", "x=bad.pb"], "`bad.pb`"),
        (&["--input", "x=lfs.pb"], "git lfs pull"),
        (
            &["--input-dir", "empty"],
            "value `x`: the input is missing: `empty` has neither input_0.pb nor input_0.npy nor inputs.npz; ",
        ),
        (&["--input-dir", "data", "--max-memory", "64"], "would need 80 B, its budget is 64 B"),
        (&["--input-dir", "data", "--max-memory", "79"], "would need 80 B, its budget is 79 B"),
    ];
    for (args, reason) in cases {
        folder.run(&[&["run", "m.onnx"], args].concat()).failed(&[reason]);
    }
    folder.run(&["run", "m.onnx", "--input-dir", "data", "--max-memory", "80"]).done();
    let steps = ["run", "m.onnx", "--input-dir", "data", "--max-steps"];
    folder.run(&[&steps[..], &["1"]].concat()).failed(&["step 1", "more than 1 steps"]);
    folder.run(&[&steps[..], &["2"]].concat()).done();
    let misused: [&[&str]; 8] = [
        &["--dim", "batch=1", "--dim", "batch=2"],
        &["--timings", "--repeat", "0"],
        &["--input", "x"],
        &["--input", "x=a.txt"],
        &["--input", "x=short.pb", "--input", "x=short.pb"],
        &["--format", "pb"],
        &["--rtol", "1"],
        &["--expect", "data", "--atol=-1"],
    ];
    for args in misused {
        folder.run(&[&["run", "m.onnx"], args].concat()).misused(&[]);
    }
    let negative = ["run", "m.onnx", "--expect", "data", "--rtol", "-1"];
    folder.run(&negative).misused(&["not a tolerance such as 1e-3"]);
    // What is given contradicts itself.
    for command in ["run", "trace"] {
        let args = [command, "m.onnx", "--input-dir", "data", "--dim", "batch=7"];
        folder.run(&args).failed(&["input_0.pb", "--dim sets `batch` to 7, but here it is "]);
    }
}

/// The outputs and limits are those of one run.
#[test]
fn runs_are_repeated_and_timed() {
    let folder = folder();
    let run = ["run", "m.onnx", "--input-dir", "data", "--expect", "data", "--max-steps", "2"];
    let once = folder.run(&[&run[..], &["--json"]].concat()).done().json();
    assert!(once["timings"].is_null());
    let timed = [&run[..], &["--timings", "--repeat", "3"]].concat();
    let thrice = folder.run(&[&timed[..], &["--json"]].concat()).done().json();
    assert_eq!(once["outputs"], thrice["outputs"]);
    assert_eq!(once["steps"], thrice["steps"]);
    let timings = &thrice["timings"];
    assert_eq!(timings["seconds"].as_array().unwrap().len(), 3);
    assert!(timings["median"].as_f64().unwrap() > 0.0);
    let operators = timings["operators"].as_array().unwrap();
    let mut steps: Vec<_> = operators
        .iter()
        .map(|one| (one["op"].as_str().unwrap(), one["steps"].as_u64().unwrap()))
        .collect();
    steps.sort_unstable();
    assert_eq!(steps, [("Abs", 1), ("Add", 1)]);
    // Repeating is for the times.
    let repeated = [&run[..], &["--repeat", "3"]].concat();
    for args in [timed, repeated] {
        folder.run(&args).done().says(&["took", "the median of 3 runs", "Add x 1", "Abs x 1"]);
    }
}

#[test]
fn types_that_numpy_does_not_have_are_integers_in_npy() {
    let folder = Folder::new();
    for (dtype, op) in
        [(DataType::Bfloat16, "Abs"), (DataType::String, "Identity"), (DataType::Bool, "Not")]
    {
        folder.save("m.onnx", &of_one(op, dtype));
        let run = folder.run(&["run", "m.onnx", "-o", "out", "--format", "npy"]);
        if dtype == DataType::String {
            run.failed(&["`y`", "--format pb holds them"]);
        } else {
            run.done();
            folder.run(&["run", "m.onnx", "--expect", "out"]).done();
            folder.run(&["run", "m.onnx", "--input", "x=out/output_0.npy"]).done();
        }
        folder.run(&["run", "m.onnx", "-o", dtype.name(), "--format", "pb"]).done();
        folder.run(&["run", "m.onnx", "--expect", dtype.name()]).done();
    }
}

#[test]
fn a_format_that_does_not_hold_an_output_is_refused_before_the_run() {
    let folder = Folder::new();
    folder.save("m.onnx", &of_one("Identity", DataType::String));
    for format in ["npy", "npz"] {
        // A run would fail at its first step.
        let run = ["run", "m.onnx", "--max-steps", "0", "-o", "out", "--format", format];
        folder.run(&run).failed(&["`y`", "--format pb holds them"]);
        assert!(!folder.path("out").exists());
    }
    let run = ["run", "m.onnx", "--max-steps", "0", "-o", "out", "--format", "pb"];
    folder.run(&run).failed(&["step"]);
}

/// A SequenceProto of one tensor.
fn sequence() -> Vec<u8> {
    let tensor = Tensor::from_vec([2], vec![1.0_f32, 2.0]).unwrap().to_proto("");
    let bytes = tensor.encode_to_vec().unwrap();
    [&[0x10, 1, 0x1a, u8::try_from(bytes.len()).unwrap()][..], &bytes].concat()
}

#[test]
fn sequences_are_read_written_and_compared_as_pb() {
    let folder = Folder::new();
    let mut model = of_one("Identity", DataType::Float);
    let graph = model.graph.as_mut().unwrap();
    for value in graph.input.iter_mut().chain(&mut graph.output) {
        let element = value.r#type.take().unwrap();
        let mut sequence = type_proto::Sequence::default();
        sequence.elem_type = Some(element);
        let mut ty = TypeProto::default();
        ty.value = Some(type_proto::Value::SequenceType(Box::new(sequence)));
        value.r#type = Some(Box::new(ty));
    }
    folder.save("m.onnx", &model);
    fs::write(folder.path("s.pb"), sequence()).unwrap();
    let run = ["run", "m.onnx", "--input", "x=s.pb"];
    let written = folder.run(&[&run[..], &["-o", "out", "--format", "pb"]].concat()).done();
    written.says(&["output    y: seq(tensor(FLOAT))", "[FLOAT [2]]"]);
    assert_eq!(fs::read(folder.path("out/output_0.pb")).unwrap(), sequence());
    folder.run(&[&run[..], &["--expect", "out"]].concat()).done();
    folder.run(&[&run[..], &["-o", "out"]].concat()).failed(&["--format pb holds it"]);
    let run = folder.run(&["run", "m.onnx"]);
    assert!(!run.stderr().contains("--dim"), "{run:?}");
    run.failed(&["`x`", "there are random tensors only", "--input NAME=FILE"]);
}

/// y = a map from 7 and 5 to the elements of each row of x, FLOAT [2].
fn zipped() -> ModelProto {
    let mut model = of_one("ZipMap", DataType::Float);
    let graph = model.graph.as_mut().unwrap();
    graph.node[0].domain = Some("ai.onnx.ml".into());
    graph.node[0].attribute = vec![AttributeProto::ints("classlabels_int64s", vec![7, 5])];
    let mut map = type_proto::Map::default();
    map.key_type = Some(DataType::Int64.number());
    map.value_type = graph.output[0].r#type.take();
    let mut element = TypeProto::default();
    element.value = Some(type_proto::Value::MapType(Box::new(map)));
    let mut sequence = type_proto::Sequence::default();
    sequence.elem_type = Some(Box::new(element));
    let mut ty = TypeProto::default();
    ty.value = Some(type_proto::Value::SequenceType(Box::new(sequence)));
    graph.output[0].r#type = Some(Box::new(ty));
    model.opset_import.push(OperatorSetIdProto::new("ai.onnx.ml", 1));
    model
}

#[test]
fn maps_are_printed_written_and_compared_as_pb() {
    let folder = Folder::new();
    folder.save("m.onnx", &zipped());
    write_pb(&folder.path("x.pb"), &[0.5, -1.5], &[2]);
    let run = ["run", "m.onnx", "--input", "x=x.pb"];
    let written = folder.run(&[&run[..], &["-o", "out", "--format", "pb"]].concat()).done();
    written.says(&["y: seq(map(INT64,tensor(FLOAT)))", "[{5: -1.5, 7: 0.5}]"]);
    folder.run(&[&run[..], &["--expect", "out"]].concat()).done();
    write_pb(&folder.path("x.pb"), &[0.5, -2.5], &[2]);
    let other = folder.run(&[&run[..], &["--expect", "out"]].concat());
    assert_eq!(other.says(&["differs   y: [0]: element 0 is -2.5, not -1.5"]).code(), 1);
    for format in ["npy", "npz"] {
        let refused = [&run[..], &["--max-steps", "0", "-o", "new", "--format", format]].concat();
        folder.run(&refused).failed(&["`y`", "is no array: --format pb holds it"]);
        assert!(!folder.path("new").exists());
    }
}

/// The tests of onnx itself, where they are: a few of every kind of input.
#[test]
fn node_tests_of_onnx_pass() {
    let data =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../.models/onnx/onnx/backend/test/data/node");
    let folder = Folder::new();
    for name in [
        "test_add",
        "test_cast_FLOAT_to_DOUBLE",
        "test_loop11",
        "test_reshape_zero_dim",
        "test_and2d",
    ] {
        let test = data.join(name);
        if !test.is_dir() {
            continue;
        }
        let model = test.join("model.onnx").display().to_string();
        let set = test.join("test_data_set_0").display().to_string();
        folder.run(&["run", &model, "--input-dir", &set, "--expect", &set]).done();
    }
}

#[test]
fn profiles_are_named_and_agree_within_rounding() {
    let folder = Folder::new();
    folder.save("tanh.onnx", &of_one("Tanh", DataType::Float));
    let strict = folder.run(&["run", "tanh.onnx", "--seed", "1", "-o", "strict", "--json"]);
    assert_eq!(strict.json()["profile"], "strict-1");
    let fast = ["run", "tanh.onnx", "--seed", "1", "--profile", "fast"];
    let compared = [&fast[..], &["--expect", "strict", "--rtol", "1e-6"]].concat();
    folder.run(&compared).says(&["of memory, profile fast", "as expected"]);
    assert_eq!(folder.run(&[&fast[..], &["--json"]].concat()).json()["profile"], "fast");
    let trace = folder.run(&["trace", "tanh.onnx", "--seed", "1", "--profile", "fast"]);
    trace.says(&[r#""profile":"fast""#]);
}
