//! [`save_encoded`]: a model and weights files whose bytes the caller has made, saved as a
//! container is: all of them are replaced or none, whenever the process ends.
//!
//! The files may be in folders below the model's. Which bytes they have, and where in them the
//! model finds its tensors, is the caller's business. Within the library, files may also be those
//! of another model: `existing`.

pub(crate) mod existing;

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, without_dots};
use crate::files::recovery::{FolderLock, staged_name};
use crate::save::encode::refuse_empty;
use crate::save::encoded::existing::{Existing, Placed};
use crate::save::options::SaveOptions;
use crate::save::planned_save::Needed;
use crate::save::target::access::Access;
use crate::save::target::folder::{ModelFolder, Request};
use crate::save::target::publish::{NewFile, Published, Staging};
use crate::save::target::skim::locations;
use crate::save::target::{SaveTarget, SavedFile};
use crate::save::write::meter::{Meter, Metered};
use crate::util::names::fold_case;
use crate::util::retry::exists;

/// A weights file for [`save_encoded`].
#[derive(Debug, Clone)]
pub struct EncodedFile {
    location: String,
    content: Content,
    replace_unneeded: bool,
}

/// The bytes of a file.
#[derive(Debug, Clone)]
enum Content {
    /// In memory; a new file has this access where it replaces none.
    Parts(Vec<Buffer>, Option<NewAccess>),
    Existing(Existing),
}

/// The access to a file that is new in its place.
#[derive(Debug, Clone)]
pub(crate) enum NewAccess {
    /// That of a file that moves.
    Same(Access),
    /// No more than the original has, as for a copy.
    AtMost(Access),
}

impl EncodedFile {
    /// The file `location`, a path from the model's folder, with the bytes of all `parts`. Folders
    /// in the path have to be there.
    pub fn new(location: impl Into<String>, parts: impl IntoIterator<Item = Buffer>) -> Self {
        let content = Content::Parts(parts.into_iter().collect(), None);
        Self { location: location.into(), content, replace_unneeded: false }
    }

    /// The file `location` with the bytes of one that exists.
    pub(crate) fn existing(location: impl Into<String>, existing: Existing) -> Self {
        let content = Content::Existing(existing);
        Self { location: location.into(), content, replace_unneeded: false }
    }

    /// The same file with this access, where it replaces none.
    pub(crate) fn access(mut self, access: Option<NewAccess>) -> Self {
        if let Content::Parts(_, of_new) = &mut self.content {
            *of_new = access;
        }
        self
    }

    /// Whether an existing file of this name is replaced even if no model needs it, as where the
    /// user chose the name. Default false.
    #[must_use]
    pub fn replace_unneeded(mut self, replace: bool) -> Self {
        self.replace_unneeded = replace;
        self
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Parts(parts, _) => {
                parts.iter().map(|part| part.len() as u64).fold(0, u64::saturating_add)
            }
            Content::Existing(existing) => existing.len,
        }
    }

    /// How many bytes are certain to be written.
    fn new_bytes(&self) -> u64 {
        match &self.content {
            Content::Parts(..) => self.len(),
            Content::Existing(_) => 0,
        }
    }
}

/// Writes the encoded `model` to `path` and `files` to their locations. Returns the warnings.
///
/// As by [`Container::save`](crate::Container::save), old files are replaced when all new ones are
/// complete, a save that was killed is completed or undone by the next program that reads the
/// model, and no file that another model needs is replaced. Options about the contents and names of
/// files are ignored.
///
/// ```
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
/// use onnx_container::save::{EncodedFile, save_encoded};
/// use onnx_container::{Container, MmapChoice, SaveOptions};
///
/// let folder = tempfile::tempdir().unwrap();
/// std::fs::create_dir(folder.path().join("weights")).unwrap();
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "weights/w"));
/// let model = ModelProto::new(graph).encode_to_vec()?;
///
/// let path = folder.path().join("m.onnx");
/// let file = EncodedFile::new("weights/w", [vec![1].into(), vec![2].into()]);
/// save_encoded(&path, &model.into(), &[file], SaveOptions::new())?;
/// assert_eq!(Container::load(&path, MmapChoice::never())?.get("#w").unwrap().byte_len(), 2);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where two files are one, and [`ErrorKind::UnsafePath`] for a
/// location that is no file below the model's folder, or that leads through a link. Others as those
/// of [`Container::save`](crate::Container::save).
pub fn save_encoded(
    path: impl AsRef<Path>,
    model: &Buffer,
    files: &[EncodedFile],
    options: impl Into<SaveOptions>,
) -> Result<Vec<Error>> {
    let options = options.into();
    refuse_empty(model.len() as u64)?;
    let target = SaveTarget::new(path.as_ref())?;
    let model = EncodedFile::new(target.name.as_str(), [model.clone()]);
    let save = EncodedSave::new(target, &model, files, &options)?;
    let mut warnings = save.prepare()?;
    warnings.extend(save.write()?.warnings);
    Ok(warnings)
}

