//! Which nodes cannot run, as far as it shows before there are values: kernels that are missing,
//! what a schema does not have, types that an operator does not take.
//!
//! A run asks the same before its first step. What follows from shapes is left to `plan::shapes`,
//! which knows them.

use std::collections::HashSet;

use onnx_container::DataType;

use crate::error::{Error, ErrorKind, Errors, Result};
use crate::exact::Exact;
use crate::kernel::bodies::{self, Composite};
use crate::kernel::call::OutSpec;
use crate::kernels::registry::Registry;
use crate::program::schema::Meaning;
use crate::program::{Block, FUNCTION_BODY, Node, Program, ValueId};
use crate::value::Type;

/// Every node of `program` that cannot run with the kernels of `registry`, inner ones too.
pub(crate) fn check(program: &Program, registry: &Registry) -> Errors {
    let mut checker = Checker { registry, errors: Errors::default(), too_new: HashSet::new() };
    checker.block(&program.main, "", &[], &[]);
    checker.errors
}

/// Whether `node` fits its schema, and something runs it. A kernel of the user may take
/// anything.
///
/// # Errors
/// Why not.
pub(crate) fn check_node(node: &Node, registry: &Registry) -> Result<()> {
    if registry.is_users(node) {
        return Ok(());
    }
    node.check_written()?;
    if registry.kernel(node).is_some() {
        return Ok(());
    }
    if let Some(composite) = bodies::of(node) {
        return check_graphs(node, composite);
    }
    let version = node.version;
    let reason = match node.op_type.as_str() {
        "Gradient" if node.domain == "ai.onnx.preview.training" => {
            "gradients are not computed: export the model with their nodes written out".to_owned()
        }
        _ => format!("there is no kernel for this operator at version {version}"),
    };
    Err(Error::new(ErrorKind::UnsupportedOp, reason))
}

/// Whether the graphs of `node` have as many inputs and outputs as it gives them and needs of them.
fn check_graphs(node: &Node, composite: Composite) -> Result<()> {
    let refused = |reason: String| Err(Error::new(ErrorKind::InvalidModel, reason));
    let (is_first, given) = (node.version < 9, node.inputs.len());
    let (inputs, before, states) = match composite {
        Composite::If => (0, 0, 0),
        Composite::Loop => (given.max(2), 1, given.saturating_sub(2)),
        Composite::SequenceMap => (given, 0, 0),
        Composite::FlexAttention => {
            check_precision(node)?;
            (1, 0, 1)
        }
        Composite::Scan => {
            let inputs = given.saturating_sub(usize::from(is_first));
            let scanned = node.attributes.int_or("num_scan_inputs", 0)?;
            let states = usize::try_from(scanned).ok().filter(|scanned| *scanned > 0);
            let Some(states) = states.and_then(|scanned| inputs.checked_sub(scanned)) else {
                return refused(format!("{scanned} of {inputs} inputs are scanned"));
            };
            (inputs, 0, states)
        }
        Composite::FunctionCall | Composite::Body(_) => return Ok(()),
    };
    for (name, graph) in node.attributes.graphs() {
        let (found, outputs) = (graph.inputs.len(), graph.outputs.len());
        if found != inputs {
            return refused(format!(
                "graph `{name}` has {found} inputs, the node gives it {inputs}"
            ));
        }
        if outputs < before + node.outputs.len().max(states) {
            let needed = before + node.outputs.len().max(states);
            return refused(format!(
                "graph `{name}` has {outputs} outputs, the node needs {needed}"
            ));
        }
    }
    Ok(())
}

