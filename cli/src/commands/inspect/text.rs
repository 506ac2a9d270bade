//! The text that `inspect` prints.

use std::fmt;
use std::io;

use super::Summary;
use super::tensors::{Stored, TensorInfo, Totals};
use super::values::GraphValue;
use crate::commands::files::Listed;
use crate::model::needed::State;
use crate::terminal::output::{Output, count, cut};
use onnx_container::ByteSize;

/// Where the lines of a list continue, in characters. A name is never cut: what is shown can be
/// given back to `extract` and `replace`.
const INDENT: usize = 14;

/// Prints the summary, part by part.
pub fn print(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    head(summary, out)?;
    inputs(summary, out)?;
    outputs(summary, out)?;
    operators(summary, out)?;
    tensors(summary, out)?;
    files(summary, out)
}

fn head(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let known = |number: Option<i64>| number.map_or("(none)".to_owned(), |n| n.to_string());
    let none = || "(none)".to_owned();
    let opset = |opset: &super::Opset| format!("{} {}", opset.domain, known(opset.version));
    let opsets: Vec<_> = match summary.opsets.as_slice() {
        [] => vec![none()],
        opsets => opsets.iter().map(opset).collect(),
    };
    let producer = summary.producer.clone().unwrap_or_else(none);
    let version = summary.producer_version.clone().unwrap_or_default();
    let graphs = &summary.graphs;
    out.line(format_args!("model      {}", summary.model.display()))?;
    out.line(format_args!("bytes      {}", bytes(summary.model_bytes)))?;
    out.line(format_args!("IR         {}", known(summary.ir_version)))?;
    out.wrapped("opsets     ".to_owned(), opsets, ", ", LABEL)?;
    out.line(format!("producer   {producer} {version}").trim_end())?;
    out.line(format_args!("graph      {}", summary.graph.clone().unwrap_or_else(none)))?;
    let (nodes, inner) = (graphs.nodes, graphs.inner_nodes);
    out.line(format_args!("nodes      {nodes}, and {inner} in subgraphs and functions"))?;
    out.line(format_args!("functions  {}", graphs.functions))?;
    out.line(format_args!("subgraphs  {}, depth {}", graphs.subgraphs, graphs.subgraph_depth))
}

/// The width of the words before the numbers, in characters.
const LABEL: usize = 11;

fn inputs(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let all = &summary.inputs;
    let required: Vec<_> = all.iter().filter(|input| !input.has_initializer).collect();
    let optional = match all.len() - required.len() {
        0 => String::new(),
        optional => format!(", and {optional} with an initializer"),
    };
    out.line(format_args!("inputs     {}{optional}", required.len()))?;
    values(&required, summary.top, out)
}

fn outputs(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    out.line(format_args!("outputs    {}", summary.outputs.len()))?;
    values(&summary.outputs.iter().collect::<Vec<_>>(), summary.top, out)
}

/// Prints the first `top` of `values`; 0 prints all.
fn values(values: &[&GraphValue], top: usize, out: &mut Output) -> io::Result<()> {
    let listed = if top == 0 { values.len() } else { top.min(values.len()) };
    let rows: Vec<_> = values.iter().take(listed).map(|value| ValueRow::of(value)).collect();
    let dtype = column(rows.iter().map(|row| row.dtype.as_str()));
    let shape = column(rows.iter().map(|row| row.shape.as_str()));
    for ValueRow { dtype: a, shape: b, name } in rows {
        let start = format!("{:INDENT$}{a:<dtype$}  {b:<shape$}  ", "");
        out.wrapped(start, [name], "  ", INDENT)?;
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
    fn of(value: &GraphValue) -> Self {
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

fn bracketed(dims: &[impl ToString]) -> String {
    let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(","))
}

fn operators(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    out.line("operators")?;
    for operator in &summary.graphs.operators {
        out.line(format_args!("{:>9}  {}", operator.nodes, operator.operator))?;
    }
    Ok(())
}

fn tensors(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let start = format!("tensors    {}: ", summary.totals.tensors);
    out.wrapped(start, parts(&summary.totals), ", ", LABEL)?;
    let rows: Vec<_> = summary.tensors.iter().map(Row::of).collect();
    let dtype = column(rows.iter().map(|row| row.dtype.as_str()));
    let shape = column(rows.iter().map(|row| row.shape.as_str()));
    for Row { bytes, dtype: a, shape: b, name, stored } in rows {
        let start = format!("{bytes:>12}  {a:<dtype$}  {b:<shape$}  ");
        out.wrapped(start, [name, stored], "  ", INDENT)?;
    }
    more(summary.totals.tensors, summary.tensors.len(), out)
}

/// The totals in words.
fn parts(totals: &Totals) -> Vec<String> {
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

/// The most characters of a column; a longer cell only moves the cells after it in its own row.
const WIDEST: usize = 24;

/// How many of `all` were not listed.
fn more(all: usize, listed: usize, out: &mut Output) -> io::Result<()> {
    match all - listed {
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
    fn of(tensor: &TensorInfo) -> Self {
        Self {
            bytes: tensor.bytes.map_or("?".to_owned(), |bytes| bytes.to_string()),
            dtype: tensor.dtype.clone(),
            shape: bracketed(&tensor.shape),
            name: tensor.qualified_name(),
            stored: tensor.stored.to_string(),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline { field } => write!(f, "({field})"),
            Self::Nowhere => f.write_str("(no data)"),
            Self::External { location, offset, .. } => {
                write!(f, "{}@{offset}", cut(location, LOCATION))
            }
            Self::Invalid { reason } => write!(f, "(invalid: {reason})"),
        }
    }
}

/// How much of a location is shown for a tensor, in characters. The list of files has it in full.
const LOCATION: usize = 44;

fn files(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let totals = &summary.file_totals;
    let count = |state| match state {
        State::Present => totals.present,
        State::CutOff => totals.cut_off,
        State::Missing => totals.missing,
        State::Wrong => totals.wrong,
        State::Refused => totals.refused,
    };
    let states = State::ALL.into_iter().filter(|state| count(*state) > 0);
    let states: Vec<_> = states.map(|state| format!("{} {}", count(state), state.name())).collect();
    let colon = if states.is_empty() { "" } else { ": " };
    let start = format!("files      {} ({}){colon}", totals.files, ByteSize(totals.bytes));
    out.wrapped(start, states, ", ", LABEL)?;
    summary.files.iter().try_for_each(|listed| file(listed, out))?;
    more(totals.files, summary.files.len(), out)
}

fn file(file: &Listed<'_>, out: &mut Output) -> io::Result<()> {
    let bytes = file.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    let tensors = count(file.tensors, "tensor");
    let start = format!("{bytes:>12}  {:<8}  {tensors:<12}  ", file.state.name());
    let why = match (file.state, &file.bytes, &file.reason) {
        (State::Wrong | State::Refused, _, Some(reason)) => Some(format!("({reason})")),
        (State::CutOff, Some(bytes), _) => {
            Some(format!("(cut off: {bytes} of {} bytes)", file.needed_bytes))
        }
        _ => None,
    };
    let path = file.path.display().to_string();
    out.wrapped(start, [path].into_iter().chain(why), " ", INDENT)
}

fn bytes(bytes: u64) -> String {
    if bytes < 1000 {
        ByteSize(bytes).to_string()
    } else {
        format!("{bytes} ({})", ByteSize(bytes))
    }
}
