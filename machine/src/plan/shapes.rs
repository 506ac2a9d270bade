//! Types, shapes and small values of a program before it runs.
//!
//! Every kernel derives the shapes of its outputs from those of its inputs. Where it needs elements
//! for that (the target of a Reshape, the axes of a reduction) they are known when they come from
//! weights and shapes alone: small outputs are computed here by the kernel itself, with whatever is
//! known of its inputs. Where a kernel asks for elements that only a run has, the shapes end: that
//! node is the barrier. A run that has come to a barrier knows what is in M, and the shapes go on
//! from there.

use std::collections::{HashMap, HashSet};

use onnx_container::{Buffer, DataType};

use crate::error::Errors;
use crate::kernel::Alias;
use crate::kernel::ahead::computed;
use crate::kernel::call::{Call, Operand, OutSpec};
use crate::kernel::in_place;
use crate::kernels::registry::Registry;
use crate::memory::table::{Entry, Stored, TensorTable};
use crate::memory::{Memory, Span};
use crate::program::sizes::shape_of;
use crate::program::{Block, Declared, Node, Program, ValueId};
use crate::runnable::{check_node, check_outputs};
use crate::value::{Type, Value};
use crate::{Error, ErrorKind, Result};

/// The most bytes of an output that is computed before the run.
const SMALL: u64 = 1 << 16;

/// The most bytes of a value whose elements are known when a plan begins behind a barrier: shapes
/// and axes are small.
const SMALL_AND_LIVE: u64 = 512;

/// What is known of a value.
#[derive(Debug, Clone)]
pub enum Known {
    /// A tensor of numbers.
    Tensor { dtype: DataType, shape: Vec<usize>, elements: Elements },
    /// A value outside of M, with what it holds.
    Outside(Value),
    /// A value outside of M of which only the type is known.
    OutsideType(Type),
}

/// The elements of a tensor, as far as they are known.
#[derive(Debug, Clone)]
pub enum Elements {
    Unknown,
    /// Computed here.
    Computed(Buffer),
    /// They lie in M: those of a weight, or of a value that is there when the plan is made.
    InMemory(Span),
}

/// Where the shapes end: a node whose outputs have shapes that only a run can tell.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Barrier {
    /// The step of the node.
    pub step: u64,
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// What is not known.
    pub reason: String,
}

/// What is known of every value of the main graph.
#[derive(Debug)]
pub struct Shapes<'p> {
    main: &'p Block,
    registry: &'p Registry,
    memory: &'p Memory,
    /// The first step that is planned.
    pub start: u64,
    /// The values that are there before it.
    pub given: Vec<ValueId>,
    values: Vec<Option<Known>>,
    /// For a view, and for a result that is written over an input: the value whose bytes it shares,
    /// which shares no other's. Chains of views are as long as the model, so nothing may walk them.
    owners: HashMap<ValueId, ValueId>,
    /// For each value, how many values that are still needed lie on its bytes.
    holders: HashMap<ValueId, usize>,
    pub barrier: Option<Barrier>,
}

impl<'p> Shapes<'p> {
    /// The shapes of `program` from its first step on, when `memory` has its weights and symbolic
    /// dimensions have these `sizes`.
    pub fn new(
        program: &'p Program,
        registry: &'p Registry,
        memory: &'p Memory,
        sizes: &HashMap<String, usize>,
    ) -> Result<Self> {
        Self::of(program, registry, memory, declared_inputs(program, sizes)?)
    }

    /// The shapes of `program` when its inputs have these types and, if they are tensors of
    /// numbers, shapes. Inputs with a constant may be left out.
    pub fn bound(
        program: &'p Program,
        registry: &'p Registry,
        memory: &'p Memory,
        inputs: &[(ValueId, Type, Vec<usize>)],
    ) -> Result<Self> {
        let known = |(value, ty, shape): &(ValueId, Type, Vec<usize>)| match ty {
            Type::Tensor(dtype) => (*value, unknown(&OutSpec::tensor(*dtype, shape.clone()))),
            ty => (*value, Known::OutsideType(ty.clone())),
        };
        Self::of(program, registry, memory, inputs.iter().map(known).collect())
    }

