//! Files that a command writes beside their targets and renames, until a signal stops it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result};
use onnx_container_files::targets::folder;
use onnx_container_files::unfinished::Unfinished;

use crate::terminal::stop;

/// A file that was written beside its target and is not yet renamed; dropping it removes it. It is
/// not open: there may be more of them than a process may have open files.
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
pub fn refuse_file(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(Error::new(ErrorKind::Io, "is a file, not a folder").with_path(path));
    }
    Ok(())
}
