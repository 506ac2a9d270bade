//! The SHA-256 of the files of a model, and how it is printed.

use std::path::Path;

use onnx_container::{Error, Result};
use onnx_container_files::sha256::{each, of_reader};

use crate::model::needed::{Needed, NeededFile};

/// The hexadecimal digits of the digest of each of `files`: weights files of `needed`, or the model
/// itself for `None`.
pub fn of_files(
    model: &Path,
    needed: &Needed,
    files: &[Option<&NeededFile>],
) -> Vec<Result<String>> {
    each(files, |file| {
        let path = file.map_or(model, |file| &file.path);
        of_reader(needed.open(*file)?).map_err(|error| Error::io(path, error))
    })
}

/// The line for a file that `sha256sum --check` reads.
pub fn line(digits: &str, path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_encoded_bytes();
    let escaped: Vec<u8> = name
        .iter()
        .flat_map(|byte| match byte {
            b'\\' => br"\\".as_slice(),
            b'\n' => br"\n",
            b'\r' => br"\r",
            byte => std::slice::from_ref(byte),
        })
        .copied()
        .collect();
    let mark = if escaped.len() == name.len() { "" } else { "\\" };
    [mark.as_bytes(), digits.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_sha256sum_does() {
        assert_eq!(line("00", Path::new("a b")), b"00  a b\n");
        assert_eq!(line("00", Path::new("a\\b\nc\rd")), b"\\00  a\\\\b\\nc\\rd\n");
    }
}
