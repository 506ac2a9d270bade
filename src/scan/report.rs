//! What a scan found.

use std::path::PathBuf;

use crate::error::Error;

/// What [`scan`](super::scan) found below a folder. Paths begin with the folder as it was given.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Scan {
    /// The folder.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub folder: PathBuf,
    /// All folders that were looked at, this one first.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub folders: Vec<PathBuf>,
    /// How many files there are, each once however many names it has.
    pub files: usize,
    /// Their bytes, with those of files elsewhere that models reach by links, and of what saves
    /// left.
    pub bytes: u64,
    /// The models, by their paths.
    pub models: Vec<ScannedModel>,
    /// Files that have the name of a model and are not one: what they are.
    pub not_models: Vec<Error>,
    /// Weights, or what may be weights, beside models that do not need them.
    pub orphans: Vec<Orphan>,
    /// Folders with weights that no model needs, and without a model.
    pub without_model: Vec<WeightsFolder>,
    /// What saves left, and staging folders of saves that are running.
    pub left: Vec<LeftFile>,
    /// Links to files that are not there.
    pub dangling: Vec<Error>,
    /// Equal weights of different models, the largest first; `None` where they were not asked for.
    pub equal: Option<Vec<EqualWeights>>,
    /// What could not be read.
    pub errors: Vec<Error>,
}

impl Scan {
    /// How many bytes are free when what nobody needs is removed: orphans, except those that only
    /// may be weights, and what interrupted saves and ended jobs left.
    pub fn reclaimable(&self) -> u64 {
        let orphans = self.orphans.iter().filter(|it| it.certainty != Certainty::Possible);
        let is_unneeded = |kind| matches!(kind, LeftKind::Unneeded | LeftKind::Committed);
        let left = self.left.iter().filter(|it| is_unneeded(it.kind));
        orphans.map(|it| it.frees).chain(left.map(|it| it.bytes)).fold(0, u64::saturating_add)
    }

    /// How many more bytes are free when the files are removed that only may be weights.
    pub fn perhaps_reclaimable(&self) -> u64 {
        let orphans = self.orphans.iter().filter(|it| it.certainty == Certainty::Possible);
        orphans.map(|it| it.frees).fold(0, u64::saturating_add)
    }

    /// How many bytes are free when the models of each folder
    /// [share](crate::model_files::share_weights) their equal weights; `None` where these were not
    /// asked for.
    pub fn shareable(&self) -> Option<u64> {
        let equal = self.equal.as_ref()?.iter();
        Some(equal.map(|weights| weights.shareable).fold(0, u64::saturating_add))
    }

    /// How many more bytes are free when models of different folders are moved into one and share
    /// their equal weights; `None` where these were not asked for.
    pub fn shareable_in_one_folder(&self) -> Option<u64> {
        let equal = self.equal.as_ref()?.iter();
        Some(equal.map(EqualWeights::saves_in_one_folder).fold(0, u64::saturating_add))
    }
}

/// A model that a scan found.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ScannedModel {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// The length of the model's own file in bytes.
    pub bytes: u64,
    /// Its weights files, by their locations.
    pub files: Vec<ScannedFile>,
    /// Where its path leads, if it is a link.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path_or_none"))]
    pub link_to: Option<PathBuf>,
    /// The path of an earlier model of the list that is the same file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path_or_none"))]
    pub same_file_as: Option<PathBuf>,
    /// Whether its own file and all its weights files are there and not cut off.
    pub is_whole: bool,
    /// Whether its own file is cut off or damaged.
    pub is_damaged: bool,
}

impl ScannedModel {
    /// The bytes of all its files.
    pub fn all_bytes(&self) -> u64 {
        let weights = self.files.iter().map(|file| file.bytes);
        weights.fold(self.bytes, u64::saturating_add)
    }

    /// The weights files that are not there, or cannot be used.
    pub fn missing(&self) -> impl Iterator<Item = &ScannedFile> {
        let is_missing =
            |file: &&ScannedFile| !matches!(file.state, FileState::Present | FileState::Stripped);
        self.files.iter().filter(is_missing)
    }
}

