//! Writes a page: beside its target first, and over nothing that is no report.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result};
use onnx_container_files::targets::{folder, refusal};
use onnx_container_files::unfinished::Unfinished;

use crate::html::BEGINNING;

/// A report.
#[derive(Debug, Clone)]
pub struct Page {
    /// The page, as the file has it.
    pub html: String,
    /// The files of the models that it shows, which it does not replace.
    pub own: Vec<PathBuf>,
}

impl Page {
    /// Whether there is nothing at `path`, or a report; `own` are the files of the models.
    ///
    /// # Errors
    /// When a page may not be there in any case: [`ErrorKind::AlreadyExists`] for models, their
    /// weights and `own`, [`ErrorKind::UnsafePath`] for special files, [`ErrorKind::Io`] for a
    /// folder that is not there.
    pub fn is_free(path: &Path, own: &[PathBuf]) -> Result<bool> {
        match refusal(path, own, false) {
            Some(error) => Err(error),
            None => Ok(path.symlink_metadata().is_err() || is_report(path)?),
        }
    }

    /// Refuses a `path` that [`save`](Self::save) would refuse; `own` are the files of the models.
    ///
    /// # Errors
    /// Those of [`is_free`](Self::is_free); [`ErrorKind::AlreadyExists`] for a file that is no
    /// report.
    pub fn check_target(path: &Path, own: &[PathBuf], replace_any: bool) -> Result<()> {
        if Self::is_free(path, own)? || replace_any {
            return Ok(());
        }
        let reason = "is there and is not a report: it is not replaced";
        Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path))
    }

    /// Writes the page to `path`, whole or not at all. A report that is there is replaced; another
    /// file is replaced with `replace_any` alone. Models, weights of models, what the page shows,
    /// and special files are never replaced.
    ///
    /// # Errors
    /// Those of [`check_target`](Self::check_target) and of the system.
    pub fn save(&self, path: &Path, replace_any: bool) -> Result<()> {
        Self::check_target(path, &self.own, replace_any)?;
        let (mut file, unfinished) = Unfinished::new(folder(path))?;
        file.write_all(self.html.as_bytes()).map_err(|error| Error::io(path, error))?;
        drop(file);
        unfinished.publish(path, false)
    }
}

/// Whether the file at `path` is a report.
fn is_report(path: &Path) -> Result<bool> {
    let failed = |error| Error::io(path, error);
    let file = match File::open(path) {
        // A link that leads nowhere is replaced, and nothing is lost.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        file => file.map_err(failed)?,
    };
    let mut beginning = Vec::new();
    file.take(BEGINNING.len() as u64).read_to_end(&mut beginning).map_err(failed)?;
    Ok(beginning == BEGINNING.as_bytes())
}
