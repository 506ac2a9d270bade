//! Jobs that cast: the same options, rows and results as those of `cast`, in folders and stores.

use std::fs;

use onnx_container::DataType;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::job_places::places;
use crate::support::{Folder, weight};

/// `m.onnx`: y = x times `fc.weight`, plus `large`, whose numbers no FLOAT16 holds.
fn folder() -> Folder {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    graph.initializer = vec![weight("fc.weight", &[4, 400], 0.5), weight("large", &[400], 1e9)];
    graph.node = vec![
        NodeProto::new("MatMul", ["x", "fc.weight"], ["h"]),
        NodeProto::new("Add", ["h", "large"], ["y"]),
    ];
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float.number(), [3, 4]));
    graph.value_info.push(ValueInfoProto::tensor("h", DataType::Float.number(), [3, 400]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float.number(), [3, 400]));
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    folder.save("inline.onnx", &model);
    folder.run(&["pack", "inline.onnx", "m.onnx"]).done();
    fs::remove_file(folder.path("inline.onnx")).unwrap();
    folder
}

/// The options of a cast, and the weights that become infinite.
const CASES: [(&str, &[&str]); 6] = [
    ("", &["large"]),
    ("--keep-io", &["large"]),
    ("--except large", &["large"]),
    ("--keep-op Add", &["large"]),
    ("--keep-op Add --except large", &[]),
    ("--keep-op Add --keep-op MatMul --except large --keep-io", &[]),
];

#[test]
fn a_job_casts_as_cast_does() {
    let folder = folder();
    for (options, infinite) in CASES {
        folder.run(&words(&format!("cast m.onnx c.onnx --to float16 {options}"))).done();
        for place in places() {
            let run = |line: &str| place.run(&folder, line);
            let plan = "job rewrite m.onnx OUT --cast float16 --parts 2 -o m.job";
            assert_eq!(run(&format!("{plan} {options}")).code(), 0, "{options}");
            run("job write m.job --all").done();
            let committed = run("job commit m.job --json").done().json();
            assert_eq!(committed["infinite"], serde_json::json!(infinite), "{options}");
            let digests = ["c.onnx", "OUT"].map(|model| run(&format!("digest {model} --json")));
            let [cast, job] = digests.map(|run| run.done().json()["digest"].clone());
            assert_eq!(cast, job, "{options}");
        }
    }
}

#[test]
fn an_operator_that_no_node_is_of_is_refused() {
    let folder = folder();
    let before = folder.contents();
    for place in places() {
        for (options, said) in [
            ("--cast float16 --keep-op SoftMax", "--keep-op `SoftMax`: no node has this name"),
            ("--keep-op Add", "--cast"),
        ] {
            place.run(&folder, &format!("job rewrite m.onnx OUT {options}")).misused(&[said]);
        }
    }
    assert!(folder.contents() == before, "{:?}", folder.names());
}

/// `large` is converted by a node in the model, and so by each part.
#[test]
fn numbers_that_become_infinite_are_told_once_by_each_call() {
    let folder = folder();
    for place in places() {
        for options in ["", "--except large"] {
            let run = |line: &str| place.run(&folder, line);
            let plan =
                format!("job rewrite m.onnx OUT --cast float16 --parts 2 -o m.job {options}");
            assert_eq!(run(&plan).code(), 0);
            let told = |line: &str| run(&format!("{line} --json")).json()["infinite"].clone();
            assert_eq!(told("job status m.job"), serde_json::json!([]), "{options}");
            for part in ["0", "1"] {
                run(&format!("job write m.job {part}")).done();
            }
            for line in ["job status m.job", "job write m.job 0-1"] {
                assert_eq!(told(line), serde_json::json!(["large"]), "{line} {options}");
                let said = run(line).done().stdout();
                assert!(said.contains("infinite  1 tensor with numbers beyond"), "{said}");
                assert_eq!(said.matches("          large\n").count(), 1, "{said}");
            }
            let list = place.out().rsplit_once('/').map_or(".", |(folder, _)| folder);
            let listed = run(&format!("job list {list} --json")).done().json();
            let progress = &listed["jobs"][0]["progress"];
            assert_eq!(progress["infinite"], serde_json::json!(["large"]), "{listed}");
            assert_eq!(told("job commit m.job"), serde_json::json!(["large"]), "{options}");
        }
    }
}