/// A weights file that a model names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ScannedFile {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// As the model names it.
    pub location: String,
    /// Its length in bytes; of one that is not there, 0.
    pub bytes: u64,
    /// Whether it is there.
    pub state: FileState,
    /// What is wrong with it.
    pub reason: Option<String>,
}

impl ScannedFile {
    /// As one of which the tensors of a model need `needed` bytes.
    pub(super) fn held_to(mut self, needed: u64) -> Self {
        if self.state == FileState::Present && self.bytes < needed {
            self.state = FileState::CutOff;
            self.reason = Some(format!("cut off: {} bytes, its tensors need {needed}", self.bytes));
        }
        self
    }
}

/// Whether a weights file is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FileState {
    /// It is.
    Present,
    /// It is, and is shorter than the tensors of the model need.
    CutOff,
    /// It is not.
    Missing,
    /// A failed download is in its place.
    Wrong,
    /// The weights of the model were [stripped](crate::Container::strip): there is no such file.
    Stripped,
    /// It is not one that a model may name, or that a process may look at.
    Refused,
}

/// How sure it is that a file holds weights, where no model needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Certainty {
    /// It may: it is a binary file beside a model, or a checkpoint that other programs read.
    Possible,
    /// Its name ends as those of weights files do.
    Likely,
    /// It is named after a model of its folder.
    Sure,
}

/// A file beside a model that no model needs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Orphan {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// How many bytes are free when it is removed: none where it has names elsewhere.
    pub frees: u64,
    /// How sure it is that these are weights.
    pub certainty: Certainty,
    /// Why it is listed.
    pub reason: String,
}

/// A folder with weights and without a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WeightsFolder {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// How many of its files are weights, by their names.
    pub files: usize,
    /// The bytes of these.
    pub bytes: u64,
    /// One of them.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub example: PathBuf,
}

/// A file or folder that saves make and remove again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LeftFile {
    /// Its path.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub path: PathBuf,
    /// Its length in bytes; of a folder, that of the files below it that have no name elsewhere in
    /// the folder that was looked at, each once.
    pub bytes: u64,
    /// What it is for.
    pub kind: LeftKind,
}

/// What is to be done with a [`LeftFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LeftKind {
    /// A save was interrupted while it put files in place. [`recover`](crate::recovery::recover)
    /// completes it with these files, and so does loading the model.
    Needed,
    /// A save is running, as far as is known.
    InUse,
    /// A save was interrupted before it changed anything, or a job ended: `recover` removes what it
    /// left.
    Unneeded,
    /// The folder of a [job](crate::recovery::is_of_job): a save that many processes write, which
    /// somebody may go on with.
    Job,
    /// The folder of a job that is committed: the model is in place, and the commit was killed
    /// before it removed this. That commit again does, and so does
    /// `job::remove_ended_jobs`.
    Committed,
}

/// Weights of equal bytes that several models have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EqualWeights {
    /// The length of each in bytes.
    pub bytes: u64,
    /// How often these bytes are stored.
    pub copies: usize,
    /// The tensors, each of which has these bytes.
    pub places: Vec<WeightsPlace>,
    /// How many bytes are free when the models of each folder share these: models share weights in
    /// one folder only.
    pub shareable: u64,
}

impl EqualWeights {
    /// How many more bytes are free when all of the models are in one folder and share these.
    pub fn saves_in_one_folder(&self) -> u64 {
        self.saves().saturating_sub(self.shareable)
    }

    /// How many bytes are free when these are stored once.
    pub fn saves(&self) -> u64 {
        let more = u64::try_from(self.copies.saturating_sub(1)).unwrap_or(u64::MAX);
        self.bytes.saturating_mul(more)
    }
}

/// A tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WeightsPlace {
    /// The path of the model.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::path"))]
    pub model: PathBuf,
    /// The name of the tensor.
    pub tensor: String,
}
