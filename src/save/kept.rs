//! Weights that stay where they are: in files that still are what was loaded.
//!
//! A change to the graph of a model should not cost a copy of its weights. That a file is unchanged
//! is told by its identity, not by its bytes, and by the same door as a load: what is kept is what a
//! reader of the model opens. It is asked when the save is planned, and again when its files are
//! renamed. What is written otherwise is left to `plan`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::buffer::FileIdentity;
use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{Directory, fold_case, is_handle};
use crate::initializer::Initializer;
use crate::save::neighbours::locations;
use crate::save::options::{SaveOptions, WeightFiles};
use crate::save::plan::{Placed, Plan, Used, data_name};
use crate::save::target::{SavedFile, Target};

/// The files that a model goes on to refer to.
pub(crate) struct KeptFiles {
    folder: Folder,
    pub(crate) files: Vec<KeptFile>,
}

/// One of them.
pub(crate) struct KeptFile {
    pub(crate) location: String,
    file: LoadedFile,
}

/// A file as it was when it was mapped or read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LoadedFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// Where an initializer lies on disk, in bytes.
struct Origin {
    file: LoadedFile,
    range: Range<u64>,
}

impl Origin {
    fn of(initializer: &Initializer) -> Option<Self> {
        let bytes = initializer.as_buffer()?;
        let (place, identity) = bytes.source()?;
        let file = LoadedFile { path: place.path.to_path_buf(), identity: identity.clone() };
        Some(Self { file, range: place.range })
    }
}

impl KeptFiles {
    /// Errs when a file is no longer what was loaded.
    pub(crate) fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|kept| self.folder.open(kept).map(drop))
    }

    /// Waits until the files are on the disk: whoever wrote them may not have.
    #[cfg(unix)]
    pub(crate) fn flush(&self) -> Result<()> {
        use rustix::io::Errno;
        // Some network file systems flush only what is open for writing.
        let lost = [Errno::IO, Errno::NOSPC, Errno::DQUOT];
        let is_lost = |e: &_| Errno::from_io_error(e).is_some_and(|e| lost.contains(&e));
        self.files.iter().try_for_each(|kept| match self.folder.open(kept)?.sync_all() {
            Err(error) if is_lost(&error) => Err(Error::io(&kept.file.path, error)),
            _ => Ok(()),
        })
    }

    /// A file that is open for reading alone cannot be flushed here.
    #[cfg(not(unix))]
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn to_saved(&self) -> Vec<SavedFile> {
        let saved =
            |kept: &KeptFile| SavedFile::new(kept.location.as_str(), kept.file.identity.len());
        self.files.iter().map(saved).collect()
    }

    fn plan<'c>(self, places: HashMap<&'c Handle, Placed>) -> Plan<'c> {
        Plan { files: Vec::new(), kept: Some(self), places }
    }
}

/// A plan for `used` that writes no weights, where `options` ask for one: of a packed file only when
/// there is one.
pub(crate) fn plan<'c>(
    used: &[Used<'c>],
    target: &Target,
    options: &SaveOptions,
) -> Result<Option<Plan<'c>>> {
    match options.weight_files {
        WeightFiles::AsLoaded => every_file(used, target).map(Some),
        WeightFiles::One if options.keep_placement => Ok(one_file(used, target, options)),
        _ => Ok(None),
    }
}

/// Keeps the target's data file when everything lies in it, aligned as it was asked for.
fn one_file<'c>(used: &[Used<'c>], target: &Target, options: &SaveOptions) -> Option<Plan<'c>> {
    let first = used.iter().find(|tensor| tensor.len > 0)?;
    let folder = Folder::open_for(target).ok()?;
    let kept = folder.data_file(Origin::of(first.initializer)?.file, target, options)?;
    let mut places = HashMap::with_capacity(used.len());
    for Used { handle, initializer, len, .. } in used {
        let origin = Origin::of(initializer).filter(|origin| origin.file == kept.file);
        let aligned = |at: u64| *len == 0 || options.alignment_asked(*len).is_aligned(at);
        let range = match origin {
            Some(origin) if aligned(origin.range.start) => origin.range,
            // Nothing has a place everywhere.
            None if *len == 0 => 0..0,
            _ => return None,
        };
        places.insert(*handle, Placed { file: 0, range });
    }
    Some(KeptFiles { folder, files: vec![kept] }.plan(places))
}

