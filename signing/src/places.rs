//! Where the model is, its folder, and the files of its signatures.

use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result};
use onnx_container_files::targets::folder;

/// The signature on files, where no other name is given: that of the reference tool, in the folder
/// of the model.
const DEFAULT: &str = "model.sig";

/// What was signed, or is to be.
#[derive(Debug)]
pub struct Places {
    /// The folder of the model; a signature lists paths beneath it.
    pub folder: PathBuf,
    /// The file of the model in it; none where a folder is given.
    pub model: Option<String>,
    /// The signature on files.
    pub files: PathBuf,
    /// The signature on content: `model.digest.sig` beside `model.sig`.
    pub content: PathBuf,
}

impl Places {
    /// The places for `model`, a file or folder, with its signature at `signature`, or where it is
    /// by default.
    pub fn of(model: &Path, signature: Option<&Path>) -> Result<Self> {
        let is_folder = model.is_dir();
        let (folder, name) = if is_folder {
            (model.to_path_buf(), None)
        } else {
            (folder(model).to_path_buf(), Some(name(model)?))
        };
        let files = signature.map_or_else(|| beside(&folder), Path::to_path_buf);
        let content = with_digest(&files);
        Ok(Self { folder, model: name, files, content })
    }

    /// The signatures by their paths beneath the folder, where they are there.
    pub fn signatures_inside(&self) -> Vec<String> {
        let inside = [&self.files, &self.content].map(|path| inside(&self.folder, path));
        inside.into_iter().flatten().collect()
    }

    /// Whether the signature on files has the name of one on content.
    pub fn is_of_content(&self) -> bool {
        let name = self.files.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(".digest.sig"))
    }

    /// Whether the signature on files would be taken for that of a folder above, whose files it
    /// does not name.
    pub fn is_of_a_folder_above(&self) -> bool {
        let [of, root] = [folder(&self.files), &*self.folder].map(Path::canonicalize);
        self.files.file_name().is_some_and(|name| name == DEFAULT)
            && of.is_ok_and(|of| root.is_ok_and(|root| root != of && root.starts_with(of)))
    }

    /// What the folder is called, which says nothing about its files.
    pub fn folder_name(&self) -> String {
        let path = self.folder.canonicalize().unwrap_or_default();
        path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into())
    }
}

fn name(model: &Path) -> Result<String> {
    let name = model.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        let reason = "a name that is not UTF-8 cannot be signed";
        Error::new(ErrorKind::InvalidArgument, reason).with_path(model)
    })
}

/// The default signature in `folder`.
fn beside(folder: &Path) -> PathBuf {
    if folder == Path::new(".") { PathBuf::from(DEFAULT) } else { folder.join(DEFAULT) }
}

/// `model.digest.sig` for `model.sig`.
fn with_digest(signature: &Path) -> PathBuf {
    let name = signature.file_name().unwrap_or_default();
    let bytes = name.to_string_lossy();
    let stem = bytes.strip_suffix(".sig").unwrap_or(&bytes);
    signature.with_file_name(format!("{stem}.digest.sig"))
}

/// The path of `file` beneath `root`, if it is there.
fn inside(root: &Path, file: &Path) -> Option<String> {
    let path = folder(file).canonicalize().ok()?.join(file.file_name()?);
    let path = path.strip_prefix(root.canonicalize().ok()?).ok()?.to_str()?.to_owned();
    Some(path.replace(std::path::MAIN_SEPARATOR, "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_on_content_is_beside_the_other() {
        for (files, content) in [
            ("model.sig", "model.digest.sig"),
            ("a/b.onnx.sig", "a/b.onnx.digest.sig"),
            ("signature", "signature.digest.sig"),
            (".sig", ".digest.sig"),
        ] {
            assert_eq!(with_digest(Path::new(files)), Path::new(content), "{files}");
        }
    }
}
