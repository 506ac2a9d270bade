//! Which functions are inlined, [`InlineOptions`], and what was done, [`Inlined`].

use std::collections::HashSet;
use std::fmt;

use crate::error::Error;
use crate::limits::Limits;
use crate::proto::{FunctionProto, Str};

/// The identity of a local function: the domain, name and overload by which a node calls it.
///
/// `Display` is `domain::name:overload`, without the parts that are empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct FunctionId {
    /// The domain; that of the ONNX operators is empty.
    pub domain: String,
    /// The name.
    pub name: String,
    /// The overload; empty for most.
    pub overload: String,
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}::", self.domain)?;
        }
        f.write_str(&self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ":{}", self.overload) }
    }
}

impl From<&FunctionProto> for FunctionId {
    /// The id of the function; bytes that are not UTF-8 become `U+FFFD`.
    fn from(function: &FunctionProto) -> Self {
        let text =
            |text: Option<&Str>| text.map(Str::to_string_lossy).unwrap_or_default().into_owned();
        let domain = text(function.domain.as_ref());
        let name = text(function.name.as_ref());
        let overload = text(function.overload.as_deref());
        Self { domain: plain(domain), name, overload }
    }
}

/// One function, the overloads of one, or all of a domain.
///
/// A string selects in the form in which [`FunctionId`] prints: `local::attention` with every
/// overload, or `local::attention:causal`. `local::` selects the whole domain.
///
/// ```
/// use onnx_container::inline::{FunctionSelector, InlineOptions};
///
/// let options = InlineOptions::new()
///     .except(["local::attention"])
///     .except([FunctionSelector::domain("pkg.kernels")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionSelector(SelectorKind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SelectorKind {
    Text(String),
    Domain(String),
    Name(String, String),
    Overload(String, String, String),
}

impl FunctionSelector {
    /// Every function of `domain`.
    pub fn domain(domain: impl Into<String>) -> Self {
        Self(SelectorKind::Domain(plain(domain)))
    }

    /// The function `name` of `domain`, with all its overloads.
    pub fn name(domain: impl Into<String>, name: impl Into<String>) -> Self {
        Self(SelectorKind::Name(plain(domain), name.into()))
    }

    /// The function `name` of `domain` with just this overload, which may be empty.
    pub fn overload(
        domain: impl Into<String>,
        name: impl Into<String>,
        overload: impl Into<String>,
    ) -> Self {
        Self(SelectorKind::Overload(plain(domain), name.into(), overload.into()))
    }
}

/// Every selector that matches the function.
fn selectors_of(id: &FunctionId) -> Vec<FunctionSelector> {
    let FunctionId { domain, name, overload } = id;
    let all = FunctionId { overload: String::new(), ..id.clone() };
    let mut texts = vec![format!("{domain}::"), all.to_string(), id.to_string()];
    if domain.is_empty() {
        texts.extend(
            ["".to_owned(), all.to_string(), id.to_string()].map(|s| format!("ai.onnx::{s}")),
        );
    }
    let parts = [
        FunctionSelector::domain(domain),
        FunctionSelector::name(domain, name),
        FunctionSelector::overload(domain, name, overload),
    ];
    parts.into_iter().chain(texts.into_iter().map(FunctionSelector::from)).collect()
}

fn plain(domain: impl Into<String>) -> String {
    Some(domain.into()).filter(|domain| domain != "ai.onnx").unwrap_or_default()
}

impl From<&str> for FunctionSelector {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for FunctionSelector {
    fn from(text: String) -> Self {
        Self(SelectorKind::Text(text))
    }
}

impl From<&FunctionId> for FunctionSelector {
    fn from(id: &FunctionId) -> Self {
        Self::overload(&id.domain, &id.name, &id.overload)
    }
}

impl fmt::Display for FunctionSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SelectorKind::Text(text) => f.write_str(text),
            SelectorKind::Domain(domain) => write!(f, "{domain}::"),
            SelectorKind::Name(domain, name) => write!(f, "{domain}::{name}"),
            SelectorKind::Overload(domain, name, overload) => {
                write!(f, "{domain}::{name}:{overload}")
            }
        }
    }
}

/// Which local functions are inlined, and how large the result may get.
///
/// ```
/// use onnx_container::inline::InlineOptions;
///
/// // All but the attention, for which a runtime has a kernel.
/// let options = InlineOptions::new().except(["local::attention"]).max_nodes(1_000_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineOptions {
    pub(super) only: Vec<FunctionSelector>,
    pub(super) except: Vec<FunctionSelector>,
    pub(super) max_nodes: u64,
    pub(super) refuse_conflicts: bool,
    pub(crate) limits: Limits,
}

impl Default for InlineOptions {
    fn default() -> Self {
        let (only, except) = (Vec::new(), Vec::new());
        let limits = Limits::new();
        Self { only, except, max_nodes: Self::MAX_NODES, refuse_conflicts: false, limits }
    }
}

impl InlineOptions {
    /// The default of [`max_nodes`](Self::max_nodes): 10 million nodes.
    pub const MAX_NODES: u64 = 10_000_000;

