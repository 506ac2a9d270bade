//! What a check of the model found.

use std::path::Path;

use onnx_container::check::{CheckOptions, Checked, Severity, check_model};
use onnx_container::{Error, Result};
use serde::Serialize;

use crate::options::ReportOptions;
use crate::values::tidy_json;

/// The findings, errors first.
#[derive(Serialize)]
struct Findings {
    ok: bool,
    /// How many findings are only counted.
    not_listed: usize,
    /// What was looked at, in words.
    looked_at: String,
    list: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    severity: Severity,
    kind: String,
    tensor: Option<String>,
    path: Option<String>,
    offset: Option<u64>,
    reason: String,
}

/// Checks the model at `path`.
pub(crate) fn findings(path: &Path, options: &ReportOptions) -> Result<String> {
    // This reads few bytes: those of BOOL tensors, and the last byte of narrower elements.
    let options = CheckOptions::from(options.load.clone()).contents(true);
    let checked = check_model(path, options)?;
    let mut list = Vec::new();
    for finding in &checked.findings {
        add(&mut list, finding.severity, &finding.error);
    }
    let Checked { more_errors, more_advice, .. } = checked;
    tidy_json(&Findings {
        ok: checked.is_ok(),
        not_listed: more_errors.saturating_add(more_advice),
        looked_at: checked.to_string(),
        list,
    })
}

/// Adds a finding for each error that `error` joins.
fn add(list: &mut Vec<Finding>, severity: Severity, error: &Error) {
    if !error.related().is_empty() {
        error.related().iter().for_each(|error| add(list, severity, error));
        return;
    }
    list.push(Finding {
        severity,
        kind: format!("{:?}", error.kind()),
        tensor: error.tensor().map(str::to_owned),
        path: error.path().map(|path| path.display().to_string()),
        offset: error.offset(),
        reason: error.reason().to_owned(),
    });
}
