//! [`Container::cast`]: which weights are cast, and what the graph is afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::edit::{CastOptions, CastReport, NotCastReason};
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, TensorProto, ValueInfoProto,
};
use onnx_container::traversal::{self, Body};
use onnx_container::{Container, DataType, ErrorKind, Initializer, Result, Tensor, WeightSource};

use crate::support::{call, constant, floats, function, graph, int64s, model, model_of, node};

pub fn all() -> CastOptions {
    CastOptions::new().min_bytes(0)
}

/// Every node of the model as `op(inputs) -> outputs`, with its scope.
pub fn nodes(model: &ModelProto) -> Vec<String> {
    let mut found = Vec::new();
    let one = |node: &NodeProto| {
        let names = |list: &[onnx_container::proto::Str]| {
            list.iter()
                .map(|name| name.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(",")
        };
        let op = node.op_type.as_ref().unwrap();
        format!("{op}({}) {}", names(&node.input), names(&node.output))
    };
    traversal::graphs(model, |_, body: Body<'_>| {
        found.extend(body.nodes().iter().map(one));
        Ok(())
    })
    .unwrap();
    found
}

/// The tensors of the model by name, in graph order, with their types.
fn types(model: &ModelProto) -> Vec<(String, DataType)> {
    let tensor = |(place, tensor): (traversal::Place<'_>, &TensorProto)| {
        (place.name_of(tensor), DataType::try_from(tensor.data_type.unwrap()).unwrap())
    };
    traversal::iter(model).map(tensor).collect()
}

#[test]
fn every_weight_is_cast_and_turned_back() {
    let mut then =
        graph(vec![floats("inner", 0, 2)], vec![node("Add", &["inner", "w"], &["t"], vec![])]);
    then.output.push(ValueInfoProto::tensor("t", TensorProto::FLOAT, [2]));
    let branch = |name: &str| AttributeProto::graph(name, then.clone());
    let body = vec![constant("c", floats("", 0, 2)), node("Add", &["a", "c"], &["b"], vec![])];
    let mut main = graph(
        vec![
            floats("w", 0, 2),
            int64s("n", &[1, 2]),
            TensorProto::external("x", TensorProto::FLOAT, [2], "#x"),
        ],
        vec![
            constant("k", floats("", 4, 2)),
            node("If", &["cond"], &["y"], vec![branch("then_branch"), branch("else_branch")]),
            call("f", &["w"], &["z"], vec![]),
        ],
    );
    main.sparse_initializer.push(SparseTensorProto::new(floats("s", 1, 1), int64s("", &[1]), [4]));
    let mut container = Container::new(model_of(main, vec![function("f", &["a"], &["b"], body)]));
    container.insert("#x", ndarray::array![1.5_f32, -2.0]).unwrap();

    let report = container.cast(DataType::Bfloat16, all()).unwrap();
    assert_eq!((report.cast, report.bytes_before, report.bytes_after), (7, 52, 26));
    assert_eq!(report.uncast, []);
    let types = types(container.model());
    let of_type = |dtype| types.iter().filter(|(_, other)| *other == dtype).count();
    let (cast, integers) = (of_type(DataType::Bfloat16), of_type(DataType::Int64));
    assert_eq!((cast, integers, of_type(DataType::Float)), (7, 2, 0));
    assert_eq!(
        nodes(container.model()),
        [
            "Cast(w_bfloat16) w",
            "Cast(x_bfloat16) x",
            "Cast(s_bfloat16) s",
            "Constant() k_bfloat16",
            "Cast(k_bfloat16) k",
            "If(cond) y",
            "f(w) z",
            "Cast(inner_bfloat16) inner",
            "Add(inner,w) t",
            "Cast(inner_2_bfloat16) inner",
            "Add(inner,w) t",
            "Constant() c_bfloat16",
            "Cast(c_bfloat16) c",
            "Add(a,c) b",
        ]
    );
    let handles: Vec<_> = container.iter().map(|(handle, _)| handle.to_string()).collect();
    assert_eq!(handles, ["#x_bfloat16"]);
    container.check().unwrap();
}

