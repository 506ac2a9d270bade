//! The folder that a save writes to: which files exist, which models need them, and so which files
//! may be replaced.
//!
//! A data file is replaced only when the model that is replaced refers to it, or when the caller
//! named it. It is never replaced when another model needs it, when it is a model itself, or when
//! it is an input of the caller. Any file of the folder may be a model, whatever its name, and so
//! may files of the folders above, which name files here by a longer path. A file that cannot be
//! read may be a model too, so it makes the check fail.
//!
//! The folder is searched only where a data file would be replaced or left behind, and again under
//! the folder's lock before files are renamed. Files that have not changed in between are not read
//! again.

mod below;
mod hidden;
mod superseded;
mod users_below;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::buffer::Buffer;
use crate::buffers::FileIdentity;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{directory_of, refuse_nul};
use crate::files::recovery::{may_need_recovery, recover_all, refuse_journaled, remove_leftovers};
use crate::save::options::SaveOptions;
use crate::save::target::listing::Listing;
use crate::save::target::same_file::{ids_of, is_any_of};
use crate::save::target::shard_index::{is_index, skim_any};
use crate::save::target::skim::{Skimmed, leads_nowhere};
use crate::save::target::{SaveTarget, SavedFile};
use crate::util::retry::{is_link, retried};

/// The files that a save writes into a folder, and those that it must not replace.
pub(crate) struct Request<'a> {
    /// The files to be written. The model, or the main file of an export, is last.
    pub(crate) files: &'a [SavedFile],
    /// Whether the last one is a model, which may replace a model.
    pub(crate) is_model: bool,
    /// The weights files that the caller named.
    pub(crate) asked: &'a BTreeSet<String>,
    pub(crate) overwrite: bool,
    /// What is saved. The files that its bytes are in are not replaced by other files.
    pub(crate) container: &'a Container,
    /// Files that are never replaced.
    pub(crate) protected: &'a [PathBuf],
}

/// A folder and the model in it that a save replaces.
#[derive(Debug)]
pub(crate) struct ModelFolder {
    directory: PathBuf,
    model_name: String,
    /// How many folders above this one the model is: all of these are searched.
    depth: usize,
    /// The results for files that were read and have not changed since, by their paths.
    seen: Arc<Mutex<Seen>>,
}

type Seen = HashMap<PathBuf, (FileIdentity, Arc<Skimmed>)>;

/// Finds a model, in the folder of the file `path` or in a folder above, that refers to the file
/// and would break if the file were replaced.
///
/// Every file of these folders is read, whatever its name, without loading tensors. Saves and
/// exports make this check themselves.
///
/// ```
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
///
/// let folder = tempfile::tempdir().unwrap();
/// let (model, weights) = (folder.path().join("m.onnx"), folder.path().join("w.bin"));
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "w.bin"));
/// std::fs::write(&model, ModelProto::new(graph).encode_to_vec()?).unwrap();
/// std::fs::write(&weights, [1, 2]).unwrap();
/// assert_eq!(onnx_container::save::model_that_needs(&weights)?, Some(model));
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Io`] when the folder cannot be listed or a file in it cannot be read, since that
/// may be a model that needs the file. [`ErrorKind::InvalidArgument`] for a path with a NUL byte.
pub fn model_that_needs(path: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    let path = path.as_ref();
    refuse_nul(path)?;
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let users = ModelFolder::new(&directory_of(path), "").users(&[name.to_owned()])?;
    Ok(users.into_values().next())
}

/// As [`model_that_needs`], of the models other than the one at `model`, which is about to be
/// replaced.
///
/// # Errors
/// As [`model_that_needs`].
pub fn other_model_that_needs(
    path: impl AsRef<Path>,
    model: impl AsRef<Path>,
) -> Result<Option<PathBuf>> {
    let path = path.as_ref();
    refuse_nul(path)?;
    refuse_nul(model.as_ref())?;
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let folder = ModelFolder::new(&directory_of(path), "");
    let users = folder.other_users(&[name.to_owned()], Some(model.as_ref()))?;
    Ok(users.into_values().next())
}

/// Why a file must not be replaced by something that is neither a model nor its weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReplaced {
    /// It is a model, whatever it is called.
    Model,
    /// The model at this path needs it.
    NeededBy(PathBuf),
}

/// Which of the files `names` in `folder` must not be replaced, and why: models, and what models
/// need, as [`model_that_needs`] finds it for one file. The models of the folder are read once for
/// all names. A symbolic link is no model: only the link would be replaced.
///
/// ```
/// use onnx_container::save::{NotReplaced, not_replaced};
/// use onnx_container::proto::{GraphProto, Message, ModelProto};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("0_0.pb"), ModelProto::new(GraphProto::new("g")).encode_to_vec()?)?;
/// let kept = not_replaced(folder.path(), &["0_0.pb".to_owned(), "1_0.pb".to_owned()])?;
/// assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("0_0.pb".to_owned(), NotReplaced::Model)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`model_that_needs`].
pub fn not_replaced(
    folder: impl AsRef<Path>,
    names: &[String],
) -> Result<BTreeMap<String, NotReplaced>> {
    let folder = ModelFolder::new(folder.as_ref(), "");
    let mut kept = BTreeMap::new();
    for name in names {
        let path = folder.directory.join(name);
        if !is_link(&path) && folder.skim(&path)?.is_certain {
            kept.insert(name.clone(), NotReplaced::Model);
        }
    }
    for (name, user) in folder.users(names)? {
        kept.insert(name, NotReplaced::NeededBy(user));
    }
    Ok(kept)
}

