//! The weights files of one model: where the bytes at a location are, and what is known of each
//! file, found out once for all of its tensors.
//!
//! Locations that differ only in `.` components are one file. What a reader does with a file is
//! left to it: `load` maps or reads it, `check` looks at its beginning.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use foldhash::fast::RandomState;

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{
    Directory, check_location, is_handle, is_stripped, stripped, without_dots,
};
use crate::files::file_source::{FilesFrom, SharedSource};

/// Where the bytes of a weights file are.
pub(crate) enum WeightsFile<'a> {
    /// In memory: the caller gave them for the location.
    Given(&'a Buffer),
    /// In a file beneath this directory.
    Beneath(&'a Directory),
    /// In a file that this source opens.
    From(&'a SharedSource),
}

/// The weights files of a model, with a `T` for each that was opened.
pub(crate) struct ModelFiles<'a, T> {
    from: Option<&'a FilesFrom>,
    /// The bytes that the caller gave, by location without `.` components.
    given: &'a HashMap<String, Buffer>,
    /// By the key of the location: the index in `files`, or `None` for a file that could not be
    /// opened and was reported.
    numbers: HashMap<String, Option<usize>, RandomState>,
    files: Vec<T>,
    /// The location of the last tensor, which is often that of the next one.
    last: Option<(String, Option<usize>)>,
}

impl<'a, T> ModelFiles<'a, T> {
    /// Those of a folder or a source, or `given` by their locations. None is opened.
    pub(crate) fn new(from: Option<&'a FilesFrom>, given: &'a HashMap<String, Buffer>) -> Self {
        let (numbers, files) = (HashMap::default(), Vec::new());
        Self { from, given, numbers, files, last: None }
    }

    /// The path of the file at `location`, for messages.
    pub(crate) fn path(&self, location: &str) -> PathBuf {
        match self.from {
            Some(FilesFrom::Folder(directory)) => directory.join(location),
            Some(FilesFrom::Source(_)) | None => location.into(),
        }
    }

    /// Where the bytes at `location` are.
    ///
    /// # Errors
    /// [`ErrorKind::MissingHandle`] and [`ErrorKind::MissingFile`] when they are nowhere.
    pub(crate) fn find(&self, location: &str) -> Result<WeightsFile<'a>> {
        if let Some(bytes) = self.given.get(&without_dots(location)) {
            return Ok(WeightsFile::Given(bytes));
        }
        if is_handle(location) {
            let reason = format!("unresolved handle `{location}`: it names memory, not a file");
            return Err(Error::new(ErrorKind::MissingHandle, reason));
        }
        if is_stripped(location) {
            return Err(stripped());
        }
        match self.from {
            Some(FilesFrom::Folder(directory)) => Ok(WeightsFile::Beneath(directory)),
            Some(FilesFrom::Source(source)) => Ok(WeightsFile::From(source)),
            None => {
                let reason = "no directory and no bytes were given for this weights file";
                Err(Error::new(ErrorKind::MissingFile, reason).with_path(location))
            }
        }
    }

    /// The number of the file at `location`, which `open` opens for the first tensor that names
    /// it; `None` when it could not be opened, which was reported before.
    ///
    /// # Errors
    /// [`ErrorKind::UnsafePath`] for a location that is refused, also where the file that it leads
    /// to is open already; those of [`find`](Self::find) and of `open`. Each once for a file.
    pub(crate) fn number(
        &mut self,
        location: &str,
        open: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<Option<usize>> {
        if let Some((last, number)) = &self.last
            && last == location
        {
            return Ok(*number);
        }
        let refusal = if is_handle(location) { Ok(()) } else { check_location(location) };
        // No location without dots begins with a slash.
        let key = match &refusal {
            Ok(()) => without_dots(location),
            Err(_) => format!("/{location}"),
        };
        if let Some(number) = self.numbers.get(&key) {
            self.last = Some((location.to_owned(), *number));
            return Ok(*number);
        }
        // Entered before the file is opened, so that a missing file is reported once and not for
        // each tensor.
        self.last = Some((location.to_owned(), None));
        self.numbers.insert(key.clone(), None);
        refusal.map_err(|error| error.with_path(self.path(location)))?;
        let file = open(self)?;
        let number = Some(self.files.len());
        self.files.push(file);
        self.last = Some((location.to_owned(), number));
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// What is known of the file with this number.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a number that [`number`](Self::number) did not give.
    pub(crate) fn get_mut(&mut self, number: usize) -> Result<&mut T> {
        let unknown = || Error::internal(format!("no weights file has the number {number}"));
        self.files.get_mut(number).ok_or_else(unknown)
    }

    /// Whether a tensor named the file at `location`, which has no `.` components.
    pub(crate) fn has(&self, location: &str) -> bool {
        self.numbers.contains_key(location)
    }

    /// Takes out what is known of each file.
    pub(crate) fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.files)
    }
}

