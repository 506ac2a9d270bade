//! `strip` and `attach_model` on containers.

use onnx_container::edit::{AttachOptions, ExternalizeOptions, FillOptions};
use onnx_container::external_data::{ExternalData, STRIPPED, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Container, ErrorKind, LoadOptions, MmapChoice, SaveOptions, traversal};

use crate::support::{floats, graph, int64s, model, node};

/// A large weight, a small one, and a shape that a Reshape reads; all in the model.
fn inline() -> ModelProto {
    let initializers = vec![floats("w", 0, 400), floats("small", 7, 2), int64s("shape", &[2; 200])];
    let nodes = vec![node("Reshape", &["w", "shape"], &["y"], vec![])];
    model(graph(initializers, nodes))
}

/// The names of the tensors that have no elements.
fn without_elements(container: &Container) -> Vec<String> {
    let is_stripped = |tensor: &TensorProto| {
        is_external(tensor) && ExternalData::parse(tensor).unwrap().location == STRIPPED
    };
    let all = traversal::iter(container.model());
    let stripped = all.filter(|(_, tensor)| is_stripped(tensor));
    stripped.map(|(place, tensor)| place.qualified_name(tensor)).collect()
}

#[test]
fn what_shape_inference_reads_keeps_its_elements_where_they_are_at_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut external = Container::new(inline());
    external.externalize(ExternalizeOptions::new().min_bytes(0).all_tensors(true)).unwrap();
    external.save(&path, SaveOptions::new().sync(false)).unwrap();

    let mut loaded = Container::load(&path, MmapChoice::never()).unwrap();
    let report = loaded.strip(1024).unwrap();
    assert_eq!((report.stripped, report.bytes, report.operands.len()), (2, 1608, 0));
    assert_eq!(without_elements(&loaded), ["w", "small"]);
    assert_eq!(loaded.tensor("shape").unwrap().as_slice::<i64>().unwrap(), [2; 200]);

    let mut structure = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let report = structure.strip(1024).unwrap();
    assert_eq!((report.stripped, report.operands), (3, vec!["shape".to_owned()]));

    let mut whole = Container::new(inline());
    let report = whole.strip(1024).unwrap();
    assert_eq!((report.stripped, report.kept[0].tensor.as_str()), (1, "shape"));
    assert_eq!(without_elements(&whole), ["w"]);
    for mut stripped in [loaded, structure, whole] {
        let before = stripped.model().clone();
        // The small tensors are of one model here, wherever they are stored.
        let attached = stripped.attach_model(&external, AttachOptions::new()).unwrap();
        assert!(attached.attached > 0 && !stripped.is_stripped());
        assert_eq!(stripped.digest().unwrap(), external.digest().unwrap());
        assert_eq!(before.graph.unwrap().node, stripped.model().graph.as_ref().unwrap().node);
    }
}

#[test]
fn a_stripped_model_is_saved_and_loaded_and_nothing_else_takes_it_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.onnx");
    let mut stripped = Container::new(inline());
    stripped.strip(1024).unwrap();
    let saved = stripped.save(&path, SaveOptions::new().sync(false)).unwrap();
    assert_eq!((saved.files.len(), saved.warnings.len()), (1, 0), "{:?}", saved.warnings);
    let mut again = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    assert!(again.is_stripped() && again.is_empty());
    for error in [
        Container::load(&path, MmapChoice::never()).unwrap_err(),
        again.check().unwrap_err(),
        again.digest().unwrap_err(),
        again.embed().unwrap_err(),
        again.tensor("w").unwrap_err(),
        again.attach(folder.path(), MmapChoice::never()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("weights of this model were stripped"), "{error}");
        assert_eq!(error.kind(), ErrorKind::MissingHandle, "{error}");
    }
    // Weights of any origin go in by name too.
    let weights = [("w".to_owned(), vec![1.0_f32; 400].into())];
    again.fill(weights, FillOptions::new()).unwrap();
    again.check().unwrap();
}

#[test]
fn a_change_of_a_stripped_model_drops_its_digests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = || SaveOptions::new().sync(false).digests(true).externalize(true);
    Container::new(inline()).save(&path, options()).unwrap();
    let structure = || Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let original = Container::load(&path, MmapChoice::never()).unwrap();
    for (change, compared) in [(false, 3), (true, 0)] {
        let mut stripped = structure();
        stripped.strip(1024).unwrap();
        if change {
            stripped.set_metadata("k", "v").unwrap();
        }
        let bare = folder.path().join("s.onnx");
        stripped.save(&bare, SaveOptions::new().sync(false)).unwrap();
        let mut bare = Container::load(&bare, LoadOptions::new().weights(false)).unwrap();
        let attached = bare.attach_model(&original, AttachOptions::new()).unwrap();
        assert_eq!(attached.digests.tensors, compared, "{change}");
    }
}

/// Digests are those of the weights that are put back, wherever shape operands are stored.
#[test]
fn digests_stay_where_shape_operands_are_external() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut external = Container::new(inline());
    external.externalize(ExternalizeOptions::new().min_bytes(0).all_tensors(true)).unwrap();
    external.save(&path, SaveOptions::new().sync(false).digests(true)).unwrap();
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    let mut stripped = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let report = stripped.strip_with(1024, &loaded).unwrap();
    assert_eq!((report.stripped, report.operands.len()), (2, 0));
    assert_eq!(stripped.tensor("shape").unwrap().as_slice::<i64>().unwrap(), [2; 200]);
    // Another checkpoint of the same form is refused.
    let mut other = external.clone();
    other.replace("w", vec![3.0_f32; 400], Default::default()).unwrap();
    let error = stripped.attach_model(&other, AttachOptions::new()).unwrap_err();
    assert!(error.has(ErrorKind::WrongDigest), "{error}");
    let attached = stripped.attach_model(&loaded, AttachOptions::new()).unwrap();
    assert_eq!(attached.digests.tensors, 3);
}

/// A small tensor that was edited is the model's own, whatever its digest was.
#[test]
fn tensors_that_were_edited_are_not_compared_with_digests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::new().sync(false).digests(true).externalize(true);
    Container::new(inline()).save(&path, options).unwrap();
    let original = Container::load(&path, MmapChoice::never()).unwrap();
    let mut stripped = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    stripped.strip(1024).unwrap();
    // As a tool does that keeps the metadata.
    let mut bytes = onnx_container::proto::Message::encode_to_vec(stripped.model()).unwrap();
    let old: Vec<u8> = [7.0_f32, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let at = bytes.windows(old.len()).position(|part| part == old).unwrap();
    bytes[at] ^= 1;
    let edited =
        || Container::load_bytes(bytes.clone(), LoadOptions::new().weights(false)).unwrap();
    assert!(edited().attach_model(&original, AttachOptions::new()).is_err());
    let report = edited().attach_model(&original, AttachOptions::new().edited(true)).unwrap();
    assert_eq!(report.differing, ["small"]);
}
