//! A model is removed with the weights files that no other model needs, in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, is_handle};
use crate::files::recovery::{FolderLock, StagingFolder, Switch, recover_all, refuse_journaled};
use crate::model_files::options::FileOptions;
use crate::model_files::report::{KeptFile, RemovedFile, RemovedModel};
use crate::model_files::source::{Source, are_on_one_file_system};
use crate::save::{ModelFolder, SaveOptions};
use crate::util::retry::{is_link, retried};

/// Removes the model at `path` and those of its weights files that no other model needs.
///
/// Of a file that is a link the link is removed. Weights files that are missing are no error. When
/// the process is killed, the next one that opens the model puts its files back, or removes the
/// rest. Models are looked for where a save looks for them: in the folder and in those above.
///
/// ```
/// use onnx_container::model_files::{FileOptions, remove_model};
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::Container;
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", ndarray::array![1_u8, 2])?;
/// let folder = tempfile::tempdir().unwrap();
/// container.save(folder.path().join("m.onnx"), true)?;
///
/// let removed = remove_model(folder.path().join("m.onnx"), FileOptions::new())?;
/// assert_eq!(removed.removed.len(), 2); // m.onnx, m.onnx.data
/// assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`Container::load`](crate::Container::load) for what is not a model;
/// [`ErrorKind::AlreadyExists`] where another model needs the model's own file;
/// [`ErrorKind::Changed`] where another program changes it meanwhile; [`ErrorKind::Io`] when a file
/// cannot be moved away or another model cannot be read. All files are then in place.
pub fn remove_model(path: impl AsRef<Path>, options: FileOptions) -> Result<RemovedModel> {
    let source = Source::read(path.as_ref(), &options)?;
    let found = Found::of(&source);
    match options.dry_run {
        true => found.judged(&source),
        false => removed(&source, &found, &options.save, None),
    }
}

/// Removes the files of `source` that no other model needs, except those for which `stays` holds,
/// under `locks` of its folders.
pub(super) fn remove_source(
    source: &Source,
    stays: impl Fn(&str) -> bool,
    options: &SaveOptions,
    locks: Vec<FolderLock>,
) -> Result<RemovedModel> {
    removed(source, &Found::of(source).without(stays), options, Some(locks))
}

/// Refuses to move a model away from folders that the user may not change, before anything is done.
pub(super) fn refuse_unremovable(source: &Source, stays: impl Fn(&str) -> bool) -> Result<()> {
    let found = Found::of(source).without(stays);
    for folder in source.folders(found.files.keys().map(String::as_str))? {
        may_change(&folder).map_err(|error| {
            let reason = "the model cannot be moved away from this folder, only copied";
            Error::io(&folder, error).because(reason)
        })?;
    }
    Ok(())
}

/// Whether files of `folder` may be moved, as far as the system tells without a try.
fn may_change(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        retried(|| Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?))
    }
    #[cfg(not(unix))]
    {
        folder.metadata().map(drop)
    }
}

/// The names, from the model's folder, of the files of `source` that are no links and that
/// [`remove_source`] removes, now or with the last of the models that go together.
pub(super) fn leaving(source: &Source, stays: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let found = Found::of(source).without(stays);
    let mut report = found.judged(source)?;
    let shared = source.go_together(found.files.keys().cloned())?;
    let shared = shared.iter().filter_map(|name| found.files.get(name)).map(FoundFile::removed);
    report.removed.extend(shared);
    let goes = |path: &Path| report.removed.iter().any(|it| !it.is_link && it.path == path);
    let weights = found.files.values().filter(|file| goes(&file.path));
    let model = Some(source.name.clone()).filter(|_| goes(&source.path));
    Ok(weights.map(|file| file.location.clone()).chain(model).collect())
}

/// What would be removed of `source`, and what would stay.
pub(super) fn plan(source: &Source, stays: impl Fn(&str) -> bool) -> Result<RemovedModel> {
    Found::of(source).without(stays).judged(source)
}

fn removed(
    source: &Source,
    found: &Found,
    options: &SaveOptions,
    locks: Option<Vec<FolderLock>>,
) -> Result<RemovedModel> {
    let folders = source.folders(found.files.keys().map(String::as_str))?;
    let locks = locks.map_or_else(|| options.lock_all(&folders), Ok)?;
    if locks.iter().all(FolderLock::is_held) {
        // What another model needs is known when it is in place.
        recover_all(&source.directory, None)?;
    }
    refuse_hidden(&folders)?;
    source.check_model()?;
    let mut report = found.judged(source)?;
    let is_removed =
        |file: &&FoundFile| report.removed.iter().any(|removed| removed.path == file.path);
    let mut names: Vec<_> =
        found.files.values().filter(is_removed).map(|file| file.location.clone()).collect();
    // The last one of a switch.
    names.push(source.name.clone());
    refuse_journaled(&source.directory, &source.name, &names)?;
    match take_away(source, &names, options.sync) {
        Ok(warning) => report.warnings.extend(warning),
        Err(error) if is_full(&error) => {
            report.warnings.extend(delete_each(source, &names, error)?)
        }
        Err(error) => return Err(error),
    }
    remove_empty_folders(source, &names);
    drop(locks);
    Ok(report)
}

