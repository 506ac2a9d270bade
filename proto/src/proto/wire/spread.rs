//! Long lists of messages, counted and written by several threads.
//!
//! A list is cut into parts. Each thread counts parts, and later writes each at the offset that
//! follows from the counts, so the output is the one that a single thread would write. A part with
//! large payloads is written by the calling thread, which writes the payloads without a copy.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder};
use std::{mem, num::NonZero};

use super::overlay::Overlay;
use super::value::{Value, one_size, write_one};
use super::writer::{Part, Sizes, Writer};

/// The least number of messages in a list that several threads write.
const LONG: usize = 4096;
/// How many messages a part has.
const PART: usize = 256;
/// How many bytes the threads fill before they are written to the destination.
const ROUND: u64 = 4 << 20;

/// How many threads this machine can run in parallel.
pub(super) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Whether a list is worth several threads.
#[inline]
pub(super) fn pays(len: usize, alone: bool) -> bool {
    len >= LONG && !alone && cores() > 1
}

/// Does `work` with each item, on every core.
///
/// This is not the loop of [`parallel`](crate::util::parallel), which takes no further item of a
/// call that is cancelled: a list of which some parts are not counted has no length.
pub(super) fn share<I>(items: I, work: impl Fn(I::Item) + Sync)
where
    I: Iterator<Item: Send> + Send,
{
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores() {
            // Where fewer threads can be started, the others do the work.
            let _ = Builder::new().stack_size(8 << 20).spawn_scoped(scope, work);
        }
        work();
    });
}

/// Counts a list.
pub(super) fn size<M: Value + Sync>(list: &[M], number: u32, sizes: &mut Sizes<'_>) -> u64 {
    let mut parts: Vec<Part> = list.chunks(PART).map(|_| Part::default()).collect();
    let overlay = sizes.overlay();
    share(list.chunks(PART).zip(&mut parts), |(messages, part)| {
        let one = |message, sizes: &mut _| one_size::<M>(message, number, sizes);
        *part =
            Sizes::part(overlay, |sizes| messages.iter().map(|message| one(message, sizes)).sum());
    });
    let size = parts.iter().map(|part| part.bytes).sum();
    sizes.remember_list(parts);
    size
}

/// Writes a list that [`size`] counted.
pub(super) fn write<M: Value + Sync>(
    list: &[M],
    number: u32,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    let mut round = Round { parts: Vec::new(), bytes: 0, number };
    for (messages, part) in list.chunks(PART).zip(writer.next_list()) {
        if round.bytes + part.bytes > ROUND {
            round.write(writer)?;
        }
        if part.bytes > ROUND {
            writer.part(part, |writer| write_all(messages, number, writer))?;
        } else {
            round.bytes += part.bytes;
            round.parts.push((messages, part));
        }
    }
    round.write(writer)
}

fn write_all<M: Value>(messages: &[M], number: u32, writer: &mut Writer<'_>) -> io::Result<()> {
    messages.iter().try_for_each(|message| write_one(message, number, writer))
}

/// Parts that are written together.
struct Round<'a, M> {
    parts: Vec<(&'a [M], Part)>,
    bytes: u64,
    number: u32,
}

impl<M: Value + Sync> Round<'_, M> {
    /// Writes the parts and removes them from the round.
    fn write(&mut self, writer: &mut Writer<'_>) -> io::Result<()> {
        let parts = mem::take(&mut self.parts);
        let len = usize::try_from(mem::take(&mut self.bytes)).map_err(io::Error::other)?;
        if parts.is_empty() {
            return Ok(());
        }
        let overlay = writer.overlay();
        writer.fill(len, |window| write_parts(parts, self.number, overlay, window))
    }
}

/// Writes parts into their places in `window`, which they fill.
fn write_parts<M: Value + Sync>(
    parts: Vec<(&[M], Part)>,
    number: u32,
    overlay: Option<&dyn Overlay>,
    mut window: &mut [u8],
) -> io::Result<()> {
    let failure = Mutex::new(None);
    let placed = parts.into_iter().map(|(messages, part)| {
        let len = usize::try_from(part.bytes).unwrap_or(usize::MAX).min(window.len());
        let (place, left) = mem::take(&mut window).split_at_mut(len);
        window = left;
        (messages, part, place)
    });
    share(placed, |(messages, part, place)| {
        let counted = part.bytes;
        let mut writer = Writer::of_part(place, part, overlay);
        let written = write_all(messages, number, &mut writer);
        if let Err(error) = written.and_then(|()| writer.finish(counted)) {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
