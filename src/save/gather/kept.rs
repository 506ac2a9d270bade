//! Weights that are kept in the files they were loaded from, because the files are unchanged.
//!
//! A change to the graph of a model should not cost a copy of its weights. A file is unchanged when
//! its identity is; its bytes are compared only where the identity is not conclusive (the file was
//! read shortly after it was written). The file is opened as a load opens it, so a reader of the
//! model finds the same file. The check runs when the save is planned and again before its files
//! are renamed. What is written is decided in `plan`.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use crate::buffer::Buffer;
use crate::buffers::FileIdentity;
use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{Directory, is_handle};
use crate::save::gather::weights::{GatheredWeights, NO_BYTES, Weight, no_weight};
use crate::save::options::SaveOptions;
use crate::save::options::statistics::distinct_bytes;
use crate::save::options::weight_files::WeightFiles;
use crate::save::target::file_names::{data_name, free_data_name};
use crate::save::target::skim::locations;
use crate::save::target::{SaveTarget, SavedFile};
use crate::tensor::initializer::Initializer;
use crate::util::names::fold_case;
use crate::util::retry::retried;

/// The files that the saved model continues to refer to; often there are none.
#[derive(Default)]
pub(crate) struct KeptFiles {
    /// The folder of the model; `None` when no file is kept.
    folder: Option<SaveFolder>,
    pub(crate) files: Vec<KeptFile>,
    /// For each weight, by its number: the number of the kept file and the byte range in it. A
    /// weight that is missing or `None` is not kept.
    pub(crate) ranges: Vec<Option<(usize, Range<u64>)>>,
    /// The name of the file for weights that are not kept, where it must not replace another file.
    pub(crate) new_name: Option<String>,
    /// What is compared again before the files are renamed, because a write since the first
    /// comparison need not have changed the identity of the file.
    unsure: Vec<Unsure>,
}

/// Bytes that are to be in a file, of which its identity is no proof.
struct Unsure {
    /// The number of the kept file.
    file: usize,
    bytes: Buffer,
    start: u64,
    handle: Handle,
}

/// A kept file.
pub(crate) struct KeptFile {
    pub(crate) location: String,
    file: LoadedFile,
}

impl KeptFile {
    /// The length of the file in bytes.
    fn len(&self) -> u64 {
        self.file.identity.len()
    }

    pub(crate) fn to_saved(&self) -> SavedFile {
        SavedFile::new(self.location.as_str(), self.len())
    }
}

/// A file as it was when it was mapped or read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LoadedFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// Where an initializer is on disk, in bytes.
struct Origin {
    file: LoadedFile,
    range: Range<u64>,
    /// The bytes to compare, where the file's identity does not prove that it still has them.
    unsure: Option<Buffer>,
}

impl Origin {
    fn of(initializer: &Initializer) -> Option<Self> {
        let bytes = initializer.as_buffer()?;
        let (place, identity) = bytes.source()?;
        let file = LoadedFile { path: place.path.to_path_buf(), identity: identity.clone() };
        let unsure = (!bytes.is_settled()).then(|| bytes.clone());
        Some(Self { file, range: place.range, unsure })
    }
}

impl KeptFiles {
    /// The `weights` that are kept where `options` ask for that. A packed file is kept only when
    /// all weights are in it.
    ///
    /// # Errors
    /// For [`WeightFiles::AsLoaded`] one error for all files that cannot be kept.
    pub(crate) fn new(
        weights: &GatheredWeights<'_>,
        target: &SaveTarget,
        options: &SaveOptions,
    ) -> Result<Self> {
        match options.weight_files {
            WeightFiles::AsLoaded => Self::every_file(weights, target, options),
            WeightFiles::Packed if options.keep_placement && !options.dedup => {
                Ok(Self::one_file(weights, target, options).unwrap_or_default())
            }
            _ => Ok(Self::default()),
        }
    }

