//! The text that `inspect` prints. What a model does not have has no line.

use std::io;

use onnx_container::ByteSize;
use onnx_container::summary::{
    Quantization, Stored, Summary, TensorSummary, TensorTotals, ValueSummary,
};

use super::{Inspected, top, tree};
use crate::args::InspectArgs;
use crate::model::needed::{NeededFile, State};
use crate::terminal::output::{Output, count, cut};

/// Where the lines of a list continue, in characters. A name is never cut: what is shown can be
/// given back to `extract` and `replace`.
const INDENT: usize = 14;

/// The width of the words before the numbers, in characters.
const LABEL: usize = 11;

/// Prints all of it, part by part.
pub fn print(inspected: &Inspected<'_>, args: &InspectArgs, out: &mut Output) -> io::Result<()> {
    let Inspected { summary, .. } = inspected;
    let size = ByteSize(inspected.model_bytes);
    row("model", format!("{} ({size})", inspected.model.display()), out)?;
    if let Some(rows) = &inspected.tree {
        return tree::print(rows, out);
    }
    if inspected.is_model {
        versions(summary, out)?;
        described(summary, out)?;
        graphs(summary, out)?;
        let top = top(args);
        inputs(summary, top, out)?;
        outputs(summary, top, out)?;
        operators(summary, out)?;
        quantized(&summary.quantization, out)?;
    } else {
        metadata(summary, out)?;
    }
    parameters(summary, out)?;
    tensors(inspected, args, out)?;
    files(inspected, out)
}

fn row(label: &str, text: impl std::fmt::Display, out: &mut Output) -> io::Result<()> {
    out.line(format!("{label:<LABEL$}{text}").trim_end())
}

/// A line that is there where there is something to say.
fn row_of(label: &str, text: Option<&str>, out: &mut Output) -> io::Result<()> {
    text.map_or(Ok(()), |text| row(label, cut(text, LONGEST), out))
}

/// The most characters of a text that anybody may have written.
const LONGEST: usize = 200;

fn versions(summary: &Summary, out: &mut Output) -> io::Result<()> {
    let known = |number: Option<i64>| number.map_or("(none)".to_owned(), |n| n.to_string());
    let opsets: Vec<_> = match summary.opsets.as_slice() {
        [] => vec!["(none)".to_owned()],
        all => all.iter().map(|one| format!("{} {}", one.domain, known(one.version))).collect(),
    };
    row("IR", known(summary.ir_version), out)?;
    out.wrapped(format!("{:<LABEL$}", "opsets"), opsets, ", ", LABEL)?;
    summary.refused.iter().try_for_each(|why| out.prose(&format!("{:<LABEL$}", "refused"), why))
}

fn described(summary: &Summary, out: &mut Output) -> io::Result<()> {
    let producer = summary.producer.as_deref().unwrap_or("(none)");
    let version = summary.producer_version.as_deref().unwrap_or_default();
    row("producer", cut(&format!("{producer} {version}"), LONGEST), out)?;
    row_of("domain", summary.domain.as_deref(), out)?;
    let version = summary.model_version.filter(|version| *version != 0);
    row_of("version", version.map(|version| version.to_string()).as_deref(), out)?;
    row_of("says", summary.doc_string.as_deref(), out)?;
    metadata(summary, out)?;
    row("digests", if summary.has_digests { "stored" } else { "none" }, out)
}

fn metadata(summary: &Summary, out: &mut Output) -> io::Result<()> {
    if summary.metadata.is_empty() {
        return Ok(());
    }
    row("metadata", summary.metadata.len(), out)?;
    for entry in summary.metadata.iter().take(MOST_ENTRIES) {
        let (key, value) = (cut(&entry.key, LONGEST), cut(&entry.value, LONGEST));
        out.line(format_args!("{:INDENT$}{key}={value}", ""))?;
    }
    match summary.metadata.len().saturating_sub(MOST_ENTRIES) {
        0 => Ok(()),
        more => out.line(format_args!("{:INDENT$}and {more} more: --json lists all", "")),
    }
}

