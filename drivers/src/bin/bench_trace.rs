//! Times runs of a model with and without a trace: `bench_trace MODEL [RUNS]`, one line of JSON, in
//! seconds.
//!
//! The inputs are those of seed 0, with 1 for every dimension that the model leaves open. The trace
//! is written to memory. Its first line, with the digests of all weights, is timed by itself: it is
//! written once for a run of any length. `scripts/bench_machine.py` runs it. It has the allocator
//! of the command.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use onnx_container::{Container, MmapChoice};
use onnx_container_machine::trace::{TraceOptions, TraceWriter};
use onnx_container_machine::{
    Machine, Program, ProgramOptions, Registry, RunLimits, Value, random_inputs,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let model = args.next().map(PathBuf::from).ok_or("usage: bench_trace MODEL [RUNS]")?;
    let runs = args.next().and_then(|runs| runs.to_str()?.parse().ok()).unwrap_or(5_u32).max(1);
    let container = Container::load(model, MmapChoice::never())?;
    let program = Arc::new(Program::new(&container, ProgramOptions::new())?);
    let inputs = random_inputs::all(&program, 0, &HashMap::new())?;
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    let (mut plain, mut traced, mut heads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        bind(&mut machine, &inputs)?;
        let start = Instant::now();
        machine.run()?;
        plain.push(start.elapsed());

        bind(&mut machine, &inputs)?;
        let start = Instant::now();
        let options = TraceOptions::new();
        let mut trace = TraceWriter::new(io::sink(), &container, &mut machine, options)?;
        heads.push(start.elapsed());
        let start = Instant::now();
        trace.run(&mut machine)?;
        trace.finish(&machine)?;
        traced.push(start.elapsed());
    }
    let [plain, traced, head] = [plain, traced, heads].map(median);
    println!("{{\"run\": {plain}, \"traced\": {traced}, \"head\": {head}}}");
    Ok(())
}

fn bind(machine: &mut Machine, inputs: &[(String, Value)]) -> Result<(), Box<dyn Error>> {
    machine.reset();
    inputs.iter().try_for_each(|(name, value)| machine.bind(name, value.clone()))?;
    Ok(machine.place_inputs()?)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}
