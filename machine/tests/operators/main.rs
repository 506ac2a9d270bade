//! Operators one by one: versions, types, and wrong input that ONNX's node tests do not show.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]

mod axes;
mod casts;
mod contrib;
mod elements;
mod images;
mod ml;
mod pictures;
mod support;
