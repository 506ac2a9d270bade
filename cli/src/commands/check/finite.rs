//! `check --finite`: tensors with elements that are infinite or not a number, in one pass over the
//! weights.

use std::path::Path;

use onnx_container::check::Severity;
use onnx_container::stats::TensorStats;
use onnx_container::{DataType, Error, ErrorKind, TensorRef};

use crate::args::CheckArgs;
use crate::model::findings::PrintedFinding;
use crate::model::{place, reading};
use crate::terminal::output::count;

/// A finding for each tensor that has such elements, if the options ask for them. `is_wrong` says
/// that the check of the model has found errors.
pub fn not_finite(args: &CheckArgs, path: &Path, is_wrong: bool) -> Vec<PrintedFinding> {
    if !args.finite {
        return Vec::new();
    }
    let container = match place::load(path, reading::of(&args.read)) {
        Ok(container) => container,
        // The check has said it.
        Err(_) if is_wrong => return Vec::new(),
        Err(error) => return PrintedFinding::all(Severity::Error, &error),
    };
    let is_real = |dtype: DataType| dtype.is_float() || dtype.is_complex();
    let in_part = args.part.map(|part| part.selects(&container));
    let is_read = |tensor: &TensorRef<'_>| {
        tensor.dtype().is_ok_and(is_real) && in_part.as_ref().is_none_or(|has| has(tensor))
    };
    match container.stats(is_read) {
        Ok(stats) => stats.iter().filter_map(finding).flatten().collect(),
        Err(error) => PrintedFinding::all(Severity::Error, &error.with_path(path)),
    }
}

fn finding(stats: &TensorStats) -> Option<Vec<PrintedFinding>> {
    let nan = (stats.nan > 0).then(|| format!("{} not a number", are(stats.nan)));
    let infinite = (stats.infinite > 0).then(|| format!("{} infinite", are(stats.infinite)));
    let said: Vec<_> = nan.into_iter().chain(infinite).collect();
    if said.is_empty() {
        return None;
    }
    let all = count(usize::try_from(stats.elements).unwrap_or(usize::MAX), "element");
    // Of complex elements both parts are counted.
    let is_complex = matches!(stats.dtype, DataType::Complex64 | DataType::Complex128);
    let parts = if is_complex { "the parts of " } else { "" };
    let reason = format!("of {parts}{all}, {}", said.join(", "));
    let error = Error::new(ErrorKind::InvalidModel, reason).with_tensor(&stats.name);
    Some(PrintedFinding::all(Severity::Error, &error))
}

fn are(count: u64) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}