/// What an [`EncodedSave`] did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// How each file got its bytes, the model last.
    pub(crate) placed: Vec<Placed>,
    /// The old weights files that were removed.
    pub(crate) removed: Vec<PathBuf>,
    /// The old weights files that no model needs and that stay.
    pub(crate) left_behind: Vec<PathBuf>,
    pub(crate) warnings: Vec<Error>,
    /// The locks under which the files were put in place.
    pub(crate) locks: Vec<FolderLock>,
}

/// The files of the save by their paths from the model's folder, the model last.
fn listed(
    target: &SaveTarget,
    model: &EncodedFile,
    files: &[EncodedFile],
) -> Result<Vec<SavedFile>> {
    let mut taken = HashSet::from([fold_case(&target.name)]);
    let mut listed = Vec::with_capacity(files.len().saturating_add(1));
    for file in files {
        check_location(&file.location)?;
        let name = without_dots(&file.location);
        if !taken.insert(fold_case(&staged_name(&name))) {
            let reason = "two files of the save have this place";
            let path = target.directory.join(name);
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path));
        }
        listed.push(SavedFile::new(name, file.len()));
    }
    listed.push(SavedFile::new(target.name.as_str(), model.len()));
    Ok(listed)
}

/// A save of files that need no plan.
pub(crate) struct EncodedSave<'a> {
    target: SaveTarget,
    folder: ModelFolder,
    model: &'a EncodedFile,
    given: &'a [EncodedFile],
    /// All files, the model last.
    files: Vec<SavedFile>,
    /// Those of them that are in the model's folder.
    beside: Vec<SavedFile>,
    /// The files that the caller named.
    asked: BTreeSet<String>,
    /// No file is read for this save.
    nothing: Container,
    /// Other folders that no save may change meanwhile.
    locked: Vec<PathBuf>,
    /// Fails where what the caller read has changed.
    unchanged: Option<&'a dyn Fn() -> Result<()>>,
    options: &'a SaveOptions,
}

impl<'a> EncodedSave<'a> {
    pub(crate) fn new(
        target: SaveTarget,
        model: &'a EncodedFile,
        given: &'a [EncodedFile],
        options: &'a SaveOptions,
    ) -> Result<Self> {
        let files = listed(&target, model, given)?;
        let beside = files.iter().filter(|file| !file.name.contains('/')).cloned().collect();
        let asked = given.iter().filter(|file| file.replace_unneeded);
        let asked = asked.map(|file| without_dots(&file.location)).collect();
        let (folder, nothing) = (ModelFolder::of(&target), Container::default());
        Ok(Self {
            target,
            folder,
            model,
            given,
            files,
            beside,
            asked,
            nothing,
            locked: Vec::new(),
            unchanged: None,
            options,
        })
    }

    /// The save of files that were read in `folders`: these are locked while files are renamed, and
    /// nothing is done where `unchanged` fails.
    pub(crate) fn reading(
        mut self,
        folders: Vec<PathBuf>,
        unchanged: &'a dyn Fn() -> Result<()>,
    ) -> Self {
        (self.locked, self.unchanged) = (folders, Some(unchanged));
        self
    }

    /// Completes or undoes what killed saves left, and refuses what must not be replaced; returns
    /// warnings.
    pub(crate) fn prepare(&self) -> Result<Vec<Error>> {
        let mut warnings = self.folder.recover(self.options)?;
        warnings.extend(self.folder.check_recovered(&self.beside(), self.options)?);
        self.folder.check_below(&self.all())?;
        let given = self.given.iter().chain([self.model]).map(EncodedFile::new_bytes);
        self.target.check_space(given.fold(0, u64::saturating_add))?;
        Ok(warnings)
    }

    /// Refuses what [`prepare`](Self::prepare) refuses, and changes nothing. Folders below that are
    /// not there yet are not looked at.
    pub(crate) fn check(&self) -> Result<()> {
        self.folder.check(&self.beside(), self.options)?;
        let is_there = |file: &&SavedFile| match file.name.rsplit_once('/') {
            Some((folder, _)) => self.target.directory.join(folder).exists(),
            None => true,
        };
        let files: Vec<_> = self.files.iter().filter(is_there).cloned().collect();
        self.folder.check_below(&Request { files: &files, ..self.all() })
    }

