//! [`Job::write`]: one part, written at the places that the plan gave it.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use sha2::Digest as _;
use sha2::Sha256;

use super::description::{Job, PlannedTensor};
use super::files::OpenFiles;
use super::receipt::{Receipt, WrittenTensor, part_name};
use crate::buffer::{Alignment, Buffer, BufferMut};
use crate::container::{Container, Handle};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::save::write_at;
use crate::tensor::initializer::Initializer;
use crate::util::{cancel, parallel};

/// How much is written at a time, in bytes: what is hashed is still in the cache when it is
/// written.
const CHUNK: usize = 1 << 20;
/// The longest read, in bytes.
const LONGEST: usize = 64 << 20;
/// More threads than this do not write faster.
const MAX_THREADS: usize = 4;

/// Weights by the names of the tensors of a job: a [`Container`], a map, or a function.
pub trait Weights: Sync {
    /// The weights of the tensor `name`, which is asked for when it is written, by one of a few
    /// threads, and dropped then.
    ///
    /// # Errors
    /// Why there are none; the part is then not written.
    fn weights_of(&self, name: &str) -> Result<Initializer>;

    /// Whether all weights are at hand. They are then compared with the job before a byte is
    /// written, and asked for twice. Default false.
    fn are_here(&self) -> bool {
        false
    }
}

impl Weights for Container {
    fn weights_of(&self, name: &str) -> Result<Initializer> {
        self.get(Handle::of_name(name).as_str()).cloned().ok_or_else(|| missing(name))
    }

    fn are_here(&self) -> bool {
        true
    }
}

impl<S: std::hash::BuildHasher + Sync> Weights for HashMap<String, Initializer, S> {
    fn weights_of(&self, name: &str) -> Result<Initializer> {
        self.get(name).cloned().ok_or_else(|| missing(name))
    }

    fn are_here(&self) -> bool {
        true
    }
}

impl<F: Fn(&str) -> Result<Initializer> + Sync> Weights for F {
    fn weights_of(&self, name: &str) -> Result<Initializer> {
        self(name)
    }
}

fn missing(name: &str) -> Error {
    let reason = "no weights of this name are there: where they are inline, externalize the \
                  container first, from the length on that the plan has moved";
    Error::new(ErrorKind::MissingHandle, reason).with_tensor(name)
}

impl Job {
    /// Writes the part of a [rewrite](Self::rewrite).
    ///
    /// Any number of processes may write a part, at once or again: one that is written is not
    /// written again, and one that was killed halfway is written from its beginning.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the job is no rewrite or has no such part,
    /// [`ErrorKind::Changed`] where the source is another one now, [`ErrorKind::MissingFile`] where
    /// the job was committed or aborted, and those of a load and of the disk.
    pub fn write(&self, part: usize) -> Result<Receipt> {
        Ok(self.write_or_find(part)?.0)
    }

