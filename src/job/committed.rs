//! [`Committed`]: what a commit has put in place, also as a later call finds it, when the folder of
//! the job is gone.

use std::path::{Path, PathBuf};

use super::mark::Mark;
use super::stamp::{FileStamp, sha256};
use crate::buffer::MmapChoice;
use crate::digest::ContentDigest;
use crate::error::{Error, ErrorKind, Result};
use crate::save::SavedFile;

/// What a commit has put in place.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Committed {
    /// The files, the model last.
    pub files: Vec<SavedFile>,
    /// The length of all of them in bytes.
    pub bytes: u64,
    /// The [digest](crate::Container::digest) of the model, known from the receipts without
    /// reading a weight. Of slices it is known where the job stores digests: they are read then.
    pub digest: Option<ContentDigest>,
    /// Whether an earlier call had committed the job. What that has removed and left behind, and
    /// which weights became infinite, is not known any more.
    pub already: bool,
    /// Whether the model or one of its weights files was replaced or changed since:
    /// [`files`](Self::files) has none of these. A commit that is done again is an error then.
    pub replaced: bool,
    /// Old weights files that were removed.
    #[serde(serialize_with = "crate::util::as_text::paths")]
    pub removed: Vec<PathBuf>,
    /// Old weights files that only the replaced model needed, and that stay.
    #[serde(serialize_with = "crate::util::as_text::paths")]
    pub left_behind: Vec<PathBuf>,
    /// The weights, by their old names, of which finite numbers became infinite by a cast; see
    /// [`CastReport::infinite`](crate::edit::CastReport::infinite).
    pub infinite: Vec<String>,
    /// Problems that did not prevent the commit.
    pub warnings: Vec<Error>,
}

impl Committed {
    pub(super) fn new(files: Vec<SavedFile>, digest: Option<ContentDigest>) -> Self {
        Self {
            bytes: files.iter().fold(0, |sum, file| file.bytes.saturating_add(sum)),
            files,
            digest,
            already: false,
            replaced: false,
            removed: Vec::new(),
            left_behind: Vec::new(),
            infinite: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// What an earlier commit of the job `id` has put in place: the model `name` in `directory`,
    /// with its weights files, `files`, and whether they are as they were then; `None` where none
    /// of the weights files has the mark of the job.
    pub(super) fn found(
        directory: &Path,
        name: &str,
        files: impl IntoIterator<Item = String>,
        id: &str,
    ) -> Result<Option<Self>> {
        let (mut there, mut found) = (Vec::new(), None);
        let (mut is_marked, mut replaced) = (false, false);
        for file in files {
            let path = directory.join(&file);
            let mark = Mark::of(&path).filter(|mark| mark.job == id);
            is_marked |= Mark::is_of(&path, id);
            match mark.zip(len(&path)?) {
                Some((mark, bytes)) => {
                    there.push(SavedFile::new(file, bytes));
                    found = Some(mark);
                }
                None => replaced = true,
            }
        }
        if !is_marked {
            return Ok(None);
        }
        let path = directory.join(name);
        let model = match MmapChoice::never().buffer(&path) {
            Err(error) if error.kind() == ErrorKind::MissingFile => None,
            model => Some(model?),
        };
        let sum = model.as_ref().map(|model| sha256(model));
        match model.filter(|_| found.as_ref().is_some_and(|mark| sum.as_ref() == Some(&mark.model)))
        {
            Some(model) => there.push(SavedFile::new(name, model.len() as u64)),
            None => replaced = true,
        }
        let digest = found.and_then(|mark| mark.digest);
        Ok(Some(Self { already: true, replaced, ..Self::new(there, digest) }))
    }
}

fn len(path: &Path) -> Result<Option<u64>> {
    Ok(FileStamp::of(path)?.map(FileStamp::bytes))
}

/// How a job has ended whose model is another one now.
pub(super) const REPLACED: &str =
    "committed, and its model or a weights file was replaced or changed since";

/// The error of a job whose folder is gone, and whose model was to be at `path`: `how` it has
/// ended, where that is known.
pub(super) fn gone(path: &Path, how: Option<&str>) -> Error {
    let reason = match how {
        Some(how) => format!("the job is not there: it was {how}"),
        None => format!(
            "the job is not there: it was committed or aborted, or its folder was moved. \
             `onnx-container digest {}` says which model is there",
            path.display()
        ),
    };
    Error::new(ErrorKind::MissingFile, reason).with_path(path)
}
