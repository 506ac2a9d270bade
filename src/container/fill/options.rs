//! [`FillOptions`]: which weights go to which tensors.
//!
//! This file maps names by the caller's rules; looking them up in the model is left to `fill`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::container::replace::Tied;
use crate::error::{Error, ErrorKind, Result};

/// How [`Container::fill`](crate::Container::fill) matches the names of weights with those of
/// tensors.
///
/// ```
/// use onnx_container::edit::FillOptions;
///
/// // What the checkpoint calls `model.encoder.w` is `encoder.w` in the graph.
/// let options = FillOptions::new().strip_prefix("model.").rename("lm_head", "head.weight");
/// ```
#[derive(Debug, Clone, Default)]
pub struct FillOptions {
    pub(super) renames: BTreeMap<String, Vec<String>>,
    prefixes: Vec<(String, String)>,
    rename_with: Option<RenameWith>,
    pub(super) ignored: HashSet<String>,
    pub(super) partial: bool,
    pub(super) strict: bool,
    pub(super) tied: Option<Tied>,
    pub(super) allow_no_match: bool,
}

/// A function of the caller that makes the name of a tensor of that of weights.
type Rename = dyn Fn(&str) -> Result<String> + Send + Sync;

#[derive(Clone)]
struct RenameWith(Arc<Rename>);

impl fmt::Debug for RenameWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

/// A rule that has no effect where no weights have the name or the prefix. A prefix that is
/// replaced by nothing is displayed as one that is stripped, whichever method it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule<'o> {
    Ignore(&'o str),
    Prefix(&'o str, &'o str),
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignore(name) => write!(f, "ignore {name:?}"),
            Self::Prefix(prefix, "") => write!(f, "strip_prefix {prefix:?}"),
            Self::Prefix(from, to) => write!(f, "replace_prefix {from:?} by {to:?}"),
        }
    }
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

    /// The name of the tensor is what `tensor` makes of the name of the weights. A
    /// [`rename`](Self::rename) takes precedence; prefix rules beside this are refused. An error of
    /// `tensor` is one of the fill.
    #[must_use]
    pub fn rename_with(
        mut self,
        tensor: impl Fn(&str) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.rename_with = Some(RenameWith(Arc::new(tensor)));
        self
    }

    /// Where the name of weights begins with `from`, the tensor's begins with `to` instead. Of
    /// several rules that match, only the one with the longest `from` applies; two rules for one
    /// `from` are refused. An empty `from` matches every name: `replace_prefix("", "m.")` prepends
    /// `m.`.
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
    /// they are listed in [`Filled::unused`](crate::edit::Filled::unused) and
    /// [`Filled::kept`](crate::edit::Filled::kept). External tensors that have weights count as
    /// given in either case, and are listed in [`Filled::own`](crate::edit::Filled::own).
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// What happens to tensors that no weights name and that have the bytes of one that they name.
    /// With [`Tied::All`] they get its weights, whatever their dtypes and dims, and different
    /// weights for tensors on the same bytes are errors ([`ErrorKind::InvalidArgument`]); with
    /// [`Tied::This`] they keep their bytes; with [`Tied::Refuse`] they are errors
    /// ([`ErrorKind::Tied`]). Default `None`: those of the same dtype and dims get the weights,
    /// unless different weights are given for several; the others keep their bytes.
    #[must_use]
    pub fn tied(mut self, tied: impl Into<Option<Tied>>) -> Self {
        self.tied = tied.into();
        self
    }

    /// Whether a fill may take none of the weights, as that of one file of many may. Default false:
    /// it is then an error ([`ErrorKind::MissingTensor`]).
    #[must_use]
    pub fn allow_no_match(mut self, allow: bool) -> Self {
        self.allow_no_match = allow;
        self
    }

    /// The names of the tensors that weights called `name` go to, whether or not a model has them;
    /// none for weights that are [ignored](Self::ignore).
    ///
    /// ```
    /// use onnx_container::edit::FillOptions;
    ///
    /// let options = FillOptions::new().strip_prefix("model.").ignore("step");
    /// assert_eq!(options.tensors_of("model.encoder.w")?, ["encoder.w"]);
    /// assert!(options.tensors_of("step")?.is_empty());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of the function of [`rename_with`](Self::rename_with).
    pub fn tensors_of<'a>(&'a self, name: &'a str) -> Result<Vec<Cow<'a, str>>> {
        if self.ignored.contains(name) { Ok(Vec::new()) } else { Ok(self.tensors(name)?.0) }
    }

    /// Whether what is left over is an error.
    #[cfg(feature = "safetensors")]
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// The options for weights that have the names of tensors.
    #[cfg(feature = "safetensors")]
    pub(crate) fn without_names(self) -> Self {
        let Self { partial, tied, allow_no_match, .. } = self;
        Self { partial, tied, allow_no_match, ..Self::default() }
    }

    /// Refuses two rules for one prefix, and prefix rules beside a function.
    pub(super) fn check(&self) -> Result<()> {
        if self.rename_with.is_some() && !self.prefixes.is_empty() {
            let reason = "names are made by a function and by prefix rules: give one of them";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let mut rules = BTreeMap::new();
        let wrong = self.prefixes.iter().filter_map(|(from, to)| {
            let first = *rules.entry(from).or_insert(to);
            let reason = format!("two rules for the prefix `{from}`: `{first}` and `{to}`");
            (first != to).then(|| Error::new(ErrorKind::InvalidArgument, reason))
        });
        Error::join(wrong).map_or(Ok(()), Err)
    }

    /// The names of the tensors for weights called `name`, and whether the caller gave exactly
    /// these names.
    ///
    /// # Errors
    /// That of the caller's function.
    pub(super) fn tensors<'a>(&'a self, name: &'a str) -> Result<(Vec<Cow<'a, str>>, bool)> {
        if let Some(to) = self.renames.get(name) {
            return Ok((to.iter().map(Cow::from).collect(), true));
        }
        if let Some(RenameWith(tensor)) = &self.rename_with {
            return Ok((vec![tensor(name)?.into()], false));
        }
        let tensor = match self.prefix_of(name) {
            Some((from, to)) => name.replacen(from, to, 1).into(),
            None => name.into(),
        };
        Ok((vec![tensor], false))
    }

    /// The rule with the longest prefix of `name`; renames are not looked at.
    fn prefix_of<'o>(&'o self, name: &str) -> Option<(&'o str, &'o str)> {
        let rules = self.prefixes.iter().map(|(from, to)| (from.as_str(), to.as_str()));
        rules.filter(|(from, _)| name.starts_with(from)).max_by_key(|(from, _)| from.len())
    }

    /// All rules about names except renames, of which one without weights is an error.
    pub(super) fn rules(&self) -> BTreeSet<Rule<'_>> {
        let ignored = self.ignored.iter().map(|name| Rule::Ignore(name));
        ignored.chain(self.prefixes.iter().map(|(from, to)| Rule::Prefix(from, to))).collect()
    }

    /// That of [`rules`](Self::rules) which applies to weights called `name`.
    pub(super) fn rule_of(&self, name: &str) -> Option<Rule<'_>> {
        if let Some(ignored) = self.ignored.get(name) {
            return Some(Rule::Ignore(ignored));
        }
        let (from, to) = self.prefix_of(name).filter(|_| !self.renames.contains_key(name))?;
        Some(Rule::Prefix(from, to))
    }
}
