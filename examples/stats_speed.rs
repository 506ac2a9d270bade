//! How fast statistics of weights are, beside a plain read and sum of the same bytes.
//!
//! `cargo run --release --example stats_speed -- MODEL [ROUNDS]` prints the speed of each, and the
//! ratio: both use all cores, on the mapped files of the model, in turns. The sum is that of the
//! bytes as integers of 64 bits, which does nothing but read. On Linux the time that the processor
//! took is told too, which other programs hardly change.

use std::time::Instant;

use onnx_container::{Buffer, Container, MmapChoice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("give the path of a model")?;
    let rounds: u32 = args.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let (mut sums, mut stats) = (Times::default(), Times::default());
    let mut bytes = 0;
    for _ in 0..rounds {
        // Mapped anew for each: pages that are mapped already would be faster.
        let weights = weights(&load(&path)?);
        bytes = weights.iter().map(|weight| weight.len()).sum();
        sums.add(|| sum_of(&weights));
        let container = load(&path)?;
        stats.add(|| container.stats(|_| true)).as_ref().map_err(Clone::clone)?;
    }
    let gigabytes = bytes as f64 / 1e9;
    let speed = |seconds: f64| gigabytes / seconds;
    let (sum, stat) = (speed(sums.least), speed(stats.least));
    println!("{gigabytes:.2} GB: sum {sum:.2} GB/s, stats {stat:.2} GB/s, ratio {:.2}", stat / sum);
    let (sum, stat) = (sums.processor / f64::from(rounds), stats.processor / f64::from(rounds));
    println!("processor: sum {sum:.3} s, stats {stat:.3} s, ratio {:.2}", sum / stat);
    Ok(())
}

/// How long rounds took, in seconds.
struct Times {
    least: f64,
    /// On all cores together, of all rounds.
    processor: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self { least: f64::INFINITY, processor: 0.0 }
    }
}

impl Times {
    fn add<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, before) = (Instant::now(), processor_time());
        let result = work();
        self.least = self.least.min(start.elapsed().as_secs_f64());
        self.processor += processor_time() - before;
        std::hint::black_box(result)
    }
}

/// The seconds that this process had of the processor; zero where that is not known.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Time in the program and in the system, in hundredths.
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
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
