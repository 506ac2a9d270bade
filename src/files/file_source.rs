//! [`FileSource`] and [`WeightFile`]: the weights files of a model that is in no folder.
//!
//! A load asks a source for each weights file once, by its location, and reads ranges of it later,
//! when elements are needed. What a source says is not believed: a location is judged before it is
//! asked, reads stay within the length of the file, and a buffer has that length. [`SourceFile`]
//! holds every use to that. `folder_files` is the source for an ordinary folder.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{Directory, check_location, without_dots};

/// Opens the weights files of a model that is in no folder: in an object store, an archive, a
/// database, encrypted. [`LoadOptions::files_from`](crate::LoadOptions::files_from) takes one.
///
/// No weight is read before its elements are needed: only the first 512 bytes of each file, to tell
/// a file that is no weights file. Nothing here is asynchronous. Several threads may call the
/// methods at once.
///
/// ```
/// use std::collections::HashMap;
/// use std::path::PathBuf;
/// use std::sync::Arc;
///
/// use onnx_container::load::{FileSource, WeightFile};
/// use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result, SaveOptions};
///
/// /// Files in memory, by their locations.
/// struct InMemory(HashMap<String, Arc<Vec<u8>>>);
///
/// /// One of them.
/// struct OneFile(String, Arc<Vec<u8>>);
///
/// impl FileSource for InMemory {
///     fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
///         let found = self.0.get(location).cloned();
///         let bytes = found.ok_or_else(|| Error::new(ErrorKind::MissingFile, "no such file"))?;
///         Ok(Arc::new(OneFile(location.to_owned(), bytes)))
///     }
/// }
///
/// impl WeightFile for OneFile {
///     fn len(&self) -> u64 {
///         self.1.len() as u64
///     }
///
///     fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
///         let start = offset as usize;
///         let part = self.1.get(start..start + out.len());
///         let part = part.ok_or_else(|| Error::new(ErrorKind::OutOfBounds, "beyond the end"))?;
///         out.copy_from_slice(part);
///         Ok(())
///     }
///
///     fn describe(&self) -> PathBuf {
///         PathBuf::from(&self.0)
///     }
/// }
///
/// # use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// # let mut graph = GraphProto::new("g");
/// # graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// # let mut container = Container::new(ModelProto::new(graph));
/// # container.insert("#w", ndarray::array![1_u8, 2])?;
/// let parts = container.to_parts(SaveOptions::new())?;
/// let files = parts.files.into_iter().map(|(name, bytes)| (name, Arc::new(bytes.to_vec())));
/// let source = InMemory(files.collect());
///
/// let loaded = Container::load_bytes(parts.model, LoadOptions::new().files_from(source))?;
/// assert_eq!(loaded.tensor("w")?.as_slice::<u8>()?, [1, 2]);
/// # Ok::<(), Error>(())
/// ```
pub trait FileSource: Send + Sync {
    /// The file at `location`, a text of the model that
    /// [`check_location`](crate::external_data::check_location) accepts: relative, with `/` between
    /// components, and no `..` among them. Components that are `.` or empty are left out. A load
    /// opens each file once.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] where there is no such file, and whatever keeps it from being
    /// opened. An error without a path gets the location for one.
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>>;
}

impl<S: FileSource + ?Sized> FileSource for Arc<S> {
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        (**self).open(location)
    }
}

/// One file that a [`FileSource`] has opened. It says nothing of where the file is.
///
/// Its bytes do not change as long as it is in use. A file that can be replaced meanwhile notices
/// that, by a version or a checksum of its store, and fails with [`ErrorKind::Changed`].
pub trait WeightFile: Send + Sync {
    /// The length in bytes. Tensors that end beyond it are an error of the load.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills all of `out` with the bytes from `offset` (bytes) on, within [`len`](Self::len).
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read, also when there are fewer: an `io::Error` converts
    /// by `?`, [`Error::other`] makes an error of any other. `out` may then hold anything.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Fills several slices, each from its offset (bytes) on, as [`read_at`](Self::read_at) does
    /// for one. Called for a long tensor that is needed in one piece, in parts of
    /// [`preferred_read`](Self::preferred_read). Default: one after the other; a store reads them
    /// at once.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, out)| self.read_at(*offset, out))
    }

    /// How many bytes one request reads best. Default 1 MiB; less than 64 KiB counts as that. More
    /// than the default says that a request takes long, however little it reads: a save then makes
    /// several at once, ahead of the writer.
    fn preferred_read(&self) -> usize {
        1 << 20
    }

    /// All bytes of the file, where they are in memory already. Tensors are then slices of them.
    fn as_buffer(&self) -> Option<Buffer> {
        None
    }

    /// What errors call the file: a path, or an address such as `s3://bucket/model.onnx.data`.
    fn describe(&self) -> PathBuf;
}

