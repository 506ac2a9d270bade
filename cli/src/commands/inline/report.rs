//! The report of what inlining did, or would do, as text and as JSON.

use std::io;
use std::path::Path;

use onnx_container::edit::Externalized;
use onnx_container::inline::{FunctionId, Inlined, KeptFunction};
use onnx_container::proto::FunctionProto;
use onnx_container::{ByteSize, Container, Saved};
use serde::Serialize;

use crate::args::InlineArgs;
use crate::commands::leftovers;
use crate::commands::write::{Read, Verified};
use crate::model::save::Written;
use crate::terminal::output::{Output, count, lossy};

/// What became of the functions.
#[derive(Debug, Serialize)]
pub struct Changed {
    /// Calls that were replaced, those inside inlined bodies too.
    calls: u64,
    /// Nodes of all graphs, at any depth.
    nodes_before: usize,
    nodes_after: usize,
    removed_functions: Vec<String>,
    /// Functions that the result has.
    left_functions: Vec<String>,
    /// Those of them that were to be inlined.
    kept_functions: Vec<KeptFunctionInfo>,
    /// Operator sets that only functions imported.
    imported: Vec<Import>,
    #[serde(skip)]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct KeptFunctionInfo {
    function: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Import {
    domain: String,
    version: i64,
}

impl Changed {
    /// What `inlined` says; `left` are the functions that the model has now.
    pub fn new(inlined: Inlined, before: usize, after: usize, left: &[FunctionProto]) -> Self {
        let kept = |kept: KeptFunction| {
            let (function, reason) = (kept.function.to_string(), kept.reason);
            KeptFunctionInfo { function, reason }
        };
        let imported = inlined.imported.into_iter();
        Self {
            calls: inlined.calls,
            nodes_before: before,
            nodes_after: after,
            removed_functions: inlined.removed.iter().map(ToString::to_string).collect(),
            left_functions: left.iter().map(|f| FunctionId::from(f).to_string()).collect(),
            kept_functions: inlined.kept.into_iter().map(kept).collect(),
            imported: imported.map(|(domain, version)| Import { domain, version }).collect(),
            warnings: inlined.warnings.iter().map(ToString::to_string).collect(),
        }
    }

    /// What was not done as asked.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let kept = |KeptFunctionInfo { function, reason }: &KeptFunctionInfo| {
            format!("function `{function}` is kept, with all functions that it calls: {reason}")
        };
        self.kept_functions.iter().map(kept).chain(self.warnings.iter().cloned())
    }

    fn print(&self, written: &Written, out: &mut Output) -> io::Result<()> {
        let (removed, left) = (self.removed_functions.len(), self.left_functions.len());
        if removed + left == 0 {
            return out.row("inlined", "0 calls: the model has no local functions");
        }
        let (before, after) = (self.nodes_before, self.nodes_after);
        let calls = count(usize::try_from(self.calls).unwrap_or(usize::MAX), "call");
        out.row(
            written.tense("inlines", "inlined"),
            format_args!("{calls}: from {before} nodes to {after}"),
        )?;
        out.row(
            written.tense("removes", "removed"),
            format_args!("{}", count(removed, "function")),
        )?;
        if left > 0 {
            out.row("left", format_args!("{} in the model", count(left, "function")))?;
            written.list(self.left_functions.iter().map(|id| format!("{:>14}{id}", "")), out)?;
        }
        for Import { domain, version } in &self.imported {
            out.row(
                "imports",
                format_args!("{domain} {version}, which only functions imported before"),
            )?;
        }
        Ok(())
    }
}

/// The report of an inlining.
#[derive(Debug, Serialize)]
pub struct InlineReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    #[serde(flatten)]
    changed: Changed,
    /// Out of a model file that would have been over 2 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<Moved>,
    #[serde(flatten)]
    written: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

#[derive(Debug, Serialize)]
struct Moved {
    tensors: usize,
    bytes: u64,
}

impl<'a> InlineReport<'a> {
    /// What was read, changed and written.
    pub fn new(
        args: &'a InlineArgs,
        container: &Container,
        read: Read,
        changed: Changed,
        moved: Option<Externalized>,
        saved: &Saved,
        verified: Option<Verified>,
    ) -> Self {
        let mut written = Written::new(container, &args.paths.output, saved, &args.write.target);
        written.warn(changed.warnings());
        written.warn(leftovers::warnings([args.paths.input.as_path()]));
        let moved = moved.map(|moved| Moved { tensors: moved.moved, bytes: moved.moved_bytes });
        let (input, output) = (args.paths.input.as_path(), args.paths.output.as_path());
        Self { command: "inline-functions", input, output, read, changed, moved, written, verified }
    }

    /// Whether nothing was found to be wrong.
    pub fn is_well(&self) -> bool {
        self.verified.as_ref().is_none_or(|verified| verified.ok)
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.input, out)?;
        self.changed.print(&self.written, out)?;
        if let Some(Moved { tensors, bytes }) = &self.moved {
            let (tensors, bytes) = (count(*tensors, "tensor"), ByteSize(*bytes));
            let tense = self.written.tense("moves", "moved");
            out.row(
                tense,
                format_args!("{tensors} ({bytes}) out of the model, which would be over 2 GiB"),
            )?;
        }
        self.written.print(out)?;
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }
}
