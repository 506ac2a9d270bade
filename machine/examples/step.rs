//! A model stepped through, node by node: what each step does, then T and M as it leaves them.
//!
//! `cargo run -p onnx-container-machine --example step [MODEL [NAME=N]...]` runs the model in the
//! file MODEL on random inputs, with the sizes that are given for its symbolic dimensions. Without
//! arguments it makes a small model: y = relu(x W + b).

use std::collections::HashMap;
use std::env;
use std::error::Error;

use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, MmapChoice};
use onnx_container_machine::{
    Entry, Machine, Program, ProgramOptions, Registry, RunLimits, Touched, random_inputs,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let container = match arguments.next() {
        Some(path) => Container::load(path, MmapChoice::never())?,
        None => Container::new(small()),
    };
    let size = |argument: String| {
        let (name, size) = argument.split_once('=').ok_or("not a size such as batch=1")?;
        Ok::<_, Box<dyn Error>>((name.to_owned(), size.parse()?))
    };
    let sizes: HashMap<String, usize> = arguments.map(size).collect::<Result<_, _>>()?;

    let program = Program::new(&container, ProgramOptions::new())?;
    let inputs = random_inputs::all(&program, 0, &sizes)?;
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    machine.check_runnable()?;
    for (name, value) in inputs {
        machine.bind(&name, value)?;
    }
    println!("before the first step");
    print_state(&machine);
    while let Some(step) = machine.step()? {
        println!("\nstep {}: {} (version {}) {}", step.path, step.op, step.version, step.node);
        step.reads.iter().for_each(|value| print_value("reads", value));
        step.writes.iter().for_each(|value| print_value("writes", value));
        print_state(&machine);
    }
    println!();
    for (name, value) in machine.outputs()? {
        match value.tensor() {
            Ok(tensor) if tensor.dtype() == DataType::Float => {
                println!("{name} = {:?} {:?}", tensor.dims(), tensor.as_slice::<f32>()?);
            }
            _ => println!("{name}: {}", value.ty()),
        }
    }
    Ok(())
}

/// T: where every value is that later steps need. M: how much of it is in use.
fn print_state(machine: &Machine) {
    println!("  T:");
    for (_, name, entry) in machine.table().iter() {
        println!("    {name:<8} -> {}", place(entry));
    }
    let memory = machine.memory();
    println!("  M: {} bytes in use, {} at most", memory.live_bytes(), memory.high_water());
}

fn print_value(verb: &str, value: &Touched) {
    println!("  {verb:<6} {:<8} {}", value.name, place(&value.entry));
}

/// (offset, dtype, shape), or what lies outside of M.
fn place(entry: &Entry) -> String {
    match entry {
        Entry::Tensor(slot) => format!("({:#x}, {}, {:?})", slot.offset, slot.dtype, slot.shape),
        Entry::Outside(value) => format!("outside of M: {}", value.ty()),
        other => format!("{other:?}"),
    }
}

/// y = relu(x W + b), with 3 inputs and 2 outputs.
fn small() -> ModelProto {
    let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut graph = GraphProto::new("small");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [1, 3]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [1, 2]));
    let weights = floats(&[0.5, -1.0, 2.0, 0.25, -0.5, 1.0]);
    graph.initializer = vec![
        TensorProto::new("W", TensorProto::FLOAT, [3, 2]).with_raw_data(weights),
        TensorProto::new("b", TensorProto::FLOAT, [2]).with_raw_data(floats(&[0.1, 0.2])),
    ];
    graph.node = vec![
        NodeProto::new("MatMul", ["x", "W"], ["xW"]),
        NodeProto::new("Add", ["xW", "b"], ["sum"]),
        NodeProto::new("Relu", ["sum"], ["y"]),
    ];
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}
