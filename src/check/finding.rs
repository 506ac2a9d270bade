//! What a check says: findings, how bad they are, and what was looked at.

use std::fmt;

use crate::digest::Compared;
use crate::error::Error;
use crate::limits::{Limit, Limits};

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Severity {
    /// Worth knowing; mainstream readers load the model.
    Advice,
    /// Readers refuse the model, or would read wrong data.
    Error,
}

/// One thing that [`check_model`](crate::check::check_model) found.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, with the tensor, file and byte concerned.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub error: Error,
}

/// Findings in the order in which they are made: of each severity up to the limit of a model, of
/// the others their number.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) kept: Vec<Finding>,
    /// How many more are kept.
    errors_left: u64,
    advice_left: u64,
    pub(super) more_errors: usize,
    pub(super) more_advice: usize,
}

impl Findings {
    pub(super) fn new(limits: &Limits) -> Self {
        let most = limits.get(Limit::Findings).unwrap_or(u64::MAX);
        let (errors_left, advice_left) = (most, most);
        Self { kept: Vec::new(), errors_left, advice_left, more_errors: 0, more_advice: 0 }
    }

    /// Adds what `error` returns, which is not asked for one that is only counted.
    pub(super) fn add(&mut self, severity: Severity, error: impl FnOnce() -> Error) {
        let (left, more) = match severity {
            Severity::Error => (&mut self.errors_left, &mut self.more_errors),
            Severity::Advice => (&mut self.advice_left, &mut self.more_advice),
        };
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                self.kept.push(Finding { severity, error: error() });
            }
            None => *more = more.saturating_add(1),
        }
    }

    /// Adds the findings of another part of the check after these.
    pub(super) fn append(&mut self, other: Self) {
        self.more_errors = self.more_errors.saturating_add(other.more_errors);
        self.more_advice = self.more_advice.saturating_add(other.more_advice);
        self.extend(other.kept);
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        for Finding { severity, error } in findings {
            self.add(severity, || error);
        }
    }
}

/// What [`check_model`](crate::check::check_model) found, and how much it looked at.
///
/// `Display` is what was looked at, such as `12 nodes in 1 graph; 5 tensors, 3 of them in 1 file of
/// 1200 bytes`.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Checked {
    /// The findings, errors first. Of each severity there are at most as many as
    /// [`Limit::Findings`](crate::load::Limit::Findings) allows.
    pub findings: Vec<Finding>,
    /// The number of errors that are not among the findings.
    pub more_errors: usize,
    /// The number of pieces of advice that are not among the findings.
    pub more_advice: usize,
    /// The main graph and all subgraphs. Of training graphs, only the tensors are looked at.
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
    /// [`CheckOptions::contents`](crate::check::CheckOptions::contents).
    pub contents: bool,
    /// What was compared with stored digests, by
    /// [`CheckOptions::digests`](crate::check::CheckOptions::digests).
    pub compared: Option<Compared>,
}

impl Checked {
    /// With these findings, errors first.
    pub(super) fn with(self, findings: Findings) -> Self {
        let Findings { mut kept, more_errors, more_advice, .. } = findings;
        kept.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self { findings: kept, more_errors, more_advice, ..self }
    }

    /// Whether nothing that was found is an error.
    pub fn is_ok(&self) -> bool {
        self.more_errors == 0 && self.errors().next().is_none()
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
