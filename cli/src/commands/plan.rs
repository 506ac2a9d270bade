//! `plan MODEL`, `plan --csv-in FILE`: where every tensor lies in memory, and how much that needs.

mod text;

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use onnx_container::{ByteSize, Error};
use onnx_container_files::targets::refusal;
use onnx_container_machine::plan::{
    Barrier, Block, Effort, Named, Plan, PlanOptions, PlannedTensor, Row, draw_svg, plan,
    plan_program, read_csv, write_csv,
};
use onnx_container_machine::{Program, ProgramOptions, Registry};
use serde::Serialize;

use crate::args::PlanArgs;
use crate::commands::Execute;
use crate::commands::evaluate::{FoldedNodes, sizes, sizes_of};
use crate::files::staged::Staged;
use crate::model::{needed, place, reading};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy, print_on_stderr};
use crate::terminal::progress::is_quiet;
use crate::terminal::stop;

impl Execute for PlanArgs {
    fn name(&self) -> &'static str {
        "plan"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        self.model.as_deref().into_iter().collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Plans, draws and prints.
fn run(args: &PlanArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let planned = match (&args.model, &args.csv_in) {
        (Some(model), _) => of_model(model, args)?,
        (None, Some(file)) => {
            check_drawing(args, &[file.canonicalize().map_err(|error| Error::io(file, error))?])?;
            of_list(file, args)?
        }
        (None, None) => return Err(Failure::Usage("no MODEL and no --csv-in".to_owned())),
    };
    if let Some(file) = &args.svg {
        draw(&planned, file).map_err(stop::unwritten)?;
    }
    if args.json {
        out.json(&planned.report(args))?;
    } else if args.csv {
        out.write_all(write_csv(&planned.rows()).as_bytes())?;
    } else {
        text::print(&planned, args, out)?;
    }
    planned.warn(args);
    Ok(Outcome::of(planned.fits(args) == Some(true)))
}

/// Refuses a drawing that would replace a file that has to be kept; `own` are the files that are
/// read.
fn check_drawing(args: &PlanArgs, own: &[PathBuf]) -> Result<(), Error> {
    let refused = args.svg.as_ref().and_then(|path| refusal(path, own, false));
    refused.map_or(Ok(()), Err)
}

fn draw(planned: &Planned, path: &Path) -> Result<(), Error> {
    let drawing = draw_svg(&planned.rows(), &planned.plan);
    let write =
        |file: &mut dyn Write| file.write_all(drawing.as_bytes()).map_err(|e| Error::io(path, e));
    Staged::new(path.to_owned(), false, write)?.publish(false)
}

fn options(args: &PlanArgs) -> PlanOptions {
    let effort = args.search.map_or(Effort::Greedy, Effort::Search);
    PlanOptions::new().effort(effort).capacity(args.capacity.unwrap_or(0))
}

fn of_list(file: &Path, args: &PlanArgs) -> Result<Planned, Failure> {
    let opened = File::open(file).map_err(|error| Error::io(file, error))?;
    let named = read_csv(opened).map_err(|error| Failure::from(error).about(file))?;
    let blocks: Vec<_> = named.iter().map(|named| named.block.clone()).collect();
    let plan = plan(&blocks, options(args)).map_err(|error| Failure::from(error).about(file))?;
    let tensor = |(named, offset): (Named, &u64)| Tensor {
        name: named.id,
        dtype: None,
        shape: None,
        steps: named.block.steps.clone(),
        block: named.block,
        offset: *offset,
        shares: None,
    };
    let tensors = named.into_iter().zip(&plan.offsets).map(tensor).collect();
    Ok(Planned { source: file.to_owned(), plan, tensors, nodes: None, folded: None, barrier: None })
}

fn of_model(model: &Path, args: &PlanArgs) -> Result<Planned, Failure> {
    let reading = reading::of(&args.read);
    if args.svg.is_some() {
        check_drawing(args, &needed::files(model, reading)?)?;
    }
    let container = place::load(model, reading)?;
    let program = Program::new(&container, ProgramOptions::new().limits(reading.limits))?;
    // The messages of many nodes are as large as their plan, and no longer needed.
    drop(container);
    let sizes = sizes_of(&program, sizes(&args.dim)?);
    let planned = plan_program(&program, &Registry::new(), &sizes, options(args))?;
    let tensor = |tensor: PlannedTensor| Tensor {
        name: tensor.name,
        dtype: Some(tensor.dtype.to_string()),
        shape: Some(tensor.shape),
        steps: tensor.steps,
        block: tensor.block,
        offset: tensor.offset,
        shares: tensor.shares,
    };
    let nodes = program.main.nodes.iter().map(|node| node.op()).collect();
    let folded = Some(FoldedNodes::of(&program));
    Ok(Planned {
        source: model.to_owned(),
        tensors: planned.tensors.into_iter().map(tensor).collect(),
        plan: planned.plan,
        nodes: Some(nodes),
        folded,
        barrier: planned.barrier,
    })
}

/// A plan with the names of what was planned.
struct Planned {
    source: PathBuf,
    plan: Plan,
    tensors: Vec<Tensor>,
    /// The operator of each step, of a model.
    nodes: Option<Vec<String>>,
    folded: Option<FoldedNodes>,
    barrier: Option<Barrier>,
}

/// A tensor, or a block of a list.
struct Tensor {
    name: String,
    dtype: Option<String>,
    shape: Option<Vec<usize>>,
    /// The steps at which it is needed itself.
    steps: Range<u64>,
    /// Its bytes, and the steps at which it or a view of it is needed.
    block: Block,
    offset: u64,
    shares: Option<String>,
}

impl Planned {
    fn rows(&self) -> Vec<Row<'_>> {
        let own = self.tensors.iter().filter(|tensor| tensor.shares.is_none());
        own.map(|t| Row { id: &t.name, block: &t.block, offset: t.offset }).collect()
    }

