//! Writes the trace of a run, line by line while it runs.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use onnx_container::Container;
use onnx_container::proto::Str;

use super::digest::{hex, traced};
use super::hasher::{Asked, Hasher};
use super::{
    Chain, End, Head, Line, PROFILE, Stats, Step, TracedValue, VERSION, failed, json, weights,
};
use crate::compare::to_f64;
use crate::error::Result;
use crate::machine::{Machine, StepRecord, Touched};
use crate::memory::Memory;
use crate::plan::{PlanOptions, plan_program};
use crate::program::Program;
use crate::table::Entry;
use crate::value::Value;
use crate::{data, memory};

/// What a trace has besides the digests.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    model: Option<String>,
    stats: bool,
    dump: Option<PathBuf>,
}

impl TraceOptions {
    /// Digests alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// `sha` is the SHA-256 of the model file, in hexadecimal digits.
    #[must_use]
    pub fn model(mut self, sha: impl Into<String>) -> Self {
        self.model = Some(sha.into());
        self
    }

    /// The range of every output: min, max, and how many elements are not finite.
    #[must_use]
    pub fn stats(mut self, stats: bool) -> Self {
        self.stats = stats;
        self
    }

    /// Every output is written to a file in `folder`: output 0 of step 12 to `12_0.pb`, as onnx's test data.
    #[must_use]
    pub fn dump(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump = Some(folder.into());
        self
    }
}

/// What stands for a digest that is being made.
const LATER: &str = "";

