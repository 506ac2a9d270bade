//! The comparison with the digests that are stored with a model.
//!
//! The weights are not loaded: every byte of them is read once, in parts, into SHA-256.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::finding::{Findings, Severity};
use crate::buffer::Buffer;
use crate::digest::{Compared, External, Opened};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, ExternalData};
use crate::files::model_files::{ModelFiles, WeightsFile};
use crate::load::{LoadOptions, Origins};
use crate::proto::{ModelProto, TensorProto};
use crate::util::retry::retried;

/// Adds what does not have its digest to `findings`, and returns what was compared. The `model` at
/// `path` was decoded from `bytes`.
pub(super) fn check(
    path: &Path,
    (model, bytes): (&ModelProto, &Buffer),
    load: &LoadOptions,
    findings: &mut Findings,
) -> Result<Compared> {
    let mut compared = Compared::default();
    let Some(directory) = load.directory()? else { return Ok(compared) };
    let opened = Arc::new(Opened::new(directory));
    let mut files =
        Files { opened: &opened, known: ModelFiles::new(Some(opened.directory()), &load.files) };
    let origins = Origins::of(model, load, Some(bytes));
    if let Some(error) = origins.not_covered() {
        findings.add(Severity::Advice, || error.with_path(path));
    }
    let verified = origins.verify(model, |tensor| files.external(tensor), &mut compared);
    let Err(error) = verified else { return Ok(compared) };
    // That a file cannot be read is said once, and not of each tensor that is in it.
    let unread = findings.kept.iter().filter(|found| found.error.kind() == ErrorKind::Io);
    let mut unread: HashSet<_> =
        unread.filter_map(|found| found.error.path()).map(Path::to_path_buf).collect();
    for error in error.each().filter(|error| is_new(error.kind())) {
        let file = error.path().filter(|_| error.kind() == ErrorKind::Io);
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
    opened: &'a Arc<Opened>,
    known: ModelFiles<'a, Known>,
}

/// A weights file that was found.
enum Known {
    InMemory(Buffer),
    /// At this location, with this length in bytes.
    InFile(Arc<str>, u64),
}

impl Files<'_> {
    /// Where the elements of the external `tensor` are.
    fn external<'c>(&mut self, tensor: &TensorProto) -> Result<External<'c>> {
        let entry = ExternalData::parse(tensor)?;
        let (_, len) = external_data::layout(tensor)?;
        let range = entry.range(len)?;
        let cut_off = || Error::new(ErrorKind::OutOfBounds, "its bytes end beyond the file");
        let (opened, location) = (self.opened, entry.location.as_str());
        let number = self.known.number(location, |files| match files.find(location)? {
            WeightsFile::Given(bytes) => Ok(Known::InMemory(bytes.clone())),
            WeightsFile::Beneath(_) => {
                let file = opened.file(location)?;
                let metadata = retried(|| file.metadata());
                let metadata = metadata.map_err(|error| Error::io(files.path(location), error))?;
                Ok(Known::InFile(Arc::from(location), metadata.len()))
            }
        })?;
        let unread = || Error::new(ErrorKind::MissingFile, "its file cannot be opened");
        match self.known.get_mut(number.ok_or_else(unread)?)? {
            Known::InMemory(bytes) => {
                let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                let bytes = bounds.and_then(|(start, end)| bytes.slice(start..end));
                Ok(External::in_memory(bytes.ok_or_else(cut_off)?))
            }
            Known::InFile(location, len) if range.end <= *len => {
                Ok(External::in_file(opened, location, &range))
            }
            Known::InFile(..) => Err(cut_off()),
        }
    }
}
