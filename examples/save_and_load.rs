//! A model with one large initializer: built, saved beside its weights, and loaded again.
//!
//! The model adds a weight to its input. The weight is not in the message: the message names a
//! handle, `#weight`, and the container has the array behind that handle. A save writes the array
//! to a file and makes the message name the file; a load turns it into a handle again.
//!
//! ```sh
//! cargo run --example save_and_load [FOLDER]
//! ```

#![allow(unsafe_code)] // mapping files is a promise that only the caller can make

use std::env;
use std::path::PathBuf;

use ndarray::Array2;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use onnx_container::{Container, MmapChoice, WeightFiles};

/// `y = x + weight`, where `weight` is a tensor of 4 by 8 floats that lies elsewhere.
fn model() -> ModelProto {
    let mut graph = GraphProto::new("demo");
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [4, 8]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [4, 8]));
    graph.node.push(NodeProto::new("Add", ["x", "weight"], ["y"]));
    graph.initializer.push(TensorProto::external("weight", TensorProto::FLOAT, [4, 8], "#weight"));

    // The lowest version of the format that has all this: readers refuse versions that are newer
    // than they are.
    ModelProto::new(graph).with_operator_set("", 18)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut container = Container::new(model());
    container.insert("#weight", Array2::<f32>::ones((4, 8)))?;

    // The files stay where a folder is given.
    let temporary = tempfile::tempdir()?;
    let folder = env::args_os().nth(1).map_or_else(|| temporary.path().into(), PathBuf::from);
    let path = folder.join("demo.onnx");

    // `true`: all weights in one file. `false` would write one file for each of them.
    let saved = container.save(&path, WeightFiles::Packed)?;
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
