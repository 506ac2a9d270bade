//! [`Mark`]: the id of a job, and what tells its model and the weights file from others. A commit
//! leaves it on the weights files that it puts in place, where a commit that is done again finds
//! it.
//!
//! It is an extended attribute, so no file stays behind for it. A file system without those has no
//! mark, and neither has a file that was copied in place of a link.

use std::fs::File;
use std::path::Path;

use super::stamp::FileStamp;
use crate::digest::ContentDigest;
use crate::util::retry::retried;

/// What a weights file says of the commit that put it in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The id of the job.
    pub(super) job: String,
    /// The SHA-256 of the encoded model, as hexadecimal digits.
    pub(super) model: String,
    /// The digest of the model, where the commit knew it.
    pub(super) digest: Option<ContentDigest>,
}

impl Mark {
    /// Leaves the mark on a file, where its file system has attributes and the user may write to
    /// the file.
    pub(super) fn put(&self, file: &File) {
        let Ok(metadata) = retried(|| file.metadata()) else { return };
        let digest = self.digest.as_ref().map(|digest| format!(" {digest}")).unwrap_or_default();
        let stamp = FileStamp::new(&metadata).text();
        let mark = format!("{} {stamp} {}{digest}", self.job, self.model);
        attribute::put(file, mark.as_bytes());
    }

    /// Whether a commit of the job `id` has marked the file at `path`, also where that has changed
    /// since.
    pub(super) fn is_of(path: &Path, id: &str) -> bool {
        let mark = attribute::of(path).unwrap_or_default();
        mark.split(|byte| *byte == b' ').next() == Some(id.as_bytes())
    }

    /// That of the file at `path`, if the file is as it was marked.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let text = String::from_utf8(attribute::of(path)?).ok()?;
        let mut words = text.split(' ');
        let job = words.next()?.to_owned();
        let stamp = words.next().filter(|text| {
            FileStamp::of(path).is_ok_and(|found| found.is_some_and(|found| found.text() == *text))
        });
        let model = stamp.and(words.next())?.to_owned();
        let digest = words.next().map(str::parse).transpose().ok()?;
        words.next().is_none().then_some(Self { job, model, digest })
    }
}

#[cfg(target_os = "linux")]
mod attribute {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{XattrFlags, fsetxattr, lgetxattr};

    use crate::util::retry::retried;

    const NAME: &str = "user.onnx-container.job";
    /// Longer than a mark, in bytes.
    const LONGEST: usize = 512;

    pub(super) fn put(file: &File, mark: &[u8]) {
        // Without it a later commit cannot tell, and says so.
        retried(|| fsetxattr(file, NAME, mark, XattrFlags::empty())).ok();
    }

    pub(super) fn of(path: &Path) -> Option<Vec<u8>> {
        let mut mark = vec![0_u8; LONGEST];
        let len = retried(|| lgetxattr(path, NAME, &mut mark[..])).ok()?;
        mark.truncate(len);
        Some(mark)
    }
}

#[cfg(not(target_os = "linux"))]
mod attribute {
    pub(super) fn put(_: &std::fs::File, _: &[u8]) {}

    pub(super) fn of(_: &std::path::Path) -> Option<Vec<u8>> {
        None
    }
}
