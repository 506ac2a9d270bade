//! Attributes of windows that move over an image, where they are written as what they are when left
//! out.
//!
//! A convolution or pool without `strides` takes steps of one, without `dilations` it has
//! neighbours side by side, without `pads` nothing around the image. The schema says so in words,
//! because how many numbers that are depends on the rank of the window. Here the rank is that of
//! `kernel_shape`: where that is left out too, a list that is written counts as another one.
//!
//! Source: the operators' pages of ONNX. Before version 11 most of them do not say what is left
//! out.

use super::scope::Given;
use crate::proto::AttributeProto;

/// Whether `attribute` says what its operator takes where it is left out.
pub(super) fn is_default(
    op_type: &[u8],
    since: i64,
    attribute: &Given<'_>,
    all: &[Given<'_>],
) -> bool {
    let first = match op_type {
        b"ConvInteger" | b"QLinearConv" => 10,
        b"Conv" | b"ConvTranspose" | b"MaxPool" | b"AveragePool" | b"LpPool" | b"MaxUnpool" => 11,
        b"DeformConv" => 19,
        _ => return false,
    };
    let (value, numbers) = match attribute.name {
        b"strides" | b"dilations" => (1, 1),
        b"pads" if !pads_by_itself(all) => (0, 2),
        _ => return false,
    };
    let Some(window) = ints(all, b"kernel_shape") else { return false };
    let own = std::slice::from_ref(attribute);
    since >= first
        && attribute.value.unknown.is_empty()
        && ints(own, attribute.name).is_some_and(|list| {
            list.len() == numbers * window.len() && list.iter().all(|number| *number == value)
        })
}

/// Whether the operator finds the padding by itself, so that `pads` is not for it.
fn pads_by_itself(all: &[Given<'_>]) -> bool {
    find(all, b"auto_pad").is_some_and(|value| value.s.as_deref().unwrap_or_default() != b"NOTSET")
}

/// The list that the attribute `name` is, unless it is left out or something else.
fn ints<'g>(all: &'g [Given<'_>], name: &[u8]) -> Option<&'g [i64]> {
    let value = find(all, name)?;
    (value.r#type == Some(AttributeProto::INTS)).then_some(&value.ints)
}

fn find<'g>(all: &'g [Given<'_>], name: &[u8]) -> Option<&'g AttributeProto> {
    all.iter().find(|given| given.name == name).map(|given| given.value)
}
