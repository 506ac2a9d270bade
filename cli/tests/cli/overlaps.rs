//! No command writes tensors that overlap in part as many times their bytes.

use std::fs;

use onnx_container::proto::{
    GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};

use crate::support::Folder;

/// A model of 300 KB with tensors that begin a byte apart in a file of 1 MiB.
fn overlapping() -> Folder {
    let (folder, file, count) = (Folder::new(), 1 << 20, 600);
    let mut graph = GraphProto::new("g");
    for number in 0..count {
        let name = format!("w{number}");
        let len = file - count;
        let mut tensor = TensorProto::external(name, TensorProto::UINT8, [len], "w.bin");
        for (key, value) in [("offset", number), ("length", len)] {
            tensor.external_data.push(StringStringEntryProto::new(key, value.to_string()));
        }
        graph.initializer.push(tensor);
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    folder.save("m.onnx", &model);
    fs::write(folder.path("w.bin"), vec![1; usize::try_from(file).unwrap()]).unwrap();
    folder
}

#[test]
fn no_command_writes_overlapping_tensors_many_times_over() {
    let folder = overlapping();
    let before = folder.contents();
    for args in [
        &["pack", "m.onnx", "o.onnx"][..],
        &["pack", "m.onnx", "o.onnx", "--dry-run"],
        &["pack", "m.onnx", "o.onnx", "--checksums"],
        &["pack", "m.onnx", "o.onnx", "--dry-run", "--checksums"],
        &["pack", "m.onnx", "o.onnx", "--digests"],
        &["pack", "m.onnx", "o.onnx", "--dedup"],
        &["pack", "m.onnx", "o.onnx", "--max-shard-size", "100K"],
        &["pack", "m.onnx", "o.onnx", "--safetensors"],
        &["split", "m.onnx", "o.onnx"],
        &["embed", "m.onnx", "o.onnx"],
        &["inline-functions", "m.onnx", "o.onnx", "--align", "64"],
        &["export-safetensors", "m.onnx", "o.safetensors"],
        &["export-safetensors", "m.onnx", "o.safetensors", "--max-shard-size", "100K"],
    ] {
        folder.run(args).failed(&["tensors overlap in part", "629 MB"]);
        assert!(folder.contents() == before, "{args:?}: {:?}", folder.names());
    }
    let names: Vec<_> = (0..600).map(|number| format!("w{number}\n")).collect();
    fs::write(folder.path("names"), names.concat()).unwrap();
    let before = folder.contents();
    for format in ["raw", "npy", "pb"] {
        let args = ["extract", "m.onnx", "--names-from", "names", "--format", format, "-o", "o/"];
        folder.run(&args).failed(&["tensors overlap", "629 MB", "fewer names"]);
        assert!(folder.contents() == before, "{format}: {:?}", folder.names());
    }
}

#[test]
fn an_alignment_does_not_make_a_small_model_long() {
    let folder = Folder::with_model();
    let before = folder.contents();
    for (args, said) in [
        (&["pack", "--align", "4G"][..], "choose a smaller one"),
        (&["pack", "--align", "4G", "--dry-run"], "choose a smaller one"),
        (&["pack", "--align-large", "4G", "--align", "4G"], "choose a smaller one"),
        (&["pack", "--align", "4G", "--safetensors"], "a safetensors header cannot be longer"),
    ] {
        let files = ["m.onnx", "o.onnx"];
        folder.run(&[&args[..1], &files, &args[1..]].concat()).failed(&[said]);
        assert!(folder.contents() == before, "{args:?}");
    }
    folder.run(&["pack", "m.onnx", "o.onnx", "--align", "64K"]).done();
}