    /// Keeps the target's data file when all weights are in it, with the requested alignment.
    fn one_file(
        weights: &GatheredWeights<'_>,
        target: &SaveTarget,
        options: &SaveOptions,
    ) -> Option<Self> {
        let first = weights.used.iter().find(|weight| weight.len > 0)?;
        let folder = SaveFolder::open_for(target).ok()?;
        let kept = folder.data_file(Origin::of(first.initializer)?.file, target, options)?;
        let range = |weight: &Weight<'_>| {
            if weight.len == 0 {
                return Some(NO_BYTES);
            }
            let is_sure = |origin: &Origin| origin.file == kept.file && origin.unsure.is_none();
            let origin = Origin::of(weight.initializer).filter(is_sure)?;
            let aligned = options.alignment_asked(weight.len).is_aligned(origin.range.start);
            aligned.then_some(origin.range)
        };
        let ranges = weights.used.iter().map(|weight| Some(Some((0, range(weight)?))));
        let ranges = ranges.collect::<Option<_>>()?;
        Some(Self { folder: Some(folder), files: vec![kept], ranges, ..Self::default() })
    }

    /// Keeps every file that weights are in, or reports for each why it cannot be kept. Weights
    /// that are in no file go to a new one.
    fn every_file(
        weights: &GatheredWeights<'_>,
        target: &SaveTarget,
        options: &SaveOptions,
    ) -> Result<Self> {
        let mut finder = Finder::new(SaveFolder::open_for(target)?);
        let mut ranges = vec![None; weights.used.len()];
        // Empty weights come last. Where their file cannot be kept they go into the model.
        let all = || weights.used.iter().enumerate();
        let (empty, full): (Vec<_>, Vec<_>) = all().partition(|(_, weight)| weight.len == 0);
        for (number, weight) in full {
            let Some(origin) = Origin::of(weight.initializer) else { continue };
            let Origin { file, range: bytes, unsure } = origin;
            let Some(file) = finder.number(file, weight.handle) else { continue };
            if let Some(loaded) = unsure {
                let (start, handle) = (bytes.start, weight.handle.clone());
                finder.compare(Unsure { file, bytes: loaded, start, handle });
            }
            *ranges.get_mut(number).ok_or_else(no_weight)? = Some((file, bytes));
        }
        let errors = std::mem::take(&mut finder.errors);
        for (number, weight) in empty {
            let Some(Origin { file, .. }) = Origin::of(weight.initializer) else { continue };
            let stays = finder.number(file, weight.handle).map(|file| (file, NO_BYTES));
            *ranges.get_mut(number).ok_or_else(no_weight)? = stays;
        }
        let Finder { folder, files, unsure, .. } = finder;
        if let Some(error) = Error::join(errors) {
            return Err(error);
        }
        let is_kept = |name: &str| {
            let name = fold_case(name);
            let locations = files.iter().map(|file: &KeptFile| &file.location);
            locations.chain(&weights.not_loaded).any(|location| fold_case(location) == name)
        };
        let is_there =
            |name: &str| retried(|| target.directory.join(name).symlink_metadata()).is_ok();
        let new_name = match options.data_name {
            Some(_) => None,
            None => Some(free_data_name(&target.name, |name| is_kept(name) || is_there(name))),
        };
        Ok(Self { folder: Some(folder), files, ranges, new_name, unsure })
    }

    /// Fails when a file is no longer the one that was loaded.
    pub(crate) fn check(&self) -> Result<()> {
        self.open_all().try_for_each(|opened| opened.map(drop))?;
        let Some(folder) = &self.folder else { return Ok(()) };
        self.unsure.iter().try_for_each(|unsure| {
            self.files.get(unsure.file).map_or(Ok(()), |kept| compare(folder, kept, unsure))
        })
    }

    /// The files, opened as a load does it.
    pub(crate) fn open_all(&self) -> impl Iterator<Item = Result<(&KeptFile, File)>> {
        let all = self.folder.iter().flat_map(|folder| self.files.iter().map(move |f| (folder, f)));
        all.map(|(folder, file)| Ok((file, folder.open(file)?)))
    }

    /// The folders of the kept files. No other save may rename files there while this one does.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let directory = |folder: &SaveFolder| folder.directory.path().to_path_buf();
        let directories = self.folder.iter().map(directory);
        let paths = directories.flat_map(|directory| {
            self.files
                .iter()
                .map(move |kept| retried(|| directory.join(&kept.location).canonicalize()))
        });
        paths.filter_map(|path| path.ok()?.parent().map(Path::to_path_buf)).collect()
    }

    /// Waits until the files are on the disk: the program that wrote them may not have done so.
    #[cfg(unix)]
    pub(crate) fn flush(&self) -> Result<()> {
        use rustix::io::Errno;
        // Some network file systems flush only files that are open for writing.
        let lost = [Errno::IO, Errno::NOSPC, Errno::DQUOT];
        let is_lost = |e: &_| Errno::from_io_error(e).is_some_and(|e| lost.contains(&e));
        self.open_all().try_for_each(|opened| {
            let (kept, file) = opened?;
            match file.sync_all() {
                Err(error) if is_lost(&error) => Err(Error::io(&kept.file.path, error)),
                _ => Ok(()),
            }
        })
    }

    /// On this platform a file that is open only for reading cannot be flushed.
    #[cfg(not(unix))]
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// The number of bytes in the files that are outside the ranges of all weights.
    pub(crate) fn unreferenced_bytes(&self) -> u64 {
        let referenced = distinct_bytes(self.ranges.iter().flatten().cloned().collect());
        let all = self.files.iter().map(KeptFile::len).fold(0, u64::saturating_add);
        all.saturating_sub(referenced)
    }
}

