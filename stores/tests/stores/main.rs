//! Models in stores as users of the crate see them: in memory, on a server of these tests that can
//! be told to fail, and on real servers (`ONNX_CONTAINER_STORES`).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod aborts;
mod behaviour;
mod ended_early;
mod fake_store;
mod faults;
mod http;
mod jobs;
mod jobs_killed;
mod jobs_told;
mod killed;
mod liars;
mod listings;
mod models;
mod names;
mod races;
mod receipts;
mod requests;
mod servers;
mod sweeps_killed;
