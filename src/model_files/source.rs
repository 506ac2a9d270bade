//! A model that is moved, copied or removed: its files, and which of them other models need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::buffers::FileIdentity;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{
    Directory, ExternalData, directory_of, is_external, is_handle, is_stripped, refuse_nul,
    without_dots,
};
use crate::files::recovery::recover_for_reading;
use crate::graph::traversal;
use crate::load::LoadOptions;
use crate::model_files::options::FileOptions;
use crate::save::{Existing, ModelFolder, SaveTarget, ids_of, is_any_of, is_at, there};
use crate::util::cancel;
use crate::util::retry::retried;

/// A model and what it refers to.
pub(super) struct Source {
    /// The path as the caller gave it.
    pub(super) path: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) name: String,
    pub(super) container: Container,
    /// The locations of the weights files, without dots.
    pub(super) locations: BTreeSet<String>,
    /// Tensors whose entries cannot be read.
    pub(super) unread: Vec<Error>,
    load: LoadOptions,
    /// Models that need nothing any more.
    gone: Vec<PathBuf>,
    /// Models that go where this one goes.
    together: Vec<PathBuf>,
    /// The locations of files that stayed because of this model, and that go with it.
    pub(super) along: BTreeSet<String>,
    /// The model's file as it was before it was read.
    identity: FileIdentity,
}

/// A file of the model that exists.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    /// The path from the model's folder.
    pub(super) location: String,
    pub(super) path: PathBuf,
    real: PathBuf,
    identity: FileIdentity,
    modified: Option<SystemTime>,
    pub(super) bytes: u64,
}

impl Source {
    /// Reads the model at `path`, without its weights.
    ///
    /// # Errors
    /// Those of [`Container::load`].
    pub(super) fn read(path: &Path, options: &FileOptions) -> Result<Self> {
        let load = options.load.clone().weights(false);
        // A save that was killed is completed before the file is looked at. What is wrong with it,
        // or with the path, the load says.
        drop(recover_for_reading(path));
        let metadata = retried(|| path.metadata());
        let container = Container::load(path, load.clone())?;
        // A text of a few bytes can be a message too, of no known field.
        if container.model().graph.is_none() {
            let reason = "not a model: it has no graph";
            return Err(Error::new(ErrorKind::Decode, reason).with_path(path));
        }
        let metadata = metadata.map_err(|error| Error::io(path, error))?;
        let SaveTarget { directory, name } = SaveTarget::new(path)?;
        let (mut locations, mut unread) = (BTreeSet::new(), Vec::new());
        traversal::tensors(container.model(), |place, tensor| {
            if is_external(tensor) {
                match ExternalData::parse(tensor) {
                    Ok(data) if is_stripped(&data.location) => {}
                    Ok(data) => drop(locations.insert(without_dots(&data.location))),
                    Err(error) => unread.push(error.with_tensor(place.qualified_name(tensor))),
                }
            }
            Ok(())
        })?;
        let identity = FileIdentity::at(path, &metadata);
        let path = path.to_path_buf();
        let (gone, together) = (options.gone().to_vec(), options.together.clone());
        let along = below(&directory, &options.along);
        Ok(Self {
            path,
            directory,
            name,
            container,
            locations,
            unread,
            load,
            gone,
            together,
            along,
            identity,
        })
    }

    /// Every file of the model, the model first.
    ///
    /// # Errors
    /// One error for all tensors and files that cannot be used.
    pub(super) fn files(&self) -> Result<Vec<SourceFile>> {
        let directory = Directory::of_model(&self.path, self.load.paths)?;
        let mut errors = self.unread.clone();
        let mut files = Vec::new();
        match SourceFile::new(self.name.clone(), self.path.clone()) {
            Ok(model) if model.identity.has_the_bytes_of(&self.identity) => files.push(model),
            Ok(_) => return Err(changed(&self.path)),
            Err(error) => errors.push(error),
        }
        for location in &self.locations {
            let found = if is_handle(location) {
                let reason = format!("unresolved handle `{location}`: it names memory, not a file");
                Err(Error::new(ErrorKind::MissingHandle, reason).with_path(&self.path))
            } else {
                // By the rules of links, which its path alone does not know.
                directory
                    .open_file(location)
                    .and_then(|_| SourceFile::new(location.clone(), directory.join(location)))
            };
            match found {
                Ok(file) => files.push(file),
                Err(error) => errors.push(error),
            }
        }
        Error::join(errors).map_or(Ok(files), Err)
    }

    /// For each of the files `names`, which are paths from the model's folder, that another model
    /// needs, the path of one such model.
    pub(super) fn needed_by(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let users = other_models_that_need(&self.path, names)?.into_iter();
        let stays = |user: &PathBuf| !self.gone.iter().any(|gone| is_at(user, gone));
        let first =
            |(name, users): (String, Vec<PathBuf>)| Some((name, users.into_iter().find(stays)?));
        Ok(users.filter_map(first).collect())
    }

