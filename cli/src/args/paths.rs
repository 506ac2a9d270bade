//! Paths of models, and of files that are written, on the command line.
//!
//! A model must be a file, because its weights are beside it and are found by its folder. So `-` is
//! refused for models that are read or written, and so is a path to write that can only be a
//! folder and is not there. A page or a picture is written to a file too.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::terminal::shell::quoted;

/// Takes the path of a model that is read.
pub fn model_to_read() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(named)
}

/// Takes the path of a model that is written.
pub fn model_to_write() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|path| named(path).and_then(no_folder))
}

/// Takes the path of a model that is written, or of a folder that is there.
pub fn model_or_folder_to_write() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|path| {
        let path = named(path)?;
        if path.is_dir() { Ok(path) } else { no_folder(path) }
    })
}

/// Takes the path of a file that is written and is no model.
pub fn file_to_write() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|path| match path.to_str() {
        Some("-") => Err("this is written to a file; for a file called `-` give ./-"),
        Some("") => Err("the name is empty"),
        _ => Ok(PathBuf::from(path)),
    })
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
