//! The entry of `config.json` by which transformers.js finds the weights files of a model:
//! `"transformers.js_config": {"use_external_data_format": {"model.onnx": 3}}`.

use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind};
use onnx_container_files::targets::refusal;
use serde_json::{Map, Value};

use crate::files::staged::Staged;

/// A `config.json`, to which an entry is added. Other entries stay; keys are sorted, as
/// transformers writes them.
pub struct TransformersConfig {
    path: PathBuf,
    config: Map<String, Value>,
}

const OF_JS: &str = "transformers.js_config";
const FORMAT: &str = "use_external_data_format";

impl TransformersConfig {
    /// Reads the file at `path`, which may not be there yet.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for what is no JSON object, [`ErrorKind::InvalidArgument`] where other
    /// values are in the way; those of files that must not be replaced.
    pub fn read(path: &Path) -> Result<Self, Error> {
        if let Some(error) = refusal(path, &[], false) {
            return Err(error);
        }
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => b"{}".to_vec(),
            Err(error) => return Err(Error::io(path, error)),
        };
        let invalid = |reason: &str| Error::new(ErrorKind::Decode, reason).with_path(path);
        let parsed = serde_json::from_slice(&text);
        let Ok(Value::Object(config)) = parsed else { return Err(invalid("not a JSON object")) };
        let mut config = Self { path: path.to_path_buf(), config };
        config.entries()?;
        Ok(config)
    }

    /// The numbers of weights files by the names of models.
    fn entries(&mut self) -> Result<&mut Map<String, Value>, Error> {
        let mut entries = &mut self.config;
        for key in [OF_JS, FORMAT] {
            let value = entries.entry(key).or_insert_with(|| Map::new().into());
            entries = value.as_object_mut().ok_or_else(|| {
                let reason = format!("`{key}` has a value of another kind: write an object there");
                Error::new(ErrorKind::InvalidArgument, reason).with_path(&self.path)
            })?;
        }
        Ok(entries)
    }

    /// Writes that the model file `name` has `count` weights files.
    pub fn write(mut self, name: &str, count: usize) -> Result<(), Error> {
        self.entries()?.insert(name.to_owned(), count.into());
        let internal = |_| Error::internal("a configuration that is no JSON");
        let text = serde_json::to_string_pretty(&self.config).map_err(internal)?;
        let fail = |error| Error::io(&self.path, error);
        let staged = Staged::new(self.path.clone(), true, |file: &mut dyn Write| {
            writeln!(file, "{text}").map_err(fail)
        })?;
        staged.publish(false)
    }
}
