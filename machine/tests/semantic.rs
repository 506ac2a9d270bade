//! Models of one semantic digest give the same, bit for bit: each operator of onnx in each version,
//! as it is and changed.
//!
//! The operators, their versions, inputs and defaults are those of the tables that
//! `scripts/make_opset.py` writes from onnx's schemas. What a node takes is found by trying.
//! `ONNX_CONTAINER_RANDOM_DIGESTS` says how many random models more there are; with it, versions
//! with the places and defaults of the one before are tried too, and all attributes of other
//! versions.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::collections::HashMap;

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};

use self::arities::ARITIES;
use self::defaults::{DEFAULTS, DefaultValue};
use self::row::Row;
use self::table::DOMAINS;

#[path = "../../src/graph/opset/arities.rs"]
#[allow(dead_code, reason = "part of the table")]
mod arities;
#[path = "../../src/graph/opset/defaults.rs"]
mod defaults;
#[path = "../../src/graph/opset/row.rs"]
mod row;
#[path = "../../src/graph/opset/table.rs"]
#[allow(dead_code, reason = "part of the table")]
mod table;

/// The last row for an operator that is no newer than `version`.
fn row<R: Row>(table: &[R], (domain, op, version): Key) -> Option<&R> {
    let is_of = |row: &&R| row.key().0 == domain && row.key().1 == op && row.key().2 <= version;
    table.iter().rfind(is_of)
}

/// Domain, operator, version.
type Key = (&'static str, &'static str, i64);

/// The inputs of all models: number `i` is always the same value.
fn pool() -> Vec<Value> {
    let floats = |dims: &[i64]| {
        let count = usize::try_from(dims.iter().product::<i64>()).unwrap();
        let all: Vec<f32> = (0..count).map(|i| [-1.5, 0.75, 2.0, 0.25, -0.5][i % 5]).collect();
        Value::from_elements(dims, &all).unwrap()
    };
    let ints = |dims: &[i64], all: &[i64]| Value::from_elements(dims, all).unwrap();
    vec![
        floats(&[2, 2]),
        floats(&[2]),
        floats(&[1, 2, 4, 4]),
        floats(&[]),
        ints(&[2], &[1, 2]),
        ints(&[1], &[1]),
        ints(&[], &[1]),
        Value::from_elements([2, 2], &[true, false, true, true]).unwrap(),
        Value::from_elements([], &[true]).unwrap(),
        Value::from_elements([2, 2], &[1_u8, 2, 3, 200]).unwrap(),
        floats(&[1, 1, 1]),
        floats(&[1, 3, 1]),
        floats(&[1, 4, 1]),
        floats(&[1, 4, 2, 2]),
        Value::from_elements([4], &[1.0_f32; 4]).unwrap(),
        ints(&[4], &[0, 1, 1, 0]),
        floats(&[6]),
    ]
}

fn body(inputs: &[(&str, DataType)], outputs: &[&str], nodes: Vec<NodeProto>) -> GraphProto {
    let mut graph = GraphProto::new("body");
    graph.input =
        inputs.iter().map(|(name, dtype)| ValueInfoProto::tensor(*name, *dtype, None)).collect();
    graph.output = outputs.iter().map(|name| untyped(name)).collect();
    graph.node = nodes;
    graph
}

fn untyped(name: &str) -> ValueInfoProto {
    let mut value = ValueInfoProto::default();
    value.name = Some(name.into());
    value
}

