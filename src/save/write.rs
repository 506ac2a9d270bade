//! The copy engine: from initializers to the bytes of files.
//!
//! The files of a save are cut into shares, which a few threads take in their order, so that one
//! large file and thousands of small ones are written by all threads alike. Pieces are written from
//! the memory that holds them, many with one call. `output` knows how bytes get into a file, and
//! `origin` the files that the system can copy them from. Where a mapped file has holes, so has the
//! new one. `whole_file` copies a file as it is.

mod batch;
pub(in crate::save) mod meter;
mod produce;
// Nothing is direct elsewhere.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod direct;
pub(in crate::save) mod holes;
mod origin;
mod output;
pub(in crate::save) mod whole_file;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::buffer::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::error::{Error, Result};
use crate::save::gather::weights::became_shorter;
use crate::save::options::SaveOptions;
use crate::save::plan::{Piece, PlannedFile};
use crate::save::target::publish::Staging;
use crate::save::write::meter::Meter;
use crate::save::write::produce::{Ahead, ReadPart, ahead_of};
use crate::util::parallel;

use self::batch::{Batch, BatchPart};
use self::direct::Bounces;
use self::origin::{Origins, Run};
use self::output::Output;
#[cfg(feature = "jobs")]
pub(in crate::save) use self::output::create_whole;
#[cfg(feature = "jobs")]
pub(crate) use self::output::write_at;

/// The length of a share in bytes.
const SHARE: u64 = 32 << 20;
/// How many bytes are read from initializers without buffers before they are written.
const CHUNK: usize = 1 << 20;
/// The longest write in bytes, so that the caller sees progress and can cancel.
const LONGEST: usize = 8 << 20;
/// More threads than this do not write faster.
const MAX_THREADS: usize = 4;

/// Creates `files` in the staging folder and writes them, while lazy weights are produced ahead.
pub(crate) fn stage_files(
    staging: &mut Staging,
    files: &[PlannedFile<'_>],
    options: &SaveOptions,
    meter: &Meter<'_>,
) -> Result<()> {
    staging.list(files.iter().map(|file| file.name.as_str()))?;
    let start = Instant::now();
    let creator = Creator { staging, options };
    let producing = ahead_of(files, options.max_bytes_in_flight, |ahead| {
        write_shares(files, &creator, ahead, meter)?;
        Ok(ahead.producing())
    })?;
    staging.writing = staging.writing.saturating_add(start.elapsed());
    staging.producing = producing;
    Ok(())
}

/// Writes the shares of all files, by a few threads in their order.
fn write_shares(
    files: &[PlannedFile<'_>],
    creator: &Creator<'_>,
    ahead: &Ahead<'_>,
    meter: &Meter<'_>,
) -> Result<()> {
    let (origins, bounces) = (Origins::default(), Bounces::default());
    let count = files.iter().map(|plan| shares(plan).len()).fold(0, usize::saturating_add);
    let jobs = files.iter().flat_map(|plan| {
        let file = Arc::new(SharedFile { plan, output: Mutex::new(None) });
        shares(plan).map(move |number| (file.clone(), number))
    });
    parallel::for_each(parallel::cores(MAX_THREADS).min(count), jobs, |(file, number)| {
        let _fails = FailOnPanic(ahead);
        let written = file.output(creator).and_then(|output| {
            let (output, batch) = (&*output, Batch::default());
            let (origins, bounces) = (&origins, &bounces);
            Writer { output, ahead, meter, origins, bounces, batch, run: None, written: 0 }
                .share(file.plan, number)
        });
        // Other threads may wait for weights that are not made unless this share is written.
        written.inspect_err(|error| ahead.fail(error))
    })
}

/// Creates new files in a staging folder.
struct Creator<'s> {
    staging: &'s Staging,
    options: &'s SaveOptions,
}

impl Creator<'_> {
    fn create(&self, plan: &PlannedFile<'_>) -> Result<Output> {
        Output::new(self.staging.create(&plan.name)?, plan, self.options)
    }
}

/// Ends the production of weights when a thread that writes panics: others may wait for them.
struct FailOnPanic<'a, 'p>(&'a Ahead<'p>);

impl Drop for FailOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(&Error::internal("a thread that writes weights panicked"));
        }
    }
}

/// The numbers of the shares of a file. An empty file has one, in which it is created.
fn shares(plan: &PlannedFile<'_>) -> Range<usize> {
    0..usize::try_from(plan.len.div_ceil(SHARE)).unwrap_or(usize::MAX).max(1)
}

/// A file that is created by the first of its shares, and closed after the last one.
struct SharedFile<'p, 'c> {
    plan: &'p PlannedFile<'c>,
    output: Mutex<Option<Result<Arc<Output>>>>,
}

