//! docs/json.md: its tables list exactly the keys that the commands print, with the types that they
//! have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use onnx_container::proto::{
    ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use serde_json::Value;

use crate::inline;
#[cfg(feature = "machine")]
use crate::json_cases::RUNS;
use crate::json_cases::{CASES, COMPARISONS, MACHINE, PREPARATIONS, STORES};
use crate::signing;
use crate::store_server::Server;
use crate::support::{Folder, external, floats, model};

/// The page, without the carriage returns that a checkout may have.
fn page() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");
    fs::read_to_string(page).unwrap().replace('\r', "")
}

fn models(folder: &Folder) {
    signing::make_keys(folder);
    folder.save("m.onnx", &model());
    folder.save("tied.onnx", &external(&["data", "./data"]));
    fs::write(folder.path("data"), [0; 16]).unwrap();
    // Its version is there twice.
    let tied = fs::read(folder.path("tied.onnx")).unwrap();
    fs::write(folder.path("again.onnx"), [b"\x08\x07", &tied[..]].concat()).unwrap();
    let mut cut = external(&["cut", "../up", "away", "away"]);
    let graph = cut.graph.as_mut().unwrap();
    graph.initializer[3].external_data.clear();
    graph.initializer.push(TensorProto::new("bare", TensorProto::FLOAT, [4]));
    folder.save("cut.onnx", &cut);
    fs::write(folder.path("cut"), [0; 10]).unwrap();
    fs::write(folder.path("broken.onnx"), [0xff; 9]).unwrap();
    // An initializer that has the name of one in an inner graph, with its path.
    let mut twice = model();
    let initializers = &mut twice.graph.as_mut().unwrap().initializer;
    initializers.push(floats("z.then_branch/inner", 600));
    folder.save("twice.onnx", &twice);
    folder.save("resized.onnx", &crate::cast::resized());
    folder.save("functions.onnx", &functions());
    folder.save("part.onnx", &crate::parts::chain());
    folder.save("quantized.onnx", &crate::inspect::quantized());
    folder.save("changed.onnx", &changed());
    let mut other = functions();
    other.graph.as_mut().unwrap().node[0] = NodeProto::new("Neg", ["x"], ["p"]);
    folder.save("other.onnx", &other);
    tree(folder);
    // A job whose plan was killed.
    fs::create_dir(folder.path(".z.onnx.job-aB3xYz")).unwrap();
    #[cfg(feature = "machine")]
    runnable(folder);
}

/// A folder with two models of equal weights, and with all that is wrong with folders.
fn tree(folder: &Folder) {
    fs::create_dir_all(folder.path("tree/lost")).unwrap();
    for name in ["a", "b"] {
        folder.save(&format!("tree/{name}.onnx"), &external(&[&format!("{name}.data")]));
        fs::write(folder.path(&format!("tree/{name}.data")), [0; 16]).unwrap();
    }
    folder.save("tree/cut.onnx", &external(&["gone"]));
    let whole = fs::read(folder.path("tree/a.onnx")).unwrap();
    fs::write(folder.path("tree/half.onnx"), &whole[..whole.len() - 1]).unwrap();
    fs::hard_link(folder.path("tree/a.onnx"), folder.path("tree/same.onnx")).unwrap();
    for name in ["a.onnx.data", "lost/w.data", ".a.onnx.switching", "text.onnx"] {
        let bytes: &[u8] = if name == "text.onnx" { b"text" } else { &[0; 8] };
        fs::write(folder.path("tree").join(name), bytes).unwrap();
    }
    #[cfg(unix)]
    for (target, name) in [("a.onnx", "link.onnx"), ("gone", "dangling")] {
        std::os::unix::fs::symlink(target, folder.path("tree").join(name)).unwrap();
    }
}