/// The most entries of metadata that are shown.
const MOST_ENTRIES: usize = 20;

fn graphs(summary: &Summary, out: &mut Output) -> io::Result<()> {
    let graphs = &summary.graphs;
    row("graph", summary.graph.as_deref().unwrap_or("(none)"), out)?;
    let inner = match graphs.inner_nodes {
        0 => String::new(),
        inner => format!(", and {inner} in subgraphs and functions"),
    };
    row("nodes", format!("{}{inner}", graphs.nodes), out)?;
    if graphs.functions > 0 {
        row("functions", graphs.functions, out)?;
    }
    if graphs.subgraphs > 0 {
        let (subgraphs, depth) = (graphs.subgraphs, graphs.subgraph_depth);
        row("subgraphs", format!("{subgraphs}, depth {depth}"), out)?;
    }
    Ok(())
}

fn inputs(summary: &Summary, top: usize, out: &mut Output) -> io::Result<()> {
    let all = &summary.inputs;
    let required: Vec<_> = all.iter().filter(|input| !input.has_initializer).collect();
    let optional = match all.len() - required.len() {
        0 => String::new(),
        optional => format!(", and {optional} with an initializer"),
    };
    row("inputs", format!("{}{optional}", required.len()), out)?;
    values(&required, top, out)
}

fn outputs(summary: &Summary, top: usize, out: &mut Output) -> io::Result<()> {
    row("outputs", summary.outputs.len(), out)?;
    values(&summary.outputs.iter().collect::<Vec<_>>(), top, out)
}

/// Prints the first `top` of `values`; 0 prints all.
fn values(values: &[&ValueSummary], top: usize, out: &mut Output) -> io::Result<()> {
    let listed = if top == 0 { values.len() } else { top.min(values.len()) };
    if listed == 0 {
        return Ok(());
    }
    let rows: Vec<_> = values.iter().take(listed).map(|value| ValueRow::of(value)).collect();
    let dtype = column(rows.iter().map(|row| row.dtype.as_str()));
    let shape = column(rows.iter().map(|row| row.shape.as_str()));
    out.line(format_args!("{:INDENT$}{:<dtype$}  {:<shape$}  NAME", "", "TYPE", "SHAPE"))?;
    for ValueRow { dtype: a, shape: b, name } in rows {
        let start = format!("{:INDENT$}{a:<dtype$}  {b:<shape$}  ", "");
        out.listed(start, [name], "  ", INDENT)?;
    }
    more(values.len(), listed, out)
}

/// The line of an input or output.
struct ValueRow {
    dtype: String,
    shape: String,
    name: String,
}

impl ValueRow {
    fn of(value: &ValueSummary) -> Self {
        let declared = || value.declared.clone().unwrap_or_else(|| "(no type)".to_owned());
        let is_tensor = value.dtype.is_some() || value.shape.is_some();
        let shape = value.shape.as_ref().map(|dims| bracketed(dims));
        let no_shape = if is_tensor { "(no shape)" } else { "" };
        Self {
            dtype: value.dtype.clone().unwrap_or_else(declared),
            shape: shape.unwrap_or_else(|| no_shape.to_owned()),
            name: value.name.clone(),
        }
    }
}

/// The width of a column with these cells.
fn column<'c>(cells: impl Iterator<Item = &'c str>) -> usize {
    cells.map(|cell| cell.chars().count()).max().unwrap_or_default().clamp(8, WIDEST)
}

/// The most characters of a column; a longer cell only moves the cells after it in its own row.
const WIDEST: usize = 24;

fn bracketed(dims: &[impl ToString]) -> String {
    let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(","))
}

fn operators(summary: &Summary, out: &mut Output) -> io::Result<()> {
    if summary.graphs.operators.is_empty() {
        return Ok(());
    }
    row("operators", summary.graphs.operators.len(), out)?;
    for operator in &summary.graphs.operators {
        out.line(format_args!("{:>9}  {}", operator.nodes, operator.operator))?;
    }
    Ok(())
}

