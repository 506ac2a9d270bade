//! The digest of the model of a job before it is in place: of what writers have hashed, and of
//! bytes in the files where nobody has.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::description::{Job, PlannedTensor};
use super::receipt::Receipt;
use crate::digest::{Digest, Digests, External};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::files::external_data::{ExternalData, is_external, layout};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::initializer::Initializer;
use crate::tensor::source::WeightSource;

/// Where the elements of an external tensor of the model are.
enum Found {
    Hashed(Digest),
    Staged(Initializer),
}

/// The digests of `model`, the model of `job`. Tensors that no receipt has hashed are read, or
/// there is no digest where that is not wanted.
pub(super) fn digests(
    job: &Job,
    model: &ModelProto,
    receipts: &[Receipt],
    may_read: bool,
) -> Result<Option<Digests>> {
    let hashed = hashed(job, receipts);
    let (mut all, mut files) = (Vec::new(), HashMap::new());
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let entry = ExternalData::parse(tensor)?;
        let (dtype, len) = layout(tensor)?;
        let range = entry.range(len)?;
        let key = (entry.location.as_str(), range.start, len);
        match hashed.get(&key) {
            Some(digest) => all.push(Found::Hashed(*digest)),
            None if len == 0 => {
                all.push(Found::Staged(Initializer::lazy(dtype, tensor.dims.clone(), || {
                    Ok(Vec::new())
                })?))
            }
            None if may_read => {
                let file = staged(job, &entry.location, &mut files)?;
                let dims = tensor.dims.clone();
                let part = StagedTensor { file, start: range.start, len, dtype, dims };
                all.push(Found::Staged(Initializer::from_source(part)?));
            }
            None => return Ok(None),
        }
    }
    let mut found = all.iter();
    let external = |_: &TensorProto| match found.next() {
        Some(Found::Hashed(digest)) => Ok(External::hashed(*digest)),
        Some(Found::Staged(initializer)) => Ok(External::of(initializer)),
        None => Err(Error::internal("a tensor of the model was not looked at")),
    };
    Digests::of(model, external).map(Some)
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

/// The file at `location`, opened once.
fn staged(
    job: &Job,
    location: &str,
    files: &mut HashMap<String, Arc<StagedFile>>,
) -> Result<Arc<StagedFile>> {
    if let Some(file) = files.get(location) {
        return Ok(file.clone());
    }
    let path = job.job_folder().data(location);
    let file = File::open(&path).map_err(|error| Error::io(&path, error))?;
    let file = Arc::new(StagedFile { file, path });
    files.insert(location.to_owned(), file.clone());
    Ok(file)
}

struct StagedFile {
    file: File,
    path: PathBuf,
}

/// A tensor in a weights file of a job.
struct StagedTensor {
    file: Arc<StagedFile>,
    start: u64,
    len: u64,
    dtype: DataType,
    dims: Vec<i64>,
}

impl WeightSource for StagedTensor {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let at = usize::try_from(self.start.saturating_add(offset)).unwrap_or(usize::MAX);
        let read = crate::buffers::read_at(&self.file.file, out, at);
        read.map_err(|error| Error::io(&self.file.path, error))
    }
}
