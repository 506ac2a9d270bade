//! Models and folders that several subjects need.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, TensorProto, TrainingInfoProto, ValueInfoProto,
};
use onnx_container::{Container, Initializer, LoadOptions, MmapChoice, WeightFiles};

/// Whether addresses have 64 bits.
pub const IS_64_BIT: bool = cfg!(target_pointer_width = "64");

/// Every layout that is there with every feature and writes the weights.
pub const LAYOUTS: [WeightFiles; 4] = [
    WeightFiles::Packed,
    WeightFiles::Sharded { max_bytes: 1000 },
    WeightFiles::PerTensor,
    WeightFiles::Embedded,
];

/// How many cases of a wide test there are: `few`, or `many` where `ONNX_CONTAINER_MANY_CASES` is
/// set. Without optimization many take minutes.
pub fn few_or(few: usize, many: usize) -> usize {
    if std::env::var_os("ONNX_CONTAINER_MANY_CASES").is_some() { many } else { few }
}

/// Both ways to open files; every test of loading runs over both.
pub fn both_choices() -> [MmapChoice; 2] {
    // SAFETY: the tests only replace mapped files by renaming, never write to or truncate them.
    #[allow(unsafe_code)]
    let auto = unsafe { MmapChoice::auto() };
    [auto, MmapChoice::never()]
}

/// A float tensor of `len` elements that count up from `start`.
pub fn floats(name: &str, start: usize, len: usize) -> TensorProto {
    let bytes: Vec<u8> = (start..start + len).flat_map(|i| (i as f32).to_le_bytes()).collect();
    TensorProto::new(name, TensorProto::FLOAT, vec![len as i64]).with_raw_data(bytes)
}

pub fn int64s(name: &str, values: &[i64]) -> TensorProto {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    TensorProto::new(name, TensorProto::INT64, vec![values.len() as i64]).with_raw_data(bytes)
}

pub fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
) -> NodeProto {
    let mut node = NodeProto::new(op, inputs.iter().copied(), outputs.iter().copied());
    node.attribute = attributes;
    node
}

pub fn constant(output: &str, value: TensorProto) -> NodeProto {
    node("Constant", &[], &[output], vec![AttributeProto::tensor("value", value)])
}

pub fn graph(initializers: Vec<TensorProto>, nodes: Vec<NodeProto>) -> GraphProto {
    let mut graph = GraphProto::new("g");
    graph.initializer = initializers;
    graph.node = nodes;
    graph
}

