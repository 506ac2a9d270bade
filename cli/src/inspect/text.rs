//! What `inspect` prints for people.

use std::fmt;
use std::io;

use super::Summary;
use super::tensors::{Stored, TensorInfo};
use crate::files::Listed;
use crate::needed::State;
use crate::output::{Output, count};
use onnx_container::ByteSize;

/// Prints the summary, part by part.
pub fn print(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    head(summary, out)?;
    operators(summary, out)?;
    tensors(summary, out)?;
    files(summary, out)
}

fn head(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let known = |number: Option<i64>| number.map_or("(none)".to_owned(), |n| n.to_string());
    let none = || "(none)".to_owned();
    let opset = |opset: &super::Opset| format!("{} {}", opset.domain, known(opset.version));
    let opsets: Vec<_> = summary.opsets.iter().map(opset).collect();
    let producer = summary.producer.clone().unwrap_or_else(none);
    let version = summary.producer_version.clone().unwrap_or_default();
    let graphs = &summary.graphs;
    out.line(format_args!("model      {}", summary.model.display()))?;
    out.line(format_args!("bytes      {}", bytes(summary.model_bytes)))?;
    out.line(format_args!("IR         {}", known(summary.ir_version)))?;
    out.line(format_args!("opsets     {}", opsets.join(", ")))?;
    out.line(format!("producer   {producer} {version}").trim_end())?;
    out.line(format_args!("graph      {}", summary.graph.clone().unwrap_or_else(none)))?;
    out.line(format_args!("nodes      {} and {} inside", graphs.nodes, graphs.inner_nodes))?;
    out.line(format_args!("functions  {}", graphs.functions))?;
    out.line(format_args!("subgraphs  {}, depth {}", graphs.subgraphs, graphs.subgraph_depth))
}

fn operators(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    out.line("operators")?;
    for operator in &summary.graphs.operators {
        out.line(format_args!("{:>9}  {}", operator.nodes, operator.operator))?;
    }
    Ok(())
}

fn tensors(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let totals = &summary.totals;
    let (inline, external) = (ByteSize(totals.inline_bytes), ByteSize(totals.external_bytes));
    let tied = match totals.tied {
        0 => String::new(),
        tied => format!(", {tied} of them tied to others and counted once"),
    };
    let nowhere = match totals.nowhere {
        0 => String::new(),
        nowhere => format!(", {nowhere} without data"),
    };
    out.line(format_args!(
        "tensors    {}: {} inline ({inline}), {} external ({external}{tied}){nowhere}, {} invalid",
        totals.tensors, totals.inline, totals.external, totals.invalid
    ))?;
    let rows: Vec<_> = summary.tensors.iter().map(Row::of).collect();
    let width = |column: fn(&Row) -> &str, least| {
        rows.iter().map(|row| column(row).len()).max().unwrap_or_default().clamp(least, WIDEST)
    };
    let (dtype, shape) = (width(|row| &row.dtype, 8), width(|row| &row.shape, 8));
    for Row { bytes, dtype: a, shape: b, name, stored } in &rows {
        out.line(format_args!("{bytes:>12}  {a:<dtype$}  {b:<shape$}  {name}  {stored}"))?;
    }
    more(totals.tensors, summary.tensors.len(), out)
}

/// A column is at most this wide, in characters; what is longer moves its own row alone.
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
        let shape: Vec<_> = tensor.shape.iter().map(ToString::to_string).collect();
        Self {
            bytes: tensor.bytes.map_or("?".to_owned(), |bytes| bytes.to_string()),
            dtype: tensor.dtype.clone(),
            shape: format!("[{}]", shape.join(",")),
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
            Self::External { location, offset, .. } => write!(f, "{location}@{offset}"),
            Self::Invalid { reason } => write!(f, "(invalid: {reason})"),
        }
    }
}

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
    let (files, bytes) = (totals.files, ByteSize(totals.bytes));
    out.line(format_args!("files      {files} ({bytes}){colon}{}", states.join(", ")))?;
    summary.files.iter().try_for_each(|file| out.line(file))?;
    more(totals.files, summary.files.len(), out)
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let (path, tensors) = (self.path.display(), count(self.tensors, "tensor"));
        write!(f, "{bytes:>12}  {:<8}  {tensors:<12}  {path}", self.state.name())?;
        match (self.state, self.bytes, &self.reason) {
            (State::Wrong | State::Refused, _, Some(reason)) => write!(f, " ({reason})"),
            (State::CutOff, Some(bytes), _) => {
                write!(f, " (cut off: {bytes} of {} bytes)", self.needed_bytes)
            }
            _ => Ok(()),
        }
    }
}

fn bytes(bytes: u64) -> String {
    if bytes < 1000 {
        ByteSize(bytes).to_string()
    } else {
        format!("{bytes} ({})", ByteSize(bytes))
    }
}
