//! Constant folding: a node that depends on constants alone is computed once, by its own kernel.
//!
//! The results are weights like any other. A node whose results would be too many bytes, or that
//! fails, stays a step, which then says what is wrong. A node that draws random numbers, or has
//! graphs inside, always stays a step.

use onnx_container::Buffer;

use super::Constants;
use crate::error::{Error, Result};
use crate::kernel::Alias;
use crate::kernel::ahead::computed;
use crate::kernel::call::{Call, Operand, OutSpec};
use crate::kernels::registry::Registry;
use crate::memory::table::{Entry, Slot, Stored, byte_len};
use crate::memory::{ALIGNMENT, Weights};
use crate::program::{Block, Folded, Node, ValueId};

/// The operators that may draw random numbers.
const RANDOM: [&str; 7] = [
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// What folds nodes, and how many bytes their results may still have.
pub(super) struct NodeFolder<'p> {
    pub(super) registry: &'p Registry,
    pub(super) weights: &'p mut Weights,
    pub(super) left: u64,
    pub(super) folded: &'p mut Vec<Folded>,
}

impl NodeFolder<'_> {
    /// The outputs of `node` of `block` with their entries, when all its inputs are `constants`.
    /// `None` for a node that has to be a step.
    pub(super) fn fold(
        &mut self,
        node: &Node,
        constants: &Constants,
        block: &Block,
        path: &str,
    ) -> Option<Vec<(ValueId, Entry)>> {
        let is_fixed = !RANDOM.contains(&node.op_type.as_str())
            && node.attributes.graphs().next().is_none()
            && node.inputs.iter().flatten().all(|input| constants.contains_key(input));
        if !is_fixed {
            return None;
        }
        let before = self.left;
        // A step says what is wrong with a node that fails.
        let slots = self.slots(node, constants).ok()??;
        if node.outputs.len() > slots.len() {
            return None;
        }
        let outputs = node.outputs.iter().zip(slots);
        let entries: Vec<_> =
            outputs.filter_map(|(output, slot)| Some(((*output)?, Entry::Tensor(slot)))).collect();
        self.folded.push(Folded {
            path: path.to_owned(),
            node: node.name.clone(),
            op: node.op(),
            outputs: entries.iter().map(|(value, _)| block.name(*value).to_owned()).collect(),
            bytes: before - self.left,
        });
        Some(entries)
    }

    /// Where the outputs of `node` lie among the weights.
    fn slots(&mut self, node: &Node, constants: &Constants) -> Result<Option<Vec<Slot>>> {
        let Some(kernel) = self.registry.kernel(node) else { return Ok(None) };
        node.check_written()?;
        let call = Call::new(node, self.operands(node, constants)?);
        node.check_types(|i| call.ty(i))?;
        let specs = kernel.infer(&call)?;
        if let Alias::View(i) = kernel.alias(&call)? {
            let viewed = node.inputs.get(i).copied().flatten();
            let viewed = viewed.and_then(|value| constants.get(&value));
            return view(viewed, &specs).map(|slot| slot.map(|slot| vec![slot]));
        }
        let Some(results) = computed(&**kernel, call, &specs, self.left)? else { return Ok(None) };
        specs.into_iter().zip(results).map(|(spec, bytes)| self.add(spec, bytes)).collect()
    }

    fn operands<'a>(&'a self, node: &Node, constants: &'a Constants) -> Result<Vec<Operand<'a>>> {
        let operand = |value: &Option<ValueId>| {
            Ok(match value.and_then(|value| constants.get(&value)).map(Entry::stored) {
                None => Operand::Absent,
                Some(Stored::Outside(value)) => Operand::Outside(value),
                Some(Stored::Tensor(slot)) => Operand::Tensor {
                    dtype: slot.dtype,
                    shape: &slot.shape,
                    bytes: Some(self.weights.read(slot.span()?)?),
                },
            })
        };
        node.inputs.iter().map(operand).collect()
    }

    /// A slot for `bytes` among the weights.
    fn add(&mut self, spec: OutSpec, bytes: Buffer) -> Result<Option<Slot>> {
        let OutSpec::Tensor(dtype, shape) = spec else { return Ok(None) };
        self.left = self.left.saturating_sub(bytes.len() as u64);
        let offset =
            self.weights.add(bytes, usize::try_from(ALIGNMENT).map_err(Error::internal)?)?;
        Ok(Some(Slot::new(offset, dtype, shape)))
    }
}

/// The slot of `viewed` with the type and shape in `specs`.
fn view(viewed: Option<&Entry>, specs: &[OutSpec]) -> Result<Option<Slot>> {
    let (Some(Entry::Tensor(slot)), [OutSpec::Tensor(dtype, shape)]) = (viewed, specs) else {
        return Ok(None);
    };
    let is_whole = byte_len(*dtype, shape)? == slot.span()?.len;
    Ok(is_whole.then(|| Slot::new(slot.offset, *dtype, shape.clone())))
}
