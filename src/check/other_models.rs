//! What other models use of a weights file: models that share their weights leave bytes to each
//! other, and those are not unused.
//!
//! Every file around a model may be another one. What was found there is kept, so that each is read
//! once for all weights files, and for all models that are checked together.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::files::consistent_read::read_one_save;
use crate::files::external_data::{self, ExternalData, directory_of, is_external};
use crate::graph::traversal;
use crate::load::{LoadOptions, decode_model};
use crate::proto::{ModelProto, TensorProto};
use crate::save::{FileId, ModelFolder, file_ids, is_one_folder, unless_passed};
use crate::util::retry::retried;

/// The other models that need a file, and the bytes of it that their tensors use.
#[derive(Clone, Default)]
pub(super) struct OtherModels {
    pub(super) paths: Vec<PathBuf>,
    pub(super) used: Vec<Range<u64>>,
}

impl OtherModels {
    /// Their paths in words: the first, and how many more there are.
    pub(super) fn named(&self) -> Option<String> {
        let (first, more) = self.paths.split_first()?;
        let first = first.display();
        Some(match more.len() {
            0 => format!("`{first}`"),
            more => format!("`{first}` and {more} more"),
        })
    }
}

/// What was found around the models that were checked.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// By the folder of a model.
    folders: HashMap<PathBuf, Folder>,
    /// By the path of a model: the places that it uses.
    uses: HashMap<PathBuf, Result<Arc<Vec<Use>>>>,
}

/// The folder of a model.
#[derive(Debug)]
struct Folder {
    models: ModelFolder,
    /// By the location of a weights file: the models that need it, or why these are not known.
    users: HashMap<String, Result<Arc<Vec<User>>>>,
}

/// A model that needs a file.
#[derive(Debug)]
struct User {
    path: PathBuf,
    /// Without links.
    real: PathBuf,
}

impl Survey {
    /// For each of the `locations` of the model at `path`, the other models that need that file, or
    /// why they are not known: a file cannot be read that may be such a model.
    pub(super) fn others(
        &mut self,
        path: &Path,
        locations: &[String],
        options: &LoadOptions,
    ) -> BTreeMap<String, Result<OtherModels>> {
        // Bytes that the caller gave are in no file.
        let locations = locations.iter().filter(|it| !options.files.contains_key(it.as_str()));
        let locations: Vec<_> = locations.cloned().collect();
        let folder = directory_of(path);
        self.folder(&folder).find(&locations);
        let own = real(path);
        let each = locations.into_iter().map(|location| {
            let users = self.folder(&folder).users(&location);
            let others = users.and_then(|users| {
                let others = users.iter().filter(|user| user.real != own);
                let paths = others.map(|user| user.path.clone()).collect();
                self.used(&folder.join(&location), paths, options)
            });
            (location, others)
        });
        each.collect()
    }

    fn folder(&mut self, path: &Path) -> &mut Folder {
        self.folders
            .entry(path.to_path_buf())
            .or_insert_with(|| Folder { models: ModelFolder::new(path, ""), users: HashMap::new() })
    }

    /// What the models at `paths` use of `file`.
    fn used(
        &mut self,
        file: &Path,
        paths: Vec<PathBuf>,
        options: &LoadOptions,
    ) -> Result<OtherModels> {
        let mut others = OtherModels { paths, used: Vec::new() };
        let Some(id) = file_ids(file)?.pop() else { return Ok(OtherModels::default()) };
        let mut folder = (PathBuf::new(), false);
        for other in &others.paths {
            let of_other = directory_of(other);
            if folder.0 != of_other {
                let is_own = is_one_folder(&of_other, &directory_of(file))?;
                folder = (of_other, is_own);
            }
            let known = self.uses.entry(other.clone());
            let uses = known.or_insert_with(|| read_uses(other, options).map(Arc::new)).clone()?;
            for one in uses.iter() {
                others.used.extend(one.of(&id, folder.1).map_err(|error| error.with_path(other))?);
            }
        }
        Ok(others)
    }
}

