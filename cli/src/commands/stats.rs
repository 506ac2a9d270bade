//! `stats MODEL [GLOB...]`: what the elements of tensors are like.

use std::io::{self, IsTerminal};
use std::path::Path;

use glob::Pattern;
use onnx_container::stats::{Histogram, Number as Element, TensorStats};
use onnx_container::{Container, TensorRef};
use serde::Serialize;

use crate::args::StatsArgs;
use crate::commands::{Execute, leftovers};
use crate::model::{place, reading};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Number, Output, lossy};

impl Execute for StatsArgs {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the statistics of the tensors that were asked for.
fn run(args: &StatsArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let container = place::load(&args.model, reading::of(&args.read))?;
    refuse_idle(&container, &args.names)?;
    let in_part = args.part.map(|part| part.selects(&container));
    let is_selected = |tensor: &TensorRef<'_>| {
        in_part.as_ref().is_none_or(|has| has(tensor)) && is_selected(tensor.name(), &args.names)
    };
    let stats = container.stats(is_selected);
    let tensors = stats.map_err(|error| error.with_path(&args.model))?;
    if args.json {
        let warnings = leftovers::warnings([args.model.as_path()]);
        out.json(&Report { command: "stats", model: &args.model, tensors, warnings })?;
    } else {
        print(&tensors, out)?;
    }
    Ok(Outcome::Done)
}

fn is_selected(name: &str, globs: &[Pattern]) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob.matches(name))
}

/// Refuses a pattern that no tensor matches: it is mistyped.
fn refuse_idle(container: &Container, globs: &[Pattern]) -> Result<(), Failure> {
    let index = container.index();
    let is_idle = |glob: &&Pattern| !index.iter().any(|tensor| glob.matches(tensor.name()));
    globs.iter().find(is_idle).map_or(Ok(()), |glob| {
        let advice = match Path::new(glob.as_str()).is_file() {
            true => "stats takes one model, and patterns of names after it",
            false => "`inspect --top 0` lists the names",
        };
        let reason = format!("no tensor has a name like `{glob}`: {advice}");
        Err(Failure::Refused(reason))
    })
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    tensors: Vec<TensorStats>,
    warnings: Vec<String>,
}

/// A table, or on a terminal, which is too narrow for it, a few lines for each tensor.
fn print(tensors: &[TensorStats], out: &mut Output) -> io::Result<()> {
    if io::stdout().is_terminal() {
        return tensors.iter().try_for_each(|tensor| lines(tensor, out));
    }
    let names = ["MIN", "MAX", "MEAN", "STD"].map(|name| format!("{name:>12}")).join("  ");
    let counts = ["NAN", "INF", "ZEROS"].map(|name| format!("{name:>8}")).join("  ");
    out.line(format_args!("{names}  {counts}  {:<BARS$}  TYPE SHAPE  NAME", "HISTOGRAM"))?;
    tensors.iter().try_for_each(|tensor| row(tensor, out))
}

fn row(of: &TensorStats, out: &mut Output) -> io::Result<()> {
    let element = |number: Option<Element>| number.map_or("-".to_owned(), shown);
    let float = |number: Option<f64>| number.map_or("-".to_owned(), |it| Number(it).to_string());
    let numbers = [element(of.min), element(of.max), float(of.mean), float(of.std)];
    let numbers = numbers.map(|number| format!("{number:>12}")).join("  ");
    let counts = [of.nan, of.infinite, of.zeros].map(|count| format!("{count:>8}")).join("  ");
    let bars = of.histogram.as_ref().map(bars).unwrap_or_default();
    let equal = if of.all_equal { "  (all equal)" } else { "" };
    let form = form(of);
    out.line(format_args!("{numbers}  {counts}  {bars:<BARS$}  {form}  {}{equal}", of.name))
}

/// The type and the shape: `FLOAT [2,3]`.
fn form(of: &TensorStats) -> String {
    let shape: Vec<_> = of.shape.iter().map(ToString::to_string).collect();
    format!("{} [{}]", of.dtype, shape.join(","))
}

/// A tensor on a terminal: its name with its type, and below what is known of its elements.
fn lines(of: &TensorStats, out: &mut Output) -> io::Result<()> {
    out.folded(format_args!("{}  {}", of.name, form(of)), INDENT)?;
    let float = |number: Option<f64>| number.map(|number| Number(number).to_string());
    let numbers = [
        ("min", of.min.map(shown)),
        ("max", of.max.map(shown)),
        ("mean", float(of.mean)),
        ("std", float(of.std)),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
    let counts = [("nan", of.nan), ("inf", of.infinite), ("zeros", of.zeros)];
    let counts = counts.into_iter().filter(|(_, number)| *number > 0);
    let all = numbers.chain(counts.map(|(name, number)| (name, number.to_string())));
    let all: Vec<_> = all.map(|(name, number)| format!("{name} {number}")).collect();
    let equal = if of.all_equal { "all equal" } else { "" };
    let bars = of.histogram.as_ref().map(bars).unwrap_or_default();
    let parts = [all.join("  "), bars, equal.to_owned()];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    out.wrapped(" ".repeat(INDENT), parts, "  ", INDENT)
}

/// How far the lines below a name are indented.
const INDENT: usize = 4;

/// An integer as it is, a float in six digits.
fn shown(number: Element) -> String {
    match number {
        Element::Float(number) => Number(number).to_string(),
        integer => integer.to_string(),
    }
}

/// The width of a histogram in characters.
const BARS: usize = 16;
/// From the fewest elements to the most. A bin without any is a space.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The histogram in a few characters, each of several bins.
fn bars(histogram: &Histogram) -> String {
    let counts = &histogram.counts;
    let in_one = counts.len().div_ceil(BARS).max(1);
    let sums: Vec<u64> = counts.chunks(in_one).map(|bins| bins.iter().sum()).collect();
    let most = sums.iter().copied().max().unwrap_or_default().max(1);
    let bar = |sum: &u64| {
        let part = u128::from(*sum) * HEIGHTS.len() as u128;
        let height = usize::try_from(part.div_ceil(u128::from(most)));
        let height = height.ok().and_then(|height| height.checked_sub(1));
        height.and_then(|height| HEIGHTS.get(height)).copied().unwrap_or(' ')
    };
    sums.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_container::Tensor;
    use onnx_container::proto::{GraphProto, ModelProto};

    #[test]
    fn bars_are_as_high_as_bins_are_full() {
        for (elements, expected) in [
            (vec![1.0_f32], "█"),
            (vec![0.0, 1.0, 1.0], "▄         █"),
            ((0..64).map(|n| n as f32).collect(), "████████████████"),
        ] {
            let mut graph = GraphProto::new("g");
            graph.initializer.push(Tensor::from(elements).to_proto("w"));
            let stats = Container::new(ModelProto::new(graph)).stats(|_| true).unwrap();
            let found = bars(stats[0].histogram.as_ref().unwrap());
            assert_eq!(found.trim_end(), expected);
        }
    }
}
