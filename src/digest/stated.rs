//! What is stated about whole files: their SHA-1 by `checksum` entries of tensors, which the
//! specification of external data has, and their SHA-256 by their names in the cache of Hugging
//! Face, `blobs/` and 64 hexadecimal digits, which the files of a snapshot are links to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::sha256::Digest;
use super::verify::Compared;
use super::whole::Whole;
use crate::buffer::Buffer;
use crate::container::part::Share;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{
    ExternalData, check_location, is_external, is_handle, is_stripped, without_dots,
};
use crate::files::file_source::{FilesFrom, SourceFile};
use crate::graph::traversal;
use crate::proto::ModelProto;
use crate::util::parallel;
use crate::util::retry::retried;

/// The files of a model of which something is stated.
#[derive(Default)]
pub(crate) struct Stated {
    files: Vec<Statement>,
    /// The first files of which nothing is stated, and how many there are.
    others: Vec<PathBuf>,
    other_count: usize,
}

/// How many files of which nothing is stated are named.
const FEW: usize = 3;

/// What is stated about a file.
struct Statement {
    path: PathBuf,
    bytes: StatedSource,
    sha1: Checksums,
    sha256: Option<Digest>,
}

/// The checksums that the tensors of a file state for it.
#[derive(Default)]
struct Checksums {
    all: HashSet<String>,
    /// The first two, each with its tensor: one of them is wrong if any is.
    first: Vec<(String, String)>,
}

impl Checksums {
    /// Adds that of a tensor, whose name is asked for if it is needed.
    fn add(&mut self, checksum: String, name: impl FnOnce() -> String) {
        if self.first.len() < 2 && !self.all.contains(&checksum) {
            self.first.push((name(), checksum.clone()));
        }
        self.all.insert(checksum);
    }

    /// What is wrong with them where the SHA-1 of the file is `found`: the tensor and the reason.
    fn difference(&self, found: &str) -> Option<(&str, String)> {
        let (tensor, stated) = self.first.iter().find(|(_, stated)| stated != found)?;
        let is_digest = stated.len() == 40 && stated.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut reason = if is_digest {
            format!("the SHA-1 of the file is {found}, the checksum {stated} is stored")
        } else {
            format!("the checksum {stated:?} is not the 40 hexadecimal digits of a SHA-1")
        };
        let right = usize::from(self.all.contains(found));
        match self.all.len().saturating_sub(right).saturating_sub(1) {
            0 => {}
            more => reason += &format!(", and {more} more that differ"),
        }
        Some((tensor, reason))
    }
}

enum StatedSource {
    Memory(Buffer),
    /// Opened beneath the model's directory, as a blob that a link there leads to, or by a source.
    Location(String),
}

impl Stated {
    /// What is stated about the weights files of `model`, which are in `directory`, where they may
    /// be links to blobs, or `given` by their locations.
    pub(crate) fn of(
        model: &ModelProto,
        (directory, may_be_links): (Option<&Path>, bool),
        given: &HashMap<String, Buffer>,
    ) -> Self {
        let mut checksums: BTreeMap<String, Checksums> = BTreeMap::new();
        for (place, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
            let Ok(entry) = ExternalData::parse(tensor) else { continue };
            let name = without_dots(&entry.location);
            // A handle is no file, nor is what stripped tensors name, and a refused location is no
            // other name of one.
            let is_no_file =
                is_handle(&name) || is_stripped(&name) || check_location(&entry.location).is_err();
            if is_no_file && !given.contains_key(&name) {
                continue;
            }
            let known = checksums.entry(name).or_default();
            let stated = entry.checksum.filter(|checksum| !checksum.is_empty());
            if let Some(checksum) = stated {
                known.add(checksum.to_ascii_lowercase(), || place.qualified_name(tensor));
            }
        }
        let mut stated = Self::default();
        for (location, sha1) in checksums {
            let path = directory.map_or_else(|| location.clone().into(), |d| d.join(&location));
            let bytes = given.get(&location);
            let is_link = may_be_links && bytes.is_none();
            let sha256 = is_link.then(|| name_of_blob(&path)).flatten();
            let bytes = match bytes {
                Some(bytes) => StatedSource::Memory(bytes.clone()),
                None => StatedSource::Location(location),
            };
            stated.add(Statement { path, bytes, sha1, sha256 });
        }
        stated
    }

    /// Adds what is stated about the model itself, which was read as `bytes` from `path`, if it was
    /// read from a file.
    pub(crate) fn with_model(mut self, path: Option<&Path>, bytes: Option<&Buffer>) -> Self {
        let Some((path, bytes)) = path.zip(bytes) else {
            self.leave_out("the model".into());
            return self;
        };
        let sha256 = name_of_blob(path);
        let bytes = StatedSource::Memory(bytes.clone());
        self.add(Statement { path: path.to_path_buf(), bytes, sha1: Checksums::default(), sha256 });
        self
    }

