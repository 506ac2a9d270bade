//! Which models need a file: the folders that are searched for them, and whether a location leads
//! there.
//!
//! A model names its weights by a path from its own folder, so a model in a folder above can need a
//! file of the target's folder. Names may differ in case and links may lead to the file, so names
//! are compared without case, and files by their identity. What the models refer to is read by
//! `skim`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files::external_data::directory_of;
use crate::save::target::skim::leads_nowhere;
use crate::util::names::fold_case;
use crate::util::retry::{is_link, retried};

/// A folder that is searched for models.
pub(crate) struct Base {
    pub(crate) path: PathBuf,
    /// The prefix by which a model in this folder names files in the target's folder: empty, or
    /// `sub/`.
    prefix: String,
    /// Whether this is the target's folder itself.
    pub(crate) is_own: bool,
}

/// The maximum number of folders above the target's that are searched.
const MAX_ABOVE: usize = 16;

impl Base {
    /// The target's folder, its parent, and further ancestors while they have the same owner:
    /// models of other users are not expected to name files in subfolders of subfolders. The search
    /// ends at folders that all users share, such as `/tmp`.
    pub(crate) fn all(directory: &Path, root: &Path) -> Vec<Self> {
        let own = Self { path: directory.to_path_buf(), prefix: String::new(), is_own: true };
        let mut all = vec![own];
        let mut prefix = String::new();
        for (below, above) in root.ancestors().zip(root.ancestors().skip(1)).take(MAX_ABOVE) {
            let name = below.file_name().and_then(|name| name.to_str());
            let (Some(name), Ok(meta)) = (name, retried(|| above.metadata())) else { break };
            prefix = format!("{name}/{prefix}");
            if is_shared(&meta) || !(prefix.matches('/').count() == 1 || is_ours(&meta, root)) {
                break;
            }
            all.push(Self { path: above.to_path_buf(), prefix: prefix.clone(), is_own: false });
        }
        all
    }

    /// Whether a `path` whose reading failed with `error` is ignored: a file that is missing, or,
    /// above the target's folder, one without read permission whose name is not that of a model.
    pub(crate) fn passes(&self, error: &io::Error, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        let looks_like_one =
            name.is_some_and(|name| name.contains(".onnx") || name.ends_with(".pb"));
        let refused = error.kind() == io::ErrorKind::PermissionDenied;
        leads_nowhere(error) && path != self.path || !self.is_own && refused && !looks_like_one
    }

    pub(crate) fn passes_error(&self, error: &Error, path: &Path) -> bool {
        error.io_error().is_some_and(|error| self.passes(error, path))
    }
}

#[cfg(unix)]
fn is_shared(meta: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.mode() & 0o1002 == 0o1002
}

#[cfg(not(unix))]
fn is_shared(_: &Metadata) -> bool {
    false
}

/// Whether a folder has the owner of `root`.
#[cfg(unix)]
fn is_ours(meta: &Metadata, root: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = retried(|| root.metadata()).map(|root| root.uid());
    owner.is_ok_and(|owner| owner == meta.uid())
}

#[cfg(not(unix))]
fn is_ours(_: &Metadata, _: &Path) -> bool {
    true
}

/// The files that would be replaced, indexed so that the locations of models can be matched with
/// them.
pub(crate) struct Wanted<'n> {
    directory: &'n Path,
    root: &'n Path,
    /// By their names in folded case.
    names: HashMap<String, Vec<&'n String>>,
    /// By their identities and those of the files that they link to.
    files: HashMap<FileId, &'n String>,
}

impl<'n> Wanted<'n> {
    pub(crate) fn new(directory: &'n Path, root: &'n Path, names: &'n [String]) -> Self {
        let mut wanted = Self { directory, root, names: HashMap::new(), files: HashMap::new() };
        for name in names {
            wanted.names.entry(fold_case(name)).or_default().push(name);
            wanted.files.extend(file_ids(&directory.join(name)).map(|id| (id, name)));
        }
        wanted
    }

    /// Records which of the files the `model` in `base` needs.
    pub(crate) fn find(
        &self,
        base: &Base,
        model: &Path,
        locations: &BTreeSet<String>,
        users: &mut BTreeMap<String, Vec<PathBuf>>,
    ) {
        for location in locations {
            for name in self.named(base, location).into_iter().chain(self.reached(base, location)) {
                let users = users.entry(name.clone()).or_default();
                // One location may lead to a file by its name and by a link.
                if users.last().is_none_or(|last| last != model) {
                    users.push(model.to_path_buf());
                }
            }
        }
    }

