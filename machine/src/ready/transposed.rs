//! Transposed weights are read where they lie.
//!
//! A Transpose of a matrix among the constants costs as many bytes as the matrix (of a tied
//! embedding, often the largest tensor of a model). Where only MatMul and Gemm use it, they read
//! the matrix itself: Gemm has attributes for it, and MatMul becomes the internal operator
//! `onnx_container::TransposedMatMul`. The elements of a product are summed in the same order, so
//! they have the same bits.

use std::collections::HashMap;

use super::Constants;
use crate::exact::Exact;
use crate::kernels::{INTERNAL_DOMAIN, TRANSPOSED_MATMUL};
use crate::memory::table::Entry;
use crate::program::Attribute;
use crate::program::schema::Meaning;
use crate::program::{Block, Folded, Node, ValueId};

/// Makes the nodes of `block` read transposed matrices of `constants` in place, and removes each
/// Transpose that nothing uses any more.
pub(super) fn read_in_place(
    block: &mut Block,
    path: &str,
    constants: &Constants,
    folded: &mut Vec<Folded>,
) {
    let transposed = candidates(block, constants);
    if transposed.is_empty() {
        return;
    }
    for node in &mut block.nodes {
        for i in 0..node.inputs.len() {
            let source = node.inputs.get(i).copied().flatten().and_then(|v| transposed.get(&v));
            source.into_iter().for_each(|source| read_transposed(node, i, *source));
        }
    }
    let is_read_in_place =
        |node: &Node| node.outputs.iter().flatten().any(|output| transposed.contains_key(output));
    for node in block.nodes.iter().filter(|node| is_read_in_place(node)) {
        folded.push(Folded {
            path: path.to_owned(),
            node: node.name.clone(),
            op: node.op(),
            outputs: Vec::new(),
            bytes: 0,
        });
    }
    block.nodes.retain(|node| !is_read_in_place(node));
}

/// The results of Transpose that only operands of products use, with the matrix that each is made
/// of.
fn candidates(block: &Block, constants: &Constants) -> HashMap<ValueId, ValueId> {
    let made = block.nodes.iter().filter_map(|node| transpose_of(node, constants));
    let mut candidates: HashMap<_, _> = made.collect();
    for output in &block.outputs {
        candidates.remove(&output.value);
    }
    for node in &block.nodes {
        for (_, inner) in node.attributes.graphs() {
            for (outer, _) in &inner.captures {
                candidates.remove(outer);
            }
        }
        for (i, input) in node.inputs.iter().enumerate() {
            if let Some(input) = input.filter(|_| !is_factor(node, i)) {
                candidates.remove(&input);
            }
        }
        drop_pairs(node, &mut candidates);
    }
    candidates
}

/// The internal form of a MatMul has one transposed factor: where both factors are transposed,
/// neither is read in place.
fn drop_pairs(node: &Node, candidates: &mut HashMap<ValueId, ValueId>) {
    let factors = node.inputs.iter().flatten().filter(|value| candidates.contains_key(value));
    let factors: Vec<_> = factors.copied().collect();
    if node.op_type == "MatMul" && factors.len() > 1 {
        for factor in factors {
            candidates.remove(&factor);
        }
    }
}

/// The output and the input of `node`, when it transposes a matrix among `constants`.
fn transpose_of(node: &Node, constants: &Constants) -> Option<(ValueId, ValueId)> {
    let is_transpose = node.domain.is_empty() && node.op_type == "Transpose";
    let ([Some(input)], [Some(output)]) = (&*node.inputs, &*node.outputs) else { return None };
    let Some(Entry::Tensor(slot)) = constants.get(input).filter(|_| is_transpose) else {
        return None;
    };
    let exchanges = matches!(node.attributes.ints("perm"), Ok(None | Some([1, 0])));
    (slot.shape.len() == 2 && exchanges).then_some((*output, *input))
}

/// Whether input `i` of `node` is a factor of a product of matrices.
fn is_factor(node: &Node, i: usize) -> bool {
    node.domain.is_empty() && matches!(node.op_type.as_str(), "MatMul" | "Gemm") && i < 2
}

/// Makes `node` read `source` where input `i` was the transpose of it.
fn read_transposed(node: &mut Node, i: usize, source: ValueId) {
    let flag = if i == 0 { "transA" } else { "transB" };
    if node.op_type == "MatMul" {
        node.domain = INTERNAL_DOMAIN.to_owned();
        node.op_type = TRANSPOSED_MATMUL.to_owned();
        node.version = 1;
        node.meaning = Meaning::Custom;
    }
    let was = matches!(node.attributes.int(flag), Ok(Some(set)) if set != 0);
    node.attributes.set(flag, Attribute::Int(i64::from(!was)));
    node.inputs.debug_set(i, Some(source));
}
