//! [`RewriteSource`]: the model that a rewrite reads, and what it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::options::Recast;
use super::source_options::SourceOptions;
use super::stamp::FileStamp;
use crate::buffer::MmapChoice;
use crate::container::Container;
use crate::container::cast::CastReport;
use crate::container::externalize::ExternalizeOptions;
use crate::error::{Error, Result};
use crate::files::external_data::{Directory, directory_of};
use crate::files::file_source::{FileSource, WeightFile};
use crate::files::folder_files::FolderFiles;
use crate::limits::Limits;
use crate::save::is_one_folder;

/// The model in a folder that a rewrite reads, and what it changes: every part opens it again, and
/// has the same weights.
///
/// A [`Job`](super::Job) has its own. This is for jobs whose result goes elsewhere, such as to an
/// object store: it is part of their description, which serde writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewriteSource {
    path: PathBuf,
    /// The model and its weights files as they were when the job was planned.
    files: Vec<(PathBuf, Option<FileStamp>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recast: Option<Recast>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    externalize: Option<ExternalizeOptions>,
    #[serde(default, skip_serializing_if = "SourceOptions::is_default")]
    options: SourceOptions,
}

impl RewriteSource {
    /// The model at `path` as it is now, the container that parts of it are written from, and what
    /// its cast did. It is cast as `recast` says, then inline tensors are moved out as
    /// `externalize` says. Parts open it with the same `options`.
    ///
    /// # Errors
    /// Those of a load, of [`Container::cast`] and of [`Container::externalize`].
    pub fn new(
        path: &Path,
        recast: Option<Recast>,
        externalize: Option<ExternalizeOptions>,
        options: SourceOptions,
    ) -> Result<(Self, Container, Option<CastReport>)> {
        let path = std::path::absolute(path).map_err(|error| Error::io(path, error))?;
        let before = FileStamp::of(&path)?;
        let mut source = Self { path, files: Vec::new(), recast, externalize, options };
        let (loaded, weights) = source.load()?;
        let paths = std::iter::once(source.path.clone()).chain(weights);
        let stamped = paths.map(|path| FileStamp::of(&path).map(|stamp| (path, stamp)));
        source.files = stamped.collect::<Result<_>>()?;
        // A save that replaces the model in the meantime has put its weights in place before.
        FileStamp::check(&source.path, before)?;
        let (container, cast) = source.changed(loaded)?;
        Ok((source, container, cast))
    }

    /// The container again, and what its cast did.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`](crate::ErrorKind::Changed) where a file is another one now, and those
    /// of a load.
    pub fn open(&self) -> Result<(Container, Option<CastReport>)> {
        let (loaded, _) = self.load()?;
        self.check()?;
        self.changed(loaded)
    }

    /// Refuses where a file is another one now, as after it was read.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`](crate::ErrorKind::Changed).
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|(path, stamp)| FileStamp::check(path, *stamp))
    }

    /// Whether this process maps the model file; see [`SourceOptions::mmap`].
    pub fn map(&mut self, map: MmapChoice) {
        self.options = self.options.mmap(map);
    }

    /// How much the source may hold.
    pub fn limits(&self) -> Limits {
        self.options.most()
    }

    /// As [`check`](Self::check), of the files in `directory`, which a commit may replace.
    pub(super) fn check_in(&self, directory: &Path) -> Result<()> {
        let is_there = |path: &Path| is_one_folder(&directory_of(path), directory).unwrap_or(true);
        let mut files = self.files.iter().filter(|(path, _)| is_there(path));
        files.try_for_each(|(path, stamp)| FileStamp::check(path, *stamp))
    }

    /// The model, and the weights files that it has. They are read in parts: a part of a model that
    /// outgrows this machine is not.
    fn load(&self) -> Result<(Container, Vec<PathBuf>)> {
        let directory = Directory::of_model(&self.path, self.options.paths)?;
        let opened = Arc::default();
        let noted = Noted { files: directory.into(), opened: Arc::clone(&opened) };
        let container = Container::load(&self.path, self.options.load().files_from(noted))?;
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((container, opened))
    }

    fn changed(&self, container: Container) -> Result<(Container, Option<CastReport>)> {
        changed(container, self.recast.as_ref(), self.externalize)
    }
}

/// The container that parts of a rewrite are written from, and what its cast did.
///
/// # Errors
/// Those of [`Container::cast`] and of [`Container::externalize`].
pub fn changed(
    mut container: Container,
    recast: Option<&Recast>,
    externalize: Option<ExternalizeOptions>,
) -> Result<(Container, Option<CastReport>)> {
    let report = recast.map(|recast| recast.apply(&mut container)).transpose()?;
    if let Some(options) = externalize {
        container.externalize(options)?;
    }
    Ok((container, report))
}

/// What the cast of a rewrite did, of which the process knows that planned it. It is no part of the
/// job, so that one that was opened is equal to the one that was planned.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenCast(pub(super) Option<CastReport>);

impl PartialEq for SeenCast {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SeenCast {}

/// The files of a folder, which notes those that it has opened.
struct Noted {
    files: FolderFiles,
    opened: Arc<Mutex<Vec<PathBuf>>>,
}

impl FileSource for Noted {
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        let file = self.files.open(location)?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(file.describe());
        Ok(file)
    }
}