/// Attributes that a node needs, those of the first that is an operator's are used.
fn needed(op: &str) -> Vec<Vec<AttributeProto>> {
    let int = |name: &str, value: i64| AttributeProto::int(name, value);
    let ints = |name: &str, all: &[i64]| AttributeProto::ints(name, all);
    let text = |name: &str, text: &str| AttributeProto::string(name, text);
    let given = |names: &[&str], output: &str| {
        let one = TensorProto::new("", TensorProto::FLOAT, [2]).with_raw_data(vec![0; 8]);
        let mut node = NodeProto::new("Constant", Vec::<&str>::new(), [output]);
        node.attribute.push(AttributeProto::tensor("value", one));
        let inputs: Vec<_> = names.iter().map(|name| (*name, DataType::Float)).collect();
        body(&inputs, &[output], vec![node])
    };
    let looped = || {
        let inputs = [("i", DataType::Int64), ("go", DataType::Bool)];
        let nodes = vec![
            NodeProto::new("Identity", ["i"], ["each"]),
            NodeProto::new("Identity", ["go"], ["on"]),
        ];
        body(&inputs, &["on", "each"], nodes)
    };
    let passed = || {
        let nodes = vec![NodeProto::new("Neg", ["e"], ["n"])];
        body(&[("e", DataType::Float)], &["n"], nodes)
    };
    match op {
        "Cast" => vec![vec![int("to", 7)], vec![text("to", "INT64")]],
        "Concat" | "ConcatFromSequence" => vec![vec![int("axis", 0)]],
        "Constant" => {
            let one = TensorProto::new("", TensorProto::FLOAT, [2]).with_raw_data(vec![0; 8]);
            vec![vec![AttributeProto::tensor("value", one)]]
        }
        "Einsum" => vec![vec![text("equation", "ij->ji")], vec![text("equation", "ij,jk->ik")]],
        "LRN" => vec![vec![int("size", 3)]],
        "MaxPool" | "AveragePool" | "LpPool" => vec![vec![ints("kernel_shape", &[2, 2])]],
        "Conv" | "ConvTranspose" => vec![vec![], vec![ints("kernel_shape", &[4, 4])]],
        "Upsample" => vec![
            vec![],
            vec![AttributeProto::floats("scales", [1.0, 1.0, 2.0, 2.0])],
            vec![
                AttributeProto::float("height_scale", 2.0),
                AttributeProto::float("width_scale", 2.0),
            ],
        ],
        "Unsqueeze" => vec![vec![], vec![ints("axes", &[0])]],
        "DepthToSpace" | "SpaceToDepth" => vec![vec![int("blocksize", 2)]],
        "Pad" => {
            vec![vec![], vec![ints("pads", &[0, 1, 1, 0])], vec![ints("paddings", &[0, 1, 1, 0])]]
        }
        "Slice" => vec![vec![], vec![ints("starts", &[0]), ints("ends", &[1])]],
        "BitShift" => vec![vec![text("direction", "LEFT")]],
        "TopK" => vec![vec![], vec![int("k", 1)]],
        "Reshape" => vec![vec![], vec![ints("shape", &[4])]],
        "Tile" | "Expand" => vec![vec![]],
        "RNN" | "GRU" | "LSTM" => vec![vec![int("hidden_size", 1)]],
        "GroupNormalization" => vec![vec![int("num_groups", 1)]],
        "RandomNormal" | "RandomUniform" => vec![vec![ints("shape", &[2])]],
        "LabelEncoder" => vec![
            vec![ints("keys_int64s", &[1]), AttributeProto::floats("values_floats", [0.5])],
            vec![AttributeProto::strings("classes_strings", ["a", "b"])],
        ],
        "If" => vec![vec![
            AttributeProto::graph("then_branch", given(&[], "t")),
            AttributeProto::graph("else_branch", given(&[], "e")),
        ]],
        "Loop" => vec![vec![AttributeProto::graph("body", looped())]],
        "Scan" => vec![vec![AttributeProto::graph("body", passed()), int("num_scan_inputs", 1)]],
        "SequenceMap" => vec![vec![AttributeProto::graph("body", passed())]],
        _ => vec![vec![]],
    }
}

/// A node, and where it stands.
#[derive(Clone)]
struct Candidate {
    key: Key,
    /// For each input its number in the pool; `None` is an empty name.
    inputs: Vec<Option<usize>>,
    outputs: Vec<bool>,
    attributes: Vec<AttributeProto>,
    place: usize,
}

/// Main graph, function, branch.
const PLACES: usize = 3;

impl Candidate {
    fn said(&self) -> String {
        let named = |is: &bool| u8::from(*is);
        format!(
            "{:?} of {:?} to {:?} with {:?} at {}",
            self.key,
            self.inputs,
            self.outputs.iter().map(named).collect::<Vec<_>>(),
            self.attributes.iter().map(|a| (a.name.as_ref(), a.i, a.f)).collect::<Vec<_>>(),
            self.place
        )
    }