/// Finds the files of weights, each once.
struct Finder {
    folder: SaveFolder,
    files: Vec<KeptFile>,
    /// `None` for a file that cannot be kept and was reported.
    known: HashMap<LoadedFile, Option<usize>>,
    unsure: Vec<Unsure>,
    errors: Vec<Error>,
}

impl Finder {
    fn new(folder: SaveFolder) -> Self {
        let (files, known) = (Vec::new(), HashMap::new());
        Self { folder, files, known, unsure: Vec::new(), errors: Vec::new() }
    }

    /// Records an error when the file does not hold the bytes, and whether that has to be asked
    /// again.
    fn compare(&mut self, unsure: Unsure) {
        let Some(kept) = self.files.get(unsure.file) else { return };
        // Seen before the bytes: any write after them changes the identity.
        let is_settled = kept.file.identity.is_settled(SystemTime::now());
        match compare(&self.folder, kept, &unsure) {
            Ok(()) if is_settled => {}
            Ok(()) => self.unsure.push(unsure),
            Err(error) => self.errors.push(error),
        }
    }

    /// The number of `file`, which has the weight behind `handle`; `None` when it cannot be kept.
    fn number(&mut self, file: LoadedFile, handle: &Handle) -> Option<usize> {
        let Self { folder, files, errors, .. } = self;
        *self.known.entry(file).or_insert_with_key(|file| match folder.locate(file) {
            Ok(location) => {
                files.push(KeptFile { location, file: file.clone() });
                Some(files.len() - 1)
            }
            Err(error) => {
                errors.push(
                    error
                        .with_tensor(handle.name())
                        .because("the weights cannot be kept in their file"),
                );
                None
            }
        })
    }
}

/// Fails when the file `kept` does not hold the bytes.
fn compare(folder: &SaveFolder, kept: &KeptFile, unsure: &Unsure) -> Result<()> {
    let path = &kept.file.path;
    let opened = folder.open(kept);
    let same = opened.and_then(|file| {
        holds(&file, &unsure.bytes, unsure.start).map_err(|error| Error::io(path, error))
    });
    let error = match same {
        Ok(true) => return Ok(()),
        Ok(false) => cannot_keep("changed since it was loaded").with_path(path),
        Err(error) => error,
    };
    let error = error.with_tensor(unsure.handle.name());
    Err(error.because("the weights cannot be kept in their file"))
}

