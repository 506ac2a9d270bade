//! The types of values that follow from declared ones by a few common operators.
//!
//! Exporters declare the types of inputs and outputs alone. This finds what needs no more than
//! that, the attributes of nodes and the dimensions of initializers: shapes that depend on elements
//! are left to `onnx.shape_inference`. A type that is not sure is not there.

use std::convert::Infallible;

use foldhash::{HashMap, HashMapExt};

use crate::dtype::DataType;
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value;
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
};
use crate::wire::Str;

/// Operators whose first output has the type and the shape of the first input.
const SAME: &str = "Identity Relu LeakyRelu Elu Selu Celu Sigmoid Tanh Neg Abs Exp Log Sqrt \
    Reciprocal Erf Floor Ceil Round Sign Sin Cos Softplus Softsign Gelu HardSigmoid HardSwish Mish \
    Swish ThresholdedRelu Softmax LogSoftmax Hardmax Clip Dropout LayerNormalization \
    BatchNormalization InstanceNormalization GroupNormalization LRN CumSum Trilu \
    LpNormalization MeanVarianceNormalization PRelu";
/// Operators of one input with the shape of the input, and BOOL elements.
const BOOL: &str = "Not IsNaN IsInf";
/// Operators that broadcast all inputs, with elements of the type of the first one.
const BROADCAST: &str = "Add Sub Mul Div Pow Max Min Mean Sum Mod";
/// Other operators with elements of the type of the first input, whose dimensions depend on more.
const OF_FIRST: &str = "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool Reshape Squeeze \
    Unsqueeze Flatten Slice Concat Split Expand Tile Pad ReduceMean ReduceSum ReduceMax ReduceMin \
    Resize Einsum";
/// Operators that broadcast all inputs, and whose elements are BOOL.
const COMPARE: &str = "Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor";

/// The element type of a tensor, and its dimensions where they are known.
#[derive(Debug, Clone)]
pub(crate) struct InferredType {
    pub(crate) dtype: i32,
    pub(crate) dims: Option<Vec<Dimension>>,
}

impl InferredType {
    fn of_tensor(tensor: &TensorProto) -> Self {
        let dims = tensor.dims.iter().map(|dim| Dimension::from(*dim)).collect();
        Self { dtype: tensor.data_type.unwrap_or(0), dims: Some(dims) }
    }

    /// That of a tensor that `info` declares.
    pub(crate) fn declared(info: &ValueInfoProto) -> Option<Self> {
        let Some(Value::TensorType(tensor)) = &info.r#type.as_deref()?.value else { return None };
        let dims = tensor.shape.as_deref().map(|shape| shape.dim.clone());
        let dtype = tensor.elem_type.filter(|dtype| *dtype != DataType::Undefined.number())?;
        Some(Self { dtype, dims })
    }

    /// The dimensions that follow from `found`, where those of a declared type are not known.
    fn or_dims_of(&self, found: Self) -> Self {
        let is_same = self.dtype == found.dtype;
        let dims = self.dims.clone().or_else(|| found.dims.filter(|_| is_same));
        Self { dtype: self.dtype, dims }
    }

    /// As people read it, without dimensions that are not known: `FLOAT[N,128]`.
    pub(crate) fn text(&self) -> String {
        let dtype = DataType::try_from(self.dtype)
            .map_or_else(|_| self.dtype.to_string(), |dtype| dtype.to_string());
        self.dims.as_deref().map_or(dtype.clone(), |dims| format!("{dtype}{}", shape_text(dims)))
    }

    /// As a declaration: `None` without dimensions, which onnx's checker asks for.
    pub(crate) fn whole(&self) -> Option<TypeProto> {
        self.dims.is_some().then(|| self.to_proto())
    }

    /// As a message, without a shape where the dimensions are not known.
    pub(crate) fn to_proto(&self) -> TypeProto {
        let mut proto = TypeProto::tensor(self.dtype, []);
        if let Some(Value::TensorType(tensor)) = &mut proto.value {
            tensor.shape = self.dims.as_ref().map(|dims| {
                let mut shape = TensorShapeProto::default();
                shape.dim.clone_from(dims);
                Box::new(shape)
            });
        }
        proto
    }
}

/// The types of the values of the main graph that are declared or follow from declared ones.
pub(crate) fn inferred_types(model: &ModelProto) -> HashMap<&Str, InferredType> {
    let found = inferred_types_with(model, |_, _| Ok::<_, Infallible>(None));
    found.unwrap_or_else(|never| match never {})
}