/// Refuses while a model in one of `folders`, or in a folder above, may be out of its place:
/// nobody sees which of the files it needs.
fn refuse_hidden(folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        if let Some(hides) = ModelFolder::new(folder, "").that_may_hide_users()? {
            let reason = "a change of a model in this folder was interrupted, which may need the \
                          weights: recover the folder first";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(hides));
        }
    }
    Ok(())
}

/// Removes the files `names`, the model last, or none. Returns a warning where the folder that they
/// were moved to cannot be removed.
fn take_away(source: &Source, names: &[String], sync: bool) -> Result<Option<Error>> {
    let fail = |error| Error::io(&source.directory, error);
    let directory = std::path::absolute(&source.directory).map_err(fail)?;
    let staging = StagingFolder::new(&directory, &source.name).map_err(fail)?;
    let switch = Switch::removal(&directory, staging.path(), names, sync)?;
    if let Err(error) = switch.take_all_away() {
        if switch.has_old_files() {
            staging.keep();
        }
        return Err(error);
    }
    let said = "the model is removed, but its staging folder cannot be";
    if let Err(error) = switch.remove_staging() {
        staging.keep();
        return Ok(Some(error.because(said)));
    }
    match staging.remove() {
        Err(error) => Ok(Some(error.because(said))),
        Ok(()) => Ok(switch.close().err()),
    }
}

/// Whether there was no room for the journal of a removal.
fn is_full(error: &Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    error.io_error().is_some_and(|error| [StorageFull, QuotaExceeded].contains(&error.kind()))
}

/// Deletes the files `names` each after the other, the model, which is the last, first: on a disk
/// that is full there is no room for a journal. When the process is killed meanwhile, weights that
/// no model needs may stay. `full` is why this is done, and becomes the warning.
fn delete_each(source: &Source, names: &[String], full: Error) -> Result<Option<Error>> {
    for (number, path) in names.iter().rev().map(|name| source.directory.join(name)).enumerate() {
        match retried(|| std::fs::remove_file(&path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let error = Error::io(&path, error);
                return Err(if number == 0 { error } else { error.and("the model is gone") });
            }
            _ => {}
        }
    }
    Ok(Some(full.because("the files were removed one by one, without a journal")))
}

/// Removes the folders below the model's that nothing is in any more.
fn remove_empty_folders(source: &Source, names: &[String]) {
    for name in names {
        let mut folder = Path::new(name).parent();
        while let Some(below) = folder.filter(|below| !below.as_os_str().is_empty()) {
            // Not an empty one.
            if retried(|| std::fs::remove_dir(source.directory.join(below))).is_err() {
                break;
            }
            folder = below.parent();
        }
    }
}

/// A weights file that is there.
struct FoundFile {
    /// The path from the model's folder.
    location: String,
    path: PathBuf,
    bytes: u64,
    is_link: bool,
}

/// The weights files of a model that can be removed, by their locations.
struct Found {
    files: BTreeMap<String, FoundFile>,
    warnings: Vec<Error>,
}

impl Found {
    fn of(source: &Source) -> Self {
        let mut found = Self { files: BTreeMap::new(), warnings: source.unread.clone() };
        let all: BTreeSet<_> = source.locations.union(&source.along).collect();
        for location in all.into_iter().filter(|location| **location != source.name) {
            match FoundFile::at(source, location) {
                Ok(file) => found.files.extend(file.map(|file| (location.clone(), file))),
                Err(error) => found.warnings.push(error.because("this file is not removed")),
            }
        }
        found
    }

    fn without(mut self, stays: impl Fn(&str) -> bool) -> Self {
        self.files.retain(|location, _| !stays(location));
        self
    }

    /// Which of the files are removed: those that no other model needs.
    fn judged(&self, source: &Source) -> Result<RemovedModel> {
        let names = self.files.keys().chain([&source.name]).cloned();
        let mut users = source.needed_by(names)?;
        if let Some(user) = users.remove(&source.name) {
            let reason = format!("`{}` refers to this file: it is not removed", user.display());
            return Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(&source.path));
        }
        let model = FoundFile::new(source.name.clone(), source.path.clone())?;
        let mut report = RemovedModel {
            removed: model.iter().map(FoundFile::removed).collect(),
            kept: Vec::new(),
            warnings: self.warnings.clone(),
        };
        for (location, file) in &self.files {
            match users.remove(location) {
                Some(needed_by) => {
                    report.kept.push(KeptFile { path: file.path.clone(), needed_by });
                }
                None => match file.is_model(source)? {
                    Some(model) => report.warnings.push(model),
                    None => {
                        refuse_other_file_system(source, file)?;
                        report.removed.push(file.removed());
                    }
                },
            }
        }
        Ok(report)
    }
}

/// Refuses a file that cannot be moved away together with the model.
fn refuse_other_file_system(source: &Source, file: &FoundFile) -> Result<()> {
    let folder = file.path.parent().unwrap_or(&source.directory);
    if are_on_one_file_system(folder, &source.directory) {
        return Ok(());
    }
    let reason = "in a folder on another file system than the model: the two cannot be removed in \
                  one step. Delete this file first; a copy of the model can be made before";
    Err(Error::new(ErrorKind::Io, reason).with_path(&file.path))
}