    /// Those of the files `names` that only models need which go where this one goes.
    pub(super) fn go_together(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<BTreeSet<String>> {
        if self.together.is_empty() {
            return Ok(BTreeSet::new());
        }
        let users = other_models_that_need(&self.path, names)?.into_iter();
        let goes = |user: &PathBuf| self.together.iter().any(|model| is_at(user, model));
        Ok(users.filter(|(_, users)| users.iter().all(goes)).map(|(name, _)| name).collect())
    }

    /// The folders that the files `names` are in.
    pub(super) fn folders<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<Vec<PathBuf>> {
        let below = names.filter_map(|name| Some(name.rsplit_once('/')?.0));
        let below: BTreeSet<_> = below.collect();
        let mut folders = vec![self.directory.clone()];
        for folder in below.into_iter().map(|below| self.directory.join(below)) {
            let found = there(&folder, retried(|| folder.metadata()))?;
            folders.extend(found.filter(std::fs::Metadata::is_dir).map(|_| folder));
        }
        Ok(folders)
    }

    /// Refuses where the model's file is not the one that was read any more.
    pub(super) fn check_model(&self) -> Result<()> {
        let is_same = still_has_the_bytes_of(&self.path, &self.identity);
        if is_same { Ok(()) } else { Err(changed(&self.path)) }
    }
}

/// For each of the files `locations` of the model at `path`, as the model names them, that other
/// models need too, these models: in the folder of the file, and in the folders above.
///
/// ```
/// use onnx_container::model_files::other_models_that_need;
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
///
/// let folder = tempfile::tempdir().unwrap();
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "shared"));
/// let model = ModelProto::new(graph).encode_to_vec()?;
/// let [a, b] = ["a.onnx", "b.onnx"].map(|name| folder.path().join(name));
/// for path in [&a, &b] {
///     std::fs::write(path, &model).unwrap();
/// }
/// let users = other_models_that_need(&a, ["shared".to_owned()])?;
/// assert_eq!(users["shared"], [b]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Io`] when a folder cannot be listed, or a file in it cannot be read, which may be a
/// model that needs the files.
pub fn other_models_that_need(
    path: impl AsRef<Path>,
    locations: impl IntoIterator<Item = String>,
) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let path = path.as_ref();
    refuse_nul(path)?;
    ModelFolder::new(&directory_of(path), "").users_below(locations, Some(path))
}

/// Those of `files`, which are real paths, that are below `directory`, as locations.
fn below(directory: &Path, files: &[PathBuf]) -> BTreeSet<String> {
    let Ok(directory) = retried(|| directory.canonicalize()) else { return BTreeSet::new() };
    let locations = files.iter().filter_map(|file| file.strip_prefix(&directory).ok()?.to_str());
    locations.map(|location| location.replace(std::path::MAIN_SEPARATOR, "/")).collect()
}

/// How many bytes of two files are compared at once.
const CHUNK: usize = 1 << 20;

/// Reads until `buffer` is full or the file ends; returns how many bytes it has.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match retried(|| file.read(rest))? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Whether the file at `path` is the one of `identity`, and nobody wrote to it.
pub(super) fn still_has_the_bytes_of(path: &Path, identity: &FileIdentity) -> bool {
    let now = retried(|| path.metadata()).map(|metadata| FileIdentity::at(path, &metadata));
    now.is_ok_and(|now| now.has_the_bytes_of(identity))
}

fn changed(path: &Path) -> Error {
    let reason = "was changed by another program meanwhile";
    Error::new(ErrorKind::Changed, reason).with_path(path)
}

impl SourceFile {
    pub(super) fn new(location: String, path: PathBuf) -> Result<Self> {
        let fail = |error| Error::io(&path, error);
        let real = retried(|| path.canonicalize()).map_err(fail)?;
        let metadata = retried(|| real.metadata()).map_err(fail)?;
        let (identity, modified) = (FileIdentity::at(&real, &metadata), metadata.modified().ok());
        Ok(Self { location, real, identity, modified, bytes: metadata.len(), path })
    }

    /// The file as a source of bytes.
    pub(super) fn existing(&self, may_link: bool) -> Existing {
        let Self { real, identity, modified, bytes, .. } = self.clone();
        Existing { path: real, identity, modified, len: bytes, may_link }
    }

    /// Refuses where the file is not the one that was found any more.
    pub(super) fn check(&self) -> Result<()> {
        let is_same = still_has_the_bytes_of(&self.path, &self.identity);
        if is_same { Ok(()) } else { Err(changed(&self.path)) }
    }

    /// Whether both are names of one file.
    pub(super) fn is_one_with(&self, other: &Self) -> Result<bool> {
        is_any_of(&self.real, &ids_of([&other.real])?)
    }

    /// Whether both have the same bytes. Reads both, up to the first difference.
    pub(super) fn has_the_bytes_of(&self, other: &Self) -> Result<bool> {
        if self.bytes != other.bytes {
            return Ok(false);
        }
        let open = |file: &Self| {
            retried(|| File::open(&file.real)).map_err(|error| Error::io(&file.path, error))
        };
        let (mut a, mut b) = (open(self)?, open(other)?);
        let (mut of_a, mut of_b) = (vec![0; CHUNK], vec![0; CHUNK]);
        loop {
            cancel::check()?;
            let read = read_full(&mut a, &mut of_a).map_err(|e| Error::io(&self.path, e))?;
            let other_read = read_full(&mut b, &mut of_b).map_err(|e| Error::io(&other.path, e))?;
            if of_a.get(..read) != of_b.get(..other_read) {
                return Ok(false);
            }
            if read < CHUNK {
                return Ok(true);
            }
        }
    }

    /// Whether the file has a second name in the folder `directory` if the file system has such
    /// names.
    pub(super) fn can_link_to(&self, directory: &Path) -> bool {
        are_on_one_file_system(&self.real, directory)
    }

    /// The real path of the file, for access.
    pub(super) fn real(&self) -> &Path {
        &self.real
    }
}

/// Whether a file may be moved from one of two places to the other, as far as paths tell.
pub(super) fn are_on_one_file_system(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let device = |path: &Path| retried(|| path.metadata()).map(|metadata| metadata.dev());
        matches!((device(a), device(b)), (Ok(a), Ok(b)) if a == b)
    }
    #[cfg(not(unix))]
    {
        a.exists() && b.is_dir()
    }
}