/// As [`inferred_types`]. `settle` gets each value of a node with its type as far as it is known,
/// and gives another type where the value has one.
pub(crate) fn inferred_types_with<E>(
    model: &ModelProto,
    mut settle: impl FnMut(&Str, Option<&InferredType>) -> Result<Option<InferredType>, E>,
) -> Result<HashMap<&Str, InferredType>, E> {
    let Some(graph) = model.graph.as_deref() else { return Ok(HashMap::new()) };
    let mut types = declared(graph);
    // A local function may replace an operator of ONNX.
    let is_onnx = |domain: Option<&Str>| domain.is_none_or(|it| it.is_empty() || *it == "ai.onnx");
    let is_replaced = model.functions.iter().any(|function| is_onnx(function.domain.as_ref()));
    for node in &graph.node {
        let is_known = !is_replaced && is_onnx(node.domain.as_ref());
        for (number, output) in node.output.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            let found =
                if is_known && number == 0 { completing(node, output, &types) } else { None };
            let known = found.as_ref().or_else(|| types.get(output));
            let mut settled = settle(output, known)?;
            // What is declared may leave open what follows from the inputs.
            let is_open = settled.is_some() && found.is_none() && is_known && number == 0;
            if let Some(inferred) = is_open.then(|| result_of(node, &types)).flatten() {
                settled = settle(output, Some(&inferred))?;
            }
            if let Some(whole) = settled.or(found) {
                types.insert(output, whole);
            }
        }
    }
    Ok(types)
}

/// The type of `output`, the first of `node`, where it says more than is known.
fn completing(
    node: &NodeProto,
    output: &Str,
    types: &HashMap<&Str, InferredType>,
) -> Option<InferredType> {
    let known = types.get(output);
    if known.is_some_and(|known| known.dims.is_some()) {
        return None;
    }
    let found = result_of(node, types)?;
    Some(match known {
        Some(known) => known.or_dims_of(found),
        None => found,
    })
}

/// A shape as people read it: `[N,128,?]`.
pub(crate) fn shape_text(dims: &[Dimension]) -> String {
    let dim = |dim: &Dimension| match &dim.value {
        Some(DimensionValue::DimValue(size)) => size.to_string(),
        Some(DimensionValue::DimParam(name)) => name.to_string_lossy().into_owned(),
        _ => "?".to_owned(),
    };
    format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","))
}

fn declared(graph: &GraphProto) -> HashMap<&Str, InferredType> {
    let infos = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
    let infos = infos.filter_map(|info| Some((info.name.as_ref()?, InferredType::declared(info)?)));
    let tensors = graph.initializer.iter();
    let tensors =
        tensors.filter_map(|tensor| Some((tensor.name.as_ref()?, InferredType::of_tensor(tensor))));
    infos.chain(tensors).collect()
}

/// The type of the first output of `node`.
fn result_of(node: &NodeProto, types: &HashMap<&Str, InferredType>) -> Option<InferredType> {
    let input = |number: usize| types.get(node.input.get(number)?);
    let op = node.op_type.as_ref()?.to_str().ok()?;
    let is_of = |list: &str| list.split_whitespace().any(|other| other == op);
    let bool = DataType::Bool.number();
    if is_of(SAME) {
        return input(0).cloned();
    }
    if is_of(BOOL) {
        return Some(InferredType { dtype: bool, ..input(0)?.clone() });
    }
    if is_of(BROADCAST) {
        return Some(InferredType { dtype: input(0)?.dtype, dims: broadcast_of(node, types) });
    }
    if is_of(COMPARE) {
        return Some(InferredType { dtype: bool, dims: broadcast_of(node, types) });
    }
    if is_of(OF_FIRST) {
        return Some(typed(input(0)?, None));
    }
    let int64 = DataType::Int64.number();
    match op {
        "Constant" => constant(node),
        "Cast" => {
            let dtype = i32::try_from(int(node, "to")?).ok()?;
            Some(InferredType { dtype, ..input(0)?.clone() })
        }
        "Shape" => {
            let dims = input(0).and_then(|input| shape_dims(node, input));
            Some(InferredType { dtype: int64, dims })
        }
        "Size" => Some(InferredType { dtype: int64, dims: Some(Vec::new()) }),
        "Where" => Some(InferredType { dtype: input(1)?.dtype, dims: broadcast_of(node, types) }),
        "MatMul" => Some(typed(input(0)?, product(input(0)?, input(1)))),
        "Gemm" => Some(typed(input(0)?, gemm(node, input(0)?, input(1)))),
        "Transpose" => Some(typed(input(0)?, transposed(node, input(0)?))),
        "Gather" => Some(typed(input(0)?, gathered(node, input(0)?, input(1)))),
        "RMSNormalization" => Some(typed(input(1)?, input(0)?.dims.clone())),
        _ => None,
    }
}

/// Of the type of `one`, with other dimensions.
fn typed(one: &InferredType, dims: Option<Vec<Dimension>>) -> InferredType {
    InferredType { dtype: one.dtype, dims }
}

fn constant(node: &NodeProto) -> Option<InferredType> {
    let [attribute] = node.attribute.as_slice() else { return None };
    match attribute.name.as_ref()?.to_str().ok()? {
        "value" => attribute.t.as_deref().map(InferredType::of_tensor),
        "value_float" => {
            Some(InferredType { dtype: DataType::Float.number(), dims: Some(Vec::new()) })
        }
        "value_int" => {
            Some(InferredType { dtype: DataType::Int64.number(), dims: Some(Vec::new()) })
        }
        _ => None,
    }
}

