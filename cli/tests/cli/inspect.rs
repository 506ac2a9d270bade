//! `inspect MODEL`.

use std::fs;

use onnx_container::DataType;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TypeProto, ValueInfoProto, type_proto,
};

use crate::support::{Folder, external, floats};

#[test]
fn a_model_is_described() {
    let folder = Folder::packed();
    folder.run(&["inspect", "p.onnx"]).done().says(&[
        "IR         10",
        "opsets     ai.onnx 21, local 1",
        "producer   a test",
        "graph      main",
        "nodes      3, and 3 in subgraphs and functions",
        "inputs     2\n              TYPE      SHAPE     NAME\n              FLOAT     [?]       x\n              BOOL      []        flag\n",
        "outputs    0\n",
        "functions  1",
        "subgraphs  2, depth 1",
        "        2  Constant",
        "        1  Split",
        "tensors    7: 3 inline (3.2 kB), 4 external (9.6 kB)\n",
        "parameters 3004\n",
        "        SIZE  TYPE      SHAPE     NAME  PLACE\n",
        "      4.0 kB  FLOAT     [1000]    w  p.onnx.data@0",
        "z.then_branch/inner  p.onnx.data@",
        "local::f/k  (raw_data)",
        "files      1 (",
        "present   4 tensors",
    ]);
}

#[test]
fn json_holds_every_tensor() {
    let folder = Folder::packed();
    let summary = folder.run(&["inspect", "p.onnx", "--json"]).done().json();
    assert_eq!((&summary["ir_version"], &summary["functions"]), (&10.into(), &1.into()));
    assert_eq!(summary["opsets"][0]["domain"], "ai.onnx");
    assert_eq!(summary["operators"][0]["operator"], "Constant");
    let tensors = summary["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 7);
    assert_eq!((&tensors[0]["name"], &tensors[0]["bytes"]), (&"w".into(), &4000.into()));
    assert_eq!(tensors[0]["stored"]["where"], "external");
    assert_eq!(tensors[0]["stored"]["location"], "p.onnx.data");
    assert_eq!(tensors[0]["shape"][0], 1000);
    let small = tensors.iter().find(|tensor| tensor["name"] == "small").unwrap();
    assert_eq!(small["stored"]["field"], "raw_data");
    assert_eq!(summary["files"][0]["state"], "present");
    let top = folder.run(&["inspect", "p.onnx", "--json", "--top", "2"]).done().json();
    assert_eq!(top["tensors"].as_array().unwrap().len(), 2);
    assert_eq!(top["totals"]["tensors"], 7);
}

#[test]
fn the_list_is_as_long_as_asked_for() {
    let folder = Folder::packed();
    folder.run(&["inspect", "p.onnx", "--top", "3"]).done().says(&["and 4 more"]);
    let all = folder.run(&["inspect", "p.onnx", "--top", "0"]).done();
    assert!(!all.stdout().contains("more"));
}

#[test]
fn weights_need_not_be_there() {
    let folder = Folder::packed();
    fs::remove_file(folder.path("p.onnx.data")).unwrap();
    folder.run(&["inspect", "p.onnx"]).done().says(&["1 missing", "missing   4 tensors"]);
    let hostile = ["../up.bin", "/dev/zero", "#handle", "a.bin", "./a.bin"];
    folder.save("h.onnx", &external(&hostile));
    let files = folder.run(&["inspect", "h.onnx", "--json"]).done().json()["files"].clone();
    let states: Vec<_> = files.as_array().unwrap().iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["refused", "refused", "refused", "missing"]);
    assert_eq!(files[3]["tensors"], 2);
}

#[test]
fn weights_that_are_not_all_there_are_told_apart() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["whole", "short", "short", "away", "../up"]));
    fs::write(folder.path("whole"), [0; 16]).unwrap();
    fs::write(folder.path("short"), [0; 10]).unwrap();
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "files      4 (26 B): 1 present, 1 cut off, 1 missing, 1 refused",
        "        10 B  cut off   2 tensors     short (cut off: 10 of 16 bytes)",
        "           -  missing   1 tensor      away",
    ]);
    let said = folder.run(&["inspect", "m.onnx", "--json"]).done().json();
    let states: Vec<_> = said["files"].as_array().unwrap().iter().map(|f| &f["state"]).collect();
    assert_eq!(states, ["present", "cut_off", "missing", "refused"]);
    assert_eq!(said["files"][1]["needed_bytes"], 16);
    assert_eq!(said["file_totals"]["cut_off"], 1);

    let mut bare = crate::support::model();
    for tensor in &mut bare.graph.as_mut().unwrap().initializer {
        tensor.raw_data = None;
    }
    folder.save("bare.onnx", &bare);
    folder.run(&["inspect", "bare.onnx"]).done().says(&[
        "tensors    7: 4 inline (7.2 kB), 0 external (0 B), 3 without data\n",
        "w  (no data)",
    ]);
}

