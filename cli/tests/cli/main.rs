//! The command as it is run: arguments in; files, output and exit code out.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
// What only tests that need Unix use.
#![cfg_attr(windows, allow(dead_code, unused_imports, unused_mut))]

mod cast;
mod check;
#[cfg(all(feature = "machine", feature = "stores"))]
mod commands_page;
mod dedup;
mod diff;
mod digest;
mod edit;
#[cfg(all(unix, feature = "machine", feature = "stores"))]
mod examples;
mod exported;
mod extract;
mod files;
mod help;
mod hostile;
#[path = "../../../tests/integration/hostile_cases.rs"]
mod hostile_cases;
mod inline;
mod inspect;
mod inspect_lists;
mod job;
mod job_cast;
mod job_ended;
mod job_places;
mod jobs;
#[cfg(all(feature = "machine", feature = "stores"))]
mod json;
mod json_cases;
#[cfg(feature = "machine")]
mod kinds;
mod leftovers;
#[cfg(unix)]
mod links;
mod mistakes;
#[cfg(unix)]
mod model_files;
#[cfg(unix)]
mod model_files_safe;
#[cfg(unix)]
mod model_files_shared;
#[cfg(unix)]
mod names_without_case;
#[cfg(all(unix, feature = "machine"))]
mod never_replaced;
mod npy;
#[cfg(feature = "ort")]
mod onnxruntime;
mod overlaps;
mod parts;
mod paths;
#[cfg(feature = "machine")]
mod plan;
mod protected;
#[cfg(feature = "machine")]
mod protected_runs;
mod questions;
#[cfg(feature = "machine")]
mod quiet;
mod replace;
mod replaced;
mod report;
#[cfg(feature = "machine")]
mod run;
mod safetensors;
mod scan;
mod semantic;
#[cfg(target_os = "linux")]
mod shards;
mod share;
mod signing;
mod signing_jobs;
mod signing_keys;
mod signing_options;
mod signing_places;
mod signing_readers;
mod signing_statements;
mod signing_verdicts;
mod stats;
#[cfg(unix)]
mod stop;
#[cfg(feature = "stores")]
mod store_jobs;
#[cfg(feature = "stores")]
mod store_server;
#[cfg(feature = "stores")]
mod stores;
mod strip;
mod support;
#[cfg(feature = "machine")]
mod trace;
#[cfg(feature = "machine")]
mod trace_tolerance;
mod troubles;
mod usage;
#[cfg(feature = "machine")]
mod verify;
#[cfg(feature = "machine")]
mod width;
mod write;
