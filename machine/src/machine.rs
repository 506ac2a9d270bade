//! The machine (G, M) with T: inputs are bound, steps are taken, values are read.
//!
//! [`Machine::step`] is the step transition of the definition. What a step of any block does is in
//! `runner`; what the operators with graphs inside do is in `control`.

mod apply;
mod bind;
pub(crate) mod control;
mod places;
pub(crate) mod runner;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::places::Places;
pub(crate) use self::runner::Watch;
use self::runner::{Nobody, Observer, Runner, Shown};
pub use self::runner::{RunLimits, StepRecord, Touched};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::registry::Registry;
use crate::memory::Memory;
use crate::memory::table::{Entry, Stored, TensorTable};
use crate::plan::shapes::Shapes;
use crate::plan::{PlanOptions, ProgramPlan};
use crate::program::{Program, ValueId};
use crate::runnable;
use crate::value::Value;

/// A program with its memory and table, between two of its steps.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
/// use onnx_container::{Container, DataType};
/// use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};
///
/// let mut graph = GraphProto::new("g");
/// graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [2]));
/// graph.node.push(NodeProto::new("Add", ["x", "x"], ["double"]));
/// graph.node.push(NodeProto::new("Mul", ["double", "x"], ["y"]));
/// graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [2]));
/// let mut model = ModelProto::new(graph);
/// model.opset_import = vec![OperatorSetIdProto::new("", 21)];
///
/// let program = Program::new(&Container::new(model), ProgramOptions::new())?;
/// let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
/// machine.bind("x", Value::from_elements([2], &[1.0_f32, 3.0])?)?;
/// let step = machine.step()?.ok_or("no step")?;
/// assert_eq!((step.op.as_str(), step.writes[0].name.as_str()), ("Add", "double"));
/// assert_eq!(machine.value("double")?.tensor()?.as_slice::<f32>()?, [2.0, 6.0]);
/// while machine.step()?.is_some() {}
/// assert_eq!(machine.value("y")?.tensor()?.as_slice::<f32>()?, [2.0, 18.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Machine {
    program: Arc<Program>,
    runner: Runner,
    table: TensorTable,
    pc: usize,
    /// The number of each input of the graph by its name.
    inputs: HashMap<String, usize>,
    bound: HashSet<ValueId>,
    symbols: HashMap<String, usize>,
    planning: Option<PlanOptions>,
    /// Whether the run is planned and the inputs that are bound lie in their places.
    is_placed: bool,
    /// The plans so far, each up to its barrier.
    places: Vec<Places>,
    /// Whether tensors are placed by best fit from here on, because there is no plan.
    is_unplanned: bool,
    /// Whether every node can run, as far as it shows before a run.
    is_checked: bool,
}

impl Machine {
    /// A machine for `program`, before its first step.
    pub fn new(program: impl Into<Arc<Program>>, registry: Registry, limits: RunLimits) -> Self {
        let program = program.into();
        let memory = Memory::new(program.weights.clone(), limits.memory_bytes);
        let mut machine = Self {
            table: TensorTable::new(program.main.names.clone()),
            runner: Runner::new(registry, memory, limits),
            program,
            pc: 0,
            inputs: HashMap::new(),
            bound: HashSet::new(),
            symbols: HashMap::new(),
            planning: Some(PlanOptions::new()),
            is_placed: false,
            places: Vec::new(),
            is_unplanned: false,
            is_checked: false,
        };
        let main = &machine.program.main;
        for (i, input) in main.inputs.iter().enumerate() {
            machine.inputs.entry(main.name(input.value).to_owned()).or_insert(i);
        }
        machine.set_constants();
        machine
    }

    fn set_constants(&mut self) {
        for (value, entry) in &self.program.main.constants {
            self.table.set(*value, entry.clone());
        }
    }

    /// How the memory of a run is planned when its inputs are placed: [`PlanOptions::new`] by
    /// default. With `None` each tensor is placed by best fit when it is written. Inputs that are
    /// bound are forgotten.
    #[must_use]
    pub fn planning(mut self, planning: Option<PlanOptions>) -> Self {
        self.planning = planning;
        self.reset();
        self
    }

    /// The plan that the run follows, from [`place_inputs`](Self::place_inputs) or the first step
    /// on, up to its barrier. `None` when a node cannot be planned or N is more than
    /// [`RunLimits::memory_bytes`]: then all tensors are placed by best fit.
    pub fn plan(&self) -> Option<&ProgramPlan> {
        self.plans().next()
    }

