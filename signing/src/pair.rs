//! The two files of a signature as they are put in place: staged beside their targets and renamed,
//! in an order in which a killed `sign` never leaves one of them old and the other new; and what
//! killed ones left.
//!
//! A staged file is locked while its process runs, so that one that nobody holds is known to be
//! left.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use onnx_container::{Error, ErrorKind, Result, work};
use onnx_container_files::targets::folder;
use onnx_container_files::unfinished::locked;
use tempfile::{NamedTempFile, TempPath};

use crate::bundle;

/// What the names of staged files begin with: no other program has such names.
const PREFIX: &str = ".onnx-container-signing-";

/// How many characters follow.
const RANDOM: usize = 6;

/// How many bytes of a file are looked at.
const HEAD: u64 = 256;

/// How many bytes are written at a time.
const PIECE: usize = 8 << 20;

/// A signature file that is to be.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
}

/// How files are put in place.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// Waits until they are on the disk.
    pub sync: bool,
    /// Fails when one would be replaced.
    pub no_clobber: bool,
    /// Whether the work goes on, asked before each piece is written.
    pub goes_on: &'a dyn Fn() -> ControlFlow<()>,
}

impl How<'_> {
    fn check(&self) -> Result<()> {
        work::check()?;
        match (self.goes_on)() {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::new(ErrorKind::Cancelled, "the caller ended the signing"))
            }
        }
    }
}

impl fmt::Debug for How<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sync, no_clobber, .. } = self;
        f.debug_struct("How")
            .field("sync", sync)
            .field("no_clobber", no_clobber)
            .finish_non_exhaustive()
    }
}

/// Puts the signatures in place: the old one on content is moved away, then that on files is
/// replaced, then the new one on content comes. So there are the old two, the old one on files, the
/// new one on files, or the new two.
///
/// Where a call fails before a file is replaced, the old two are there again. Without a new
/// signature on content an old one stays.
pub fn publish(files: New<'_>, content: Option<New<'_>>, how: How<'_>) -> Result<()> {
    let staged = staged(files, how)?;
    let Some(content) = content else {
        put(staged, files.path, how)?;
        return flush(files.path, how);
    };
    let second = self::staged(content, how)?;
    let aside = if how.no_clobber { None } else { moved_away(content.path)? };
    let flushed = aside.as_ref().map_or(Ok(()), |_| flush(content.path, how));
    if let Err(error) = flushed.and_then(|()| put(staged, files.path, how)) {
        let put_back = aside.map_or(Ok(()), |aside| fs::rename(&aside, content.path));
        return match put_back {
            Ok(()) => Err(error),
            Err(_) => Err(error.because(&format!("`{}` is gone", content.path.display()))),
        };
    }
    let flushed = flush(files.path, how);
    flushed.and_then(|()| put(second, content.path, how)).map_err(|error| {
        let [files, content] = [files, content].map(|new| new.path.display());
        error.because(&format!("`{files}` was replaced, but `{content}` was not: sign again"))
    })?;
    flush(content.path, how).map_err(|error| {
        error.because("the signatures are in place, which a power failure may undo: sign again")
    })?;
    aside.map_or(Ok(()), removed)
}

/// Removes the old signature, which no signature covers where it is left.
fn removed(aside: TempPath) -> Result<()> {
    let path = aside.to_path_buf();
    aside.close().map_err(|error| {
        let what = "the signatures are in place, but this old one is left: remove it";
        Error::io(path, error).because(what)
    })
}

/// A file beside its target, with its bytes.
fn staged(new: New<'_>, how: How<'_>) -> Result<NamedTempFile> {
    how.check()?;
    let failed = |error| Error::io(new.path, error);
    let file = locked(PREFIX, folder(new.path))?;
    for piece in new.bytes.chunks(PIECE) {
        how.check()?;
        file.as_file().write_all(piece).map_err(failed)?;
    }
    if how.sync {
        file.as_file().sync_all().map_err(failed)?;
    }
    Ok(file)
}

/// The file at `path` under the name of a staged one, which is removed with the value; `None` where
/// there is none.
fn moved_away(path: &Path) -> Result<Option<TempPath>> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    // Closed: not every file system of Windows replaces a file that is open.
    let aside = locked(PREFIX, folder(path))?.into_temp_path();
    match fs::rename(path, &aside) {
        Ok(()) => Ok(Some(aside)),
        // Another signing has moved it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

fn put(staged: NamedTempFile, path: &Path, how: How<'_>) -> Result<()> {
    let put = if how.no_clobber { staged.persist_noclobber(path) } else { staged.persist(path) };
    put.map(drop).map_err(|error| Error::io(path, error.error))
}

/// Waits, on request, until the name of `path` is on the disk, where the file system does that: so
/// no power failure brings an old signature back beside a new one.
#[cfg(unix)]
fn flush(path: &Path, how: How<'_>) -> Result<()> {
    use io::ErrorKind::{InvalidInput, Unsupported};
    if !how.sync {
        return Ok(());
    }
    let folder = folder(path);
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if ![InvalidInput, Unsupported].contains(&error.kind()) => {
            Err(Error::io(folder, error))
        }
        _ => Ok(()),
    }
}

/// Windows cannot flush a folder, and needs no flush.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps)] // as on Unix
fn flush(_: &Path, _: How<'_>) -> Result<()> {
    Ok(())
}

/// Whether a file called `name` is one that `sign` stages.
pub fn is_staged(name: &str) -> bool {
    let random = name.strip_prefix(PREFIX);
    random.is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Whether `file` holds what `sign` stages: a signature, the beginning of one, or nothing yet.
fn has_a_signature(file: &mut File) -> bool {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).is_ok() && bundle::begins(&head)
}

/// Removes the files in `folder` that killed runs of `sign` left: how many, and an error for each
/// that is still there. Those of a run that goes on are left alone, all where the file system has
/// no locks, and what `sign` does not write. Each signing does it where it looks and writes.
pub fn remove_abandoned(folder: impl AsRef<Path>) -> (usize, Vec<Error>) {
    let entries = fs::read_dir(folder.as_ref()).into_iter().flatten().flatten();
    let staged = entries.filter(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_file())
            && entry.file_name().to_str().is_some_and(is_staged)
    });
    let removed = staged.filter_map(|entry| {
        let path = entry.path();
        let mut file = File::open(&path).ok()?;
        file.try_lock().ok()?;
        if !has_a_signature(&mut file) {
            return None;
        }
        match fs::remove_file(&path) {
            // Another signing was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            removed => Some(removed.map_err(|error| {
                let what = "left by a `sign` that was killed, and cannot be removed";
                Error::io(&path, error).because(what)
            })),
        }
    });
    let (mut count, mut errors) = (0, Vec::new());
    for removed in removed {
        match removed {
            Ok(()) => count += 1,
            Err(error) => errors.push(error),
        }
    }
    (count, errors)
}