/// The model `m.onnx`, in which something of every kind is other.
fn changed() -> ModelProto {
    let mut model = model();
    model.producer_name = Some("another".into());
    model.graph.as_mut().unwrap().doc_string = Some(Box::new("text".into()));
    model.metadata_props.push(StringStringEntryProto::new("author", "Ada"));
    let graph = model.graph.as_mut().unwrap();
    graph.node.push(NodeProto::new("Neg", ["x"], ["n"]));
    for tensor in &mut graph.initializer {
        if tensor.name.as_ref().is_some_and(|name| *name == "small") {
            tensor.name = Some("renamed".into());
        } else if tensor.name.as_ref().is_some_and(|name| *name == "w") {
            *tensor = floats("w", 1000);
            tensor.raw_data = Some(vec![1; 4000].into());
        }
    }
    graph.initializer.pop();
    graph.initializer.push(floats("new", 77));
    model
}

/// A model with a function that stays, and one that imports an operator set of its own.
fn functions() -> ModelProto {
    let mut model = inline::calls();
    model.producer_version = Some("1".into());
    let mut softmax = inline::function("old", vec![NodeProto::new("Softmax", ["a"], ["b"])]);
    softmax.opset_import[0].version = Some(12);
    model.functions.push(softmax);
    model.functions[0].opset_import.push(OperatorSetIdProto::new("ai.onnx.ml", 3));
    model.functions[0].node.push(NodeProto::new("Binarizer", ["a"], ["unused"]));
    model.functions[0].node[2].domain = Some("ai.onnx.ml".into());
    let nodes = &mut model.graph.as_mut().unwrap().node;
    nodes[3].input[0] = "s".into();
    nodes.insert(3, inline::call("old", "r", "s"));
    model
}

#[cfg(feature = "machine")]
fn runnable(folder: &Folder) {
    use onnx_container::DataType;
    use onnx_container::proto::{GraphProto, ValueInfoProto};

    folder.save("r.onnx", &crate::support::sums());
    let mut neg = crate::support::sums();
    neg.graph.as_mut().unwrap().node[1] = NodeProto::new("Neg", ["x"], ["z"]);
    folder.save("neg.onnx", &neg);
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [4]));
    graph.input.push(ValueInfoProto::tensor("shape", DataType::Int64, [2]));
    graph.node.push(NodeProto::new("Neg", ["x"], ["a"]));
    graph.node.push(NodeProto::new("Abs", ["a"], ["b"]));
    graph.node.push(NodeProto::new("Reshape", ["b", "shape"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [-1, -1]));
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    folder.save("barrier.onnx", &model);
    fs::write(folder.path("blocks.csv"), "id,lower,upper,size\na,0,3,4\n").unwrap();
}

/// Keys of links and of free space, which are not looked at elsewhere.
const OF_UNIX: [&str; 4] = [
    "free_bytes",
    "scans[].dangling[].path",
    "scans[].dangling[].reason",
    "scans[].models[].link_to",
];

/// An object with the keys of `check`, of which the page has no rows.
const CHECKED: &str = "verified.check";

/// The command of a case.
fn command(case: &str) -> &str {
    let words =
        if ["trace diff", "job ", "stores "].iter().any(|it| case.starts_with(it)) { 2 } else { 1 };
    let end = case.match_indices(' ').nth(words - 1).map_or(case.len(), |(at, _)| at);
    &case[..end]
}

/// A row of a table: the key with its section, its type, and when it is null or absent.
#[derive(Clone)]
struct Row {
    place: (String, String),
    kind: String,
    gaps: String,
}