    /// As [`write`](Self::write), and whether this call has written the part: `false` where its
    /// receipt was there, and for a part without tensors.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_or_find(&self, part: usize) -> Result<(Receipt, bool)> {
        let source = self.source.as_ref().ok_or_else(|| {
            let reason = "the job is no rewrite: write its parts from weights";
            Error::new(ErrorKind::InvalidArgument, reason)
        })?;
        let written = self.write_part(part, |writer, tensors| {
            let (container, cast) = source.open()?;
            let receipt = self.write_tensors(writer, tensors, &container)?;
            source.check()?;
            // What was read is converted now.
            let infinite = cast.iter().flat_map(|cast| cast.infinite());
            Ok(Receipt { infinite: infinite.map(str::to_owned).collect(), ..receipt })
        });
        written.map_err(|error| self.unless_gone(error))
    }

    /// Writes the part `part` from `weights`; as [`write`](Self::write) otherwise.
    ///
    /// # Errors
    /// One error for all weights of another dtype or shape ([`ErrorKind::DataType`],
    /// [`ErrorKind::Shape`]), before a byte is written where they are [at hand](Weights::are_here);
    /// those of `weights`, and those of
    /// [`write`](Self::write).
    pub fn write_from(&self, part: usize, weights: &impl Weights) -> Result<Receipt> {
        self.write_part(part, |writer, tensors| self.write_tensors(writer, tensors, weights))
            .map(|written| written.0)
            .map_err(|error| self.unless_gone(error))
    }

    /// Writes a part unless that was done: `write` writes its tensors. Whether it has.
    fn write_part(
        &self,
        part: usize,
        write: impl FnOnce(&str, &[&PlannedTensor]) -> Result<Receipt>,
    ) -> Result<(Receipt, bool)> {
        if !self.has_part(part) {
            let last = self.asked_parts.max(self.parts).saturating_sub(1);
            let reason = match self.slices {
                true => "the job is written in slices, not in parts".to_owned(),
                false => format!("the job has the parts 0 to {last}, not {part}"),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let (folder, writer) = (self.job_folder(), part_name(part));
        if !self.parts().contains(&part) {
            folder.check()?;
            let job = self.id.clone();
            let (tensors, infinite) = (Vec::new(), Vec::new());
            return Ok((Receipt { job, writer, bytes: 0, tensors, infinite }, false));
        }
        let lock = folder.lock(&writer)?;
        if let Some(receipt) = self.stored(&writer)? {
            return Ok((receipt, false));
        }
        let lock_to_write = folder.lock_to_write()?;
        folder.refuse_commit()?;
        let tensors: Vec<_> = self.tensors.iter().filter(|tensor| tensor.part == part).collect();
        let receipt = write(&writer, &tensors)?;
        folder.put_receipt(&writer, &receipt.to_json()?, self.publishing.sync)?;
        drop((lock_to_write, lock));
        Ok((receipt, true))
    }

    /// The receipt of `writer` that is stored, if it is of this job.
    pub(super) fn stored(&self, writer: &str) -> Result<Option<Receipt>> {
        // What is no receipt stands for nothing: its part is written again.
        let is_other =
            |error: &Error| [ErrorKind::Decode, ErrorKind::TooLarge].contains(&error.kind());
        let text = match self.job_folder().stored_receipt(writer) {
            Err(error) if is_other(&error) => None,
            text => text?,
        };
        let receipt = text.map_or(Ok(None), |text| Receipt::of_stored(&text));
        let Some(receipt) = receipt.map_err(|error| error.with_path(self.folder()))? else {
            return Ok(None);
        };
        if receipt.job == self.id && receipt.writer == writer {
            return Ok(Some(receipt));
        }
        let reason = format!("the receipt of {writer} is of another job or writer");
        Err(Error::new(ErrorKind::Changed, reason).with_path(self.folder()))
    }

    /// Writes tensors whole, and flushes their files.
    fn write_tensors(
        &self,
        writer: &str,
        tensors: &[&PlannedTensor],
        weights: &impl Weights,
    ) -> Result<Receipt> {
        if weights.are_here() {
            check(tensors, weights)?;
        }
        let files = OpenFiles::new(self);
        let lengths = tensors.iter().map(|tensor| tensor.byte_len());
        let bytes = lengths.collect::<Result<Vec<_>>>()?.into_iter().fold(0, u64::saturating_add);
        cancel::begin(bytes);
        let written = Mutex::new(vec![None; tensors.len()]);
        let numbered = tensors.iter().enumerate();
        parallel::for_each(parallel::cores(MAX_THREADS), numbered, |(number, tensor)| {
            let digest = self.write_tensor(tensor, weights, &files);
            let digest = digest.map_err(|error| error.with_tensor(tensor.name.as_str()))?;
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = written.get_mut(number) {
                *slot = Some(digest);
            }
            Ok(())
        })?;
        files.flush()?;
        let digests = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        let tensors = tensors.iter().zip(digests).map(|(tensor, digest)| WrittenTensor {
            name: tensor.name.clone(),
            slice: None,
            sha256: digest.map(|digest| digest.to_string()),
        });
        let (job, writer) = (self.id.clone(), writer.to_owned());
        Ok(Receipt { job, writer, bytes, tensors: tensors.collect(), infinite: Vec::new() })
    }

    /// Writes one tensor to its place; returns the SHA-256 of its bytes.
    fn write_tensor(
        &self,
        tensor: &PlannedTensor,
        weights: &impl Weights,
        files: &OpenFiles<'_>,
    ) -> Result<Digest> {
        let initializer = fits(tensor, weights.weights_of(&tensor.name)?)?;
        let file = files.get(tensor.file)?;
        copy(&initializer, &file, tensor.offset, |error| {
            self.staged_file(tensor.file).map_or_else(|e| e, |path| Error::io(path, error))
        })
    }
}

/// Refuses weights of other types and shapes than `tensors`: one error for all of them.
fn check(tensors: &[&PlannedTensor], weights: &impl Weights) -> Result<()> {
    let fit = |tensor: &&PlannedTensor| {
        let fits = weights.weights_of(&tensor.name).and_then(|it| fits(tensor, it));
        fits.err().map(|error| error.with_tensor(tensor.name.as_str()))
    };
    let mut errors = Errors::default();
    tensors.iter().filter_map(fit).for_each(|error| errors.push(error));
    errors.join().map_or(Ok(()), Err)
}

/// `initializer`, if it has the type and shape of `tensor`.
fn fits(tensor: &PlannedTensor, initializer: Initializer) -> Result<Initializer> {
    let (dtype, dims) = (initializer.dtype(), tensor.signed_dims()?);
    if dtype != tensor.dtype {
        let reason = format!("the weights are {dtype}, the job has {}", tensor.dtype);
        return Err(Error::new(ErrorKind::DataType, reason));
    }
    if initializer.dims() != dims {
        let reason =
            format!("the weights have the shape {:?}, the job {dims:?}", initializer.dims());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(initializer)
}

/// Writes all bytes of `initializer` to the offset `at` of `file`; returns their SHA-256. `fail`
/// makes the error of the file.
fn copy(
    initializer: &Initializer,
    file: &File,
    at: u64,
    fail: impl Fn(std::io::Error) -> Error,
) -> Result<Digest> {
    let mut to = Place { file, at, hasher: Sha256::new(), fail };
    match in_one_piece(initializer)? {
        Some(bytes) => bytes.chunks(CHUNK).try_for_each(|part| to.put(part))?,
        None => to.put_parts(initializer)?,
    }
    Ok(Digest::of_bytes(to.hasher))
}

/// The bytes, where they are in memory, or are made all at once.
fn in_one_piece(initializer: &Initializer) -> Result<Option<Buffer>> {
    match initializer.as_buffer() {
        None if initializer.is_lazy() => initializer.to_buffer().map(Some),
        found => Ok(found),
    }
}

/// Where the next bytes of a tensor go, and the hash of those before.
struct Place<'f, F> {
    file: &'f File,
    at: u64,
    hasher: Sha256,
    /// Makes the error of the file.
    fail: F,
}

impl<F: Fn(std::io::Error) -> Error> Place<'_, F> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        self.hasher.update(bytes);
        write_at(self.file, bytes, self.at).map_err(&self.fail)?;
        self.at = self.at.saturating_add(len);
        cancel::advance(len)
    }

    /// Reads the source in parts, as long as it likes them.
    fn put_parts(&mut self, initializer: &Initializer) -> Result<()> {
        let (len, mut from) = (initializer.byte_len(), 0_u64);
        let most = initializer.preferred_read().clamp(CHUNK, LONGEST);
        let mut chunk = BufferMut::zeroed(most.min(usize_of(len)), Alignment::PAGE)?;
        while from < len {
            let left = usize_of(len.saturating_sub(from)).min(chunk.len());
            let part = chunk.get_mut(..left).unwrap_or_default();
            initializer.read_at(from, part)?;
            self.put(part)?;
            from = from.saturating_add(left as u64);
        }
        Ok(())
    }
}

/// A length that is compared with one in memory.
fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
