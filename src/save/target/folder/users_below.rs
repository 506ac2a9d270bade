//! Which other models need files of a folder and of those below it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::ModelFolder;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::without_dots;
use crate::files::recovery::is_lock_name;
use crate::save::target::same_file::{is_at, is_same, real_path, there};
use crate::save::target::users::{Base, Wanted};
use crate::util::retry::retried;

impl ModelFolder {
    /// As [`other_users`](Self::other_users), with all of these models for each file.
    pub(crate) fn all_other_users(
        &self,
        names: &[String],
        except: Option<&Path>,
    ) -> Result<BTreeMap<String, Vec<PathBuf>>> {
        let root =
            retried(|| self.directory.canonicalize()).map_err(|e| Error::io(&self.directory, e))?;
        let wanted = Wanted::new(&self.directory, &root, names)?;
        let except = except.map(real_path);
        let (mut users, mut errors) = (BTreeMap::new(), Vec::new());
        for base in Base::all(&self.directory, &root, self.depth) {
            let candidates = match self.candidates(&base, &root) {
                Ok(candidates) => candidates,
                Err(error) if base.passes(&error, &base.path) => continue,
                Err(error) => {
                    errors.push(Error::io(&base.path, error));
                    continue;
                }
            };
            let others = candidates.into_iter();
            for path in others.filter(|path| except.as_ref().is_none_or(|it| !is_at(path, it))) {
                match self.skim(&path) {
                    Ok(skimmed) => {
                        let found = wanted.find(&base, &path, &skimmed.locations, &mut users);
                        errors.extend(found.err());
                    }
                    Err(error) if base.passes_error(&error, &path) => {}
                    Err(error) => errors.push(error),
                }
            }
        }
        let cannot_tell = "cannot be read, and may be a model that needs a file to be replaced; save under \
                           another name, or as a user who may read it";
        let errors = errors.into_iter().map(|error| error.because(cannot_tell));
        Error::join(errors).map_or(Ok(users), Err)
    }

    /// The files in `base` that may be another model.
    fn candidates(&self, base: &Base, root: &Path) -> io::Result<Vec<PathBuf>> {
        let target = (!self.model_name.is_empty()).then(|| root.join(&self.model_name));
        let mut paths = Vec::new();
        for entry in retried(|| std::fs::read_dir(&base.path))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            // Where locks are files, nobody can read them.
            if entry.file_name().to_str().is_some_and(is_lock_name) {
                continue;
            }
            let is_target = base.is_own && target.as_ref().is_some_and(|own| is_same(&path, own));
            if (kind.is_file() || kind.is_symlink()) && !is_target {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// For each of the files `locations`, which are paths from this folder, the models other than
    /// the one at `except` that need it: in the folder of the file, and in those above it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when a folder cannot be listed, or a file in it cannot be read, which may
    /// be a model that needs the files.
    pub(crate) fn users_below(
        &self,
        locations: impl IntoIterator<Item = String>,
        except: Option<&Path>,
    ) -> Result<BTreeMap<String, Vec<PathBuf>>> {
        let mut folders: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for location in locations {
            let plain = without_dots(&location);
            let (folder, file) = plain.rsplit_once('/').unwrap_or(("", &plain));
            folders.entry(folder.to_owned()).or_default().push((file.to_owned(), location));
        }
        let mut needed = BTreeMap::new();
        for (below, files) in folders {
            let directory = match &*below {
                "" => self.directory.clone(),
                below => self.directory.join(below),
            };
            let folder = there(&directory, retried(|| directory.metadata()))?;
            if !folder.is_some_and(|folder| folder.is_dir()) {
                continue;
            }
            let names: Vec<_> = files.iter().map(|(file, _)| file.clone()).collect();
            let depth = below.split('/').filter(|part| !part.is_empty()).count();
            let seen = self.seen.clone();
            let folder = Self { depth, seen, ..Self::new(&directory, "") };
            let users = folder.all_other_users(&names, except)?;
            needed.extend(
                files
                    .into_iter()
                    .filter_map(|(file, location)| Some((location, users.get(&file)?.clone()))),
            );
        }
        Ok(needed)
    }

    /// An error where the file at `path` is a model beyond doubt, also as weights of another one:
    /// it is not removed with that one.
    pub(crate) fn is_another_model(&self, path: &Path) -> Result<Option<Error>> {
        let is_model = self.skim(path)?.is_certain;
        let reason =
            "is a model itself, so it is not removed with the model that names it as weights";
        Ok(is_model.then(|| Error::new(ErrorKind::AlreadyExists, reason).with_path(path)))
    }
}
