//! Finds staging folders by their names: those of saves in progress and those that killed saves left.
//!
//! A staging folder is named after the model, the last file of a save, and contains the folders `new`
//! and `old`. A save in progress holds a lock on its staging folder; the lock ends with the process.
//! Whether the files in an abandoned folder are still needed is decided in `folder`.

use std::path::{Path, PathBuf};

use crate::external_data::directory_of;
use crate::save::lock::FolderLock;

/// The number of random characters that `tempfile` appends to a prefix.
const RANDOM: usize = 6;
/// The most characters of a model's name that the names of its staging folders contain.
const SHORT: usize = 48;

/// The prefix of the names of a model's staging folders. A long name is cut and a hash of it appended,
/// so that models whose names begin alike do not share folders.
pub(crate) fn staging_prefix(model_name: &str) -> String {
    let short: String = model_name.chars().take(SHORT).collect();
    if short.len() == model_name.len() {
        return format!(".{short}.saving-");
    }
    // FNV-1a: the same in every version of this crate.
    let hash = model_name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!(".{short}.{hash:016x}.saving-")
}

/// Whether `name` is the name of a staging folder of the model.
fn is_staging_name(name: &str, model_name: &str) -> bool {
    let random = name.strip_prefix(&staging_prefix(model_name));
    random.is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// The staging folders of the model, in use or not.
fn staging_folders(directory: &Path, model_name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.file_name().to_str().is_some_and(|name| is_staging_name(name, model_name))
    });
    let mut folders: Vec<_> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// A staging folder that no process uses; it is locked, so that nobody else takes it.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) path: PathBuf,
    _lock: FolderLock,
}

impl Abandoned {
    /// All abandoned folders of the model in `directory`; none where the file system cannot lock.
    pub(crate) fn all(directory: &Path, model_name: &str) -> Vec<Self> {
        let folders = staging_folders(directory, model_name).into_iter();
        let abandoned = folders.filter_map(|path| {
            let lock = FolderLock::if_free(&path)?;
            Some(Self { path, _lock: lock })
        });
        abandoned.collect()
    }

    /// Whether there are folders for files in it. A save makes them when it has the lock, so there are none yet in a
    /// folder that was made just now, and none any more in one that was removed while it was being locked.
    fn is_begun(&self) -> bool {
        ["old", "new"].iter().any(|part| self.path.join(part).is_dir())
    }

    /// The paths of the old and the new model in this folder; the files may be missing.
    pub(crate) fn models(&self, model_name: &str) -> [PathBuf; 2] {
        ["old", "new"].map(|part| self.path.join(part).join(model_name))
    }

    /// Whether the save was complete or had not begun to rename files. All files of the target are then
    /// in place, and nothing in this folder is needed.
    pub(crate) fn is_settled(&self, target: &Path, model_name: &str) -> bool {
        let [_, staged] = self.models(model_name);
        let replaced = self.names_in("old");
        staged.symlink_metadata().is_err()
            && (replaced.is_empty() || target.symlink_metadata().is_ok())
    }

    /// Whether the save had moved the old model away and not put the new one in its place.
    pub(crate) fn holds_the_model(&self, target: &Path, model_name: &str) -> bool {
        let [old, new] = self.models(model_name);
        target.symlink_metadata().is_err()
            && old.symlink_metadata().or_else(|_| new.symlink_metadata()).is_ok()
            && !self.names_in("old").is_empty()
    }

    /// The names of the files in this folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.names_in("old");
        names.extend(self.names_in("new"));
        names
    }

    fn names_in(&self, part: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path.join(part)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    pub(crate) fn remove(&self) -> std::io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }
}

/// The staging folders beside `model` that interrupted saves of it left, sorted. In each, `new` holds
/// files that were to be put in place and `old` those that were moved away. The next save of the model
/// removes the folders that nothing needs any more. Folders of saves in progress are not listed. Where
/// folders cannot be locked (Windows, some network file systems) the list is empty.
///
/// ```
/// let folder = tempfile::tempdir().unwrap();
/// let model = folder.path().join("m.onnx");
/// assert!(onnx_container::interrupted_saves(&model).is_empty());
/// ```
pub fn interrupted_saves(model: impl AsRef<Path>) -> Vec<PathBuf> {
    let model = model.as_ref();
    let Some(name) = model.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let left = Abandoned::all(&directory_of(model), name);
    left.into_iter().filter(Abandoned::is_begun).map(|left| left.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_knows_its_own_staging_folders() {
        let long = format!("{}.onnx", "n".repeat(60));
        let other = format!("{}.onnx", "n".repeat(61));
        for (name, model_name, own) in [
            (".m.onnx.saving-aB3xYz".to_owned(), "m.onnx", true),
            (".m.onnx.saving-aB3xYz-kept".to_owned(), "m.onnx", false),
            (".m.onnx.saving-".to_owned(), "m.onnx", false),
            (".m.onnx.saving-x.saving-aB3xYz".to_owned(), "m.onnx", false),
            (".m.onnx.saving-x.saving-aB3xYz".to_owned(), "m.onnx.saving-x", true),
            (".n.onnx.saving-aB3xYz".to_owned(), "m.onnx", false),
            (format!("{}aB3xYz", staging_prefix(&long)), long.as_str(), true),
            (format!("{}aB3xYz", staging_prefix(&long)), other.as_str(), false),
        ] {
            assert_eq!(is_staging_name(&name, model_name), own, "{name} of {model_name}");
        }
        assert!(staging_prefix(&"é".repeat(127)).len() + RANDOM <= 255);
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_was_made_just_now_is_no_interrupted_save() {
        let folder = tempfile::tempdir().unwrap();
        let (model, staging) =
            (folder.path().join("m.onnx"), folder.path().join(".m.onnx.saving-aB3xYz"));
        std::fs::create_dir(&staging).unwrap();
        assert!(interrupted_saves(&model).is_empty());
        std::fs::create_dir(staging.join("new")).unwrap();
        assert_eq!(interrupted_saves(&model), [staging]);
    }
}
