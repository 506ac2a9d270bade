//! [`RemoteJob::write`] and [`RemoteJob::write_from`]: one part, and its receipt.

use std::ops::Range;

use onnx_container::job::Weights;
use onnx_container::{Error, ErrorKind, Result, work};

use super::bytes::{ranges_of, source_of};
use super::description::{PlannedFile, RemoteJob};
use super::receipt::{HashedRange, PartReceipt, StoredFile};
use super::stream::send;
use crate::missing::name_of;
use crate::names::{content_name, hex};
use crate::object::Object;
use crate::put::put;
use crate::runtime::{run, run_to_end};
use crate::sums::{Sum, Sums};

impl RemoteJob {
    /// Writes the part of a [rewrite](Self::rewrite).
    ///
    /// Any number of processes may write a part, at once or again: where its receipt and its file
    /// are there, nothing is written, and a weights file that is there is not sent again. The
    /// source is read once for the name of the file, and once to be sent.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the job is no rewrite or has no such part,
    /// [`ErrorKind::Changed`] where the source is another one now, [`ErrorKind::MissingFile`] where
    /// the job was committed or aborted, and those of a load and of the store.
    pub fn write(&self, part: usize) -> Result<PartReceipt> {
        Ok(self.write_or_find(part)?.0)
    }

    /// As [`write`](Self::write), and whether this call has written the part: `false` where its
    /// receipt was there with its file, and for a part without tensors.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_or_find(&self, part: usize) -> Result<(PartReceipt, bool)> {
        let source = self.plan.source.as_ref().ok_or_else(|| {
            let reason = "the job is no rewrite: write its parts from weights";
            Error::new(ErrorKind::InvalidArgument, reason)
        })?;
        self.write_part(part, |file| {
            let (container, cast) = source.open(&self.stores)?;
            let stored = self.put_file(file, &container)?;
            source.check()?;
            // What was read is converted now.
            let infinite = cast.iter().flat_map(|cast| cast.infinite());
            Ok((stored, infinite.map(str::to_owned).collect()))
        })
    }

    /// Writes the part `part` from `weights`; as [`write`](Self::write) otherwise.
    ///
    /// Weights that are [at hand](Weights::are_here) are read twice. Others are asked for once, in
    /// the order of [`tensors`](Self::tensors), by the calling thread, and sent under a name that
    /// no other file has.
    ///
    /// # Errors
    /// Those of `weights`, [`ErrorKind::DataType`] and [`ErrorKind::Shape`] for weights of another
    /// type or shape, and those of [`write`](Self::write).
    pub fn write_from(&self, part: usize, weights: &impl Weights) -> Result<PartReceipt> {
        let written = self.write_part(part, |file| {
            let stored = match weights.are_here() {
                true => self.put_file(file, weights)?,
                false => send(&self.store, &self.url, file, weights)?,
            };
            Ok((stored, Vec::new()))
        });
        Ok(written?.0)
    }

    /// Writes a part unless that was done: `write` puts its file there. Whether it has.
    fn write_part(
        &self,
        part: usize,
        write: impl FnOnce(&PlannedFile) -> Result<(StoredFile, Vec<String>)>,
    ) -> Result<(PartReceipt, bool)> {
        if !self.has_part(part) {
            let last = self.plan.asked_parts.max(self.plan.files.len()).saturating_sub(1);
            let reason = format!("the job has the parts 0 to {last}, not {part}");
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let folder = self.job_folder();
        run(folder.check_whole())?;
        let job = self.plan.id.clone();
        let Some(file) = self.plan.files.get(part) else {
            return Ok((PartReceipt { job, part, file: None, infinite: Vec::new() }, false));
        };
        if let Some(receipt) = self.stored(part)?.filter(|receipt| self.is_there(receipt, file)) {
            return Ok((receipt, false));
        }
        let (stored, infinite) = write(file)?;
        let mut receipt = PartReceipt { job, part, file: Some(stored), infinite };
        let json = receipt.to_json()?;
        if !run(folder.add_receipt(part, json.clone()))? {
            // The receipt of another run of this part counts, as a commit may have seen it.
            match self.stored(part)?.filter(|receipt| self.is_there(receipt, file)) {
                Some(first) => receipt = first,
                None => run(folder.put_receipt(part, json))?,
            }
        }
        // A receipt that is put after the end of its job stays.
        if let Err(error) = run(folder.check_there()) {
            drop(run(folder.remove_receipt(part)));
            return Err(error);
        }
        Ok((receipt, true))
    }

    /// The receipt of `part` that is stored. What is no receipt stands for nothing: its part is
    /// written again.
    pub(super) fn stored(&self, part: usize) -> Result<Option<PartReceipt>> {
        let folder = self.job_folder();
        let text = run(folder.stored_receipt(part))?;
        let read = |text: String| PartReceipt::of_stored(&text, &folder.shown());
        let receipt = text.map_or(Ok(None), read)?;
        Ok(receipt.filter(|receipt| self.is_mine(receipt) && receipt.part == part))
    }

    /// Whether the weights file of `receipt` is there as it is `planned`. A sweep may have removed
    /// it.
    fn is_there(&self, receipt: &PartReceipt, planned: &PlannedFile) -> bool {
        let file = receipt.file.as_ref().filter(|file| file.bytes == planned.bytes);
        let Some(file) = file else { return false };
        let url = self.url.beside(&file.name);
        let found = url.and_then(|url| run(Object::head(&self.store, url.key())));
        found.is_ok_and(|object| object.len() == file.bytes)
    }

    /// Puts the weights file of a part there, under a name of its content.
    fn put_file(&self, file: &PlannedFile, weights: &impl Weights) -> Result<StoredFile> {
        let source = source_of(file, weights)?;
        let ranges = ranges_of(file)?;
        work::begin(file.bytes.saturating_mul(2));
        let (sum, sums) = run(async { Ok(source.sums(ranges).await?.finish()) })?;
        let named = content_name(&file.name, &sum);
        let (name, is_missing) = run(name_of(&self.store, &self.url, named, file.bytes))?;
        if is_missing {
            let key = self.url.beside(&name)?;
            // It ends by itself when it is cancelled, and gives up its parts.
            run_to_end(put(&self.store, key.key(), &source, &sum))?;
        }
        Ok(StoredFile::new(name, file.bytes, &sum, sums))
    }
}

impl StoredFile {
    pub(super) fn of(name: String, bytes: u64, sums: Sums) -> Self {
        let (sum, ranges) = sums.finish();
        Self::new(name, bytes, &sum, ranges)
    }

    fn new(name: String, bytes: u64, sum: &Sum, ranges: Vec<(Range<u64>, Sum)>) -> Self {
        let ranges = ranges.into_iter().map(|(range, sum)| HashedRange {
            offset: range.start,
            bytes: range.end.saturating_sub(range.start),
            sha256: hex(&sum),
        });
        Self { name, bytes, sha256: hex(sum), ranges: ranges.collect() }
    }
}
