//! Any model runs under small limits or is refused: no panic, no more memory, no more steps; and it
//! computes the same however its memory is planned.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::Container;
use onnx_container::proto::ModelProto;
use onnx_container_fuzz::{Choices, decode, mutate_models, value_for};
use onnx_container_machine::plan::PlanOptions;
use onnx_container_machine::{
    Error, ErrorKind, Machine, Program, ProgramOptions, Registry, RunLimits, Value,
};

/// The most that a run may need.
const MEMORY: u64 = 1 << 18;
const STEPS: u64 = 200;

mutate_models!();

fuzz_target!(|input: &[u8]| {
    let Some(model) = decode(input) else { return };
    let container = Container::new(model);
    let seed = input.iter().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(*byte));
    let folded = run(&container, ProgramOptions::new().fold_bytes(1 << 14), true, seed);
    let stepped = run(&container, ProgramOptions::new().unfolded(), false, seed);
    if let (Some(folded), Some(stepped)) = (folded, stepped) {
        assert!(folded == stepped, "{:?}", container.model());
    }
});

/// The outputs of the container's model, their bits as text; `None` when it cannot be run.
fn run(
    container: &Container,
    options: ProgramOptions,
    is_planned: bool,
    seed: u64,
) -> Option<Vec<String>> {
    let program = checked(Program::new(container, options), container.model())?;
    let limits = RunLimits::new().memory_bytes(MEMORY).steps(STEPS);
    let planning = is_planned.then(PlanOptions::new);
    let mut machine = Machine::new(program, Registry::new(), limits).planning(planning);
    let _ = machine.check_runnable();
    let mut choices = Choices::new(seed);
    let program = machine.program().clone();
    for input in &program.main.inputs {
        let value = value_for(input, &mut choices)?;
        checked(machine.bind(program.main.name(input.value), value), container.model())?;
    }
    let outputs = checked(machine.run(), container.model());
    assert!(machine.memory().arena_bytes() <= MEMORY);
    assert!(machine.memory().high_water() <= machine.memory().arena_bytes());
    Some(outputs?.iter().map(|(name, value)| format!("{name}: {}", bits(value))).collect())
}

/// What `result` has; an error is one of the model, never one of the machine.
fn checked<T>(result: Result<T, Error>, model: &ModelProto) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Internal, "{error}: {model:?}");
            None
        }
    }
}

/// A value with the bits of its elements, in which NaN is what it is.
fn bits(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => {
            let shown = (tensor.dtype(), tensor.dims(), tensor.as_bytes(), tensor.strings());
            format!("{shown:?}")
        }
        Value::Sequence(ty, values) => {
            format!("{ty} {:?}", values.iter().map(bits).collect::<Vec<_>>())
        }
        Value::Optional(ty, value) => format!("{ty} {:?}", value.as_deref().map(bits)),
        Value::Map(map) => {
            format!("{:?}", [map.keys(), map.values()].map(|tensor| bits(&tensor.clone().into())))
        }
        other => format!("{other:?}"),
    }
}
