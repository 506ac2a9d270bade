//! The two files of a signature as they are put in place: staged beside their targets and renamed,
//! in an order in which a killed `sign` never leaves one of them old and the other new; and what
//! killed ones left.
//!
//! A staged file is locked while its process runs, so that one that nobody holds is known to be
//! left.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use onnx_container::{Error, Result};
use tempfile::NamedTempFile;

use super::bundle;
use crate::files::staged::{Stoppable, folder};
use crate::files::unfinished::locked;
use crate::terminal::stop;

/// What the names of staged files begin with: no other program has such names.
const PREFIX: &str = ".onnx-container-signing-";

/// How many characters follow.
const RANDOM: usize = 6;

/// How many bytes of a file are looked at.
const HEAD: u64 = 256;

/// A signature file that is to be.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
}

/// How files are put in place.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Waits until they are on the disk.
    pub sync: bool,
    /// Fails when one would be replaced.
    pub no_clobber: bool,
}

/// Puts the signatures in place: the old one on content is moved away, then that on files is
/// replaced, then the new one on content comes. So there are the old two, the old one on files, the
/// new one on files, or the new two.
///
/// Without a new signature on content an old one stays.
pub fn publish(files: New<'_>, content: Option<New<'_>>, how: How) -> Result<()> {
    let staged = staged(files, how)?;
    let Some(content) = content else { return put(staged, files.path, how) };
    let second = self::staged(content, how)?;
    let aside = match content.path.symlink_metadata() {
        Ok(_) if !how.no_clobber => Some(moved_away(content.path, how)?),
        _ => None,
    };
    if let Err(error) = put(staged, files.path, how) {
        let put_back = aside.map_or(Ok(()), |aside| fs::rename(aside.path(), content.path));
        return match put_back {
            Ok(()) => Err(error),
            Err(_) => Err(because(&format!("`{}` is gone", content.path.display()), &error)),
        };
    }
    put(second, content.path, how).map_err(|error| {
        let why =
            format!("`{}` was replaced, but this file was not: sign again", files.path.display());
        because(&why, &error)
    })
}

/// A file beside its target, with its bytes.
fn staged(new: New<'_>, how: How) -> Result<NamedTempFile> {
    if !stop::goes_on() {
        return Err(stop::cancelled());
    }
    let failed = |error| Error::io(new.path, error);
    let file = locked(PREFIX, folder(new.path))?;
    let mut buffered = BufWriter::new(Stoppable(file.as_file()));
    buffered.write_all(new.bytes).and_then(|()| buffered.flush()).map_err(failed)?;
    drop(buffered);
    if how.sync {
        file.as_file().sync_all().map_err(failed)?;
    }
    Ok(file)
}

/// The file at `path` under the name of a staged one, which is removed with the value.
fn moved_away(path: &Path, how: How) -> Result<NamedTempFile> {
    let aside = locked(PREFIX, folder(path))?;
    fs::rename(path, aside.path()).map_err(|error| Error::io(path, error))?;
    if how.sync {
        flush(folder(path))?;
    }
    Ok(aside)
}

/// The error with `what` before its reason.
fn because(what: &str, error: &Error) -> Error {
    let because = Error::new(error.kind(), format!("{what}: {}", error.reason()));
    error.path().into_iter().fold(because, |error, path| error.with_path(path))
}

fn put(staged: NamedTempFile, path: &Path, how: How) -> Result<()> {
    let put = if how.no_clobber { staged.persist_noclobber(path) } else { staged.persist(path) };
    put.map(drop).map_err(|error| Error::io(path, error.error))?;
    if how.sync { flush(folder(path)) } else { Ok(()) }
}

/// Waits until the names in `folder` are on the disk, where the file system does that: so no power
/// failure brings an old signature back beside a new one.
#[cfg(unix)]
fn flush(folder: &Path) -> Result<()> {
    use std::io::ErrorKind::{InvalidInput, Unsupported};
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
fn flush(_: &Path) -> Result<()> {
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
/// no locks, and what `sign` does not write.
pub fn remove_abandoned(folder: &Path) -> (usize, Vec<Error>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
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
        let removed = fs::remove_file(&path);
        Some(removed.map_err(|error| {
            let what = "left by a `sign` that was killed, and cannot be removed";
            because(what, &Error::io(&path, error))
        }))
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
