//! Many messages of one list, read by several threads.
//!
//! The nodes of a graph lie one behind the other and do not depend on each other. A block of them
//! is looked through and cut into chunks, which the threads take; meanwhile the next block is
//! looked through. Each thread slices its own fork of the input, because one reference count for
//! all would be fought over. What comes out, an error too, is what one thread would give.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use super::field;
use super::nested;
use super::reader::{Reader, Run, Wire};
use super::{Message, Value};
use crate::error::{Error, Result};

/// How much input is worth a thread.
const SHARE: usize = 4 << 20;
/// How much input is taken at a time: what stays in a core's cache.
const CHUNK: usize = 128 << 10;

/// How many bytes of a list to look at before it is read.
pub(super) fn look_ahead(threads: usize) -> usize {
    if threads > 1 { SHARE } else { field::LOOK_AHEAD }
}

/// Whether a run is worth more threads than one. A large message counts little: it is large for
/// its payload, which is not read.
pub(super) fn pays(run: Run, threads: usize) -> bool {
    threads > 1 && run.bytes.min(run.count.saturating_mul(4096)) >= SHARE
}

/// Messages that follow each other.
struct Block<'a> {
    /// A reader at the first of some messages, and how many they are.
    chunks: Vec<(Reader<'a>, usize)>,
    count: usize,
    /// Behind the last of them; if there are more, at the next one.
    end: Reader<'a>,
    more: bool,
}

impl<'a> Block<'a> {
    /// Looks through the messages from the one that `start` is at. What is malformed is left out.
    fn find(start: &Reader<'a>) -> Self {
        let mut block = Self { chunks: Vec::new(), count: 0, end: start.clone(), more: true };
        let limit = start.threads().saturating_mul(SHARE);
        while block.more && block.end.position() - start.position() < limit {
            let run = block.end.run(Wire::Len, CHUNK);
            if run.count == 0 {
                break;
            }
            block.chunks.push((block.end.clone(), run.count));
            block.count += run.count;
            block.more = run.more;
            block.end.pass(run);
        }
        block
    }
}

/// Appends all messages that follow each other, from the one that `reader` is at.
pub(super) fn append<M: Message + Value>(list: &mut Vec<M>, reader: &mut Reader<'_>) -> Result<()> {
    let mut block = Block::find(reader);
    while block.count > 0 {
        *reader = block.end.clone();
        match append_block(list, block)? {
            Some(next) => block = next,
            None => return Ok(()),
        }
    }
    // The next message is malformed; reading it says how.
    list.push(M::default());
    list.last_mut().map_or(Ok(()), |message| nested::merge(message, reader))
}

/// Appends the messages of `block` and gives the block behind it, if there are more.
fn append_block<'a, M: Message + Value>(
    list: &mut Vec<M>,
    block: Block<'a>,
) -> Result<Option<Block<'a>>> {
    let (before, end) = (list.len(), block.end);
    field::reserve(list, block.count);
    list.resize_with(before + block.count, M::default);
    let slots = list.get_mut(before..).unwrap_or_default();
    let queue = Mutex::new(Queue { slots, chunks: block.chunks.into_iter(), error: None });
    let next = thread::scope(|scope| {
        for _ in 1..end.threads() {
            let help = || work(&queue, &end.fork());
            // With fewer threads than wished for, those that there are do the work.
            let _ = Builder::new().stack_size(end.stack()).spawn_scoped(scope, help);
        }
        let next = block.more.then(|| Block::find(&end));
        work(&queue, &end.fork());
        next
    });
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).error.map_or(Ok(next), Err)
}

/// What no thread has taken yet.
struct Queue<'a, 'i, M> {
    slots: &'a mut [M],
    chunks: std::vec::IntoIter<(Reader<'i>, usize)>,
    /// The first error by offset.
    error: Option<Error>,
}

impl<'a, 'i, M> Queue<'a, 'i, M> {
    /// Room for the next messages, and a reader at the first of them.
    fn take(&mut self) -> Option<(&'a mut [M], Reader<'i>)> {
        let (reader, count) = self.chunks.next()?;
        let slots = mem::take(&mut self.slots);
        let (taken, left) = slots.split_at_mut(count.min(slots.len()));
        self.slots = left;
        Some((taken, reader))
    }

    /// Notes an error and gives out no more. Chunks are taken in order, so the first error by
    /// offset is in one that was taken.
    fn fail(&mut self, error: Error) {
        self.chunks = Vec::new().into_iter();
        if self.error.as_ref().is_none_or(|first| error.offset() < first.offset()) {
            self.error = Some(error);
        }
    }
}

/// Takes chunks until there are none.
fn work<M: Message>(queue: &Mutex<Queue<'_, '_, M>>, fork: &crate::Buffer) {
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some((slots, start)) = lock().take() else { return };
        if let Err(error) = read_chunk(slots, start.worker(fork)) {
            lock().fail(error);
        }
    }
}

fn read_chunk<M: Message>(slots: &mut [M], mut reader: Reader<'_>) -> Result<()> {
    let tag = reader.tag_len();
    for (i, message) in slots.iter_mut().enumerate() {
        reader.forward(if i == 0 { 0 } else { tag });
        nested::merge(message, &mut reader)?;
    }
    Ok(())
}
