//! The canonical form of attributes: their values, whatever their documentation and order.
//!
//! The type of an attribute says which field holds its value. A value in another field would be
//! read by one reader and not by the next, so that is refused. Which graph a name in an attribute's
//! graph belongs to is left to `scope`; graphs come here as digests.

pub(super) use super::body::graphs;
use super::hash::{Digest, Form};
use super::types::Symbols;
use super::weights::{WeightDigests, of_elements, of_texts};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset::DefaultValue;
use crate::proto::AttributeProto;

/// The type of an attribute's value. Models of the first versions of the format do not say it;
/// there, it is that of the only field that is set.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when another field is set, or none.
pub(super) fn kind(attribute: &AttributeProto) -> Result<i32> {
    let fields = fields(attribute);
    let mut set = fields.into_iter().filter(|(_, set)| *set).map(|(kind, _)| kind);
    let (first, more) = (set.next(), set.next());
    let declared = attribute.r#type.filter(|kind| *kind != AttributeProto::UNDEFINED);
    match (declared, first, more) {
        (_, _, Some(_)) => Err(invalid("it has values of several types")),
        (None, None, None) => Err(invalid("it has neither a type nor a value")),
        (Some(kind), Some(first), None) if kind != first => {
            Err(invalid("its value is not of the type that it declares"))
        }
        (Some(kind), ..) if !fields.iter().any(|(known, _)| *known == kind) => {
            let reason = format!("attributes of type {kind} are not known");
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
        (Some(kind), ..) | (None, Some(kind), None) => Ok(kind),
    }
}

/// Whether `attribute` has a value, of whatever type.
pub(super) fn has_value(attribute: &AttributeProto) -> bool {
    fields(attribute).iter().any(|(_, set)| *set)
}

/// Whether the value of `attribute` is so long that it is worth keeping its digest: calls may read
/// it many times.
fn is_long(a: &AttributeProto) -> bool {
    let text = a.s.as_ref().map_or(0, |text| text.len());
    let numbers = a.ints.len().max(a.floats.len());
    let messages = a.strings.len() + a.tensors.len() + a.sparse_tensors.len();
    text > 128 || numbers > 16 || messages > 4 || a.tp.is_some() || !a.type_protos.is_empty()
}

/// Each type of a value, and whether its field is set.
fn fields(a: &AttributeProto) -> [(i32, bool); 14] {
    type A = AttributeProto;
    [
        (A::FLOAT, a.f.is_some()),
        (A::INT, a.i.is_some()),
        (A::STRING, a.s.is_some()),
        (A::TENSOR, a.t.is_some()),
        (A::GRAPH, a.g.is_some()),
        (A::FLOATS, !a.floats.is_empty()),
        (A::INTS, !a.ints.is_empty()),
        (A::STRINGS, !a.strings.is_empty()),
        (A::TENSORS, !a.tensors.is_empty()),
        (A::GRAPHS, !a.graphs.is_empty()),
        (A::SPARSE_TENSOR, a.sparse_tensor.is_some()),
        (A::SPARSE_TENSORS, !a.sparse_tensors.is_empty()),
        (A::TYPE_PROTO, a.tp.is_some()),
        (A::TYPE_PROTOS, !a.type_protos.is_empty()),
    ]
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}

fn form(kind: i32) -> Form {
    let mut form = Form::new("attribute");
    form.number(kind.into());
    form
}

/// The digest of an attribute's value, whose graphs have these digests.
pub(super) fn digest(
    attribute: &AttributeProto,
    graphs: &[Digest],
    weights: &WeightDigests<'_>,
) -> Result<Digest> {
    if is_long(attribute) && self::graphs(attribute).next().is_none() {
        let address = std::ptr::from_ref(attribute).addr();
        return weights.once(address, || computed(attribute, graphs, weights));
    }
    computed(attribute, graphs, weights)
}

fn computed(
    attribute: &AttributeProto,
    graphs: &[Digest],
    weights: &WeightDigests<'_>,
) -> Result<Digest> {
    type A = AttributeProto;
    let kind = kind(attribute)?;
    let mut form = form(kind);
    match kind {
        A::FLOAT => form.float(attribute.f.unwrap_or(0.0).to_bits()),
        A::INT => form.number(attribute.i.unwrap_or(0)),
        A::STRING => form.bytes(attribute.s.as_deref().unwrap_or_default()),
        A::FLOATS => floats(&mut form, attribute.floats.iter().map(|float| float.to_bits())),
        A::INTS => ints(&mut form, &attribute.ints),
        A::STRINGS => strings(&mut form, attribute.strings.iter().map(|text| &**text)),
        A::GRAPH | A::GRAPHS => digests(&mut form, graphs),
        A::TENSOR | A::TENSORS => {
            let tensors = attribute.t.as_deref().into_iter().chain(&attribute.tensors);
            let each = tensors.map(|tensor| weights.get(tensor)).collect::<Result<Vec<_>>>()?;
            digests(&mut form, &each);
        }
        A::SPARSE_TENSOR | A::SPARSE_TENSORS => {
            let one = attribute.sparse_tensor.as_deref().into_iter();
            let tensors = one.chain(&attribute.sparse_tensors);
            let each = tensors.map(|tensor| weights.sparse(tensor)).collect::<Result<Vec<_>>>()?;
            digests(&mut form, &each);
        }
        _ => {
            let types: Vec<_> =
                attribute.tp.as_deref().into_iter().chain(&attribute.type_protos).collect();
            let mut symbols = Symbols::default();
            form.count(types.len());
            types.into_iter().for_each(|one| symbols.write(&mut form, Some(one)));
        }
    }
    form.unknown(&attribute.unknown);
    Ok(form.end())
}

fn floats(form: &mut Form, bits: impl ExactSizeIterator<Item = u32>) {
    form.count(bits.len());
    bits.for_each(|bits| form.float(bits));
}

fn ints(form: &mut Form, values: &[i64]) {
    form.count(values.len());
    values.iter().for_each(|value| form.number(*value));
}

fn strings<'s>(form: &mut Form, texts: impl ExactSizeIterator<Item = &'s [u8]>) {
    form.count(texts.len());
    texts.for_each(|text| form.bytes(text));
}