/// The dimension that a Shape of `input` has, which counts those of the input.
fn shape_dims(node: &NodeProto, input: &InferredType) -> Option<Vec<Dimension>> {
    let rank = i64::try_from(input.dims.as_ref()?.len()).ok()?;
    node.attribute.is_empty().then(|| vec![Dimension::from(rank)])
}

/// The dimensions of all inputs of `node`, broadcast. Below version 7 attributes say how, and such
/// nodes have none here.
fn broadcast_of(node: &NodeProto, types: &HashMap<&Str, InferredType>) -> Option<Vec<Dimension>> {
    if attribute(node, "broadcast").is_some() || attribute(node, "axis").is_some() {
        return None;
    }
    let mut inputs = node.input.iter().map(|name| types.get(name)?.dims.as_deref());
    let first = inputs.next()??.to_vec();
    inputs.try_fold(first, |all, dims| Some(broadcast(&all, dims?)))
}

fn broadcast(a: &[Dimension], b: &[Dimension]) -> Vec<Dimension> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let alone = long.len().saturating_sub(short.len());
    let before = long.iter().take(alone).cloned();
    let both = long.iter().skip(alone).zip(short).map(|(a, b)| broadcast_dim(a, b));
    before.chain(both).collect()
}

fn broadcast_dim(a: &Dimension, b: &Dimension) -> Dimension {
    let is_one = |dim: &Dimension| dim.value == Some(DimensionValue::DimValue(1));
    let is_many =
        |dim: &Dimension| matches!(dim.value, Some(DimensionValue::DimValue(size)) if size > 1);
    match (a.value == b.value, a) {
        (true, _) => a.clone(),
        _ if is_one(b) || is_many(a) => a.clone(),
        _ if is_one(a) || is_many(b) => b.clone(),
        _ => Dimension::default(),
    }
}

/// The dimensions of a product of `a` and `b`, of two dimensions or more each.
fn product(a: &InferredType, b: Option<&InferredType>) -> Option<Vec<Dimension>> {
    let (_, a) = a.dims.as_ref()?.split_last()?;
    let (b_columns, b) = b?.dims.as_ref()?.split_last()?;
    let ((rows, a), (_, b)) = (a.split_last()?, b.split_last()?);
    let mut dims = broadcast(a, b);
    dims.extend([rows.clone(), b_columns.clone()]);
    Some(dims)
}

fn gemm(node: &NodeProto, a: &InferredType, b: Option<&InferredType>) -> Option<Vec<Dimension>> {
    let (a, b) = (a.dims.as_ref()?, b?.dims.as_ref()?);
    let is_transposed = |name: &str| int(node, name).is_some_and(|set| set != 0);
    let rows = a.get(usize::from(is_transposed("transA")))?;
    let columns = b.get(usize::from(!is_transposed("transB")))?;
    Some(vec![rows.clone(), columns.clone()])
}

fn transposed(node: &NodeProto, input: &InferredType) -> Option<Vec<Dimension>> {
    let dims = input.dims.as_ref()?;
    let Some(perm) = attribute(node, "perm") else {
        return Some(dims.iter().rev().cloned().collect());
    };
    let dim = |axis: &i64| dims.get(usize::try_from(*axis).ok()?).cloned();
    (perm.ints.len() == dims.len()).then(|| perm.ints.iter().map(dim).collect())?
}

fn gathered(
    node: &NodeProto,
    data: &InferredType,
    indices: Option<&InferredType>,
) -> Option<Vec<Dimension>> {
    let (data, indices) = (data.dims.as_ref()?, indices?.dims.as_ref()?);
    let axis = int(node, "axis").unwrap_or(0);
    let rank = i64::try_from(data.len()).ok()?;
    let axis = usize::try_from(if axis < 0 { axis.checked_add(rank)? } else { axis }).ok()?;
    let after = data.get(axis..)?.split_first()?.1;
    Some(data.iter().take(axis).chain(indices).chain(after).cloned().collect())
}

fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    let is_it = |it: &Str| *it == name;
    node.attribute.iter().find(|it| it.name.as_ref().is_some_and(is_it))
}

fn int(node: &NodeProto, name: &str) -> Option<i64> {
    attribute(node, name)?.i
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::opset::{Formal, Signature};

    /// The operators of the lists, and of the match, with the input that has the elements of the
    /// output: `None` for BOOL and INT64.
    #[test]
    fn the_elements_are_those_of_the_schemas_in_every_version() {
        let first = [SAME, BROADCAST, OF_FIRST, "MatMul Gemm Transpose Gather"];
        let lists = first.into_iter().map(|list| (list, Some(0)));
        let others = [
            ("RMSNormalization Where", Some(1)),
            (BOOL, None),
            (COMPARE, None),
            ("Shape Size", None),
        ];
        let mut seen = 0;
        for (list, input) in lists.chain(others) {
            for op in list.split_whitespace() {
                for signature in
                    (1..=30).filter_map(|version| Signature::of(op.as_bytes(), version))
                {
                    let wanted = input.map_or(Formal::Other, |input| signature.input(input));
                    assert_eq!(signature.output(0), wanted, "{signature:?}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 1000, "{seen}");
    }
}
