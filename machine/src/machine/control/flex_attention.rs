//! FlexAttention: an attention whose scores and probabilities go through graphs of the node.
//!
//! See <https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html>. What lies between
//! the graphs is made of ONNX's operators.

use onnx_container::DataType;
use onnx_container::proto::{AttributeProto, NodeProto};

use super::{Frame, body};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::bodies::{self, Body};
use crate::kernel::call::Call;
use crate::memory::table::Entry;
use crate::numeric::number;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let attention = Attention::new(&frame.call()?)?;
    let mut inputs = frame.inputs_from(0)?.into_iter();
    let queries_and_keys = inputs.by_ref().take(2).collect();
    let scores = body::apply(frame, &attention.scores(), queries_and_keys, "scores")?;
    let scores = modify(frame, "score_mod", scores)?;
    let probabilities = body::apply(frame, &softmax(), scores, "softmax")?;
    let probabilities = modify(frame, "prob_mod", probabilities)?;
    let with_values = probabilities.into_iter().chain(inputs).collect();
    let outputs = body::apply(frame, &attention.outputs(), with_values, "outputs")?;
    Ok(outputs.into_iter().map(Some).collect())
}

/// `values` after the graph of attribute `name`, if there is one.
fn modify(frame: &mut Frame<'_>, name: &str, values: Vec<Entry>) -> Result<Vec<Entry>> {
    match frame.node.attributes.graph(name)? {
        Some(block) => frame.run(block, values, name),
        None => Ok(values),
    }
}

/// The sizes of an attention. Query heads are in groups, one for each head of keys.
struct Attention {
    /// Batch, heads of keys, heads of a group, queries.
    grouped: [i64; 4],
    heads: i64,
    head: i64,
    keys: i64,
    value: i64,
    scale: f32,
    dtype: DataType,
    precision: DataType,
}

impl Attention {
    fn new(call: &Call<'_>) -> Result<Self> {
        let [query, key, value] = [0, 1, 2].map(|i| call.shape(i));
        let (query, key, value) = (query?, key?, value?);
        let wrong = || {
            let reason =
                format!("{query:?}, {key:?} and {value:?} are not the shapes of an attention");
            Error::new(ErrorKind::Shape, reason)
        };
        let &[batch, heads, queries, head] = query.as_slice() else { return Err(wrong()) };
        let &[_, kv_heads, keys, _] = key.as_slice() else { return Err(wrong()) };
        let &[.., last] = value.as_slice() else { return Err(wrong()) };
        let fits = key == [batch, kv_heads, keys, head] && value == [batch, kv_heads, keys, last];
        if !fits || heads.checked_rem(kv_heads) != Some(0) {
            return Err(wrong());
        }
        let default =
            if call.dtype(0)? == DataType::Double { DataType::Double } else { DataType::Float };
        let precision = call.int_or("softmax_precision", i32::from(default).into())?;
        let precision = i32::try_from(precision).ok().and_then(|n| DataType::try_from(n).ok());
        let scale = call.node().attributes.float("scale")?;
        let signed = |len: usize| i64::try_from(len).map_err(Error::internal);
        Ok(Self {
            grouped: [
                signed(batch)?,
                signed(kv_heads)?,
                signed(heads / kv_heads)?,
                signed(queries)?,
            ],
            heads: signed(heads)?,
            head: signed(head)?,
            keys: signed(keys)?,
            value: signed(last)?,
            scale: scale.unwrap_or_else(|| 1.0 / number::<f32>(head).sqrt()),
            dtype: call.dtype(0)?,
            precision: precision.ok_or_else(|| {
                Error::new(ErrorKind::InvalidModel, "`softmax_precision` is no element type")
            })?,
        })
    }

    /// The shape of `len` elements for each query, by groups, or by heads.
    fn shape(&self, len: i64, by_groups: bool) -> Vec<i64> {
        let [batch, kv_heads, group, queries] = self.grouped;
        match by_groups {
            true => vec![batch, kv_heads, group, queries, len],
            false => vec![batch, self.heads, queries, len],
        }
    }

    /// `(Q @ K^T) * scale`, in the type of the softmax.
    fn scores(&self) -> Body {
        let nodes = vec![
            ints("groups", self.shape(self.head, true)),
            with_int(NodeProto::new("Reshape", ["Q", "groups"], ["queries"]), "allowzero", 1),
            einsum("bhgld,bhsd->bhgls", ["queries", "K"], "products"),
            cast("products", "wide", self.precision),
            constant("factor", AttributeProto::float("value_float", self.scale)),
            cast("factor", "scale", self.precision),
            NodeProto::new("Mul", ["wide", "scale"], ["scaled"]),
            ints("heads", self.shape(self.keys, false)),
            with_int(NodeProto::new("Reshape", ["scaled", "heads"], ["scores"]), "allowzero", 1),
        ];
        bodies::body(28, &["Q", "K"], &["scores"], nodes)
    }

    /// `probabilities @ V`, in the type of the queries.
    fn outputs(&self) -> Body {
        let nodes = vec![
            ints("groups", self.shape(self.keys, true)),
            with_int(NodeProto::new("Reshape", ["P", "groups"], ["grouped"]), "allowzero", 1),
            cast("V", "values", self.precision),
            einsum("bhgls,bhsd->bhgld", ["grouped", "values"], "products"),
            ints("heads", self.shape(self.value, false)),
            with_int(NodeProto::new("Reshape", ["products", "heads"], ["wide"]), "allowzero", 1),
            cast("wide", "Y", self.dtype),
        ];
        bodies::body(28, &["P", "V"], &["Y"], nodes)
    }
}

fn softmax() -> Body {
    let softmax = NodeProto::new("Softmax", ["scores"], ["probabilities"]);
    bodies::body(28, &["scores"], &["probabilities"], vec![softmax])
}

fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

fn with_int(node: NodeProto, name: &str, value: i64) -> NodeProto {
    with(node, AttributeProto::int(name, value))
}

fn constant(name: &str, value: AttributeProto) -> NodeProto {
    with(NodeProto::new("Constant", [""; 0], [name]), value)
}

fn ints(name: &str, values: Vec<i64>) -> NodeProto {
    constant(name, AttributeProto::ints("value_ints", values))
}

fn cast(from: &str, to: &str, dtype: DataType) -> NodeProto {
    with_int(NodeProto::new("Cast", [from], [to]), "to", i32::from(dtype).into())
}

fn einsum(equation: &str, inputs: [&str; 2], output: &str) -> NodeProto {
    with(NodeProto::new("Einsum", inputs, [output]), AttributeProto::string("equation", equation))
}
