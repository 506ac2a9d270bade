//! The files that a model needs, found without reading them.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use onnx_container::external_data::{Directory, ExternalData, is_external, is_handle};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{DataType, Error, ErrorKind, Result, traversal};
use serde::Serialize;

/// A weights file, as tensors name it.
#[derive(Debug)]
pub struct NeededFile {
    /// As the first tensor writes it.
    pub location: String,
    /// As it is found from the current directory.
    pub path: PathBuf,
    /// How many tensors lie in it.
    pub tensors: usize,
    /// Where the last of them ends, in bytes.
    pub end: u64,
    /// Its length in bytes, or why it is not a file to use.
    pub len: Result<u64>,
}

impl NeededFile {
    /// What becomes of the file.
    pub fn state(&self) -> State {
        match &self.len {
            Ok(len) if *len < self.end => State::CutOff,
            Ok(_) => State::Present,
            Err(error) if error.kind() == ErrorKind::MissingFile => State::Missing,
            Err(_) => State::Refused,
        }
    }
}

/// What becomes of a weights file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is there, and as long as its tensors need it.
    Present,
    /// It is there and shorter than that.
    CutOff,
    Missing,
    /// It is there, or may be, and is not opened: its path is unsafe, or it is not a regular file.
    Refused,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Present, Self::CutOff, Self::Missing, Self::Refused];

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::CutOff => "cut off",
            Self::Missing => "missing",
            Self::Refused => "refused",
        }
    }
}

/// The weights files of a model, in the order of their first use.
#[derive(Debug, Default)]
pub struct Needed {
    pub files: Vec<NeededFile>,
    /// Tensors that name no file, or not one file.
    pub errors: Vec<Error>,
}

impl Needed {
    /// Everything that keeps the model from being read.
    pub fn problems(&self) -> Option<Error> {
        let files = self.files.iter().filter_map(|file| file.len.as_ref().err());
        Error::join(self.errors.iter().chain(files).cloned().collect())
    }
}

/// The weights files that the model at `path` refers to.
pub fn needed(model: &ModelProto, path: &Path) -> Result<Needed> {
    let directory = Directory::open(path.parent().unwrap_or(Path::new("")))?;
    let (mut needed, mut numbers) = (Needed::default(), HashMap::new());
    traversal::tensors(model, |place, tensor| {
        if !is_external(tensor) {
            return Ok(());
        }
        match ExternalData::parse(tensor) {
            Ok(data) => {
                let end = end(tensor, &data);
                needed.count(&directory, &mut numbers, data.location, end);
            }
            Err(error) => needed.errors.push(error.with_tensor(place.qualified_name(tensor))),
        }
        Ok(())
    })?;
    Ok(needed)
}

impl Needed {
    fn count(
        &mut self,
        directory: &Directory,
        numbers: &mut HashMap<String, usize>,
        location: String,
        end: u64,
    ) {
        let number = *numbers.entry(plain(&location)).or_insert(self.files.len());
        if let Some(file) = self.files.get_mut(number) {
            file.tensors += 1;
            file.end = file.end.max(end);
        } else {
            let (path, len) = (directory.join(&location), len(directory, &location));
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

/// The length of the file at `location`, which is opened but not read.
fn len(directory: &Directory, location: &str) -> Result<u64> {
    if is_handle(location) {
        let reason = format!("unresolved handle `{location}`: it names memory, not a file");
        return Err(Error::new(ErrorKind::MissingHandle, reason));
    }
    let file: File = directory.open_file(location)?;
    let meta = file.metadata().map_err(|e| Error::io(directory.join(location), e))?;
    Ok(meta.len())
}

/// `location` without its `.` and empty components, so that `./w` and `w` are one file.
pub fn plain(location: &str) -> String {
    let absolute = if location.starts_with('/') { "/" } else { "" };
    let parts = location.split('/').filter(|part| !part.is_empty() && *part != ".");
    format!("{absolute}{}", parts.collect::<Vec<_>>().join("/"))
}
