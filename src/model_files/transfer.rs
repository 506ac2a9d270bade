//! A model and its weights files at another place: moved, or copied.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::check_location;
use crate::files::recovery::{FolderLock, is_journaled};
use crate::model_files::edited::rename_locations;
use crate::model_files::options::FileOptions;
use crate::model_files::remove::{leaving, plan, refuse_unremovable, remove_source};
use crate::model_files::report::{PlacedFile, Transferred};
use crate::model_files::source::{Source, SourceFile, other_models_that_need};
use crate::save::{
    Access, EncodedFile, EncodedSave, NewAccess, Placed, SaveTarget, is_at, is_one_folder,
    real_path, renamed_with_model,
};
use crate::util::names::fold_case;
use crate::util::retry::{exists, is_link, retried};
use crate::wire::Message;

/// Moves the model at `from` with its weights files to `to`, which is the new name of the model or
/// a folder that exists.
///
/// On one file system no weight is read or written: the files keep their inodes. A weights file
/// that another model needs stays, and the moved model has a copy of it; so has one that is a link,
/// and the link goes. Where the process is killed, the model is complete at one of the two places
/// or at both.
///
/// ```
/// use onnx_container::model_files::{FileOptions, move_model};
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, MmapChoice};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", ndarray::array![1_u8, 2])?;
/// let folder = tempfile::tempdir().unwrap();
/// let (old, new) = (folder.path().join("old.onnx"), folder.path().join("new.onnx"));
/// container.save(&old, true)?;
///
/// let moved = move_model(&old, &new, FileOptions::new())?;
/// assert!(moved.files[1].to.ends_with("new.onnx.data") && !old.exists());
/// assert_eq!(Container::load(&new, MmapChoice::never())?.get("#w").unwrap().byte_len(), 2);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`Container::load`](crate::Container::load) for a model or weights that are not there
/// or not valid, and of [`save_encoded`](crate::save::save_encoded) for what may not be replaced at
/// `to`. [`ErrorKind::InvalidArgument`] where both are one model, and where two files would have
/// one name; [`ErrorKind::Changed`] where another program changes the model meanwhile. The model is
/// then complete where it was. When the old files cannot be removed, it is complete at both places.
pub fn move_model(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: FileOptions,
) -> Result<Transferred> {
    let transfer = Transfer::new(from.as_ref(), to.as_ref(), true, &options)?;
    refuse_unremovable(&transfer.source, |location| transfer.stays(location))?;
    // The locks are held until the old files are gone: another move of the model waits, and finds
    // none.
    let (mut done, locks) = transfer.publish()?;
    let stays = |location: &str| transfer.stays(location);
    let removed = match options.dry_run {
        true => plan(&transfer.source, stays)?,
        false => transfer
            .check()
            .and_then(|()| remove_source(&transfer.source, stays, &options.save, locks))
            .map_err(|error| {
                let new = transfer.target.path();
                error.and(&format!("`{}` is complete, and the old files stay too", new.display()))
            })?,
    };
    done.links_removed =
        removed.removed.into_iter().filter(|file| file.is_link).map(|file| file.path).collect();
    done.kept = removed.kept;
    done.warnings.extend(removed.warnings);
    Ok(done)
}

/// Copies the model at `from` with its weights files to `to`, which is the name of the copy or a
/// folder that exists.
///
/// The copy shares its bytes with the original where the file system can do that; holes stay holes.
/// Links are followed: the copy has files of its own. In one folder, the copy refers to weights
/// files with names of their own where they are.
///
/// ```
/// use onnx_container::model_files::{FileOptions, copy_model};
/// use onnx_container::proto::{GraphProto, ModelProto};
/// use onnx_container::Container;
///
/// let folder = tempfile::tempdir().unwrap();
/// let model = folder.path().join("m.onnx");
/// Container::new(ModelProto::new(GraphProto::new("g"))).save(&model, true)?;
/// let copied = copy_model(&model, folder.path().join("copy.onnx"), FileOptions::new())?;
/// assert!(copied.files[0].to.is_file() && model.is_file());
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// As those of [`move_model`]; the original is never changed.
pub fn copy_model(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: FileOptions,
) -> Result<Transferred> {
    Ok(Transfer::new(from.as_ref(), to.as_ref(), false, &options)?.publish()?.0)
}

/// Why a model does not go where it is.
fn itself(source: &Source, target: &SaveTarget) -> &'static str {
    let is_alike = source.name != target.name && fold_case(&source.name) == fold_case(&target.name);
    if is_alike && !is_link(&target.path()) && !is_link(&source.path) {
        "is the model itself, as this folder does not tell the two names apart: give it a third name, \
         and then this one"
    } else {
        "is the model itself: there is nothing to do"
    }
}

