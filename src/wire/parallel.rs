//! Many messages of one list, read by several threads.
//!
//! The nodes of a graph lie one behind the other and do not depend on each other. The calling
//! thread cuts them into chunks, which stand in a line: whoever is free reads the first that nobody
//! reads, and the caller takes what was read off the front. So the messages, and the first error,
//! are those that one thread would give. Each thread slices its own fork of the input, because one
//! reference count for all would be fought over.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use super::field;
use super::nested;
use super::reader::{Reader, Run, Wire};
use super::{Message, Value};
use crate::buffer::Buffer;
use crate::error::Result;

/// How much input is worth several threads.
const WORTH: usize = 4 << 20;
/// How much input is taken at a time: much less than a core's cache.
const CHUNK: usize = 512 << 10;

/// How many bytes of a list to look at before it is read.
pub(super) fn look_ahead(threads: usize) -> usize {
    if threads > 1 { WORTH } else { field::LOOK_AHEAD }
}

/// Whether a run is worth more threads than one. A large message counts little: it is large for
/// its payload, which is not read.
pub(super) fn pays(run: Run, threads: usize) -> bool {
    threads > 1 && run.bytes.min(run.count.saturating_mul(4096)) >= WORTH
}

/// Some messages of the list.
enum Chunk<'i, M> {
    /// They begin where the reader is, and are so many.
    Unread(Reader<'i>, usize),
    /// A thread reads them.
    Taken,
    Read(Result<Vec<M>>),
}

/// The number of a chunk, a reader at its first message, and how many there are.
type Job<'i> = (usize, Reader<'i>, usize);

/// The chunks that the caller has not got yet, in their order.
struct Line<'i, M> {
    chunks: VecDeque<Chunk<'i, M>>,
    /// The number of the first of them.
    first: usize,
    /// Whether no more will come.
    closed: bool,
}

impl<'i, M> Line<'i, M> {
    /// The first chunk that nobody reads.
    fn take(&mut self) -> Option<Job<'i>> {
        let unread = |chunk: &Chunk<'_, M>| matches!(chunk, Chunk::Unread(..));
        let index = self.chunks.iter().position(unread)?;
        match std::mem::replace(self.chunks.get_mut(index)?, Chunk::Taken) {
            Chunk::Unread(reader, count) => Some((self.first + index, reader, count)),
            _ => None,
        }
    }
}

/// A line and those who wait for it to move.
struct Shared<'i, M> {
    line: Mutex<Line<'i, M>>,
    moved: Condvar,
}

impl<'i, M: Message> Shared<'i, M> {
    fn lock(&self) -> MutexGuard<'_, Line<'i, M>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, line: MutexGuard<'g, Line<'i, M>>) -> MutexGuard<'g, Line<'i, M>> {
        self.moved.wait(line).unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a chunk that was taken.
    fn read(&self, (number, reader, count): Job<'_>, fork: &Buffer) {
        let messages = read(reader.worker(fork), count);
        let mut line = self.lock();
        let index = number.saturating_sub(line.first);
        if let Some(chunk) = line.chunks.get_mut(index) {
            *chunk = Chunk::Read(messages);
        }
        self.moved.notify_all();
    }

    /// Reads chunks until there will be no more.
    fn help(&self, fork: &Buffer) {
        let mut line = self.lock();
        while !line.closed {
            match line.take() {
                Some(job) => {
                    drop(line);
                    widen_heap();
                    self.read(job, fork);
                    line = self.lock();
                }
                None => line = self.wait(line),
            }
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }
}

/// Takes as much of this thread's heap as a chunk's messages may need, and gives it back.
///
/// glibc makes the heap of every thread but the first usable page by page, each with a system call
/// that holds up the page faults of all; what was usable once stays so. Nothing is written to it.
fn widen_heap() {
    // Larger pieces would not come from the heap.
    const PIECE: usize = 120 << 10;
    let pieces: [Vec<u8>; 3 * CHUNK / PIECE] = std::array::from_fn(|_| Vec::with_capacity(PIECE));
    drop(black_box(pieces));
}

fn read<M: Message>(mut reader: Reader<'_>, count: usize) -> Result<Vec<M>> {
    let tag = reader.tag_len();
    let mut list = Vec::new();
    list.resize_with(count, M::default);
    for (i, message) in list.iter_mut().enumerate() {
        reader.forward(if i == 0 { 0 } else { tag });
        nested::merge(message, &mut reader)?;
    }
    Ok(list)
}

/// Appends all messages that follow each other, from the one that `reader` is at.
pub(super) fn append<M: Message + Value>(list: &mut Vec<M>, reader: &mut Reader<'_>) -> Result<()> {
    let line = Line { chunks: VecDeque::new(), first: 0, closed: false };
    let shared = Shared { line: Mutex::new(line), moved: Condvar::new() };
    let (stack, threads) = (reader.stack(), reader.threads());
    let start = reader.clone();
    thread::scope(|scope| {
        for _ in 1..threads {
            let help = || shared.help(&start.fork());
            // With fewer threads than wished for, those that there are do the work.
            let _ = Builder::new().stack_size(stack).spawn_scoped(scope, help);
        }
        let done = collect(&shared, list, reader, threads * 4);
        shared.close();
        done
    })
}

/// Puts chunks into the line, `ahead` of them at most, and takes their messages out.
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
            // What is malformed alone is not counted; reading it says how.
            shared.lock().chunks.push_back(Chunk::Unread(reader.clone(), run.count.max(1)));
            shared.moved.notify_one();
            more = run.more;
            reader.pass(run);
        }
        let mut line = shared.lock();
        match line.chunks.pop_front() {
            None => return Ok(()),
            Some(Chunk::Read(messages)) => {
                line.first += 1;
                drop(line);
                let mut messages = messages?;
                field::reserve(list, messages.len());
                list.append(&mut messages);
            }
            Some(front) => {
                line.chunks.push_front(front);
                match line.take() {
                    Some(job) => {
                        drop(line);
                        shared.read(job, &fork);
                    }
                    None => drop(shared.wait(line)),
                }
            }
        }
    }
}
