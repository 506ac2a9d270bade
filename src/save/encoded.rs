//! [`save_encoded`]: a model and weights files whose bytes the caller has made, saved as a
//! container is: all of them are replaced or none, whenever the process ends.
//!
//! The files may be in folders below the model's. Which bytes they have, and where in them the
//! model finds its tensors, is the caller's business.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, without_dots};
use crate::files::recovery::staged_name;
use crate::save::encode::refuse_empty;
use crate::save::options::SaveOptions;
use crate::save::planned_save::Needed;
use crate::save::target::folder::{ModelFolder, Request};
use crate::save::target::publish::{NewFile, Published, Staging};
use crate::save::target::skim::locations;
use crate::save::target::{SaveTarget, SavedFile};
use crate::save::write::meter::{Meter, Metered};
use crate::util::names::fold_case;

/// A weights file for [`save_encoded`].
#[derive(Debug, Clone)]
pub struct EncodedFile {
    location: String,
    parts: Vec<Buffer>,
    replace_unneeded: bool,
}

impl EncodedFile {
    /// The file `location`, a path from the model's folder, with the bytes of all `parts`. Folders
    /// in the path have to be there.
    pub fn new(location: impl Into<String>, parts: impl IntoIterator<Item = Buffer>) -> Self {
        Self {
            location: location.into(),
            parts: parts.into_iter().collect(),
            replace_unneeded: false,
        }
    }

    /// Whether an existing file of this name is replaced even if no model needs it, as where the
    /// user chose the name. Default false.
    #[must_use]
    pub fn replace_unneeded(mut self, replace: bool) -> Self {
        self.replace_unneeded = replace;
        self
    }

    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).fold(0, u64::saturating_add)
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
    let save = EncodedSave::new(target, model, files, &options)?;
    let mut warnings = save.folder.recover(&options)?;
    warnings.extend(save.folder.check_recovered(&save.beside(), &options)?);
    save.folder.check_below(&save.all())?;
    save.target.check_space(save.bytes())?;
    warnings.extend(save.write()?);
    Ok(warnings)
}

/// The files of the save by their paths from the model's folder, the model last.
fn listed(target: &SaveTarget, model: &Buffer, files: &[EncodedFile]) -> Result<Vec<SavedFile>> {
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
    listed.push(SavedFile::new(target.name.as_str(), model.len() as u64));
    Ok(listed)
}

struct EncodedSave<'a> {
    target: SaveTarget,
    folder: ModelFolder,
    model: &'a Buffer,
    given: &'a [EncodedFile],
    /// All files, the model last.
    files: Vec<SavedFile>,
    /// Those of them that are in the model's folder.
    beside: Vec<SavedFile>,
    /// The files that the caller named.
    asked: BTreeSet<String>,
    /// No file is read for this save.
    nothing: Container,
    options: &'a SaveOptions,
}

impl<'a> EncodedSave<'a> {
    fn new(
        target: SaveTarget,
        model: &'a Buffer,
        given: &'a [EncodedFile],
        options: &'a SaveOptions,
    ) -> Result<Self> {
        let files = listed(&target, model, given)?;
        let beside = files.iter().filter(|file| !file.name.contains('/')).cloned().collect();
        let asked = given.iter().filter(|file| file.replace_unneeded);
        let asked = asked.map(|file| without_dots(&file.location)).collect();
        let (folder, nothing) = (ModelFolder::of(&target), Container::default());
        Ok(Self { target, folder, model, given, files, beside, asked, nothing, options })
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

    /// Writes the files and publishes them; returns warnings.
    fn write(&self) -> Result<Vec<Error>> {
        let meter = Meter::new(self.options, self.bytes());
        meter.step()?;
        let mut staging = Staging::new(&self.target.directory, &self.target.name, self.options)?;
        let needed = match self.stage(&mut staging, &meter) {
            Ok(needed) => needed,
            Err(error) => return Err(staging.discard(error)),
        };
        let locked = staging.lock(self.folders_below())?;
        if let Err(error) = self.check_locked().and_then(|()| meter.step()) {
            return Err(locked.discard(error));
        }
        let (removed, unsure) = match self.superseded(&needed) {
            Ok(removed) => (removed, None),
            // A neighbour that cannot be read may need them, so they stay.
            Err(error) => (Vec::new(), Some(error)),
        };
        let Published { mut warnings, .. } = locked.publish(removed)?;
        warnings.extend(unsure);
        Ok(warnings)
    }

    fn check_locked(&self) -> Result<()> {
        self.folder.check_locked(&self.beside())?;
        self.folder.check_below(&self.all())
    }

    /// The files that the save removes, where that was asked for; the new model needs those of the
    /// names `needed`.
    fn superseded(&self, needed: &BTreeSet<String>) -> Result<Vec<String>> {
        if !self.options.remove_superseded {
            return Ok(Vec::new());
        }
        let needed = Needed::new(&self.target, needed.iter());
        self.folder.superseded(|name| needed.has(name), &self.options.protected)
    }

    /// Writes the files into the staging folder; returns what the new model refers to.
    fn stage(&self, staging: &mut Staging, meter: &Meter<'_>) -> Result<BTreeSet<String>> {
        staging.list(self.files.iter().map(|file| file.name.as_str()))?;
        let model = std::slice::from_ref(self.model);
        let parts = self.given.iter().map(|file| file.parts.as_slice()).chain([model]);
        for (file, parts) in self.files.iter().zip(parts) {
            let NewFile { file, path, .. } = staging.create(&file.name)?;
            let mut out = Metered::new(&file, meter);
            for part in parts {
                let written = out.write_all(part);
                written.map_err(|error| meter.explain(Error::io(&path, error)))?;
            }
        }
        staging.flush()?;
        let found = locations(&staging.staged(&self.target.name))?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// The folders below the model's that files are written to.
    fn folders_below(&self) -> Vec<PathBuf> {
        let folders = self.files.iter().filter_map(|file| Some(file.name.rsplit_once('/')?.0));
        let folders: BTreeSet<_> = folders.collect();
        folders.into_iter().map(|folder| self.target.directory.join(folder)).collect()
    }
}
