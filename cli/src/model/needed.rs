//! The weights files that a model needs, and whether they are there. Only the first bytes of each
//! are read, which tell a download that failed; tensors are not.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnx_container::external_data::{
    Directory, ExternalData, PathPolicy, is_external, is_handle, is_stripped,
};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{DataType, Error, ErrorKind, Result, failed_download, traversal};
use onnx_container_files::locations::plain;
use onnx_container_files::needed::{externals, paths};
use serde::Serialize;

use crate::model::reading::Reading;

/// A weights file, as tensors name it.
#[derive(Debug)]
pub struct NeededFile {
    /// As the first tensor writes it.
    pub location: String,
    /// As it is found from the current directory.
    pub path: PathBuf,
    /// The number of tensors whose data are in it.
    pub tensors: usize,
    /// Where the last of them ends, in bytes.
    pub end: u64,
    /// Its length in bytes, or why it cannot be used.
    pub len: Result<u64, Arc<Error>>,
}

impl NeededFile {
    /// The error of a file that is shorter than its tensors need.
    fn cut_off(&self) -> Option<Error> {
        let len = self.len.as_ref().ok().filter(|len| **len < self.end)?;
        let reason = format!("cut off: {len} bytes, its tensors need {}", self.end);
        Some(Error::new(ErrorKind::OutOfBounds, reason).with_path(&self.path))
    }

    /// Whether the file is there and can be used.
    pub fn state(&self) -> State {
        match &self.len {
            Ok(len) if *len < self.end => State::CutOff,
            Ok(_) => State::Present,
            Err(error) if error.kind() == ErrorKind::NotDownloaded => State::Wrong,
            Err(error) if error.kind() == ErrorKind::MissingFile => State::Missing,
            Err(_) => State::Refused,
        }
    }
}

/// Whether a weights file is there and can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is there, and as long as its tensors need it.
    Present,
    /// It is there and shorter than that.
    CutOff,
    Missing,
    /// It is there and is a Git LFS pointer or a web page: its download failed.
    Wrong,
    /// It is there, or may be, and is not opened: its path is unsafe, or it is not a regular file.
    Refused,
}

impl State {
    pub const ALL: [Self; 5] =
        [Self::Present, Self::CutOff, Self::Missing, Self::Wrong, Self::Refused];

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::CutOff => "cut off",
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Refused => "refused",
        }
    }
}

/// The weights files of a model, in the order of their first use.
#[derive(Debug)]
pub struct Needed {
    /// Where they are opened.
    directory: Directory,
    pub files: Vec<NeededFile>,
    /// Tensors that name no file, or not one file.
    pub errors: Vec<Error>,
    unusable: Unusable,
}

/// How many files that cannot be used have an error of their own. A model from a stranger may name
/// very many.
const MOST_ERRORS: usize = 10_000;

/// The files that cannot be used, and the errors of those that have none of their own, one of each
/// kind.
#[derive(Debug, Default)]
struct Unusable {
    count: usize,
    shared: Vec<Arc<Error>>,
}

impl Unusable {
    /// The `error` of another file.
    fn add(&mut self, error: Error) -> Arc<Error> {
        self.count += 1;
        if self.count <= MOST_ERRORS {
            return Arc::new(error);
        }
        if let Some(known) = self.shared.iter().find(|known| known.kind() == error.kind()) {
            return Arc::clone(known);
        }
        let reason = format!("one of more than {MOST_ERRORS} files that cannot be used");
        let error = Arc::new(Error::new(error.kind(), reason));
        self.shared.push(Arc::clone(&error));
        error
    }
}

impl Needed {
    /// Everything that keeps the model from being read.
    pub fn problems(&self) -> Option<Error> {
        let unusable = self.files.iter().filter_map(|file| file.len.as_ref().err());
        let cut_off = self.files.iter().filter_map(NeededFile::cut_off).take(MOST_ERRORS);
        let errors = self.errors.iter().chain(unusable.map(Arc::as_ref)).cloned();
        Error::join(errors.chain(cut_off))
    }
}

/// The files of the model at `path`, as absolute paths: what a command that reads it must not
/// replace.
pub fn files(path: &Path, reading: Reading) -> Result<Vec<PathBuf>> {
    paths(path, reading.into(), reading.paths)
}

/// The weights files that the model at `path` refers to.
pub fn needed(model: &ModelProto, path: &Path, paths: PathPolicy) -> Result<Needed> {
    let directory = Directory::of_model(path, paths)?;
    // Lists of very many files do not grow; memory that is not used is not taken.
    let most = traversal::iter(model).filter(|(_, tensor)| is_external(tensor)).count();
    let mut needed = Needed::none(directory);
    needed.files.reserve_exact(most);
    let mut numbers = HashMap::with_capacity(most);
    needed.errors = externals(model, |tensor, data| {
        let end = end(tensor, &data);
        needed.count(&mut numbers, data.location, end);
    })?;
    Ok(needed)
}

impl Needed {
    fn none(directory: Directory) -> Self {
        Self { directory, files: Vec::new(), errors: Vec::new(), unusable: Unusable::default() }
    }

    /// Opens one of the files, by the rules by which it was found.
    pub fn open(&self, file: &NeededFile) -> Result<File> {
        self.directory.open_file(&file.location)
    }

    fn count(&mut self, numbers: &mut HashMap<String, usize>, location: String, end: u64) {
        let number = *numbers.entry(plain(&location)).or_insert(self.files.len());
        if let Some(file) = self.files.get_mut(number) {
            file.tensors += 1;
            file.end = file.end.max(end);
        } else {
            let directory = &self.directory;
            let (path, opened) = (directory.join(&location), open(directory, &location));
            let len = opened.and_then(|opened| opened.usable_len(&path));
            let len = len.map_err(|error| self.unusable.add(error));
            self.files.push(NeededFile { location, path, tensors: 1, end, len });
        }
    }
}

/// Where the data of `tensor` end in its file; where no length can be told, where they begin.
fn end(tensor: &TensorProto, data: &ExternalData) -> u64 {
    let dtype = DataType::try_from(tensor.data_type.unwrap_or_default());
    let by_shape = || dtype.ok()?.byte_len(&tensor.dims).ok();
    let len = data.length.or_else(by_shape).unwrap_or_default();
    data.offset.saturating_add(len)
}

/// What the beginning and the length of a weights file say.
struct Opened {
    len: u64,
    /// What it is, when a failed download left it.
    failed_download: Option<&'static str>,
}

impl Opened {
    /// The length of the file at `path`, unless something else is there in its place.
    fn usable_len(self, path: &Path) -> Result<u64> {
        match self.failed_download {
            Some(what) => Err(Error::new(ErrorKind::NotDownloaded, what).with_path(path)),
            None => Ok(self.len),
        }
    }
}

/// The number of bytes that tell a failed download.
const HEAD: u64 = 256;

/// Opens the file at `location` and reads its first bytes.
fn open(directory: &Directory, location: &str) -> Result<Opened> {
    if is_handle(location) {
        let reason = format!("unresolved handle `{location}`: it names memory, not a file");
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    if is_stripped(location) {
        let reason = "the weights were stripped: `attach` puts them back";
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    let file: File = directory.open_file(location)?;
    let failed = |e| Error::io(directory.join(location), e);
    let len = file.metadata().map_err(failed)?.len();
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
    Ok(Opened { len, failed_download: failed_download(&head) })
}
