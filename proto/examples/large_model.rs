//! Reads a model of any length with little memory: every tensor, and the sum of the floats in it.
//!
//! ```text
//! cargo run --release -p onnx-container-proto --example large_model [MODEL]
//! ```
//!
//! Without an argument it first writes a model of 4.4 GB, which takes a few MB of disk because the
//! file is sparse. The weights are outside of memory all the time: the model is mapped, its
//! messages are slices of the map, and the elements are read from the file in pieces.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use onnx_container_proto::buffer::FileRange;
use onnx_container_proto::proto::{GraphProto, Message, ModelProto, TensorProto};
use onnx_container_proto::{Alignment, BufferMut, DataType, MmapChoice};

/// The bytes that are in memory at a time.
const PIECE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => write_model(folder.path())?,
    };
    let read = read_model(&path)?;
    println!("{} bytes in {} tensors", read.bytes, read.tensors);
    if let Some(peak) = peak_memory() {
        println!("peak memory: {peak}");
    }
    Ok(())
}

/// Writes a model with one tensor of 1.1 billion floats, all zero except the last one.
fn write_model(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    const ELEMENTS: usize = 1_100_000_000;
    let mut weights = BufferMut::zeroed(ELEMENTS * 4, Alignment::PAGE)?; // no page is used yet
    let (_, last) = weights.split_at_mut((ELEMENTS - 1) * 4);
    last.copy_from_slice(&1.0_f32.to_le_bytes());

    let mut graph = GraphProto::new("large");
    let tensor = TensorProto::new("w", TensorProto::FLOAT, [i64::try_from(ELEMENTS)?]);
    graph.initializer.push(tensor.with_raw_data(weights.freeze()));
    let path = folder.join("large.onnx");
    let mut file = Sparse(File::create(&path)?);
    ModelProto::new(graph).with_operator_set("", 21).encode(&mut file)?;
    println!("wrote {}", path.display());
    Ok(path)
}

/// A file in which pieces of zeros take no space.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        if piece.len() < PIECE || piece.iter().any(|byte| *byte != 0) {
            return self.0.write(piece);
        }
        self.0.seek(SeekFrom::Current(piece.len().try_into().map_err(io::Error::other)?))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What a model holds.
#[derive(Default)]
struct Found {
    tensors: usize,
    bytes: u64,
}

fn read_model(path: &Path) -> Result<Found, Box<dyn Error>> {
    // SAFETY: nothing shortens the file while this program runs.
    #[allow(unsafe_code)]
    let map = unsafe { MmapChoice::auto() };
    let model = ModelProto::decode(&map.buffer(path)?)?;
    let graph = model.graph.as_ref().ok_or("the model has no graph")?;
    let mut found = Found::default();
    for tensor in &graph.initializer {
        let name = tensor.name.as_ref().map(|name| name.to_string_lossy()).unwrap_or_default();
        let dtype = DataType::try_from(tensor.data_type.unwrap_or_default())?;
        let elements = tensor.raw_data.as_ref();
        let place = elements.and_then(|bytes| bytes.file_range());
        found.tensors += 1;
        found.bytes += elements.map_or(0, |bytes| bytes.len() as u64);
        match place.filter(|_| dtype == DataType::Float) {
            Some(place) => println!("{name}: {dtype} {:?}, sum {}", tensor.dims, sum(&place)?),
            None => println!("{name}: {dtype} {:?}", tensor.dims),
        }
    }
    Ok(found)
}

/// The sum of the floats in a part of a file, which is read in pieces.
fn sum(place: &FileRange<'_>) -> io::Result<f64> {
    let mut file = File::open(place.path)?;
    file.seek(SeekFrom::Start(place.range.start))?;
    let mut rest = file.take(place.range.end - place.range.start);
    let (mut piece, mut sum) = (Vec::with_capacity(PIECE), 0.0);
    loop {
        piece.clear();
        rest.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(sum);
        }
        let (floats, _) = piece.as_chunks::<4>();
        sum += floats.iter().map(|float| f64::from(f32::from_le_bytes(*float))).sum::<f64>();
    }
}

/// The most memory that the process had, mapped files included, as Linux says it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}