/// The rows of what was cast and what was kept, with their lists.
fn rows(said: &str) -> Vec<String> {
    let labels = ["casts", "computes", "kept", "infinite"];
    let mut is_in = false;
    let kept = said.lines().filter(|line| {
        let label = line.split(' ').next().unwrap_or_default();
        is_in = if label.is_empty() { is_in } else { labels.contains(&label) };
        is_in
    });
    kept.map(str::to_owned).collect()
}

#[test]
fn a_plan_tells_of_its_cast_as_cast_does() {
    let folder = folder();
    let keys = [
        "to",
        "cast",
        "bytes_before",
        "bytes_after",
        "uncast",
        "nodes",
        "kept_nodes",
        "calls",
        "infinite",
    ];
    for (options, _) in CASES {
        let cast = format!("cast m.onnx c.onnx --to float16 --dry-run {options}");
        let expected = rows(&folder.run(&words(&cast)).done().stdout());
        assert!(expected.len() >= 2, "{expected:?}");
        let json = folder.run(&words(&format!("{cast} --json"))).done().json();
        for place in places() {
            let run = |line: &str| place.run(&folder, line);
            let plan = format!("job rewrite m.onnx OUT --cast float16 -o m.job {options}");
            assert_eq!(rows(&run(&plan).done().stdout()), expected, "{options}");
            run("job abort m.job").done();
            // The job goes to standard output there, and what a person reads to the other one.
            let piped = run(&plan.replace("-o m.job ", ""));
            let is_infinite = expected.iter().any(|row| row.starts_with("infinite"));
            assert_eq!(piped.stderr().contains("beyond the largest FLOAT16"), is_infinite);
            std::fs::write(folder.path("m.job"), piped.stdout()).unwrap();
            run("job abort m.job").done();
            let told = run(&format!("{plan} --json")).done().json()["cast"].clone();
            let told_keys = told.as_object().unwrap().len();
            assert_eq!(told_keys, keys.len(), "{told}");
            keys.iter().for_each(|key| assert_eq!(told[key], json[key], "{options}: {key}"));
            run("job abort m.job").done();
        }
    }
    let plan = folder.run(&words("job rewrite m.onnx o.onnx -o m.job --json")).done().json();
    assert_eq!(plan["cast"], serde_json::Value::Null, "{plan}");
    folder.run(&["job", "abort", "m.job"]).done();
    let plan = folder.run(&words("job rewrite m.onnx o.onnx -o m.job")).done().stdout();
    assert_eq!(rows(&plan), [""; 0]);
}

/// A dry run is asked for its lists; a plan is not.
#[test]
fn a_plan_has_the_first_lines_of_long_lists() {
    let folder = Folder::new();
    let names: Vec<_> = (0..8).map(|number| format!("w{number}")).collect();
    let mut graph = GraphProto::new("g");
    graph.initializer = names.iter().map(|name| weight(name, &[4, 400], 0.5)).collect();
    graph.node = vec![NodeProto::new("Sum", names.iter().map(String::as_str), ["y"])];
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float.number(), [4, 400]));
    folder.save("m.onnx", &ModelProto::new(graph).with_operator_set("", 17));
    let options: String = names.iter().map(|name| format!(" --except {name}")).collect();
    let cast = format!("cast m.onnx c.onnx --to float16 --dry-run{options}");
    let whole = folder.run(&words(&cast)).done().stdout();
    assert!(names.iter().all(|name| whole.contains(&format!("          {name}\n"))), "{whole}");
    for place in places() {
        let plan = format!("job rewrite m.onnx OUT --cast float16 -o m.job{options}");
        let said = place.run(&folder, &plan).done().stdout();
        let listed = names.iter().filter(|name| said.contains(&format!("          {name}\n")));
        assert!(listed.count() < names.len() && said.contains("more"), "{said}");
        place.run(&folder, "job abort m.job").done();
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
