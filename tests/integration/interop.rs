//! The real readers and writers: onnxruntime, onnx and onnx_ir on what the command reads and
//! writes.
//!
//! The tests themselves are the Python drivers in tests/interop; this file makes them part of the
//! suite. They need the readers of tests/requirements.txt and a built command, which
//! `scripts/test.sh` prepares and names in the environment, so a plain `cargo test` lists them as
//! ignored.

use std::path::Path;

use crate::drivers::{run_driver, run_driver_with, run_python, setting};

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn readers_make_the_same_of_every_layout() {
    run_driver("readers.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn what_is_made_here_is_opened_and_what_onnxruntime_refuses_is_known() {
    run_driver_with("versions.py", &[&setting("ONNX_CONTAINER_EXAMPLES")]);
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn models_of_other_writers_are_read() {
    run_driver("writers.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn the_official_library_and_safetensors_files() {
    run_driver("safetensors_peers.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn every_tensor_at_hand_is_imported_as_onnx_reads_it() {
    run_driver_with("imports.py", &["--dump", &setting("ONNX_CONTAINER_DUMP_TENSORS")]);
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn weights_are_cast_as_numpy_and_onnxruntime_have_it() {
    assert!(!setting("ONNX_CONTAINER_CAST").is_empty());
    run_driver("cast.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn casts_of_models_whose_subgraphs_have_names_of_other_values_are_valid() {
    run_driver("cast_names.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn parts_of_models_and_models_that_share_compute_the_same() {
    run_driver("parts.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn a_cache_of_hugging_face_opens() {
    run_driver("hub_cache.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn digests_are_those_that_the_page_defines() {
    run_driver("digests.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn models_of_one_semantic_digest_are_the_same_for_the_reference() {
    run_driver("semantic.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn signatures_are_verified_both_ways_with_the_reference_tool() {
    run_driver("signing.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn real_models_compute_what_onnxruntime_computes() {
    run_driver("runs.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn operators_of_machine_learning_compute_what_onnxruntime_computes() {
    run_driver("ml.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn operators_of_onnxruntime_compute_what_it_computes() {
    run_driver("contrib.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn malformed_external_data_is_refused() {
    run_driver("golden.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn a_check_finds_what_the_checker_and_onnxruntime_refuse() {
    run_driver("checks.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn operands_that_readers_need_stay_inline() {
    run_driver("inline_operands.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn arrays_go_out_and_in() {
    run_driver("arrays.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn the_corpus_of_functions_is_inlined() {
    run_driver("inlining.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn inlined_models_compute_the_same() {
    run_driver("inlined_models.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn operator_versions_are_those_of_onnx() {
    run_python("scripts/make_opset.py", &["--check"]);
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn memory_is_bounded() {
    run_driver("memory.py");
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn the_official_parser_makes_the_same_of_every_input() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/data", ".models", "../shared/data"].map(|folder| root.join(folder));
    let folders: Vec<_> = folders.iter().filter(|folder| folder.is_dir()).collect();
    let reencode = setting("ONNX_CONTAINER_REENCODE");
    let mut arguments = vec!["--reencode", &reencode];
    arguments.extend(folders.iter().filter_map(|folder| folder.to_str()));
    run_driver_with("wire_differential.py", &arguments);
}
