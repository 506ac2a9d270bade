//! The report of a cast, as text and as JSON.

use std::io;
use std::path::Path;

use onnx_container::edit::{CastReport, NotCast, NotCastReason};
use onnx_container::{ByteSize, Container, DataType, Saved};
use serde::Serialize;

#[cfg(feature = "machine")]
use super::difference::Compared;
use crate::args::CastArgs;
use crate::commands::leftovers;
use crate::commands::write::Read;
use crate::model::save::Written;
use crate::terminal::output::{Output, count, lossy};

/// What was read, cast and written.
#[derive(Debug, Serialize)]
pub struct CastInfo<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    to: String,
    /// The least length of a tensor that is cast.
    #[serde(skip)]
    min_bytes: u64,
    read: Read,
    #[serde(flatten)]
    cast: CastReport,
    /// The weights of which finite numbers became infinite.
    infinite: Vec<String>,
    #[serde(flatten)]
    written: Written,
    #[cfg(feature = "machine")]
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
}

impl<'a> CastInfo<'a> {
    pub fn new(
        args: &'a CastArgs,
        container: &Container,
        read: Read,
        cast: CastReport,
        saved: &Saved,
    ) -> Self {
        let mut written = Written::new(container, &args.paths.output, saved, &args.target);
        written.warn(leftovers::warnings([args.paths.input.as_path()]));
        let infinite: Vec<_> = cast.infinite().into_iter().map(str::to_owned).collect();
        Self {
            command: "cast",
            input: &args.paths.input,
            output: &args.paths.output,
            to: DataType::from(args.to).to_string(),
            min_bytes: args.min_bytes,
            read,
            cast,
            infinite,
            written,
            #[cfg(feature = "machine")]
            compared: None,
        }
    }

    /// With what `--verify` found.
    #[cfg(feature = "machine")]
    pub fn compared(self, compared: Compared) -> Self {
        Self { compared: Some(compared), ..self }
    }

    /// Whether nothing was found to be wrong.
    #[cfg(feature = "machine")]
    pub fn is_well(&self) -> bool {
        self.compared.as_ref().is_none_or(Compared::is_well)
    }

    /// Whether nothing was found to be wrong: nothing was looked for.
    #[cfg(not(feature = "machine"))]
    pub fn is_well(&self) -> bool {
        true
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.input, out)?;
        self.print_cast(out)?;
        if self.cast.nodes > 0 {
            let nodes = count(self.cast.nodes, "node");
            out.row("computes", format_args!("{nodes} in {}", self.to))?;
        }
        self.print_kept(out)?;
        self.print_infinite(out)?;
        self.written.print(out)?;
        #[cfg(feature = "machine")]
        if let Some(compared) = &self.compared {
            compared.print(out)?;
        }
        Ok(())
    }

    /// Prints how many tensors have the new type, or why none has.
    fn print_cast(&self, out: &mut Output) -> io::Result<()> {
        let (cast, to) = (&self.cast, &self.to);
        let tense = self.written.tense("casts", "cast");
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

    /// Prints which weights do not fit in the new type.
    fn print_infinite(&self, out: &mut Output) -> io::Result<()> {
        if self.infinite.is_empty() {
            return Ok(());
        }
        let (tensors, to) = (count(self.infinite.len(), "tensor"), &self.to);
        let or = if self.to == "FLOAT16" { ", or cast to bfloat16" } else { "" };
        // A weight that is left out is converted all the same by a node that computes in the new
        // type.
        let nodes = if self.cast.nodes > 0 { ", with their nodes in --keep-op" } else { "" };
        out.row(
            "infinite",
            format_args!(
                "{tensors} with numbers beyond the largest {to}: leave them out with \
                 --except{nodes}{or}"
            ),
        )?;
        let lines = self.infinite.iter().map(|name| format!("{:>10}{name}", ""));
        self.written.list(lines, out)
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
            self.written.list(line, out)?;
        }
        if !excepted.is_empty() {
            out.row("kept", format_args!("{} by --except", count(excepted.len(), "tensor")))?;
            let line = excepted.iter().map(|one| format!("{:>10}{}", "", one.tensor));
            self.written.list(line, out)?;
        }
        let nodes = &self.cast.kept_nodes;
        if !nodes.is_empty() {
            out.row("kept", format_args!("{} in the old type", count(nodes.len(), "node")))?;
            self.written.list(nodes.iter().map(|node| format!("{:>10}{node}", "")), out)?;
            self.print_calls(out)?;
        }
        Ok(())
    }
}