#[test]
fn tied_tensors_are_counted_once() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["w", "./w", "v"]));
    for name in ["w", "v"] {
        fs::write(folder.path(name), [0; 16]).unwrap();
    }
    let text = "3 external (32 B, 1 tied and counted once)";
    folder.run(&["inspect", "m.onnx"]).done().says(&[text]);
    let totals = folder.run(&["inspect", "m.onnx", "--json"]).done().json()["totals"].clone();
    assert_eq!((&totals["external_bytes"], &totals["tied"]), (&32.into(), &1.into()));
    folder
        .run(&["pack", "m.onnx", "p.onnx", "--verify"])
        .done()
        .says(&["3 external (32 B, 1 of them tied, mapped)", "verified  3 tensors (32 B, mapped)"]);
}

#[test]
fn files_are_listed_in_order_and_no_more_than_asked_for() {
    let folder = Folder::new();
    let locations: Vec<_> = (0..30).map(|i| format!("w{i}.bin")).collect();
    folder.save("m.onnx", &external(&locations.iter().map(String::as_str).collect::<Vec<_>>()));
    for (args, listed) in [(&[][..], 20), (&["--top", "5"], 5), (&["--top", "0"], 30)] {
        let args = [&["inspect", "m.onnx"], args].concat();
        let text = folder.run(&args).done().stdout();
        let files = text.split_once("\nfiles ").unwrap().1;
        let names: Vec<_> = files
            .lines()
            .filter_map(|line| line.split_once("1 tensor      "))
            .map(|f| f.1)
            .collect();
        assert_eq!(names, locations[..listed], "{args:?}");
        assert_eq!(files.contains("more: --top 0"), listed < 30, "{args:?}");
    }
    let said = folder.run(&["inspect", "m.onnx", "--json", "--top", "5"]).done().json();
    assert_eq!(
        (said["files"].as_array().unwrap().len(), &said["file_totals"]["files"]),
        (5, &30.into())
    );
}

#[test]
fn long_names_of_types_do_not_break_columns() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    for (name, dtype) in [("a", TensorProto::FLOAT8E4M3FNUZ), ("b", TensorProto::INT8)] {
        graph.initializer.push(TensorProto::new(name, dtype, [2]).with_raw_data(vec![0, 0]));
    }
    folder.save("m.onnx", &ModelProto::new(graph));
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "         2 B  FLOAT8E4M3FNUZ  [2]       a  (raw_data)",
        "         2 B  INT8            [2]       b  (raw_data)",
    ]);
}

/// A model whose graph has inputs and outputs of every kind of declaration.
fn declared() -> ModelProto {
    let sequence = with(|sequence: &mut type_proto::Sequence| {
        sequence.elem_type = ValueInfoProto::tensor("", TensorProto::FLOAT, [1]).r#type;
    });
    let of_sequence = with(|declared: &mut TypeProto| {
        declared.value = Some(type_proto::Value::SequenceType(Box::new(sequence)));
    });
    let mut list = ValueInfoProto::tensor("list", TensorProto::FLOAT, []);
    list.r#type = Some(Box::new(of_sequence));
    let mut shapeless = ValueInfoProto::tensor("shapeless", TensorProto::INT64, []);
    if let Some(type_proto::Value::TensorType(tensor)) =
        &mut shapeless.r#type.as_mut().unwrap().value
    {
        tensor.shape = None;
    }
    let mut typeless = ValueInfoProto::tensor("typeless", TensorProto::INT64, []);
    typeless.r#type = None;
    let mut graph = GraphProto::new("main");
    let batch = ValueInfoProto::tensor_with("ids", DataType::Int64, ["batch".into(), 3.into()]);
    let given = ValueInfoProto::tensor("w", TensorProto::FLOAT, [1000]);
    graph.input = vec![batch, given, list, shapeless];
    graph.output = vec![ValueInfoProto::tensor("y", TensorProto::FLOAT, [-1, 4]), typeless];
    graph.initializer.push(floats("w", 1000));
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model
}