    /// The file whose name is `location`.
    fn named(&self, base: &Base, location: &str) -> Option<&'n String> {
        let folded = fold_case(location);
        let name = folded.strip_prefix(&fold_case(&base.prefix))?;
        let same = |wanted: &&&String| {
            format!("{}{wanted}", base.prefix) == location
                || same_entry(&base.path.join(location), &self.directory.join(wanted))
        };
        self.names.get(name)?.iter().find(same).copied()
    }

    /// The file that `location` leads to by links.
    fn reached(&self, base: &Base, location: &str) -> Option<&'n String> {
        let path = base.path.join(location);
        let name = *self.files.get(&file_ids(&path).last()?)?;
        let own = self.directory.join(name);
        // Replacing this file does not affect another hard link to the same bytes.
        let leads_here = is_link(&own)
            || retried(|| path.canonicalize()).is_ok_and(|real| real == self.root.join(name));
        leads_here.then_some(name)
    }
}

/// The identity of a file.
#[cfg(unix)]
pub(crate) type FileId = (u64, u64);
#[cfg(not(unix))]
pub(crate) type FileId = PathBuf;

/// The identity of `path`, and of the file it leads to when it is a link.
#[cfg(unix)]
pub(crate) fn file_ids(path: &Path) -> impl Iterator<Item = FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = [retried(|| path.symlink_metadata()).ok(), retried(|| path.metadata()).ok()];
    found.into_iter().flatten().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
pub(crate) fn file_ids(path: &Path) -> impl Iterator<Item = FileId> {
    retried(|| path.canonicalize()).ok().into_iter()
}

/// The identities of `paths` and of the files they lead to.
pub(crate) fn ids_of<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> HashSet<FileId> {
    paths.into_iter().flat_map(|path| file_ids(path)).collect()
}

/// Whether the file at `path`, or the one it leads to, is one of `files`.
pub(crate) fn is_any_of(path: &Path, files: &HashSet<FileId>) -> bool {
    !files.is_empty() && file_ids(path).any(|id| files.contains(&id))
}

/// Whether `path` is the `model`, a link to it, or the same file under a name in another case.
pub(crate) fn is_same(path: &Path, model: &Path) -> bool {
    if path.file_name() == model.file_name() {
        return true;
    }
    if is_link(path) {
        return retried(|| path.canonicalize()).is_ok_and(|target| target == *model);
    }
    let folded = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(fold_case);
    folded(path).is_some_and(|name| Some(name) == folded(model)) && same_entry(path, model)
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
    if is_one_folder(&directory_of(path), &directory_of(model)) {
        return is_same(path, model);
    }
    is_link(path) && retried(|| path.canonicalize()).is_ok_and(|target| target == *model)
}

/// Whether two paths lead to one folder: it may be written in two ways where case does not count.
pub(crate) fn is_one_folder(a: &Path, b: &Path) -> bool {
    let last = |path: &Path| file_ids(path).last();
    let first = last(a);
    first.is_some() && first == last(b)
}

/// Whether two paths are the same file. Links are not followed.
fn same_entry(a: &Path, b: &Path) -> bool {
    let first = file_ids(a).next();
    first.is_some() && first == file_ids(b).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_passed_over_only_where_it_cannot_matter() {
        use io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
        let base = |is_own| Base { path: "/models".into(), prefix: String::new(), is_own };
        let cases = [
            (true, NotFound, "/models/gone.onnx", true),
            (false, NotFound, "/models/gone.onnx", true),
            (true, NotFound, "/models", false),
            (false, NotFound, "/models", false),
            (false, PermissionDenied, "/models/notes.txt", true),
            (false, PermissionDenied, "/models/A.ONNX.bak", false),
            (false, PermissionDenied, "/models/a.pb", false),
            (true, PermissionDenied, "/models/notes.txt", false),
            (false, InvalidData, "/models/notes.txt", false),
        ];
        for (is_own, kind, path, passes) in cases {
            let (base, path) = (base(is_own), Path::new(path));
            assert_eq!(base.passes(&kind.into(), path), passes, "{is_own} {kind} {path:?}");
            let error = Error::io(path, io::Error::from(kind));
            assert_eq!(base.passes_error(&error, path), passes, "{is_own} {kind} {path:?}");
        }
        let not_io = Error::new(crate::ErrorKind::InvalidModel, "no model");
        assert!(!base(true).passes_error(&not_io, Path::new("/models/gone.onnx")));
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

    #[test]
    fn two_names_of_one_file_are_one_entry() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "").unwrap();
        std::fs::write(at("b"), "").unwrap();
        std::fs::hard_link(at("a"), at("c")).unwrap();
        for (one, other, same) in [
            ("a", "a", true),
            ("a", "c", true),
            ("a", "b", false),
            ("gone", "gone", false),
            ("gone", "a", false),
        ] {
            assert_eq!(same_entry(&at(one), &at(other)), same, "{one} {other}");
        }
    }
}
