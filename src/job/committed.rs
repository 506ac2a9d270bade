//! [`Committed`]: what a commit has put in place, also as a later call finds it, when the folder of
//! the job is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mark::Mark;
use super::stamp::{FileStamp, sha256};
use crate::buffer::MmapChoice;
use crate::digest::ContentDigest;
use crate::error::{Error, ErrorKind, Result};
use crate::save::SavedFile;
use crate::util::retry::retried;

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
        // Without a mark that holds, nothing says which model it was.
        let model = match &found {
            Some(mark) => len_of_model(&directory.join(name), &mark.model)?,
            None => None,
        };
        let is_as_marked = model.is_some();
        there.extend(model.map(|bytes| SavedFile::new(name, bytes)));
        replaced |= !is_as_marked;
        let digest = found.and_then(|mark| mark.digest);
        Ok(Some(Self { already: true, replaced, ..Self::new(there, digest) }))
    }

    /// The same, unless the model, which was to be at `model`, was replaced.
    pub(super) fn unless_replaced(self, model: &Path) -> Result<Self> {
        match self.replaced {
            false => Ok(self),
            true => Err(gone(model, Some(REPLACED))),
        }
    }
}

/// The names of the files in `directory` that a commit of the job `id` has marked; none where that
/// folder is gone.
pub(super) fn marked_in(directory: &Path, id: &str) -> Result<Vec<String>> {
    let failed = |error| Error::io(directory, error);
    let entries = match retried(|| fs::read_dir(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_str().filter(|name| Mark::is_of(&directory.join(name), id));
        names.extend(name.map(str::to_owned));
    }
    Ok(names)
}

/// The length of the file at `path`, if it is the model whose SHA-256 is `sum`. What is no file is
/// another one.
fn len_of_model(path: &Path, sum: &str) -> Result<Option<u64>> {
    let is_file = match retried(|| path.metadata()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| Error::io(path, error))?.is_file(),
    };
    if !is_file {
        return Ok(None);
    }
    let model = MmapChoice::never().buffer(path)?;
    Ok((sha256(&model) == sum).then_some(model.len() as u64))
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
    let what = how.unwrap_or("committed or aborted, or its folder was moved");
    let is_known = how.is_some_and(|how| how != REPLACED);
    let next = match is_known {
        true => String::new(),
        false => {
            format!(". `onnx-container digest {}` says which model is there", path.display())
        }
    };
    let reason = format!("the job is not there: it was {what}{next}");
    Error::new(ErrorKind::MissingFile, reason).with_path(path)
}