    /// Whether the capacity is enough, if there is one; `None` where the plan ends before that is
    /// known.
    fn fits(&self, args: &PlanArgs) -> Option<bool> {
        let Some(capacity) = args.capacity else { return Some(true) };
        let is_enough = self.plan.arena_bytes <= capacity;
        (!is_enough || self.barrier.is_none()).then_some(is_enough)
    }

    /// Says on stderr what is missing, and what does not fit.
    fn warn(&self, args: &PlanArgs) {
        let noted = self.barrier.as_ref().filter(|_| !is_quiet());
        if let Some(Barrier { step, node, op, reason, .. }) = noted {
            let node = if node.is_empty() { String::new() } else { format!(" `{node}`") };
            print_on_stderr(format_args!(
                "note: the plan ends before step {step}, node{node} ({op}): {reason}"
            ));
        }
        if let Some(capacity) = args.capacity.filter(|_| self.fits(args).is_none()) {
            print_on_stderr(format_args!(
                "error: whether {} is enough is not known: the plan has no more than the steps before {}",
                ByteSize(capacity),
                self.barrier.as_ref().map_or(0, |barrier| barrier.step)
            ));
        }
        if let Some(capacity) = args.capacity.filter(|_| self.fits(args) == Some(false)) {
            let (needed, capacity) = (self.plan.arena_bytes, ByteSize(capacity));
            let may_be_shorter = args.search.is_none() && !self.plan.optimal;
            let hint = if may_be_shorter { "; --search SECONDS may help" } else { "" };
            print_on_stderr(format_args!(
                "error: the plan needs {} ({needed} bytes), the capacity is {capacity}{hint}",
                ByteSize(needed),
            ));
        }
    }

    fn report<'a>(&'a self, args: &'a PlanArgs) -> PlanReport<'a> {
        let Plan { arena_bytes, lower_bound, naive_sum, peak_step, optimal, .. } = self.plan;
        PlanReport {
            command: "plan",
            model: args.model.as_deref(),
            csv_in: args.csv_in.as_deref(),
            arena_bytes,
            lower_bound,
            naive_sum,
            peak_step,
            optimal: optimal && self.barrier.is_none(),
            capacity: args.capacity,
            fits: self.fits(args),
            folded: self.folded,
            barrier: self.barrier.as_ref().map(BarrierInfo::from),
            tensors: self.tensors.iter().map(TensorInfo::from).collect(),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct PlanReport<'a> {
    command: &'static str,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_if")]
    model: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_if")]
    csv_in: Option<&'a Path>,
    arena_bytes: u64,
    lower_bound: u64,
    naive_sum: u64,
    peak_step: u64,
    /// Whether it is shown that no plan needs less.
    optimal: bool,
    capacity: Option<u64>,
    /// `None` where the plan ends before that is known.
    fits: Option<bool>,
    /// Of a model: the nodes that have no step.
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<FoldedNodes>,
    /// The node before which the plan ends.
    barrier: Option<BarrierInfo<'a>>,
    tensors: Vec<TensorInfo<'a>>,
}

fn lossy_if<S: serde::Serializer>(path: &Option<&Path>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, serializer),
        None => serializer.serialize_none(),
    }
}

#[derive(Serialize)]
struct BarrierInfo<'a> {
    step: u64,
    node: &'a str,
    op: &'a str,
    reason: &'a str,
}

impl<'a> From<&'a Barrier> for BarrierInfo<'a> {
    fn from(barrier: &'a Barrier) -> Self {
        let Barrier { step, node, op, reason, .. } = barrier;
        Self { step: *step, node, op, reason }
    }
}

#[derive(Serialize)]
struct TensorInfo<'a> {
    name: &'a str,
    offset: u64,
    bytes: u64,
    dtype: Option<&'a str>,
    shape: Option<&'a [usize]>,
    first_step: u64,
    /// The last step that needs the tensor itself; `null` where none does.
    last_step: Option<u64>,
    /// The tensor whose bytes this one shows.
    shares: Option<&'a str>,
}

impl<'a> From<&'a Tensor> for TensorInfo<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        let steps = &tensor.steps;
        Self {
            name: &tensor.name,
            offset: tensor.offset,
            bytes: tensor.block.bytes,
            dtype: tensor.dtype.as_deref(),
            shape: tensor.shape.as_deref(),
            first_step: steps.start,
            last_step: steps.end.checked_sub(1).filter(|last| *last >= steps.start),
            shares: tensor.shares.as_deref(),
        }
    }
}
