//! What a verification finds.
//!
//! Why a model is not verified is in `reason`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use onnx_container::{Error, ErrorKind, Result};

/// Why a file is not as it was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Other bytes than those that were signed.
    Changed,
    /// Signed, and not there.
    Missing,
    /// There, or needed by the model, and not signed.
    Unsigned,
    /// Not opened: a link, or no regular file.
    Refused,
}

impl ProblemKind {
    /// One word: `changed`, `missing`, `unsigned` or `refused`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Unsigned => "unsigned",
            Self::Refused => "refused",
        }
    }
}

/// A file that is not as it was signed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Problem {
    /// Beneath the folder of the model.
    pub path: String,
    /// What is wrong with it, in a word.
    pub kind: ProblemKind,
    /// What is wrong with it.
    pub reason: String,
}

/// What was found about the files.
#[derive(Debug)]
#[non_exhaustive]
pub struct FilesVerdict {
    /// The signature on files.
    pub signature: PathBuf,
    /// Whether all is as it was signed.
    pub as_signed: bool,
    /// The bytes of a shard; `None` where files were signed as a whole.
    pub shard_size: Option<u64>,
    /// How many files were signed.
    pub signed_files: usize,
    /// Files that are not as they were signed.
    pub problems: Vec<Problem>,
    /// What is in the folder, was not signed, and is left out by the signature itself.
    pub left_out: Vec<String>,
    /// The files that the model has now.
    pub(crate) own: BTreeSet<String>,
    /// The file of the model; none for a folder.
    pub(crate) model: Option<String>,
}

/// What was found about the content.
#[derive(Debug)]
#[non_exhaustive]
pub struct ContentVerdict {
    /// The signature on content.
    pub signature: PathBuf,
    /// What the model was called that was signed.
    pub signed_model: String,
    /// Whether the content is that which was signed; `None` where it was not compared.
    pub as_signed: Option<bool>,
    /// The digest that was signed: `sha256:` and 64 digits.
    pub signed_digest: String,
    /// That of the model, where it was compared.
    pub digest: Option<String>,
    /// Why the statement does not hold, or was not compared.
    pub reason: Option<String>,
    /// Why it could not be compared.
    pub error: Option<Error>,
    /// Why other readers may take the file for another model than the one of this content.
    pub ambiguous: Option<String>,
    /// Whether the model has the signed name now.
    pub(crate) is_of_that_name: bool,
    /// The files that the model had when it was signed.
    pub(crate) files: BTreeSet<String>,
}

/// What a verification found, whether the model is the signed one or not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The model, or the folder.
    pub model: PathBuf,
    /// Why it is not verified; `None` where it is.
    pub reason: Option<String>,
    /// The public key: the SHA-256 of its PEM, as signatures name it.
    pub key: String,
    /// The curve of the key: `P-256`, `P-384` or `P-521`.
    pub curve: &'static str,
    /// The statement on files, where there is one.
    pub files: Option<FilesVerdict>,
    /// The statement on content, where there is one; a folder has none.
    pub content: Option<ContentVerdict>,
}

impl Verdict {
    /// Whether the model is the one that was signed.
    pub fn is_verified(&self) -> bool {
        self.reason.is_none()
    }

    /// This verdict, where it says that the model is the one that was signed.
    ///
    /// # Errors
    /// [`ErrorKind::NotVerified`] with the reason, and an error for each file that is not as it was
    /// signed ([`Error::related`]).
    pub fn into_verified(self) -> Result<Self> {
        let Some(reason) = &self.reason else { return Ok(self) };
        let problems = self.files.iter().flat_map(|files| &files.problems);
        let problems = problems.map(|Problem { path, kind, reason }| {
            let reason = format!("{}: {reason}", kind.name());
            Error::new(ErrorKind::NotVerified, reason).with_path(path)
        });
        let reason = format!("not verified: {reason}");
        let error = Error::joined(ErrorKind::NotVerified, reason, problems.collect());
        Err(error.with_path(self.model))
    }
}

impl ContentVerdict {
    /// Whether nothing is said of this model, but of another one that was signed with it.
    pub fn is_of_another(&self) -> bool {
        self.as_signed.is_none() && self.error.is_none()
    }
}

impl FilesVerdict {
    /// The problems that `content`, which is as signed, does not excuse: it speaks for the files
    /// that the model has or had, and for no others. A file that was signed under another name and
    /// that the model now uses is not covered by the content digest.
    pub(crate) fn not_excused<'s>(
        &'s self,
        content: &'s ContentVerdict,
    ) -> impl Iterator<Item = &'s Problem> {
        self.problems.iter().filter(|Problem { path, kind, .. }| match kind {
            ProblemKind::Missing => !content.files.contains(path),
            ProblemKind::Changed => !(self.own.contains(path) && content.files.contains(path)),
            ProblemKind::Unsigned => !self.own.contains(path),
            ProblemKind::Refused => true,
        })
    }
}