/// The tensors whose data end beyond their file, which is an error of the file, told once.
#[derive(Default)]
pub(crate) struct CutOff {
    /// The first of them, and its range.
    first: Option<(String, Range<u64>)>,
    /// The file length that all of them need.
    needed: u64,
    count: usize,
}

impl CutOff {
    /// Adds a tensor whose data are the bytes `range`.
    pub(crate) fn add(&mut self, range: &Range<u64>, tensor: impl FnOnce() -> String) {
        self.first.get_or_insert_with(|| (tensor(), range.clone()));
        self.needed = self.needed.max(range.end);
        self.count += 1;
    }

    /// The error of the file at `path`, which has `len` bytes, where there are such tensors. A file
    /// that begins like a known `format` may be the wrong file.
    pub(crate) fn error(
        self,
        path: impl Into<PathBuf>,
        format: Option<&str>,
        len: u64,
    ) -> Option<Error> {
        let Self { first, needed, count } = self;
        let (tensor, range) = first?;
        let what = format.map_or(String::new(), |format| format!("{format}, not raw data, or "));
        let mut reason = format!(
            "{what}cut off: the file has {len} bytes, {needed} are needed; the data of this tensor \
             are bytes {} to {}",
            range.start, range.end
        );
        if count > 1 {
            reason += &format!(", and those of {} more end beyond the file", count - 1);
        }
        let error = Error::new(ErrorKind::OutOfBounds, reason).with_path(path);
        Some(error.with_offset(range.start).with_tensor(tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_says_of_how_many_tensors() {
        assert!(CutOff::default().error("w", None, 4).is_none());
        for (count, more) in [(1, false), (2, true)] {
            let mut cut_off = CutOff::default();
            (0..count).for_each(|i| cut_off.add(&(0..8), || format!("t{i}")));
            let error = cut_off.error("w", None, 4).unwrap();
            assert_eq!(error.reason().contains("those of 1 more end beyond the file"), more);
            assert_eq!(error.tensor(), Some("t0"));
        }
    }

    #[test]
    fn a_file_is_opened_once_and_a_fault_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w"), "w").unwrap();
        let from = FilesFrom::Folder(Directory::open(folder.path()).unwrap());
        let given = HashMap::from([("#h".to_owned(), Buffer::from(&b"h"[..]))]);
        let mut files = ModelFiles::new(Some(&from), &given);
        let mut find = |location: &str| {
            files.number(location, |files| match files.find(location)? {
                WeightsFile::Given(bytes) => Ok(bytes.to_vec()),
                WeightsFile::Beneath(directory) => {
                    directory.open_file(location).map(|_| location.as_bytes().to_vec())
                }
                WeightsFile::From(_) => panic!("there is no source"),
            })
        };
        let on_windows = usize::from(cfg!(windows));
        let cases = [
            ("./w", Ok(Some(0))),
            ("w", Ok(Some(0))),
            // A refused location is no other name of a file that is open.
            ("w/", Err(ErrorKind::UnsafePath)),
            ("w/", Ok(None)),
            ("/w", Err(ErrorKind::UnsafePath)),
            ("C:w", Err(ErrorKind::UnsafePath)),
            // On Windows a stream of the file `C`.
            ("./C:w", Err([ErrorKind::MissingFile, ErrorKind::UnsafePath][on_windows])),
            ("#h", Ok(Some(1))),
            ("#i", Err(ErrorKind::MissingHandle)),
            ("none", Err(ErrorKind::MissingFile)),
            ("./none", Ok(None)),
            ("w", Ok(Some(0))),
        ];
        for (location, expected) in cases {
            assert_eq!(find(location).map_err(|error| error.kind()), expected, "{location}");
        }
        assert!(files.has("w") && files.has("none") && !files.has("other"));
        assert_eq!(files.take(), [b"./w".to_vec(), b"h".to_vec()]);
    }
}
