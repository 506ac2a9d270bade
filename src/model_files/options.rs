//! How models are moved, copied and removed.

use std::path::{Path, PathBuf};

use crate::load::LoadOptions;
use crate::save::{SaveOptions, real_path};

/// How [`move_model`](super::move_model), [`copy_model`](super::copy_model) and
/// [`remove_model`](super::remove_model) work.
///
/// ```
/// use onnx_container::model_files::FileOptions;
/// use onnx_container::{MmapChoice, SaveOptions};
///
/// let options = FileOptions::new()
///     .load(MmapChoice::never())
///     .save(SaveOptions::new().overwrite(false))
///     .dry_run(true);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    pub(super) load: LoadOptions,
    pub(super) save: SaveOptions,
    pub(super) dry_run: bool,
    pub(super) gone: Vec<PathBuf>,
    pub(super) together: Vec<PathBuf>,
    pub(super) along: Vec<PathBuf>,
}

impl FileOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the model is read: which links are followed, whether it is mapped, and its limits.
    /// Default that of [`LoadOptions`]. Weights are never loaded.
    #[must_use]
    pub fn load(mut self, options: impl Into<LoadOptions>) -> Self {
        self.load = options.into();
        self
    }

    /// How files are put in place: whether they replace others, wait for the disk, and remove the
    /// old weights files of a model that is replaced; locks and progress. Default that of
    /// [`SaveOptions`]. Options of layouts, names and contents are ignored.
    #[must_use]
    pub fn save(mut self, options: impl Into<SaveOptions>) -> Self {
        self.save = options.into();
        self
    }

    /// In a dry run, plans as if these models were not there any more: for several that go one
    /// after the other. Default none.
    #[must_use]
    pub fn as_without<P: AsRef<Path>>(mut self, models: impl IntoIterator<Item = P>) -> Self {
        self.gone.extend(models.into_iter().map(|model| real_path(model.as_ref())));
        self
    }

    /// The other models that move to the same folder one after the other, before this one or after
    /// it. A weights file that only these need besides has a second name until the last one moves:
    /// it is not copied. Default none.
    #[must_use]
    pub fn together_with<P: AsRef<Path>>(mut self, models: impl IntoIterator<Item = P>) -> Self {
        self.together.extend(models.into_iter().map(|model| real_path(model.as_ref())));
        self
    }

    /// Files below the model's folder that stayed because this model needs them, when another model
    /// was moved or removed: they are removed with this one, unless a third model needs them.
    /// Default none.
    #[must_use]
    pub fn along<P: AsRef<Path>>(mut self, files: impl IntoIterator<Item = P>) -> Self {
        self.along.extend(files.into_iter().map(|file| real_path(file.as_ref())));
        self
    }

    /// The models that a plan takes for gone.
    pub(super) fn gone(&self) -> &[PathBuf] {
        if self.dry_run { &self.gone } else { &[] }
    }

    /// Whether only the report is made, and no file is changed. Default false.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}