    fn of(
        program: &'p Program,
        registry: &'p Registry,
        memory: &'p Memory,
        inputs: Vec<(ValueId, Known)>,
    ) -> Result<Self> {
        let mut shapes = Self::empty(program, registry, memory, 0);
        shapes.given = program.main.inputs.iter().map(|input| input.value).collect();
        shapes.set_constants()?;
        inputs.into_iter().for_each(|(value, known)| shapes.set(value, known));
        shapes.apply_all()?;
        Ok(shapes)
    }

    /// Every node of the main graph that refuses the shapes of its inputs, as far as these are
    /// known before inputs are bound.
    pub fn refused(program: &'p Program, registry: &'p Registry, memory: &'p Memory) -> Errors {
        let mut shapes = Self::empty(program, registry, memory, 0);
        let mut errors = Errors::default();
        errors.extend(shapes.set_constants().err());
        for input in &program.main.inputs {
            if let Ok(known) = declared(input, "", &HashMap::new()) {
                shapes.set(input.value, known);
            } else if let Some(ty) = &input.ty {
                shapes.set(input.value, Known::OutsideType(ty.clone()));
            }
        }
        for (step, node) in program.main.nodes.iter().enumerate() {
            match shapes.apply(node, &[]) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NeedsValue(_)) => {
                    shapes.set_types(node);
                }
                Err(error) => {
                    let at = error.at_node(&node.name, node.op()).at_step(step.to_string());
                    errors.push(at);
                }
            }
        }
        errors
    }

    /// Sets the types of the outputs of `node`, whose shapes are not known.
    fn set_types(&mut self, node: &Node) {
        let ty = |i: usize| match self.get(node.inputs.get(i).copied().flatten()?)? {
            Known::Tensor { dtype, .. } => Some(Type::Tensor(*dtype)),
            Known::Outside(value) => Some(value.ty()),
            Known::OutsideType(ty) => Some(ty.clone()),
        };
        // The step itself reports wrong types.
        let types = node.output_types(ty).unwrap_or_default();
        for (output, ty) in node.outputs.iter().zip(types) {
            if let (Some(output), Some(ty)) = (output, ty) {
                self.set(*output, Known::OutsideType(ty));
            }
        }
    }

    /// The shapes of `program` from step `start` on, when the values in `table` are there before
    /// it.
    pub fn from_step(
        program: &'p Program,
        registry: &'p Registry,
        memory: &'p Memory,
        table: &TensorTable,
        start: u64,
    ) -> Result<Self> {
        let mut shapes = Self::empty(program, registry, memory, start);
        let first = usize::try_from(start).ok().and_then(|start| program.main.nodes.get(start));
        let mut owners: HashMap<u64, ValueId> = HashMap::new();
        for (value, _, entry) in table.iter() {
            let is_read = first.is_some_and(|node| node.inputs.contains(&Some(value)));
            if let Entry::Tensor(slot) = entry
                && !slot.span()?.is_weight()
            {
                shapes.given.push(value);
                if slot.span()?.len > 0 {
                    let owner = *owners.entry(slot.offset).or_insert(value);
                    shapes.owners.extend(Some((value, owner)).filter(|_| owner != value));
                }
            }
            shapes.set(value, known(entry, is_read)?);
        }
        shapes.apply_all()?;
        Ok(shapes)
    }

    /// Shapes of no value.
    fn empty(program: &'p Program, registry: &'p Registry, memory: &'p Memory, start: u64) -> Self {
        let main = &program.main;
        Self {
            main,
            registry,
            memory,
            start,
            given: Vec::new(),
            values: vec![None; main.names.len()],
            owners: HashMap::new(),
            holders: HashMap::new(),
            barrier: None,
        }
    }

    /// Makes the outputs of every node known, up to the barrier.
    fn apply_all(&mut self) -> Result<()> {
        let (main, start) = (self.main, self.start);
        let nodes = (0..).zip(&main.nodes).zip(&main.dead_after);
        for ((step, node), dead) in nodes.skip_while(|((step, _), _)| *step < start) {
            let at = |error: Error| error.at_node(&node.name, node.op()).at_step(step.to_string());
            match self.apply(node, dead) {
                Ok(()) => dead.iter().for_each(|value| self.let_go(*value)),
                Err(error) if matches!(error.kind(), ErrorKind::NeedsValue(_)) => {
                    let (name, op) = (node.name.clone(), node.op());
                    let reason = error.reason().to_owned();
                    self.barrier = Some(Barrier { step, node: name, op, reason });
                    break;
                }
                Err(error) => return Err(at(error)),
            }
        }
        Ok(())
    }

    fn set_constants(&mut self) -> Result<()> {
        for (value, entry) in &self.main.constants {
            self.set(*value, known(entry, true)?);
        }
        Ok(())
    }

    /// Whether the bytes of `value` are a weight's.
    pub fn is_weight(&self, value: ValueId) -> bool {
        let known = self.get(value);
        matches!(known, Some(Known::Tensor { elements: Elements::InMemory(span), .. }) if span.is_weight())
    }

    /// What is known of `value`.
    pub fn get(&self, value: ValueId) -> Option<&Known> {
        self.values.get(value.index())?.as_ref()
    }

    /// The value whose bytes `value` shows: itself, unless it is a view.
    pub fn owner(&self, value: ValueId) -> ValueId {
        self.owners.get(&value).copied().unwrap_or(value)
    }

    /// Notes that `value` shares the bytes of `shared`.
    fn share(&mut self, value: Option<ValueId>, shared: Option<ValueId>) {
        let owner = shared.map(|shared| self.owner(shared));
        self.owners.extend(value.zip(owner));
    }

    fn set(&mut self, value: ValueId, known: Known) {
        let Some(slot) = self.values.get_mut(value.index()) else { return };
        if slot.replace(known).is_none() {
            *self.holders.entry(self.owner(value)).or_default() += 1;
        }
    }

    /// Notes that `value` is needed no longer.
    fn let_go(&mut self, value: ValueId) {
        let owner = self.owner(value);
        self.holders.entry(owner).and_modify(|holders| *holders = holders.saturating_sub(1));
    }

    /// Whether only one node still needs the bytes of `value`: the one after which nothing needs
    /// the values in `dead`.
    fn dies(&self, value: ValueId, dead: &[ValueId]) -> bool {
        let owner = self.owner(value);
        dead.contains(&value) && !self.is_weight(owner) && self.holders.get(&owner) == Some(&1)
    }

    /// Makes the outputs of `node` known.
    fn apply(&mut self, node: &Node, dead: &[ValueId]) -> Result<()> {
        check_node(node, self.registry)?;
        let kernel = self.registry.kernel(node).ok_or_else(no_kernel)?;
        let call = Call::new(node, self.operands(node)?);
        if !self.registry.is_users(node) {
            node.check_types(|i| call.ty(i))?;
        }
        let specs = kernel.infer(&call)?;
        check_outputs(node, &specs)?;
        let mut outputs: Vec<_> = specs.iter().map(unknown).collect();
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        let dies = |i| input(i).is_some_and(|value| self.dies(value, dead));
        let over = in_place::place(&**kernel, &call, &specs, dies).and_then(|(i, _)| input(i));
        if let Alias::View(i) = kernel.alias(&call)? {
            let viewed = input(i);
            let known = viewed.and_then(|value| self.get(value));
            if let (Some(Known::Tensor { elements, .. }), Some(output)) =
                (known, outputs.first_mut())
            {
                output.set_elements(elements.clone());
            }
            self.share(node.outputs.first().copied().flatten(), viewed);
        } else if let Some(computed) = computed(&**kernel, call, &specs, SMALL)? {
            for (output, bytes) in outputs.iter_mut().zip(computed) {
                output.set_elements(Elements::Computed(bytes));
            }
        }
        self.share(node.outputs.first().copied().flatten(), over);
        for (value, known) in node.outputs.iter().zip(outputs) {
            value.iter().for_each(|value| self.set(*value, known.clone()));
        }
        Ok(())
    }

    fn operands(&self, node: &Node) -> Result<Vec<Operand<'_>>> {
        let operand = |value: &Option<ValueId>| {
            let Some(value) = value else { return Ok(Operand::Absent) };
            let unknown = || {
                let reason = "nothing is known of an input before the run";
                Error::new(ErrorKind::NeedsValue(0), reason)
            };
            let known = self.get(*value).ok_or_else(unknown)?;
            Ok(match known {
                Known::Outside(value) => Operand::Outside(value),
                Known::OutsideType(ty) => Operand::Unknown(ty),
                Known::Tensor { dtype, shape, elements } => {
                    let bytes = match elements {
                        Elements::Unknown => None,
                        Elements::Computed(bytes) => Some(&**bytes),
                        Elements::InMemory(span) => Some(self.memory.read(*span)?),
                    };
                    Operand::Tensor { dtype: *dtype, shape, bytes }
                }
            })
        };
        node.inputs.iter().map(operand).collect()
    }
}

