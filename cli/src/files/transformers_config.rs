//! The entry of `config.json` by which transformers.js finds the weights files of a model:
//! `"transformers.js_config": {"use_external_data_format": {"model.onnx": 3}}`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind};
use onnx_container_files::targets::{folder, refusal};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::files::staged::Staged;

/// A JSON object whose values keep their text: a number may have more digits than a float.
type Object = BTreeMap<String, Box<RawValue>>;

/// A value of the object that is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Kept(Box<RawValue>),
    Object(BTreeMap<String, Entry>),
}

/// A `config.json`, to which an entry is added. Other entries stay; keys are sorted, as
/// transformers writes them.
pub struct TransformersConfig {
    path: PathBuf,
    config: Object,
    of_js: Object,
    format: Object,
}

const OF_JS: &str = "transformers.js_config";
const FORMAT: &str = "use_external_data_format";

impl TransformersConfig {
    /// Reads the file at `path`, which may not be there yet, for the entry of the model `output`.
    /// `own` are the files that the command reads.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for what is no JSON object, [`ErrorKind::InvalidArgument`] where other
    /// values are in the way; those of files that must not be replaced.
    pub fn read(path: &Path, output: &Path, own: &[PathBuf]) -> Result<Self, Error> {
        check_target(path, output, own)?;
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => b"{}".to_vec(),
            Err(error) => return Err(Error::io(path, error)),
        };
        let invalid = |reason: &str| Error::new(ErrorKind::Decode, reason).with_path(path);
        let config: Object =
            serde_json::from_slice(&text).map_err(|_| invalid("not a JSON object"))?;
        let of_js = object_in(&config, OF_JS).map_err(|error| error.with_path(path))?;
        let format = object_in(&of_js, FORMAT).map_err(|error| error.with_path(path))?;
        Ok(Self { path: path.to_path_buf(), config, of_js, format })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes that the model file `name` has `count` weights files, and looks again at what would
    /// be replaced: `own` are the files of the model.
    pub fn write(mut self, name: &str, count: usize, own: &[PathBuf]) -> Result<(), Error> {
        if let Some(error) = refusal(&self.path, own, false) {
            return Err(error);
        }
        self.format.insert(name.to_owned(), to_raw_value(&count).map_err(internal)?);
        let mut of_js = entries(self.of_js);
        of_js.insert(FORMAT.to_owned(), Entry::Object(entries(self.format)));
        let mut config = entries(self.config);
        config.insert(OF_JS.to_owned(), Entry::Object(of_js));
        let text = serde_json::to_string_pretty(&config).map_err(internal)?;
        let fail = |error| Error::io(&self.path, error);
        let staged = Staged::new(self.path.clone(), true, |file: &mut dyn Write| {
            writeln!(file, "{text}").map_err(fail)
        })?;
        staged.publish(false)
    }
}

/// Refuses a file that has to be kept, that `output` or its weights will be, or that is a link:
/// its file would stay without the entry.
fn check_target(path: &Path, output: &Path, own: &[PathBuf]) -> Result<(), Error> {
    let refuse = |kind, reason: &str| Err(Error::new(kind, reason).with_path(path));
    if is_of_output(path, output) {
        let reason = "is a file of the model that is written: --config is for its config.json";
        return refuse(ErrorKind::InvalidArgument, reason);
    }
    if path.is_symlink() {
        let reason = "is a link, which would be replaced: give the file that it leads to, or a \
                      copy of it";
        return refuse(ErrorKind::UnsafePath, reason);
    }
    refusal(path, own, false).map_or(Ok(()), Err)
}

/// Whether `path` has the name of the model `output`, or a name that its weights may have, in its
/// folder.
fn is_of_output(path: &Path, output: &Path) -> bool {
    let is_there = |(own, other): (PathBuf, PathBuf)| own == other;
    let folders = folder(path).canonicalize().ok().zip(folder(output).canonicalize().ok());
    let names = path.file_name().zip(output.file_name());
    let is_named = names.is_some_and(|(own, output)| {
        let rest = own.as_encoded_bytes().strip_prefix(output.as_encoded_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_data"))
    });
    is_named && folders.is_some_and(is_there)
}

/// The object that is the value of `key`, an empty one where it is not there.
fn object_in(object: &Object, key: &str) -> Result<Object, Error> {
    let Some(value) = object.get(key) else { return Ok(Object::new()) };
    serde_json::from_str(value.get()).map_err(|_| {
        let reason = format!("`{key}` has a value of another kind: write an object there");
        Error::new(ErrorKind::InvalidArgument, reason)
    })
}

fn entries(object: Object) -> BTreeMap<String, Entry> {
    object.into_iter().map(|(key, value)| (key, Entry::Kept(value))).collect()
}

fn internal(_: serde_json::Error) -> Error {
    Error::internal("a configuration that is no JSON")
}