/// The files that the bytes of `container` are in.
pub(crate) fn files_read_by(container: &Container) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for (_, initializer) in container.iter() {
        let bytes = initializer.as_buffer();
        if let Some(path) = bytes.as_ref().and_then(Buffer::file_path)
            && !paths.contains(path)
        {
            paths.insert(path.to_path_buf());
        }
    }
    paths
}

impl ModelFolder {
    /// A folder of which nothing is read yet.
    pub(crate) fn new(directory: &Path, model_name: &str) -> Self {
        let (directory, model_name) = (directory.to_path_buf(), model_name.to_owned());
        Self { directory, model_name, depth: 0, seen: Arc::default() }
    }

    pub(crate) fn of(target: &SaveTarget) -> Self {
        Self::new(&target.directory, &target.name)
    }

    /// Refuses a request that would replace a file that must not be replaced. Where files would be
    /// replaced, waits for other saves to the folder as `options` say.
    pub(crate) fn check(&self, request: &Request<'_>, options: &SaveOptions) -> Result<()> {
        if self.there(request)?.is_empty() {
            return Ok(());
        }
        // Another save may have moved the old model away and not yet put the new one there.
        let _lock = options.lock(&self.directory)?;
        self.check_locked(request)
    }

    /// As [`check`](Self::check), where what is refused may be what a save put there that was
    /// killed since [`recover`](Self::recover): that is completed first. Returns what was done.
    pub(crate) fn check_recovered(
        &self,
        request: &Request<'_>,
        options: &SaveOptions,
    ) -> Result<Vec<Error>> {
        if self.check(request, options).is_ok() {
            return Ok(Vec::new());
        }
        let recovered = self.recover(options)?;
        self.check(request, options).map(|()| recovered)
    }

    /// As [`check`](Self::check), for a caller that holds the folder's lock.
    pub(crate) fn check_locked(&self, request: &Request<'_>) -> Result<()> {
        let there = self.there(request)?;
        let refused = there.iter().filter_map(|(name, meta)| {
            let (kind, reason) = self.no_file_to_replace(name, meta, request.overwrite)?;
            Some(self.error(name, kind, reason))
        });
        Error::join(refused).map_or(Ok(()), Err)?;
        let mut replaced = Vec::new();
        for (name, _) in &there {
            // Where a model replaces a model no weights are lost.
            let last = request.files.last().filter(|_| request.is_model);
            let is_target = last.is_some_and(|last| last.name == *name);
            if !is_target || !self.skim(&self.directory.join(name))?.is_model {
                replaced.push(name.clone());
            } else if is_any_of(&self.directory.join(name), &ids_of(request.protected)?)? {
                return Err(self.error(name, ErrorKind::AlreadyExists, READ.to_owned()));
            }
        }
        if replaced.is_empty() { Ok(()) } else { self.check_replaced(&replaced, request) }
    }

