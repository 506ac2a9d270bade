//! How fast statistics of weights are, beside a plain read and sum of the same bytes.
//!
//! `cargo run --release --example stats_speed -- MODEL [ROUNDS]` prints the time of each, and the
//! ratio: both use all cores, on the mapped files of the model, in turns. The sum is that of the
//! bytes as integers of 64 bits, which does nothing but read.

use std::time::Instant;

use onnx_container::{Buffer, Container, MmapChoice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("give the path of a model")?;
    let rounds: usize = args.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let (mut sums, mut stats) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..rounds {
        // Mapped anew for each: pages that are mapped already would be faster.
        let weights = weights(&load(&path)?);
        bytes = weights.iter().map(|weight| weight.len()).sum();
        let start = Instant::now();
        let sum = sum_of(&weights);
        sums.push(start.elapsed().as_secs_f64());
        let container = load(&path)?;
        let start = Instant::now();
        let found = container.stats(|_| true)?;
        stats.push(start.elapsed().as_secs_f64());
        std::hint::black_box((sum, found));
    }
    let speed = |seconds: &[f64]| {
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        bytes as f64 / least / 1e9
    };
    let (sum, stats) = (speed(&sums), speed(&stats));
    println!(
        "{:.2} GB: sum {sum:.2} GB/s, stats {stats:.2} GB/s, {:.2}",
        bytes as f64 / 1e9,
        stats / sum
    );
    Ok(())
}

#[allow(unsafe_code)] // the promise about mapped files
fn load(path: &str) -> Result<Container, onnx_container::Error> {
    // SAFETY: nobody writes to the model while it is measured.
    Container::load(path, unsafe { MmapChoice::auto() })
}

/// The bytes of the weights, where they are mapped.
fn weights(container: &Container) -> Vec<Buffer> {
    container.iter().filter_map(|(_, weight)| weight.as_buffer()).collect()
}

/// The sum of all bytes as integers, by all cores.
fn sum_of(weights: &[Buffer]) -> u64 {
    const PART: usize = 3 << 20;
    let parts: Vec<_> = weights.iter().flat_map(|weight| weight.chunks(PART)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut sum = 0_u64;
        while let Some(part) = parts.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            sum = sum.wrapping_add(sum_of_part(part));
        }
        sum
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().filter_map(|other| other.join().ok()).fold(own, u64::wrapping_add)
    })
}

fn sum_of_part(part: &[u8]) -> u64 {
    let mut lanes = [0_u64; 8];
    let mut words = part.chunks_exact(64);
    for chunk in &mut words {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let rest = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
    lanes.into_iter().fold(rest, u64::wrapping_add)
}