impl FoundFile {
    /// The file at `location`; none where there is none.
    ///
    /// # Errors
    /// For what is not a file below the model's folder.
    fn at(source: &Source, location: &str) -> Result<Option<Self>> {
        let path = source.directory.join(location);
        if is_handle(location) {
            return Ok(None);
        }
        check_location(location).map_err(|error| error.with_path(&path))?;
        let mut folder = source.directory.clone();
        let parts: Vec<_> = location.split('/').collect();
        for part in parts.split_last().map_or(&[][..], |(_, folders)| folders) {
            folder.push(part);
            if is_link(&folder) {
                let reason = "in a folder that is a link";
                return Err(Error::new(ErrorKind::UnsafePath, reason).with_path(path));
            }
        }
        Self::new(location.to_owned(), path)
    }

    fn new(location: String, path: PathBuf) -> Result<Option<Self>> {
        let metadata = match retried(|| path.symlink_metadata()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(|error| Error::io(&path, error))?,
        };
        let is_link = metadata.is_symlink();
        if !is_link && !metadata.is_file() {
            let reason = "not a regular file";
            return Err(Error::new(ErrorKind::UnsafePath, reason).with_path(path));
        }
        let bytes = if is_link { 0 } else { metadata.len() };
        Ok(Some(Self { location, path, bytes, is_link }))
    }

    /// The warning that the file is a model itself. A link goes, whatever it leads to.
    fn is_model(&self, source: &Source) -> Result<Option<Error>> {
        match self.is_link {
            true => Ok(None),
            false => ModelFolder::new(&source.directory, "").is_another_model(&self.path),
        }
    }

    fn removed(&self) -> RemovedFile {
        RemovedFile { path: self.path.clone(), bytes: self.bytes, is_link: self.is_link }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::Container;
    use crate::files::recovery::recover;
    use crate::load::LoadOptions;
    use crate::proto::{GraphProto, Message, ModelProto, TensorProto};
    use crate::save::WeightFiles;

    fn model(folder: &Path, name: &str, locations: &[&str]) {
        let mut graph = GraphProto::new("g");
        for location in locations {
            graph.initializer.push(TensorProto::external(
                *location,
                TensorProto::UINT8,
                [4],
                *location,
            ));
            fs::write(folder.join(location), "data").unwrap();
        }
        fs::write(folder.join(name), ModelProto::new(graph).encode_to_vec().unwrap()).unwrap();
    }

    /// A removal of n.onnx that is killed when the model is away, and its weights are not.
    fn killed(folder: &Path) {
        let staging = StagingFolder::new(folder, "n.onnx").unwrap();
        let names = ["n.onnx.data".to_owned(), "n.onnx".to_owned()];
        let switch = Switch::removal(folder, staging.path(), &names, false).unwrap();
        switch.take_all_away().unwrap();
        let away = staging.path().join("old/n.onnx.data");
        fs::rename(away, folder.join("n.onnx.data")).unwrap();
        staging.keep();
    }

    #[test]
    fn weights_of_a_model_that_a_killed_removal_hides_stay() {
        // Where a file of the other journal cannot be read, nobody knows what its model needs.
        for is_broken in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            model(folder.path(), "m.onnx", &["base"]);
            model(folder.path(), "n.onnx", &["base", "n.onnx.data"]);
            killed(folder.path());
            if is_broken {
                let journal = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
                let journal = journal
                    .filter(|path| path.is_file())
                    .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with('.'));
                fs::write(journal.unwrap(), "no journal").unwrap();
            }
            let done = remove_model(folder.path().join("m.onnx"), FileOptions::new());
            assert!(folder.path().join("base").exists(), "{is_broken}");
            if is_broken {
                let error = done.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
                assert!(folder.path().join("m.onnx").exists());
            } else {
                assert_eq!(done.unwrap().kept[0].needed_by, folder.path().join("n.onnx"));
                assert!(recover(folder.path()).unwrap().errors.is_empty());
                assert!(folder.path().join("n.onnx").exists());
            }
        }
    }

    /// A model of the folder above may be the hidden one.
    #[test]
    fn weights_that_a_hidden_model_above_may_need_stay() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        model(&below, "m.onnx", &["base"]);
        model(folder.path(), "n.onnx", &["below/base", "n.onnx.data"]);
        killed(folder.path());
        let error = remove_model(below.join("m.onnx"), FileOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(below.join("base").exists() && below.join("m.onnx").exists());
        // A save in place removes no file that it replaces by another either.
        let container = Container::load(below.join("m.onnx"), LoadOptions::new()).unwrap();
        let options = SaveOptions::from(WeightFiles::PerTensor).remove_left_behind(true);
        let saved = container.save(below.join("m.onnx"), options).unwrap();
        assert!(saved.warnings.iter().any(|warning| warning.kind() == ErrorKind::Changed));
        assert!(below.join("base").exists());
    }
}
