//! A model whose weights files have other names: only the locations that name them are changed.

use std::collections::HashMap;

use crate::error::Result;
use crate::files::external_data::{is_external, without_dots};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};

/// Replaces the locations in `model` by the names that `renamed` has for them.
pub(super) fn rename_locations(
    model: &mut ModelProto,
    renamed: &HashMap<&str, &str>,
) -> Result<()> {
    traversal::tensors_mut(model, |_, tensor| {
        if is_external(tensor) {
            rename(tensor, renamed);
        }
        Ok(())
    })
}

fn rename(tensor: &mut TensorProto, renamed: &HashMap<&str, &str>) {
    for entry in &mut tensor.external_data {
        if entry.key.as_ref().is_none_or(|key| key.as_bytes() != b"location") {
            continue;
        }
        let old = entry.value.as_ref().and_then(|value| value.to_str().ok());
        if let Some(new) = old.and_then(|old| renamed.get(without_dots(old).as_str())) {
            entry.value = Some((*new).into());
        }
    }
}