pub fn model(graph: GraphProto) -> ModelProto {
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// A function `local.name` over operator set 21.
pub fn function(
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    nodes: Vec<NodeProto>,
) -> FunctionProto {
    let mut function = FunctionProto::new("local", name);
    function.input = inputs.iter().copied().map(Into::into).collect();
    function.output = outputs.iter().copied().map(Into::into).collect();
    function.node = nodes;
    function.opset_import = vec![OperatorSetIdProto::new("", 21)];
    function.opset_import.push(OperatorSetIdProto::new("local", 1));
    function
}

/// A call of `local.name`.
pub fn call(
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
) -> NodeProto {
    let mut call = node(name, inputs, outputs, attributes);
    call.domain = Some("local".into());
    call
}

/// Vectors of two floats, as the inputs and outputs of graphs.
pub fn vectors(names: &[&str]) -> Vec<ValueInfoProto> {
    names.iter().map(|name| ValueInfoProto::tensor(*name, TensorProto::FLOAT, [2])).collect()
}

/// A graph between such vectors.
pub fn graph_of(inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> GraphProto {
    let mut graph = graph(vec![], nodes);
    graph.input = vectors(inputs);
    graph.output = vectors(outputs);
    graph
}

/// A model with functions of the domain `local`; the graph may have an input `c`, a condition.
pub fn model_of(main: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    let mut model = model(main);
    for input in &mut model.graph.as_mut().unwrap().input {
        if *input.name.as_ref().unwrap() == "c" {
            *input = ValueInfoProto::tensor("c", TensorProto::BOOL, []);
        }
    }
    model.opset_import.push(OperatorSetIdProto::new("local", 1));
    model.functions = functions;
    model
}

/// An `If` over the condition `c` whose branches have no inputs.
pub fn branches(outputs: &[&str], then_branch: GraphProto, else_branch: GraphProto) -> NodeProto {
    let then_branch = AttributeProto::graph("then_branch", then_branch);
    let attributes = vec![then_branch, AttributeProto::graph("else_branch", else_branch)];
    node("If", &["c"], outputs, attributes)
}

/// An attribute of a function's node that takes the value of the call's attribute `parameter`.
pub fn parameter(name: &str, kind: i32, parameter: &str) -> AttributeProto {
    let mut attribute = AttributeProto::default();
    attribute.name = Some(name.into());
    attribute.r#type = Some(kind);
    attribute.ref_attr_name = Some(parameter.into());
    attribute
}

fn sparse(name: &str, start: usize) -> SparseTensorProto {
    SparseTensorProto::new(floats(name, start, 4), int64s("", &[0, 2, 4, 6]), vec![8])
}

/// The names of all tensors of [`tensors_everywhere`], in graph order, with their scopes.
pub const EVERYWHERE: &[&str] = &[
    "w",
    "sparse",
    "sparse",
    "value_out",
    "list_out",
    "list_out",
    "sparse_out",
    "sparse_out",
    "sparse_list_out",
    "sparse_list_out",
    "if_node.then_branch/w",
    "if_node.then_branch/deep.body/w",
    "if_node.else_branch/else_value",
    "graphs_out.branches/w",
    "local::F/f_value",
    "local::F/f_if.then_branch/w",
    "local::F/default",
    "training_info[0].initialization/w",
    "training_info[0].algorithm/w",
];

/// A model with a tensor in every place that can hold one. Not one that runs: the point is reach.
pub fn tensors_everywhere() -> ModelProto {
    let mut main = graph(vec![floats("w", 0, 8)], vec![constant("value_out", floats("", 10, 8))]);
    main.sparse_initializer.push(sparse("sparse", 20));
    let list = vec![floats("", 30, 8), floats("", 40, 8)];
    main.node.push(node("Lists", &[], &["list_out"], vec![AttributeProto::tensors("ts", list)]));
    let attribute = AttributeProto::sparse_tensor("sparse_value", sparse("", 50));
    main.node.push(node("Constant", &[], &["sparse_out"], vec![attribute]));
    let attribute = AttributeProto::sparse_tensors("sparse_list", vec![sparse("", 60)]);
    main.node.push(node("Lists", &[], &["sparse_list_out"], vec![attribute]));

    let mut deep = node(
        "Loop",
        &["", "c"],
        &["deep_out"],
        vec![AttributeProto::graph("body", graph(vec![floats("w", 70, 8)], vec![]))],
    );
    deep.name = Some("deep".into());
    let then_branch = graph(vec![floats("w", 80, 8)], vec![deep]);
    let else_branch = graph(vec![], vec![constant("else_value", floats("", 90, 8))]);
    let branches = vec![
        AttributeProto::graph("then_branch", then_branch),
        AttributeProto::graph("else_branch", else_branch),
    ];
    let mut conditional = node("If", &["c"], &["if_out"], branches);
    conditional.name = Some("if_node".into());
    main.node.push(conditional);
    let branches =
        AttributeProto::graphs("branches", vec![graph(vec![floats("w", 100, 8)], vec![])]);
    main.node.push(node("Switch", &[], &["graphs_out"], vec![branches]));

    let mut function = FunctionProto::new("local", "F");
    function.node.push(constant("f_value", floats("", 110, 8)));
    let branch = AttributeProto::graph("then_branch", graph(vec![floats("w", 120, 8)], vec![]));
    let mut conditional = node("If", &["c"], &["f_if_out"], vec![branch]);
    conditional.name = Some("f_if".into());
    function.node.push(conditional);
    function.attribute_proto.push(AttributeProto::tensor("default", floats("", 130, 8)));

    let mut model = model(main);
    model.functions.push(function);
    let mut training = TrainingInfoProto::default();
    training.initialization = Some(Box::new(graph(vec![floats("w", 140, 8)], vec![])));
    training.algorithm = Some(Box::new(graph(vec![floats("w", 150, 8)], vec![])));
    model.training_info.push(training);
    model
}

/// [`tensors_everywhere`] with each tensor behind a handle.
pub fn external_everywhere() -> Container {
    let mut container = Container::new(tensors_everywhere());
    container.externalize(ExternalizeOptions::new().min_bytes(1).all_tensors(true)).unwrap();
    container
}

/// Options of a load that compares with all digests.
pub fn verifying() -> LoadOptions {
    LoadOptions::from(MmapChoice::never()).verify_digests(true)
}

/// A model that adds the initializer `w`, external behind `#w`, to its input.
pub fn add_w(len: i64) -> ModelProto {
    let w = TensorProto::external("w", TensorProto::FLOAT, vec![len], "#w");
    let mut g = graph(vec![w], vec![node("Add", &["x", "w"], &["y"], vec![])]);
    g.input = vec![ValueInfoProto::tensor("x", TensorProto::FLOAT, [len])];
    g.output = vec![ValueInfoProto::tensor("y", TensorProto::FLOAT, [len])];
    model(g)
}

/// The bytes of every tensor of `container` in graph order, by whatever way they are stored.
pub fn all_bytes(container: &Container) -> Vec<Vec<u8>> {
    let model = container.embed().unwrap();
    let mut all = Vec::new();
    onnx_container::traversal::tensors(&model, |_, tensor| {
        let initializer = Initializer::try_from(tensor.clone())?;
        let mut bytes = vec![0; initializer.byte_len() as usize];
        if initializer.dtype() != onnx_container::DataType::String {
            initializer.read_at(0, &mut bytes)?;
        }
        all.push(bytes);
        Ok(())
    })
    .unwrap();
    all
}

/// Holds two containers to have the same bytes in every tensor, and to compute the same: equal
/// semantic digests, or none for the same reason.
pub fn assert_same(found: &Container, expected: &Container) {
    assert!(all_bytes(found) == all_bytes(expected), "the bytes of tensors differ");
    assert_same_meaning(found, expected);
}

/// As [`assert_same`], of what the models compute alone.
pub fn assert_same_meaning(found: &Container, expected: &Container) {
    let meaning = |container: &Container| container.semantic_digest().map_err(|e| e.kind());
    assert_eq!(meaning(found), meaning(expected), "{:?}", expected.semantic_difference(found));
}

/// The files of a folder with their contents.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(&path).unwrap_or_default())
    };
    fs::read_dir(folder).unwrap().map(read).collect()
}

/// Every model file at hand that nobody here made: the shared data and the unpacked wheels.
/// What is absent is announced on stderr.
pub fn real_models() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut models = Vec::new();
    for folder in ["../shared/data", ".models", "tests/data"] {
        let before = models.len();
        find_models(&root.join(folder), &mut models);
        if models.len() == before {
            eprintln!("SKIPPED: no models in {folder}");
        }
    }
    models.sort();
    models
}

fn find_models(folder: &Path, models: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_models(&path, models);
        } else if path.extension().is_some_and(|extension| extension == "onnx") {
            models.push(path);
        }
    }
}

/// The bytes that hexadecimal digits stand for.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A container with so many weights of 300 elements behind handles, all of which a node uses.
pub fn container_of(weights: usize) -> Container {
    let tensors: Vec<_> = (0..weights).map(|i| floats(&format!("w{i}"), i, 300)).collect();
    let names: Vec<_> = (0..weights).map(|i| format!("w{i}")).collect();
    let inputs: Vec<_> = names.iter().map(String::as_str).collect();
    let mut container =
        Container::new(model(graph(tensors, vec![node("Sum", &inputs, &["y"], vec![])])));
    container.externalize(ExternalizeOptions::new().min_bytes(1024)).unwrap();
    container
}