    /// All plans that the run has followed so far: the first one, and one more for each barrier
    /// that the run has reached. If no node has graphs inside, [`Memory::high_water`] after the run
    /// is the largest N of them.
    pub fn plans(&self) -> impl Iterator<Item = &ProgramPlan> {
        self.places.iter().map(|places| &places.plan)
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// M.
    pub fn memory(&self) -> &Memory {
        &self.runner.memory
    }

    /// T: where the values of the main graph are now. Inputs lie outside of M until they are
    /// placed.
    pub fn table(&self) -> &TensorTable {
        &self.table
    }

    /// The index of the next node of the main graph.
    pub fn next_step(&self) -> usize {
        self.pc
    }

    /// The size of each symbolic dimension, by the inputs that are bound so far.
    pub fn sizes(&self) -> &HashMap<String, usize> {
        &self.symbols
    }

    /// The kernels.
    pub fn registry(&self) -> &Registry {
        &self.runner.registry
    }

    /// Every node that a run refuses whatever the elements of its inputs are, inner ones too, each
    /// as an error that says where it is and why: no kernel is known, the schema of the operator
    /// has not what the node has, types or shapes do not fit.
    ///
    /// # Errors
    /// All of them in one error, of the kind of the first.
    pub fn check_runnable(&self) -> Result<()> {
        self.check_nodes()?;
        let refused = Shapes::refused(&self.program, self.registry(), self.memory());
        refused.join().map_or(Ok(()), Err)
    }

    /// As [`check_runnable`](Self::check_runnable), without what follows from shapes. A step says
    /// that itself.
    fn check_nodes(&self) -> Result<()> {
        runnable::check(&self.program, self.registry()).join().map_or(Ok(()), Err)
    }

    /// Takes the next step; `None` when all nodes are done. Steps of inner blocks are part of the
    /// step of their node.
    ///
    /// # Errors
    /// An input is missing; before the first step what [`place_inputs`](Self::place_inputs) refuses
    /// and every node that cannot run; or what the kernel, the memory or the limits refuse, with
    /// the node and its path.
    pub fn step(&mut self) -> Result<Option<StepRecord>> {
        self.take_step(&mut Nobody)
    }

    /// As [`step`](Self::step), and shows `observer` every step when it is done: those of inner
    /// blocks in their order, then that of the node itself.
    ///
    /// # Errors
    /// As [`step`](Self::step), and those of `observer`.
    pub fn step_with(&mut self, observer: &mut Observer<'_>) -> Result<Option<StepRecord>> {
        self.take_step(&mut Shown(observer))
    }

    fn take_step(&mut self, watch: &mut dyn Watch) -> Result<Option<StepRecord>> {
        self.place_inputs()?;
        if !self.is_checked {
            self.check_nodes()?;
            self.is_checked = true;
        }
        if self.pc >= self.program.main.nodes.len() {
            return Ok(None);
        }
        self.plan_on()?;
        let program = Arc::clone(&self.program);
        let places = self.places.last();
        let at = runner::At { block: &program.main, index: self.pc, path: "", places };
        let record = self.runner.step(at, &mut self.table, watch)?;
        self.pc += 1;
        Ok(Some(record))
    }

    /// Takes all steps that are left, and returns the outputs of the graph, in its order.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(&mut self) -> Result<Vec<(String, Value)>> {
        while self.step()?.is_some() {}
        self.outputs()
    }

    /// As [`run`](Self::run), and shows `observer` every step.
    ///
    /// # Errors
    /// As [`step_with`](Self::step_with).
    pub fn run_with(&mut self, observer: &mut Observer<'_>) -> Result<Vec<(String, Value)>> {
        while self.step_with(observer)?.is_some() {}
        self.outputs()
    }

    /// As [`run_with`](Self::run_with), for who may know the bytes that a step writes over.
    pub(crate) fn run_watched(&mut self, watch: &mut dyn Watch) -> Result<()> {
        while self.take_step(watch)?.is_some() {}
        Ok(())
    }

    /// The outputs of the graph, in its order, after the last step.
    ///
    /// # Errors
    /// [`ErrorKind::NoValue`] when one is not computed yet.
    pub fn outputs(&self) -> Result<Vec<(String, Value)>> {
        let main = &self.program.main;
        let named = main.outputs.iter().map(|output| main.name(output.value));
        named.map(|name| Ok((name.to_owned(), self.value(name)?))).collect()
    }

    /// As [`outputs`](Self::outputs), when nothing else is wanted of the machine: where the outputs
    /// are most of M, they are not copied, but keep all of it.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs).
    pub fn into_outputs(mut self) -> Result<Vec<(String, Value)>> {
        let program = Arc::clone(&self.program);
        let ids: Vec<_> = program.main.outputs.iter().map(|output| output.value).collect();
        let entries = ids.iter().filter_map(|id| self.table.get(*id));
        let len = entries.map(|entry| match entry.stored() {
            Stored::Tensor(slot) => slot.span().map_or(0, |span| span.len),
            Stored::Outside(_) => 0,
        });
        if len.fold(0, u64::saturating_add) < self.memory().arena_bytes() / 2 {
            return self.outputs();
        }
        let memory = std::mem::take(&mut self.runner.memory).freeze();
        let value = |id: ValueId| {
            let name = program.main.name(id);
            let entry = self.table.get(id).ok_or_else(|| not_there(name))?;
            Ok((name.to_owned(), entry.value_in(&memory)?))
        };
        ids.into_iter().map(value).collect()
    }

    /// The value called `name` of the main graph, copied out of M.
    ///
    /// # Errors
    /// [`ErrorKind::NoValue`] when no value has that name, or it is not in memory at this step.
    pub fn value(&self, name: &str) -> Result<Value> {
        let known = self.program.main.value(name).ok_or_else(|| {
            Error::new(ErrorKind::NoValue, "the model has no such value").with_value(name)
        })?;
        self.runner.to_value(self.table.get(known).ok_or_else(|| not_there(name))?)
    }

    /// Forgets every input and value, to run once more.
    pub fn reset(&mut self) {
        self.table = TensorTable::new(self.program.main.names.clone());
        self.runner.restart();
        (self.is_placed, self.places, self.is_unplanned) = (false, Vec::new(), false);
        (self.pc, self.bound, self.symbols) = (0, HashSet::new(), HashMap::new());
        self.set_constants();
    }
}

fn not_there(name: &str) -> Error {
    Error::new(ErrorKind::NoValue, "it is not in memory at this step").with_value(name)
}

impl Runner {
    /// The value of `entry`, with a copy of its bytes.
    pub(crate) fn to_value(&self, entry: &Entry) -> Result<Value> {
        entry.to_value(&self.memory)
    }
}
