//! Findings of a check, as `check` and `--verify` print them.

use std::fmt;

use onnx_container::Error;
use onnx_container::check::{Checked, Severity};
use onnx_container::digest::Compared;
use serde::Serialize;

use crate::terminal::output::count;

/// A finding, ready to be printed.
#[derive(Debug, Serialize)]
pub struct PrintedFinding {
    pub severity: &'static str,
    pub kind: String,
    pub tensor: Option<String>,
    pub path: Option<String>,
    pub offset: Option<u64>,
    pub reason: String,
    #[serde(skip)]
    line: String,
}

impl PrintedFinding {
    /// A finding of that severity for each error that `error` joins.
    pub fn all(severity: Severity, error: &Error) -> Vec<Self> {
        if error.related().is_empty() {
            return vec![Self::one(severity, error)];
        }
        error.related().iter().flat_map(|error| Self::all(severity, error)).collect()
    }

    /// An error for each node that `error` names.
    #[cfg(feature = "machine")]
    pub fn of_machine(error: &onnx_container_machine::Error) -> Vec<Self> {
        if !error.related().is_empty() {
            return error.related().iter().flat_map(Self::of_machine).collect();
        }
        let (kind, line) = (format!("{:?}", error.kind()), error.to_string());
        let (path, offset) = (None, None);
        // The message names the step and the node, for which there are no fields.
        let (tensor, reason) = (error.value().map(str::to_owned), line.clone());
        vec![Self { severity: "error", kind, tensor, path, offset, reason, line }]
    }

    fn one(severity: Severity, error: &Error) -> Self {
        let severity = match severity {
            Severity::Error => "error",
            Severity::Advice => "advice",
        };
        Self {
            severity,
            kind: format!("{:?}", error.kind()),
            tensor: error.tensor().map(str::to_owned),
            path: error.path().map(|path| path.display().to_string()),
            offset: error.offset(),
            reason: error.reason().to_owned(),
            line: error.to_string(),
        }
    }

    fn is_error(&self) -> bool {
        self.severity == "error"
    }
}

impl fmt::Display for PrintedFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.line)
    }
}

/// The findings of one model, errors first.
#[derive(Debug, Serialize)]
pub struct Findings {
    pub ok: bool,
    pub errors: usize,
    pub advice: usize,
    /// How many of these are only counted.
    pub not_listed: usize,
    pub findings: Vec<PrintedFinding>,
    /// What was compared with digests, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
}

impl Findings {
    /// Errors that other parts of the command found, and then what a check found.
    pub fn of(errors: impl IntoIterator<Item = PrintedFinding>, checked: &Checked) -> Self {
        let found = checked.findings.iter();
        let found = found.flat_map(|finding| PrintedFinding::all(finding.severity, &finding.error));
        let listed: Self = errors.into_iter().chain(found).collect();
        let Checked { more_errors, more_advice, .. } = *checked;
        Self {
            ok: listed.ok && more_errors == 0,
            errors: listed.errors.saturating_add(more_errors),
            advice: listed.advice.saturating_add(more_advice),
            not_listed: more_errors.saturating_add(more_advice),
            findings: listed.findings,
            compared: checked.compared,
        }
    }

    /// With advice that fails too, where `strict` says so.
    pub fn strictly(self, strict: bool) -> Self {
        Self { ok: self.errors == 0 && !(strict && self.advice > 0), ..self }
    }

    /// Drops the advice for which `is_known` holds.
    pub fn drop_advice(&mut self, mut is_known: impl FnMut(&PrintedFinding) -> bool) {
        let before = self.findings.len();
        self.findings.retain(|finding| finding.is_error() || !is_known(finding));
        self.advice = self.advice.saturating_sub(before.saturating_sub(self.findings.len()));
    }

    /// The findings that are errors, and those that are advice.
    pub fn by_severity(&self) -> (&[PrintedFinding], &[PrintedFinding]) {
        self.findings.split_at(self.findings.partition_point(PrintedFinding::is_error))
    }

    /// That some are not listed.
    pub fn rest(&self) -> Option<String> {
        let more = |number| format!("{number} more; `--limit findings=N` lists N of a severity");
        (self.not_listed > 0).then(|| more(self.not_listed))
    }
}

impl Extend<PrintedFinding> for Findings {
    /// Adds advice.
    fn extend<I: IntoIterator<Item = PrintedFinding>>(&mut self, advice: I) {
        let before = self.findings.len();
        self.findings.extend(advice);
        self.advice = self.advice.saturating_add(self.findings.len().saturating_sub(before));
    }
}

impl FromIterator<PrintedFinding> for Findings {
    fn from_iter<I: IntoIterator<Item = PrintedFinding>>(found: I) -> Self {
        let findings: Vec<_> = found.into_iter().collect();
        let number = |of: bool| findings.iter().filter(|found| found.is_error() == of).count();
        let (errors, advice) = (number(true), number(false));
        Self { ok: errors == 0, errors, advice, not_listed: 0, findings, compared: None }
    }
}

impl fmt::Display for Findings {
    /// The numbers: `2 errors, 1 advice`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors {
            0 => f.write_str("no errors")?,
            errors => f.write_str(&count(errors, "error"))?,
        }
        if self.advice > 0 { write!(f, ", {} advice", self.advice) } else { Ok(()) }
    }
}
