//! What is said when `--only` or `--except` names a function that is not there.

use std::collections::BTreeSet;

use onnx_container::proto::ModelProto;
use onnx_container::{Error, FunctionId};

use crate::args::InlineArgs;
use crate::failure::Failure;

/// From here on two names are taken for the same with a slip: 1 is equal, 0 has nothing in common.
const NEAR: f64 = 0.6;

/// The `error` of a selection, with functions that may have been meant.
pub fn explain(model: &ModelProto, args: &InlineArgs, error: Error) -> Failure {
    let names = names(model);
    let asked = args.only.iter().chain(&args.except).filter(|text| !names.contains(text.as_str()));
    let mut near: Vec<_> = asked.flat_map(|text| nearest(text, &names)).collect();
    near.dedup();
    let hint = match near.as_slice() {
        [] => return error.into(),
        near => near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or "),
    };
    Failure::Refused(format!("{error}: is it {hint}?"))
}

/// Everything that a FUNCTION may be.
fn names(model: &ModelProto) -> BTreeSet<String> {
    let ids = model.functions.iter().map(FunctionId::from);
    ids.flat_map(|mut id| {
        let (domain, full) = (format!("{}::", id.domain), id.to_string());
        id.overload.clear();
        [domain, id.to_string(), full]
    })
    .collect()
}

/// The names that are most like `text`, the best first.
fn nearest(text: &str, names: &BTreeSet<String>) -> Vec<String> {
    let likeness = |name: &String| {
        // The name alone, without its domain, is the most common slip.
        let is_end = !text.is_empty() && name.ends_with(&format!("::{text}"));
        let is_alike = text.ends_with("::") == name.ends_with("::")
            && text.len().abs_diff(name.len()) <= text.len();
        match (is_end, is_alike) {
            (true, _) => 1.0,
            (_, true) => strsim::normalized_damerau_levenshtein(text, name),
            _ => 0.0,
        }
    };
    let mut near: Vec<_> = names.iter().map(|name| (likeness(name), name)).collect();
    near.retain(|(likeness, _)| *likeness >= NEAR);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.into_iter().map(|(_, name)| name.clone()).take(3).collect()
}
