//! The weights files that a model needs, and whether they are there. Only the first bytes of each
//! are read, which tell a download that failed; tensors are not.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnx_container::external_data::{ExternalData, is_external, is_handle, is_stripped};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Container, DataType, Error, ErrorKind, Result, failed_download, traversal};
use onnx_container_files::locations::plain;
use onnx_container_files::needed::{externals, paths};
use serde::Serialize;

use crate::args::is_url;
use crate::model::place::{self, Files, Opened};
use crate::model::reading::Reading;

/// A weights file, as tensors name it.
#[derive(Debug)]
pub struct NeededFile {
    /// As the first tensor writes it.
    pub location: String,
    /// As it is found from the current directory, or its URL.
    pub path: PathBuf,
    /// The number of tensors whose data are in it.
    pub tensors: usize,
    /// Where the last of them ends, in bytes.
    pub end: u64,
    /// Its length in bytes, `None` where it was not looked at, or why it cannot be used.
    pub len: Result<Option<u64>, Arc<Error>>,
}

impl NeededFile {
    /// The error of a file that is shorter than its tensors need.
    fn cut_off(&self) -> Option<Error> {
        let len = self.len.as_ref().ok()?.filter(|len| *len < self.end)?;
        let reason = format!("cut off: {len} bytes, its tensors need {}", self.end);
        Some(Error::new(ErrorKind::OutOfBounds, reason).with_path(&self.path))
    }

    /// Whether the file is there and can be used.
    pub fn state(&self) -> State {
        match &self.len {
            Ok(None) => State::Unknown,
            Ok(Some(len)) if *len < self.end => State::CutOff,
            Ok(Some(_)) => State::Present,
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
    /// It is in a store, which was not asked for it.
    Unknown,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Present, Self::CutOff, Self::Missing, Self::Wrong, Self::Refused, Self::Unknown];

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::CutOff => "cut off",
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// The weights files of a model, in the order of their first use.
pub struct Needed {
    /// Where they are.
    place: Files,
    /// Whether they are looked at.
    are_looked_at: bool,
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
/// replace. Nothing that a command writes replaces a model in a store.
pub fn files(path: &Path, reading: Reading) -> Result<Vec<PathBuf>> {
    if is_url(path) {
        return Ok(Vec::new());
    }
    paths(path, reading.into(), reading.paths)
}

/// The graph of the model at `path`, and the weights files that it refers to.
pub fn needed(path: &Path, reading: Reading) -> Result<(Container, Needed)> {
    let (container, place) = place::graph(path, reading)?;
    let needed = of(container.model(), place, true)?;
    Ok((container, needed))
}

/// As [`needed`], without looking at weights files that take a request each.
pub fn named(path: &Path, reading: Reading) -> Result<(Container, Needed)> {
    let (container, place) = place::graph(path, reading)?;
    let are_at_hand = place.are_at_hand();
    let needed = of(container.model(), place, are_at_hand)?;
    Ok((container, needed))
}

fn of(model: &ModelProto, place: Files, are_looked_at: bool) -> Result<Needed> {
    // Lists of very many files do not grow; memory that is not used is not taken.
    let most = traversal::iter(model).filter(|(_, tensor)| is_external(tensor)).count();
    let mut needed = Needed::none(place, are_looked_at);
    needed.files.reserve_exact(most);
    let mut numbers = HashMap::with_capacity(most);
    needed.errors = externals(model, |tensor, data| {
        let end = end(tensor, &data);
        needed.count(&mut numbers, data.location, end);
    })?;
    Ok(needed)
}

impl Needed {
    fn none(place: Files, are_looked_at: bool) -> Self {
        let (files, errors, unusable) = (Vec::new(), Vec::new(), Unusable::default());
        Self { place, are_looked_at, files, errors, unusable }
    }

    /// Opens one of the files, by the rules by which it was found, or the model for `None`.
    pub fn open(&self, file: Option<&NeededFile>) -> Result<Box<dyn Read + '_>> {
        match file {
            Some(file) => Ok(self.place.open(&file.location)?),
            None => self.place.open_model(),
        }
    }

    /// The length of the model file in bytes.
    pub fn model_len(&self) -> Result<u64> {
        self.place.model_len()
    }

    fn count(&mut self, numbers: &mut HashMap<String, usize>, location: String, end: u64) {
        let number = *numbers.entry(plain(&location)).or_insert(self.files.len());
        if let Some(file) = self.files.get_mut(number) {
            file.tensors += 1;
            file.end = file.end.max(end);
        } else {
            let path = self.place.path(&location);
            let len = match self.are_looked_at {
                true => usable_len(&self.place, &location, &path).map(Some),
                false => has_file(&location).map(|()| None),
            };
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

/// The length of the file at `location`, unless something else is there in its place.
fn usable_len(place: &Files, location: &str, path: &Path) -> Result<u64> {
    has_file(location)?;
    let Opened { len, head } = place.look(location)?;
    match failed_download(&head) {
        Some(what) => Err(Error::new(ErrorKind::NotDownloaded, what).with_path(path)),
        None => Ok(len),
    }
}

/// Refuses a location that is not one of a file.
fn has_file(location: &str) -> Result<()> {
    if is_handle(location) {
        let reason = format!("unresolved handle `{location}`: it names memory, not a file");
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    if is_stripped(location) {
        let reason = "the weights were stripped: `attach` puts them back";
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    Ok(())
}