    fn model(&self, pool: &[Value]) -> ModelProto {
        let (domain, op, version) = self.key;
        let name = |i: usize, is: bool, letter: &str| {
            if is { format!("{letter}{i}") } else { String::new() }
        };
        let all = |is: Vec<bool>, letter: &str| -> Vec<String> {
            is.iter().enumerate().map(|(i, is)| name(i, *is, letter)).collect()
        };
        let ins = all(self.inputs.iter().map(Option::is_some).collect(), "x");
        let outs = all(self.outputs.clone(), "y");
        let named = |all: &[String]| {
            all.iter().filter(|name| !name.is_empty()).cloned().collect::<Vec<_>>()
        };
        let mut node =
            NodeProto::new(op, ins.iter().map(String::as_str), outs.iter().map(String::as_str));
        node.domain = Some(domain.into());
        node.attribute.clone_from(&self.attributes);
        let (values, results) = (named(&ins), named(&outs));
        let mut graph = GraphProto::new("g");
        let inputs =
            self.inputs.iter().zip(&ins).filter_map(|(input, name)| Some(((*input)?, name)));
        for (input, name) in inputs {
            let tensor = pool[input].tensor().unwrap();
            let dims = tensor.shape().into_iter().map(|dim| i64::try_from(dim).unwrap().into());
            let dims: Vec<_> = dims.collect();
            graph.input.push(ValueInfoProto::tensor_with(name.as_str(), tensor.dtype(), dims));
        }
        graph.output = results.iter().map(|name| untyped(name)).collect();
        let imports = vec![OperatorSetIdProto::new(domain, version)];
        let mut functions = Vec::new();
        graph.node = match self.place {
            0 => vec![node],
            1 => {
                let mut function = FunctionProto::new("local", "f");
                function.input = values.iter().map(|name| name.as_str().into()).collect();
                function.output = results.iter().map(|name| name.as_str().into()).collect();
                function.node = vec![node];
                function.opset_import.clone_from(&imports);
                functions.push(function);
                let texts = |all: &[String]| all.iter().map(|name| name.clone().into()).collect();
                let mut call = NodeProto::default();
                (call.op_type, call.domain) = (Some("f".into()), Some("local".into()));
                (call.input, call.output) = (texts(&values), texts(&results));
                vec![call]
            }
            _ => {
                graph.input.push(ValueInfoProto::tensor("go", DataType::Bool, []));
                let branch = |prefix: &str| {
                    let mut own = node.clone();
                    let renamed = |name: &String| match name.as_str() {
                        "" => String::new(),
                        name => format!("{prefix}{name}"),
                    };
                    own.output = outs.iter().map(|name| renamed(name).into()).collect();
                    let results: Vec<_> = results.iter().map(renamed).collect();
                    let results: Vec<_> = results.iter().map(String::as_str).collect();
                    body(&[], &results, vec![own])
                };
                let mut chosen = NodeProto::new("If", ["go"], results.iter().map(String::as_str));
                chosen.attribute = vec![
                    AttributeProto::graph("then_branch", branch("t")),
                    AttributeProto::graph("else_branch", branch("e")),
                ];
                vec![chosen]
            }
        };
        let mut model = ModelProto::new(graph);
        model.opset_import = imports;
        if self.place == 2 && !domain.is_empty() {
            model.opset_import.push(OperatorSetIdProto::new("", 13));
        }
        model.opset_import.push(OperatorSetIdProto::new("local", 1));
        model.functions = functions;
        model
    }

    /// What the model gives; `None` if it does not run.
    fn run(&self, model: ModelProto, pool: &[Value]) -> Option<Vec<Value>> {
        let program = Program::new(&Container::new(model), ProgramOptions::new()).ok()?;
        let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
        for (i, input) in self.inputs.iter().enumerate() {
            if let Some(input) = input {
                machine.bind(&format!("x{i}"), pool[*input].clone()).ok()?;
            }
        }
        if self.place == 2 {
            machine.bind("go", Value::from_elements([], &[true]).unwrap()).ok()?;
        }
        Some(machine.run().ok()?.into_iter().map(|(_, value)| value).collect())
    }
}