    /// The defaults: every function, up to [`MAX_NODES`](Self::MAX_NODES) nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inlines only these functions. The others are kept; calls to these functions are replaced
    /// inside them too. Default: all functions.
    #[must_use]
    pub fn only<S: Into<FunctionSelector>>(
        mut self,
        functions: impl IntoIterator<Item = S>,
    ) -> Self {
        self.only.extend(functions.into_iter().map(Into::into));
        self
    }

    /// Keeps these functions and the calls to them. Default: none.
    #[must_use]
    pub fn except<S: Into<FunctionSelector>>(
        mut self,
        functions: impl IntoIterator<Item = S>,
    ) -> Self {
        self.except.extend(functions.into_iter().map(Into::into));
        self
    }

    /// Refuses a model if the result would have more than `max` nodes, at any depth, if more than
    /// `max` calls would be replaced, or if names, attributes and types of the copies would take
    /// more than 512 bytes times `max`. All three are counted before the first node is made; only
    /// graphs that calls pass as attributes are counted as they are copied. Default:
    /// [`MAX_NODES`](Self::MAX_NODES).
    #[must_use]
    pub fn max_nodes(mut self, max: u64) -> Self {
        self.max_nodes = max;
        self
    }

    /// The limits of the model, of which [`Limit::Nesting`](crate::load::Limit::Nesting) and
    /// [`Limit::Calls`](crate::load::Limit::Calls) hold. Default: [`Limits::new`];
    /// a [`Container`](crate::Container) inlines with its own.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether a selected function that cannot be inlined is an error: its operators have another
    /// meaning at the model's operator set versions, or an attribute's default would be lost in a
    /// caller that is not selected. Default: false; the function is kept, with all that it calls,
    /// and reported in [`Inlined::kept`].
    #[must_use]
    pub fn refuse_conflicts(mut self, refuse: bool) -> Self {
        self.refuse_conflicts = refuse;
        self
    }

    /// For each function, whether it is to be inlined; or the selectors that match no function.
    pub(super) fn select(&self, ids: &[FunctionId]) -> Result<Vec<bool>, Vec<&FunctionSelector>> {
        let (only, except): (HashSet<_>, HashSet<_>) =
            (self.only.iter().collect(), self.except.iter().collect());
        let mut unused: HashSet<_> = only.union(&except).copied().collect();
        let mut selected = Vec::with_capacity(ids.len());
        for id in ids {
            let selectors = selectors_of(id);
            let among = |set: &HashSet<_>| selectors.iter().any(|selector| set.contains(selector));
            selected.push((only.is_empty() || among(&only)) && !among(&except));
            for selector in &selectors {
                unused.remove(selector);
            }
        }
        let given = self.only.iter().chain(&self.except);
        let unknown: Vec<_> = given.filter(|selector| unused.contains(selector)).collect();
        if unknown.is_empty() { Ok(selected) } else { Err(unknown) }
    }
}

/// What an inlining did.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Inlined {
    /// The number of calls that were replaced, those inside inlined bodies included.
    pub calls: u64,
    /// The functions that were removed, in the order of the model.
    pub removed: Vec<FunctionId>,
    /// The functions that were selected and could not be inlined, each with the reason: an operator
    /// that differs between the versions, or an attribute's default that would be lost in a kept
    /// caller.
    pub kept: Vec<KeptFunction>,
    /// The operator sets (domain and version) that only functions imported and that the model now
    /// imports.
    pub imported: Vec<(String, i64)>,
    /// What was lost, such as the device configurations of a call, and what changed for readers
    /// that took a function for the operator of its name.
    pub warnings: Vec<Error>,
}

/// A function that was not inlined, and why.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeptFunction {
    /// The id of the function.
    pub function: FunctionId,
    /// Why it was not inlined.
    pub reason: String,
}

#[cfg(feature = "serde")]
crate::util::as_text::serialize_as_text!(FunctionId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_select() {
        let id = |domain: &str, name: &str, overload: &str| FunctionId {
            domain: domain.to_owned(),
            name: name.to_owned(),
            overload: overload.to_owned(),
        };
        let f = id("a", "f", "");
        let fo = id("a", "f", "o");
        let relu = id("", "Relu", "");
        let odd = id("a::b", "f", "");
        let cases: &[(FunctionSelector, [bool; 4])] = &[
            ("a::f".into(), [true, true, false, false]),
            ("a::f:o".into(), [false, true, false, false]),
            ("a::".into(), [true, true, false, false]),
            ("a::b::f".into(), [false, false, false, true]),
            ("Relu".into(), [false, false, true, false]),
            ("ai.onnx::Relu".into(), [false, false, true, false]),
            ("::".into(), [false, false, true, false]),
            ("f".into(), [false; 4]),
            (FunctionSelector::domain("ai.onnx"), [false, false, true, false]),
            (FunctionSelector::name("a", "f"), [true, true, false, false]),
            (FunctionSelector::overload("a", "f", ""), [true, false, false, false]),
            (FunctionSelector::from(&fo), [false, true, false, false]),
        ];
        for (selector, expected) in cases {
            let found = [&f, &fo, &relu, &odd].map(|id| selectors_of(id).contains(selector));
            assert_eq!(found, *expected, "{selector}");
        }
    }
}
