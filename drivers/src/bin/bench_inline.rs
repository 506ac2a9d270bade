//! Times the steps of inlining a model: `bench_inline IN [OUT]`, one line of JSON.
//!
//! `scripts/bench_inline.py` runs it beside onnx's and onnx_ir's inliners. It has the allocator of
//! the command.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use mimalloc::MiMalloc;
use onnx_container::Buffer;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{DecodeOptions, Message, ModelProto};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let input = args.next().ok_or("usage: bench_inline IN [OUT]")?;
    let bytes = Buffer::from(std::fs::read(&input)?);

    let start = Instant::now();
    let mut model = ModelProto::decode_with(&bytes, &DecodeOptions::default())?;
    let parse = start.elapsed();
    let (parsed, parsed_peak) = (status("VmRSS:"), status("VmHWM:"));
    let start = Instant::now();
    let inlined = inline_functions(&mut model, InlineOptions::new())?;
    let inline = start.elapsed();
    let peak = status("VmHWM:");
    let start = Instant::now();
    let written = model.encode_to_vec()?;
    let write = start.elapsed();
    println!(
        "{{\"parse\": {}, \"inline\": {}, \"write\": {}, \"calls\": {}, \"nodes\": {}, \"bytes\": {}, \
         \"parsed_kb\": {parsed}, \"parsed_peak_kb\": {parsed_peak}, \"peak_kb\": {peak}}}",
        parse.as_secs_f64(),
        inline.as_secs_f64(),
        write.as_secs_f64(),
        inlined.calls,
        model.graph.as_ref().map_or(0, |graph| graph.node.len()),
        written.len(),
    );
    if let Some(output) = args.next() {
        std::fs::write(output, written)?;
    }
    Ok(())
}

/// A line of the system's about this process, in kB: 0 where it has none.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