/// Nodes that run, as `finds_nodes` found them by trying: domain, operator, version, which of the
/// attributes that it needs, numbers of the inputs.
const FOUND: &str = include_str!("data/nodes_that_run.txt");

fn found() -> Vec<Candidate> {
    let line = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let [domain, op, version, needs, inputs] = fields[..] else { panic!("{line}") };
        let (domain, op) = named(domain.trim_matches('"'), op);
        let inputs = inputs.split(',').filter(|input| !input.is_empty());
        Candidate {
            key: (domain, op, version.parse().unwrap()),
            inputs: inputs.map(|input| Some(input.parse().unwrap())).collect(),
            outputs: vec![true],
            attributes: needed(op).remove(needs.parse().unwrap()),
            place: 0,
        }
    };
    FOUND.lines().map(line).collect()
}

/// The names as the table has them.
fn named(domain: &str, op: &str) -> (&'static str, &'static str) {
    let domain = DOMAINS.iter().find(|one| one.name == domain).unwrap();
    (domain.name, domain.operators.iter().find(|(name, _)| *name == op).unwrap().0)
}

/// A node of `key` that runs, with inputs that are found by trying, and which of the needed
/// attributes it has.
fn tried(key: Key, pool: &[Value]) -> Option<(usize, Candidate)> {
    let arity = row(ARITIES, key)?;
    // A list counts as one.
    let most =
        arity.inputs.bytes().filter(|code| matches!(code, b'r' | b'o' | b'*')).count().min(5);
    let starts = if most == 0 { vec![None] } else { (0..pool.len()).map(Some).collect() };
    for (needs, attributes) in needed(key.1).into_iter().enumerate() {
        for len in most.min(1)..=most {
            for &first in &starts {
                for second in if len > 1 { 0..pool.len() } else { 0..1 } {
                    let mut inputs = vec![Some(second); len];
                    inputs.first_mut().into_iter().for_each(|input| *input = first);
                    let (outputs, attributes) = (vec![true], attributes.clone());
                    let candidate = Candidate { key, inputs, outputs, attributes, place: 0 };
                    if candidate.run(candidate.model(pool), pool).is_some() {
                        return Some((needs, candidate));
                    }
                }
            }
        }
    }
    None
}

/// Writes the nodes that `FOUND` has. It takes minutes, and is needed where the tables have other
/// operators.
#[test]
#[ignore = "writes machine/tests/data/nodes_that_run.txt"]
fn finds_nodes() {
    let pool = pool();
    let mut lines = String::new();
    for domain in DOMAINS {
        for (op, versions) in domain.operators.iter().filter(|(op, _)| !draws(op)) {
            let mut last: Option<(usize, Candidate)> = None;
            for version in versions.iter().rev() {
                let key = (domain.name, *op, *version);
                let known = last.clone().map(|(needs, known)| (needs, Candidate { key, ..known }));
                let known =
                    known.filter(|(_, known)| known.run(known.model(&pool), &pool).is_some());
                let Some((needs, node)) = known.or_else(|| tried(key, &pool)) else { continue };
                let inputs: Vec<_> = node.inputs.iter().flatten().map(usize::to_string).collect();
                let inputs = inputs.join(",");
                lines += &format!("\"{}\" {op} {version} {needs} {inputs}\n", domain.name);
                last = Some((needs, node));
            }
        }
    }
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nodes_that_run.txt");
    std::fs::write(place, lines).unwrap();
}

fn attribute(name: &str, value: DefaultValue) -> AttributeProto {
    match value {
        DefaultValue::Float(bits) => AttributeProto::float(name, f32::from_bits(bits)),
        DefaultValue::Int(value) => AttributeProto::int(name, value),
        DefaultValue::Ints(values) => AttributeProto::ints(name, values),
        DefaultValue::String(text) => AttributeProto::string(name, text),
        DefaultValue::Strings(texts) => AttributeProto::strings(name, texts),
        DefaultValue::ZeroTensor => {
            let zero = TensorProto::new("", TensorProto::FLOAT, [1]).with_raw_data(vec![0; 4]);
            AttributeProto::tensor(name, zero)
        }
    }
}