/// Whether the type in which FlexAttention computes a softmax is one of floats.
fn check_precision(node: &Node) -> Result<()> {
    use DataType::{Bfloat16, Double, Float, Float16};
    let stated = node.attributes.int("softmax_precision")?;
    let is_float = |stated: i64| {
        [Float, Double, Float16, Bfloat16].iter().any(|dtype| i64::from(dtype.number()) == stated)
    };
    match stated.filter(|stated| !is_float(*stated)) {
        Some(stated) => {
            let reason = format!("`softmax_precision` is {stated}, which is no type of floats");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
        None => Ok(()),
    }
}

/// Whether a node gets as many outputs as it has.
pub(crate) fn check_outputs(node: &Node, specs: &[OutSpec]) -> Result<()> {
    if node.outputs.iter().skip(specs.len()).all(Option::is_none) {
        return Ok(());
    }
    let (has, gets) = (node.outputs.len(), specs.len());
    let reason = format!("the node has {has} outputs, its inputs and attributes make {gets}");
    Err(Error::new(ErrorKind::InvalidModel, reason))
}

/// The types of values; `None` where one is not known.
type Types = Vec<Option<Type>>;

struct Checker<'p> {
    registry: &'p Registry,
    errors: Errors,
    /// Versions of domains that are not known: each is said once.
    too_new: HashSet<(&'p str, i64)>,
}

impl<'p> Checker<'p> {
    /// Checks the nodes of `block`, whose path is `path`, and returns the types of its outputs.
    /// `outer` has the types around it, `given` those of its inputs.
    fn block(
        &mut self,
        block: &'p Block,
        path: &str,
        outer: &[Option<Type>],
        given: &[Option<Type>],
    ) -> Types {
        let mut types = vec![None; block.names.len()];
        let set = |types: &mut Types, value: ValueId, ty: Option<Type>| {
            types.debug_set(value.index(), ty);
        };
        for (outside, inside) in &block.captures {
            set(&mut types, *inside, get(outer, *outside));
        }
        for (value, entry) in &block.constants {
            set(&mut types, *value, Some(entry.ty()));
        }
        for (i, input) in block.inputs.iter().enumerate() {
            let given = given.get(i).cloned().flatten();
            set(&mut types, input.value, given.or_else(|| input.ty.clone()));
        }
        for (i, node) in block.nodes.iter().enumerate() {
            let outputs = self.node(node, &format!("{path}{i}"), &types);
            for (output, ty) in node.outputs.iter().zip(outputs) {
                output.iter().for_each(|output| set(&mut types, *output, ty.clone()));
            }
        }
        block.outputs.iter().map(|output| get(&types, output.value)).collect()
    }

    /// Checks `node`, whose path is `path`, and returns the types of its outputs.
    fn node(&mut self, node: &'p Node, path: &str, types: &[Option<Type>]) -> Types {
        let input = |i: usize| get(types, node.inputs.get(i).copied().flatten()?);
        let is_new = match node.meaning {
            Meaning::TooNew(_) => self.too_new.insert((&node.domain, node.version)),
            _ => true,
        };
        if let Err(error) = check_node(node, self.registry) {
            self.errors.extend(is_new.then(|| error.at_node(&node.name, node.op()).at_step(path)));
            return self.graphs(node, path, types);
        }
        if self.registry.is_users(node) {
            return Types::new();
        }
        let known = node.output_types(input).unwrap_or_else(|error| {
            self.errors.push(error.at_node(&node.name, node.op()).at_step(path));
            Types::new()
        });
        let inner = self.graphs(node, path, types);
        let of = |j: usize| known.get(j).cloned().flatten().or_else(|| inner.get(j).cloned()?);
        (0..node.outputs.len()).map(of).collect()
    }

    /// Checks the graphs of `node`, and returns the types of the outputs that they give it.
    fn graphs(&mut self, node: &'p Node, path: &str, types: &[Option<Type>]) -> Types {
        let composite = bodies::of(node).filter(|_| self.registry.kernel(node).is_none());
        let given = composite.map_or_else(Types::new, |composite| given(node, composite, types));
        let mut all = Vec::new();
        let is_run = |name: &str| composite.is_some() || name != FUNCTION_BODY;
        for (name, block) in node.attributes.graphs().filter(|(name, _)| is_run(name)) {
            all.push(self.block(block, &format!("{path}/{name}/"), types, &given));
        }
        composite.map_or_else(Types::new, |composite| outputs(node, composite, all))
    }
}

fn get(types: &[Option<Type>], value: ValueId) -> Option<Type> {
    types.get(value.index()).cloned().flatten()
}

/// The types that the inputs of the graphs of `node` get.
fn given(node: &Node, composite: Composite, types: &[Option<Type>]) -> Types {
    let inputs = node.inputs.iter().map(|input| get(types, (*input)?));
    match composite {
        Composite::FunctionCall => {
            let mut seen = HashSet::new();
            let distinct = node.inputs.iter().flatten().filter(|value| seen.insert(**value));
            distinct.map(|value| get(types, *value)).collect()
        }
        Composite::Loop => [DataType::Int64, DataType::Bool]
            .map(|dtype| Some(Type::Tensor(dtype)))
            .into_iter()
            .chain(inputs.skip(2))
            .collect(),
        Composite::Scan => inputs.skip(usize::from(node.version < 9)).collect(),
        Composite::SequenceMap => {
            let element = |ty| match ty {
                Some(Type::Sequence(element)) => Some(*element),
                ty => ty,
            };
            inputs.map(element).collect()
        }
        Composite::If | Composite::FlexAttention | Composite::Body(_) => Types::new(),
    }
}

/// The types of the outputs of `node` whose graphs have `outputs` of these types.
fn outputs(node: &Node, composite: Composite, all: Vec<Types>) -> Types {
    let mut all = all.into_iter();
    // A graph that is missing gives nothing; the node is refused for it elsewhere.
    let mut next = || all.next().unwrap_or_default();
    let first = next();
    match composite {
        Composite::If => {
            first.into_iter().zip(next()).map(|(a, b)| if a == b { a } else { None }).collect()
        }
        Composite::Loop => first.into_iter().skip(1).collect(),
        Composite::Scan => first,
        Composite::FunctionCall => {
            let mut first = first.into_iter();
            node.outputs.iter().map(|output| output.and_then(|_| first.next().flatten())).collect()
        }
        Composite::SequenceMap => {
            let sequence = |ty: Option<Type>| ty.map(|ty| Type::Sequence(Box::new(ty)));
            first.into_iter().map(sequence).collect()
        }
        Composite::FlexAttention | Composite::Body(_) => Types::new(),
    }
}
