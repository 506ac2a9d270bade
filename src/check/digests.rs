//! The comparison with the digests that are stored with a model.
//!
//! The weights are not loaded: every byte of them is read once, in parts, into SHA-256.

use std::collections::HashSet;
use std::path::Path;

use super::finding::{Findings, Severity};
use crate::buffer::Buffer;
use crate::container::part::Share;
use crate::digest::{Compared, External};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, ExternalData};
use crate::files::file_source::{FilesFrom, SharedSource, SourceFile};
use crate::files::folder_files::FolderFiles;
use crate::files::model_files::{ModelFiles, WeightsFile};
use crate::load::{LoadOptions, Origins};
use crate::proto::{ModelProto, TensorProto};

/// Adds what of the `share` does not have its digest to `findings`, and returns what was compared.
/// The `model` at `path` was decoded from `bytes`.
pub(super) fn check(
    path: &Path,
    (model, bytes, share): (&ModelProto, &Buffer, &Share),
    load: &LoadOptions,
    findings: &mut Findings,
) -> Result<Compared> {
    let mut compared = Compared::default();
    let source = match load.files_place()? {
        Some(FilesFrom::Folder(directory)) => Some(SharedSource::new(FolderFiles::from(directory))),
        Some(FilesFrom::Source(source)) => Some(source),
        None => None,
    };
    let from = source.map(FilesFrom::Source);
    let mut files = Files { known: ModelFiles::new(from.as_ref(), &load.files) };
    let origins = Origins::of(model, load, Some(bytes));
    if let Some(error) = origins.not_covered() {
        findings.add(Severity::Advice, || error.with_path(path));
    }
    let verified = origins.verify((model, share), |tensor| files.external(tensor), &mut compared);
    let Err(error) = verified else { return Ok(compared) };
    // That a file cannot be read is said once, and not of each tensor that is in it.
    let is_of_file = |error: &Error| [ErrorKind::Io, ErrorKind::TooLarge].contains(&error.kind());
    let unread = findings.kept.iter().filter(|found| is_of_file(&found.error));
    let mut unread: HashSet<_> =
        unread.filter_map(|found| found.error.path()).map(Path::to_path_buf).collect();
    for error in error.each().filter(|error| is_new(error.kind())) {
        let file = error.path().filter(|_| is_of_file(error));
        if file.is_none_or(|file| unread.insert(file.to_path_buf())) {
            findings.add(Severity::Error, || error.clone().with_path(path));
        }
    }
    Ok(compared)
}

/// Whether only the digest check finds errors of this kind.
fn is_new(kind: ErrorKind) -> bool {
    use ErrorKind::{Changed, Io, TooLarge, WrongDigest};
    matches!(kind, WrongDigest | Io | TooLarge | Changed)
}

/// The weights files of a model.
struct Files<'a> {
    known: ModelFiles<'a, Known>,
}

/// A weights file that was found.
enum Known {
    InMemory(Buffer),
    InFile(SourceFile),
}

impl Files<'_> {
    /// Where the elements of the external `tensor` are.
    fn external<'c>(&mut self, tensor: &TensorProto) -> Result<External<'c>> {
        let entry = ExternalData::parse(tensor)?;
        let (_, len) = external_data::layout(tensor)?;
        let range = entry.range(len)?;
        let cut_off = || Error::new(ErrorKind::OutOfBounds, "its bytes end beyond the file");
        let location = entry.location.as_str();
        let number = self.known.number(location, |files| match files.find(location)? {
            WeightsFile::Given(bytes) => Ok(Known::InMemory(bytes.clone())),
            WeightsFile::From(source) => source.open(location).map(Known::InFile),
            WeightsFile::Beneath(_) => Err(Error::internal("a folder that is no source")),
        })?;
        let unread = || Error::new(ErrorKind::MissingFile, "its file cannot be opened");
        match self.known.get_mut(number.ok_or_else(unread)?)? {
            Known::InMemory(bytes) => {
                let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                let bytes = bounds.and_then(|(start, end)| bytes.slice(start..end));
                Ok(External::in_memory(bytes.ok_or_else(cut_off)?))
            }
            Known::InFile(file) if range.end <= file.len() => Ok(External::in_file(file, &range)),
            Known::InFile(..) => Err(cut_off()),
        }
    }
}
