//! What a publication is asked for, and what it did.

use onnx_container::{Error, SaveOptions};

use crate::url::StoreUrl;

/// What a publication does where there is a model already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// Replaces the model that is there when the publication begins, and no other: one that another
    /// writer put there meanwhile is an error. The default.
    #[default]
    Replace,
    /// Replaces the model with this tag, and no other: that which was loaded and edited, by
    /// [`RemoteModel::e_tag`](crate::RemoteModel::e_tag).
    ReplaceVersion(String),
    /// Is an error.
    Refuse,
    /// Replaces whatever is there, without a condition: for a store that ignores conditions, and
    /// where nobody else writes this model.
    Overwrite,
}

/// How a model is published. [`SaveOptions`] convert.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    pub(crate) save: SaveOptions,
    pub(crate) if_present: IfPresent,
    pub(crate) keep: usize,
    pub(crate) dry_run: bool,
}

impl From<SaveOptions> for PublishOptions {
    fn from(save: SaveOptions) -> Self {
        Self { save, ..Self::default() }
    }
}

impl PublishOptions {
    /// One weights file, which replaces what is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the files are laid out, as by a save.
    #[must_use]
    pub fn save(mut self, options: impl Into<SaveOptions>) -> Self {
        self.save = options.into();
        self
    }

    /// What is done where there is a model already. Default [`IfPresent::Replace`].
    #[must_use]
    pub fn if_present(mut self, if_present: IfPresent) -> Self {
        self.if_present = if_present;
        self
    }

    /// How many versions of the model stay beside it, this one included, as models of their own
    /// that [`rollback`](crate::rollback()) publishes again. Default 0: none is made, and none is
    /// removed.
    #[must_use]
    pub fn keep(mut self, versions: usize) -> Self {
        self.keep = versions;
        self
    }

    /// Whether nothing is written, and the result says what would be. Default false.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// What a publication did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Published {
    /// Where the model is.
    pub url: StoreUrl,
    /// The tag that the store gave it.
    pub e_tag: Option<String>,
    /// The length of the model file in bytes.
    pub model_bytes: u64,
    /// Its weights files.
    pub files: Vec<PublishedFile>,
    /// The version of the model that stays beside it.
    pub version: Option<StoreUrl>,
    /// Older versions that were removed.
    pub removed: Vec<StoreUrl>,
    /// What failed after the model was published: a version that was not kept or not removed.
    pub warnings: Vec<Error>,
}

/// One weights file of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedFile {
    /// Its location in the model.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes; `None` where they were not read, by a
    /// [`rollback`](crate::rollback()).
    pub sha256: Option<[u8; 32]>,
    /// Whether it was sent: false for one that was there.
    pub sent: bool,
}
