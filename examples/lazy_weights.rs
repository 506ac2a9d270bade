//! Weights that are decrypted while they are saved, and never in memory as a whole.
//!
//! A `WeightSource` has a type, a shape and a way to read any part of its bytes. A save asks for
//! one part after another, so its memory does not grow with the weights. Here the "encryption" is
//! an XOR with a byte; put a real cipher, a network or a generator in its place.
//!
//! ```sh
//! cargo run --example lazy_weights [FOLDER]
//! ```

use std::env;
use std::path::PathBuf;

use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use onnx_container::{
    Container, DataType, Initializer, MmapChoice, Result, WeightFiles, WeightSource,
};

/// A tensor of bytes, which somebody keeps encrypted.
struct Encrypted {
    dims: [i64; 2],
    bytes: Vec<u8>,
    key: u8,
}

impl WeightSource for Encrypted {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let encrypted = self.bytes.iter().skip(start);
        out.iter_mut().zip(encrypted).for_each(|(plain, byte)| *plain = byte ^ self.key);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = GraphProto::new("lazy");
    graph.node.push(NodeProto::new("Identity", ["table"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::UINT8, [1024, 1024]));
    let mut container = Container::new(ModelProto::new(graph).with_operator_set("", 18));

    let source = Encrypted { dims: [1024, 1024], bytes: vec![7 ^ 0x55; 1 << 20], key: 0x55 };
    container.add_initializer("table", Initializer::from_source(source)?)?;

    // The files stay where a folder is given.
    let temporary = tempfile::tempdir()?;
    let folder = env::args_os().nth(1).map_or_else(|| temporary.path().into(), PathBuf::from);
    let path = folder.join("lazy.onnx");
    for file in container.save(&path, WeightFiles::Packed)?.files {
        println!("wrote {}: {} bytes", file.name, file.bytes);
    }
    let loaded = Container::load(&path, MmapChoice::never())?;
    let sum: u64 = loaded.tensor("table")?.as_slice::<u8>()?.iter().map(|b| u64::from(*b)).sum();
    println!("mean of the decrypted elements: {}", sum / (1 << 20));
    Ok(())
}