#[test]
fn what_is_not_cast_is_listed_with_the_reason() {
    let mut main = graph(
        vec![
            floats("given", 0, 2),
            floats("scales", 1, 4),
            floats("w", 0, 2),
            floats("named", 0, 2),
            floats("refused", 0, 2),
            int64s("named too", &[1]),
        ],
        vec![
            node("Resize", &["x", "", "scales"], &["r"], vec![]),
            node(
                "ConstantOfShape",
                &["n"],
                &["o"],
                vec![AttributeProto::tensor("value", floats("one", 1, 1))],
            ),
        ],
    );
    main.input.push(ValueInfoProto::tensor("given", TensorProto::FLOAT, [2]));
    let mut container = Container::new(model(main));
    let options = all().except(["named", "named too"]);
    let options = options.choose(|place, tensor| place.name_of(tensor) != "refused");
    let report = container.cast(DataType::Float16, options).unwrap();
    let uncast: Vec<_> =
        report.uncast.iter().map(|one| (one.tensor.as_str(), one.reason)).collect();
    assert_eq!(report.cast, 1);
    assert_eq!(
        uncast,
        [
            ("given", NotCastReason::GraphInput),
            ("scales", NotCastReason::ShapeOperand),
            ("named", NotCastReason::Excepted),
            ("refused", NotCastReason::Excepted),
            ("one", NotCastReason::Attribute),
        ]
    );
}

#[test]
fn options_choose() {
    let weights = || vec![floats("a", 0, 2), floats("b", 0, 300), floats("c", 0, 300)];
    let chosen = |options: CastOptions, to: DataType| {
        let mut container = Container::new(model(graph(weights(), vec![])));
        container.cast(to, options).unwrap();
        let types = types(container.model()).into_iter();
        let cast = types.filter(|(_, dtype)| *dtype == to && to != DataType::Float);
        cast.map(|(name, _)| name.chars().next().unwrap()).collect::<String>()
    };
    let half = DataType::Float16;
    assert_eq!(chosen(CastOptions::new(), half), "bc");
    assert_eq!(chosen(all(), half), "abc");
    assert_eq!(chosen(all().except(["b", "nobody"]), half), "ac");
    assert_eq!(chosen(all().choose(|place, tensor| place.name_of(tensor) != "a"), half), "bc");
}

#[test]
fn what_is_not_valid_is_refused_and_nothing_changes() {
    let weight = || graph(vec![floats("w", 0, 2)], vec![]);
    let old = |version| {
        let mut model = model(weight());
        model.opset_import[0].version = Some(version);
        model
    };
    let mut broken = model(weight());
    broken.graph.as_mut().unwrap().initializer.push(TensorProto::new("x", TensorProto::FLOAT, [3]));
    let cases = [
        (model(weight()), DataType::Int8, Err(ErrorKind::DataType)),
        (old(5), DataType::Float16, Err(ErrorKind::Unsupported)),
        (old(6), DataType::Float16, Ok(1)),
        (old(12), DataType::Bfloat16, Err(ErrorKind::Unsupported)),
        (old(13), DataType::Bfloat16, Ok(1)),
        (broken, DataType::Float16, Err(ErrorKind::Shape)),
    ];
    for (model, to, expected) in cases {
        let before = model.encode_to_vec().unwrap();
        let mut container = Container::new(model);
        let cast: Result<CastReport> = container.cast(to, all());
        assert_eq!(cast.map(|cast| cast.cast).map_err(|e| e.kind()), expected, "{to}");
        let after = container.model().encode_to_vec().unwrap();
        assert_eq!(after == before, expected.is_err(), "{to}");
    }
}

/// FLOAT ones that count how often they are read.
struct Ones(Arc<AtomicUsize>);

impl WeightSource for Ones {
    fn dtype(&self) -> DataType {
        DataType::Float
    }
    fn dims(&self) -> &[i64] {
        &[1000]
    }
    fn byte_len(&self) -> u64 {
        4000
    }
    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        out.chunks_mut(4).for_each(|out| out.copy_from_slice(&1.0_f32.to_le_bytes()));
        Ok(())
    }
}

