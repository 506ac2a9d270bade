//! Locations as texts: which of them may name a file beneath the model's directory, and when two
//! name the same.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::windows_names;

/// Refuses a `location` that could name anything but a file beneath the model's directory.
///
/// Each component is checked, so `w..bin` passes and `a/../w.bin` does not. A drive letter is
/// refused on Linux too, since the model may be copied to Windows. What Windows takes for something
/// else than a file of this name is refused on Windows alone: the devices (`NUL`, `con.bin`), the
/// streams of a file (`a:b`), and a dot or a blank at the end, which it drops.
///
/// ```
/// use onnx_container::external_data::check_location;
///
/// assert!(check_location("weights/w..bin").is_ok());
/// for location in ["../w.bin", "/etc/passwd", "C:\\w.bin", "a/", "w\0.bin"] {
///     assert!(check_location(location).is_err());
/// }
/// ```
///
/// # Errors
/// [`ErrorKind::UnsafePath`] with the reason.
pub fn check_location(location: &str) -> Result<()> {
    let bytes = location.as_bytes();
    let drive = bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.get(1) == Some(&b':');
    let reason = if location.is_empty() {
        "location is empty"
    } else if location.contains('\0') {
        "location contains a NUL byte"
    } else if location.starts_with("*/_ORT_") {
        "location is an in-memory tag of onnxruntime, which a file must not contain"
    } else if location.starts_with(['/', '\\']) || drive {
        "location is an absolute path"
    } else if location.split(['/', '\\']).any(|component| component == "..") {
        "location contains a `..` component"
    } else if location.ends_with('/') || Path::new(location).file_name().is_none() {
        "location names a directory"
    } else {
        return match windows_meaning(location) {
            Some(meaning) => {
                let reason = format!("Windows takes the location for {meaning}: {location:?}");
                Err(Error::new(ErrorKind::UnsafePath, reason))
            }
            None => Ok(()),
        };
    };
    Err(Error::new(ErrorKind::UnsafePath, format!("{reason}: {location:?}")))
}

/// On Windows, what it takes `location` for, if that is no file of this name.
pub(crate) fn windows_meaning(location: &str) -> Option<&'static str> {
    if cfg!(windows) { windows_names::meaning(location) } else { None }
}

/// The location of tensors whose elements [`Container::strip`](crate::Container::strip) took away.
/// No file of this name is opened: each tensor has a range of its own there, and tied tensors have
/// one.
pub const STRIPPED: &str = "weights-were-stripped";

/// Whether `location` is that of stripped tensors.
pub fn is_stripped(location: &str) -> bool {
    without_dots(location) == STRIPPED
}

/// The error of a tensor whose elements were taken away.
pub(crate) fn stripped() -> Error {
    let reason = "the weights of this model were stripped: attach the model that has them \
                  (`attach MODEL WEIGHTS OUT`)";
    Error::new(ErrorKind::MissingHandle, reason)
}

/// `location` without its `.` and empty components, so that `./w` and `w` are recognized as the
/// same file.
pub(crate) fn without_dots(location: &str) -> String {
    let parts = location.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

/// Refuses a path that no file can have: what the system says of it names something else.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a path with a NUL byte.
pub(crate) fn refuse_nul(path: &Path) -> Result<()> {
    if !path.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    let reason = "the path has a NUL byte, which no file name has";
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path))
}

/// The directory that holds the file `path`.
pub(crate) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_judged_by_component() {
        for good in ["w.bin", "sub/w.bin", "./w.bin", "w..bin", "..w", "sub\\w.bin", "ä/ü"] {
            assert!(check_location(good).is_ok(), "{good}");
        }
        for elsewhere in ["...", "nul", "sub/con.bin", "w.bin:s", "w.", "w "] {
            assert_eq!(check_location(elsewhere).is_ok(), cfg!(not(windows)), "{elsewhere}");
        }
        let bad = [
            "",
            "..",
            "../w",
            "a/../w",
            "a/..",
            "/etc/hostname",
            "//w",
            "\\w",
            "\\\\?\\w",
            "C:\\w",
            "c:w",
            "w\0x",
            "w/",
            ".",
            "./",
            "..\\w",
            "a\\..\\w",
            "*/_ORT_MEM_ADDR_/*",
            "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*",
        ];
        for bad in bad {
            assert_eq!(check_location(bad).unwrap_err().kind(), ErrorKind::UnsafePath, "{bad}");
        }
    }
}
