//! For how many weights of the network a tensor of a quantized model stands.
//!
//! Codes of several weights may be one element of the tensor that holds them, as those of
//! MatMulNBits are. Scales, zero points and orders of groups are no weights.

use std::collections::HashMap;

use super::graphs::{for_each_list, subgraphs};
use super::quantization::{int, operator_name};
use crate::dtype::element_count;
use crate::graph::traversal;
use crate::proto::{ModelProto, NodeProto};

/// The number of weights of those tensors for which it is not that of their elements, by name. A
/// name that several graphs use has one number.
pub(super) fn weight_counts(model: &ModelProto) -> HashMap<&[u8], u64> {
    let mut found = Found::default();
    for_each_list(model, |nodes| found.nodes(nodes));
    let Found { mut counts, codes_of } = found;
    // The length of the codes is looked up only where an operator does not say how many it has.
    if !codes_of.is_empty() {
        for (_, tensor) in traversal::iter(model) {
            let Some(name) = tensor.name.as_ref() else { continue };
            if let Some(codes) = codes_of.get(name.as_bytes())
                && let Ok(elements) = element_count(&tensor.dims)
            {
                counts.insert(name.as_bytes(), elements.saturating_mul(*codes));
            }
        }
    }
    counts
}

#[derive(Default)]
struct Found<'m> {
    counts: HashMap<&'m [u8], u64>,
    /// How many codes are in an element.
    codes_of: HashMap<&'m [u8], u64>,
}

impl<'m> Found<'m> {
    fn nodes(&mut self, nodes: &'m [NodeProto]) {
        for node in nodes {
            self.node(node);
            subgraphs(node).for_each(|graph| self.nodes(&graph.node));
        }
    }

    fn node(&mut self, node: &'m NodeProto) {
        let operator = operator_name(node);
        match &*operator {
            "MatMulNBits" | "MatMulBnb4" => {
                if let (Some(codes), Some(count)) = (input(node, 1), product(node)) {
                    self.counts.insert(codes, count);
                }
                self.no_weights(node, &[2, 3, 4]);
            }
            "GatherBlockQuantized" => {
                let is_packed = |bits: &u64| (1..8).contains(bits) && 8 % bits == 0;
                let bits = int(node, "bits").and_then(|bits| u64::try_from(bits).ok());
                if let (Some(codes), Some(bits)) = (input(node, 0), bits.filter(is_packed)) {
                    self.codes_of.insert(codes, 8 / bits);
                }
                self.no_weights(node, &[2, 3]);
            }
            "DequantizeLinear" | "QuantizeLinear" => self.no_weights(node, &[1, 2]),
            "MatMulInteger" | "ConvInteger" => self.no_weights(node, &[2, 3]),
            "QLinearConv" | "QLinearMatMul" | "QLinearAdd" | "QLinearMul" => {
                self.no_weights(node, &[1, 2, 4, 5, 6, 7]);
            }
            "QGemm" => self.no_weights(node, &[1, 2, 4, 5, 7, 8]),
            _ => {}
        }
    }

    fn no_weights(&mut self, node: &'m NodeProto, inputs: &[usize]) {
        let names = inputs.iter().filter_map(|number| input(node, *number));
        self.counts.extend(names.map(|name| (name, 0)));
    }
}

fn input(node: &NodeProto, number: usize) -> Option<&[u8]> {
    let name = node.input.get(number).filter(|name| !name.is_empty())?;
    Some(name.as_bytes())
}

/// The number of weights of a matrix of `N` rows of `K`.
fn product(node: &NodeProto) -> Option<u64> {
    let [rows, columns] = ["N", "K"].map(|name| u64::try_from(int(node, name)?).ok());
    rows?.checked_mul(columns?)
}
