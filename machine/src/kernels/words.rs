//! Attributes that are one of some words.

use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};

/// The string attribute `name`, one of `words`, of which the first is the default.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when it is none of them, or no string.
pub(super) fn one_of<'w>(call: &Call<'_>, name: &str, words: &[&'w str]) -> Result<&'w str> {
    let Some(default) = words.first() else { return Err(Error::internal("no words")) };
    let found = call.str_or(name, "")?;
    let is_set = call.node().attributes.get(name).is_some();
    let word = words.iter().find(|word| **word == found).or((!is_set).then_some(default));
    word.copied().ok_or_else(|| {
        let reason = format!("attribute `{name}` is `{found}`, not {}", words.join(" or "));
        Error::new(ErrorKind::InvalidModel, reason)
    })
}
