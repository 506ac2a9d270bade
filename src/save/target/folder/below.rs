//! Files that are written to folders below the model's: which of those that are there may be
//! replaced.
//!
//! The rules are those of the model's own folder, and the models of the folder that a file is in
//! are asked too.

use std::collections::BTreeMap;
use std::path::Path;

use super::{ModelFolder, READ, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::may_need_recovery;
use crate::save::target::same_file::{ids_of, is_any_of, there as found_at};
use crate::util::retry::{is_link, retried};

impl ModelFolder {
    /// Refuses a request that would replace files in folders below this one that must not be
    /// replaced. The model of the request is in this folder.
    pub(crate) fn check_below(&self, request: &Request<'_>) -> Result<()> {
        let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for file in request.files {
            if let Some((folder, name)) = file.name.rsplit_once('/') {
                folders.entry(folder).or_default().push(name.to_owned());
            }
        }
        let mut errors = Vec::new();
        for (folder, names) in folders {
            self.refuse_links(folder)?;
            errors.extend(self.refused_below(folder, &names, request)?);
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// Refuses a `folder` that is reached through a link, which may lead anywhere, or that is not
    /// there.
    fn refuse_links(&self, folder: &str) -> Result<()> {
        let mut path = self.directory.clone();
        for part in folder.split('/') {
            path.push(part);
            if is_link(&path) {
                let reason = "a link: weights are not written through it";
                return Err(Error::new(ErrorKind::UnsafePath, reason).with_path(path));
            }
        }
        match retried(|| path.metadata()) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::UnsafePath, "not a directory").with_path(path)),
            Err(error) => Err(Error::io(path, error).because("the folder to save weights to")),
        }
    }

    /// An error for each of the files `names` in the folder `below` that must not be replaced.
    fn refused_below(
        &self,
        below: &str,
        names: &[String],
        request: &Request<'_>,
    ) -> Result<Vec<Error>> {
        let folder = Self::new(&self.directory.join(below), "");
        let mut there = Vec::new();
        for name in names {
            let path = folder.directory.join(name);
            let found = found_at(&path, retried(|| path.symlink_metadata()))?;
            there.extend(found.map(|_| name.clone()));
        }
        if there.is_empty() {
            return Ok(Vec::new());
        }
        if may_need_recovery(&folder.directory)? {
            // Nobody sees what the model needs whose save that was.
            let reason = "a save in this folder was interrupted: recover the folder first, or save elsewhere";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(&folder.directory));
        }
        let own = self.own_names()?;
        let users = folder.other_users(&there, Some(&self.target_path()))?;
        let mut errors = Vec::new();
        for name in &there {
            let (path, location) = (folder.directory.join(name), format!("{below}/{name}"));
            let is_own = own.contains(&location);
            let refused = |kind, reason: String| Error::new(kind, reason).with_path(&path);
            let metadata = retried(|| path.symlink_metadata()).map_err(|e| Error::io(&path, e))?;
            if let Some((kind, reason)) =
                folder.no_file_to_replace(name, &metadata, request.overwrite)
            {
                errors.push(refused(kind, reason));
            } else if let Some(reason) = folder.reason_below(&path, is_own, request)? {
                errors.push(refused(ErrorKind::AlreadyExists, reason));
            } else if let Some(user) = users.get(name) {
                let reason =
                    format!("`{}` refers to this file: it is not replaced", user.display());
                errors.push(refused(ErrorKind::AlreadyExists, reason));
            } else if !is_own && !request.asked.contains(&location) {
                errors.extend(folder.nobodys(&[name]));
            }
        }
        Ok(errors)
    }

    /// Why the file at `path` is not replaced, whether or not a model needs it.
    fn reason_below(
        &self,
        path: &Path,
        is_own: bool,
        request: &Request<'_>,
    ) -> Result<Option<String>> {
        Ok(if is_any_of(path, &ids_of(request.protected)?)? {
            Some(READ.to_owned())
        } else if self.is_model(path, is_own)? {
            Some("another model: it is not replaced by weights".to_owned())
        } else {
            None
        })
    }
}
