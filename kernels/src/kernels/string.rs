//! Operators of strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch.
//!
//! Operator `StringSplit` is specified at <https://onnx.ai/onnx/operators/onnx__StringSplit.html>,
//! and the others likewise. Strings are UTF-8; case is that of Unicode, whatever the locale.

use std::borrow::Cow;
use std::collections::HashSet;

use onnx_container_proto::{Buffer, DataType};

use super::regex_dialect::full_match;
use super::words::one_of;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast, broadcast_strides, offsets, saturated};

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

/// How attributes `delimiter` and `maxsplit` split a string.
struct Splits<'a> {
    /// White space where it is empty.
    delimiter: &'a str,
    most: usize,
}

impl<'a> Splits<'a> {
    fn of(call: &Call<'a>) -> Result<Self> {
        let most = match call.node().attributes.int("maxsplit")? {
            Some(splits) => saturated(splits),
            None => usize::MAX,
        };
        Ok(Self { delimiter: call.str_or("delimiter", "")?, most })
    }

    /// The parts of `string`, one after the other: a string of a few bytes for each may have
    /// millions.
    fn parts<'s>(&self, string: &'s str) -> impl Iterator<Item = &'s str> + use<'s, 'a> {
        let Self { delimiter, most } = *self;
        let is_words = delimiter.is_empty();
        let words = is_words.then(|| words(string, most));
        let parts = (!is_words).then(|| string.splitn(most.saturating_add(1), delimiter));
        words.into_iter().flatten().chain(parts.into_iter().flatten())
    }
}

/// The words of `string` between white space; behind the `most`th split, the rest as it is.
fn words(string: &str, most: usize) -> impl Iterator<Item = &str> {
    let (mut rest, mut count) = (string.trim(), 0);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (word, behind) = match rest.find(char::is_whitespace) {
            Some(end) if count < most => rest.split_at(end),
            _ => (rest, ""),
        };
        (rest, count) = (behind.trim_start(), count + 1);
        Some(word)
    })
}

fn split_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (shape, splits) = (call.shape(0)?, Splits::of(call)?);
    let mut most = 0;
    for string in call.strings(0)? {
        most = most.max(splits.parts(text(string)?).count());
    }
    let y = OutSpec::tensor(DataType::String, [shape.as_slice(), &[most]].concat());
    Ok(vec![y, OutSpec::tensor(DataType::Int64, shape)])
}

/// Strings with fewer parts than others are filled up with empty parts.
fn split(cx: &mut RunCx<'_>) -> Result<()> {
    let (strings, splits) = (texts(cx, 0)?, Splits::of(cx)?);
    let count = |string: &str| splits.parts(string).count();
    if let Some(counts) = cx.output_if::<i64>(1)? {
        for (found, string) in counts.iter_mut().zip(&strings) {
            *found = i64::try_from(count(string)).map_err(Error::internal)?;
        }
    }
    if !cx.has_output(0) {
        return Ok(());
    }
    let most = strings.iter().map(|string| count(string)).fold(0, usize::max);
    let padded = strings
        .iter()
        .flat_map(|string| splits.parts(string).chain(std::iter::repeat("")).take(most));
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

/// What StringNormalizer does to a string.
struct Normalizer {
    action: &'static str,
    is_exact: bool,
    /// In lower case unless it is exact.
    stopwords: HashSet<String>,
}

impl Normalizer {
    fn of(call: &Call<'_>) -> Result<Self> {
        let action = one_of(call, "case_change_action", &["NONE", "LOWER", "UPPER"])?;
        let is_exact = call.flag("is_case_sensitive", false)?;
        let mut normalizer = Self { action, is_exact, stopwords: HashSet::new() };
        for word in call.node().attributes.strings_or("stopwords", &[])? {
            let word = normalizer.folded(text(word)?).into_owned();
            normalizer.stopwords.insert(word);
        }
        Ok(normalizer)
    }

    fn folded<'s>(&self, string: &'s str) -> Cow<'s, str> {
        if self.is_exact { string.into() } else { string.to_lowercase().into() }
    }

    /// Whether `string` is no stop word.
    fn keeps(&self, string: &str) -> bool {
        self.stopwords.is_empty() || !self.stopwords.contains(&*self.folded(string))
    }
}

/// One empty string is there when none is left.
fn normalizer_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let normalizer = Normalizer::of(call)?;
    let mut kept = 0;
    for string in call.strings(0)? {
        kept += usize::from(normalizer.keeps(text(string)?));
    }
    let strings = kept.max(1);
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
    let normalizer = Normalizer::of(cx)?;
    let kept = texts(cx, 0)?.into_iter().filter(|string| normalizer.keeps(string));
    let cased = kept.map(|string| Buffer::from(cased(string, normalizer.action).into_bytes()));
    let mut strings: Vec<_> = cased.collect();
    if strings.is_empty() {
        strings.push(Buffer::default());
    }
    cx.set_strings(0, strings)
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
