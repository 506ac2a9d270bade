//! A model with one large initializer: built, saved beside its weights, and loaded again.
//!
//! The model adds a weight to its input. The weight is not in the message: the message names a
//! handle, `#weight`, and the container has the array behind that handle. A save writes the array
//! to a file and makes the message name the file; a load turns it into a handle again.
//!
//! ```sh
//! cargo run --example save_and_load
//! ```

#![allow(unsafe_code)] // mapping files is a promise that only the caller can make

use ndarray::Array2;
use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, MmapChoice};

/// `y = x + weight`, where `weight` is a tensor of 4 by 8 floats that lies elsewhere.
fn model() -> ModelProto {
    let mut graph = GraphProto::new("demo");
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [4, 8]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [4, 8]));
    graph.node.push(NodeProto::new("Add", ["x", "weight"], ["y"]));
    graph.initializer.push(TensorProto::external("weight", TensorProto::FLOAT, [4, 8], "#weight"));

    let mut model = ModelProto::new(graph);
    // The newest version of the format asks for the newest readers; this model needs neither.
    model.ir_version = Some(10);
    model.opset_import.push(OperatorSetIdProto::new("", 18));
    model
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut container = Container::new(model());
    container.insert("#weight", Array2::<f32>::ones((4, 8)))?;

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("demo.onnx");

    // `true`: all weights in one file. `false` would write one file for each of them.
    let saved = container.save(&path, true)?;
    for file in &saved.files {
        println!("wrote {}: {} bytes", file.name, file.bytes);
    }
    // What was saved names the file; the container still names the handle.
    let model = saved.model()?;
    let graph = model.graph.as_ref().ok_or("no graph")?;
    for entry in graph.initializer.iter().flat_map(|tensor| &tensor.external_data) {
        if let (Some(key), Some(value)) = (&entry.key, &entry.value) {
            println!("  {key} = {value}");
        }
    }

    // SAFETY: nothing truncates or writes to the files in this folder while they are mapped.
    let loaded = Container::load(&path, unsafe { MmapChoice::auto() })?;
    let weight = loaded.get("#weight").ok_or("no weight")?.to_tensor()?;
    println!("loaded #weight: {} {:?}", weight.dtype(), weight.dims());
    println!("sum of its elements: {}", weight.view::<f32>()?.sum());
    Ok(())
}