/// Writes a trace: the head when it is made, each step that it is shown, and the end.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
/// use onnx_container::{Container, DataType};
/// use onnx_container_machine::trace::{Trace, TraceOptions, TraceWriter};
/// use onnx_container_machine::{Limits, Machine, Program, ProgramOptions, Registry, Value};
///
/// let mut graph = GraphProto::new("g");
/// graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [2]));
/// graph.node.push(NodeProto::new("Add", ["x", "x"], ["y"]));
/// graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [2]));
/// let mut model = ModelProto::new(graph);
/// model.opset_import = vec![OperatorSetIdProto::new("", 21)];
/// let container = Container::new(model);
///
/// let program = Program::new(&container, ProgramOptions::new())?;
/// let mut machine = Machine::new(program, Registry::new(), Limits::new());
/// machine.bind("x", Value::from_elements([2], &[1.0_f32, 3.0])?)?;
/// let mut lines = Vec::new();
/// let mut trace = TraceWriter::new(&mut lines, &container, &machine, TraceOptions::new())?;
/// machine.run_with(&mut |step, memory| trace.step(step, memory))?;
/// trace.finish(&machine)?;
///
/// let trace = Trace::read(&lines[..])?;
/// assert_eq!(trace.steps[0].op, "ai.onnx.Add-21");
/// assert!(trace.end.outputs[0].is_same(&trace.steps[0].outputs[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    options: TraceOptions,
    chain: Chain,
    steps: u64,
    hasher: Hasher,
    /// Steps that were taken and are not written yet, because digests of them are being made.
    unwritten: VecDeque<Step>,
    /// The digests of the constants, which never change, by address and length.
    weights: HashMap<(u64, u64), String>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the head: of `machine`, whose inputs are bound, and which runs the model of `container`.
    ///
    /// # Errors
    /// When the line cannot be written, or the dump's folder cannot be made.
    pub fn new(
        out: W,
        container: &Container,
        machine: &Machine,
        options: TraceOptions,
    ) -> Result<Self> {
        if let Some(folder) = &options.dump {
            fs::create_dir_all(folder).map_err(|e| onnx_container::Error::io(folder, e))?;
        }
        let (chain, hasher) = (Chain::default(), Hasher::new());
        let (unwritten, weights) = (VecDeque::new(), HashMap::new());
        let mut writer = Self { out, options, chain, steps: 0, hasher, unwritten, weights };
        let head = writer.head(container, machine)?;
        writer.line(Line::Head(head))?;
        Ok(writer)
    }

    fn head(&mut self, container: &Container, machine: &Machine) -> Result<Head> {
        let program = machine.program();
        let weights = weights::of(program, machine.memory())?;
        let mapped = weights.iter().filter(|weight| weight.bytes > 0);
        self.weights = mapped.filter_map(|w| Some(((w.off?, w.bytes), w.sha.clone()))).collect();
        let inputs = touched(program, machine, program.main.inputs.iter().map(|i| i.value));
        let plan = plan_program(program, machine.registry(), machine.sizes(), PlanOptions::new());
        let plan = plan.ok().filter(|plan| plan.barrier.is_none()).map(|plan| plan.plan);
        Ok(Head {
            v: VERSION,
            profile: PROFILE.to_owned(),
            model: self.options.model.clone(),
            semantic: container.semantic_digest().ok().map(|digest| hex(digest.as_bytes())),
            opset: imports(container).collect(),
            dims: machine.sizes().iter().map(|(name, n)| (name.clone(), *n as u64)).collect(),
            n: plan.as_ref().map(|plan| plan.arena_bytes),
            lb: plan.as_ref().map(|plan| plan.lower_bound),
            weights,
            inputs: self.values(&inputs, machine.memory())?,
            chain: None,
        })
    }

    fn values(&self, touched: &[Touched], memory: &Memory) -> Result<Vec<TracedValue>> {
        let one = |touched: &Touched| traced(touched, memory, self.known(touched)?);
        touched.iter().map(one).collect()
    }

    /// The digest of a constant.
    fn known(&self, touched: &Touched) -> Result<Option<&String>> {
        Ok(match &touched.entry {
            Entry::Tensor(slot) if slot.offset >= memory::WEIGHTS => {
                self.weights.get(&(slot.offset, slot.span()?.len))
            }
            _ => None,
        })
    }

    /// As [`values`](Self::values), but digests that take a while are [`LATER`].
    fn begun(&mut self, touched: &[Touched], memory: &Memory) -> Result<Vec<TracedValue>> {
        let mut one = |touched: &Touched| {
            if self.known(touched)?.is_none()
                && let Some(bytes) = touched.bytes(memory)?
            {
                let sha = match self.hasher.ask(bytes) {
                    Asked::Known(sha) => sha,
                    Asked::Later => LATER.to_owned(),
                };
                return traced(touched, memory, Some(&sha));
            }
            traced(touched, memory, self.known(touched)?)
        };
        touched.iter().map(&mut one).collect()
    }

    /// Writes the steps whose digests are made; with `wait` all that were taken.
    fn write_steps(&mut self, wait: bool) -> Result<()> {
        while let Some(step) = self.unwritten.front_mut() {
            let values = step.inputs.iter_mut().chain(&mut step.outputs);
            for value in values.filter(|value| value.sha == LATER) {
                let Some(sha) = self.hasher.next(wait)? else { return Ok(()) };
                value.sha = sha;
            }
            if let Some(step) = self.unwritten.pop_front() {
                self.line(Line::Step(step))?;
            }
        }
        Ok(())
    }

    /// Writes the line of a step: what [`Machine::step_with`] and [`Machine::run_with`] show. Its digests are made while
    /// the run goes on, of copies, of which at most 64 MiB wait at a time. So a line may be written by a later step or [`finish`](Self::finish).
    ///
    /// # Errors
    /// When the line, or a file of the dump, cannot be written.
    pub fn step(&mut self, record: &StepRecord, memory: &Memory) -> Result<()> {
        let StepRecord { path, node, op, version, reads, writes } = record;
        let (domain, op) = op.rsplit_once("::").unwrap_or(("ai.onnx", op));
        self.dump(writes, memory)?;
        let stats = || writes.iter().map(|value| stats(value, memory)).collect::<Result<_>>();
        let stats = self.options.stats.then(stats).transpose()?;
        let step = Step {
            i: self.steps,
            path: path.clone(),
            node: node.clone(),
            op: format!("{domain}.{op}-{version}"),
            inputs: self.begun(reads, memory)?,
            outputs: self.begun(writes, memory)?,
            stats,
            chain: None,
        };
        self.steps += 1;
        self.unwritten.push_back(step);
        self.write_steps(false)
    }

    /// Writes the lines of all steps that were taken, as [`finish`](Self::finish) does: for a run that ended in an error.
    ///
    /// # Errors
    /// When a line cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.write_steps(true)?;
        self.out.flush().map_err(unwritten)
    }

    fn dump(&self, writes: &[Touched], memory: &Memory) -> Result<()> {
        let Some(folder) = &self.options.dump else { return Ok(()) };
        for (j, touched) in writes.iter().enumerate() {
            let path = folder.join(file_name(self.steps, j));
            let bytes = data::encode(&touched.entry.to_value(memory)?)?;
            fs::write(&path, bytes).map_err(|e| onnx_container::Error::io(path, e))?;
        }
        Ok(())
    }

    /// Writes the end: after the last step of `machine`.
    ///
    /// # Errors
    /// When an output is not computed yet, or the line cannot be written.
    pub fn finish(mut self, machine: &Machine) -> Result<()> {
        let program = machine.program();
        let outputs = touched(program, machine, program.main.outputs.iter().map(|o| o.value));
        if outputs.len() != program.main.outputs.len() {
            return Err(failed("the run is not at its end: an output is not computed yet"));
        }
        self.write_steps(true)?;
        self.line(Line::End(End {
            steps: self.steps,
            outputs: self.values(&outputs, machine.memory())?,
            high_water: machine.memory().high_water(),
            chain: None,
        }))?;
        self.out.flush().map_err(unwritten)
    }

    fn line(&mut self, mut line: Line) -> Result<()> {
        let (_, stats) = line.take_chain();
        let chain = self.chain.next(&line)?;
        line.put_chain(chain, stats);
        let mut text = json(&line)?;
        text.push(b'\n');
        self.out.write_all(&text).map_err(unwritten)
    }
}

