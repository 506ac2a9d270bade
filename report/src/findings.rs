//! What a check of the model found.

use std::path::Path;

use onnx_container::check::{CheckOptions, Severity, check_model};
use onnx_container::{Error, Result};
use serde::{Serialize, Serializer};

use crate::options::ReportOptions;
use crate::values::{Exact, Object, Text};

/// The findings, errors first.
#[derive(Serialize)]
struct Findings<'f> {
    ok: bool,
    /// How many findings are only counted.
    not_listed: usize,
    /// What was looked at, in words.
    looked_at: String,
    list: Vec<Finding<'f>>,
}

#[derive(Serialize)]
struct Finding<'f> {
    severity: Severity,
    kind: String,
    tensor: Option<Text<'f>>,
    #[serde(serialize_with = "lossy")]
    path: Option<&'f Path>,
    offset: Option<Exact>,
    reason: Text<'f>,
}

fn lossy<S: Serializer>(
    path: &Option<&Path>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    path.map(Path::to_string_lossy).as_deref().map(Text).serialize(serializer)
}

/// Checks the model at `path`, and writes what is found.
pub(crate) fn findings(to: &mut Object<'_>, path: &Path, options: &ReportOptions) -> Result<()> {
    // This reads few bytes: those of BOOL tensors, and the last byte of narrower elements.
    let options = CheckOptions::from(options.load.clone()).contents(true);
    let checked = check_model(path, options)?;
    let mut list = Vec::new();
    for finding in &checked.findings {
        add(&mut list, finding.severity, &finding.error);
    }
    let found = Findings {
        ok: checked.is_ok(),
        not_listed: checked.more_errors.saturating_add(checked.more_advice),
        looked_at: checked.to_string(),
        list,
    };
    to.add("findings", &found)
}

/// Adds a finding for each error that `error` joins.
fn add<'f>(list: &mut Vec<Finding<'f>>, severity: Severity, error: &'f Error) {
    if !error.related().is_empty() {
        error.related().iter().for_each(|error| add(list, severity, error));
        return;
    }
    list.push(Finding {
        severity,
        kind: format!("{:?}", error.kind()),
        tensor: error.tensor().map(Text),
        path: error.path(),
        offset: error.offset().map(|offset| Exact(offset.into())),
        reason: Text(error.reason()),
    });
}
