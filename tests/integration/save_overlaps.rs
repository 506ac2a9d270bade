//! No way to save writes tensors that overlap in part as many times their bytes.

use std::path::Path;

use onnx_container::proto::TensorProto;
use onnx_container::{
    Container, Error, ErrorKind, LoadOptions, MmapChoice, SaveOptions, WeightFiles,
};

use crate::support::{contents, graph, model};

/// The bytes of the weights file.
const FILE: usize = 1 << 20;

/// Saves a model of `count` tensors that begin a byte apart in one file, or all at its beginning,
/// and loads it.
fn overlapping(folder: &Path, count: usize, tied: bool) -> Container {
    let len = FILE - count;
    let tensor = |number: usize| {
        let name = format!("w{number}");
        let mut tensor = TensorProto::external(name, TensorProto::UINT8, [len as i64], "w.bin");
        let offset = if tied { 0 } else { number };
        for (key, value) in [("offset", offset), ("length", len)] {
            let entry = onnx_container::proto::StringStringEntryProto::new(key, value.to_string());
            tensor.external_data.push(entry);
        }
        tensor
    };
    std::fs::write(folder.join("w.bin"), vec![1; FILE]).unwrap();
    let model = model(graph((0..count).map(tensor).collect(), Vec::new()));
    let path = folder.join("m.onnx");
    std::fs::write(&path, onnx_container::proto::Message::encode_to_vec(&model).unwrap()).unwrap();
    Container::load(path, LoadOptions::from(MmapChoice::never())).unwrap()
}

/// Every layout, and every option that makes a save read weights.
fn ways() -> Vec<(&'static str, SaveOptions)> {
    let of = |layout| SaveOptions::from(layout).sync(false);
    vec![
        ("packed", of(WeightFiles::Packed)),
        ("aligned", of(WeightFiles::Packed).keep_placement(false)),
        ("deduplicated", of(WeightFiles::Packed).dedup(true)),
        ("sharded", of(WeightFiles::Sharded { max_bytes: 10_000 })),
        ("split", of(WeightFiles::PerTensor)),
        ("embedded", of(WeightFiles::Embedded)),
        #[cfg(feature = "safetensors")]
        ("safetensors", of(WeightFiles::Safetensors)),
        ("with checksums", of(WeightFiles::Packed).checksums(true)),
        ("with digests", of(WeightFiles::Packed).digests(true)),
        ("inlined", of(WeightFiles::Packed).inline_functions(true)),
    ]
}

fn refused(result: Result<(), Error>, way: &str) {
    let error = result.expect_err(way);
    assert!(error.has(ErrorKind::TooLarge), "{way}: {error}");
    assert!(error.to_string().contains("overlap in part"), "{way}: {error}");
}

#[test]
fn tensors_that_overlap_in_part_are_not_written_many_times_over() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let container = overlapping(folder.path(), 600, false);
    let path = other.path().join("m.onnx");
    for (way, options) in ways() {
        refused(container.dry_run(&path, options.clone()).map(drop), way);
        refused(container.save(&path, options.clone()).map(drop), way);
        refused(container.to_parts(options).map(drop), way);
    }
    #[cfg(feature = "safetensors")]
    for shard in [None, Some(10_000)] {
        let options = onnx_container::safetensors::ExportOptions::new();
        let options = shard.into_iter().fold(options, |options, max| options.max_shard_bytes(max));
        let exported = container.export_safetensors(other.path().join("m.safetensors"), options);
        refused(exported.map(drop), "exported");
    }
    let outline = onnx_container::Outline::load(folder.path().join("m.onnx"), MmapChoice::never());
    refused(outline.unwrap().embed(&path, SaveOptions::new()).map(drop), "an outline");
    assert!(contents(other.path()).is_empty());
    // Where the weights stay in their file nothing is written twice.
    let kept = SaveOptions::from(WeightFiles::AsLoaded).sync(false);
    let saved = container.save(folder.path().join("n.onnx"), kept).unwrap();
    assert_eq!(saved.files.len(), 1);
}

#[test]
fn a_few_overlaps_and_tied_tensors_are_saved() {
    for (count, tied) in [(20, false), (600, true)] {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let container = overlapping(folder.path(), count, tied);
        let path = other.path().join("m.onnx");
        for (way, options) in ways() {
            let plan = container.dry_run(&path, options);
            if tied && way == "embedded" {
                // A model has bytes of its own for each tensor.
                refused(plan.map(drop), way);
            } else {
                let bytes = plan.unwrap_or_else(|error| panic!("{way}: {error}")).bytes;
                assert!(bytes < 30 * FILE as u64, "{way}: {bytes}");
            }
        }
    }
}
