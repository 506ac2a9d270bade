//! [`RewriteSource`]: the model that a rewrite reads, and what it changes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::options::Recast;
use super::stamp::FileStamp;
use crate::container::Container;
use crate::error::{Error, Result};
use crate::load::LoadOptions;

/// The model that a rewrite reads: every part opens it again, and has the same weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RewriteSource {
    path: PathBuf,
    /// The model and its weights files as they were when the job was planned.
    files: Vec<(PathBuf, Option<FileStamp>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recast: Option<Recast>,
}

impl RewriteSource {
    /// The model at `path` as it is now, and the container that parts of it are written from.
    pub(super) fn new(path: &Path, recast: Option<Recast>) -> Result<(Self, Container)> {
        let path = std::path::absolute(path).map_err(|error| Error::io(path, error))?;
        let mut source = Self { path, files: Vec::new(), recast };
        let loaded = source.load()?;
        let weights = loaded.weights_files().iter().cloned();
        let paths = [source.path.clone()].into_iter().chain(weights);
        let stamped = paths.map(|path| FileStamp::of(&path).map(|stamp| (path, stamp)));
        source.files = stamped.collect::<Result<_>>()?;
        let container = source.changed(loaded)?;
        Ok((source, container))
    }

    /// The container again.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`](crate::ErrorKind::Changed) where a file is another one now, and those
    /// of a load.
    pub(super) fn open(&self) -> Result<Container> {
        let loaded = self.load()?;
        self.check()?;
        self.changed(loaded)
    }

    /// Refuses where a file is another one now.
    pub(super) fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|(path, stamp)| FileStamp::check(path, *stamp))
    }

    fn load(&self) -> Result<Container> {
        Container::load(&self.path, LoadOptions::new())
    }

    fn changed(&self, mut container: Container) -> Result<Container> {
        if let Some(recast) = &self.recast {
            recast.apply(&mut container)?;
        }
        Ok(container)
    }
}