#[test]
fn nothing_is_converted_before_its_turn_and_tied_weights_stay_tied() {
    let reads = Arc::new(AtomicUsize::new(0));
    let weight = Initializer::from_source(Ones(reads.clone())).unwrap();
    let place = |name, handle| TensorProto::external(name, TensorProto::FLOAT, [1000], handle);
    let other = TensorProto::external("d", TensorProto::FLOAT, [10, 100], "#b");
    let places =
        vec![place("a", "#a"), place("b", "#b"), place("c", "#a"), other, place("kept", "#a")];
    let mut container = Container::new(model(graph(places, vec![])));
    container.insert("#a", weight.clone()).unwrap();
    container.insert("#b", weight).unwrap();
    let report = container.cast(DataType::Float16, all().except(["kept"])).unwrap();
    assert_eq!((report.cast, reads.load(Ordering::Relaxed)), (4, 0));
    container.check().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let saved = container.save(folder.path().join("m.onnx"), true).unwrap();
    // Once as FLOAT, for the one that is kept, and once as FLOAT16, aligned.
    assert_eq!(saved.files[0].bytes, 2048 + 4000);
    let cast = container.get("#a_float16").unwrap().to_tensor().unwrap();
    let ones = Tensor::new(DataType::Float16, [1000], [0, 0x3c].repeat(500 * 2).into()).unwrap();
    assert_eq!(cast, ones);
}

#[test]
fn a_cast_of_nothing_is_an_error_that_says_why() {
    let of = |tensors: Vec<TensorProto>| {
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("input", TensorProto::FLOAT, [300]));
        graph.initializer.extend(tensors);
        let mut model = ModelProto::new(graph);
        model.opset_import.push(OperatorSetIdProto::new("", 21));
        Container::new(model)
    };
    let inline = |name: &str, len| floats(name, 0, len);
    let bare = |location: &str| TensorProto::external("w", TensorProto::FLOAT, [2], location);
    let float16 = DataType::Float16;
    let (default, compute) = (CastOptions::new, || CastOptions::new().compute(true));
    let none =
        "nothing is cast to FLOAT16: no weights of FLOAT or BFLOAT16 have at least 1024 bytes";
    let cases: [(Vec<TensorProto>, DataType, CastOptions, &str); 8] = [
        (vec![], float16, default(), none),
        (vec![], float16, compute(), none),
        (vec![inline("small", 2)], float16, default(), none),
        (
            vec![inline("w", 300), inline("v", 300)],
            float16,
            default().except(["w", "v"]),
            "nothing is cast to FLOAT16: 2 weights of FLOAT or BFLOAT16 stay, such as `w`: excepted",
        ),
        (
            vec![inline("w", 300)],
            DataType::Float,
            default(),
            "nothing is cast to FLOAT: no weights of FLOAT16 or BFLOAT16 have at least 1024 bytes",
        ),
        (
            vec![inline("input", 300)],
            float16,
            default(),
            "nothing is cast to FLOAT16: 1 weight of FLOAT or BFLOAT16 stays, `input`: an input of the graph",
        ),
        // However small: it is not known what they are.
        (vec![bare("w.bin")], float16, default(), "was not loaded"),
        (vec![bare("#w")], float16, default(), "unresolved handle"),
    ];
    for (tensors, to, options, text) in cases {
        let mut container = of(tensors);
        let before = container.clone();
        let error = container.cast(to, options).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(container.model(), before.model(), "{text}");
    }
}

fn typed(name: &str, dtype: i32) -> ValueInfoProto {
    ValueInfoProto::tensor(name, dtype, [2])
}

fn with_io(mut graph: GraphProto, inputs: &[&str], outputs: &[&str]) -> GraphProto {
    graph.input.extend(inputs.iter().map(|name| typed(name, TensorProto::FLOAT)));
    graph.output.extend(outputs.iter().map(|name| typed(name, TensorProto::FLOAT)));
    graph
}

pub fn computing(graph: GraphProto, options: CastOptions) -> (Vec<String>, CastReport, ModelProto) {
    let mut container = Container::new(model(graph));
    let report = container.cast(DataType::Float16, options.compute(true)).unwrap();
    (nodes(container.model()), report, container.model().clone())
}

