//! [`SliceWriter`]: parts of tensors, from a process that has only these, such as a rank of a
//! training job.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::begun::BegunList;
use super::description::{Job, PlannedTensor};
use super::files::OpenFiles;
use super::receipt::{Receipt, WrittenTensor, check_writer};
use super::slice::{Runs, TensorSlice};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::save::write_at;
use crate::tensor::initializer::Initializer;
use crate::util::cancel;

/// Writes slices of the tensors of a job: see [`Job::slice_writer`]. Several threads may.
#[derive(Debug)]
pub struct SliceWriter<'j> {
    job: &'j Job,
    name: String,
    by_name: HashMap<&'j str, &'j PlannedTensor>,
    /// The list of what this writer has begun to write, in this run and in earlier ones.
    begun: BegunList,
    files: OpenFiles<'j>,
    state: Mutex<State>,
    /// Keep others from a commit, and from writing under this name.
    _locks: [Option<File>; 2],
}

#[derive(Debug, Default)]
struct State {
    written: Vec<WrittenTensor>,
    bytes: u64,
}

impl Job {
    /// A writer of slices called `writer`: `rank-3`, or the name of a machine. A receipt of that
    /// name, as of a run that was killed, is gone: its slices are written again, all of them and no
    /// others. A commit refuses what a run has written that did not end.
    ///
    /// ```
    /// use onnx_container::job::{Job, JobOptions, TensorSlice};
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, DataType, Initializer, MmapChoice};
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2, 3], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", Initializer::declared(DataType::Uint8, [2, 3])?)?;
    /// let job = Job::plan(&container, &path, JobOptions::new().slices(true))?;
    ///
    /// // Two ranks have the columns of a matrix of two rows and three columns.
    /// let left = job.slice_writer("rank-0")?;
    /// left.write("w", &TensorSlice::new([0, 0], [2, 2]), &[1, 2, 4, 5])?;
    /// left.finish()?;
    /// let right = job.slice_writer("rank-1")?;
    /// right.write("w", &TensorSlice::new([0, 2], [2, 1]), &[3, 6])?;
    /// right.finish()?;
    ///
    /// job.commit()?;
    /// let model = Container::load(&path, MmapChoice::never())?;
    /// assert_eq!(model.get("#w").unwrap().to_buffer()?[..], [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a name that no file can have, and where the job is not
    /// [written in slices](super::JobOptions::slices); [`ErrorKind::Changed`] while a process
    /// writes under this name, and where a commit has begun; [`ErrorKind::MissingFile`] where the
    /// job was committed or aborted.
    pub fn slice_writer(&self, writer: impl Into<String>) -> Result<SliceWriter<'_>> {
        let name = writer.into();
        check_writer(&name)?;
        if !self.slices {
            let reason = "the job is written in parts: plan one that is written in slices";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let folder = self.job_folder();
        folder.check()?;
        let locks = [folder.lock_to_write()?, folder.lock_or_refuse_writer(&name)?];
        folder.refuse_commit()?;
        folder.forget(&name)?;
        let begun = BegunList::open(folder.begun(&name))?;
        let by_name = self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        Ok(SliceWriter {
            job: self,
            name,
            by_name,
            begun,
            files: OpenFiles::new(self),
            state: Mutex::default(),
            _locks: locks,
        })
    }
}

impl SliceWriter<'_> {
    /// Writes `bytes`, the elements of `slice` of the tensor `name` in row-major order,
    /// little-endian, packed as in `raw_data`.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] for a name that the job has not, [`ErrorKind::OutOfBounds`] for
    /// a slice that is not within the tensor, [`ErrorKind::Shape`] for another number of bytes,
    /// [`ErrorKind::Unsupported`] for a slice that begins or ends within a byte, and those of the
    /// disk.
    pub fn write(&self, name: &str, slice: &TensorSlice, bytes: &[u8]) -> Result<()> {
        let tensor = self.by_name.get(name).copied().ok_or_else(|| {
            let reason = "the job has no tensor of this name";
            Error::new(ErrorKind::MissingTensor, reason).with_tensor(name)
        })?;
        let runs = self.runs(tensor, slice, bytes).map_err(|error| error.with_tensor(name))?;
        let part = Some(slice.clone()).filter(|it| *it != TensorSlice::whole(&tensor.dims));
        let mut written = WrittenTensor { name: name.to_owned(), slice: part, sha256: None };
        self.begun.note(&written)?;
        self.write_runs(tensor, &runs, bytes).map_err(|error| error.with_tensor(name))?;
        if written.slice.is_none() && self.job.publishing.digests {
            let digest = Digest::of_bytes(Sha256::new_with_prefix(bytes));
            written.sha256 = Some(digest.to_string());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.written.push(written);
        state.bytes = state.bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Writes all elements of `weights` as the slice of the tensor `name` that begins at `offsets`
    /// (elements) and has their dimensions.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] where they have another type than the tensor; those of
    /// [`write`](Self::write) and of reading `weights`.
    pub fn write_from(
        &self,
        name: &str,
        offsets: impl Into<Vec<u64>>,
        weights: &Initializer,
    ) -> Result<()> {
        if let Some(tensor) = self.by_name.get(name).filter(|it| it.dtype != weights.dtype()) {
            let reason =
                format!("the weights are {}, the job has {}", weights.dtype(), tensor.dtype);
            return Err(Error::new(ErrorKind::DataType, reason).with_tensor(name));
        }
        let negative = |_| Error::internal("an initializer with a negative dimension");
        let shape = weights.dims().iter().map(|length| u64::try_from(*length).map_err(negative));
        let slice = TensorSlice::new(offsets, shape.collect::<Result<Vec<_>>>()?);
        let bytes = weights.to_buffer().map_err(|error| error.with_tensor(name))?;
        self.write(name, &slice, &bytes)
    }

    /// Where the bytes of `slice` go.
    fn runs(&self, tensor: &PlannedTensor, slice: &TensorSlice, bytes: &[u8]) -> Result<Runs> {
        let runs = Runs::of(slice, tensor.dtype, &tensor.dims)?;
        if runs.total() == bytes.len() as u64 {
            return Ok(runs);
        }
        let reason = format!("the slice has {} bytes, {} are given", runs.total(), bytes.len());
        Err(Error::new(ErrorKind::Shape, reason))
    }

    fn write_runs(&self, tensor: &PlannedTensor, runs: &Runs, bytes: &[u8]) -> Result<()> {
        let file = self.files.get(tensor.file)?;
        let len = usize::try_from(runs.byte_len()).unwrap_or(usize::MAX).max(1);
        let fail = |error| Error::io(self.job.folder(), error);
        for (offset, run) in runs.offsets().zip(bytes.chunks(len)) {
            write_at(&file, run, tensor.offset.saturating_add(offset)).map_err(fail)?;
        }
        cancel::advance(bytes.len() as u64)
    }

    /// Flushes what was written, and leaves the receipt.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(self) -> Result<Receipt> {
        let State { written, bytes } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sync = self.job.publishing.sync;
        self.files.flush()?;
        let (job, writer) = (self.job.id.clone(), self.name);
        let receipt = Receipt { job, writer, bytes, tensors: written, infinite: Vec::new() };
        self.job.job_folder().put_receipt(&receipt.writer, &receipt.to_json()?, sync)?;
        Ok(receipt)
    }
}
