//! `report MODEL [OTHER] -o FILE`. What a browser makes of the page is tested in `report/tests/`.

use std::fs;

use serde_json::Value;

use crate::support::Folder;

/// The data of a page.
fn data(folder: &Folder, name: &str) -> Value {
    let page = fs::read_to_string(folder.path(name)).unwrap();
    let (_, data) = page.split_once("data-encoding=\"json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_has_what_other_commands_say() {
    let folder = Folder::packed();
    folder.run(&["report", "p.onnx", "-o", "r.html"]).done().says(&["wrote     r.html ("]);
    let page = data(&folder, "r.html");
    let inspected = folder.run(&["inspect", "p.onnx", "--json"]).done().json();
    for key in ["parameters", "totals", "dtypes", "operators", "inputs", "outputs", "opsets"] {
        assert_eq!(page["summary"][key], inspected[key], "{key}");
    }
    let qualified = |tensor: &Value| {
        let text = |key: &str| tensor[key].as_str().unwrap().to_owned();
        let scope = text("scope");
        if scope.is_empty() { text("name") } else { format!("{scope}/{}", text("name")) }
    };
    let names: Vec<_> = inspected["tensors"].as_array().unwrap().iter().map(qualified).collect();
    let shown: Vec<_> = page["tensors"]["name"].as_array().unwrap().iter().collect();
    assert_eq!(shown, names.iter().collect::<Vec<_>>());
    assert_eq!(page["files"][0]["location"], "p.onnx.data");
    assert_eq!(page["files"][0]["bytes"], fs::metadata(folder.path("p.onnx.data")).unwrap().len());
    assert_eq!(page["tree"]["t"], names.len());
    let checked = folder.run(&["check", "p.onnx", "--json"]).json();
    assert_eq!(page["findings"]["ok"], checked["ok"]);
    assert_eq!(
        page["findings"]["list"].as_array().unwrap().len(),
        checked["findings"].as_array().unwrap().len()
    );
    for part in ["stats", "plan", "differences"] {
        assert_eq!(page[part], Value::Null, "{part}");
    }
    // The same bytes again, wherever they are written.
    folder.run(&["report", "p.onnx", "-o", "again.html"]).done();
    assert_eq!(
        fs::read(folder.path("again.html")).unwrap(),
        fs::read(folder.path("r.html")).unwrap()
    );
}

#[test]
fn statistics_and_differences_are_there_when_they_are_asked_for() {
    let folder = Folder::packed();
    folder.run(&["edit", "p.onnx", "q.onnx", "--producer", "other"]).done();
    folder.run(&["report", "p.onnx", "q.onnx", "-o", "r.html", "--stats"]).done();
    let page = data(&folder, "r.html");
    assert_eq!(page["differences"]["other"], "q.onnx");
    assert_eq!(page["differences"]["found"]["same"], false);
    assert_eq!(page["differences"]["found"]["properties"][0]["what"], "producer");
    let stats = folder.run(&["stats", "p.onnx", "--json"]).done().json();
    let by_name = |name: &Value| {
        let all = stats["tensors"].as_array().unwrap().iter();
        all.clone().find(|tensor| tensor["name"] == *name).unwrap().clone()
    };
    let names = page["tensors"]["name"].as_array().unwrap();
    assert!(!names.is_empty());
    for (i, name) in names.iter().enumerate() {
        for key in ["min", "max", "mean", "std", "nan", "zeros", "all_equal"] {
            assert_eq!(page["stats"][key][i], by_name(name)[key], "{name} {key}");
        }
    }
}

#[test]
fn findings_are_those_of_both_models() {
    let folder = Folder::packed();
    let mut broken = crate::support::sums();
    broken.graph.as_mut().unwrap().node[1].input[0] = "gone".into();
    folder.save("broken.onnx", &broken);
    folder.run(&["report", "p.onnx", "broken.onnx", "-o", "r.html"]).done();
    let page = data(&folder, "r.html");
    let checked = folder.run(&["check", "broken.onnx", "--json"]).failed(&[]).json();
    let [own, other] = [&page["findings"], &page["differences"]["findings"]];
    assert_eq!((&own["ok"], &other["ok"]), (&true.into(), &false.into()));
    let reasons = |of: &Value, key: &str| {
        let all = of.as_array().unwrap().iter();
        all.map(|it| it[key].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&other["list"], "reason"), reasons(&checked["findings"], "reason"));
}

#[cfg(feature = "machine")]
#[test]
fn a_plan_is_that_of_the_command() {
    let folder = Folder::new();
    folder.save("m.onnx", &crate::support::sums());
    folder.run(&["report", "m.onnx", "-o", "r.html", "--plan", "--dim", "batch=2"]).done();
    let page = data(&folder, "r.html");
    let planned = folder.run(&["plan", "m.onnx", "--dim", "batch=2", "--json"]).done().json();
    assert_eq!(page["plan"]["arena_bytes"], planned["arena_bytes"]);
    assert_eq!(page["plan"]["sizes"][0], "batch=2");
    folder.run(&["report", "m.onnx", "-o", "r.html", "--plan"]).failed(&["batch"]);
    folder.run(&["report", "m.onnx", "-o", "r.html", "--dim", "batch=2"]).misused(&["--plan"]);
}

#[test]
fn only_a_report_is_replaced_unless_it_is_forced() {
    let folder = Folder::packed();
    fs::write(folder.path("notes.html"), "<!doctype html>\n<p>mine").unwrap();
    let report = ["report", "p.onnx", "-o", "notes.html"];
    let refused = folder.run(&report);
    refused.failed(&["notes.html", "is there and is not a report", "--force"]);
    assert_eq!(fs::read(folder.path("notes.html")).unwrap(), b"<!doctype html>\n<p>mine");
    folder.run(&[&report[..], &["--force"]].concat()).done();
    folder.run(&report).done();
    folder.run(&["report", "p.onnx", "-o", "p.onnx", "--force"]).failed(&["is not replaced"]);
    folder.run(&["report", "p.onnx", "-o", "p.onnx.data", "--force"]).failed(&["is not replaced"]);
    folder.run(&["report", "p.onnx", "-o", "no/r.html"]).failed(&["mkdir -p no"]);
    folder.run(&["report", "p.onnx", "-o", "."]).failed(&["a folder: give the name of the file"]);
    assert_eq!(folder.names(), ["notes.html", "p.onnx", "p.onnx.data"]);
}

/// Who may not read the page before may not read it after.
#[cfg(unix)]
#[test]
fn a_report_keeps_the_mode_of_the_one_that_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::packed();
    let report = ["report", "p.onnx", "-o", "r.html"];
    folder.run(&report).done();
    for mode in [0o600, 0o640] {
        fs::set_permissions(folder.path("r.html"), fs::Permissions::from_mode(mode)).unwrap();
        folder.run(&report).done();
        let now = folder.path("r.html").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(now, mode);
    }
}
