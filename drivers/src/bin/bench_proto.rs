//! One measurement for `scripts/bench_proto.py`, in a process of its own.
//!
//! `bench_proto MODEL [THREADS]` reads a model, decodes it and encodes it into memory, and prints
//! the seconds of wall time and of CPU time that each took, and the anonymous memory in bytes that
//! the decoded model takes.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use onnx_container::Buffer;
use onnx_container::proto::{DecodeOptions, Message, ModelProto};

/// Seconds of CPU time of all threads so far, counted in hundredths.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command may hold blanks, but it ends with a bracket; user and system time follow.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Anonymous memory in bytes.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (start, before) = (Instant::now(), cpu());
    let result = work();
    (result, start.elapsed().as_secs_f64(), cpu() - before)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: bench_proto MODEL [THREADS]")?;
    let threads = arguments.next().map_or(Ok(0), |threads| threads.parse())?;
    let input = Buffer::from(fs::read(path)?);
    let before = anonymous();
    let options = DecodeOptions::new().threads(threads);

    let (model, parse, parse_cpu) = timed(|| ModelProto::decode_with(&input, &options));
    let model = model?;
    let memory = anonymous() - before;
    let (bytes, write, write_cpu) = timed(|| model.encode_to_vec());
    let same = black_box(bytes?)[..] == input[..];
    let ((), free, _) = timed(|| drop(model));
    println!("{parse} {parse_cpu} {write} {write_cpu} {memory} {same} {free}");
    Ok(())
}