/// The rows of each command by their keys.
fn tables(page: &str) -> BTreeMap<String, BTreeMap<String, Row>> {
    let sections: Vec<_> =
        page.split("\n## ").skip(1).map(|s| s.split_once('\n').unwrap()).collect();
    let commands = |heading: &str| -> Vec<String> {
        heading.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let all: BTreeSet<_> = sections.iter().flat_map(|(heading, _)| commands(heading)).collect();
    let mut tables: BTreeMap<_, BTreeMap<String, Row>> = BTreeMap::new();
    for (heading, text) in sections {
        let mut of = commands(heading);
        let others = text.lines().filter(|line| line.starts_with("And by "));
        of.extend(others.flat_map(&commands));
        if heading == "Every object" {
            of.extend(all.iter().cloned());
        }
        assert!(!of.is_empty(), "{heading} names no command");
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, key, kind, gaps, _, _] = cells[..] else { panic!("not four cells: {line}") };
            let key = key.trim_matches('`');
            for command in &of {
                let (kind, gaps) = (kind.to_owned(), gaps.to_owned());
                let row = Row { place: (heading.to_owned(), key.to_owned()), kind, gaps };
                let before = tables.entry(command.clone()).or_default().insert(key.to_owned(), row);
                assert!(before.is_none(), "`{command}` has `{key}` twice");
            }
        }
    }
    let check = &tables["check"];
    let is_of_one = |key: &str| !["model", "folders"].iter().any(|all| key.starts_with(all));
    let found = check.iter().filter(|(key, row)| row.place.0 == "`check`" && is_of_one(key));
    let found: Vec<_> = found.map(|(key, row)| (key.clone(), row.clone())).collect();
    let errors = check.iter().filter(|(key, _)| key.starts_with("error") && *key != "errors");
    let errors: Vec<_> = errors.map(|(key, row)| (key.clone(), row.clone())).collect();
    let within = |place: &str, rows: &[(String, Row)]| -> Vec<_> {
        rows.iter().map(|(key, row)| (format!("{place}.{key}"), row.clone())).collect()
    };
    for table in tables.values_mut().filter(|table| table.contains_key(CHECKED)) {
        table.extend(within(CHECKED, &found));
    }
    let check = tables.get_mut("check").unwrap();
    for place in ["models[]", "folders[]"] {
        check.extend(within(place, &found).into_iter().chain(within(place, &errors)));
    }
    tables
}

/// The object that holds a key, as a path; empty for the whole.
fn parent(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Whether a value has the type that the first words of `kind` name.
fn has_type(value: &Value, kind: &str) -> bool {
    let (word, rest) = kind.split_once([' ', ',']).unwrap_or((kind, ""));
    let items = rest.strip_prefix("of ").map(|items| items.trim_end_matches('s'));
    match word {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "list" => value.as_array().is_some_and(|all| {
            all.iter().all(|item| items.is_none_or(|items| has_type(item, items)))
        }),
        "map" => value.as_object().is_some_and(|all| {
            all.values().all(|item| items.is_none_or(|items| has_type(item, items)))
        }),
        other => panic!("no type is called {other}"),
    }
}

/// What is printed in a case, compared with the table of its command.
struct Comparison<'t> {
    case: &'t str,
    table: &'t BTreeMap<String, Row>,
    /// The places of the keys that were printed with a value.
    shown: &'t mut BTreeSet<(String, String)>,
}

impl Comparison<'_> {
    /// Compares the object at `path`. The whole one may be `cut` short by a failure.
    fn object(&mut self, path: &str, object: &Value, cut: bool) {
        let (case, table) = (self.case, self.table);
        let object = object.as_object().unwrap();
        for (key, value) in object {
            let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let row = table.get(&key).unwrap_or_else(|| panic!("{case}: no row for `{key}`"));
            if value.is_null() {
                assert!(row.gaps.contains("null"), "{case}: `{key}` is null");
                continue;
            }
            self.shown.insert(row.place.clone());
            assert!(has_type(value, &row.kind), "{case}: `{key}` is {value}, no {}", row.kind);
            match value {
                Value::Object(_) if row.kind == "object" => self.object(&key, value, false),
                Value::Array(items) if row.kind == "list of objects" => {
                    // Errors are in errors.
                    let errors = key.strip_suffix(".errors").filter(|it| it.ends_with("error"));
                    let path = errors.map_or_else(|| format!("{key}[]"), str::to_owned);
                    let path = &path;
                    items.iter().for_each(|item| self.object(path, item, false));
                }
                _ => {}
            }
        }
        for (key, row) in table.iter().filter(|(key, _)| parent(key) == path) {
            let name = key.rsplit('.').next().unwrap();
            let may_lack = row.gaps.contains("absent") || cut;
            assert!(may_lack || object.contains_key(name), "{case}: `{key}` is absent");
        }
    }
}

