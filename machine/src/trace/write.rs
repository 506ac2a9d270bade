//! Writes the trace of a run, line by line while it runs.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;

use onnx_container::{Container, element_count};
use serde::Serialize;

use super::digest::{hex, traced};
use super::hasher::{Hasher, Sha};
use super::known::KnownDigests;
use super::{Chain, End, Head, Line, Stats, Step, TracedValue, VERSION, failed, json, weights};
use crate::error::{Error, Result};
use crate::exact::OrBug;
use crate::machine::{Machine, StepRecord, Touched, Watch};
use crate::memory::table::{Entry, Stored, dims};
use crate::memory::{Memory, Span};
use crate::numeric::{larger, smaller};
use crate::plan::{PlanOptions, plan_program};
use crate::program::Program;
use crate::program::text::operator_sets;
use crate::value::compare::{chunks_of, to_f64};
use crate::value::data;

/// What a trace has besides the digests.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    model: Option<String>,
    stats: bool,
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
}

/// What gets every output of every step; see [`TraceWriter::dump`].
type Dump = Box<dyn FnMut(&str, &Dumped<'_>) -> Result<()> + Send>;

/// An output of a step that is about to be kept.
#[derive(Debug)]
pub struct Dumped<'a> {
    value: &'a Touched,
    memory: &'a Memory,
}

impl Dumped<'_> {
    /// Writes it as onnx's test data: a TensorProto, SequenceProto or OptionalProto. The elements
    /// of a tensor in memory are not copied.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        match self.value.entry.stored() {
            Stored::Tensor(slot) => {
                let bytes = self.memory.read(slot.span()?)?;
                data::write_tensor(slot.dtype, dims(&slot.shape)?, bytes, out)
            }
            Stored::Outside(value) => data::write(value, out),
        }
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
/// use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};
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
/// let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
/// machine.bind("x", Value::from_elements([2], &[1.0_f32, 3.0])?)?;
/// let mut lines = Vec::new();
/// let mut trace = TraceWriter::new(&mut lines, &container, &mut machine, TraceOptions::new())?;
/// trace.run(&mut machine)?;
/// trace.finish(&machine)?;
///
/// let trace = Trace::read(&lines[..])?;
/// assert_eq!(trace.steps[0].op, "ai.onnx.Add-21");
/// assert!(trace.end.outputs[0].is_same(&trace.steps[0].outputs[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceWriter<W> {
    out: W,
    options: TraceOptions,
    dump: Option<Dump>,
    chain: Chain,
    steps: u64,
    hasher: Hasher,
    known: KnownDigests,
    /// Steps that were taken and are not written yet, because digests of them are being made.
    unwritten: VecDeque<(Step, Vec<Sha>)>,
}

impl<W> fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, steps, .. } = self;
        f.debug_struct("TraceWriter")
            .field("options", options)
            .field("steps", steps)
            .finish_non_exhaustive()
    }
}

impl<W: Write> TraceWriter<W> {
    /// Writes the head: of `machine`, whose inputs are bound, and which runs the model of
    /// `container`. The inputs are placed, because the head says where they are.
    ///
    /// # Errors
    /// Those of [`Machine::place_inputs`]; and when the line cannot be written.
    pub fn new(
        out: W,
        container: &Container,
        machine: &mut Machine,
        options: TraceOptions,
    ) -> Result<Self> {
        let (chain, hasher) = (Chain::default(), Hasher::new());
        let (known, unwritten) = (KnownDigests::default(), VecDeque::new());
        let mut writer =
            Self { out, options, dump: None, chain, steps: 0, hasher, known, unwritten };
        machine.place_inputs()?;
        let head = writer.head(container, machine)?;
        writer.line(Line::Head(head))?;
        Ok(writer)
    }

