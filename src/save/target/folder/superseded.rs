//! Weights files that only the model needs that a save replaces: which of them are left behind, and
//! which the save removes.
//!
//! Only a file with a name that saves of this model give to weights is removed, unless the caller
//! asks for all: what the caller named is the caller's. A caller may name one file as one of a
//! single weight is called, so these are removed only where there are several. A file of another
//! name that holds more than the model's tensors stays in any case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ModelFolder;
use crate::error::{Error, Result};
use crate::files::external_data::check_location;
use crate::save::target::file_names::{is_default_name, is_name_of_one_weight};
use crate::save::target::held::holds_more;
use crate::save::target::old_files::{OldFiles, StillNeeded};
use crate::save::target::same_file::{ids_of, is_any_of};
use crate::util::names::fold_case;
use crate::util::retry::retried;

impl ModelFolder {
    /// Whether the file `name` may hold something else than the tensors that `models` have there.
    pub(crate) fn holds_more(&self, models: &[PathBuf], name: &str) -> Result<bool> {
        let mut end = 0;
        for model in models {
            end = end.max(self.skim(model)?.needed_bytes.get(name).copied().unwrap_or_default());
        }
        holds_more(&self.directory.join(name), end, models, name)
    }

    /// The files that the model at `path` refers to.
    pub(crate) fn locations_of(&self, path: &Path) -> Result<BTreeSet<String>> {
        Ok(self.skim(path)?.locations.clone())
    }

    /// Files that only the model at the target needs: no other model does, nor the new one, whose
    /// files are those for which `stays` holds.
    pub(crate) fn left_behind(&self, stays: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        Ok(self.old_files(stays)?.left)
    }

    /// What becomes of the files of the model at the target that the new one does not need, whose
    /// files are those for which `stays` holds.
    pub(crate) fn old_files(&self, stays: impl Fn(&str) -> bool) -> Result<OldFiles> {
        let old = self.own_names()?;
        let is_left = |name: &String| {
            check_location(name).is_ok() && !stays(name) && self.directory.join(name).is_file()
        };
        let left: Vec<_> = old.into_iter().filter(is_left).collect();
        let users = self.users_below(left.iter().cloned(), Some(&self.target_path()))?;
        let left = left.into_iter().filter(|name| !users.contains_key(name));
        let mut paths = Vec::new();
        for path in left.map(|name| self.directory.join(name)) {
            if self.is_another_model(&path)?.is_none() {
                paths.push(path);
            }
        }
        let still_needed = users
            .into_iter()
            .map(|(name, needed_by)| StillNeeded { path: self.directory.join(name), needed_by });
        Ok(OldFiles { left: paths, still_needed: still_needed.collect() })
    }

    /// The names of the files in this folder that no model needs and that have the default names of
    /// weights of one of `models`: what a save leaves that is killed before it removes old files.
    pub(crate) fn unneeded(&self, models: &[&str]) -> Result<Vec<String>> {
        let fail = |error| Error::io(&self.directory, error);
        let mut names = Vec::new();
        for entry in retried(|| std::fs::read_dir(&self.directory)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let is_file = entry.file_type().map_err(fail)?.is_file();
            names.extend(entry.file_name().into_string().ok().filter(|_| is_file));
        }
        names.sort();
        let is_ours = |name: &String| models.iter().any(|model| has_our_name(model, name, &names));
        let ours: Vec<_> = names.iter().filter(|name| is_ours(name)).cloned().collect();
        let users = self.users_below(ours.iter().cloned(), None)?;
        let mut unneeded = Vec::new();
        for name in ours.into_iter().filter(|name| !users.contains_key(name)) {
            if self.is_another_model(&self.directory.join(&name))?.is_none() {
                unneeded.push(name);
            }
        }
        Ok(unneeded)
    }

    /// The names of the files in the model's folder that only the model at the target needs: those
    /// of a default name, or of `any_name`. The new one needs those for which `stays` holds; those
    /// that are `protected` are not listed.
    pub(crate) fn superseded(
        &self,
        stays: impl Fn(&str) -> bool,
        protected: &[PathBuf],
        any_name: bool,
    ) -> Result<Vec<String>> {
        let protected = ids_of(protected)?;
        let (model, old) = (&self.model_name, self.own_names()?);
        let is_ours =
            |name: &str| any_name && !name.contains('/') || has_our_name(model, name, &old);
        let is_named = |name: &str| is_default_name(model, name);
        let left = self.left_behind(|name| {
            stays(name) || !is_ours(name) || fold_case(name) == fold_case(model)
        })?;
        let target = [self.target_path()];
        let mut names = Vec::new();
        for path in &left {
            let is_file = retried(|| path.symlink_metadata()).is_ok_and(|it| it.is_file());
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.filter(|_| is_file) else { continue };
            if !is_any_of(path, &protected)?
                && (is_named(name) || !self.holds_more(&target, name)?)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// Whether saves of `model` give this name to weights by default, where the files `all` are.
fn has_our_name<'n>(model: &str, name: &str, all: impl IntoIterator<Item = &'n String>) -> bool {
    is_default_name(model, name)
        || is_name_of_one_weight(model, name)
            && all.into_iter().filter(|other| is_name_of_one_weight(model, other)).nth(1).is_some()
}
