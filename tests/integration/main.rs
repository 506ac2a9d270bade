//! The crate as its users see it, one file for each subject.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]
// What only tests that need Linux or Unix use.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, unused_mut))]

mod ambiguity;
#[cfg(feature = "safetensors")]
mod cancel;
mod cast;
mod cast_infinite;
mod cast_names;
mod checks;
mod checks_bodies;
mod checks_faults;
mod checks_files;
mod consolidate;
mod copies;
mod damaged_files;
mod dedup;
mod descriptor;
#[cfg(feature = "jobs")]
mod digest_parts;
mod digests;
mod digests_files;
mod digests_stored;
mod documented_models;
mod drivers;
mod dump;
mod edit;
mod file_sources;
mod fill;
mod flow;
mod format_page;
mod front_door;
mod hostile_cases;
mod hostile_files;
mod imports;
mod inline_cases;
mod inline_growth;
mod inline_large;
mod inline_names;
mod inline_random;
mod interop;
#[cfg(feature = "jobs")]
mod jobs;
mod kept_weights;
#[cfg(target_pointer_width = "64")]
mod large_messages;
mod large_tensors;
mod layers;
mod lazy;
mod limits;
mod links;
mod loads;
#[cfg(target_os = "linux")]
#[cfg(feature = "safetensors")]
mod match_weights;
#[cfg(target_os = "linux")]
mod memory;
mod nesting;
mod outline;
mod ownership;
mod parts;
mod path_races;
mod plain_words;
mod prepared;
mod properties;
mod random_models;
mod real_models;
mod releases;
mod rename_random;
mod replace;
mod replaced_models;
#[cfg(feature = "safetensors")]
mod reports;
mod resolved;
mod rounding;
#[cfg(feature = "safetensors")]
mod safetensors;
mod save_access;
mod save_and_load;
mod save_encoded;
mod save_externalized;
mod save_folder;
mod save_inlined;
mod save_overlaps;
mod save_structure;
mod save_targets;
mod save_unchanged;
mod scan;
mod semantic;
mod sessions;
mod shape_operands;
mod shards;
mod slow_sources;
mod small_messages;
mod sources;
mod statistics;
mod stats;
mod strip;
mod support;
mod tensors;
mod tensors_page;
mod traversal;
mod wire_cases;
mod wire_properties;