/// A value that is not the default, where there is a simple one.
fn another(value: DefaultValue) -> Option<DefaultValue> {
    match value {
        DefaultValue::Float(bits) => {
            Some(DefaultValue::Float((f32::from_bits(bits) + 0.5).to_bits()))
        }
        DefaultValue::Int(value) => Some(DefaultValue::Int(if value == 0 { 1 } else { 0 })),
        _ => None,
    }
}

/// The defaults of every version of an operator, and lists of what a window is without them.
fn attributes_of((domain, op, _): Key) -> Vec<AttributeProto> {
    let rows = DEFAULTS.iter().filter(|row| row.key().0 == domain && row.key().1 == op);
    let values = rows.flat_map(|row| row.attributes);
    let mut all = Vec::new();
    for (name, value) in values {
        all.push(attribute(name, *value));
        all.extend(another(*value).map(|value| attribute(name, value)));
    }
    if op.ends_with("Pool") || op.contains("Conv") {
        all.push(AttributeProto::ints("strides", [1, 1]));
        all.push(AttributeProto::ints("dilations", [1, 1]));
        all.push(AttributeProto::ints("pads", [0, 0, 0, 0]));
        all.push(AttributeProto::ints("output_shape", [4, 4]));
        all.push(AttributeProto::ints("kernel_shape", [4, 4]));
        all.push(AttributeProto::string("auto_pad", "SAME_UPPER"));
    }
    all
}

/// Whether `own` is the default of this version.
fn is_own(key: Key, own: &AttributeProto) -> bool {
    let attributes = row(DEFAULTS, key).into_iter().flat_map(|row| row.attributes);
    attributes.into_iter().any(|(name, value)| attribute(name, *value) == *own)
}

/// The changes of a node: each takes a number that says how.
const CHANGES: usize = 8;

/// Changes `candidate`; `attributes` and `versions` are those of its operator.
fn change(
    candidate: &mut Candidate,
    kind: usize,
    number: usize,
    attributes: &[AttributeProto],
    versions: &[i64],
) {
    match kind {
        0 => candidate.inputs.push(None),
        1 => candidate.outputs.push(false),
        2 => candidate.outputs.push(true),
        3 if candidate.inputs.len() > 1 => drop(candidate.inputs.pop()),
        4 if candidate.inputs.len() > 1 => {
            let last = candidate.inputs.len() - 1;
            candidate.inputs[1 + number % last] = None;
        }
        5 => candidate.key.2 = versions[number % versions.len()],
        6 => candidate.place = number % PLACES,
        _ => {
            let Some(one) = attributes.get(number % attributes.len().max(1)) else { return };
            let known = candidate.attributes.iter().position(|own| own.name == one.name);
            match known {
                Some(known) => candidate.attributes[known] = one.clone(),
                None => candidate.attributes.push(one.clone()),
            }
        }
    }
}

/// What the first model of a digest gave, once another one has the same digest.
struct First {
    candidate: Candidate,
    result: Option<Option<Vec<Value>>>,
}

/// The models so far, by their digests.
#[derive(Default)]
struct Given {
    by_digest: HashMap<String, First>,
    models: usize,
    equal: usize,
    failed: Vec<String>,
}

impl Given {
    fn hold(&mut self, candidate: &Candidate, pool: &[Value]) {
        let model = candidate.model(pool);
        let Ok(digest) = Container::new(model.clone()).semantic_digest() else { return };
        self.models += 1;
        let Some(first) = self.by_digest.get_mut(&digest.to_string()) else {
            let first = First { candidate: candidate.clone(), result: None };
            self.by_digest.insert(digest.to_string(), first);
            return;
        };
        self.equal += 1;
        let First { candidate: other, result: expected } = first;
        let expected = expected.get_or_insert_with(|| other.run(other.model(pool), pool));
        let result = candidate.run(model, pool);
        // A node that lacks an output which its operator has to give is refused, and computes
        // nothing.
        let both_run = expected.is_some() && result.is_some();
        if both_run && *expected != result {
            let (other, said) = (other.said(), candidate.said());
            self.failed.push(format!("{other}\n    {expected:?}\n{said}\n    {result:?}"));
        }
    }

