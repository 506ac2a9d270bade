//! [`Cache`]: the folder where the Hub's own tools keep what they fetched.
//!
//! `models--owner--name/snapshots/<commit>/<path>` is a link to `../../blobs/<tag>`, which is the
//! file, or a link to one that several repositories share, `blobs/<xx>/<xet hash>` of the cache.
//! So the tag is the name that the first link has, and no file outside of these folders is read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use onnx_container::{Error, Result};

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// The folder of one repository in the cache.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// Where files are that repositories share.
    shared: PathBuf,
}

/// A file of the cache.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    path: PathBuf,
    pub(super) size: u64,
    /// The tag that the Hub gave it, if the file is in `blobs`.
    pub(super) tag: Option<String>,
}

impl Cache {
    /// That of the repository `owner/name` in the cache at `cache`.
    pub(super) fn new(cache: &Path, repo: &str) -> Self {
        let folder = cache.join(format!("models--{}", repo.replace('/', "--")));
        Self { folder, shared: cache.join("blobs") }
    }

    /// The commit that a revision had when the Hub was last asked.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        let file = self.folder.join("refs").join(revision);
        Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
    }

    /// The file at `path` in `commit`.
    pub(super) fn file(&self, commit: &str, path: &str) -> Option<Cached> {
        let link = self.folder.join("snapshots").join(commit).join(path);
        let file = link.canonicalize().ok()?;
        let within =
            |folder: &Path| folder.canonicalize().is_ok_and(|folder| file.starts_with(folder));
        if !within(&self.folder) && !within(&self.shared) {
            return None;
        }
        let data = file.metadata().ok()?;
        let is_file = data.is_file();
        is_file.then(|| Cached { path: file, size: data.len(), tag: tag(&link) })
    }
}

/// The tag that a link of a snapshot has.
fn tag(link: &Path) -> Option<String> {
    let blob = link.read_link().ok()?;
    let is_blob = blob.parent().and_then(Path::file_name).is_some_and(|name| name == "blobs");
    let name = blob.file_name()?.to_str()?;
    is_blob.then(|| name.to_owned())
}

impl Cached {
    /// The bytes of a range, in pieces.
    pub(super) async fn read(
        &self,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let path = self.path.clone();
        let opened = blocking(self.path.clone(), move || {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(range.start))?;
            Ok(file.take(range.end.saturating_sub(range.start)))
        });
        let start = (self.path.clone(), opened.await?);
        let pieces = try_unfold(start, |(path, mut left)| async {
            let read = blocking(path.clone(), move || {
                let mut bytes = Vec::new();
                left.by_ref().take(CHUNK).read_to_end(&mut bytes)?;
                Ok((bytes, left))
            });
            let (bytes, left) = read.await?;
            Ok((!bytes.is_empty()).then_some((Bytes::from(bytes), (path, left))))
        });
        Ok(pieces.boxed())
    }
}

/// Waits for work on a file, which may be on a slow disk.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await.map_err(Error::internal)?;
    let fail = |error| Error::io(path, error).because("the cache of the Hub cannot be read");
    done.map_err(fail)
}
