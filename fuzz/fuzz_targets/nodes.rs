//! A node of any operator and version, with attributes and inputs of any count, type and rank, runs
//! under small limits or is refused: no panic, and no error of the machine's own.
#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onnx_container_fuzz::recipes::Recipe;
use onnx_container_fuzz::schemas::Schema;
use onnx_container_fuzz::{Choices, mutate, recipes, schemas};
use onnx_container_machine::ErrorKind;

static SCHEMAS: LazyLock<Vec<Schema>> = LazyLock::new(schemas::all);
static RECIPES: LazyLock<HashMap<String, Recipe>> = LazyLock::new(recipes::all);

// The first two bytes choose the operator, the others are the seed of all other choices.
fuzz_target!(|input: &[u8]| {
    let Some((index, seed)) = input.split_first_chunk::<2>() else { return };
    let seed = seed.iter().fold(0_u64, |seed, byte| seed.rotate_left(8) ^ u64::from(*byte));
    let schema = &SCHEMAS[usize::from(u16::from_le_bytes(*index)) % SCHEMAS.len()];
    let recipe = recipes::of(&RECIPES, schema);
    let Some(case) = mutate::case(schema, &recipe, &mut Choices::new(seed)) else { return };
    if let Ok(machine) = case.machine() {
        let _ = machine.check_runnable();
    }
    if let Err(error) = case.run() {
        assert!(error.kind() != ErrorKind::Internal, "{error}: {case:?}");
    }
});
