//! The files below a folder, each once however many names it has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::error::{Error, ErrorKind};
use crate::files::external_data::directory_of;
use crate::files::recovery::{is_left_by_saves, is_staging_folder};
use crate::save::{FileId, file_ids, leads_nowhere};
use crate::util::file_id;
use crate::util::retry::retried;

/// A folder in which nothing is looked at: its objects are copies of files that are elsewhere.
const NOT_ENTERED: &str = ".git";

/// What is below a folder.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) folders: Vec<PathBuf>,
    /// Every path to a regular file, in the order of the walk.
    pub(super) places: Vec<Place>,
    pub(super) files: Vec<File>,
    by_id: HashMap<FileId, usize>,
    /// Folders in which saves left something.
    pub(super) with_leftovers: BTreeSet<PathBuf>,
    pub(super) dangling: Vec<Error>,
    pub(super) errors: Vec<Error>,
}

/// A path to a file.
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Where the path leads, if it is a link.
    pub(super) link_to: Option<PathBuf>,
}

impl Place {
    /// The folder of the path.
    pub(super) fn folder(&self) -> PathBuf {
        directory_of(&self.path)
    }

    /// Whether it is a file in a cache of Hugging Face: `blobs/` and the digits of its digest.
    fn is_blob(&self) -> bool {
        let name = self.name();
        let is_digest = [40, 64].contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            && self.link_to.is_none();
        is_digest && self.snapshots().is_some()
    }

    /// The folder of the snapshots, where this is in the folder of the blobs beside it.
    fn snapshots(&self) -> Option<PathBuf> {
        let blobs = self.path.parent()?;
        let snapshots = blobs.parent()?.join("snapshots");
        (blobs.file_name()? == "blobs" && snapshots.is_dir()).then_some(snapshots)
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl File {
    /// Whether it has a name below the folder that is no link.
    pub(super) fn is_inside(&self) -> bool {
        self.own_names > 0
    }
}

/// A file, whatever its names are.
pub(super) struct File {
    pub(super) bytes: u64,
    /// How many names it has on its file system, links not counted.
    pub(super) names: u64,
    /// How many of these are below the folder.
    pub(super) own_names: u64,
    /// The numbers of the places that lead to it.
    pub(super) places: Vec<usize>,
}

impl Tree {
    /// Everything below `root`, which is a folder. Links to folders are not followed.
    pub(super) fn walk(root: &Path) -> Self {
        let mut tree = Self::default();
        let mut walk = WalkDir::new(root).sort_by_file_name().into_iter();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) if entry.file_type().is_dir() && entry.depth() > 0 => {
                    if !tree.enters(&entry) {
                        walk.skip_current_dir();
                    }
                }
                Ok(entry) if entry.file_type().is_dir() => tree.folders.push(entry.into_path()),
                Ok(entry) => tree.add(entry),
                Err(error) => tree.errors.push(of_walk(error, root)),
            }
        }
        tree
    }

    /// The places by which the file of this number is shown: of a file in a cache of Hugging Face,
    /// the links of the snapshots, and none where a snapshot could have one and has not.
    pub(super) fn shown(&self, file: usize) -> Vec<&Place> {
        let (blobs, others): (Vec<_>, Vec<_>) =
            self.places_of(file).partition(|place| place.is_blob());
        let is_stray = |place: &&Place| place.snapshots().is_some_and(|it| self.has(&it));
        if others.is_empty() && !blobs.iter().any(is_stray) { blobs } else { others }
    }

    /// Whether `folder` was walked through.
    fn has(&self, folder: &Path) -> bool {
        self.folders.iter().any(|walked| walked == folder)
    }

    /// The number of the file of this identity.
    pub(super) fn file_of(&self, id: &FileId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The places that lead to the file of this number.
    pub(super) fn places_of(&self, file: usize) -> impl Iterator<Item = &Place> {
        let places = self.files.get(file).map(|file| &file.places).into_iter().flatten();
        places.filter_map(|place| self.places.get(*place))
    }

    /// Notes a folder; whether what is below it is looked at.
    fn enters(&mut self, entry: &DirEntry) -> bool {
        if entry.file_name() == NOT_ENTERED {
            return false;
        }
        if is_staging_folder(entry.path()) {
            self.with_leftovers.insert(directory_of(entry.path()));
            return false;
        }
        self.folders.push(entry.path().to_path_buf());
        true
    }

    /// Notes a file, or a link to one.
    fn add(&mut self, entry: DirEntry) {
        let (is_link, path) = (entry.file_type().is_symlink(), entry.path());
        if !is_link && !entry.file_type().is_file() {
            return;
        }
        if !is_link && entry.file_name().to_str().is_some_and(is_left_by_saves) {
            self.with_leftovers.insert(directory_of(path));
            return;
        }
        match retried(|| path.metadata()) {
            Ok(metadata) if metadata.is_file() => {
                let link_to = is_link.then(|| path.read_link().unwrap_or_default());
                self.add_file(entry.into_path(), &metadata, link_to);
            }
            // A link to a folder, which is not followed, or to a device.
            Ok(_) => {}
            Err(error) if is_link && leads_nowhere(&error) => {
                let said = Error::io(path, error).reason().to_owned();
                self.dangling.push(Error::new(ErrorKind::MissingFile, said).with_path(path));
            }
            // A file that another program removed meanwhile is not there.
            Err(error) if leads_nowhere(&error) => {}
            Err(error) => self.errors.push(Error::io(path, error)),
        }
    }

    fn add_file(&mut self, path: PathBuf, metadata: &Metadata, link_to: Option<PathBuf>) {
        let Some(id) = file_ids(&path).unwrap_or_default().pop() else { return };
        let new = self.files.len();
        let file = *self.by_id.entry(id).or_insert(new);
        if file == new {
            let (bytes, names) = (metadata.len(), file_id::name_count_at(&path, metadata));
            self.files.push(File {
                bytes,
                names: names.unwrap_or(1),
                own_names: 0,
                places: Vec::new(),
            });
        }
        if let Some(file) = self.files.get_mut(file) {
            file.places.push(self.places.len());
            file.own_names += u64::from(link_to.is_none());
        }
        self.places.push(Place { path, link_to });
    }

    /// The bytes of the file `path`, or of the files below the folder `path`: of none that is
    /// `known`, to which they are added, and of none that has a name in the tree, where it counts.
    pub(super) fn bytes_below(&self, path: &Path, known: &mut HashSet<FileId>) -> u64 {
        let files =
            WalkDir::new(path).into_iter().flatten().filter(|entry| entry.file_type().is_file());
        let is_new = |entry: &DirEntry| match file_ids(entry.path()).unwrap_or_default().pop() {
            Some(id) => self.file_of(&id).is_none() && known.insert(id),
            None => true,
        };
        let lengths = files.filter(is_new).filter_map(|entry| Some(entry.metadata().ok()?.len()));
        lengths.fold(0, u64::saturating_add)
    }
}

/// The error of a walk below `root`.
fn of_walk(error: walkdir::Error, root: &Path) -> Error {
    let path = error.path().unwrap_or(root).to_path_buf();
    match error.into_io_error() {
        Some(error) => Error::io(path, error),
        None => Error::internal("a loop of links that are not followed").with_path(path),
    }
}
