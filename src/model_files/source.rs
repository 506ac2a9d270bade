//! A model that is moved, copied or removed: its files, and which of them other models need.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::save::{Existing, ModelFolder, SaveTarget, is_at};
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
        let identity = FileIdentity::new(&metadata);
        let path = path.to_path_buf();
        let gone = options.gone().to_vec();
        Ok(Self { path, directory, name, container, locations, unread, load, gone, identity })
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

    /// The folders that the files `names` are in.
    pub(super) fn folders<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<PathBuf> {
        let below = names.filter_map(|name| Some(name.rsplit_once('/')?.0));
        let below: BTreeSet<_> = below.collect();
        let below = below.into_iter().map(|below| self.directory.join(below));
        std::iter::once(self.directory.clone()).chain(below).filter(|path| path.is_dir()).collect()
    }

    /// Refuses where the model's file is not the one that was read any more.
    pub(super) fn check_model(&self) -> Result<()> {
        let now = retried(|| self.path.metadata()).map(|metadata| FileIdentity::new(&metadata));
        let is_same = now.is_ok_and(|now| now.has_the_bytes_of(&self.identity));
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
    let mut folders: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for location in locations {
        let plain = without_dots(&location);
        let (folder, file) = plain.rsplit_once('/').unwrap_or(("", &plain));
        folders.entry(folder.to_owned()).or_default().push((file.to_owned(), location));
    }
    let mut needed = BTreeMap::new();
    for (below, files) in folders {
        let directory = match &*below {
            "" => directory_of(path),
            below => directory_of(path).join(below),
        };
        if !directory.is_dir() {
            continue;
        }
        let names: Vec<_> = files.iter().map(|(file, _)| file.clone()).collect();
        let users = ModelFolder::new(&directory, "").all_other_users(&names, Some(path))?;
        needed.extend(
            files
                .into_iter()
                .filter_map(|(file, location)| Some((location, users.get(&file)?.clone()))),
        );
    }
    Ok(needed)
}

fn changed(path: &Path) -> Error {
    let reason = "was changed by another program meanwhile";
    Error::new(ErrorKind::Changed, reason).with_path(path)
}

impl SourceFile {
    fn new(location: String, path: PathBuf) -> Result<Self> {
        let fail = |error| Error::io(&path, error);
        let real = retried(|| path.canonicalize()).map_err(fail)?;
        let metadata = retried(|| real.metadata()).map_err(fail)?;
        let (identity, modified) = (FileIdentity::new(&metadata), metadata.modified().ok());
        Ok(Self { location, real, identity, modified, bytes: metadata.len(), path })
    }

    /// The file as a source of bytes.
    pub(super) fn existing(&self, may_link: bool) -> Existing {
        let Self { real, identity, modified, bytes, .. } = self.clone();
        Existing { path: real, identity, modified, len: bytes, may_link }
    }

    /// Refuses where the file is not the one that was found any more.
    pub(super) fn check(&self) -> Result<()> {
        let now = retried(|| self.path.metadata()).map(|metadata| FileIdentity::new(&metadata));
        let is_same = now.is_ok_and(|now| now.has_the_bytes_of(&self.identity));
        if is_same { Ok(()) } else { Err(changed(&self.path)) }
    }

    /// Whether the file has a second name in the folder `directory` if the file system has such
    /// names.
    pub(super) fn can_link_to(&self, directory: &Path) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let device = |path: &Path| retried(|| path.metadata()).map(|metadata| metadata.dev());
            let devices = (device(&self.real), device(directory));
            matches!(devices, (Ok(a), Ok(b)) if a == b)
        }
        #[cfg(not(unix))]
        {
            directory.is_dir()
        }
    }

    /// The real path of the file, for access.
    pub(super) fn real(&self) -> &Path {
        &self.real
    }
}