#[test]
fn a_graph_computes_in_the_new_type_and_each_form_of_a_value_is_made_once() {
    let weights = || vec![floats("w", 0, 2)];
    let to = |dtype: i32| vec![AttributeProto::int("to", i64::from(dtype))];
    let captures = || {
        let inner = vec![node("Mul", &["x", "w"], &["m"], vec![])];
        AttributeProto::graph("then_branch", with_io(graph(vec![], inner), &[], &["m"]))
    };
    let custom = |input: &str, output: &str| {
        let mut node = node("Mine", &[input], &[output], vec![]);
        node.domain = Some("mine".into());
        node
    };
    let cases: Vec<(&str, Vec<NodeProto>, CastOptions, &[&str])> = vec![
        (
            "a chain",
            vec![
                node("Add", &["x", "w"], &["a"], vec![]),
                node("Mul", &["a", "x"], &["y"], vec![]),
            ],
            all(),
            &[
                "Cast(x) x_float16",
                "Add(x_float16,w_float16) a_float16",
                "Mul(a_float16,x_float16) y_float16",
                "Cast(y_float16) y",
            ],
        ),
        (
            "declared types change",
            vec![
                node("Add", &["x", "w"], &["a"], vec![]),
                node("Mul", &["a", "x"], &["y"], vec![]),
            ],
            all().keep_io(false),
            &["Add(x,w_float16) a_float16", "Mul(a_float16,x) y"],
        ),
        (
            "an unknown operator between, and one that is kept",
            vec![
                node("Add", &["x", "w"], &["a"], vec![]),
                custom("w", "b"),
                custom("a", "c"),
                node("Mul", &["w", "w"], &["d"], vec![]),
                node("Sum", &["a", "b", "d"], &["y"], vec![]),
            ],
            all().keep_ops(["Mul"]).keep_io(false),
            &[
                "Add(x,w_float16) a_float16",
                "Cast(w_float16) w",
                "Mine(w) b",
                "Cast(a_float16) a",
                "Mine(a) c",
                "Mul(w,w) d",
                // The type of b follows from that of a: they share a variable.
                "Cast(b) b_float16",
                "Cast(d) d_float16",
                "Sum(a_float16,b_float16,d_float16) y",
            ],
        ),
        (
            "an input that is FLOAT in every version",
            vec![
                node("Add", &["x", "w"], &["a"], vec![]),
                node("Resize", &["a", "", "w"], &["y"], vec![]),
            ],
            all().except(["w"]),
            &[
                "Cast(x) x_float16",
                "Cast(w) w_float16",
                "Add(x_float16,w_float16) a_float16",
                "Resize(a_float16,,w) y_float16",
                "Cast(y_float16) y",
            ],
        ),
        (
            "casts, and what has no floating point",
            vec![
                node("Shape", &["x"], &["s"], vec![]),
                node("Cast", &["s"], &["f"], to(TensorProto::FLOAT)),
                node("Add", &["f", "w"], &["a"], vec![]),
                node("Shape", &["a"], &["t"], vec![]),
                node("ConstantOfShape", &["t"], &["z"], vec![]),
                node("Add", &["a", "z"], &["y"], vec![]),
            ],
            all(),
            &[
                "Shape(x) s",
                "Cast(s) f_float16",
                "Add(f_float16,w_float16) a_float16",
                "Shape(a_float16) t",
                "ConstantOfShape(t) z",
                "Cast(z) z_float16",
                "Add(a_float16,z_float16) y_float16",
                "Cast(y_float16) y",
            ],
        ),
        (
            "a body captures and gives what it gave",
            vec![
                node("If", &["cond"], &["i"], vec![captures()]),
                node("Neg", &["i"], &["y"], vec![]),
            ],
            all(),
            &[
                "Cast(x) x_float16",
                "If(cond) i",
                "Cast(i) i_float16",
                "Neg(i_float16) y_float16",
                "Cast(y_float16) y",
                "Mul(x_float16,w_float16) m_float16",
                "Cast(m_float16) m",
            ],
        ),
        (
            "types that nothing tells",
            vec![custom("x", "b"), node("Neg", &["b"], &["c"], vec![]), custom("c", "y")],
            all(),
            &["Mine(x) b", "Neg(b) c", "Mine(c) y"],
        ),
        (
            "an operator that does not take the type",
            vec![
                node("Add", &["x", "w"], &["a"], vec![]),
                node("Range", &["a", "a", "a"], &["y"], vec![]),
            ],
            all(),
            &[
                "Cast(x) x_float16",
                "Add(x_float16,w_float16) a_float16",
                "Cast(a_float16) a",
                "Range(a,a,a) y",
            ],
        ),
    ];
    for (name, given, options, expected) in cases {
        let graph = with_io(graph(weights(), given), &["x"], &["y"]);
        assert_eq!(computing(graph, options).0, expected, "{name}");
    }
}