    fn end(&self, least: usize) {
        println!("{} models, {} equal to one before", self.models, self.equal);
        assert!(self.failed.is_empty(), "{}:\n{}", self.failed.len(), self.failed.join("\n"));
        assert!(self.equal >= least, "{} of {}", self.equal, self.models);
    }
}

/// Whether it may give something else each time.
fn draws(op: &str) -> bool {
    op.starts_with("Random") || ["Bernoulli", "Multinomial", "Dropout"].contains(&op)
}

/// Each operator with its versions, and a node of it for each version that has one that runs.
fn bases() -> Vec<(&'static [i64], Vec<Candidate>)> {
    let found = found();
    let by_operator = found.chunk_by(|a, b| a.key.0 == b.key.0 && a.key.1 == b.key.1);
    let each = by_operator.map(|nodes| {
        let (domain, op, _) = nodes[0].key;
        let domain = DOMAINS.iter().find(|one| one.name == domain).unwrap();
        let place = domain.operators.binary_search_by_key(&op, |(name, _)| name).unwrap();
        (domain.operators[place].1, nodes.to_vec())
    });
    each.collect()
}

#[test]
fn equal_digests_are_equal_results() {
    let pool = pool();
    let bases = bases();
    let nodes: usize = bases.iter().map(|(_, found)| found.len()).sum();
    println!("{} operators in {nodes} versions", bases.len());
    let (mut given, mut skipped) = (Given::default(), 0);
    let all = std::env::var_os("ONNX_CONTAINER_RANDOM_DIGESTS").is_some();
    for (versions, found) in &bases {
        let attributes = attributes_of(found[0].key);
        let newest = found[0].key;
        let changed = |base: &&Candidate| {
            let since = |row: Option<i64>| row == Some(base.key.2);
            all || base.key == newest
                || since(row(DEFAULTS, base.key).map(|row| row.since))
                || since(row(ARITIES, base.key).map(|row| row.since))
        };
        // The versions in which defaults or places changed, and the newest.
        for base in found.iter().filter(changed) {
            given.hold(base, &pool);
            for kind in 0..CHANGES {
                let numbers = match kind {
                    4 => base.inputs.len().saturating_sub(1),
                    5 => 0,
                    6 => PLACES,
                    7 => attributes.len(),
                    _ => 1,
                };
                for number in 0..numbers {
                    // Attributes that are defaults of this version each time, of the others some.
                    let own = kind != 7 || is_own(base.key, &attributes[number]);
                    skipped += usize::from(!own);
                    if !own && !all && skipped % 8 != 0 {
                        continue;
                    }
                    let mut changed = base.clone();
                    change(&mut changed, kind, number, &attributes, versions);
                    given.hold(&changed, &pool);
                }
            }
            // Lists of two and three outputs, with and without empty ones.
            for names in
                [&[true, true][..], &[true, true, false], &[true, false], &[true, true, true]]
            {
                given.hold(&Candidate { outputs: names.to_vec(), ..base.clone() }, &pool);
            }
        }
    }
    given.end(1_000);
    assert!(bases.len() > 120 && nodes > 350, "{} operators, {nodes} versions", bases.len());
}

#[test]
fn equal_digests_of_random_models_are_equal_results() {
    let count = std::env::var("ONNX_CONTAINER_RANDOM_DIGESTS").ok();
    let count: usize = count.map_or(500, |count| count.parse().unwrap());
    let pool = pool();
    let bases = bases();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    let mut given = Given::default();
    // Several changes of one node after the other, so that many models are equal to one before.
    while given.models < count {
        let (versions, found) = &bases[random(bases.len())];
        let base = &found[random(found.len())];
        let attributes = attributes_of(base.key);
        given.hold(base, &pool);
        for _ in 0..8 {
            let mut changed = base.clone();
            for _ in 0..=random(3) {
                change(&mut changed, random(CHANGES), random(1 << 20), &attributes, versions);
            }
            given.hold(&changed, &pool);
        }
    }
    given.end(count / 20);
}
