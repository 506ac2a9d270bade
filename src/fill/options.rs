//! [`FillOptions`]: which weights go to which tensors.
//!
//! This file maps names by the caller's rules; looking them up in the model is left to `fill`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use crate::error::{Error, ErrorKind, Result};
use crate::replace::Tied;

/// How [`Container::fill`](crate::Container::fill) matches the names of weights with those of tensors.
///
/// ```
/// use onnx_container::FillOptions;
///
/// // What the checkpoint calls `model.encoder.w` is `encoder.w` in the graph.
/// let options = FillOptions::new().strip_prefix("model.").rename("lm_head", "head.weight");
/// ```
#[derive(Debug, Clone, Default)]
pub struct FillOptions {
    pub(super) renames: BTreeMap<String, Vec<String>>,
    prefixes: Vec<(String, String)>,
    pub(super) ignored: HashSet<String>,
    pub(super) partial: bool,
    pub(super) strict: bool,
    pub(super) tied: Option<Tied>,
}

impl FillOptions {
    /// The defaults: equal names, every tensor has to be filled, weights may be left over.
    pub fn new() -> Self {
        Self::default()
    }

    /// The weights called `from` go to the tensor `to`. A rename takes precedence over every prefix
    /// rule. Weights that are renamed more than once go to all these tensors, which are then tied.
    #[must_use]
    pub fn rename(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.renames.entry(from.into()).or_default().push(to.into());
        self
    }

    /// Where the name of weights begins with `from`, the tensor's begins with `to` instead. Of several
    /// rules that match, only the one with the longest `from` applies; two rules for one `from` are
    /// refused. An empty `from` matches every name: `replace_prefix("", "m.")` prepends `m.`.
    #[must_use]
    pub fn replace_prefix(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.prefixes.push((from.into(), to.into()));
        self
    }

    /// As [`replace_prefix`](Self::replace_prefix) with an empty `to`.
    #[must_use]
    pub fn strip_prefix(self, prefix: impl Into<String>) -> Self {
        self.replace_prefix(prefix, "")
    }

    /// Ignores the weights called `name`, also when the model has a tensor of that name.
    #[must_use]
    pub fn ignore(mut self, name: impl Into<String>) -> Self {
        self.ignored.insert(name.into());
        self
    }

    /// Whether tensors may be left without weights, to be filled from elsewhere. Default false.
    #[must_use]
    pub fn partial(mut self, partial: bool) -> Self {
        self.partial = partial;
        self
    }

    /// Whether weights that match no tensor are an error. Unless [`partial`](Self::partial) is set,
    /// inline tensors of several elements that get no weights are then errors too. Default false:
    /// they are listed in [`Filled::unused`](crate::Filled::unused) and
    /// [`Filled::kept`](crate::Filled::kept).
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// What happens to tensors that no weights name and that have the bytes of one that they name. With
    /// [`Tied::All`] they get its weights, whatever their dtypes and dims, and different weights for tensors on the
    /// same bytes are errors ([`ErrorKind::InvalidArgument`]); with [`Tied::This`] they keep their bytes; with
    /// [`Tied::Refuse`] they are errors ([`ErrorKind::Tied`]). Default `None`: those of the same dtype and dims
    /// get the weights, unless different weights are given for several; the others keep their bytes.
    #[must_use]
    pub fn tied(mut self, tied: impl Into<Option<Tied>>) -> Self {
        self.tied = tied.into();
        self
    }

    /// Whether what is left over is an error.
    #[cfg(feature = "safetensors")]
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// The options for weights that have the names of tensors.
    #[cfg(feature = "safetensors")]
    pub(crate) fn without_names(self) -> Self {
        Self { partial: self.partial, tied: self.tied, ..Self::default() }
    }

    /// Refuses two rules for one prefix.
    pub(super) fn check(&self) -> Result<()> {
        let mut rules = BTreeMap::new();
        let wrong = self.prefixes.iter().filter_map(|(from, to)| {
            let first = *rules.entry(from).or_insert(to);
            let reason = format!("two rules for the prefix `{from}`: `{first}` and `{to}`");
            (first != to).then(|| Error::new(ErrorKind::InvalidArgument, reason))
        });
        Error::join(wrong).map_or(Ok(()), Err)
    }

    /// The names of the tensors for weights called `name`, and whether the caller gave exactly these
    /// names.
    pub(super) fn tensors<'a>(&'a self, name: &'a str) -> (Vec<Cow<'a, str>>, bool) {
        if let Some(to) = self.renames.get(name) {
            return (to.iter().map(Cow::from).collect(), true);
        }
        let matching = self.prefixes.iter().filter(|(from, _)| name.starts_with(from.as_str()));
        let tensor = match matching.max_by_key(|(from, _)| from.len()) {
            Some((from, to)) => name.replacen(from, to, 1).into(),
            None => name.into(),
        };
        (vec![tensor], false)
    }
}
