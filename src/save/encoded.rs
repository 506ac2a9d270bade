//! [`save_encoded`]: a model and weights files whose bytes the caller has made, saved as a
//! container is: all of them are replaced or none, whenever the process ends.
//!
//! The files may be in folders below the model's. Which bytes they have, and where in them the
//! model finds its tensors, is the caller's business.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, without_dots};
use crate::save::encode::refuse_empty;
use crate::save::options::SaveOptions;
use crate::save::target::folder::{Folder, Request};
use crate::save::target::publish::{NewFile, Staging};
use crate::save::target::skim::locations;
use crate::save::target::{SavedFile, Target};
use crate::save::write::meter::{Meter, Metered};
use crate::util::names::fold_case;

/// A weights file for [`save_encoded`].
#[derive(Debug, Clone)]
pub struct EncodedFile {
    location: String,
    parts: Vec<Buffer>,
    named: bool,
}

impl EncodedFile {
    /// The file `location`, a path from the model's folder, with the bytes of all `parts`. Folders
    /// in the path have to be there.
    pub fn new(location: impl Into<String>, parts: impl IntoIterator<Item = Buffer>) -> Self {
        Self { location: location.into(), parts: parts.into_iter().collect(), named: false }
    }

    /// Whether the user chose this name, so that a file of it is replaced even if no model needs
    /// it. Default false.
    #[must_use]
    pub fn named(mut self, named: bool) -> Self {
        self.named = named;
        self
    }

    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).fold(0, u64::saturating_add)
    }
}

/// Writes the encoded `model` to `path`, and `files` to their places beside or below it. Returns
/// warnings.
///
/// As by [`Container::save`](crate::Container::save), old files are replaced when all new ones are
/// complete, a save that was killed is completed or undone by the next program that reads the
/// model, and no file that another model needs is replaced. Of the options those about the contents
/// of files do not apply.
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
    let target = Target::new(path.as_ref())?;
    let job = Job { files: listed(&target, model, files)?, target, model, given: files, options };
    let folder = Folder::of(&job.target);
    let mut warnings = folder.recover(&job.options)?;
    warnings.extend(job.with_request(|request| folder.check_recovered(request, &job.options))?);
    job.with_below(|request| folder.check_below(request))?;
    job.target.check_space(job.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add))?;
    warnings.extend(job.write(&folder)?);
    Ok(warnings)
}

/// The files of the save by their paths from the model's folder, the model last.
fn listed(target: &Target, model: &Buffer, files: &[EncodedFile]) -> Result<Vec<SavedFile>> {
    let mut taken = HashSet::from([fold_case(&target.name)]);
    let mut listed = Vec::with_capacity(files.len().saturating_add(1));
    for file in files {
        check_location(&file.location)?;
        let name = without_dots(&file.location);
        if !taken.insert(fold_case(&name)) {
            let reason = "two files of the save have this place";
            let path = target.directory.join(name);
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path));
        }
        listed.push(SavedFile::new(name, file.len()));
    }
    listed.push(SavedFile::new(target.name.as_str(), model.len() as u64));
    Ok(listed)
}

struct Job<'a> {
    target: Target,
    model: &'a Buffer,
    given: &'a [EncodedFile],
    /// All files, the model last.
    files: Vec<SavedFile>,
    options: SaveOptions,
}

impl Job<'_> {
    /// Calls `ask` with what is requested of the model's folder.
    fn with_request<T>(&self, ask: impl FnOnce(&Request<'_>) -> T) -> T {
        let beside: Vec<_> =
            self.files.iter().filter(|file| !file.name.contains('/')).cloned().collect();
        self.with_files(&beside, ask)
    }

    /// Calls `ask` with what is requested of the folders below it.
    fn with_below<T>(&self, ask: impl FnOnce(&Request<'_>) -> T) -> T {
        self.with_files(&self.files, ask)
    }

    fn with_files<T>(&self, files: &[SavedFile], ask: impl FnOnce(&Request<'_>) -> T) -> T {
        ask(&Request {
            files,
            is_model: true,
            asked: &|name| {
                self.given.iter().any(|file| file.named && without_dots(&file.location) == name)
            },
            overwrite: self.options.overwrite,
            reads: &BTreeSet::new,
            protected: &self.options.protected,
        })
    }

    /// Writes the files and publishes them; returns warnings.
    fn write(&self, folder: &Folder) -> Result<Vec<Error>> {
        let total = self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let meter = Meter::new(&self.options, total);
        meter.step()?;
        let mut staging = Staging::new(&self.target.directory, &self.target.name, &self.options)?;
        let needed = match self.stage(&mut staging, &meter) {
            Ok(needed) => needed,
            Err(error) => return Err(staging.discard(error)),
        };
        let mut unsure = None;
        let look_again = || {
            self.with_request(|request| folder.check_locked(request))?;
            self.with_below(|request| folder.check_below(request))?;
            meter.step()?;
            let is_needed = |name: &str| needed.contains(&fold_case(name));
            let asked = self.options.remove_superseded;
            let found = asked.then(|| folder.superseded(is_needed, &self.options.protected));
            // A neighbour that cannot be read may need them, so they stay.
            Ok(found.unwrap_or(Ok(Vec::new())).unwrap_or_else(|error| {
                unsure = Some(error);
                Vec::new()
            }))
        };
        let mut warnings = staging.publish(self.folders_below(), look_again)?;
        warnings.extend(unsure);
        Ok(warnings)
    }

    /// Writes the files into the staging folder; returns what the new model refers to, in folded
    /// case.
    fn stage(&self, staging: &mut Staging, meter: &Meter<'_>) -> Result<HashSet<String>> {
        let model = std::slice::from_ref(self.model);
        let parts = self.given.iter().map(|file| file.parts.as_slice()).chain([model]);
        let mut files = self.files.iter().zip(parts);
        staging.write(self.files.iter().map(|file| file.name.as_str()), |staging| {
            files.try_for_each(|(file, parts)| {
                let NewFile { file, path, .. } = staging.create(&file.name)?;
                let mut out = Metered::new(&file, meter);
                for part in parts {
                    let written = out.write_all(part);
                    written.map_err(|error| meter.explain(Error::io(&path, error)))?;
                }
                Ok(())
            })
        })?;
        staging.flush()?;
        let found = locations(&staging.staged(&self.target.name))?;
        Ok(found.iter().map(|name| fold_case(name)).collect())
    }

    /// The folders below the model's that files are written to.
    fn folders_below(&self) -> Vec<PathBuf> {
        let folders = self.files.iter().filter_map(|file| Some(file.name.rsplit_once('/')?.0));
        let folders: BTreeSet<_> = folders.collect();
        folders.into_iter().map(|folder| self.target.directory.join(folder)).collect()
    }
}
