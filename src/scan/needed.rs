//! The models with their files, and which files of the tree any model needs: a model of the tree or
//! of a folder above it, or one that is hidden because a save of it was interrupted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::content::Content;
use super::names::is_named_as_a_model;
use super::report::{FileState, LeftFile, LeftKind, ScannedFile, ScannedModel};
use super::tree::{Place, Tree};
use crate::error::{Error, Result};
use crate::files::external_data::{check_location, directory_of, is_handle, is_stripped};
use crate::save::{Base, FileId, file_ids, leads_nowhere, skim_any};
use crate::util::retry::retried;

/// What models need.
#[derive(Default)]
pub(super) struct Needed {
    pub(super) models: Vec<ScannedModel>,
    /// The numbers of the files of the tree.
    files: HashSet<usize>,
    /// The lengths of files elsewhere.
    elsewhere: HashMap<FileId, u64>,
    /// Folders with what may be a model and cannot be read: which files it needs is not known.
    unclear: BTreeSet<PathBuf>,
    pub(super) errors: Vec<Error>,
}

impl Needed {
    /// What the models of `tree` need, whose files have the `contents`, and those that what saves
    /// `left` hides, and those of the folders above `root`.
    pub(super) fn find(tree: &Tree, contents: &[Content], left: &[LeftFile], root: &Path) -> Self {
        let mut needed = Self::default();
        for (file, content) in contents.iter().enumerate() {
            match content {
                Content::Unread(_) | Content::Model { is_whole: false, .. } => {
                    needed.unclear.extend(tree.places_of(file).map(Place::folder));
                    needed.add_models(tree, contents, file);
                }
                // One that is called as a model needs what nobody knows.
                Content::NotDownloaded(_)
                    if tree.places_of(file).any(|it| is_named_as_a_model(&it.name())) =>
                {
                    needed.unclear.extend(tree.places_of(file).map(Place::folder));
                }
                Content::Index(locations) => {
                    for place in tree.places_of(file) {
                        locations.iter().for_each(|it| needed.take(tree, &place.folder(), it));
                    }
                }
                Content::Model { .. } => needed.add_models(tree, contents, file),
                _ => {}
            }
        }
        needed.models.sort_by(|a, b| a.path.cmp(&b.path));
        needed.name_same_files(tree);
        left.iter().for_each(|left| needed.add_hidden(tree, left));
        needed.add_above(tree, root);
        needed
    }

    /// Whether a model needs the file of this number.
    pub(super) fn has(&self, file: usize) -> bool {
        self.files.contains(&file)
    }

    /// The numbers of the files of the tree that models need.
    pub(super) fn files(&self) -> impl Iterator<Item = usize> {
        self.files.iter().copied()
    }

    /// Whether a model that cannot be read may need files of `folder`.
    pub(super) fn is_unclear(&self, folder: &Path) -> bool {
        self.unclear.iter().any(|unclear| folder.starts_with(unclear))
    }

    /// The bytes of all files of the tree, and of those elsewhere that its models reach.
    pub(super) fn all_bytes(&self, tree: &Tree, contents: &[Content]) -> u64 {
        let counts =
            |file: usize| self.has(file) || contents.get(file).is_some_and(Content::is_model);
        let files = tree.files.iter().enumerate();
        let own =
            files.filter(|(file, of)| of.is_inside() || counts(*file)).map(|(_, of)| of.bytes);
        own.chain(self.elsewhere.values().copied()).fold(0, u64::saturating_add)
    }

    /// Adds the model in the file of this number, at each place by which it is shown.
    fn add_models(&mut self, tree: &Tree, contents: &[Content], file: usize) {
        let (Some(Content::Model { needed_bytes, is_whole, .. }), Some(own)) =
            (contents.get(file), tree.files.get(file))
        else {
            return;
        };
        for place in tree.shown(file) {
            let folder = place.folder();
            let weights = |(location, needed): (&String, &u64)| {
                self.weights(tree, contents, &folder, location).held_to(*needed)
            };
            let files: Vec<_> = needed_bytes.iter().map(weights).collect();
            let is_there = files.iter().all(|file| file.state == FileState::Present);
            self.models.push(ScannedModel {
                path: place.path.clone(),
                bytes: own.bytes,
                files,
                link_to: place.link_to.clone(),
                same_file_as: None,
                is_whole: *is_whole && is_there,
                is_damaged: !is_whole,
            });
        }
    }

    /// Says of each model whether an earlier one is the same file.
    fn name_same_files(&mut self, tree: &Tree) {
        let mut first: HashMap<FileId, PathBuf> = HashMap::new();
        for model in &mut self.models {
            let Some(id) = file_ids(&model.path)
                .unwrap_or_default()
                .pop()
                .filter(|id| tree.file_of(id).is_some())
            else {
                continue;
            };
            match first.get(&id) {
                Some(path) => model.same_file_as = Some(path.clone()),
                None => drop(first.insert(id, model.path.clone())),
            }
        }
    }