fn quantized(quantization: &Quantization, out: &mut Output) -> io::Result<()> {
    if quantization.is_empty() {
        return Ok(());
    }
    let Quantization { pairs, weights, blocks, operators, .. } = quantization;
    let blocks_of = |size: &Option<i64>| size.map(|size| format!(" in blocks of {size}"));
    let mut parts = Vec::new();
    if *pairs > 0 {
        parts.push(count(*pairs, "QuantizeLinear/DequantizeLinear pair"));
    }
    parts.extend(weights.iter().map(|of| {
        let blocks = blocks_of(&of.block_size).unwrap_or_default();
        let zeros = zero_points(of.nodes, of.with_zero_points);
        format!("{} of {} by DequantizeLinear{blocks}{zeros}", count(of.nodes, "weight"), of.dtype)
    }));
    parts.extend(blocks.iter().map(|of| {
        let bits = of.bits.map(|bits| format!(" of {bits} bits")).unwrap_or_default();
        let blocks = blocks_of(&of.block_size).unwrap_or_default();
        let zeros = zero_points(of.nodes, of.with_zero_points);
        format!("{} {}{bits}{blocks}{zeros}", of.nodes, of.operator)
    }));
    parts.extend(operators.iter().map(|of| format!("{} {}", of.nodes, of.operator)));
    out.wrapped(format!("{:<LABEL$}", "quantized"), parts, ", ", LABEL)
}

/// How many of `nodes` have zero points.
fn zero_points(nodes: usize, with: usize) -> String {
    match with {
        0 => " (symmetric)".to_owned(),
        all if all == nodes => " with zero points".to_owned(),
        some => format!(" ({some} with zero points)"),
    }
}

fn parameters(summary: &Summary, out: &mut Output) -> io::Result<()> {
    let mut text = in_words(summary.parameters);
    if !summary.quantization.is_empty() && summary.parameters > 0 {
        let bytes = summary.dtypes.iter().fold(0, |sum, of| of.bytes.saturating_add(sum));
        // Rounded, for people.
        let bits = bytes as f64 * 8.0 / summary.parameters as f64;
        text += &format!(", {bits:.2} bits each with scales and zero points");
    }
    row("parameters", text, out)?;
    if summary.dtypes.is_empty() {
        return Ok(());
    }
    out.line(format_args!("{:>12}  {:>14}  {:>8}  TYPE", "SIZE", "ELEMENTS", "TENSORS"))?;
    for of in &summary.dtypes {
        let (bytes, elements, tensors) = (ByteSize(of.bytes), of.elements, of.tensors);
        out.line(format_args!("{bytes:>12}  {elements:>14}  {tensors:>8}  {}", of.dtype))?;
    }
    Ok(())
}