impl SharedFile<'_, '_> {
    fn output(&self, creator: &Creator<'_>) -> Result<Arc<Output>> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.get_or_insert_with(|| creator.create(self.plan).map(Arc::new)).clone()
    }
}

/// Writes a share of a file.
struct Writer<'w> {
    output: &'w Output,
    ahead: &'w Ahead<'w>,
    meter: &'w Meter<'w>,
    origins: &'w Origins,
    bounces: &'w Bounces,
    /// What is to be written next, from memory.
    batch: Batch,
    /// What is to be copied next, from a mapped file. Its place follows the batch.
    run: Option<Run>,
    /// How many bytes of the share are written.
    written: u64,
}

impl Writer<'_> {
    /// Writes the parts of the pieces of `plan` that are in its share `number`. The bytes between
    /// pieces are already zero and count as written.
    fn share(mut self, plan: &PlannedFile<'_>, number: usize) -> Result<()> {
        let start = (number as u64).saturating_mul(SHARE);
        let share = start..start.saturating_add(SHARE).min(plan.len);
        let first = plan.pieces.partition_point(|piece| piece.end() <= share.start);
        let pieces = plan.pieces.iter().skip(first);
        for piece in pieces.take_while(|piece| piece.offset < share.end) {
            let part = share.start.max(piece.offset)..share.end.min(piece.end());
            if !part.is_empty() {
                self.part(piece, part)?;
            }
        }
        self.finish()?;
        let padding = (share.end - share.start).checked_sub(self.written);
        self.meter.add(padding.ok_or_else(|| Error::internal("pieces of a file overlap"))?)
    }

    /// Writes the bytes of `piece` that are in `part` of the file, now or with those that follow.
    fn part(&mut self, piece: &Piece<'_>, part: Range<u64>) -> Result<()> {
        let (skip, len) = (part.start - piece.offset, part.end - part.start);
        if let Some(made) = self.ahead.bytes_of(piece)? {
            // Written at once: others may not be made before this one is reported.
            self.copy_run()?;
            self.bytes(part_of(&made, skip, len)?, part.start)?;
            self.finish()?;
            drop(made);
            self.ahead.wrote(piece, len);
            return Ok(());
        }
        let in_memory = if self.ahead.reads(piece) { None } else { piece.initializer.as_buffer() };
        match in_memory {
            Some(bytes) => {
                let bytes = part_of(&bytes, skip, len).map_err(|error| piece.name_in(error))?;
                self.without_holes(bytes, part.start)
            }
            None => self.read(piece, skip, part),
        }
    }

    /// Copies or writes `bytes`, without those that are in holes of a mapped file: they are zeros
    /// in the new one already.
    fn without_holes(&mut self, bytes: Buffer, at: u64) -> Result<()> {
        let origin = if self.output.keeps_holes() { self.origins.open(&bytes) } else { None };
        let Some((file, start)) = origin else { return self.copied_or_written(bytes, at) };
        let end = start.saturating_add(bytes.span() as u64);
        let mut from = start;
        while from < end {
            // What cannot be asked is taken for data.
            let data = holes::next_part(&file, from, end).unwrap_or(from..end);
            if !data.is_empty() {
                let skip = data.start.saturating_sub(start);
                let part = part_of(&bytes, skip, data.end.saturating_sub(data.start))?;
                self.copied_or_written(part, at.saturating_add(skip))?;
            }
            from = data.end;
        }
        Ok(())
    }

    /// Has the system copy `bytes` if they are in a mapped file, together with those around them.
    fn copied_or_written(&mut self, bytes: Buffer, at: u64) -> Result<()> {
        let is_next = |run: &mut Run| run.extend(&bytes, at);
        if self.run.as_mut().is_some_and(is_next) {
            return Ok(());
        }
        self.copy_run()?;
        self.run = Run::new(&bytes, at).filter(|run| self.output.may_copy(run));
        if self.run.is_some() { Ok(()) } else { self.bytes(bytes, at) }
    }

    /// Copies the run, from its file where the system does that, else from the map.
    fn copy_run(&mut self) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let Some((origin, source)) = self.origins.open(&run.bytes) else {
            return self.bytes(run.bytes, run.at);
        };
        let mut done = run.before_block();
        let Run { bytes, at, .. } = run;
        self.slice(&bytes, 0..done, at)?;
        self.flush()?;
        let plus = |offset: u64, done: usize| offset.saturating_add(done as u64);
        while done < bytes.span() {
            let most = LONGEST.min(bytes.span() - done);
            let copied = self.output.copy(&origin, plus(source, done), plus(at, done), most)?;
            self.count(copied)?;
            done = done.saturating_add(copied);
            if copied == 0 {
                break;
            }
        }
        // What the system does not copy is in the map.
        self.slice(&bytes, done..bytes.span(), plus(at, done))
    }

    fn slice(&mut self, bytes: &Buffer, range: Range<usize>, at: u64) -> Result<()> {
        let slice = bytes.slice(range).ok_or_else(became_shorter)?;
        if slice.span() == 0 { Ok(()) } else { self.bytes(slice, at) }
    }

    /// Writes `bytes` from memory, now or with those that follow.
    fn bytes(&mut self, bytes: Buffer, at: u64) -> Result<()> {
        let (mut done, len) = (0, bytes.span());
        let direct = self.output.direct_part(len, at);
        let at = |done: usize| at.saturating_add(done as u64);
        while done < len {
            let end = len.min(done.saturating_add(LONGEST));
            let end = if done < direct.start { end.min(direct.start) } else { end };
            let end = if done < direct.end { end.min(direct.end) } else { end };
            let chunk = bytes.slice(done..end).ok_or_else(became_shorter)?;
            match direct.contains(&done) {
                true => self.direct(&chunk, at(done))?,
                false => self.add(BatchPart::new(chunk, at(done)))?,
            }
            done = end;
        }
        Ok(())
    }

    /// Writes `bytes` past the page cache, or with others where that is refused.
    fn direct(&mut self, bytes: &Buffer, at: u64) -> Result<()> {
        if bytes.len() != bytes.span() {
            return Err(became_shorter());
        }
        self.flush()?;
        // A map of a file that was cut off must not be copied from, so bytes of a mapped file are
        // read from that.
        let origin = self.origins.open(bytes);
        let may_copy = origin.is_some() || bytes.file_range().is_none();
        let written = match may_copy {
            true => self.output.write_direct(bytes, at, self.bounces, origin)?,
            false => 0,
        };
        self.count(written)?;
        let rest = bytes.slice(written..).ok_or_else(became_shorter)?;
        if rest.is_empty() {
            return Ok(());
        }
        self.add(BatchPart::new(rest, at.saturating_add(written as u64)))
    }

    fn add(&mut self, part: BatchPart) -> Result<()> {
        if !self.batch.takes(&part) {
            self.flush()?;
        }
        self.batch.push(part);
        if self.batch.len() >= LONGEST { self.flush() } else { Ok(()) }
    }

    /// Copies an initializer whose bytes are not in one buffer, a chunk at a time.
    fn read(&mut self, piece: &Piece<'_>, skip: u64, part: Range<u64>) -> Result<()> {
        self.copy_run()?;
        let (mut skip, mut at) = (skip, part.start);
        while at < part.end {
            let left = part.end.saturating_sub(at);
            let len = match self.ahead.part_of(piece, skip)? {
                Some(made) => self.read_ahead(made, left, at)?,
                None => self.read_now(piece, skip, left, at)?,
            };
            skip = skip.saturating_add(len);
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Writes at most `left` bytes of a part that was read ahead, and returns how many.
    fn read_ahead(&mut self, made: ReadPart, left: u64, at: u64) -> Result<u64> {
        let len = left.min(made.bytes.len() as u64);
        // Written at once: others may not be read before this one is reported.
        self.bytes(part_of(&made.bytes, 0, len)?, at)?;
        self.flush()?;
        self.ahead.wrote_part(made, len);
        Ok(len)
    }

    /// Reads and writes at most `left` bytes from `skip` on, and returns how many.
    fn read_now(&mut self, piece: &Piece<'_>, skip: u64, left: u64, at: u64) -> Result<u64> {
        let most = self.ahead.read_len(&piece.initializer);
        let len = usize::try_from(left).unwrap_or(most).min(most);
        let mut chunk = BufferMut::zeroed(len, Alignment::PAGE)?;
        let read = piece.initializer.read_at(skip, &mut chunk);
        read.map_err(|error| piece.name_in(error))?;
        self.bytes(chunk.freeze(), at)?;
        // What was read takes memory until it is written.
        if self.batch.len() >= CHUNK {
            self.flush()?;
        }
        Ok(len as u64)
    }

    /// Writes all that is left.
    fn finish(&mut self) -> Result<()> {
        self.copy_run()?;
        self.flush()
    }

    /// Writes the batch.
    fn flush(&mut self) -> Result<()> {
        if self.batch.len() > 0 {
            self.output.write(&self.batch)?;
            let written = self.batch.len();
            self.batch.clear();
            self.count(written)?;
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<()> {
        self.written = self.written.saturating_add(bytes as u64);
        self.meter.add(bytes as u64)
    }
}

/// `len` bytes from `skip` on.
fn part_of(bytes: &Buffer, skip: u64, len: u64) -> Result<Buffer> {
    let start = usize::try_from(skip).ok();
    let end = skip.checked_add(len).and_then(|end| usize::try_from(end).ok());
    let part = start.zip(end).and_then(|(start, end)| bytes.slice(start..end));
    part.ok_or_else(became_shorter)
}
