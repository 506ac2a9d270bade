//! [`SourceOptions`]: how the source of a rewrite is opened, by the plan and by every part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::buffer::MmapChoice;
use crate::error::{Error, ErrorKind};
use crate::files::external_data::PathPolicy;
use crate::limits::{Limit, Limits};
use crate::load::LoadOptions;

const POLICIES: [(&str, PathPolicy); 3] = [
    ("strict", PathPolicy::Strict),
    ("model-dirs", PathPolicy::ModelDirs),
    ("trusted", PathPolicy::Trusted),
];

/// How the source of a rewrite is opened. It is part of the job, so that every process opens it in
/// the same way; whether its model file is mapped, each process says for itself.
///
/// ```
/// use onnx_container::external_data::PathPolicy;
/// use onnx_container::job::{JobOptions, SourceOptions};
///
/// let source = SourceOptions::new().paths(PathPolicy::Strict);
/// let options = JobOptions::from(64).source(source);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct SourceOptions {
    pub(super) paths: PathPolicy,
    limits: Limits,
    map: MmapChoice,
}

/// The same in JSON: what is not the default.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paths: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, u64>,
}

impl SourceOptions {
    /// The defaults of a load.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where links that lead to weights may lead; see [`LoadOptions::paths`]. A model in a store
    /// has none.
    #[must_use]
    pub fn paths(mut self, policy: PathPolicy) -> Self {
        self.paths = policy;
        self
    }

    /// Whether the model file of the source is mapped by this process, or read whole. Default
    /// [`MmapChoice::never`]. Weights that are in the model are then in memory only while they are
    /// written. Weights files are read in parts in any case, and a store has no files to map. It is
    /// not part of the job: see [`Job::map_source`](super::Job::map_source).
    #[must_use]
    pub fn mmap(mut self, map: MmapChoice) -> Self {
        self.map = map;
        self
    }

    /// How much the source may hold before it is refused; see [`LoadOptions::limits`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What [`limits`](Self::limits) was given.
    pub fn most(&self) -> Limits {
        self.limits
    }

    /// A load with these options.
    pub fn load(&self) -> LoadOptions {
        LoadOptions::new().mmap(self.map).paths(self.paths).limits(self.limits)
    }

    /// Whether what is part of the job are the defaults.
    #[doc(hidden)] // for the jobs of stores
    pub fn is_default(&self) -> bool {
        self.mmap(MmapChoice::never()) == Self::default()
    }
}

impl From<SourceOptions> for Stored {
    fn from(SourceOptions { paths, limits, map: _ }: SourceOptions) -> Self {
        let is_other = paths != PathPolicy::default();
        let named = POLICIES.into_iter().find(|(_, policy)| is_other && *policy == paths);
        let defaults = Limits::new();
        let set = Limit::ALL.into_iter().filter(|it| limits.get(*it) != defaults.get(*it));
        Self {
            paths: named.map(|(name, _)| name.to_owned()),
            limits: set.filter_map(|it| Some((it.name().to_owned(), limits.get(it)?))).collect(),
        }
    }
}

impl TryFrom<Stored> for SourceOptions {
    type Error = Error;

    fn try_from(stored: Stored) -> Result<Self, Error> {
        let mut options = Self::new();
        if let Some(name) = stored.paths {
            let known = POLICIES.into_iter().find(|(known, _)| *known == name);
            let unknown = || {
                let reason = format!("no policy of links is called `{name}`");
                Error::new(ErrorKind::InvalidArgument, reason)
            };
            options.paths = known.map(|(_, policy)| policy).ok_or_else(unknown)?;
        }
        for (name, most) in stored.limits {
            options.limits = options.limits.with(name.parse()?, most);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_from_json_as_they_were() {
        let limits = Limits::new().with(Limit::Nodes, 7).with(Limit::NameBytes, 1 << 30);
        let options = SourceOptions::new();
        for (options, text) in [
            (options, "{}"),
            (options.paths(PathPolicy::Strict), r#"{"paths":"strict"}"#),
            (options.paths(PathPolicy::Trusted), r#"{"paths":"trusted"}"#),
            (options.limits(limits), r#"{"limits":{"name-bytes":1073741824,"nodes":7}}"#),
        ] {
            assert_eq!(serde_json::to_string(&options).unwrap(), text);
            assert_eq!(serde_json::from_str::<SourceOptions>(text).unwrap(), options, "{text}");
            assert_eq!(options.is_default(), text == "{}");
        }
        for (text, expected) in [
            (r#"{"paths":"all"}"#, "`all`"),
            (r#"{"limits":{"tables":7}}"#, "tables"),
            (r#"{"limits":{"nodes":-7}}"#, "-7"),
            (r#"{"more":1}"#, "more"),
        ] {
            let error = serde_json::from_str::<SourceOptions>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