    fn add(&mut self, statement: Statement) {
        if statement.sha1.all.is_empty() && statement.sha256.is_none() {
            self.leave_out(statement.path);
        } else {
            self.files.push(statement);
        }
    }

    fn leave_out(&mut self, path: PathBuf) {
        self.other_count += 1;
        if self.others.len() < FEW {
            self.others.push(path);
        }
    }

    /// Whether nothing is stated.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files of which nothing is stated, the model itself among them, in words: few of them by
    /// their names. `None` where there are none.
    pub(crate) fn not_covered(&self) -> Option<String> {
        let names: Vec<_> =
            self.others.iter().map(|path| format!("`{}`", path.display())).collect();
        match self.other_count.checked_sub(names.len())? {
            0 if names.is_empty() => None,
            0 => Some(names.join(", ")),
            more => Some(format!("{} and {more} more", names.join(", "))),
        }
    }

    /// Reads each file of the `share` once, several at a time, and compares it with what is stated
    /// about it. Adds how many there were to `done`.
    ///
    /// # Errors
    /// One error for all files: [`ErrorKind::WrongDigest`] for those that are others, and why a
    /// file cannot be read.
    pub(crate) fn verify(
        &self,
        share: &Share,
        from: Option<&FilesFrom>,
        done: &mut Compared,
    ) -> Result<()> {
        let found = Mutex::new(Vec::new());
        let count = AtomicUsize::new(0);
        let compare = |(number, file): (usize, &Statement)| {
            let compared = file.verify(from);
            count.fetch_add(usize::from(compared.is_ok()), Ordering::Relaxed);
            let errors = compared.unwrap_or_else(|error| vec![error]);
            let errors = errors.into_iter().map(|error| (number, error));
            found.lock().unwrap_or_else(PoisonError::into_inner).extend(errors);
            Ok::<_, Error>(())
        };
        let threads = parallel::cores(self.files.len());
        let files = self.files.iter().enumerate().filter(|(number, _)| share.has_file(*number));
        parallel::for_each(threads, files, compare)?;
        done.files += count.into_inner();
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|(number, _)| *number);
        let errors = found.into_iter().map(|(_, error)| error);
        Error::join(errors).map_or(Ok(()), Err)
    }
}

impl Statement {
    /// In what this file is not as it is stated.
    fn verify(&self, from: Option<&FilesFrom>) -> Result<Vec<Error>> {
        let mut whole = Whole::new(!self.sha1.all.is_empty(), self.sha256.is_some());
        let failed = |error| Error::io(&self.path, error);
        match &self.bytes {
            StatedSource::Memory(bytes) => whole.update(bytes)?,
            StatedSource::Location(location) => {
                let missing = || Error::new(ErrorKind::MissingFile, "no directory was given");
                match from.ok_or_else(missing)? {
                    FilesFrom::Folder(directory) => {
                        whole.read(directory.open_file(location)?).map_err(failed)?;
                    }
                    FilesFrom::Source(source) => update(&mut whole, &source.open(location)?)?,
                }
            }
        }
        let wrong =
            |reason: String| Error::new(ErrorKind::WrongDigest, reason).with_path(&self.path);
        let (sha1, sha256) = whole.finish();
        let mut errors = Vec::new();
        let difference = sha1.as_deref().and_then(|found| self.sha1.difference(found));
        errors.extend(difference.map(|(tensor, reason)| wrong(reason).with_tensor(tensor)));
        if let Some((found, stated)) = sha256.zip(self.sha256).filter(|(a, b)| a != b) {
            let reason = format!(
                "its SHA-256 is {found}, its name among the blobs of a cache is {stated}: it was changed, or its \
                 download was not complete"
            );
            errors.push(wrong(reason));
        }
        Ok(errors)
    }
}

/// Adds all bytes of `file`.
fn update(whole: &mut Whole, file: &SourceFile) -> Result<()> {
    let mut chunk = vec![0; file.most_at_once()];
    let mut offset = 0;
    while offset < file.len() {
        let rest = usize::try_from(file.len() - offset).unwrap_or(usize::MAX);
        let part = chunk.get_mut(..rest.min(file.most_at_once())).unwrap_or_default();
        file.read_at(offset, part)?;
        whole.update(part)?;
        offset += part.len() as u64;
    }
    Ok(())
}

/// The digest that the file at `path` is named by, if that is a blob.
fn name_of_blob(path: &Path) -> Option<Digest> {
    let real = retried(|| path.canonicalize()).ok()?;
    let is_blob =
        real.parent()?.file_name()? == "blobs" && retried(|| real.metadata()).ok()?.is_file();
    Digest::from_digits(real.file_name()?.to_str()?).filter(|_| is_blob)
}
