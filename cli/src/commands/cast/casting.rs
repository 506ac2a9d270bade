//! What a cast does: which weights and nodes have the new type, which keep the old one, and why. Of
//! `cast`, and of a job that casts.

use std::io;

use onnx_container::edit::{CastReport, NotCast, NotCastReason};
use onnx_container::{ByteSize, DataType};
use serde::Serialize;

use crate::model::save::short;
use crate::terminal::output::{Output, count};

/// What was cast, or will be.
#[derive(Debug, Serialize)]
pub struct Casting {
    to: String,
    /// The least length of a tensor that is cast.
    #[serde(skip)]
    min_bytes: u64,
    #[serde(flatten)]
    cast: CastReport,
    /// The weights of which finite numbers became infinite.
    infinite: Vec<String>,
    #[serde(skip)]
    told: Told,
}

/// When a cast is told, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// After it, with the first lines of each list.
    Done,
    /// The plan is all that is wanted: its lists are whole.
    DryRun,
    /// Before others do it, with the first lines of each list.
    Planned,
}

impl Casting {
    /// The cast `to` a type of tensors of `min_bytes` or more.
    pub fn new(to: DataType, min_bytes: u64, cast: CastReport, told: Told) -> Self {
        let infinite = cast.infinite().into_iter().map(str::to_owned).collect();
        Self { to: to.to_string(), min_bytes, cast, infinite, told }
    }

    /// Prints the rows of the report.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.print_cast(out)?;
        if self.cast.nodes > 0 {
            let nodes = count(self.cast.nodes, "node");
            out.row("computes", format_args!("{nodes} in {}", self.to))?;
        }
        self.print_kept(out)?;
        self.print_infinite(out)
    }

    /// Prints lines: all of a dry run, else the first few.
    fn list(
        &self,
        mut lines: impl ExactSizeIterator<Item = String>,
        out: &mut Output,
    ) -> io::Result<()> {
        match self.told {
            Told::DryRun => lines.try_for_each(|line| out.line(line)),
            Told::Done | Told::Planned => short(lines, out),
        }
    }

    /// Prints how many tensors have the new type, or why none has.
    fn print_cast(&self, out: &mut Output) -> io::Result<()> {
        let (cast, to) = (&self.cast, &self.to);
        let tense = if self.told == Told::Done { "cast" } else { "casts" };
        if cast.cast > 0 {
            let (before, after) = (ByteSize(cast.bytes_before), ByteSize(cast.bytes_after));
            let tensors = count(cast.cast, "tensor");
            return out.row(tense, format_args!("{tensors} to {to}: {before} become {after}"));
        }
        match cast.uncast.len() {
            0 => {
                let least = self.min_bytes;
                out.row(
                    tense,
                    format_args!(
                        "no tensors to {to}: none of the old type has {least} bytes or more"
                    ),
                )
            }
            _ => out.row(tense, format_args!("no tensors to {to}: all stay as they are")),
        }
    }

    /// A warning of the weights that do not fit in the new type, as far as they were converted: a
    /// plan converts those in the model.
    pub fn infinite_so_far(&self) -> Option<String> {
        let first = self.infinite.first()?;
        let more = if self.infinite.len() > 1 { ", ..." } else { "" };
        let said = said_infinite(self.infinite.len(), Some(&self.to), self.options());
        Some(format!("{said} (`{first}`{more})"))
    }

    /// The options that keep a weight in its type.
    fn options(&self) -> &'static str {
        // A weight that is left out is converted all the same by a node that computes in the new
        // type.
        match self.cast.nodes {
            0 => "--except",
            _ => "--except, with their nodes in --keep-op",
        }
    }

    /// Prints which weights do not fit in the new type.
    fn print_infinite(&self, out: &mut Output) -> io::Result<()> {
        print_infinite(&self.infinite, Some(&self.to), self.options(), out)?;
        let lines = self.infinite.iter().map(|name| format!("{:>10}{name}", ""));
        self.list(lines, out)
    }

    /// Prints how many of the nodes that stay call functions, and what converts those.
    fn print_calls(&self, out: &mut Output) -> io::Result<()> {
        let calls = match self.cast.calls {
            0 => return Ok(()),
            1 => "1 of these nodes calls a local function".to_owned(),
            calls => format!("{calls} of these nodes call local functions"),
        };
        out.prose_row(
            "",
            format_args!(
                "{calls}, whose body computes in the old type: `onnx-container inline-functions` \
                 first, and the cast converts it too"
            ),
        )
    }

    /// Prints what has the old type still.
    fn print_kept(&self, out: &mut Output) -> io::Result<()> {
        let is_excepted = |one: &&NotCast| one.reason == NotCastReason::Excepted;
        let (excepted, uncast): (Vec<_>, Vec<_>) = self.cast.uncast.iter().partition(is_excepted);
        if !uncast.is_empty() {
            out.row("kept", format_args!("{}", count(uncast.len(), "tensor")))?;
            let line = uncast.iter().map(|one| format!("{:>10}{}: {}", "", one.tensor, one.reason));
            self.list(line, out)?;
        }
        if !excepted.is_empty() {
            out.row("kept", format_args!("{} by --except", count(excepted.len(), "tensor")))?;
            let line = excepted.iter().map(|one| format!("{:>10}{}", "", one.tensor));
            self.list(line, out)?;
        }
        let nodes = &self.cast.kept_nodes;
        if !nodes.is_empty() {
            out.row("kept", format_args!("{} in the old type", count(nodes.len(), "node")))?;
            self.list(nodes.iter().map(|node| format!("{:>10}{node}", "")), out)?;
            self.print_calls(out)?;
        }
        Ok(())
    }
}

/// Prints how many weights became infinite by a cast to the type `to`, if any did; `options` leave
/// them out. Where the type is not known, no other one is advised.
pub fn print_infinite(
    names: &[String],
    to: Option<&str>,
    options: &str,
    out: &mut Output,
) -> io::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    out.row("infinite", said_infinite(names.len(), to, options))
}

fn said_infinite(tensors: usize, to: Option<&str>, options: &str) -> String {
    let (tensors, largest) = (count(tensors, "tensor"), to.unwrap_or("of the new type"));
    let or = if to == Some("FLOAT16") { ", or cast to bfloat16" } else { "" };
    format!(
        "{tensors} with numbers beyond the largest {largest}: leave them out with {options}{or}"
    )
}