/// What is known of a value with this entry. Its elements are known when it is a weight, when it is
/// small, and when a node needs them at once (`is_read`).
fn known(entry: &Entry, is_read: bool) -> Result<Known> {
    Ok(match entry.stored() {
        Stored::Tensor(slot) => {
            let span = slot.span()?;
            let is_known = is_read || span.is_weight() || span.len <= SMALL_AND_LIVE;
            let elements = if is_known { Elements::InMemory(span) } else { Elements::Unknown };
            Known::Tensor { dtype: slot.dtype, shape: slot.shape.clone(), elements }
        }
        Stored::Outside(value) if is_read => Known::Outside(value.clone()),
        Stored::Outside(value) => Known::OutsideType(value.ty()),
    })
}

impl Known {
    fn set_elements(&mut self, known: Elements) {
        if let Self::Tensor { elements, .. } = self {
            *elements = known;
        }
    }
}

/// The error of a node that runs graphs: it asks for the elements that these compute.
fn no_kernel() -> Error {
    let reason = "the shapes of its outputs depend on its graphs";
    Error::new(ErrorKind::NeedsValue(0), reason)
}

/// What the graph declares of the inputs without a constant.
fn declared_inputs(
    program: &Program,
    sizes: &HashMap<String, usize>,
) -> Result<Vec<(ValueId, Known)>> {
    program.check_sizes(sizes)?;
    let main = &program.main;
    let constants: HashSet<_> = main.constants.iter().map(|(value, _)| *value).collect();
    let (mut inputs, mut errors) = (Vec::new(), Errors::default());
    for input in main.inputs.iter().filter(|input| !constants.contains(&input.value)) {
        let name = main.name(input.value);
        match declared(input, name, sizes) {
            Ok(known) => inputs.push((input.value, known)),
            Err(error) => errors.push(error.with_value(name)),
        }
    }
    errors.join().map_or(Ok(inputs), Err)
}

/// What the graph declares of the input called `name`.
fn declared(input: &Declared, name: &str, sizes: &HashMap<String, usize>) -> Result<Known> {
    let dtype = match input.ty.as_ref() {
        Some(Type::Tensor(dtype)) if dtype.bit_width().is_some() => *dtype,
        Some(ty) => return Ok(Known::OutsideType(ty.clone())),
        None => {
            return Err(Error::new(ErrorKind::Input, "the graph does not declare its type"));
        }
    };
    let shape = shape_of(input, name, sizes)?;
    Ok(Known::Tensor { dtype, shape, elements: Elements::Unknown })
}

fn unknown(spec: &OutSpec) -> Known {
    match spec {
        OutSpec::Tensor(dtype, shape) if dtype.bit_width().is_some() => {
            Known::Tensor { dtype: *dtype, shape: shape.clone(), elements: Elements::Unknown }
        }
        spec => Known::OutsideType(spec.ty()),
    }
}
