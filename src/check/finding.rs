//! What a check says: findings, how bad they are, and what was looked at.

use std::fmt;

use crate::error::Error;

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; mainstream readers load the model.
    Advice,
    /// Readers refuse the model, or would read wrong data.
    Error,
}

/// One thing that [`check_model`](crate::check_model) found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, with the tensor, file and byte concerned.
    pub error: Error,
}

/// What [`check_model`](crate::check_model) found, and how much it looked at.
///
/// `Display` is what was looked at, such as `12 nodes in 1 graph; 5 tensors, 3 of them in 1 file of
/// 1200 bytes`.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Checked {
    /// All findings, errors first.
    pub findings: Vec<Finding>,
    /// The main graph and all subgraphs. Training graphs are not looked at but for their tensors.
    pub graphs: usize,
    /// The nodes of these graphs and of all functions.
    pub nodes: usize,
    /// The local functions.
    pub functions: usize,
    /// All tensors of the model.
    pub tensors: usize,
    /// How many of them are external.
    pub external: usize,
    /// The weights files that were opened.
    pub files: usize,
    /// The length of these files, in bytes.
    pub file_bytes: u64,
    /// Whether the bytes of weights were read, see
    /// [`CheckOptions::contents`](crate::CheckOptions::contents).
    pub contents: bool,
}

impl Checked {
    /// Whether no finding is an error.
    pub fn is_ok(&self) -> bool {
        self.errors().next().is_none()
    }

    /// The findings that are errors.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(f, "{} in {}", count(self.nodes, "node"), count(self.graphs, "graph"))?;
        if self.functions > 0 {
            write!(f, " and {}", count(self.functions, "function"))?;
        }
        write!(f, "; {}", count(self.tensors, "tensor"))?;
        if self.external > 0 {
            let (files, bytes) = (count(self.files, "file"), self.file_bytes);
            write!(f, ", {} of them in {files} of {bytes} bytes", self.external)?;
        }
        if self.contents { f.write_str("; the bytes of weights too") } else { Ok(()) }
    }
}
