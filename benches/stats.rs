//! `Container::stats` beside the limit of the machine: to read the same file and add up its words.
//!
//! `cargo bench --bench stats [MB]`. The two take turns on all cores, and a row has the least time
//! of each: read the ratio, not the seconds. The file is in memory after the first turn.
#![allow(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::{Alignment, BufferMut, Container, DataType, LoadOptions, MmapChoice, Tensor};

const ROUNDS: usize = 12;

/// Types of every way to add up: floats, codes, integers.
const TYPES: [DataType; 12] = [
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8E4M3Fn,
    DataType::Int8,
    DataType::Uint8,
    DataType::Int4,
    DataType::Uint4,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
];

fn main() {
    let megabytes = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(256);
    println!("{:14}  {:>9}  {:>9}  sum/stats", "", "sum, GB/s", "stats");
    for dtype in TYPES {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("m.onnx");
        weights(dtype, megabytes << 20).save(&path, true).unwrap();
        let data = folder.path().join("m.onnx.data");
        let len = std::fs::metadata(&data).unwrap().len();
        // SAFETY: nobody else has the files.
        let options = || LoadOptions::from(unsafe { MmapChoice::auto() });
        let stats = || Container::load(&path, options()).unwrap().stats(|_| true);
        let mut least = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            let (sum, stats) = (timed(|| sum(&data, len)), timed(stats));
            least = [least[0].min(sum), least[1].min(stats)];
        }
        let [sum, stats] = least.map(|time| len as f64 / time.as_secs_f64() / 1e9);
        println!("{:14}  {sum:9.2}  {stats:9.2}  {:9.2}", dtype.name(), stats / sum);
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// A model with one tensor of `dtype`, whose numbers are as those of weights are: near zero, and
/// all different.
fn weights(dtype: DataType, len: usize) -> Container {
    let mut memory = BufferMut::zeroed(len, Alignment::PAGE).unwrap();
    let mut state = 1_u64;
    let mut normal = move || {
        let mut sum = -2.0_f32;
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            sum += f32::from(u16::try_from(state >> 48).unwrap()) / 65536.0;
        }
        sum
    };
    let sample: Vec<u8> = (0..1 << 20).flat_map(|_| element(dtype, normal() * 0.05)).collect();
    memory.chunks_mut(sample.len()).for_each(|part| part.copy_from_slice(&sample[..part.len()]));
    let bytes = memory.freeze();
    let elements = i64::try_from(len * 8 / usize::from(dtype.bit_width().unwrap())).unwrap();
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("w", dtype, [elements], "#w"));
    let mut container = Container::new(ModelProto::new(graph));
    container.insert("#w", Tensor::new(dtype, [elements], bytes).unwrap()).unwrap();
    container
}

/// The bytes of an element near `number`; of integers and codes, of one that is many times it.
fn element(dtype: DataType, number: f32) -> Vec<u8> {
    let large = (number * 1200.0) as i8;
    match dtype {
        DataType::Float => number.to_le_bytes().to_vec(),
        DataType::Double => f64::from(number).to_le_bytes().to_vec(),
        DataType::Float16 => f16::from_f32(number).to_le_bytes().to_vec(),
        DataType::Bfloat16 => bf16::from_f32(number).to_le_bytes().to_vec(),
        DataType::Int16 => i16::from(large).to_le_bytes().to_vec(),
        DataType::Int32 => i32::from(large).to_le_bytes().to_vec(),
        DataType::Int64 => i64::from(large).to_le_bytes().to_vec(),
        _ => large.to_le_bytes().to_vec(),
    }
}

/// Reads the file in pieces and adds up their words, on all cores.
fn sum(data: &Path, len: u64) -> u64 {
    const PIECE: u64 = 1 << 20;
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let words = |first: u64| {
        let mut file = File::open(data).unwrap();
        let (mut piece, mut sum) = (vec![0; PIECE as usize], 0_u64);
        for start in (first * PIECE..len).step_by((cores * PIECE) as usize) {
            let piece = &mut piece[..PIECE.min(len - start) as usize];
            file.seek(SeekFrom::Start(start)).unwrap();
            file.read_exact(piece).unwrap();
            let words = piece.chunks_exact(8);
            let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            sum = words.fold(sum, u64::wrapping_add);
        }
        sum
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..cores).map(|first| scope.spawn(move || words(first))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).fold(0, u64::wrapping_add)
    })
}
