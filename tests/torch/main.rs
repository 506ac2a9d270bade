//! The crate with the feature `tch`, as its users see it. It needs a libtorch:
//! `eval "$(scripts/setup-libtorch.sh)" && cargo test --features tch --test torch`.
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

#[path = "../integration/drivers.rs"]
mod drivers;
#[allow(dead_code)] // these tests need few of the models
#[path = "../integration/support.rs"]
mod support;
mod tensors;