/// A model on its way.
struct Transfer<'o> {
    source: Source,
    target: SaveTarget,
    /// The files, the model first, with their new paths from the folder of the target.
    files: Vec<(SourceFile, String)>,
    /// The locations of the files that the move takes away: these may get another name in place of
    /// a copy. A second name for any other file would make a write in place change both.
    leaving: BTreeSet<String>,
    /// The locations of the files that are at the new place already, with the same bytes, and that
    /// another model there needs.
    there: BTreeMap<String, SourceFile>,
    /// The new names that other files have now.
    replaced: HashSet<String>,
    /// Whether both models are in one folder.
    is_beside: bool,
    options: &'o FileOptions,
}

impl<'o> Transfer<'o> {
    fn new(from: &Path, to: &Path, moves: bool, options: &'o FileOptions) -> Result<Self> {
        let source = Source::read(from, options)?;
        let to = match to.is_dir() {
            true => to.join(&source.name),
            false => to.to_path_buf(),
        };
        let target = SaveTarget::new(&to)?;
        if is_at(&to, &real_path(from)) {
            return Err(
                Error::new(ErrorKind::InvalidArgument, itself(&source, &target)).with_path(to)
            );
        }
        let mut files = Vec::new();
        let mut taken = HashSet::new();
        for file in source.files()? {
            let name = match files.is_empty() {
                true => target.name.clone(),
                false => renamed_with_model(&source.name, &target.name, &file.location),
            };
            if !files.is_empty() {
                check_location(&name).map_err(|error| error.with_path(&file.path))?;
            }
            if !taken.insert(fold_case(&name)) {
                let reason = "two files of the model would have this name";
                let path = target.directory.join(name);
                return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path));
            }
            files.push((file, name));
        }
        let is_beside = is_one_folder(&source.directory, &target.directory)?;
        let (leaving, there) = (BTreeSet::new(), BTreeMap::new());
        let exists = |(_, name): &&(SourceFile, String)| exists(&target.directory.join(name));
        let replaced = files.iter().filter(exists).map(|(_, name)| name.clone()).collect();
        let mut transfer =
            Self { source, target, files, leaving, there, replaced, is_beside, options };
        if moves {
            transfer.leaving = transfer.all_leaving()?;
        }
        transfer.there = transfer.files_there()?;
        Ok(transfer)
    }

    fn all_leaving(&self) -> Result<BTreeSet<String>> {
        leaving(&self.source, |location| self.stays(location))
    }

    /// The files that another model at the new place needs and that have the bytes already: a model
    /// that shares them was moved or copied before.
    fn files_there(&self) -> Result<BTreeMap<String, SourceFile>> {
        let placed = self.files.iter().skip(1).filter(|(file, _)| !self.stays(&file.location));
        let placed: Vec<_> =
            placed.filter(|(_, name)| self.target.directory.join(name).is_file()).collect();
        let names = placed.iter().map(|(_, name)| name.clone());
        let needed = match placed.is_empty() {
            true => BTreeMap::new(),
            false => other_models_that_need(self.target.path(), names)?,
        };
        let mut there = BTreeMap::new();
        for (file, name) in placed.into_iter().filter(|(_, name)| needed.contains_key(name)) {
            let path = self.target.directory.join(name);
            if is_link(&path) {
                continue;
            }
            let found = SourceFile::new(name.clone(), path)?;
            let is_one = file.is_one_with(&found)?;
            let is_equal =
                if is_one { self.may_link(file) } else { file.has_the_bytes_of(&found)? };
            if is_equal {
                there.insert(file.location.clone(), found);
            }
        }
        Ok(there)
    }

    /// Whether the file may be moved by another name.
    fn may_link(&self, file: &SourceFile) -> bool {
        self.leaving.contains(&file.location)
    }

    /// Whether the file `location` of the old model is the same file of the new one.
    fn stays(&self, location: &str) -> bool {
        let is_its =
            |(file, name): &&(SourceFile, String)| file.location == location && name == location;
        self.is_beside && self.files.iter().skip(1).any(|file| is_its(&file))
    }

    /// Whether the new model needs no file for this one, because it is there.
    fn is_placed(&self, location: &str) -> bool {
        self.stays(location) || self.there.contains_key(location)
    }

    /// Puts the files in place, or only says how.
    fn publish(&self) -> Result<(Transferred, Vec<FolderLock>)> {
        let weights = self.files.get(1..).unwrap_or_default();
        let placed = weights.iter().filter(|(file, _)| !self.is_placed(&file.location));
        let given: Vec<_> = placed
            .map(|(file, name)| EncodedFile::existing(name, file.existing(self.may_link(file))))
            .collect();
        let model = self.model()?;
        let unchanged = || self.check();
        let target = SaveTarget { ..SaveTarget::new(&self.target.path())? };
        let mut folders =
            self.source.folders(self.files.iter().map(|(file, _)| &*file.location))?;
        let there = self.there.values().filter_map(|file| file.path.parent());
        folders.extend(there.map(Path::to_path_buf));
        let save = EncodedSave::new(target, &model, &given, &self.options.save)?
            .reading(folders, &unchanged);
        if self.options.dry_run {
            save.check()?;
            let mut report = self.report(&[], &model);
            (report.superseded, report.left_behind) = save.would_remove(self.names())?;
            return Ok((report, Vec::new()));
        }
        let made = Folders::make(&self.target.directory, self.names())?;
        let done = save.prepare().and_then(|warnings| Ok((warnings, save.write()?)));
        // A journal that is left needs the folders.
        let (warnings, done) = done.inspect_err(|_| match is_journaled(&self.target.path()) {
            true => {}
            false => made.remove(),
        })?;
        let mut report = self.report(&done.placed, &model);
        (report.superseded, report.left_behind) = (done.removed, done.left_behind);
        report.warnings.extend(warnings);
        report.warnings.extend(done.warnings);
        Ok((report, done.locks))
    }

    /// The names of the files at the new place.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(_, name)| name.as_str())
    }

    /// The model at the new place: the same file, unless weights have other names now.
    fn model(&self) -> Result<EncodedFile> {
        let Some((file, name)) = self.files.first() else {
            return Err(Error::internal("a model without a file"));
        };
        if !self.is_edited() {
            return Ok(EncodedFile::existing(name, file.existing(self.may_link(file))));
        }
        let renamed: HashMap<_, _> = self.files.iter().skip(1).map(pair).collect();
        let mut model = Container::model(&self.source.container).clone();
        rename_locations(&mut model, &renamed)?;
        let bytes = model.encode_to_vec()?;
        let access = match self.may_link(file) {
            true => NewAccess::Same,
            false => NewAccess::AtMost,
        };
        Ok(EncodedFile::new(name, [bytes.into()]).access(Access::of(file.real()).map(access)))
    }

    /// Whether the model is written, because weights have other names.
    fn is_edited(&self) -> bool {
        self.files.iter().skip(1).any(|(file, name)| file.location != *name)
    }

    fn check(&self) -> Result<()> {
        self.source.check_model()?;
        self.files
            .iter()
            .map(|(file, _)| file)
            .chain(self.there.values())
            .try_for_each(SourceFile::check)
    }

    /// The report; `placed` says how files got to their places, the model last, those that stay
    /// left out. Without it, how they are expected to.
    fn report(&self, placed: &[Placed], written: &EncodedFile) -> Transferred {
        let (model, weights) = placed.split_last().unzip();
        let mut weights = weights.unwrap_or_default().iter();
        let files = self.files.iter().enumerate().map(|(number, (file, name))| {
            let done = match number {
                0 => model,
                _ if self.is_placed(&file.location) => Some(&Placed::Kept),
                _ => weights.next(),
            };
            let expected = || self.expected(file, number == 0);
            PlacedFile {
                from: file.path.clone(),
                to: self.target.directory.join(name),
                bytes: if number == 0 { written.len() } else { file.bytes },
                replaces: self.replaced.contains(name) && !self.is_placed(&file.location),
                placed: done.copied().unwrap_or_else(expected),
            }
        });
        Transferred { files: files.collect(), ..Transferred::default() }
    }

    fn expected(&self, file: &SourceFile, is_model: bool) -> Placed {
        if is_model && self.is_edited() {
            Placed::Written
        } else if self.may_link(file) && file.can_link_to(&self.target.directory) {
            Placed::Linked
        } else {
            Placed::Copied
        }
    }
}

fn pair((file, name): &(SourceFile, String)) -> (&str, &str) {
    (&file.location, name)
}

/// Folders that were made for files of the model.
struct Folders(Vec<PathBuf>);

impl Folders {
    /// Makes the folders below `directory` that files called `names` are in. None is made by way of
    /// a link.
    fn make<'n>(directory: &Path, names: impl Iterator<Item = &'n str>) -> Result<Self> {
        let mut made = Self(Vec::new());
        for folder in names.filter_map(|name| Some(name.rsplit_once('/')?.0)) {
            let mut path = directory.to_path_buf();
            for part in folder.split('/') {
                path.push(part);
                if is_link(&path) {
                    break;
                }
                match retried(|| std::fs::create_dir(&path)) {
                    Ok(()) => made.0.push(path.clone()),
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => {
                        made.remove();
                        return Err(Error::io(path, error).because("a folder for weights"));
                    }
                }
            }
        }
        Ok(made)
    }

    /// Removes them again.
    fn remove(&self) {
        for folder in self.0.iter().rev() {
            drop(std::fs::remove_dir(folder));
        }
    }
}
