//! The ten largest tensors of a model with their means, wherever their elements are stored.
//!
//! Initializers, attributes, subgraphs and functions are searched; the weights files are mapped,
//! and only the elements of these ten tensors are read.
//!
//! ```sh
//! cargo run --example largest_tensors -- model.onnx
//! ```

#![allow(unsafe_code)] // mapping files is a promise that only the caller can make

use std::cmp::Reverse;
use std::env;
use std::path::PathBuf;

use onnx_container::{Container, MmapChoice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/encoder/encoder.onnx");
    let path = env::args_os().nth(1).map_or_else(|| own.into(), PathBuf::from);

    // SAFETY: nothing truncates or writes to the files of the model while they are mapped.
    let container = Container::load(path, unsafe { MmapChoice::auto() })?;
    let mut tensors: Vec<_> = container.tensors().collect();
    // The size follows from type and shape; a tensor with invalid ones comes last.
    tensors.sort_by_cached_key(|tensor| Reverse(tensor.byte_len().unwrap_or(0)));

    for tensor in tensors.iter().take(10) {
        let elements = tensor.tensor()?;
        print!("{}: {} {:?}", tensor.name(), elements.dtype(), elements.dims());
        match elements.to_f32() {
            Ok(values) => {
                let sum: f64 = values.iter().copied().map(f64::from).sum();
                println!(", mean {:.6}", sum / values.len() as f64);
            }
            Err(_) => println!(", not of a float type"),
        }
    }
    Ok(())
}