fn with<T: Default>(set: impl FnOnce(&mut T)) -> T {
    let mut message = T::default();
    set(&mut message);
    message
}

#[test]
fn inputs_and_outputs_are_shown_with_their_types() {
    let folder = Folder::new();
    folder.save("m.onnx", &declared());
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "inputs     3, and 1 with an initializer\n",
        "              TYPE                     SHAPE       NAME\n",
        "              INT64                    [batch,3]   ids\n",
        "              sequence(tensor(FLOAT))              list\n",
        "              INT64                    (no shape)  shapeless\n",
        "outputs    2\n",
        "              FLOAT      [?,4]     y\n",
        "              (no type)            typeless\n",
    ]);
    let said = folder.run(&["inspect", "m.onnx", "--json"]).done().json();
    let expected = serde_json::json!([
        {"name": "ids", "type": "tensor(INT64)", "dtype": "INT64", "shape": ["batch", 3], "has_initializer": false},
        {"name": "w", "type": "tensor(FLOAT)", "dtype": "FLOAT", "shape": [1000], "has_initializer": true},
        {"name": "list", "type": "sequence(tensor(FLOAT))", "dtype": null, "shape": null, "has_initializer": false},
        {"name": "shapeless", "type": "tensor(INT64)", "dtype": "INT64", "shape": null, "has_initializer": false},
    ]);
    assert_eq!(said["inputs"], expected);
    assert_eq!(said["outputs"][0]["shape"], serde_json::json!([null, 4]));
    assert_eq!(said["outputs"][1]["type"], serde_json::Value::Null);
    assert_eq!(said["opsets"], serde_json::json!([{"domain": "ai.onnx", "version": 21}]));
    let one = folder.run(&["inspect", "m.onnx", "--top", "1"]).done();
    one.says(&["ids\n              and 2 more: --top 0 lists all\noutputs    2\n"]);
}

#[test]
fn a_model_without_operator_sets_is_shown_as_such() {
    let folder = Folder::new();
    folder.save("m.onnx", &ModelProto::new(GraphProto::new("main")));
    folder.run(&["inspect", "m.onnx"]).done().says(&["opsets     (none)\n"]);
}

#[test]
fn rows_are_one_line_each_for_programs_and_names_are_not_cut() {
    let folder = Folder::new();
    let long = |n: usize| format!("encoder.layers.{n}.self_attention.query_key_value.weight");
    let location = format!("{}.data", "weights-of-the-model-".repeat(6));
    let mut graph = GraphProto::new("main");
    for n in 0..3 {
        let location = if n < 2 { "model.onnx.data" } else { location.as_str() };
        graph.initializer.push(TensorProto::external(long(n), TensorProto::FLOAT, [300], location));
    }
    let input = format!("input_{}", "with_a_long_name_".repeat(3));
    graph.input.push(ValueInfoProto::tensor(input.as_str(), TensorProto::FLOAT, [2]));
    let mut model = ModelProto::new(graph);
    let domains = (0..20).map(|n| OperatorSetIdProto::new(format!("domain{n}"), 1));
    model.opset_import = domains.collect();
    folder.save("m.onnx", &model);
    let text = folder.run(&["inspect", "m.onnx"]).done().stdout();
    for n in 0..2 {
        let row = format!("{}  model.onnx.data@0", long(n));
        assert!(text.lines().any(|line| line.ends_with(&row)), "{text}");
    }
    for name in [&long(2), &input, &location] {
        assert!(text.lines().any(|line| line.contains(name.as_str())), "no {name} in {text}");
    }
    assert!(text.contains("weights-of-the-model...ts-of-the-model-.data@0"), "{text}");
    // What is no list of names still wraps.
    let opsets = text.lines().skip_while(|line| !line.starts_with("opsets")).take(3);
    assert!(opsets.clone().all(|line| line.chars().count() <= 80), "{text}");
}