fn digests(form: &mut Form, digests: &[Digest]) {
    form.count(digests.len());
    digests.iter().for_each(|digest| form.digest(digest));
}

/// The digest of the value that an operator gives an attribute that is left out.
pub(super) fn of_default(value: DefaultValue) -> Digest {
    type A = AttributeProto;
    let kind = match value {
        DefaultValue::Float(_) => A::FLOAT,
        DefaultValue::Int(_) => A::INT,
        DefaultValue::Ints(_) => A::INTS,
        DefaultValue::String(_) => A::STRING,
        DefaultValue::Strings(_) => A::STRINGS,
        DefaultValue::ZeroTensor => A::TENSOR,
    };
    let mut form = form(kind);
    match value {
        DefaultValue::Float(bits) => form.float(bits),
        DefaultValue::Int(value) => form.number(value),
        DefaultValue::Ints(values) => ints(&mut form, values),
        DefaultValue::String(text) => form.bytes(text.as_bytes()),
        DefaultValue::Strings(texts) => {
            strings(&mut form, texts.iter().map(|text| text.as_bytes()))
        }
        DefaultValue::ZeroTensor => {
            digests(&mut form, &[of_elements(DataType::Float, &[1], &0.0_f32.to_le_bytes())]);
        }
    }
    // No unknown fields.
    form.count(0);
    form.end()
}

/// The digest of the tensor that a Constant with this attribute gives; `None` if it is no such
/// attribute.
///
/// # Errors
/// Those of the tensor.
pub(super) fn of_constant(
    name: &[u8],
    attribute: &AttributeProto,
    weights: &WeightDigests<'_>,
) -> Result<Option<Digest>> {
    type A = AttributeProto;
    if !attribute.unknown.is_empty() {
        return Ok(None);
    }
    let len = |len: usize| [i64::try_from(len).unwrap_or(i64::MAX)];
    Ok(Some(match (name, kind(attribute)?, &attribute.t, &attribute.sparse_tensor) {
        (b"value", A::TENSOR, Some(tensor), _) => weights.get(tensor)?,
        (b"sparse_value", A::SPARSE_TENSOR, _, Some(tensor)) => weights.sparse(tensor)?,
        (b"value_float", A::FLOAT, ..) => {
            of_elements(DataType::Float, &[], &attribute.f.unwrap_or(0.0).to_le_bytes())
        }
        (b"value_floats", A::FLOATS, ..) => {
            let bytes: Vec<_> = attribute.floats.iter().flat_map(|x| x.to_le_bytes()).collect();
            of_elements(DataType::Float, &len(attribute.floats.len()), &bytes)
        }
        (b"value_int", A::INT, ..) => {
            of_elements(DataType::Int64, &[], &attribute.i.unwrap_or(0).to_le_bytes())
        }
        (b"value_ints", A::INTS, ..) => {
            let bytes: Vec<_> = attribute.ints.iter().flat_map(|x| x.to_le_bytes()).collect();
            of_elements(DataType::Int64, &len(attribute.ints.len()), &bytes)
        }
        (b"value_string", A::STRING, ..) => {
            of_texts(&[], std::iter::once(attribute.s.as_deref().unwrap_or_default()))
        }
        (b"value_strings", A::STRINGS, ..) => {
            let texts = attribute.strings.iter().map(|text| &**text);
            of_texts(&len(attribute.strings.len()), texts)
        }
        _ => return Ok(None),
    }))
}
