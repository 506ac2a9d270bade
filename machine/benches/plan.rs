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

/// Tensors that fill a rectangle of steps and bytes: no order reaches the lower bound.
#[divan::bench]
fn hard_2000(bencher: Bencher<'_, '_>) {
    measure(bencher, &instances::hard(2000, 1));
}

/// Tensors with lives of any length: hundreds are needed at once.
#[divan::bench]
fn long_lives_2000(bencher: Bencher<'_, '_>) {
    let mut numbers = instances::Numbers::new(1);
    let blocks: Vec<_> = (0..2000)
        .map(|i| Block::new(i..i + 1 + numbers.under(2000 - i), 64 * (1 + numbers.under(4096))))
        .collect();
    measure(bencher, &blocks);
}
