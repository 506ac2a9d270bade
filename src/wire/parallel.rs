//! Many messages of one list, read by several threads.
//!
//! The nodes of a graph lie one behind the other and do not depend on each other, so runs of them
//! are cut into chunks. Each thread slices its own fork of the input, because one reference
//! count for all would be fought over. What comes out, an error too, is what one thread would give.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use super::field;
use super::nested;
use super::reader::{Reader, Run, Wire};
use super::{Message, Value};
use crate::error::{Error, Result};

/// The part of a run that no thread has taken yet.
struct Queue<'a, M> {
    slots: &'a mut [M],
    /// At the first value that is left.
    reader: Reader<'a>,
    tag_len: usize,
    /// The first error by offset.
    error: Option<Error>,
}

impl<'a, M> Queue<'a, M> {
    /// The next `count` messages and a reader at the first of them.
    fn take(&mut self, count: usize) -> Option<(&'a mut [M], Reader<'a>)> {
        let slots = mem::take(&mut self.slots);
        let (chunk, left) = slots.split_at_mut(count.min(slots.len()));
        self.slots = left;
        let start = self.reader.clone();
        for _ in 0..chunk.len() {
            self.reader.skip_value(Wire::Len).ok()?;
            self.reader.forward(self.tag_len);
        }
        Some((chunk, start)).filter(|(chunk, _)| !chunk.is_empty())
    }

    /// Notes an error and gives out no more. Chunks are taken in order, so the first error by
    /// offset is in one that was taken.
    fn fail(&mut self, error: Error) {
        self.slots = &mut [];
        if self.error.as_ref().is_none_or(|first| error.offset() < first.offset()) {
            self.error = Some(error);
        }
    }
}

/// How many bytes of a list to look at before it is read: of a piece for all threads.
pub(super) fn look_ahead(threads: usize) -> usize {
    if threads > 1 { threads.saturating_mul(PIECE) } else { field::LOOK_AHEAD }
}

/// Whether a run is worth more threads than one. A large message counts little: it is large for
/// its payload, which is not read.
pub(super) fn pays(run: Run, threads: usize) -> bool {
    threads > 1 && run.bytes.min(run.count.saturating_mul(4096)) >= PIECE
}

/// How much input is worth a thread.
const PIECE: usize = 4 << 20;

/// Appends all messages that follow each other, the first `run` of which begins with the value that
/// `reader` is at. While one run is read, the next one is looked for.
pub(super) fn append<M: Message + Value>(
    list: &mut Vec<M>,
    reader: &mut Reader<'_>,
    mut run: Run,
) -> Result<()> {
    loop {
        let next = append_run(list, reader, run)?;
        reader.pass(run);
        if !run.more {
            return Ok(());
        }
        if next.count == 0 {
            // The next message is malformed; reading it says how.
            list.push(M::default());
            return list.last_mut().map_or(Ok(()), |message| nested::merge(message, reader));
        }
        run = next;
    }
}

/// Appends the messages of `run` and gives the run behind it.
fn append_run<M: Message + Value>(list: &mut Vec<M>, reader: &Reader<'_>, run: Run) -> Result<Run> {
    let (before, threads) = (list.len(), reader.threads());
    field::reserve(list, run.count);
    list.resize_with(before + run.count, M::default);
    let slots = list.get_mut(before..).unwrap_or_default();
    let queue = Queue { slots, reader: reader.clone(), tag_len: reader.tag_len(), error: None };
    let (queue, chunk) = (Mutex::new(queue), (run.count / (threads * 16)).max(1));
    let next = thread::scope(|scope| {
        for _ in 1..threads {
            let help = || work(&queue, chunk);
            // With fewer threads than wished for, those that there are do the work.
            let _ = Builder::new().stack_size(reader.stack()).spawn_scoped(scope, help);
        }
        let next = next_run(reader, run);
        work(&queue, chunk);
        next
    });
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).error.map_or(Ok(next), Err)
}

fn next_run(reader: &Reader<'_>, run: Run) -> Run {
    let mut ahead = reader.clone();
    ahead.pass(run);
    if run.more { ahead.run(Wire::Len, look_ahead(reader.threads())) } else { Run::default() }
}

/// Takes chunks until there are none.
fn work<M: Message>(queue: &Mutex<Queue<'_, M>>, count: usize) {
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let tag_len = lock().tag_len;
    let fork = lock().reader.fork();
    loop {
        let Some((chunk, start)) = lock().take(count) else { return };
        if let Err(error) = read_chunk(chunk, start.worker(&fork), tag_len) {
            lock().fail(error);
        }
    }
}

fn read_chunk<M: Message>(chunk: &mut [M], mut reader: Reader<'_>, tag_len: usize) -> Result<()> {
    for (i, message) in chunk.iter_mut().enumerate() {
        reader.forward(if i == 0 { 0 } else { tag_len });
        nested::merge(message, &mut reader)?;
    }
    Ok(())
}
