//! What `inspect` prints for people.

use std::fmt;
use std::io;

use super::Summary;
use super::tensors::{Stored, TensorInfo};
use crate::files::Listed;
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
    out.line(format_args!(
        "tensors    {}: {} inline ({inline}), {} external ({external}), {} invalid",
        totals.tensors, totals.inline, totals.external, totals.invalid
    ))?;
    for tensor in &summary.tensors {
        row(tensor, out)?;
    }
    match totals.tensors - summary.tensors.len() {
        0 => Ok(()),
        more => out.line(format_args!("           and {more} more: --top 0 lists all")),
    }
}

fn row(tensor: &TensorInfo, out: &mut Output) -> io::Result<()> {
    let bytes = tensor.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
    let shape: Vec<_> = tensor.shape.iter().map(ToString::to_string).collect();
    let (dtype, name) = (&tensor.dtype, tensor.qualified_name());
    let shape = format!("[{}]", shape.join(","));
    out.line(format_args!("{bytes:>12}  {dtype:<8} {shape:<16} {name}  {}", tensor.stored))
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline { field } => write!(f, "({field})"),
            Self::External { location, offset, .. } => write!(f, "{location}@{offset}"),
            Self::Invalid { reason } => write!(f, "(invalid: {reason})"),
        }
    }
}

fn files(summary: &Summary<'_>, out: &mut Output) -> io::Result<()> {
    let missing = summary.files.iter().filter(|file| file.state == "missing").count();
    let present = summary.files.iter().filter_map(|file| file.bytes);
    let sum = present.fold(0, u64::saturating_add);
    let number = summary.files.len();
    out.line(format_args!("files      {number} ({}), {missing} missing", ByteSize(sum)))?;
    summary.files.iter().try_for_each(|file| out.line(file))
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let (path, tensors) = (self.path.display(), count(self.tensors, "tensor"));
        write!(f, "{bytes:>12}  {:<8} {tensors:<16} {path}", self.state)?;
        match &self.reason {
            Some(reason) if self.state == "refused" => write!(f, " ({reason})"),
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