#[test]
fn the_tables_have_every_key_and_no_other() {
    let folder = Folder::new();
    models(&folder);
    for preparation in PREPARATIONS {
        folder.run(&preparation.split(' ').collect::<Vec<_>>()).done();
    }
    let store = Server::of_examples(&folder, "p.onnx");
    let cases = CASES.iter().chain(&COMPARISONS).chain(&STORES);
    #[cfg(feature = "machine")]
    let cases = cases.chain(&RUNS);
    let tables = tables(&page());
    let (mut shown, mut done, mut failed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for case in cases {
        let command = command(case);
        let table = tables.get(command).unwrap_or_else(|| panic!("no table for `{command}`"));
        let args: Vec<_> = case.split(' ').chain(["--json"]).collect();
        let run = store.run(&folder, &args);
        let json = run.json();
        assert_eq!(json["command"], command, "{case}");
        let is_failure = json.get("error").is_some();
        if is_failure {
            failed.insert(command)
        } else {
            done.insert(command)
        };
        // These tell what they found beside the error, if the arguments and the model let them.
        let tells_all = ["check", "files"].contains(&command)
            && (json.get("model").is_some() || json.get("models").is_some());
        let cut = is_failure && !tells_all;
        if cut {
            let mut keys = json.as_object().unwrap().keys().map(String::as_str);
            let may = ["command", "error", "imported"];
            let may = if command == "import-safetensors" { &may[..] } else { &may[..2] };
            assert!(keys.all(|key| may.contains(&key)), "{case}: {json}");
        }
        Comparison { case, table, shown: &mut shown }.object("", &json, cut);
    }
    let here = |command: &&str| cfg!(feature = "machine") || !MACHINE.contains(command);
    let commands: BTreeSet<_> = tables.keys().map(String::as_str).filter(here).collect();
    assert_eq!((&done, &failed), (&commands, &commands), "each has to succeed and to fail once");
    let rows = commands.iter().flat_map(|command| tables[*command].values());
    let is_here = |(_, key): &(String, String)| cfg!(unix) || !OF_UNIX.contains(&key.as_str());
    let places = rows.map(|row| &row.place).filter(|place| is_here(place));
    let missing: BTreeSet<_> = places.filter(|place| !shown.contains(*place)).collect();
    assert!(missing.is_empty(), "no case prints these: {missing:#?}");
}

#[test]
fn arguments_of_no_command_are_a_failure_without_its_name() {
    let folder = Folder::new();
    let json = folder.run(&["no-such-command", "--json"]).misused(&[]).json();
    let tables = tables(&page());
    let (case, shown) = ("no command", &mut BTreeSet::new());
    Comparison { case, table: &tables["pack"], shown }.object("", &json, true);
    assert!(json["command"].is_null(), "{json}");
}

#[test]
fn every_command_with_json_has_a_table() {
    let folder = Folder::new();
    let declared = onnx_container_cli::declaration();
    let names = declared.get_subcommands().map(|command| command.get_name());
    let tables = tables(&page());
    let mut count = 0;
    for name in names {
        let prints_json = folder.run(&[name, "--help"]).done().stdout().contains("--json");
        assert!(!prints_json || tables.contains_key(name), "`{name}` has no table");
        count += usize::from(prints_json);
    }
    assert!(count >= 28, "{count}");
}