    /// What is requested of the model's folder.
    fn beside(&self) -> Request<'_> {
        Request { files: &self.beside, ..self.all() }
    }

    /// What is requested of the model's folder and of those below it.
    fn all(&self) -> Request<'_> {
        Request {
            files: &self.files,
            is_model: true,
            asked: &self.asked,
            overwrite: self.options.overwrite,
            container: &self.nothing,
            protected: &self.options.protected,
        }
    }

    /// The length of all files in bytes.
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// Writes the files and publishes them.
    pub(crate) fn write(&self) -> Result<Done> {
        let meter = Meter::new(self.options, self.bytes());
        meter.step()?;
        let mut staging = Staging::new(&self.target.directory, &self.target.name, self.options)?;
        let (needed, placed) = match self.stage(&mut staging, &meter) {
            Ok(staged) => staged,
            Err(error) => return Err(staging.discard(error)),
        };
        let others = self.folders_below().into_iter().chain(self.locked.iter().cloned());
        let locked = staging.lock(others.collect())?;
        if let Err(error) = self.check_locked().and_then(|()| meter.step()) {
            return Err(locked.discard(error));
        }
        let (removed, unsure) = match self.superseded(&needed) {
            Ok(removed) => (removed, None),
            // A neighbour that cannot be read may need them, so they stay.
            Err(error) => (Vec::new(), Some(error)),
        };
        // What cannot be told is not listed.
        let left = self.left_behind(&needed).unwrap_or_default();
        let Published { mut warnings, removed, locks } = locked.publish(removed)?;
        warnings.extend(unsure);
        let removed: Vec<_> = removed.iter().map(|name| self.target.directory.join(name)).collect();
        let left_behind = left.into_iter().filter(|path| !removed.contains(path)).collect();
        Ok(Done { placed, removed, left_behind, warnings, locks })
    }

    fn check_locked(&self) -> Result<()> {
        self.folder.check_locked(&self.beside())?;
        self.folder.check_below(&self.all())?;
        self.unchanged.map_or(Ok(()), |unchanged| unchanged())
    }

    /// The files that the save removes, where that was asked for; the new model needs those of the
    /// names `needed`.
    fn superseded(&self, needed: &BTreeSet<String>) -> Result<Vec<String>> {
        if !self.options.removes_old_files() {
            return Ok(Vec::new());
        }
        let needed = Needed::new(&self.target, needed.iter());
        // Another model may have its bytes in them by a link, and keep it.
        let read = self.given.iter().filter_map(|file| match &file.content {
            Content::Existing(existing) => Some(existing.path.clone()),
            Content::Parts(..) => None,
        });
        let protected: Vec<_> = self.options.protected.iter().cloned().chain(read).collect();
        let any_name = self.options.remove_left_behind;
        self.folder.superseded(|name| needed.has(name), &protected, any_name)
    }

    /// The files of the replaced model that neither the new one nor any other needs; the new one
    /// needs those of the names `needed`.
    fn left_behind(&self, needed: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
        let needed = Needed::new(&self.target, needed.iter());
        self.folder.left_behind(|name| needed.has(name))
    }

    /// The old weights files that the save would remove, and those that it would leave behind; the
    /// new model needs those of the names `needed`.
    pub(crate) fn would_remove<'n>(
        &self,
        needed: impl Iterator<Item = &'n str>,
    ) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let needed = needed.map(str::to_owned).collect();
        let removed = self.superseded(&needed)?;
        let removed: Vec<_> = removed.iter().map(|name| self.target.directory.join(name)).collect();
        let mut left = self.left_behind(&needed)?;
        left.retain(|path| !removed.contains(path));
        Ok((removed, left))
    }

    /// Writes the files into the staging folder; returns what the new model refers to, and how each
    /// file got its bytes.
    fn stage(
        &self,
        staging: &mut Staging,
        meter: &Meter<'_>,
    ) -> Result<(BTreeSet<String>, Vec<Placed>)> {
        staging.list(self.files.iter().map(|file| file.name.as_str()))?;
        let given = self.given.iter().chain([self.model]);
        let staged = self.files.iter().zip(given).map(|(file, given)| match &given.content {
            Content::Parts(parts, access) => {
                write_parts(staging, &file.name, parts, access.as_ref(), meter)
            }
            Content::Existing(existing) => existing.stage(staging, &file.name, &self.target, meter),
        });
        let placed = staged.collect::<Result<_>>()?;
        staging.flush()?;
        let found = locations(&staging.staged(&self.target.name))?;
        Ok((found.iter().map(ToString::to_string).collect(), placed))
    }

    /// The folders below the model's that files are written to.
    fn folders_below(&self) -> Vec<PathBuf> {
        let folders = self.files.iter().filter_map(|file| Some(file.name.rsplit_once('/')?.0));
        let folders: BTreeSet<_> = folders.collect();
        folders.into_iter().map(|folder| self.target.directory.join(folder)).collect()
    }
}

/// Writes the file `name` of the `parts`.
fn write_parts(
    staging: &Staging,
    name: &str,
    parts: &[Buffer],
    access: Option<&NewAccess>,
    meter: &Meter<'_>,
) -> Result<Placed> {
    let NewFile { file, staged, path } = staging.create(name)?;
    give(access.filter(|_| !exists(&path)), &file, &staged)?;
    let mut out = Metered::new(&file, meter);
    for part in parts {
        let written = out.write_all(part);
        written.map_err(|error| meter.explain(Error::io(&path, error)))?;
    }
    Ok(Placed::Written)
}

/// Gives this access to a new file; where the owner cannot be given, nobody may read more.
fn give(access: Option<&NewAccess>, file: &File, staged: &Path) -> Result<()> {
    let given = match access {
        None => Ok(()),
        Some(NewAccess::Same(access)) => access.give(file).map(drop),
        Some(NewAccess::AtMost(access)) => access.limit(file),
    };
    given.map_err(|error| Error::io(staged, error))
}
