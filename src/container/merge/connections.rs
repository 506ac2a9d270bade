//! What two values have to agree on that become one: an output and an input that are connected, and
//! two inputs that are one input of the result.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind};
use crate::graph::inferred_types::shape_text;
use crate::proto::tensor_shape_proto::DimensionValue;
use crate::proto::type_proto::Value;
use crate::proto::{GraphProto, TypeProto, ValueInfoProto};
use crate::util::did_you_mean::did_you_mean;

/// What is wrong with the connections, and with the inputs that become one.
pub(super) fn check_connections(
    first: &GraphProto,
    second: &GraphProto,
    connections: &[(String, String)],
    same: &[(String, String)],
) -> Vec<Error> {
    let (mut errors, mut inputs) = (Vec::new(), HashSet::new());
    let connected = connections.iter().map(|pair| (pair, &first.output, "no output"));
    let same = same.iter().map(|pair| (pair, &first.input, "no input"));
    for ((from, input), list, none) in connected.chain(same) {
        match (find(list, from), find(&second.input, input)) {
            (Some(from), Some(input)) => errors.extend(check_types(from, input)),
            (from_found, input_found) => {
                let first = from_found.is_none().then_some(("first", none, from, list));
                let second =
                    input_found.is_none().then_some(("second", "no input", input, &second.input));
                let missing = first.into_iter().chain(second);
                errors.extend(missing.map(|(model, none, name, list)| {
                    unknown(&format!("the {model} model has {none}"), name, list)
                }));
            }
        }
        if !inputs.insert(input) {
            let reason = "is given two values: connect it once";
            errors.push(Error::new(ErrorKind::InvalidArgument, reason).with_tensor(input.as_str()));
        }
    }
    errors
}

fn find<'l>(list: &'l [ValueInfoProto], name: &str) -> Option<&'l ValueInfoProto> {
    list.iter().find(|info| info.name.as_ref().is_some_and(|own| *own == name))
}

fn unknown(what: &str, name: &str, infos: &[ValueInfoProto]) -> Error {
    let names: Vec<_> = infos.iter().filter_map(|info| info.name.as_ref()).collect();
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let hint = did_you_mean(name, names.iter().map(AsRef::as_ref));
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    let error = Error::new(ErrorKind::MissingTensor, format!("{what} of this name{hint}"));
    error.with_tensor(name)
}

/// Why a value of the type of `output` cannot be `input`, as far as both are declared.
fn check_types(output: &ValueInfoProto, input: &ValueInfoProto) -> Option<Error> {
    let value = |info: &ValueInfoProto| info.r#type.as_deref().cloned();
    let (from, to) = (value(output)?, value(input)?);
    let name = |info: &ValueInfoProto| info.name.clone().unwrap_or_default();
    let said = |what: &str| {
        format!(
            "`{}` of the first model and `{}` of the second have {what}",
            name(output),
            name(input)
        )
    };
    let error = match (from.value.as_ref()?, to.value.as_ref()?) {
        (Value::TensorType(a), Value::TensorType(b)) => {
            let known = |dtype: Option<i32>| dtype.filter(|dtype| *dtype != 0);
            let types = known(a.elem_type).zip(known(b.elem_type));
            if types.is_some_and(|(a, b)| a != b) {
                Error::new(ErrorKind::DataType, said("different element types"))
            } else if have_other_dims(&from, &to) {
                Error::new(
                    ErrorKind::Shape,
                    said(&format!("different shapes, {} and {}", shape(&from), shape(&to))),
                )
            } else {
                return None;
            }
        }
        (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => {
            Error::new(ErrorKind::DataType, said("different kinds of values"))
        }
        _ if have_other_elements(&from, &to) => {
            Error::new(ErrorKind::DataType, said("different types of elements"))
        }
        _ => return None,
    };
    Some(error.with_tensor(name(input).to_string_lossy()))
}

/// The shape of a tensor as people read it.
fn shape(of: &TypeProto) -> String {
    let Some(Value::TensorType(tensor)) = &of.value else { return String::new() };
    shape_text(tensor.shape.as_deref().map_or(&[], |shape| shape.dim.as_slice()))
}

/// Whether two values declare elements of other types, at any depth: shapes do not count.
fn have_other_elements(from: &TypeProto, to: &TypeProto) -> bool {
    let known = |number: Option<i32>| number.filter(|number| *number != 0);
    let differ =
        |a: Option<i32>, b: Option<i32>| known(a).zip(known(b)).is_some_and(|(a, b)| a != b);
    let inside = |a: Option<&TypeProto>, b: Option<&TypeProto>| {
        a.zip(b).is_some_and(|(a, b)| have_other_elements(a, b))
    };
    match (from.value.as_ref(), to.value.as_ref()) {
        (Some(Value::TensorType(a)), Some(Value::TensorType(b))) => {
            differ(a.elem_type, b.elem_type)
        }
        (Some(Value::SequenceType(a)), Some(Value::SequenceType(b))) => {
            inside(a.elem_type.as_deref(), b.elem_type.as_deref())
        }
        (Some(Value::OptionalType(a)), Some(Value::OptionalType(b))) => {
            inside(a.elem_type.as_deref(), b.elem_type.as_deref())
        }
        (Some(Value::MapType(a)), Some(Value::MapType(b))) => {
            differ(a.key_type, b.key_type)
                || inside(a.value_type.as_deref(), b.value_type.as_deref())
        }
        (Some(a), Some(b)) => std::mem::discriminant(a) != std::mem::discriminant(b),
        _ => false,
    }
}

/// Whether the declared shapes of two tensors have different ranks, or differ in a dimension that
/// both declare as a number.
fn have_other_dims(from: &TypeProto, to: &TypeProto) -> bool {
    let dims = |of: &TypeProto| {
        let Some(Value::TensorType(tensor)) = &of.value else { return None };
        let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match dim.value {
            Some(DimensionValue::DimValue(value)) => Some(value),
            _ => None,
        });
        Some(dims.collect::<Vec<_>>())
    };
    let Some((from, to)) = dims(from).zip(dims(to)) else { return false };
    let differ = |(a, b): (&Option<i64>, &Option<i64>)| a.zip(*b).is_some_and(|(a, b)| a != b);
    from.len() != to.len() || from.iter().zip(&to).any(differ)
}