    /// The weights file at `location` of a model in `folder`.
    fn weights(
        &mut self,
        tree: &Tree,
        contents: &[Content],
        folder: &Path,
        location: &str,
    ) -> ScannedFile {
        let path = folder.join(location);
        let mut file = ScannedFile {
            path: path.clone(),
            location: location.to_owned(),
            bytes: 0,
            state: FileState::Refused,
            reason: None,
        };
        if is_handle(location) {
            file.reason = Some("names memory, not a file".to_owned());
            return file;
        }
        if is_stripped(location) {
            file.state = FileState::Stripped;
            file.reason = Some("the weights were stripped: attach puts them back".to_owned());
            return file;
        }
        if let Err(error) = check_location(location) {
            file.reason = Some(error.reason().to_owned());
            return file;
        }
        match retried(|| path.metadata()) {
            Ok(metadata) if metadata.is_file() => {
                (file.bytes, file.state) = (metadata.len(), FileState::Present);
                let number = self.take_path(tree, &path, metadata.len());
                if let Some(Content::NotDownloaded(what)) =
                    number.and_then(|number| contents.get(number))
                {
                    (file.state, file.reason) = (FileState::Wrong, Some((*what).to_owned()));
                }
            }
            Ok(_) => file.reason = Some("not a regular file".to_owned()),
            Err(error) => {
                if leads_nowhere(&error) {
                    file.state = FileState::Missing;
                }
                file.reason = Some(Error::io(&path, error).reason().to_owned());
            }
        }
        file
    }

    /// Notes that the file at `path` is needed, which has `bytes` bytes. Returns its number, if it
    /// is one of the tree.
    fn take_path(&mut self, tree: &Tree, path: &Path, bytes: u64) -> Option<usize> {
        let id = file_ids(path).unwrap_or_default().pop()?;
        let number = tree.file_of(&id);
        match number {
            Some(number) => drop(self.files.insert(number)),
            None => drop(self.elsewhere.insert(id, bytes)),
        }
        number
    }

    /// Notes that a file of the tree is needed, where `location` leads to one from `folder`.
    fn take(&mut self, tree: &Tree, folder: &Path, location: &str) {
        if check_location(location).is_err() {
            return;
        }
        let id = file_ids(&folder.join(location)).unwrap_or_default().pop();
        if let Some(number) = id.and_then(|id| tree.file_of(&id)) {
            self.files.insert(number);
        }
    }

    /// Notes what the models need that are in a staging folder of a save which was interrupted
    /// while it put files in place, or which is running.
    fn add_hidden(&mut self, tree: &Tree, left: &LeftFile) {
        if left.kind == LeftKind::Unneeded || !left.path.is_dir() {
            return;
        }
        // The weights of a job are in its folder, and a load of its model is a later matter.
        if matches!(left.kind, LeftKind::Job | LeftKind::Committed) {
            return;
        }
        let folder = directory_of(&left.path);
        let mut look = |part: &str| -> Result<()> {
            for path in files_in(&left.path.join(part))? {
                for location in &skim_any(&path)?.locations {
                    self.take(tree, &folder, location);
                }
            }
            Ok(())
        };
        if let Err(error) = look("new").and_then(|()| look("old")) {
            self.unclear.insert(folder);
            self.errors.push(error);
        }
    }

    /// Notes what the models need that are in folders above `root`.
    fn add_above(&mut self, tree: &Tree, root: &Path) {
        let Ok(real) = retried(|| root.canonicalize()) else { return };
        for base in Base::all(root, &real, 0).into_iter().filter(|base| !base.is_own) {
            let files = match files_in(&base.path) {
                Ok(files) => files,
                Err(error) => {
                    self.add_unread(&base, root, &base.path, error);
                    continue;
                }
            };
            for path in files {
                match skim_any(&path) {
                    Ok(found) => {
                        found.locations.iter().for_each(|it| self.take(tree, &base.path, it));
                    }
                    Err(error) => self.add_unread(&base, root, &path, error),
                }
            }
        }
    }

    /// Notes that `path` in a folder above `root` cannot be read.
    fn add_unread(&mut self, base: &Base, root: &Path, path: &Path, error: Error) {
        if !base.passes_error(&error, path) {
            self.unclear.insert(root.to_path_buf());
            self.errors.push(error);
        }
    }
}

/// The files and links in `folder`; none where there is no such folder.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match retried(|| std::fs::read_dir(folder)) {
        Err(error) if leads_nowhere(&error) => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::io(folder, error))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io(folder, error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_symlink()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
