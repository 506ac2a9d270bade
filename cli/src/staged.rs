//! Files that are written beside their targets and renamed, and the targets that nothing may replace: what
//! is read, models, and the weights of other models.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result, model_that_needs};

use crate::stop;
use crate::unfinished::Unfinished;

/// Why nothing may be written to `path`; `own` are the files that are read.
pub fn refusal(path: &Path, own: &[PathBuf], no_clobber: bool) -> Option<Error> {
    if !folder(path).is_dir() {
        return Some(Error::new(ErrorKind::Io, "no such folder").with_path(folder(path)));
    }
    path.symlink_metadata().ok()?;
    let refuse = |kind, reason: &str| Some(Error::new(kind, reason).with_path(path));
    // A stream of a process may be a regular file, and its link is there for all programs.
    if std::fs::read_link(path).is_ok_and(|target| target.starts_with("/proc")) {
        return refuse(ErrorKind::UnsafePath, "a link to something that is not a regular file");
    }
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        return refuse(ErrorKind::UnsafePath, "not a regular file");
    }
    if path.canonicalize().is_ok_and(|path| own.contains(&path)) {
        return refuse(
            ErrorKind::AlreadyExists,
            "this file belongs to the model or is read by this command: it is not replaced",
        );
    }
    if path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("onnx")) {
        return refuse(ErrorKind::AlreadyExists, "this is a model: it is not replaced");
    }
    let user = match model_that_needs(path) {
        Ok(user) => user,
        Err(error) => return Some(error),
    };
    if let Some(model) = user {
        let reason = format!("`{}` refers to this file: it is not replaced", model.display());
        return refuse(ErrorKind::AlreadyExists, &reason);
    }
    if no_clobber { refuse(ErrorKind::AlreadyExists, "exists already") } else { None }
}

/// A file that was written beside its target and is not yet renamed; dropping it removes it. It is not
/// open: there may be more of them than a process may have open files.
#[derive(Debug)]
pub struct Staged {
    staged: Unfinished,
    path: PathBuf,
}

impl Staged {
    /// Has `write` fill a file that will be `path`; with `sync` it is on the disk then.
    pub fn new(
        path: PathBuf,
        sync: bool,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<Self> {
        let fail = |e| Error::io(&path, e);
        let (file, staged) = Unfinished::new(folder(&path))?;
        let mut buffered = BufWriter::new(Stoppable(&file));
        write(&mut buffered).map_err(|e| e.with_path(&path))?;
        buffered.flush().map_err(fail)?;
        drop(buffered);
        if sync {
            file.sync_all().map_err(fail)?;
        }
        Ok(Self { staged, path })
    }

    /// Renames the file to its target.
    pub fn publish(self, no_clobber: bool) -> Result<()> {
        let Self { staged, path } = self;
        staged.publish(&path, no_clobber)
    }
}

/// A file whose writes fail once the command was told to stop.
pub struct Stoppable<'f>(pub &'f File);

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !stop::goes_on() {
            return Err(io::Error::other("stopped"));
        }
        self.0.write(bytes.get(..bytes.len().min(8 << 20)).unwrap_or_default())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Refuses a file where a folder is to be, or to be made.
#[cfg(feature = "machine")]
pub fn refuse_file(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(Error::new(ErrorKind::Io, "is a file, not a folder").with_path(path));
    }
    Ok(())
}

/// The directory that holds `path`.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
