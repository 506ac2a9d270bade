//! Operators of strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch.
//!
//! Operator `StringSplit` is specified at <https://onnx.ai/onnx/operators/onnx__StringSplit.html>, and the
//! others likewise. Strings are UTF-8; case is that of Unicode, whatever the locale.

use std::collections::HashSet;

use onnx_container::{Buffer, DataType};

use super::regex_dialect::full_match;
use super::words::one_of;
use crate::broadcast::{broadcast, broadcast_strides, offsets};
use crate::call::{Call, OutSpec, RunCx};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("StringConcat", concat_infer, concat),
    Builtin::new("StringSplit", split_infer, split),
    Builtin::new("StringNormalizer", normalizer_infer, normalizer),
    Builtin::new("RegexFullMatch", match_infer, match_),
];

/// The strings of input `i` as text.
fn texts<'a>(call: &Call<'a>, i: usize) -> Result<Vec<&'a str>> {
    call.strings(i)?.iter().map(|string| text(string)).collect()
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::Value, "a string is not UTF-8"))
}

fn concat_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = broadcast(&[call.shape(0)?, call.shape(1)?])?;
    Ok(vec![OutSpec::tensor(DataType::String, shape)])
}

fn concat(cx: &mut RunCx<'_>) -> Result<()> {
    let (x, y, to) = (cx.strings(0)?, cx.strings(1)?, cx.out_shape(0)?);
    let (of_x, of_y) = (broadcast_strides(&cx.shape(0)?, to), broadcast_strides(&cx.shape(1)?, to));
    let pairs = offsets(to, &of_x).zip(offsets(to, &of_y));
    let joined = pairs.filter_map(|(i, j)| Some([x.get(i)?.as_ref(), y.get(j)?.as_ref()].concat()));
    cx.set_strings(0, joined.map(Buffer::from).collect())
}

/// The parts of every string.
fn parts<'a>(call: &Call<'a>) -> Result<Vec<Vec<&'a str>>> {
    let delimiter = call.str_or("delimiter", "")?;
    let most = match call.node().attributes.int("maxsplit")? {
        Some(splits) => usize::try_from(splits).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let parts = |string: &'a str| match delimiter {
        "" => words(string, most),
        delimiter => string.splitn(most.saturating_add(1), delimiter).collect(),
    };
    Ok(texts(call, 0)?.into_iter().map(parts).collect())
}

/// The words of `string` between white space; behind the `most`th split, the rest as it is.
fn words(string: &str, most: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = string.trim();
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).filter(|_| words.len() < most);
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

fn split_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, parts) = (call.shape(0)?, parts(call)?);
    let most = parts.iter().map(Vec::len).max().unwrap_or_default();
    let y = OutSpec::tensor(DataType::String, [shape.as_slice(), &[most]].concat());
    Ok(vec![y, OutSpec::tensor(DataType::Int64, shape)])
}

/// Strings with fewer parts than others are filled up with empty parts.
fn split(cx: &mut RunCx<'_>) -> Result<()> {
    let parts = parts(cx)?;
    if let Some(counts) = cx.output_if::<i64>(1)? {
        for (count, parts) in counts.iter_mut().zip(&parts) {
            *count = i64::try_from(parts.len()).map_err(Error::internal)?;
        }
    }
    if !cx.has_output(0) {
        return Ok(());
    }
    let most = parts.iter().map(Vec::len).max().unwrap_or_default();
    let padded = parts
        .iter()
        .flat_map(|parts| parts.iter().copied().chain(std::iter::repeat_n("", most - parts.len())));
    cx.set_strings(0, padded.map(|part| Buffer::from(part.as_bytes().to_vec())).collect())
}

/// `string` as attribute `case_change_action` says.
fn cased(string: &str, action: &str) -> String {
    match action {
        "LOWER" => string.to_lowercase(),
        "UPPER" => string.to_uppercase(),
        _ => string.to_owned(),
    }
}

/// The strings that are no stop words, in their new case; one empty string when none is left.
fn normalized(call: &Call<'_>) -> Result<Vec<Buffer>> {
    let action = one_of(call, "case_change_action", &["NONE", "LOWER", "UPPER"])?;
    let is_exact = call.flag("is_case_sensitive", false)?;
    let folded = |string: &str| if is_exact { string.to_owned() } else { string.to_lowercase() };
    let stopwords = call.node().attributes.strings("stopwords")?.unwrap_or_default();
    let stopwords = stopwords.iter().map(|word| text(word).map(folded));
    let stopwords = stopwords.collect::<Result<HashSet<_>>>()?;
    let left = texts(call, 0)?.into_iter().filter(|string| !stopwords.contains(&folded(string)));
    let cased: Vec<_> =
        left.map(|string| Buffer::from(cased(string, action).into_bytes())).collect();
    Ok(if cased.is_empty() { vec![Buffer::default()] } else { cased })
}

fn normalizer_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let strings = normalized(call)?.len();
    let shape = match call.shape(0)?.as_slice() {
        [_] => vec![strings],
        [1, _] => vec![1, strings],
        other => {
            let reason = format!("the shape is {other:?}, not [C] or [1, C]");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    };
    Ok(vec![OutSpec::tensor(DataType::String, shape)])
}

fn normalizer(cx: &mut RunCx<'_>) -> Result<()> {
    cx.set_strings(0, normalized(cx)?)
}

fn match_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Bool, call.shape(0)?)])
}

fn match_(cx: &mut RunCx<'_>) -> Result<()> {
    let pattern = full_match(cx.str_or("pattern", "")?)?;
    let strings = texts(cx, 0)?;
    let matches = cx.output::<bool>(0)?.iter_mut().zip(strings);
    matches.for_each(|(matches, string)| *matches = pattern.is_match(string));
    Ok(())
}
