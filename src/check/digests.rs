//! The comparison with the digests that are stored with a model.
//!
//! The weights are not loaded: every byte of them is read once, in parts, into SHA-256.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::finding::{Findings, Severity};
use crate::buffer::Buffer;
use crate::digest::{Compared, External, Opened};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, ExternalData, is_handle, without_dots};
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
    let mut files = Files { opened, load, known: HashMap::new() };
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
    opened: Arc<Opened>,
    load: &'a LoadOptions,
    /// The location and the length of those that were met.
    known: HashMap<String, (Arc<str>, u64)>,
}

impl Files<'_> {
    /// Where the elements of the external `tensor` are.
    fn external<'c>(&mut self, tensor: &TensorProto) -> Result<External<'c>> {
        let entry = ExternalData::parse(tensor)?;
        let (_, len) = external_data::layout(tensor)?;
        let range = entry.range(len)?;
        let name = without_dots(&entry.location);
        let cut_off = || Error::new(ErrorKind::OutOfBounds, "its bytes end beyond the file");
        if let Some(bytes) = self.load.files.get(&name) {
            let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
            let bytes = bounds.and_then(|(start, end)| bytes.slice(start..end));
            return Ok(External::in_memory(bytes.ok_or_else(cut_off)?));
        }
        if is_handle(&entry.location) {
            return Err(Error::new(ErrorKind::MissingHandle, "an unresolved handle"));
        }
        if !self.known.contains_key(&name) {
            let file = self.opened.file(&entry.location)?;
            let metadata =
                retried(|| file.metadata()).map_err(|error| Error::io(&entry.location, error))?;
            self.known.insert(name.clone(), (Arc::from(entry.location), metadata.len()));
        }
        match self.known.get(&name) {
            Some((location, len)) if range.end <= *len => {
                Ok(External::in_file(&self.opened, location, &range))
            }
            _ => Err(cut_off()),
        }
    }
}
