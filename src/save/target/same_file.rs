//! Whether two paths lead to one file, are one entry of a folder, or are one folder.
//!
//! A path that leads nowhere is no file. Any other error is one: nobody knows then which file the
//! path leads to, and a file that is wrongly taken for another one may be removed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::external_data::directory_of;
use crate::save::target::skim::leads_nowhere;
use crate::util::file_id;
pub(crate) use crate::util::file_id::FileId;
use crate::util::names::fold_case;
use crate::util::retry::{is_link, retried};

/// What a call of the system found at `path`: nothing where the path leads nowhere.
pub(crate) fn there<T>(path: &Path, found: std::io::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if leads_nowhere(&error) => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// The identity of `path`, and of the file it leads to when it is a link.
pub(crate) fn file_ids(path: &Path) -> Result<Vec<FileId>> {
    let entry = there(path, file_id::of_entry(path))?;
    let file = match &entry {
        Some(_) if is_link(path) => there(path, file_id::at(path))?,
        _ => None,
    };
    Ok(entry.into_iter().chain(file).collect())
}

/// The identities of `paths` and of the files they lead to.
pub(crate) fn ids_of<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<HashSet<FileId>> {
    let mut ids = HashSet::new();
    for path in paths {
        ids.extend(file_ids(path)?);
    }
    Ok(ids)
}

/// Whether the file at `path`, or the one it leads to, is one of `files`.
pub(crate) fn is_any_of(path: &Path, files: &HashSet<FileId>) -> Result<bool> {
    Ok(!files.is_empty() && file_ids(path)?.iter().any(|id| files.contains(id)))
}

/// Whether `path` is the `model`, a link to it, or the same entry of the folder in another case.
/// What cannot be read is another file.
pub(crate) fn is_same(path: &Path, model: &Path) -> bool {
    if path.file_name() == model.file_name() {
        return true;
    }
    if is_link(path) {
        return retried(|| path.canonicalize()).is_ok_and(|target| target == *model);
    }
    let folded = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(fold_case);
    let is_alike = folded(path).is_some_and(|name| Some(name) == folded(model));
    is_alike && is_one_entry(path, model).unwrap_or(false)
}

/// `model` with the real path of its folder.
pub(crate) fn real_path(model: &Path) -> PathBuf {
    match (retried(|| directory_of(model).canonicalize()), model.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => model.to_path_buf(),
    }
}

/// As [`is_same`], for a `path` in any folder; `model` is a [real path](real_path). In another
/// folder than the model's, a link is the model where it leads there, whatever its name is.
pub(crate) fn is_at(path: &Path, model: &Path) -> bool {
    if is_one_folder(&directory_of(path), &directory_of(model)).unwrap_or(false) {
        return is_same(path, model);
    }
    is_link(path) && retried(|| path.canonicalize()).is_ok_and(|target| target == *model)
}

/// Whether two paths lead to one folder: it may be written in two ways where case does not count.
pub(crate) fn is_one_folder(a: &Path, b: &Path) -> Result<bool> {
    let first = file_ids(a)?.pop();
    Ok(first.is_some() && first == file_ids(b)?.pop())
}

/// Whether two paths of names that are equal without case are one entry of one folder. Links are
/// not followed. Where case counts, hard links to one file can have such names too: then the folder
/// has both.
pub(crate) fn is_one_entry(a: &Path, b: &Path) -> Result<bool> {
    let first = |path: &Path| file_ids(path).map(|ids| ids.into_iter().next());
    let id = first(a)?;
    if id.is_none() || id != first(b)? {
        return Ok(false);
    }
    Ok(a.file_name() == b.file_name() || !has_both(a, b)?)
}

/// Whether the folder of `a` has a name for each of `a` and `b`.
fn has_both(a: &Path, b: &Path) -> Result<bool> {
    let folder = directory_of(a);
    let fail = |error| Error::io(&folder, error);
    let mut count = 0;
    for entry in retried(|| std::fs::read_dir(&folder)).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        count += usize::from([a, b].iter().any(|path| path.file_name() == Some(&name)));
    }
    Ok(count > 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// As a file system that ignores case has them: Windows.
    #[cfg(windows)]
    #[test]
    fn names_that_differ_in_case_are_one_entry() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = ["m.onnx", "M.onnx", "other"].map(|name| folder.path().join(name));
        fs::write(&a, "m").unwrap();
        assert!(is_one_entry(&a, &b).unwrap() && is_same(&a, &b) && is_at(&a, &b));
        fs::hard_link(&a, &c).unwrap();
        assert!(!is_one_entry(&a, &c).unwrap() && !is_same(&a, &c));
    }

    #[cfg(unix)]
    #[test]
    fn hard_links_whose_names_differ_in_case_are_two_entries() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = ["m.onnx", "M.onnx", "other"].map(|name| folder.path().join(name));
        fs::write(&a, "m").unwrap();
        assert!(is_one_entry(&a, &a).unwrap() && !is_one_entry(&a, &b).unwrap());
        fs::hard_link(&a, &b).unwrap();
        assert!(!is_one_entry(&a, &b).unwrap() && !is_same(&a, &b) && !is_at(&a, &b));
        fs::hard_link(&a, &c).unwrap();
        assert!(!is_same(&a, &c));
    }

    /// A file where a folder should be leads nowhere; a folder that may not be searched does not.
    #[cfg(unix)]
    #[test]
    fn only_a_path_that_leads_nowhere_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        for nothing in ["none", "file/below", "loop/x", "a\0b"] {
            assert!(file_ids(&folder.path().join(nothing)).unwrap().is_empty(), "{nothing:?}");
        }
        assert_eq!(file_ids(&folder.path().join("loop")).unwrap().len(), 1);
        let refused = there::<()>(&file, Err(std::io::ErrorKind::PermissionDenied.into()));
        assert!(refused.is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_of_the_same_name_is_the_model_only_where_it_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("below")).unwrap();
        for name in ["below/m.onnx", "other"] {
            std::fs::write(at(name), "").unwrap();
        }
        for (link, is_model) in [("below/m.onnx", true), ("other", false), ("gone", false)] {
            std::os::unix::fs::symlink(link, at("m.onnx")).unwrap();
            assert_eq!(is_at(&at("m.onnx"), &at("below/m.onnx")), is_model, "{link}");
            std::fs::remove_file(at("m.onnx")).unwrap();
        }
        assert!(is_at(&at("below/m.onnx"), &at("below/m.onnx")));
        assert!(!is_at(&at("other"), &at("below/m.onnx")));
    }
}