/// The name of the file that a dump has for output `j` of step `i`.
pub(super) fn file_name(i: u64, j: usize) -> String {
    format!("{i}_{j}.pb")
}

fn unwritten(error: std::io::Error) -> crate::error::Error {
    failed(format_args!("the trace cannot be written: {error}"))
}

/// The values `ids` of the main graph that are in memory now.
fn touched(
    program: &Program,
    machine: &Machine,
    ids: impl Iterator<Item = crate::program::ValueId>,
) -> Vec<Touched> {
    let touched = |id| {
        let entry = machine.table().get(id)?.clone();
        Some(Touched { name: program.main.name(id).to_owned(), entry, overwritten: None })
    };
    ids.filter_map(touched).collect()
}

/// The operator sets that the model imports.
fn imports(container: &Container) -> impl Iterator<Item = (String, i64)> {
    container.model().opset_import.iter().map(|import| {
        let domain = import.domain.as_ref().map(Str::to_string_lossy).unwrap_or_default();
        let domain = if domain.is_empty() { "ai.onnx".into() } else { domain };
        (domain.into_owned(), import.version.unwrap_or_default())
    })
}

/// The range of a tensor of real numbers; of another value, nothing.
fn stats(touched: &Touched, memory: &Memory) -> Result<Stats> {
    let mut stats = Stats { min: None, max: None, nan: 0, inf: 0 };
    let Value::Tensor(tensor) = touched.entry.to_value(memory)? else { return Ok(stats) };
    if tensor.strings().is_some() {
        return Ok(stats);
    }
    for element in to_f64(&tensor)? {
        stats.nan += u64::from(element.is_nan());
        stats.inf += u64::from(element.is_infinite());
        if element.is_finite() {
            stats.min = Some(stats.min.map_or(element, |min| min.min(element)));
            stats.max = Some(stats.max.map_or(element, |max| max.max(element)));
        }
    }
    Ok(stats)
}
