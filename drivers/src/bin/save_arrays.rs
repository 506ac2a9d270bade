//! Times a save of FLOAT weights from memory, in Rust: `save_arrays FOLDER ELEMENTS...`, one weight
//! for each number of elements, prints the least seconds of three.
//!
//! `python/bench.py` runs it beside the Python package, on as many weights of the same lengths. It
//! has the allocator of the package.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mimalloc::MiMalloc;
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::{Buffer, Container, DataType, SaveOptions, Tensor, WeightFiles};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: save_arrays FOLDER ELEMENTS...")?);
    let sizes = args.map(|size| size.to_string_lossy().parse::<usize>());
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    let weights: Vec<Arc<[f32]>> = sizes.iter().map(|size| vec![0.5; *size].into()).collect();

    // The first save is slower where the system has to find memory for its cache first.
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let weights = weights.clone();
        let start = Instant::now();
        save(&folder.join("m.onnx"), weights)?;
        least = least.min(start.elapsed().as_secs_f64());
        for name in ["m.onnx", "m.onnx.data"] {
            std::fs::remove_file(folder.join(name))?;
        }
    }
    println!("{least}");
    Ok(())
}

/// Builds a model of `weights` and saves it to `path`.
fn save(path: &Path, weights: Vec<Arc<[f32]>>) -> Result<(), Box<dyn Error>> {
    let mut graph = GraphProto::new("g");
    for (number, weight) in weights.iter().enumerate() {
        let (name, handle) = (format!("w{number}"), format!("#w{number}"));
        let dims = [i64::try_from(weight.len())?];
        graph.initializer.push(TensorProto::external(
            name.as_str(),
            TensorProto::FLOAT,
            dims,
            handle.as_str(),
        ));
    }
    let mut container = Container::new(ModelProto::new(graph));
    for (number, weight) in weights.into_iter().enumerate() {
        let dims = [i64::try_from(weight.len())?];
        let tensor = Tensor::new(DataType::Float, dims, Buffer::from_owner(Shared(weight)))?;
        container.insert(&format!("#w{number}"), tensor)?;
    }
    container.save(path, SaveOptions::from(WeightFiles::Packed).sync(false))?;
    Ok(())
}

/// Elements that the caller keeps too.
struct Shared(Arc<[f32]>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
