//! `Container::stats` beside the limit of the machine: to read the same file and add it up.
//!
//! `cargo bench --bench stats [MB] [TYPE]...`. Three take turns on all cores: a plain read of the
//! file that adds up its words of 64 bits, one that adds up the elements in their own type, and
//! `stats`. A row has the most that each reached: read the ratios, not the speeds. The file is in
//! memory before the first turn. The last column is `numpy.fromfile(..).sum()`, on one core, where
//! `.venv` has numpy and numpy has the type.
#![allow(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Add;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::{Alignment, BufferMut, Container, DataType, LoadOptions, MmapChoice, Tensor};
use pulp::Arch;

const ROUNDS: usize = 30;

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
    let args: Vec<_> = std::env::args().skip(1).collect();
    let megabytes = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(256);
    let named = |dtype: &DataType| args.iter().any(|arg| arg == dtype.name());
    let types: Vec<_> = TYPES.into_iter().filter(named).collect();
    let types = if types.is_empty() { TYPES.to_vec() } else { types };
    println!("{:14}  {:>7}  {:>8}  {:>7}  stats to", "", "words,", "elements", "");
    println!("{:14}  {:>7}  {:>8}  {:>7}  words  elements", "", "GB/s", "", "stats");
    for dtype in types {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("m.onnx");
        weights(dtype, megabytes << 20).save(&path, true).unwrap();
        let data = folder.path().join("m.onnx.data");
        // From its start to its end, as most programs first read a file. The system then keeps it
        // in large pieces, which are mapped in less time than small ones.
        let len = std::fs::read(&data).unwrap().len() as u64;
        // SAFETY: nobody else has the files.
        let options = || LoadOptions::from(unsafe { MmapChoice::auto() });
        let stats = || Container::load(&path, options()).unwrap().stats(|_| true);
        let mut least = [Duration::MAX; 3];
        for _ in 0..ROUNDS {
            let words = timed(|| read(&data, len, |piece| add(piece, u64::from_le_bytes)));
            let elements = timed(|| read(&data, len, |piece| elements(dtype, piece)));
            let turn = [words, elements, timed(stats)];
            least.iter_mut().zip(turn).for_each(|(least, time)| *least = time.min(*least));
        }
        let [words, elements, stats] = least.map(|time| len as f64 / time.as_secs_f64() / 1e9);
        print!("{:14}  {words:7.2}  {elements:8.2}  {stats:7.2}  ", dtype.name());
        println!("{:5.2}  {:8.2}  {}", stats / words, stats / elements, numpy(dtype, &data));
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

/// Reads the file in pieces and does `work` with each, on all cores.
fn read(data: &Path, len: u64, work: impl Fn(&[u8]) + Sync) {
    const PIECE: u64 = 1 << 20;
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let share = |first: u64| {
        let mut file = File::open(data).unwrap();
        let mut piece = vec![0; PIECE as usize];
        for start in (first * PIECE..len).step_by((cores * PIECE) as usize) {
            let piece = &mut piece[..PIECE.min(len - start) as usize];
            file.seek(SeekFrom::Start(start)).unwrap();
            file.read_exact(piece).unwrap();
            work(piece);
        }
    };
    std::thread::scope(|scope| {
        (0..cores).for_each(|first| drop(scope.spawn(move || share(first))));
    });
}

/// Adds up a piece in the type of its elements; integers that are short in one of 32 bits.
fn elements(dtype: DataType, piece: &[u8]) {
    match dtype {
        DataType::Float => add(piece, f32::from_le_bytes),
        DataType::Double => add(piece, f64::from_le_bytes),
        DataType::Float16 => add_shorts(piece),
        DataType::Bfloat16 => {
            add(piece, |code| f32::from_bits(u32::from(u16::from_le_bytes(code)) << 16));
        }
        DataType::Float8E4M3Fn => {
            let table: Vec<_> = (0..=u8::MAX).collect();
            let table = Tensor::new(dtype, [256], table.into()).unwrap();
            let table = table.to_f32().unwrap();
            add(piece, |[code]| table[usize::from(code)]);
        }
        DataType::Int8 => add(piece, |[code]| i32::from(code as i8)),
        DataType::Uint8 => add(piece, |[code]| u32::from(code)),
        DataType::Int4 => {
            add(piece, |[code]| i32::from((code << 4) as i8 >> 4) + i32::from(code as i8 >> 4))
        }
        DataType::Uint4 => add(piece, |[code]| u32::from(code & 15) + u32::from(code >> 4)),
        DataType::Int16 => add(piece, |code| i32::from(i16::from_le_bytes(code))),
        DataType::Int32 => add(piece, |code| i64::from(i32::from_le_bytes(code))),
        _ => add(piece, i64::from_le_bytes),
    }
}

/// Adds up what `number` makes of each `N` bytes, in vectors of the processor.
fn add<const N: usize, T>(piece: &[u8], number: impl Fn([u8; N]) -> T)
where
    T: Copy + Default + Add<Output = T>,
{
    // With fewer the compiler takes some types apart.
    const LANES: usize = 64;
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut lanes = [T::default(); LANES];
            for chunk in piece.as_chunks::<N>().0.as_chunks::<LANES>().0 {
                lanes
                    .iter_mut()
                    .zip(chunk)
                    .for_each(|(lane, bytes)| *lane = *lane + number(*bytes));
            }
            black_box(lanes);
        },
    );
}

/// Adds up floats of 16 bits, of which the crate `half` converts many with an instruction.
fn add_shorts(piece: &[u8]) {
    let mut wide = [0.0; 4096];
    for block in piece.chunks(2 * wide.len()) {
        let block: &[f16] = bytemuck::cast_slice(block);
        let wide = &mut wide[..block.len()];
        block.convert_to_f32_slice(wide);
        add(bytemuck::cast_slice(wide), f32::from_le_bytes);
    }
}

/// The speed of numpy, GB/s, as text.
fn numpy(dtype: DataType, data: &Path) -> String {
    let name = dtype.name().to_lowercase().replace("double", "float64");
    let name = if name == "float" { "float32" } else { &name };
    let program = "import sys, time, numpy\n\
        def run():\n \
         start = time.perf_counter()\n \
         n = numpy.fromfile(sys.argv[2], sys.argv[1])\n \
         n.sum()\n \
         return n.nbytes / (time.perf_counter() - start) / 1e9\n\
        print('%.2f' % max(run() for _ in range(5)))";
    let done = Command::new(".venv/bin/python").args(["-c", program, name]).arg(data).output();
    let text = done.ok().filter(|done| done.status.success()).map(|done| done.stdout);
    String::from_utf8(text.unwrap_or_default()).unwrap().trim().to_owned()
}