    fn check_replaced(&self, replaced: &[String], request: &Request<'_>) -> Result<()> {
        let (own, users) = (self.own_names()?, self.users(replaced)?);
        let (reads, protected) =
            (ids_of(&files_read_by(request.container))?, ids_of(request.protected)?);
        let (mut errors, mut nobodys) = (Vec::new(), Vec::new());
        for name in replaced {
            let path = self.directory.join(name);
            let is_target = *name == self.model_name;
            let is_own = own.contains(name);
            let is_read = is_any_of(&path, &protected)? || !is_own && is_any_of(&path, &reads)?;
            let reason = if is_read {
                READ.to_owned()
            } else if let Some(user) = users.get(name) {
                format!("`{}` refers to this file: it is not replaced", user.display())
            } else if !(is_target && request.is_model)
                && self.is_model(&path, is_own || is_target)?
            {
                "another model: it is not replaced by weights".to_owned()
            } else if !is_target && is_index(&path) {
                "an index of shards: it is not replaced by weights".to_owned()
            } else if is_target || is_own || request.asked.contains(name) || is_link(&path) {
                // Only the link itself is replaced, so no bytes are lost.
                continue;
            } else {
                nobodys.push(name);
                continue;
            };
            errors.push(self.error(name, ErrorKind::AlreadyExists, reason));
        }
        errors.extend(self.nobodys(&nobodys));
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// Whether the file at `path` may be a model. Of `own`, the weights that the replaced model
    /// refers to or an earlier export, only what is one beyond doubt: a model of many files could
    /// not be saved again if the bytes of one of them happened to begin as a model does.
    fn is_model(&self, path: &Path, own: bool) -> Result<bool> {
        let skimmed = self.skim(path)?;
        Ok(if own { skimmed.is_certain } else { skimmed.is_model })
    }

    /// The one error for all files `names` that no model is known to need and that the caller did
    /// not name.
    fn nobodys(&self, names: &[&String]) -> Option<Error> {
        let (first, others) = names.split_first()?;
        if others.is_empty() {
            return Some(self.error(first, ErrorKind::AlreadyExists, NOBODYS.to_owned()));
        }
        let each = names.iter().map(|name| {
            self.error(name, ErrorKind::AlreadyExists, "no model here refers to it".to_owned())
        });
        let reason = format!(
            "{} files exist already and are not replaced, because no model here refers to them, or only \
             one that was replaced before; delete them, move them away, or save under another name",
            names.len(),
        );
        Some(Error::joined(ErrorKind::AlreadyExists, reason, each.collect()))
    }

    fn error(&self, name: &str, kind: ErrorKind, reason: String) -> Error {
        Error::new(kind, reason).with_path(self.directory.join(name))
    }

    /// The files of the request that exist. The metadata of each is read only once, because another
    /// save may move the file away and back in the meantime.
    fn there(&self, request: &Request<'_>) -> Result<Vec<(String, Metadata)>> {
        let listing = Listing::of(&self.directory, request.files.len());
        let look = |file: &SavedFile| {
            let path = listing.may_have(&file.name).then(|| self.directory.join(&file.name))?;
            match retried(|| path.symlink_metadata()) {
                Ok(meta) => Some(Ok((file.name.clone(), meta))),
                Err(error) if leads_nowhere(&error) => None,
                Err(error) => Some(Err(Error::io(path, error))),
            }
        };
        request.files.iter().filter_map(look).collect()
    }

    /// Why the file `name` may not be replaced, whether or not a model needs it.
    fn no_file_to_replace(
        &self,
        name: &str,
        meta: &Metadata,
        overwrite: bool,
    ) -> Option<(ErrorKind, String)> {
        if !meta.is_file() && !meta.is_symlink() {
            let what = if meta.is_dir() { "a directory" } else { "not a regular file" };
            return Some((ErrorKind::UnsafePath, format!("{what}: not replaced")));
        }
        if meta.is_symlink() && leads_to_a_device(&self.directory.join(name)) {
            let reason = "a link to something that is not a regular file: not replaced";
            return Some((ErrorKind::UnsafePath, reason.into()));
        }
        (!overwrite).then(|| (ErrorKind::AlreadyExists, "exists already".into()))
    }

    /// The files that the model at the target refers to.
    fn own_names(&self) -> Result<BTreeSet<String>> {
        Ok(self.skim(&self.target_path())?.locations.clone())
    }

    /// Completes or undoes what killed saves to this folder left half done, so that every model in
    /// it is whole, and removes the other leftovers of the target. Returns what was done, and what
    /// could not be.
    ///
    /// # Errors
    /// When the target itself cannot be recovered; when the folder cannot be listed or stays
    /// locked.
    pub(crate) fn recover(&self, options: &SaveOptions) -> Result<Vec<Error>> {
        let mut warnings = Vec::new();
        if !may_need_recovery(&self.directory)? {
            return Ok(remove_leftovers(&self.directory, &self.model_name));
        }
        let lock = options.lock(&self.directory)?;
        // Without locks nobody knows whether a save is running.
        if !lock.is_held() {
            return refuse_journaled(&self.directory, &self.model_name, &[]).map(|()| warnings);
        }
        for (is_own, recovered) in recover_all(&self.directory, Some(&self.model_name))? {
            match recovered {
                Ok(recovered) => warnings.extend(recovered.map(|recovered| recovered.warning())),
                Err(error) if is_own => return Err(error),
                Err(error) => warnings.push(error),
            }
        }
        drop(lock);
        warnings.extend(remove_leftovers(&self.directory, &self.model_name));
        Ok(warnings)
    }

    fn target_path(&self) -> PathBuf {
        self.directory.join(&self.model_name)
    }

    /// For each of the files `names` that another model needs, the path of one such model.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for all files and folders that cannot be read and may hold a model.
    pub(crate) fn users(&self, names: &[String]) -> Result<BTreeMap<String, PathBuf>> {
        self.other_users(names, None)
    }

    /// As [`users`](Self::users), without the model at the path `except`.
    pub(crate) fn other_users(
        &self,
        names: &[String],
        except: Option<&Path>,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let users = self.all_other_users(names, except)?.into_iter();
        Ok(users.filter_map(|(name, users)| Some((name, users.into_iter().next()?))).collect())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locations in the file at `path`. The file is read again only where it may have changed.
    fn skim(&self, path: &Path) -> Result<Arc<Skimmed>> {
        let identity = |metadata| FileIdentity::at(path, &metadata);
        let look = || retried(|| path.metadata()).ok().map(identity);
        let identity = look();
        if let (Some(identity), Some((known, skimmed))) = (&identity, self.seen().get(path))
            && known == identity
        {
            return Ok(skimmed.clone());
        }
        let skimmed = Arc::new(skim_any(path)?);
        // Another file may have taken its place before it was opened.
        let is_same = |identity: &FileIdentity| look().as_ref() == Some(identity);
        let settled = identity.filter(|now| now.is_settled(SystemTime::now())).filter(is_same);
        if let Some(identity) = settled {
            self.seen().insert(path.to_path_buf(), (identity, skimmed.clone()));
        }
        Ok(skimmed)
    }
}

const READ: &str = "is read by this save, so it is not replaced: name another file";

const NOBODYS: &str = "exists and is not replaced, because no model here refers to it, or only one that was \
                       replaced before; delete it, move it away, or save under another name";

/// Whether the link at `path` leads to a device, a pipe or a stream of a process, such as
/// `/dev/stdout`. A save would replace the link for all programs.
fn leads_to_a_device(path: &Path) -> bool {
    let stream =
        retried(|| std::fs::read_link(path)).is_ok_and(|target| target.starts_with("/proc"));
    stream || retried(|| path.metadata()).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;

    use super::*;
    use crate::proto::{GraphProto, Message, ModelProto, TensorProto};

    fn model(location: &str) -> Vec<u8> {
        let mut graph = GraphProto::new("g");
        graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [1], location));
        ModelProto::new(graph).encode_to_vec().unwrap()
    }