/// A model of two layers in which weights are quantized in every way.
pub fn quantized() -> ModelProto {
    let mut graph = GraphProto::new("main");
    let blocks = |name: &str, bits: i64, size: i64| {
        let mut node = NodeProto::new("MatMulNBits", ["x", "w"], [name]);
        node.domain = Some("com.microsoft".into());
        node.attribute.push(AttributeProto::int("bits", bits));
        node.attribute.push(AttributeProto::int("block_size", size));
        node
    };
    let mut dequantized = NodeProto::new("DequantizeLinear", ["model.layers.0.w", "s"], ["d"]);
    dequantized.attribute.push(AttributeProto::int("block_size", 32));
    graph.node = vec![
        NodeProto::new("QuantizeLinear", ["x", "s"], ["q"]),
        NodeProto::new("DequantizeLinear", ["q", "s"], ["dq"]),
        dequantized,
        blocks("a", 4, 32),
        blocks("b", 4, 32),
        blocks("c", 8, 128),
        NodeProto::new("QLinearConv", ["x"], ["e"]),
    ];
    let int4 = TensorProto::new("model.layers.0.w", TensorProto::INT4, [4]);
    graph.initializer.push(int4.with_raw_data(vec![0, 0]));
    graph.initializer.push(floats("model.layers.1.w", 300));
    graph.initializer.push(floats("head", 100));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(99);
    model.producer_name = Some("exporter".into());
    model.domain = Some("org.example".into());
    model.model_version = Some(3);
    model.doc_string = Some(Box::new("a model".into()));
    model.metadata_props.push(StringStringEntryProto::new("author", "Ada"));
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

#[test]
fn versions_metadata_and_quantization_are_told() {
    let folder = Folder::new();
    folder.save("m.onnx", &quantized());
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "refused    ir_version 99: onnxruntime",
        "producer   exporter\n",
        "domain     org.example\nversion    3\nsays       a model\n",
        "metadata   1\n              author=Ada\n",
        "digests    none\n",
        "nodes      7\n",
        "quantized  1 QuantizeLinear/DequantizeLinear pair,\n",
        "1 weight of INT4 by DequantizeLinear in blocks of 32",
        "2 com.microsoft::MatMulNBits of 4 bits in blocks of 32",
        "1 com.microsoft::MatMulNBits of 8 bits in blocks of 128",
        "1 QLinearConv",
        "parameters 404, 31.72 bits each with scales and zero points\n        SIZE        ELEMENTS   TENSORS  TYPE\n",
        "      1.6 kB             400         2  FLOAT\n         2 B               4         1  INT4\n",
    ]);
    let said = folder.run(&["inspect", "m.onnx", "--json"]).done().json();
    assert_eq!(said["metadata"], serde_json::json!([{"key": "author", "value": "Ada"}]));
    assert_eq!((&said["parameters"], &said["has_digests"]), (&404.into(), &false.into()));
    assert_eq!(said["quantization"]["pairs"], 1);
    assert_eq!(said["quantization"]["blocks"][0]["block_size"], 32);
    folder.run(&["pack", "m.onnx", "d.onnx", "--digests"]);
    folder.run(&["inspect", "d.onnx"]).done().says(&["digests    stored\n", "metadata   1\n"]);
}

/// Codes are counted as the weights that they stand for, scales and zero points not at all.
#[test]
fn parameters_of_quantized_weights_are_weights() {
    let bytes = |name: &str, dims: &[i64]| {
        let len = usize::try_from(dims.iter().product::<i64>()).unwrap();
        TensorProto::new(name, TensorProto::UINT8, dims.to_vec()).with_raw_data(vec![1; len])
    };
    let mut graph = GraphProto::new("g");
    // 6 rows of 64 weights of 4 bits, in blocks of 32; 10 rows of 32 of 4 bits; 8 of 8 bits.
    graph.initializer = vec![
        bytes("B", &[6, 2, 16]),
        floats("s", 12),
        bytes("z", &[6]),
        bytes("rows", &[10, 16]),
        floats("t", 10),
        bytes("w", &[8]),
        floats("u", 1),
        floats("bias", 6),
    ];
    let mut product = NodeProto::new("MatMulNBits", ["x", "B", "s", "z", "", "bias"], ["y"]);
    let mut gather = NodeProto::new("GatherBlockQuantized", ["rows", "i", "t"], ["r"]);
    for (node, values) in [
        (&mut product, &[("N", 6), ("K", 64), ("bits", 4), ("block_size", 32)][..]),
        (&mut gather, &[("bits", 4), ("block_size", 32)]),
    ] {
        node.domain = Some("com.microsoft".into());
        let attributes = values.iter().map(|(name, value)| AttributeProto::int(*name, *value));
        node.attribute = attributes.collect();
    }
    graph.node = vec![product, gather, NodeProto::new("DequantizeLinear", ["w", "u"], ["d"])];
    let folder = Folder::new();
    folder.save("m.onnx", &ModelProto::new(graph).with_operator_set("", 21));
    let json = folder.run(&["inspect", "m.onnx", "--json"]).done().json();
    assert_eq!(json["parameters"], 6 * 64 + 10 * 32 + 8 + 6);
    let of = |name: &str| {
        let tensors = json["tensors"].as_array().unwrap();
        tensors.iter().find(|tensor| tensor["name"] == name).unwrap()["parameters"].as_u64()
    };
    assert_eq!([of("B"), of("s"), of("rows"), of("w"), of("u")], [384, 0, 320, 8, 0].map(Some));
    let blocks = &json["quantization"]["blocks"];
    assert_eq!((&blocks[0]["nodes"], &blocks[1]["with_zero_points"]), (&1.into(), &1.into()));
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "1 com.microsoft::MatMulNBits of 4 bits in blocks of 32 with zero points",
        "1 com.microsoft::GatherBlockQuantized of 4 bits in blocks of 32 (symmetric)",
    ]);
}

