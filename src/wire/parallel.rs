//! Many messages of one list, read by several threads.
//!
//! The nodes of a graph lie one behind the other and do not depend on each other, so the run of
//! them is cut into chunks. Each thread slices its own fork of the input, because one reference
//! count for all would be fought over. What comes out, an error too, is what one thread would give.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

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

/// Appends the `run` of messages that begins with the value `reader` is at.
pub(super) fn append<M: Message + Value>(
    list: &mut Vec<M>,
    reader: &mut Reader<'_>,
    run: Run,
    threads: usize,
) -> Result<()> {
    let before = list.len();
    list.reserve_exact(run.count);
    list.resize_with(before + run.count, M::default);
    let slots = list.get_mut(before..).unwrap_or_default();
    let (reader_there, tag_len) = (reader.clone(), reader.tag_len());
    let stack = reader.stack();
    let queue = Mutex::new(Queue { slots, reader: reader_there, tag_len, error: None });
    let chunk = (run.count / (threads * 32)).max(1);
    thread::scope(|scope| {
        for _ in 1..threads {
            // With fewer threads than wished for, those that there are do the work.
            let _ = Builder::new().stack_size(stack).spawn_scoped(scope, || work(&queue, chunk));
        }
        work(&queue, chunk);
    });
    reader.forward(run.bytes);
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).error.map_or(Ok(()), Err)
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