impl Folder {
    /// Looks for the models that need the files at `locations`, by one look at each folder: where
    /// one cannot be looked through, this is known of its own files alone.
    fn find(&mut self, locations: &[String]) {
        let mut new: BTreeMap<PathBuf, Vec<&String>> = BTreeMap::new();
        for location in locations.iter().filter(|it| !self.users.contains_key(*it)) {
            new.entry(directory_of(Path::new(location))).or_default().push(location);
        }
        for locations in new.into_values() {
            let found = self.models.users_below(locations.iter().map(|it| (*it).clone()), None);
            for location in locations {
                let of_it = |users: &BTreeMap<String, Vec<PathBuf>>| {
                    let users = users.get(location).into_iter().flatten();
                    let users = users.map(|path| User { path: path.clone(), real: real(path) });
                    Arc::new(users.collect())
                };
                let users = found.as_ref().map(of_it).map_err(Clone::clone);
                self.users.insert(location.clone(), users);
            }
        }
    }

    /// The models that need the file at `location`, which was looked for.
    fn users(&self, location: &str) -> Result<Arc<Vec<User>>> {
        self.users.get(location).cloned().unwrap_or_else(|| Ok(Arc::default()))
    }
}

/// `path` without links, as far as that is known.
fn real(path: &Path) -> PathBuf {
    retried(|| path.canonicalize()).unwrap_or_else(|_| path.to_path_buf())
}

/// The bytes of one file that the tensors of a model use.
#[derive(Debug)]
struct Use {
    location: String,
    /// The identities of the file, or why they are not known.
    ids: Result<Vec<FileId>>,
    ranges: Vec<Range<u64>>,
}

impl Use {
    /// The ranges, where the file is the one with this identity.
    fn of(&self, file: &FileId, is_own: bool) -> Result<Vec<Range<u64>>> {
        let ids = unless_passed(self.ids.clone(), &self.location, is_own)?;
        Ok(if ids.contains(file) { self.ranges.clone() } else { Vec::new() })
    }
}

fn read_uses(path: &Path, options: &LoadOptions) -> Result<Vec<Use>> {
    let read = read_one_save(path, options.mmap, |bytes| {
        uses_of(&decode_model(&bytes, &options.decode)?, &directory_of(path))
    });
    Ok(read.map_err(|error| error.with_path(path))?.value)
}

/// What the tensors of `model` use, which is in `folder`.
fn uses_of(model: &ModelProto, folder: &Path) -> Result<Vec<Use>> {
    let mut ranges: BTreeMap<String, Vec<_>> = BTreeMap::new();
    traversal::tensors(model, |_, tensor| {
        // What is wrong with the other model is found where that one is checked.
        if let Some((location, range)) = place_of(tensor) {
            ranges.entry(location).or_default().push(range);
        }
        Ok(())
    })?;
    let each = ranges.into_iter().map(|(location, ranges)| {
        let ids = file_ids(&folder.join(&location));
        Use { location, ids, ranges }
    });
    Ok(each.collect())
}

fn place_of(tensor: &TensorProto) -> Option<(String, Range<u64>)> {
    if !is_external(tensor) {
        return None;
    }
    let data = ExternalData::parse(tensor).ok()?;
    let (_, len) = external_data::layout(tensor).ok()?;
    let range = data.range(len).ok()?;
    Some((data.location, range))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{InvalidData, PermissionDenied};

    use super::*;
    use crate::error::Error;

    /// As a save that looks for the models that need a file.
    #[test]
    fn a_file_of_another_user_is_passed_over_where_no_location_should_lead() {
        let cases = [
            (PermissionDenied, "/elsewhere/w", true, true),
            (PermissionDenied, "w", false, true),
            (PermissionDenied, "w", true, false),
            (InvalidData, "/elsewhere/w", true, false),
        ];
        for (kind, location, is_own, passes) in cases {
            let ids = Err(Error::io(location, kind.into()));
            let one = Use { location: location.to_owned(), ids, ranges: vec![0..8, 9..12] };
            let folder = tempfile::tempdir().unwrap();
            let file = file_ids(folder.path()).unwrap().pop().unwrap();
            let used = one.of(&file, is_own).ok();
            assert_eq!(used, passes.then(Vec::new), "{kind} {location} {is_own}");
        }
    }
}
