//! Reports, errors and digests as JSON, by `serde::Serialize`.

use std::fs;

use onnx_container::check::{CheckOptions, check_model};
use onnx_container::edit::{AttachOptions, CastOptions, ExternalizeOptions, FillOptions};
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::model_files::{FileOptions, share_weights};
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use onnx_container::recovery::recover;
use onnx_container::safetensors::ExportOptions;
use onnx_container::{Container, DataType, MmapChoice, SaveOptions, Tensor, WeightFiles};
use serde_json::{Value, json, to_value};

/// `y = x + w` with `w` behind a handle.
fn container() -> Container {
    let mut graph = GraphProto::new("g");
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    let mut container = Container::new(ModelProto::new(graph).with_operator_set("", 21));
    container.insert("#w", ndarray::array![1.0_f32, 2.0]).unwrap();
    container
}

/// The same without the node that uses `w`.
fn unused() -> Container {
    let mut container = container();
    container.model_mut().graph.as_mut().unwrap().node.clear();
    container
}

/// The keys of an object, in their order.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_save_is_told_with_times_in_seconds_and_paths_as_texts() {
    let folder = tempfile::tempdir().unwrap();
    let options = SaveOptions::from(WeightFiles::Packed).sync(false).dedup(true);
    let path = folder.path().join("m.onnx");
    container().save(&path, WeightFiles::PerTensor).unwrap();
    let saved = to_value(container().save(&path, options).unwrap()).unwrap();
    assert_eq!(saved["files"][0], json!({ "name": "m.onnx.data", "bytes": 8 }));
    assert_eq!(saved["left_behind"], json!([folder.path().join("m-w.weight").to_str().unwrap()]));
    assert_eq!(
        saved["deduplicated"],
        json!({ "tensors": 0, "bytes": 0, "lazy": 0, "overlapping": 0 })
    );
    assert!(saved["statistics"]["writing_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(saved["statistics"]["copied_bytes"], 8);
    assert_eq!((&saved["unused"], &saved["warnings"]), (&json!([]), &json!([])));
    assert_eq!(saved.get("model"), None);
}

#[test]
fn edits_are_told_as_they_are_declared() {
    let mut model = container();
    let weights = Tensor::new(DataType::Float, [2], vec![0_u8; 8].into()).unwrap();
    let options = FillOptions::new().ignore("v");
    let filled =
        to_value(model.fill([("w".to_owned(), weights.into())], options).unwrap()).unwrap();
    assert_eq!((&filled["filled"], &filled["bytes"]), (&json!(1), &json!(8)));
    assert_eq!(filled["idle_rules"], json!(["ignore \"v\""]));
    let cast = model.cast(DataType::Float16, CastOptions::new().min_bytes(0)).unwrap();
    assert_eq!(to_value(cast).unwrap()["bytes_after"], 4);

    let mut graph = GraphProto::new("g");
    let shape = TensorProto::new("s", TensorProto::INT64, [2]).with_raw_data(vec![1_u8; 16]);
    graph.initializer.push(shape);
    graph.node.push(NodeProto::new("Reshape", ["x", "s"], ["y"]));
    let mut model = Container::new(ModelProto::new(graph).with_operator_set("", 21));
    let moved = model.externalize(ExternalizeOptions::new().min_bytes(16)).unwrap();
    assert_eq!(
        to_value(moved).unwrap(),
        json!({ "moved": 0, "moved_bytes": 0, "kept": [
            { "tensor": "s", "bytes": 16, "reason": "read by shape inference" },
        ] })
    );
    let deleted = unused().delete_initializer("w").unwrap();
    assert_eq!(to_value(deleted).unwrap(), json!({ "tensor": "w", "handle": "#w", "uses": 0 }));
    let inlined = inline_functions(&mut container().model().clone(), InlineOptions::new()).unwrap();
    assert_eq!(keys(&to_value(inlined).unwrap()).len(), 5);
}

#[test]
fn what_is_stripped_attached_and_shared_is_told() {
    let mut model = container();
    let stripped = to_value(model.strip(ExternalizeOptions::new()).unwrap()).unwrap();
    assert_eq!(
        stripped,
        json!({ "stripped": 1, "bytes": 8, "small": 0, "small_bytes": 0, "kept": [], "operands": [] })
    );
    let attached = model.attach_model(&container(), AttachOptions::new()).unwrap();
    let digests = json!({ "tensors": 0, "model": false, "files": 0 });
    assert_eq!(
        to_value(attached).unwrap(),
        json!({ "attached": 1, "bytes": 8, "differing": [], "unused": [], "digests": digests })
    );
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.onnx", "b.onnx"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| drop(container().save(path, true).unwrap()));
    let shared = to_value(share_weights(&paths, None, FileOptions::new()).unwrap()).unwrap();
    assert_eq!(shared["files"][0], json!({ "name": "shared.onnx.data", "bytes": 8 }));
    let old = folder.path().join("a.onnx.data");
    assert_eq!((&shared["removed"], &shared["left_behind"][0]), (&json!([]), &json!(old.to_str())));
}

#[test]
fn findings_and_errors_have_the_same_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container().save(&path, true).unwrap();
    fs::remove_file(folder.path().join("m.onnx.data")).unwrap();
    let checked = to_value(check_model(&path, CheckOptions::new()).unwrap()).unwrap();
    let findings = checked["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["kind"] == "MissingFile").unwrap();
    assert_eq!(finding["severity"], "error");
    let error = Container::load(&path, MmapChoice::never()).unwrap_err();
    let error = to_value(error).unwrap();
    assert_eq!(keys(&error), ["errors", "kind", "message", "offset", "path", "tensor"]);
    assert!(error["message"].as_str().unwrap().contains("m.onnx.data"), "{error}");
    assert_eq!(to_value(recover(folder.path()).unwrap()).unwrap()["removed"], 0);
}

#[test]
fn digests_are_the_texts_that_are_parsed() {
    let digest = container().digest().unwrap();
    assert_eq!(to_value(&digest).unwrap(), json!(digest.to_string()));
    let tensor = &digest.tensors()[0];
    assert_eq!(to_value(tensor).unwrap(), json!({ "name": "w", "digest": tensor.to_string() }));
    let semantic = container().semantic_digest().unwrap();
    assert_eq!(to_value(&semantic).unwrap(), json!(semantic.to_string()));
    assert_eq!(to_value(DataType::Float8E4M3Fn).unwrap(), json!("FLOAT8E4M3FN"));
}

#[test]
fn an_export_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let exported = container().export_safetensors(&path, ExportOptions::new()).unwrap();
    let exported = to_value(exported).unwrap();
    assert_eq!((&exported["tensors"], &exported["tied"]), (&json!(1), &json!({})));
}

#[test]
fn a_scan_is_told_with_paths_as_texts_and_states_in_words() {
    let folder = tempfile::tempdir().unwrap();
    container().save(folder.path().join("m.onnx"), WeightFiles::Packed).unwrap();
    fs::write(folder.path().join("m.onnx_data"), [0; 8]).unwrap();
    let found = onnx_container::scan::scan(folder.path(), MmapChoice::never()).unwrap();
    let told = to_value(&found).unwrap();
    let at = |name: &str| json!(folder.path().join(name).to_str().unwrap());
    assert_eq!((&told["models"][0]["path"], &told["equal"]), (&at("m.onnx"), &Value::Null));
    assert_eq!(told["models"][0]["files"][0]["state"], "present");
    assert_eq!(told["models"][0]["link_to"], Value::Null);
    assert_eq!(
        (&told["orphans"][0]["path"], &told["orphans"][0]["certainty"]),
        (&at("m.onnx_data"), &json!("sure"))
    );
}
