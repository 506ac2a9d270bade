//! Which models need a file: the folders that are searched for them, and whether a location leads
//! there.
//!
//! A model names its weights by a path from its own folder, so a model in a folder above can need a
//! file of the target's folder. Names may differ in case and links may lead to the file, so names
//! are compared without case, and files by their identity. What the models refer to is read by
//! `skim`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::external_data::check_location;
use crate::save::target::same_file::{FileId, file_ids, is_one_entry, there};
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
    /// ends at folders that all users share, such as `/tmp`. The first `least` folders above are
    /// searched whatever they are: the model is in the last of these.
    pub(crate) fn all(directory: &Path, root: &Path, least: usize) -> Vec<Self> {
        let own = Self { path: directory.to_path_buf(), prefix: String::new(), is_own: true };
        let mut all = vec![own];
        let mut prefix = String::new();
        for (below, above) in
            root.ancestors().zip(root.ancestors().skip(1)).take(MAX_ABOVE.max(least))
        {
            let name = below.file_name().and_then(|name| name.to_str());
            let (Some(name), Ok(meta)) = (name, retried(|| above.metadata())) else { break };
            prefix = format!("{name}/{prefix}");
            let height = prefix.matches('/').count();
            let ends = is_shared(&meta) || !(height == 1 || is_ours(&meta, root));
            if ends && height > least {
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

/// `found` at `location` of a model, or nothing where the error is ignored: what only another user
/// may read, where the model is not in the own folder of the files that are asked for, or where no
/// location should lead.
pub(crate) fn unless_passed<T: Default>(
    found: Result<T>,
    location: &str,
    is_own: bool,
) -> Result<T> {
    let is_elsewhere = !is_own || check_location(location).is_err();
    let is_passed = |error: &Error| {
        let refused = error.io_error().map(io::Error::kind);
        is_elsewhere && refused == Some(io::ErrorKind::PermissionDenied)
    };
    match found {
        Err(error) if is_passed(&error) => Ok(T::default()),
        found => found,
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
    /// By their identities and those of the files that they link to; a file may have several names.
    files: HashMap<FileId, Vec<&'n String>>,
}

impl<'n> Wanted<'n> {
    pub(crate) fn new(directory: &'n Path, root: &'n Path, names: &'n [String]) -> Result<Self> {
        let mut wanted = Self { directory, root, names: HashMap::new(), files: HashMap::new() };
        for name in names {
            wanted.names.entry(fold_case(name)).or_default().push(name);
            for id in file_ids(&directory.join(name))? {
                wanted.files.entry(id).or_default().push(name);
            }
        }
        Ok(wanted)
    }

    /// Records which of the files the `model` in `base` needs.
    ///
    /// # Errors
    /// Why it cannot be told where a location leads.
    pub(crate) fn find(
        &self,
        base: &Base,
        model: &Path,
        locations: &BTreeSet<String>,
        users: &mut BTreeMap<String, Vec<PathBuf>>,
    ) -> Result<()> {
        for location in locations {
            let named = unless_passed(self.named(base, location), location, base.is_own)?;
            let reached = unless_passed(self.reached(base, location), location, base.is_own)?;
            for name in named.into_iter().chain(reached) {
                let users = users.entry(name.clone()).or_default();
                // One location may lead to a file by its name and by a link.
                if users.last().is_none_or(|last| last != model) {
                    users.push(model.to_path_buf());
                }
            }
        }
        Ok(())
    }

    /// The files whose name is `location`.
    fn named(&self, base: &Base, location: &str) -> Result<Vec<&'n String>> {
        let folded = fold_case(location);
        let Some(name) = folded.strip_prefix(&fold_case(&base.prefix)) else {
            return Ok(Vec::new());
        };
        let mut named = Vec::new();
        for &wanted in self.names.get(name).into_iter().flatten() {
            if format!("{}{wanted}", base.prefix) == location
                || is_one_entry(&base.path.join(location), &self.directory.join(wanted))?
            {
                named.push(wanted);
            }
        }
        Ok(named)
    }

    /// The files that `location` leads to by links.
    fn reached(&self, base: &Base, location: &str) -> Result<Vec<&'n String>> {
        let path = base.path.join(location);
        let Some(names) = file_ids(&path)?.last().and_then(|id| self.files.get(id)) else {
            return Ok(Vec::new());
        };
        let real = there(&path, retried(|| path.canonicalize()))?;
        // Replacing this file does not affect another hard link to the same bytes.
        let leads_here = |name: &&&String| {
            is_link(&self.directory.join(name)) || real.as_ref() == Some(&self.root.join(name))
        };
        Ok(names.iter().filter(leads_here).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model may name a file of another user, where no location should lead.
    #[test]
    fn what_only_another_user_may_read_is_passed_over_only_elsewhere() {
        let found = |kind: io::ErrorKind| -> Result<Vec<u8>> { Err(Error::io("w", kind.into())) };
        let denied = io::ErrorKind::PermissionDenied;
        for (is_own, location, kind, passes) in [
            (true, "w", denied, false),
            (true, "/elsewhere/w", denied, true),
            (true, "../w", denied, true),
            (false, "w", denied, true),
            (true, "/elsewhere/w", io::ErrorKind::InvalidData, false),
            (false, "w", io::ErrorKind::InvalidData, false),
        ] {
            let passed = unless_passed(found(kind), location, is_own).is_ok();
            assert_eq!(passed, passes, "{is_own} {location} {kind}");
        }
    }

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
}
