//! [`JobSource`]: the model that a rewrite reads, in a folder or in a store, and what it changes.

use std::collections::BTreeMap;
use std::path::Path;

use onnx_container::edit::{CastReport, ExternalizeOptions};
use onnx_container::job::{Recast, RewriteSource, SourceOptions, changed};
use onnx_container::{Container, Error, ErrorKind, Limits, MmapChoice, Result};
use serde::{Deserialize, Serialize};

use super::stores::Stores;
use crate::object::Version;
use crate::remote::RemoteModel;
use crate::url::StoreUrl;

/// The model that a rewrite reads: every part opens it again, and has the same weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobSource {
    Folder(RewriteSource),
    Store(StoredSource),
}

/// A model in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSource {
    /// The name of the store, and the key in it.
    root: String,
    key: String,
    /// The model and its weights files as they were when the job was planned.
    model: Version,
    files: BTreeMap<String, Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recast: Option<Recast>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    externalize: Option<ExternalizeOptions>,
    #[serde(default, skip_serializing_if = "SourceOptions::is_default")]
    options: SourceOptions,
}

impl JobSource {
    /// The model at `source`, a path or a URL, as it is now, the container that parts of it are
    /// written from, and what its cast did.
    pub(super) fn new(
        source: &str,
        stores: &Stores,
        recast: Option<Recast>,
        (externalize, options): (Option<ExternalizeOptions>, SourceOptions),
    ) -> Result<(Self, Container, Option<CastReport>)> {
        if let Some(url) = stores.url(source)? {
            let (source, container, cast) =
                StoredSource::new(&url, stores, recast, (externalize, options))?;
            return Ok((Self::Store(source), container, cast));
        }
        let (source, container, cast) =
            RewriteSource::new(Path::new(source), recast, externalize, options)?;
        Ok((Self::Folder(source), container, cast))
    }

    /// The container again, and what its cast did.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] where a file is another one now, and those of a load.
    pub(super) fn open(&self, stores: &Stores) -> Result<(Container, Option<CastReport>)> {
        match self {
            Self::Folder(source) => source.open(),
            Self::Store(source) => source.open(stores),
        }
    }

    /// Whether this process maps the model file. A store has none to map.
    pub(super) fn map(&mut self, map: MmapChoice) {
        if let Self::Folder(source) = self {
            source.map(map);
        }
    }

    /// How much the source may hold.
    pub(super) fn limits(&self) -> Limits {
        match self {
            Self::Folder(source) => source.limits(),
            Self::Store(source) => source.options.most(),
        }
    }

    /// Refuses where a file is another one after it was read. Of a store each answer was compared.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Folder(source) => source.check(),
            Self::Store(_) => Ok(()),
        }
    }
}

impl StoredSource {
    fn new(
        url: &StoreUrl,
        stores: &Stores,
        recast: Option<Recast>,
        (externalize, options): (Option<ExternalizeOptions>, SourceOptions),
    ) -> Result<(Self, Container, Option<CastReport>)> {
        let store = stores.of(url)?;
        let (version, files, container) = crate::remote::read_in(&store, url, |model| {
            let (container, files) = model.load_versions(options.load())?;
            Ok((model.object().version().clone(), files, container))
        })?;
        let (root, key) = (url.root().to_owned(), url.key().to_owned());
        let source = Self { root, key, model: version, files, recast, externalize, options };
        let (container, cast) = source.changed(container)?;
        Ok((source, container, cast))
    }

    fn open(&self, stores: &Stores) -> Result<(Container, Option<CastReport>)> {
        let url = stores.named(&self.root, &self.key)?;
        let model = RemoteModel::open_in(&stores.of(&url)?, &url)?;
        let changed = |url: &StoreUrl| {
            let reason = "was changed after the job was planned: plan it again";
            Error::new(ErrorKind::Changed, reason).with_path(url.to_string())
        };
        if !model.object().version().is(&self.model) {
            return Err(changed(&url));
        }
        let (container, files) = model.load_versions(self.options.load())?;
        for (location, version) in files {
            if !self.files.get(&location).is_some_and(|planned| planned.is(&version)) {
                return Err(changed(&url.beside(&location)?));
            }
        }
        self.changed(container)
    }

    fn changed(&self, container: Container) -> Result<(Container, Option<CastReport>)> {
        changed(container, self.recast.as_ref(), self.externalize)
    }
}