fn cannot_keep(reason: &str) -> Error {
    Error::new(ErrorKind::CannotKeep, reason)
}

/// Whether `file` has `bytes` from `start` on.
fn holds(mut file: &File, bytes: &[u8], start: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(start))?;
    let mut chunk = vec![0; bytes.len().min(1 << 20)];
    for part in bytes.chunks(1 << 20) {
        chunk.truncate(part.len());
        file.read_exact(&mut chunk)?;
        if chunk != part {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The folder that a model is saved to, and the model file that is replaced.
struct SaveFolder {
    directory: Directory,
    model: Option<FileIdentity>,
}

impl SaveFolder {
    fn open_for(target: &SaveTarget) -> Result<Self> {
        let directory = &target.directory;
        // Absolute: the current directory may change before the files are checked again.
        let absolute = std::path::absolute(directory).map_err(|e| Error::io(directory, e))?;
        let model = retried(|| target.path().metadata()).ok();
        let model = model.map(|metadata| FileIdentity::at(&target.path(), &metadata));
        Ok(Self { directory: Directory::open(absolute)?, model })
    }

    /// `file` as a kept file, when it is the target's data file: the one that `options` name, or
    /// the only one that the model at the target refers to.
    fn data_file(
        &self,
        file: LoadedFile,
        target: &SaveTarget,
        options: &SaveOptions,
    ) -> Option<KeptFile> {
        let named = KeptFile { location: data_name(&target.name, options).ok()?, file };
        if self.open(&named).is_ok() {
            return Some(named);
        }
        let location = self.locate(&named.file).ok()?;
        let only = BTreeSet::from([location]);
        let is_the_only = || locations(&target.path()).is_ok_and(|all| all == only);
        let is_only = options.data_name.is_none() && is_the_only();
        let location = only.into_iter().next().filter(|_| is_only)?;
        Some(KeptFile { location, ..named })
    }

    /// The location at which readers of the model find `file`.
    fn locate(&self, file: &LoadedFile) -> Result<String> {
        let (path, root) = (&file.path, self.directory.path());
        let absolute = || beneath(&std::path::absolute(path).ok()?, root);
        let resolved = || {
            beneath(&retried(|| path.canonicalize()).ok()?, &retried(|| root.canonicalize()).ok()?)
        };
        // First by the path it was loaded from, then by the path with links resolved.
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

    /// Opens a file that is to be kept as a load does, and checks that it is the one that was
    /// loaded.
    fn open(&self, kept: &KeptFile) -> Result<File> {
        let KeptFile { location, file } = kept;
        let fail = |reason: &str| cannot_keep(reason).with_path(&file.path);
        let opened = self.directory.open_file(location).map_err(|e| fail(e.reason()))?;
        let metadata = retried(|| opened.metadata()).map_err(|e| fail(&e.to_string()))?;
        let now = FileIdentity::of(&opened, &metadata);
        if now != file.identity || !self.is_at(location, &file.path) {
            return Err(fail("changed, or another file took its place, since it was loaded"));
        }
        if self.model.as_ref() == Some(&now) {
            return Err(fail("is itself replaced by the model"));
        }
        Ok(opened)
    }

    /// Whether the path leads to the location. Here the identities with their inodes already prove
    /// it.
    #[cfg(unix)]
    fn is_at(&self, _: &str, _: &Path) -> bool {
        true
    }

    /// Whether the path leads to the location. Where a file system does not tell inodes, two files
    /// may have the same identity.
    #[cfg(not(unix))]
    fn is_at(&self, location: &str, path: &Path) -> bool {
        let location = retried(|| self.directory.join(location).canonicalize());
        location.is_ok_and(|location| {
            retried(|| path.canonicalize()).is_ok_and(|path| path == location)
        })
    }
}

/// The location by which a model in `folder` can refer to `path`; `None` where none is valid.
fn beneath(path: &Path, folder: &Path) -> Option<String> {
    let parts = path.strip_prefix(folder).ok()?.components();
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_str()?.to_owned()),
        _ => None,
    };
    let location = parts.map(name).collect::<Option<Vec<_>>>()?.join("/");
    (!location.is_empty() && !is_handle(&location)).then_some(location)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bytes_are_compared_where_they_lie() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3_u32 << 20).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mut other = bytes[7..].to_vec();
        assert!(holds(&file, &other, 7).unwrap());
        assert!(!holds(&file, &bytes[8..], 7).unwrap());
        assert!(!holds(&file, &other[..100], 8).unwrap());
        *other.last_mut().unwrap() ^= 1;
        assert!(!holds(&file, &other, 7).unwrap());
        assert!(holds(&file, &bytes[..1], bytes.len() as u64).is_err(), "the file ends before");
    }

    #[test]
    fn a_file_with_other_bytes_cannot_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        std::fs::write(&path, b"abcd").unwrap();
        let identity = FileIdentity::at(&path, &path.metadata().unwrap());
        let file = LoadedFile { path, identity };
        for (bytes, start, errors) in
            [(b"bcd", 1, 0), (b"bcx", 1, 1), (b"bcd", 0, 1), (b"bcd", 2, 1)]
        {
            let directory = Directory::open(folder.path()).unwrap();
            let mut finder = Finder::new(SaveFolder { directory, model: None });
            let handle: Handle = "#w".parse().unwrap();
            assert_eq!(finder.number(file.clone(), &handle), Some(0));
            let bytes = Buffer::from(bytes.to_vec());
            finder.compare(Unsure { file: 0, bytes, start, handle });
            assert_eq!(finder.errors.len(), errors, "at {start}");
        }
    }

    /// Which of the bytes of a file a model refers to after the file was written again within one
    /// tick of the clock.
    #[test]
    #[cfg(all(unix, debug_assertions))] // the clock
    fn a_file_that_changes_within_a_tick_of_the_clock_is_not_kept() {
        use crate::buffers::within_a_tick;
        use crate::proto::{GraphProto, Message, ModelProto, TensorProto};
        use crate::save::gather::content::Content;
        use crate::{Container, MmapChoice};

        let write = |path: &Path, bytes: &[u8], set_time: bool| {
            std::fs::write(path, bytes).unwrap();
            if set_time {
                let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
                File::open(path).unwrap().set_modified(time).unwrap();
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut graph = GraphProto::new("g");
        graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2048], "w.bin"));
        std::fs::write(at("m.onnx"), ModelProto::new(graph).encode_to_vec().unwrap()).unwrap();
        for set_time in [false, true] {
            within_a_tick(|| {
                write(&at("w.bin"), &[1; 2048], set_time);
                let container = Container::load(at("m.onnx"), MmapChoice::never()).unwrap();
                // Another file in its place, or other bytes in it, before the save.
                write(&at("w.bin"), &[2; 2048], set_time);
                let options = SaveOptions::from(WeightFiles::AsLoaded).sync(false);
                let error = container.save(at("n.onnx"), options.clone()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::CannotKeep, "{error}");
                // And after it was planned.
                write(&at("w.bin"), &[1; 2048], set_time);
                let target = SaveTarget::new(&at("n.onnx")).unwrap();
                let content = Content::new(&container, &options).unwrap();
                let weights = content.weights_to_save(&options).unwrap();
                let kept = KeptFiles::new(&weights, &target, &options).unwrap();
                kept.check().unwrap();
                write(&at("w.bin"), &[2; 2048], set_time);
                assert_eq!(kept.check().unwrap_err().kind(), ErrorKind::CannotKeep);
            });
        }
    }
}
