//! The files that a model needs, found without reading them.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use onnx_container::external_data::{Directory, ExternalData, is_external, is_handle};
use onnx_container::proto::ModelProto;
use onnx_container::{Error, ErrorKind, Result, traversal};

/// A weights file, as tensors name it.
#[derive(Debug)]
pub struct NeededFile {
    /// As the first tensor writes it.
    pub location: String,
    /// As it is found from the current directory.
    pub path: PathBuf,
    /// How many tensors lie in it.
    pub tensors: usize,
    /// Its length in bytes, or why it is not a file to use.
    pub len: Result<u64>,
}

impl NeededFile {
    /// What becomes of the file: `present`, `missing` or `refused`.
    pub fn state(&self) -> &'static str {
        match &self.len {
            Ok(_) => "present",
            Err(error) if error.kind() == ErrorKind::MissingFile => "missing",
            Err(_) => "refused",
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
            Ok(data) => needed.count(&directory, &mut numbers, data.location),
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
    ) {
        let number = *numbers.entry(plain(&location)).or_insert(self.files.len());
        if let Some(file) = self.files.get_mut(number) {
            file.tensors += 1;
        } else {
            let (path, len) = (directory.join(&location), len(directory, &location));
            self.files.push(NeededFile { location, path, tensors: 1, len });
        }
    }
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
fn plain(location: &str) -> String {
    let absolute = if location.starts_with('/') { "/" } else { "" };
    let parts = location.split('/').filter(|part| !part.is_empty() && *part != ".");
    format!("{absolute}{}", parts.collect::<Vec<_>>().join("/"))
}
