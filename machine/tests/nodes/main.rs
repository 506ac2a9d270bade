//! Nodes of every operator and version: with any attributes and inputs they run or are refused, and
//! each takes the types that its schema has.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "random numbers become elements of any type"
)]

mod case;
#[path = "../../../fuzz/src/choices.rs"]
mod choices;
mod mutate;
mod recipes;
mod runnable;
mod schemas;
mod types;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onnx_container_machine::ErrorKind;

use crate::case::Case;
use crate::choices::Choices;

/// How often each version of an operator is tried, unless the environment says more.
const ROUNDS: u64 = 3;

fn rounds() -> (u64, u64) {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    (number("ONNX_CONTAINER_NODES_FROM", 0), number("ONNX_CONTAINER_NODES", ROUNDS))
}

/// The error of `case`, if it panics or blames the machine.
fn fault(case: &Case) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| case.run())) {
        Ok(Err(error)) if error.kind() == ErrorKind::Internal => Some(error.to_string()),
        Ok(_) => None,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.unwrap_or_else(|| format!("{:?}", panic.downcast_ref::<&str>())))
        }
    }
}

#[test]
fn any_node_runs_or_is_refused() {
    let (schemas, recipes) = (schemas::all(), recipes::all());
    let (from, rounds) = rounds();
    let only = std::env::var("ONNX_CONTAINER_NODES_ONLY").ok();
    let mut faults: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut made, mut ran) = (0, 0);
    for (i, schema) in schemas.iter().enumerate() {
        if only.as_deref().is_some_and(|only| only != schema.name) {
            continue;
        }
        let recipe = recipes::of(&recipes, schema);
        for round in from..from + rounds {
            let mut choices = Choices::new(round * 1009 + i as u64);
            let Some(case) = mutate::case(schema, &recipe, &mut choices) else { continue };
            made += 1;
            match fault(&case) {
                Some(fault) => {
                    let key = format!("{}: {fault}", schema.name);
                    let shown = format!("{} round {round}: {fault}", schema.title());
                    faults.entry(key).or_insert((0, shown)).0 += 1;
                }
                None => ran += 1,
            }
        }
    }
    eprintln!("{made} nodes, {ran} without a fault");
    let shown: Vec<_> = faults.values().map(|(n, fault)| format!("{n} x {fault}")).collect();
    assert!(faults.is_empty(), "{}", shown.join("\n"));
    assert!(made > rounds * 400 || only.is_some());
}