#[test]
fn what_is_declared_of_values_stays_true() {
    let chain = || {
        let nodes = vec![
            node("Add", &["x", "w"], &["a"], vec![]),
            node("Softmax", &["a"], &["b"], vec![]),
            node("Neg", &["b"], &["y"], vec![]),
        ];
        let mut graph = with_io(graph(vec![floats("w", 0, 2)], nodes), &["x"], &["y"]);
        graph.value_info = ["a", "b"].map(|name| typed(name, TensorProto::FLOAT)).into();
        graph
    };
    let (float, half) = (TensorProto::FLOAT, TensorProto::FLOAT16);
    for (keep, io) in [(true, float), (false, half)] {
        let (_, report, model) = computing(chain(), all().keep_io(keep).keep_ops(["Softmax"]));
        let graph = model.graph.unwrap();
        assert_eq!((graph.input, graph.output), (vec![typed("x", io)], vec![typed("y", io)]));
        // The node that is kept needs a as it was, and makes b so.
        assert_eq!(graph.value_info, [typed("a", float), typed("b", float)]);
        assert_eq!((report.nodes, report.kept_nodes), (2, vec!["Softmax b".to_owned()]));
    }
    let graph = computing(chain(), all()).2.graph.unwrap();
    assert_eq!(graph.value_info, [typed("a_float16", half), typed("b_float16", half)]);
}

#[test]
fn bodies_of_functions_compute_as_they_did() {
    let body = vec![constant("c", floats("", 0, 2)), node("Add", &["a", "c"], &["b"], vec![])];
    let main = with_io(graph(vec![], vec![call("f", &["x"], &["y"], vec![])]), &["x"], &["y"]);
    let mut container = Container::new(model_of(main, vec![function("f", &["a"], &["b"], body)]));
    let report = container.cast(DataType::Float16, all().compute(true)).unwrap();
    assert_eq!((report.kept_nodes, report.calls), (vec!["f y".to_owned()], 1));
    let expected = ["f(x) y", "Constant() c_float16", "Cast(c_float16) c", "Add(a,c) b"];
    assert_eq!(nodes(container.model()), expected);
}

#[test]
fn a_model_that_imports_no_operator_set_is_refused_as_such() {
    for (imports, reason) in [
        (vec![], "the model imports no operator set for the domain `ai.onnx`"),
        (vec![("local", 1)], "the model imports no operator set for the domain `ai.onnx`"),
        (
            vec![("", 5)],
            "tensor `w`: operator set 5 has no Cast between float types: convert the model to 6 or \
             later",
        ),
    ] {
        let mut model = model(graph(vec![floats("w", 0, 2)], vec![]));
        model.opset_import =
            imports.into_iter().map(|(domain, n)| OperatorSetIdProto::new(domain, n)).collect();
        let error = Container::new(model).cast(DataType::Float16, all()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn the_reported_bytes_are_those_of_the_files() {
    let external = |name: &str, location: &str| {
        TensorProto::external(name, TensorProto::FLOAT, [512], location)
    };
    let values = || vec![1.5_f32; 512];
    let shared = || Initializer::from(Tensor::from_vec::<f32>([512], values()).unwrap());
    // Tied by one handle, tied by one buffer behind two handles, and not tied.
    type Insert = fn(&mut Container, Initializer);
    let cases: [(&str, Insert); 3] = [
        ("#a", |_, _| {}),
        ("#b", |container, tied| drop(container.insert("#b", tied).unwrap())),
        ("#b", |container, _| drop(container.insert("#b", vec![2.5_f32; 512]).unwrap())),
    ];
    for ((second, insert), weights) in cases.into_iter().zip([1, 1, 2]) {
        let main = graph(
            vec![external("a", "#a"), external("b", second)],
            vec![node("Add", &["a", "b"], &["y"], vec![])],
        );
        let mut container = Container::new(model(main));
        let initializer = shared();
        container.insert("#a", initializer.clone()).unwrap();
        insert(&mut container, initializer);
        let folder = tempfile::tempdir().unwrap();
        let before = container.save(folder.path().join("before.onnx"), true).unwrap();
        let report = container.cast(DataType::Float16, all()).unwrap();
        let after = container.save(folder.path().join("after.onnx"), true).unwrap();
        assert_eq!((before.files[0].bytes, after.files[0].bytes), (weights * 2048, weights * 1024));
        assert_eq!(
            (report.cast, report.bytes_before, report.bytes_after),
            (2, before.files[0].bytes, after.files[0].bytes)
        );
    }
}