    /// Gives every output of every step to `dump`, with the name that a file for it has: output 0
    /// of step 12 is `12_0.pb`. [`Trace::dumped`](super::Trace::dumped) reads such files. Where
    /// they are, and what they may replace, is up to the caller.
    #[must_use]
    pub fn dump(
        mut self,
        dump: impl FnMut(&str, &Dumped<'_>) -> Result<()> + Send + 'static,
    ) -> Self {
        self.dump = Some(Box::new(dump));
        self
    }

    fn head(&mut self, container: &Container, machine: &Machine) -> Result<Head> {
        let program = machine.program();
        let weights = weights::of(program, machine.memory())?;
        for weight in &weights {
            self.known.add_weight(weight);
        }
        let inputs = touched(program, machine, program.main.inputs.iter().map(|i| i.value));
        let plan = plan_program(program, machine.registry(), machine.sizes(), PlanOptions::new());
        let plan = plan.ok().filter(|plan| plan.barrier.is_none()).map(|plan| plan.plan);
        Ok(Head {
            v: VERSION,
            profile: machine.registry().profile().name().to_owned(),
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

    /// The values, with their digests.
    fn values(&mut self, touched: &[Touched], memory: &Memory) -> Result<Vec<TracedValue>> {
        let mut shas = Vec::new();
        let mut values = self.begun(touched, memory, &mut shas)?;
        while !are_made(&shas) {
            self.hasher.advance(true)?;
        }
        fill(values.iter_mut(), &shas)?;
        Ok(values)
    }

    /// As [`values`](Self::values), but digests of what lies in M are [`LATER`], and added to
    /// `shas`.
    fn begun(
        &mut self,
        touched: &[Touched],
        memory: &Memory,
        shas: &mut Vec<Sha>,
    ) -> Result<Vec<TracedValue>> {
        let Self { hasher, known, .. } = self;
        let one = |touched: &Touched| {
            if let Some(bytes) = touched.bytes(memory)? {
                shas.push(known.get_or_make(touched, memory, || hasher.ask(bytes))?);
            }
            traced(touched, LATER.to_owned())
        };
        touched.iter().map(one).collect()
    }

    /// Writes the steps whose digests are made; with `wait` all that were taken.
    fn write_steps(&mut self, wait: bool) -> Result<()> {
        while let Some((_, shas)) = self.unwritten.front() {
            while !are_made(shas) {
                if !self.hasher.advance(wait)? {
                    return Ok(());
                }
            }
            if let Some((mut step, shas)) = self.unwritten.pop_front() {
                fill(step.inputs.iter_mut().chain(&mut step.outputs), &shas)?;
                self.line(Line::Step(step))?;
            }
        }
        Ok(())
    }

    /// Takes all steps of `machine` that are left, and writes each. It is the machine that the head
    /// was written for: contents of memory are numbered by each machine for itself.
    ///
    /// The trace is the same as that of [`step`](Self::step) in [`Machine::run_with`]. It takes
    /// less time: bytes that a step writes over are not kept when their digest is known.
    ///
    /// # Errors
    /// Those of [`Machine::run`] and of [`step`](Self::step).
    pub fn run(&mut self, machine: &mut Machine) -> Result<()> {
        machine.run_watched(self)
    }

    /// Writes the line of a step: what [`Machine::step_with`] and [`Machine::run_with`] show. Its
    /// digests are made while the run goes on, of copies, of which at most 64 MiB wait at a time.
    /// So a line may be written by a later step or [`finish`](Self::finish).
    ///
    /// # Errors
    /// When the line cannot be written, and those of the dump.
    pub fn step(&mut self, record: &StepRecord, memory: &Memory) -> Result<()> {
        let StepRecord { path, node, op, version, reads, writes } = record;
        let (domain, op) = op.rsplit_once("::").unwrap_or(("ai.onnx", op)); // the default domain
        self.dump_outputs(writes, memory)?;
        let stats = || writes.iter().map(|value| stats(value, memory)).collect::<Result<_>>();
        let stats = self.options.stats.then(stats).transpose()?;
        let mut shas = Vec::new();
        let step = Step {
            i: self.steps,
            path: path.clone(),
            node: node.clone(),
            op: format!("{domain}.{op}-{version}"),
            inputs: self.begun(reads, memory, &mut shas)?,
            outputs: self.begun(writes, memory, &mut shas)?,
            stats,
            chain: None,
        };
        self.steps += 1;
        self.known.forget(memory);
        self.unwritten.push_back((step, shas));
        self.write_steps(false)
    }

    /// Writes the lines of all steps that were taken, as [`finish`](Self::finish) does: for a run
    /// that ended in an error.
    ///
    /// # Errors
    /// When a line cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.write_steps(true)?;
        self.out.flush().map_err(unwritten)
    }

    fn dump_outputs(&mut self, writes: &[Touched], memory: &Memory) -> Result<()> {
        let Some(dump) = &mut self.dump else { return Ok(()) };
        let mut each = writes.iter().enumerate();
        each.try_for_each(|(j, value)| dump(&file_name(self.steps, j), &Dumped { value, memory }))
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
        let outputs = self.values(&outputs, machine.memory())?;
        self.line(Line::End(End {
            steps: self.steps,
            outputs,
            high_water: machine.memory().high_water(),
            chain: None,
        }))?;
        self.out.flush().map_err(unwritten)
    }

    fn line(&mut self, mut line: Line) -> Result<()> {
        let (_, stats) = line.take_chain();
        let mut text = json(&line)?;
        let last = Last { stats, chain: self.chain.next(&text) };
        // Its last keys stand where the brace at the end of the line is, behind a comma for that at
        // their start.
        let end = text.len().saturating_sub(1);
        text.splice(end.., json(&last)?);
        if let Some(brace) = text.get_mut(end) {
            *brace = b',';
        }
        text.push(b'\n');
        self.out.write_all(&text).map_err(unwritten)
    }
}

/// The keys of a line that are not part of its digest.
#[derive(Serialize)]
struct Last {
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Vec<Stats>>,
    chain: String,
}

impl<W: Write> Watch for TraceWriter<W> {
    fn needs(&self, span: Span, memory: &Memory) -> bool {
        !self.known.has(span, memory)
    }

    fn show(&mut self, record: &StepRecord, memory: &Memory) -> Result<()> {
        self.step(record, memory)
    }
}

fn are_made(shas: &[Sha]) -> bool {
    shas.iter().all(|sha| sha.get().is_some())
}

/// Gives those of `values` that have their digests [`LATER`] those of `shas`, in their order.
fn fill<'v>(values: impl Iterator<Item = &'v mut TracedValue>, shas: &[Sha]) -> Result<()> {
    let later = values.filter(|value| value.sha == LATER);
    for (value, sha) in later.zip(shas) {
        value.sha = sha.get().cloned().or_bug("a digest that is not made yet")?;
    }
    Ok(())
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
        let (name, entry) = (program.main.name(id), machine.table().get(id)?);
        Some(Touched::new(name, entry, machine.memory()))
    };
    ids.filter_map(touched).collect()
}

/// The operator sets that the model imports.
fn imports(container: &Container) -> impl Iterator<Item = (String, i64)> {
    operator_sets(&container.model().opset_import).map(|(domain, version)| {
        let domain = if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
        (domain, version)
    })
}

/// The range of a tensor of real numbers; of another value, nothing.
fn stats(touched: &Touched, memory: &Memory) -> Result<Stats> {
    let mut stats = Stats { min: None, max: None, nan: 0, inf: 0 };
    let Entry::Tensor(slot) = &touched.entry else { return Ok(stats) };
    let count = usize::try_from(element_count(&dims(&slot.shape)?)?).map_err(Error::internal)?;
    for part in chunks_of(slot.dtype, count, memory.read(slot.span()?)?) {
        for element in to_f64(&part?)? {
            stats.nan += u64::from(element.is_nan());
            stats.inf += u64::from(element.is_infinite());
            if element.is_finite() {
                stats.min = Some(stats.min.map_or(element, |min| smaller(min, element)));
                stats.max = Some(stats.max.map_or(element, |max| larger(max, element)));
            }
        }
    }
    Ok(stats)
}