/// Keeps every file, or says of each why not.
fn every_file<'c>(used: &[Used<'c>], target: &Target) -> Result<Plan<'c>> {
    let mut kept = KeptFiles { folder: Folder::open_for(target)?, files: Vec::new() };
    let mut places = HashMap::with_capacity(used.len());
    // `None` for a file that cannot stay and was reported.
    let mut known: HashMap<LoadedFile, Option<usize>> = HashMap::new();
    let mut errors = Vec::new();
    // What has no bytes comes last, and into the model where its file cannot stay.
    let (empty, full): (Vec<_>, Vec<_>) = used.iter().partition(|tensor| tensor.len == 0);
    for Used { handle, initializer, len, .. } in full.into_iter().chain(empty) {
        let mut refuse = |e: Error| errors.extend((*len > 0).then(|| e.with_tensor(handle.name())));
        let Some(Origin { file, range }) = Origin::of(initializer) else {
            refuse(cannot_keep("lies in no file"));
            continue;
        };
        let number = *known.entry(file).or_insert_with_key(|file| {
            let found = kept.folder.locate(file);
            let found = found.map(|location| KeptFile { location, file: file.clone() });
            let file = found.map_err(&mut refuse).ok()?;
            kept.files.push(file);
            Some(kept.files.len() - 1)
        });
        if let Some(file) = number {
            places.insert(*handle, Placed { file, range });
        }
    }
    let errors = errors.into_iter().map(|error| error.because("the weights cannot stay"));
    match Error::join(errors.collect()) {
        Some(error) => Err(error),
        None => Ok(kept.plan(places)),
    }
}

fn cannot_keep(reason: &str) -> Error {
    Error::new(ErrorKind::CannotKeep, reason)
}

/// The folder that a model is saved to, and the file that is its model before.
struct Folder {
    directory: Directory,
    model: Option<FileIdentity>,
}

impl Folder {
    fn open_for(target: &Target) -> Result<Self> {
        let directory = &target.directory;
        // Absolute: the current directory may change before the files are looked at again.
        let absolute = std::path::absolute(directory).map_err(|e| Error::io(directory, e))?;
        let model = target.path().metadata().ok();
        let model = model.map(|metadata| FileIdentity::new(&metadata));
        Ok(Self { directory: Directory::open(absolute)?, model })
    }

    /// The target's data file, when it is `file`: the one that `options` name, or the only one that
    /// the model at the target refers to.
    fn data_file(
        &self,
        file: LoadedFile,
        target: &Target,
        options: &SaveOptions,
    ) -> Option<KeptFile> {
        let named = KeptFile { location: data_name(&target.name, options).ok()?, file };
        if self.open(&named).is_ok() {
            return Some(named);
        }
        let location = self.locate(&named.file).ok()?;
        let only = BTreeSet::from([location]);
        let is_only = options.data_name.is_none() && locations(&target.path()) == only;
        let location = only.into_iter().next().filter(|_| is_only)?;
        Some(KeptFile { location, ..named })
    }

    /// The location at which readers of the model find `file`.
    fn locate(&self, file: &LoadedFile) -> Result<String> {
        let (path, root) = (&file.path, self.directory.path());
        let absolute = || beneath(&std::path::absolute(path).ok()?, root);
        let resolved = || beneath(&path.canonicalize().ok()?, &root.canonicalize().ok()?);
        // As it was found, and where links lead.
        let ways: [&dyn Fn() -> Option<String>; 2] = [&absolute, &resolved];
        let mut why = None;
        for location in ways.iter().filter_map(|way| way()) {
            if fold_case(&location).ends_with(".onnx") {
                return Err(cannot_keep("is a model, whose writers replace it").with_path(path));
            }
            let kept = KeptFile { location, file: file.clone() };
            match self.open(&kept) {
                Ok(_) => return Ok(kept.location),
                Err(error) => why = why.or(Some(error)),
            }
        }
        let outside = || cannot_keep("lies outside the folder of the model").with_path(path);
        Err(why.unwrap_or_else(outside))
    }

    /// Opens a file that is to be kept, as a load does it, and sees that it is what was loaded.
    fn open(&self, kept: &KeptFile) -> Result<File> {
        let KeptFile { location, file } = kept;
        let fail = |reason: &str| cannot_keep(reason).with_path(&file.path);
        let opened = self.directory.open_file(location).map_err(|e| fail(e.reason()))?;
        let metadata = opened.metadata().map_err(|e| fail(&e.to_string()))?;
        let now = FileIdentity::new(&metadata);
        if now != file.identity || !self.is_at(location, &file.path) {
            return Err(fail("changed, or another file took its place, since it was loaded"));
        }
        if self.model.as_ref() == Some(&now) {
            return Err(fail("is itself replaced by the model"));
        }
        Ok(opened)
    }

    /// Whether the path leads to the location: seen by the inodes already.
    #[cfg(unix)]
    fn is_at(&self, _: &str, _: &Path) -> bool {
        true
    }

    /// Whether the path leads to the location: two files may have one length and time.
    #[cfg(not(unix))]
    fn is_at(&self, location: &str, path: &Path) -> bool {
        let location = self.directory.join(location).canonicalize();
        location.is_ok_and(|location| path.canonicalize().is_ok_and(|path| path == location))
    }
}

/// The location of `path` in a model in `folder`, when there can be one.
fn beneath(path: &Path, folder: &Path) -> Option<String> {
    let parts = path.strip_prefix(folder).ok()?.components();
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_str()?.to_owned()),
        _ => None,
    };
    let location = parts.map(name).collect::<Option<Vec<_>>>()?.join("/");
    (!location.is_empty() && !is_handle(&location)).then_some(location)
}