/// A source that options share.
#[derive(Clone)]
pub(crate) struct SharedSource(Arc<dyn FileSource>);

impl SharedSource {
    pub(crate) fn new(source: impl FileSource + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// The file at `location`.
    ///
    /// # Errors
    /// [`ErrorKind::UnsafePath`] for a location that is refused, and those of
    /// [`FileSource::open`].
    pub(crate) fn open(&self, location: &str) -> Result<SourceFile> {
        let opened = check_location(location).and_then(|()| self.0.open(&without_dots(location)));
        opened.map(SourceFile::new).map_err(|error| error.with_path(location))
    }
}

impl fmt::Debug for SharedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileSource")
    }
}

/// Where the weights files of a model are opened.
#[derive(Debug)]
pub(crate) enum FilesFrom {
    Folder(Directory),
    Source(SharedSource),
}

/// How much of a file tells what it is.
const HEAD: usize = 512;

/// A file of a source. Reads are within its length, which is asked for once, and errors name the
/// file and the bytes.
#[derive(Clone)]
pub(crate) struct SourceFile {
    file: Arc<dyn WeightFile>,
    len: u64,
}

impl SourceFile {
    pub(crate) fn new(file: Arc<dyn WeightFile>) -> Self {
        let len = file.len();
        Self { file, len }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What errors call the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.file.describe()
    }

    /// How many bytes one read reads best.
    pub(crate) fn preferred_read(&self) -> usize {
        const LEAST: usize = 64 << 10;
        self.file.preferred_read().max(LEAST)
    }

    /// How many bytes a reader of the whole file reads at a time: what one read reads best, and no
    /// more than it would keep in memory.
    pub(crate) fn most_at_once(&self) -> usize {
        const MOST: usize = 64 << 20;
        self.preferred_read().min(MOST).min(usize::try_from(self.len).unwrap_or(MOST)).max(1)
    }

