//! Paths of models, and of files that are written, on the command line; and URLs of models.
//!
//! A model must be a file, because its weights are beside it and are found by its folder. So `-` is
//! refused for models that are read or written, and so is a path to write that can only be a
//! folder and is not there. A page or a picture is written to a file too. A command that only reads
//! a model takes the URL of one in a store as well; where a file is needed, a URL is refused.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::terminal::shell::quoted;

/// Whether `path` is no path, but the URL of a model in a store.
pub fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(is_url_text)
}

#[cfg(feature = "stores")]
fn is_url_text(text: &str) -> bool {
    onnx_container_store::is_url(text)
}

/// The same schemes, in a build that reaches none of them.
#[cfg(not(feature = "stores"))]
fn is_url_text(text: &str) -> bool {
    const SCHEMES: [&str; 10] =
        ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https", "hf"];
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
}

/// Takes the path of a model that is read, or its URL.
pub fn model_to_read() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: named, url: readable }
}

/// Takes the path of a model that is read, for a command that works with its files.
pub fn model_on_disk() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: named, url: works_on_files }
}

/// Takes the path of a model that is written.
pub fn model_to_write() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: |path| named(path).and_then(no_folder), url: not_written }
}

/// Takes the path of a model that is written, or of a folder that is there.
pub fn model_or_folder_to_write() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: to_write_or_into, url: not_written }
}

/// Takes what [`model_or_folder_to_write`] takes, or the URL of a model that is written.
pub fn model_folder_or_url_to_write() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: to_write_or_into, url: readable }
}

/// Takes any path, or a URL.
pub fn file_or_url() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: |path| Ok(path.into()), url: readable }
}

/// Takes the path of a file that is written and is no model.
pub fn file_to_write() -> impl TypedValueParser<Value = PathBuf> {
    let path = |path: OsString| match path.to_str() {
        Some("-") => Err("this is written to a file; for a file called `-` give ./-".to_owned()),
        Some("") => Err("the name is empty".to_owned()),
        _ => Ok(PathBuf::from(path)),
    };
    Place { path, url: only_files }
}

/// Takes any path, and no URL.
pub fn file() -> impl TypedValueParser<Value = PathBuf> {
    Place { path: |path| Ok(path.into()), url: only_files }
}

/// Takes the URL of a model or a folder in a store.
#[cfg(feature = "stores")]
pub fn url() -> impl TypedValueParser<Value = String> {
    let path = |_| Err("no URL of a store, such as s3://bucket/model.onnx".to_owned());
    Place { path, url: readable }.map(|url| url.to_string_lossy().into_owned())
}

/// Takes a path or a URL. A URL is not repeated in the error, because it may have secrets in it.
#[derive(Clone)]
struct Place {
    /// What is said of a path.
    path: fn(OsString) -> Result<PathBuf, String>,
    /// What is said of a URL.
    url: fn(&str) -> Result<(), String>,
}

impl TypedValueParser for Place {
    type Value = PathBuf;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<PathBuf, clap::Error> {
        let Some(url) = value.to_str().filter(|text| is_url_text(text)) else {
            return OsStringValueParser::new().try_map(self.path).parse_ref(command, arg, value);
        };
        match (self.url)(url) {
            Ok(()) => Ok(value.into()),
            Err(reason) => {
                let name = arg.map_or("URL".to_owned(), ToString::to_string);
                let scheme = url.split("://").next().unwrap_or_default();
                let reason = format!("invalid URL `{scheme}://...` for '{name}': {reason}\n");
                Err(clap::Error::raw(ErrorKind::ValueValidation, reason).with_cmd(command))
            }
        }
    }
}

#[cfg(feature = "stores")]
fn readable(url: &str) -> Result<(), String> {
    let parsed = onnx_container_store::StoreUrl::parse(url);
    parsed.map(|_| ()).map_err(|error| error.reason().to_owned())
}

#[cfg(not(feature = "stores"))]
fn readable(_: &str) -> Result<(), String> {
    Err("this command was built without stores".to_owned())
}

fn not_written(_: &str) -> Result<(), String> {
    Err("a file is written here; `publish IN URL` writes a model to a store".to_owned())
}

fn works_on_files(_: &str) -> Result<(), String> {
    Err("this command works on files; `pack URL OUT` copies a model from a store".to_owned())
}

fn only_files(_: &str) -> Result<(), String> {
    Err("this has to be a file".to_owned())
}

fn named(path: OsString) -> Result<PathBuf, String> {
    match path.to_str() {
        Some("-") => {
            Err("a model must be a file, because its weights are beside it; for a file called `-` give ./-".to_owned())
        }
        Some("") => Err("the name is empty".to_owned()),
        _ => Ok(PathBuf::from(path)),
    }
}

fn to_write_or_into(path: OsString) -> Result<PathBuf, String> {
    let path = named(path)?;
    if path.is_dir() { Ok(path) } else { no_folder(path) }
}

/// Refuses `folder/`, `folder/.` and `folder/..`, and a folder that is there.
fn no_folder(path: PathBuf) -> Result<PathBuf, String> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let last = bytes.rsplit(|byte| std::path::is_separator(char::from(*byte))).next();
    if matches!(last, Some(b"" | b"." | b"..")) || path.is_dir() {
        let name = path.join("model.onnx");
        let plain: PathBuf = path.components().collect();
        match std::fs::metadata(&plain) {
            Ok(there) if !there.is_dir() => return Err("this is a file, and no folder".to_owned()),
            Ok(_) => {}
            Err(_) => {
                let folder = quoted(&plain.to_string_lossy());
                return Err(format!("there is no such folder: `mkdir -p {folder}` makes it"));
            }
        }
        return Err(format!(
            "this is a folder: give the name of the model in it, such as {}",
            name.display()
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_standard_streams_are_no_models() {
        let write = |path: &str| named(path.into()).and_then(no_folder).is_ok();
        for path in ["", "-", "a/", "a/.", "a/..", ".", "..", "/"] {
            assert!(!write(path), "{path}");
        }
        for path in ["a", "./-", "a/b.onnx", ".hidden", "a/..b", "-a"] {
            assert!(write(path), "{path}");
        }
    }
}
