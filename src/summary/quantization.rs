//! What is quantized in a model, and how, as its nodes say.
//!
//! Models are quantized in three ways: pairs of QuantizeLinear and DequantizeLinear around float
//! operators, weights that a DequantizeLinear reads, and operators that compute on integers. The
//! last have names of their own, most of them in the domain of onnxruntime.

use std::borrow::Cow;
use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet};

use super::graphs::{OperatorCount, counts, for_each_list, operator, subgraphs};
use crate::dtype::DataType;
use crate::graph::traversal;
use crate::proto::{ModelProto, NodeProto, Str};

/// What is quantized in a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Quantization {
    /// DequantizeLinear nodes that read what a QuantizeLinear of the same graph wrote.
    pub pairs: usize,
    /// Weights that a DequantizeLinear reads, by type and block size.
    pub weights: Vec<DequantizedWeights>,
    /// Operators on weights in blocks, such as MatMulNBits, by bits and block size.
    pub blocks: Vec<BlockOperator>,
    /// Other operators that quantize or compute on quantized elements, the most frequent first.
    pub operators: Vec<OperatorCount>,
}

/// Weights that DequantizeLinear nodes read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DequantizedWeights {
    /// The type of the weights.
    pub dtype: String,
    /// How many elements share a scale along an axis, where there are blocks.
    pub block_size: Option<i64>,
    /// The number of nodes.
    pub nodes: usize,
    /// How many of them have zero points: the others are symmetric.
    pub with_zero_points: usize,
}

/// Operators on weights that are quantized in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BlockOperator {
    /// The operator.
    pub operator: String,
    /// The bits of an element, where the node says so.
    pub bits: Option<i64>,
    /// How many elements share a scale, where the node says so.
    pub block_size: Option<i64>,
    /// The number of nodes.
    pub nodes: usize,
    /// How many of them have zero points: the others are symmetric.
    pub with_zero_points: usize,
}

/// Operators on weights in blocks, of the domain of onnxruntime.
const BLOCK_OPERATORS: [&str; 4] = ["MatMulNBits", "GatherBlockQuantized", "MatMulBnb4", "QMoE"];

/// Other operators on quantized elements whose names do not begin with `QLinear`.
const OTHERS: [&str; 13] = [
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "MatMulIntegerToFloat",
    "MatMulInteger16",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeGRU",
    "QAttention",
    "QEmbedLayerNormalization",
    "QGemm",
    "QuantizeBFP",
];

impl Quantization {
    /// Looks through all graphs of `model`.
    pub(super) fn of(model: &ModelProto) -> Self {
        let mut found = Found { dtypes: dtypes(model), ..Found::default() };
        for_each_list(model, |nodes| found.nodes(nodes));
        let Found { pairs, weights, blocks, others, .. } = found;
        let weights = weights.into_iter();
        let weight = |((dtype, block_size), (nodes, with_zero_points))| DequantizedWeights {
            dtype,
            block_size,
            nodes,
            with_zero_points,
        };
        let blocks = blocks.into_iter();
        let block = |((operator, bits, block_size), (nodes, with_zero_points))| BlockOperator {
            operator,
            bits,
            block_size,
            nodes,
            with_zero_points,
        };
        Self {
            pairs,
            weights: weights.map(weight).collect(),
            blocks: blocks.map(block).collect(),
            operators: counts(others),
        }
    }

    /// Whether nothing is quantized.
    pub fn is_empty(&self) -> bool {
        self.pairs == 0
            && self.weights.is_empty()
            && self.blocks.is_empty()
            && self.operators.is_empty()
    }
}

/// The types of the tensors that nodes may read, by name. A name that several graphs use has the
/// type of its last tensor.
fn dtypes(model: &ModelProto) -> HashMap<&[u8], i32> {
    let is_read = |node: &NodeProto| operator(node).ends_with("DequantizeLinear");
    let mut is_needed = false;
    for_each_list(model, |nodes| is_needed |= any(nodes, &is_read));
    if !is_needed {
        return HashMap::new();
    }
    let named = traversal::iter(model).filter_map(|(_, tensor)| {
        let name = tensor.name.as_ref().filter(|name| !name.is_empty())?;
        Some((name.as_bytes(), tensor.data_type.unwrap_or_default()))
    });
    named.collect()
}

/// Whether `is` holds for one of `nodes`, or for one in their subgraphs.
fn any(nodes: &[NodeProto], is: &impl Fn(&NodeProto) -> bool) -> bool {
    nodes.iter().any(|node| is(node) || subgraphs(node).any(|graph| any(&graph.node, is)))
}

/// The number of nodes, and of those that have zero points.
type Nodes = (usize, usize);

#[derive(Default)]
struct Found<'m> {
    dtypes: HashMap<&'m [u8], i32>,
    pairs: usize,
    weights: BTreeMap<(String, Option<i64>), Nodes>,
    blocks: BTreeMap<(String, Option<i64>, Option<i64>), Nodes>,
    others: BTreeMap<String, usize>,
}

impl<'m> Found<'m> {
    fn nodes(&mut self, nodes: &'m [NodeProto]) {
        let quantized: HashSet<_> = nodes
            .iter()
            .filter(|node| operator_name(node) == "QuantizeLinear")
            .filter_map(|node| node.output.first().map(|output| output.as_bytes()))
            .collect();
        for node in nodes {
            self.node(node, &quantized);
            subgraphs(node).for_each(|graph| self.nodes(&graph.node));
        }
    }

    fn node(&mut self, node: &'m NodeProto, quantized: &HashSet<&[u8]>) {
        let name = operator_name(node);
        if name == "DequantizeLinear" {
            self.dequantizes(node, quantized);
        } else if BLOCK_OPERATORS.contains(&&*name) {
            let bits = int(node, "bits").or_else(|| int(node, "expert_weight_bits"));
            let key = (operator(node), bits, int(node, "block_size"));
            count(self.blocks.entry(key).or_default(), node, 3);
        } else if name.starts_with("QLinear") || OTHERS.contains(&&*name) {
            *self.others.entry(operator(node)).or_default() += 1;
        }
    }

    fn dequantizes(&mut self, node: &'m NodeProto, quantized: &HashSet<&[u8]>) {
        let input = node.input.first().map_or(&b""[..], |input| input.as_bytes());
        if quantized.contains(input) {
            self.pairs += 1;
        } else if let Some(number) = self.dtypes.get(input) {
            let dtype = DataType::try_from(*number);
            let dtype = dtype.map_or_else(|_| number.to_string(), |dtype| dtype.to_string());
            let block_size = int(node, "block_size").filter(|size| *size > 0);
            count(self.weights.entry((dtype, block_size)).or_default(), node, 2);
        } else {
            *self.others.entry(operator(node)).or_default() += 1;
        }
    }
}

/// Counts `node`, whose input `zero_points` has its zero points.
fn count(nodes: &mut Nodes, node: &NodeProto, zero_points: usize) {
    nodes.0 += 1;
    nodes.1 += usize::from(node.input.get(zero_points).is_some_and(|name| !name.is_empty()));
}

/// The name of the operator without its domain.
pub(super) fn operator_name(node: &NodeProto) -> Cow<'_, str> {
    node.op_type.as_ref().map(|op| op.to_string_lossy()).unwrap_or_default()
}

/// The integer in the attribute called `name`.
pub(super) fn int(node: &NodeProto, name: &str) -> Option<i64> {
    let is_it = |it: &Str| *it == name;
    let attribute = node.attribute.iter().find(|it| it.name.as_ref().is_some_and(is_it))?;
    attribute.i
}
