//! Plans of 2,000 tensors, which are to take at most 10 milliseconds.
//!
//! `cargo bench -p onnx-container-machine --bench plan`.
#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

#[path = "../tests/plan/instances.rs"]
mod instances;

use divan::Bencher;
use onnx_container_machine::plan::{Block, PlanOptions, plan};

fn main() {
    divan::main();
}

fn measure(bencher: Bencher<'_, '_>, blocks: &[Block]) {
    bencher.bench(|| plan(divan::black_box(blocks), PlanOptions::new()).unwrap());
}

/// A network: most tensors live for two steps.
#[divan::bench]
fn network_of_2000(bencher: Bencher<'_, '_>) {
    measure(bencher, &instances::network(2000, 1));
}

/// Tensors with long lives: hundreds are needed at once, and no order reaches the lower bound.
#[divan::bench]
fn hard_2000(bencher: Bencher<'_, '_>) {
    measure(bencher, &instances::hard(2000, 1));
}
