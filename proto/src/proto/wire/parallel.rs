//! Decodes a long list of messages with several threads.
//!
//! The nodes of a graph are consecutive records and do not depend on each other. The calling thread
//! splits them into chunks, which form a queue: a free thread decodes the first chunk that no
//! thread has taken, and the caller removes decoded chunks from the front. So the messages, and the
//! first error, are the same as with one thread. Each thread makes slices of its own fork of the
//! input, because one reference count for all threads would be contended.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use super::nested;
use super::reader::{Reader, Run, Wire};
use super::value;
use super::{Message, Value};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::util::cancel::{self, Token};

/// The least number of bytes for which several threads pay off.
pub(super) const WORTH: usize = 4 << 20;
/// The size of a chunk in bytes: much less than a core's cache.
const CHUNK: usize = 512 << 10;

/// How many bytes of a list are scanned before it is decoded.
pub(super) fn look_ahead(threads: usize) -> usize {
    if threads > 1 { WORTH } else { value::LOOK_AHEAD }
}

/// Whether several threads pay off for a run. A message counts at most 4 KiB: a larger one is large
/// because of a payload, which is not decoded.
pub(super) fn pays(run: Run, threads: usize) -> bool {
    threads > 1 && run.bytes.min(run.count.saturating_mul(4096)) >= WORTH
}

/// Some messages of the list.
enum Chunk<'i, M> {
    /// The messages start at the reader's position; the number is their count.
    Unread(Reader<'i>, usize),
    /// A thread decodes them.
    Taken,
    Read(Result<Vec<M>>),
}

/// The number of a chunk, a reader at its first message, and how many there are.
type Job<'i> = (usize, Reader<'i>, usize);

/// The chunks that the caller has not removed yet, in order.
struct Queue<'i, M> {
    chunks: VecDeque<Chunk<'i, M>>,
    /// The number of the first of them.
    first: usize,
    /// Whether no more chunks will be added.
    closed: bool,
}

impl<'i, M> Queue<'i, M> {
    /// Takes the first chunk that no thread has taken.
    fn take(&mut self) -> Option<Job<'i>> {
        let unread = |chunk: &Chunk<'_, M>| matches!(chunk, Chunk::Unread(..));
        let index = self.chunks.iter().position(unread)?;
        match std::mem::replace(self.chunks.get_mut(index)?, Chunk::Taken) {
            Chunk::Unread(reader, count) => Some((self.first + index, reader, count)),
            _ => None,
        }
    }
}

/// The queue, and the signal to the threads that wait for a change of it.
struct Shared<'i, M> {
    queue: Mutex<Queue<'i, M>>,
    moved: Condvar,
}

impl<'i, M: Message> Shared<'i, M> {
    fn lock(&self) -> MutexGuard<'_, Queue<'i, M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, queue: MutexGuard<'g, Queue<'i, M>>) -> MutexGuard<'g, Queue<'i, M>> {
        self.moved.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes a chunk that was taken.
    fn read(&self, (number, reader, count): Job<'_>, fork: &Buffer) {
        let messages = read(reader.worker(fork), count);
        let mut queue = self.lock();
        let index = number.saturating_sub(queue.first);
        if let Some(chunk) = queue.chunks.get_mut(index) {
            *chunk = Chunk::Read(messages);
        }
        self.moved.notify_all();
    }

    /// Decodes chunks until no more will be added.
    fn help(&self, fork: &Buffer) {
        let mut queue = self.lock();
        while !queue.closed {
            match queue.take() {
                Some(job) => {
                    drop(queue);
                    widen_heap();
                    self.read(job, fork);
                    queue = self.lock();
                }
                None => queue = self.wait(queue),
            }
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }
}

/// Allocates as much of this thread's heap as a chunk's messages may need, and frees it.
///
/// glibc grows the heap of every thread but the first in small steps, each with a system call that
/// blocks the page faults of all threads. Memory that was in the heap once is kept in it. Nothing
/// is written.
fn widen_heap() {
    // glibc would map larger pieces instead of taking them from the heap.
    const PIECE: usize = 120 << 10;
    let pieces: [Vec<u8>; 3 * CHUNK / PIECE] = std::array::from_fn(|_| Vec::with_capacity(PIECE));
    drop(black_box(pieces));
}

/// Decodes the messages of a chunk, whose memory is counted with that of the list to which they
/// will be moved.
fn read<M: Message>(mut reader: Reader<'_>, count: usize) -> Result<Vec<M>> {
    cancel::check()?;
    let tag = reader.tag_len();
    let mut list = Vec::new();
    list.resize_with(count, M::default);
    for (i, message) in list.iter_mut().enumerate() {
        reader.forward(if i == 0 { 0 } else { tag });
        nested::merge(message, &mut reader)?;
    }
    Ok(list)
}

/// Appends all consecutive messages from the one that `reader` is at to `list`, which has room for
/// them.
pub(super) fn append<M: Message + Value>(list: &mut Vec<M>, reader: &mut Reader<'_>) -> Result<()> {
    let queue = Queue { chunks: VecDeque::new(), first: 0, closed: false };
    let shared = Shared { queue: Mutex::new(queue), moved: Condvar::new() };
    let (stack, threads) = (reader.stack(), reader.threads());
    let (start, token) = (reader.clone(), Token::current());
    // Not `util::parallel::alongside`: how much stack a thread needs depends on the limit of
    // nesting, and a thread waits for chunks instead of asking again and again.
    thread::scope(|scope| {
        for _ in 1..threads {
            let help = || token.scope(|| shared.help(&start.fork()));
            // If the system refuses a thread, the others do the work.
            let _ = Builder::new().stack_size(stack).spawn_scoped(scope, help);
        }
        let done = collect(&shared, list, reader, threads * 4);
        shared.close();
        done
    })
}

/// Adds chunks to the queue, at most `ahead` of them, and moves their messages to `list`.
fn collect<'i, M: Message>(
    shared: &Shared<'i, M>,
    list: &mut Vec<M>,
    reader: &mut Reader<'i>,
    ahead: usize,
) -> Result<()> {
    let fork = reader.fork();
    let mut more = true;
    loop {
        while more && shared.lock().chunks.len() < ahead {
            reader.warm(CHUNK);
            let run = reader.run(Wire::Len, CHUNK);
            // A run of only a malformed message counts none; decoding it returns the error.
            shared.lock().chunks.push_back(Chunk::Unread(reader.clone(), run.count.max(1)));
            shared.moved.notify_one();
            more = run.more;
            reader.pass(run);
        }
        let mut queue = shared.lock();
        match queue.chunks.pop_front() {
            None => return Ok(()),
            Some(Chunk::Read(messages)) => {
                queue.first += 1;
                drop(queue);
                let mut messages = messages?;
                value::reserve(list, messages.len());
                list.append(&mut messages);
            }
            Some(front) => {
                queue.chunks.push_front(front);
                match queue.take() {
                    Some(job) => {
                        drop(queue);
                        shared.read(job, &fork);
                    }
                    None => drop(shared.wait(queue)),
                }
            }
        }
    }
}