    /// A number that identifies the file as long as it is in use.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.file).addr()
    }

    /// All bytes, where they are in memory already.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] where they are not as many as the file has.
    pub(crate) fn buffer(&self) -> Result<Option<Buffer>> {
        let Some(bytes) = self.file.as_buffer() else { return Ok(None) };
        let (len, found) = (self.len, bytes.len());
        if u64::try_from(found).is_ok_and(|found| found == len) {
            return Ok(Some(bytes));
        }
        let reason = format!("its source says {len} bytes, and has {found} in memory");
        Err(Error::new(ErrorKind::OutOfBounds, reason).with_path(self.path()))
    }

    /// The first bytes, at most 512.
    pub(crate) fn head(&self) -> Result<Vec<u8>> {
        let len = usize::try_from(self.len).map_or(HEAD, |len| len.min(HEAD));
        let mut head = vec![0; len];
        if len > 0 {
            self.read_at(0, &mut head)?;
        }
        Ok(head)
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        self.named(offset, len, || self.file.read_at(offset, out))
    }

    /// Fills `out` with the bytes from `offset` on, in one call for all of its parts.
    pub(crate) fn read_whole(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let (len, part) = (out.len(), self.preferred_read());
        if len <= part {
            return self.read_at(offset, out);
        }
        let starts =
            (0_u64..).map(|number| offset.saturating_add(number.saturating_mul(part as u64)));
        let mut reads: Vec<_> = starts.zip(out.chunks_mut(part)).collect();
        self.named(offset, len, || self.file.read_many(&mut reads))
    }

    /// The result of `read`, which reads `len` bytes from `offset` on.
    fn named(&self, offset: u64, len: usize, read: impl FnOnce() -> Result<()>) -> Result<()> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let reason = format!("{len} bytes from byte {offset} on: the file has {}", self.len);
            return Err(Error::internal(reason).with_path(self.path()));
        };
        read().map_err(|error| match error.kind() {
            ErrorKind::Cancelled => error,
            _ => error
                .because(&format!("bytes {offset} to {end} cannot be read"))
                .with_range_in_reason(offset)
                .with_path(self.path()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A file of zeros that counts the calls of `read_many` and fails beyond a byte.
    struct Zeros {
        len: u64,
        readable: u64,
        held: Option<usize>,
    }

    impl WeightFile for Zeros {
        fn len(&self) -> u64 {
            self.len
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            if offset + out.len() as u64 > self.readable {
                return Err(Error::new(ErrorKind::Io, "the line was cut"));
            }
            out.fill(0);
            Ok(())
        }
        fn preferred_read(&self) -> usize {
            4
        }
        fn as_buffer(&self) -> Option<Buffer> {
            self.held.map(|len| vec![0; len].into())
        }
        fn describe(&self) -> PathBuf {
            "store://w".into()
        }
    }

    #[test]
    fn what_a_source_says_is_held_to_what_it_has() {
        let file = |held| SourceFile::new(Arc::new(Zeros { len: 10, readable: 8, held }));
        assert!(file(None).buffer().unwrap().is_none());
        assert_eq!(file(Some(10)).buffer().unwrap().unwrap().len(), 10);
        for held in [0, 9, 11] {
            let error = file(Some(held)).buffer().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
        }
        let file = file(None);
        // Offset, length, and what is said.
        let cases = [
            (0, 8, None),
            (8, 2, Some("`store://w`: bytes 8 to 10 cannot be read: the line was cut")),
            (0, 10, Some("`store://w`: bytes 0 to 10 cannot be read: the line was cut")),
            (10, 0, Some("`store://w`: bytes 10 to 10 cannot be read: the line was cut")),
            (9, 2, Some("internal error")),
            (u64::MAX, 2, Some("internal error")),
        ];
        for (offset, len, expected) in cases {
            for read in [SourceFile::read_at, SourceFile::read_whole] {
                let said = read(&file, offset, &mut vec![1; len]).map_err(|e| e.to_string());
                match expected {
                    None => said.unwrap(),
                    Some(text) => assert!(said.as_ref().unwrap_err().contains(text), "{said:?}"),
                }
            }
        }
        assert_eq!(file.head().unwrap_err().offset(), Some(0));
    }

    /// A file that counts the reads of each call of `read_many`.
    #[derive(Default)]
    struct Counts {
        preferred: usize,
        calls: Mutex<Vec<Vec<(u64, usize)>>>,
    }

    impl WeightFile for Counts {
        fn len(&self) -> u64 {
            1 << 20
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            out.fill(offset.to_le_bytes()[1]);
            Ok(())
        }
        fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
            let call = reads.iter().map(|(offset, out)| (*offset, out.len())).collect();
            self.calls.lock().unwrap().push(call);
            reads.iter_mut().try_for_each(|(offset, out)| self.read_at(*offset, out))
        }
        fn preferred_read(&self) -> usize {
            self.preferred
        }
        fn describe(&self) -> PathBuf {
            "w".into()
        }
    }

    #[test]
    fn a_long_range_is_read_by_one_call_in_parts() {
        const KIB: usize = 1 << 10;
        // What the file prefers, the length of the range, and the lengths of the parts.
        let cases: [(usize, usize, &[usize]); 6] = [
            (0, 0, &[]),
            (0, 64 * KIB, &[]),
            (1, 65 * KIB, &[64 * KIB, KIB]),
            (100 * KIB, 100 * KIB, &[]),
            (100 * KIB, 250 * KIB, &[100 * KIB, 100 * KIB, 50 * KIB]),
            (usize::MAX, 1000 * KIB, &[]),
        ];
        for (preferred, len, expected) in cases {
            let counts = Arc::new(Counts { preferred, ..Counts::default() });
            let file = SourceFile::new(counts.clone());
            let mut out = vec![1; len];
            file.read_whole(5 << 10, &mut out).unwrap();
            let calls = std::mem::take(&mut *counts.calls.lock().unwrap());
            assert_eq!(calls.len(), usize::from(!expected.is_empty()), "{preferred} {len}");
            let (mut at, mut found) = (5 * KIB, Vec::new());
            for (offset, len) in calls.into_iter().flatten() {
                assert_eq!(offset, at as u64, "{preferred} {len}");
                assert_eq!(out[at - 5 * KIB], at.to_le_bytes()[1]);
                (at, _) = (at + len, found.push(len));
            }
            assert_eq!(found, expected, "{preferred} {len}");
        }
    }
}
