//! A model is removed with the weights files that no other model needs, in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, is_handle};
use crate::files::recovery::{FolderLock, StagingFolder, Switch, recover_all, refuse_journaled};
use crate::model_files::options::FileOptions;
use crate::model_files::report::{KeptFile, RemovedFile, RemovedModel};
use crate::model_files::source::Source;
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
        false => removed(&source, &found, &options.save, &|| source.check_model()),
    }
}

/// Removes the files of `source` that no other model needs, except those for which `stays` holds.
/// Removes none where `unchanged` fails.
pub(super) fn remove_source(
    source: &Source,
    stays: impl Fn(&str) -> bool,
    options: &SaveOptions,
    unchanged: &dyn Fn() -> Result<()>,
) -> Result<RemovedModel> {
    removed(source, &Found::of(source).without(stays), options, unchanged)
}

/// The names, from the model's folder, of the files of `source` that are no links and that
/// [`remove_source`] removes.
pub(super) fn leaving(source: &Source, stays: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let found = Found::of(source).without(stays);
    let report = found.judged(source)?;
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
    unchanged: &dyn Fn() -> Result<()>,
) -> Result<RemovedModel> {
    let folders = source.folders(found.files.keys().map(String::as_str));
    let locks = options.lock_all(&folders)?;
    if locks.iter().all(FolderLock::is_held) {
        // What another model needs is known when it is in place.
        recover_all(&source.directory, None)?;
    }
    refuse_hidden(&folders)?;
    unchanged()?;
    let mut report = found.judged(source)?;
    let is_removed =
        |file: &&FoundFile| report.removed.iter().any(|removed| removed.path == file.path);
    let mut names: Vec<_> =
        found.files.values().filter(is_removed).map(|file| file.location.clone()).collect();
    // The last one of a switch.
    names.push(source.name.clone());
    refuse_journaled(&source.directory, &source.name, &names)?;
    report.warnings.extend(take_away(source, &names, options.sync)?);
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
        for location in source.locations.iter().filter(|location| **location != source.name) {
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
                None => report.removed.push(file.removed()),
            }
        }
        Ok(report)
    }
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

    fn removed(&self) -> RemovedFile {
        RemovedFile { path: self.path.clone(), bytes: self.bytes, is_link: self.is_link }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::recovery::recover;
    use crate::proto::{GraphProto, Message, ModelProto, TensorProto};

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
    }
}