#[test]
fn what_a_model_has_not_has_no_line() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    graph.node.push(NodeProto::new("Neg", ["x"], ["y"]));
    folder.save("m.onnx", &ModelProto::new(graph));
    let text = folder.run(&["inspect", "m.onnx"]).done().stdout();
    for label in ["functions", "subgraphs", "metadata", "quantized", "files", "domain", "says"] {
        assert!(!text.lines().any(|line| line.starts_with(label)), "{label} in {text}");
    }
    assert!(!text.contains("subgraphs and functions"), "{text}");
}

#[test]
fn safetensors_files_are_shown_as_models_without_a_graph() {
    let folder = Folder::with_model();
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors", "--min-bytes", "0"]);
    let run = folder.run(&["inspect", "w.safetensors"]).done();
    run.says(&[
        "model      w.safetensors (",
        "tensors    ",
        " external (",
        "w.safetensors@",
        "present",
    ]);
    let text = folder.run(&["inspect", "w.safetensors"]).done().stdout();
    assert!(!text.contains("opsets") && !text.contains("inputs"), "{text}");
    let json = folder.run(&["inspect", "w.safetensors", "--json"]).done().json();
    let tensors = json["tensors"].as_array().unwrap();
    assert_eq!(json["totals"]["external"], tensors.len());
    assert_eq!(json["files"][0]["state"], "present");
    assert!(tensors.iter().any(|tensor| tensor["name"] == "w" && tensor["bytes"] == 4000));

    let sharded = ["export-safetensors", "m.onnx", "s.safetensors", "--max-shard-size", "5000"];
    folder.run(&sharded).done();
    let index = folder.run(&["inspect", "s.safetensors.index.json", "--json"]).done().json();
    assert!(index["files"].as_array().unwrap().len() > 1, "{index}");
    fs::write(folder.path("cut.safetensors"), [0xff; 20]).unwrap();
    folder.run(&["inspect", "cut.safetensors"]).failed(&["cut.safetensors", "not a safetensors"]);
    fs::copy(folder.path("m.onnx"), folder.path("x.safetensors")).unwrap();
    folder.run(&["inspect", "x.safetensors"]).failed(&["an ONNX model, not a safetensors file"]);
    folder.run(&["inspect", "gone.safetensors"]).failed(&["gone.safetensors"]);
}

#[test]
fn several_models_are_shown_and_one_that_fails_hides_none() {
    let folder = Folder::packed();
    folder.save("b.onnx", &quantized());
    let run = folder.run(&["inspect", "p.onnx", "b.onnx"]).done();
    run.says(&["model      p.onnx (", "\n\nmodel      b.onnx ("]);
    let said = folder.run(&["inspect", "p.onnx", "gone.onnx", "b.onnx", "--json"]);
    let json = said.json();
    assert_eq!((said.code(), json["models"].as_array().unwrap().len()), (1, 3));
    assert_eq!(json["models"][0]["parameters"], 3004);
    assert_eq!(json["models"][1]["error"]["kind"], "MissingFile");
    assert_eq!(json["models"][2]["model"], "b.onnx");
    folder.run(&["inspect", "gone.onnx", "b.onnx"]).failed(&["gone.onnx"]).says(&["b.onnx"]);
}
