//! Weights files that are read for their digests, of which few are open at a time: a model may have
//! more of them than a process may have open.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::files::external_data::Directory;

/// How many files are open at a time, besides those that are being read.
const FEW: usize = 8;

/// The files of one directory.
pub(crate) struct Opened {
    directory: Directory,
    /// Those that were read last, by their locations.
    recent: Mutex<VecDeque<(String, Arc<File>)>>,
}

impl Opened {
    /// Those of `directory`. None is opened.
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, recent: Mutex::default() }
    }

    /// Their directory.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The file at `location`, opened again where others were read since.
    ///
    /// # Errors
    /// Those of [`Directory::open_file`].
    pub(crate) fn file(&self, location: &str) -> Result<Arc<File>> {
        if let Some(file) = self.find(location) {
            return Ok(file);
        }
        let file = Arc::new(self.directory.open_file(location)?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((location.to_owned(), Arc::clone(&file)));
        // Closed after the lock is free, unless somebody reads it.
        let closed = if recent.len() > FEW { recent.pop_front() } else { None };
        drop(recent);
        drop(closed);
        Ok(file)
    }

    fn find(&self, location: &str) -> Option<Arc<File>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().find(|(name, _)| name == location).map(|(_, file)| Arc::clone(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers;

    #[test]
    fn few_files_are_open_however_many_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let opened = Opened::new(Directory::open(folder.path()).unwrap());
        for name in names.iter().chain(names.iter().rev()) {
            let mut bytes = [0; 2];
            buffers::read_at(&opened.file(name).unwrap(), &mut bytes, 0).unwrap();
            assert_eq!(bytes, name.as_bytes());
            assert!(opened.recent.lock().unwrap().len() <= FEW);
        }
        assert!(Arc::ptr_eq(&opened.file("00").unwrap(), &opened.file("00").unwrap()));
        opened.file("none").unwrap_err();
    }
}
