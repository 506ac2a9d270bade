//! How long runs take: each run as a whole, and the steps of the machine by operator.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::terminal::output::Output;

/// How many operators are printed for people; JSON has all of them.
const SHOWN: usize = 12;

/// The durations of some runs with the same inputs.
#[derive(Debug, Default)]
pub struct Timings {
    runs: Vec<Duration>,
    /// The steps of each operator in all runs, and their time.
    operators: HashMap<String, (u64, Duration)>,
}

impl Timings {
    /// Notes a run that began at `start`, when its inputs were given, and has its outputs now.
    pub fn end_run(&mut self, start: Instant) {
        self.runs.push(start.elapsed());
    }

    /// Notes a step of `op` that took so long, without the steps of its inner graphs.
    pub fn add_step(&mut self, op: &str, duration: Duration) {
        if let Some((steps, sum)) = self.operators.get_mut(op) {
            *steps += 1;
            *sum += duration;
        } else {
            self.operators.insert(op.to_owned(), (1, duration));
        }
    }
}

/// Durations for people and as JSON, all in seconds.
#[derive(Debug, Serialize)]
pub struct TimingsReport {
    /// Each run, from the binding of its inputs to its outputs, in the order of the runs.
    seconds: Vec<f64>,
    median: f64,
    /// Where the time of a run goes, the most first; empty for onnxruntime, which does not tell.
    operators: Vec<Operator>,
}

/// All steps of one operator in a run, on average over the runs.
#[derive(Debug, Serialize)]
struct Operator {
    op: String,
    steps: u64,
    seconds: f64,
}

impl From<Timings> for TimingsReport {
    fn from(timings: Timings) -> Self {
        let seconds: Vec<f64> = timings.runs.iter().map(Duration::as_secs_f64).collect();
        let runs = timings.runs.len().max(1);
        let of_run = |(op, (steps, sum)): (String, (u64, Duration))| Operator {
            op,
            steps: steps / runs as u64,
            seconds: sum.as_secs_f64() / runs as f64,
        };
        let mut operators: Vec<_> = timings.operators.into_iter().map(of_run).collect();
        operators.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.op.cmp(&b.op)));
        Self { median: median(&seconds), seconds, operators }
    }
}

impl TimingsReport {
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let fastest = self.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        match self.seconds.len() {
            0 | 1 => out.row("took", format_args!("{}", Milliseconds(self.median)))?,
            runs => out.row(
                "took",
                format_args!(
                    "{}, the median of {runs} runs; the fastest {}",
                    Milliseconds(self.median),
                    Milliseconds(fastest),
                ),
            )?,
        }
        for Operator { op, steps, seconds } in self.operators.iter().take(SHOWN) {
            let percent = 100.0 * seconds / self.median.max(f64::MIN_POSITIVE);
            let time = Milliseconds(*seconds).to_string();
            out.line(format_args!("          {time:>12} {percent:4.0} %  {op} x {steps}"))?;
        }
        Ok(())
    }
}

/// Seconds, printed as milliseconds.
struct Milliseconds(f64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.3} ms", self.0 * 1e3);
        f.pad(&text)
    }
}

/// The middle of `seconds`, or the mean of the two in the middle; 0 of none.
fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |i: usize| sorted.get(i).copied().unwrap_or_default();
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        (at(middle.saturating_sub(1)) + at(middle)) / 2.0
    }
}
