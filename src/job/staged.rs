//! The digest of the model of a job before it is in place: of what writers have hashed, and of
//! bytes in the files where nobody has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::description::{Job, PlannedTensor};
use super::receipt::Receipt;
use crate::buffer::Buffer;
use crate::digest::{Digest, Digests, External};
use crate::error::{Error, Result};
use crate::files::external_data::{ExternalData, PathPolicy, is_external, layout};
use crate::files::file_source::{SharedSource, SourceFile};
use crate::files::folder_files::FolderFiles;
use crate::files::recovery::staged_name;
use crate::graph::traversal;
use crate::proto::ModelProto;

/// The digests of `model`, the model of `job`. Tensors that no receipt has hashed are read, or
/// there is no digest where that is not wanted.
pub(super) fn digests(
    job: &Job,
    model: &ModelProto,
    receipts: &[Receipt],
    may_read: bool,
) -> Result<Option<Digests>> {
    let hashed = hashed(job, receipts);
    let mut staged = Staged::of(job)?;
    let mut found = Vec::new();
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let entry = ExternalData::parse(tensor)?;
        let (_, len) = layout(tensor)?;
        let range = entry.range(len)?;
        let key = (entry.location.as_str(), range.start, len);
        found.push(match hashed.get(&key) {
            Some(digest) => External::hashed(*digest),
            None if len == 0 => External::in_memory(Buffer::default()),
            None if may_read => External::in_file(staged.file(&entry.location)?, &range),
            None => return Ok(None),
        });
    }
    let mut found = found.into_iter();
    let missing = || Error::internal("a tensor of the model was not looked at");
    Digests::of(model, |_| found.next().ok_or_else(missing)).map(Some)
}

/// The weights files of a job, opened when a tensor of them is read.
struct Staged {
    source: SharedSource,
    open: HashMap<String, SourceFile>,
}

impl Staged {
    fn of(job: &Job) -> Result<Self> {
        let files = FolderFiles::new(job.job_folder().new_files(), PathPolicy::Strict)?;
        Ok(Self { source: SharedSource::new(files), open: HashMap::new() })
    }

    /// The file at `location` of the model.
    fn file(&mut self, location: &str) -> Result<&SourceFile> {
        match self.open.entry(location.to_owned()) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(slot) => Ok(slot.insert(self.source.open(&staged_name(location))?)),
        }
    }
}

/// The digests that receipts have, by the place of the tensor: its file, offset and length.
fn hashed<'j>(job: &'j Job, receipts: &[Receipt]) -> HashMap<(&'j str, u64, u64), Digest> {
    let by_name: HashMap<&str, &PlannedTensor> =
        job.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let written = receipts.iter().flat_map(|receipt| &receipt.tensors);
    let placed = written.filter_map(|written| {
        let digest = Digest::from_digits(written.sha256.as_deref()?)?;
        let tensor = by_name.get(written.name.as_str())?;
        let file = job.files.get(tensor.file)?;
        Some(((file.name.as_str(), tensor.offset, tensor.byte_len().ok()?), digest))
    });
    placed.collect()
}
