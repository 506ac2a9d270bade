//! [`Mark`]: the id of a job and the digest of its model. A commit leaves it on the weights files
//! that it puts in place, where a commit that is done again finds it.
//!
//! It is an extended attribute, so no file stays behind for it. A file system without those has no
//! mark, and neither has a file that was copied in place of a link.

use std::fs::File;
use std::path::Path;

use crate::digest::ContentDigest;

/// What a weights file says of the commit that put it in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The id of the job.
    pub(super) job: String,
    /// The digest of the model, where the commit knew it.
    pub(super) digest: Option<ContentDigest>,
}

impl Mark {
    /// Leaves the mark on a file, where its file system has attributes.
    pub(super) fn put(&self, file: &File) {
        let digest = self.digest.as_ref().map(|digest| format!(" {digest}")).unwrap_or_default();
        attribute::put(file, format!("{}{digest}", self.job).as_bytes());
    }

    /// That of the file at `path`.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let text = String::from_utf8(attribute::of(path)?).ok()?;
        let (job, digest) = match text.split_once(' ') {
            Some((job, digest)) => (job, Some(digest.parse().ok()?)),
            None => (text.as_str(), None),
        };
        Some(Self { job: job.to_owned(), digest })
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
    const LONGEST: usize = 256;

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
