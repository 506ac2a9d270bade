//! The metadata of a model: keys and values that readers ignore or know by agreement.
//!
//! The messages have them as a list, in which onnx.checker refuses a key that occurs twice. So a
//! key that is set has one entry afterwards. The digests that a save can store are such entries
//! too, and are left to `stored_digests`: they cannot be set by hand.

use std::borrow::Cow;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::stored_digests::{self, is_digest};
use crate::proto::{ModelProto, Str, StringStringEntryProto};
use crate::util::did_you_mean::did_you_mean;

impl Container {
    /// The keys and values of the model's metadata, in their order, without stored digests. Bytes
    /// that are not UTF-8 are replaced.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto};
    ///
    /// let mut container = Container::new(ModelProto::new(GraphProto::new("g")));
    /// container.set_metadata("author", "Ada")?;
    /// container.set_metadata("task", "speech")?;
    /// assert_eq!(container.remove_metadata("author")?, "Ada");
    /// let all: Vec<_> = container.metadata().collect();
    /// assert_eq!(all, [("task".into(), "speech".into())]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn metadata(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let entries = self.model().metadata_props.iter().filter(|entry| !is_digest(entry));
        entries.map(|entry| (text(entry.key.as_ref()), text(entry.value.as_ref())))
    }

    /// Sets the value of `key` in the model's metadata, and returns the one that it had. A new key
    /// becomes the last.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an empty key, and for the key of stored digests.
    pub fn set_metadata(&mut self, key: &str, value: &str) -> Result<Option<String>> {
        if key.is_empty() || key == stored_digests::KEY {
            let reason = match key {
                "" => "a key of metadata cannot be empty".to_owned(),
                _ => format!("the metadata `{key}` is a stored digest: a save can store it"),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let entries = &mut self.model_mut().metadata_props;
        let Some(place) = entries.iter().position(|entry| has_key(entry, key)) else {
            entries.push(StringStringEntryProto::new(key, value));
            return Ok(None);
        };
        let mut old = None;
        let mut number = 0;
        entries.retain_mut(|entry| {
            let (is_first, is_other) = (number == place, has_key(entry, key));
            number += 1;
            if is_first {
                old = Some(text(entry.value.as_ref()).into_owned());
                entry.value = Some(Str::from(value));
            }
            is_first || !is_other
        });
        Ok(old)
    }

    /// Removes `key` from the model's metadata, and returns its value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when there is no such key.
    pub fn remove_metadata(&mut self, key: &str) -> Result<String> {
        let found = self.metadata().find(|(known, _)| *known == key);
        let Some(value) = found.map(|(_, value)| value.into_owned()) else {
            return Err(unknown_key(self, key));
        };
        let model: &mut ModelProto = self.model_mut();
        model.metadata_props.retain(|entry| !has_key(entry, key));
        Ok(value)
    }
}

fn has_key(entry: &StringStringEntryProto, key: &str) -> bool {
    text(entry.key.as_ref()) == key
}

fn text(text: Option<&Str>) -> Cow<'_, str> {
    text.map_or(Cow::Borrowed(""), Str::to_string_lossy)
}

/// The error about a `key` that is not there, with those that may have been meant.
fn unknown_key(container: &Container, key: &str) -> Error {
    let keys: Vec<_> = container.metadata().map(|(key, _)| key).collect();
    let meant = did_you_mean(key, keys.iter().map(AsRef::as_ref));
    let hint = meant.map(|meant| format!("; {meant}")).unwrap_or_default();
    let reason = format!("the model has no metadata `{key}`{hint}");
    Error::new(ErrorKind::InvalidArgument, reason)
}