/// A number, and how people say it where it is large.
fn in_words(number: u64) -> String {
    let units =
        [(1_000_000_000_000, "trillion"), (1_000_000_000, "billion"), (1_000_000, "million")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    let tenths = number / (unit / 10);
    format!("{number} ({}.{} {name})", tenths / 10, tenths % 10)
}

fn tensors(inspected: &Inspected<'_>, args: &InspectArgs, out: &mut Output) -> io::Result<()> {
    let Inspected { summary, matching, .. } = inspected;
    let start = format!("{:<LABEL$}{}: ", "tensors", summary.totals.tensors);
    let mut parts = parts(&summary.totals);
    if !args.name.is_empty() {
        parts.push(format!("{matching} with a name that was asked for"));
    }
    out.wrapped(start, parts, ", ", LABEL)?;
    if summary.tensors.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = summary.tensors.iter().map(Row::of).collect();
    let dtype = column(rows.iter().map(|row| row.dtype.as_str()));
    let shape = column(rows.iter().map(|row| row.shape.as_str()));
    out.line(format_args!("{:>12}  {:<dtype$}  {:<shape$}  NAME  PLACE", "SIZE", "TYPE", "SHAPE"))?;
    for Row { bytes, dtype: a, shape: b, name, stored } in rows {
        let start = format!("{bytes:>12}  {a:<dtype$}  {b:<shape$}  ");
        out.listed(start, [name, stored], "  ", INDENT)?;
    }
    more(*matching, summary.tensors.len(), out)
}

/// The totals in words.
fn parts(totals: &TensorTotals) -> Vec<String> {
    let (inline, external) = (ByteSize(totals.inline_bytes), ByteSize(totals.external_bytes));
    let tied = match totals.tied {
        0 => String::new(),
        tied => format!(", {tied} tied and counted once"),
    };
    let mut parts = vec![
        format!("{} inline ({inline})", totals.inline),
        format!("{} external ({external}{tied})", totals.external),
    ];
    let faults = [(totals.nowhere, "without data"), (totals.invalid, "invalid")];
    let faults = faults.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(faults.map(|(count, fault)| format!("{count} {fault}")));
    parts
}

/// How many of `all` were not listed.
fn more(all: usize, listed: usize, out: &mut Output) -> io::Result<()> {
    match all.saturating_sub(listed) {
        0 => Ok(()),
        more => out.line(format_args!("{:>14}and {more} more: --top 0 lists all", "")),
    }
}

/// A tensor's line.
struct Row {
    bytes: String,
    dtype: String,
    shape: String,
    name: String,
    stored: String,
}

impl Row {
    fn of(tensor: &TensorSummary) -> Self {
        Self {
            bytes: tensor.bytes.map_or("?".to_owned(), |bytes| ByteSize(bytes).to_string()),
            dtype: tensor.dtype.clone(),
            shape: bracketed(&tensor.shape),
            name: tensor.qualified_name().into_owned(),
            stored: place(&tensor.stored),
        }
    }
}

fn place(stored: &Stored) -> String {
    match stored {
        Stored::Inline { field } => format!("({field})"),
        Stored::Nowhere => "(no data)".to_owned(),
        Stored::External { location, offset, .. } => {
            format!("{}@{offset}", cut(location, LOCATION))
        }
        Stored::Invalid { reason } => format!("(invalid: {reason})"),
        other => format!("{other:?}"),
    }
}

/// How much of a location is shown for a tensor, in characters. The list of files has it in full.
const LOCATION: usize = 44;

fn files(inspected: &Inspected<'_>, out: &mut Output) -> io::Result<()> {
    let totals = &inspected.file_totals;
    if totals.files == 0 {
        return Ok(());
    }
    let states = State::ALL.into_iter().filter(|state| totals.count(*state) > 0);
    let states = states.map(|state| format!("{} {}", totals.count(state), state.name()));
    let start = format!("{:<LABEL$}{} ({}): ", "files", totals.files, ByteSize(totals.bytes));
    out.wrapped(start, states, ", ", LABEL)?;
    out.line(format_args!("{:>12}  {:<8}  {:<12}  PATH", "SIZE", "STATE", "TENSORS"))?;
    inspected.files.iter().try_for_each(|listed| file(listed, out))?;
    more(totals.files, inspected.files.len(), out)
}

fn file(file: &NeededFile, out: &mut Output) -> io::Result<()> {
    let len = file.len.as_ref().map(|len| *len);
    let size = len.ok().flatten().map_or("-".to_owned(), |bytes| ByteSize(bytes).to_string());
    let (state, tensors) = (file.state(), count(file.tensors, "tensor"));
    let start = format!("{size:>12}  {:<8}  {tensors:<12}  ", state.name());
    let why = match (state, len) {
        (State::Wrong | State::Refused, Err(error)) => Some(format!("({})", error.reason())),
        (State::CutOff, Ok(Some(bytes))) => {
            Some(format!("(cut off: {bytes} of {} bytes)", file.end))
        }
        _ => None,
    };
    let path = file.path.display().to_string();
    out.listed(start, [path].into_iter().chain(why), " ", INDENT)
}