    /// Weights that are in place before their model, because the save of both was killed, are not
    /// called nobody's.
    #[test]
    fn a_save_that_was_killed_since_the_last_look_is_completed() {
        use crate::files::recovery::{StagingFolder, Switch};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = ["w.bin", "m.onnx"].map(str::to_owned);
        let staging = StagingFolder::new(folder.path(), "m.onnx").unwrap();
        staging.list(&names, false).unwrap();
        let (old, new) = (staging.old_files(), staging.new_files());
        for to in [folder.path(), &new] {
            fs::write(to.join("w.bin"), "w").unwrap();
            fs::write(to.join("m.onnx"), model("w.bin")).unwrap();
        }
        let both = (folder.path(), folder.path());
        let switch = Switch::new(both, staging.path(), &names, |_| true, false).unwrap();
        switch.announce().unwrap();
        staging.keep();
        for name in ["m.onnx", "w.bin"] {
            fs::rename(at(name), old.join(name)).unwrap();
        }
        fs::rename(new.join("w.bin"), at("w.bin")).unwrap();
        let files = names.map(|name| SavedFile::new(name, 1));
        let request = Request {
            is_model: true,
            files: &files,
            asked: &BTreeSet::new(),
            overwrite: true,
            container: &Container::default(),
            protected: &[],
        };
        let (looked, options) = (ModelFolder::new(folder.path(), "m.onnx"), SaveOptions::new());
        let error = looked.check(&request, &options).unwrap_err();
        assert!(error.reason().contains("no model here refers to it"), "{error}");
        let recovered = looked.check_recovered(&request, &options).unwrap();
        assert!(recovered[0].reason().contains("is complete now"), "{recovered:?}");
        assert!(at("m.onnx").is_file() && looked.check_recovered(&request, &options).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    #[cfg(debug_assertions)] // the clock
    fn a_model_that_changes_within_a_tick_of_the_clock_is_read_again() {
        use std::time::{Duration, UNIX_EPOCH};

        use crate::buffers::within_a_tick;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        for set_time in [false, true] {
            within_a_tick(|| {
                let searched = ModelFolder::new(folder.path(), "");
                for location in ["a.bin", "b.bin"] {
                    fs::write(&path, model(location)).unwrap();
                    if set_time {
                        let file = fs::File::open(&path).unwrap();
                        file.set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
                    }
                    let found = searched.skim(&path).unwrap();
                    assert_eq!(found.locations, BTreeSet::from([location.to_owned()]));
                }
            });
        }
    }
}
