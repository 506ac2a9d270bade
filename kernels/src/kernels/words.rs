//! Attributes that are one of some words, or the number of one.

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;

/// The string attribute `name`, one of `words`, of which the first is the default.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when it is another word, or not a string.
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

/// What the word that string attribute `name` has stands for; `default` where it is not set.
///
/// # Errors
/// As [`one_of`].
pub(super) fn meaning_of<V: Copy>(
    call: &Call<'_>,
    name: &str,
    meanings: &[(&str, V)],
    default: V,
) -> Result<V> {
    if call.node().attributes.get(name).is_none() {
        return Ok(default);
    }
    let words: Vec<_> = meanings.iter().map(|(word, _)| *word).collect();
    let word = one_of(call, name, &words)?;
    let found = meanings.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| Error::internal("a word without a meaning"))
}

/// As [`meaning_of`], of an integer attribute that has the place of the word.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when no word has this place, or it is no integer.
pub(super) fn numbered<V: Copy>(
    call: &Call<'_>,
    name: &str,
    meanings: &[(&str, V)],
    default: V,
) -> Result<V> {
    let Some(number) = call.node().attributes.int(name)? else { return Ok(default) };
    let found = usize::try_from(number).ok().and_then(|place| meanings.get(place));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let last = meanings.len().saturating_sub(1);
        let reason = format!("attribute `{name}` is {number}, not one of 0 to {last}");
        Error::new(ErrorKind::InvalidModel, reason)
    })
}
