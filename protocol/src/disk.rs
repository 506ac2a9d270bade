//! A disk: which file each name has now, and what a power failure leaves of that.
//!
//! Every name that the protocol uses is a slot, and what has the name is a number: 0 for nothing,
//! the save that wrote a file, the writer of a journal. A rename is one step of the file system. A
//! folder's flush keeps what was done in it, and all that this needs. Of the steps after it, a
//! power failure keeps the first in each folder, or any that do not need one that was lost.

/// The names of files in the folder of the model: the last is the model.
pub const NAMES: u8 = 5;
/// The model.
pub const MODEL: u8 = NAMES - 1;
/// The journal.
pub const JOURNAL: u8 = NAMES * 5;
const SLOTS: usize = 28;

/// The slot of a new file of a writer.
pub fn new_file(writer: u8, name: u8) -> u8 {
    NAMES + writer * 2 * NAMES + name
}

/// The slot that an old file is moved to by a writer.
pub fn old_file(writer: u8, name: u8) -> u8 {
    NAMES + new_file(writer, name)
}

/// The slot of the staging folder of a writer.
pub fn staging(writer: u8) -> u8 {
    JOURNAL + 1 + writer
}

/// A folder that is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Folder {
    /// That of the model, with the journal and the staging folders.
    Main,
    /// `new` of a writer.
    New(u8),
    /// `old` of a writer.
    Old(u8),
}

impl Folder {
    fn bit(self) -> u8 {
        match self {
            Self::Main => 1,
            Self::New(writer) => 2 << (2 * writer),
            Self::Old(writer) => 4 << (2 * writer),
        }
    }
}

fn folder_of(slot: u8) -> Folder {
    match slot {
        ..NAMES | JOURNAL.. => Folder::Main,
        _ => {
            let part = slot / NAMES - 1;
            if part.is_multiple_of(2) { Folder::New(part / 2) } else { Folder::Old(part / 2) }
        }
    }
}

/// The slot of the staging folder that a slot is in.
fn parent(slot: u8) -> Option<u8> {
    match folder_of(slot) {
        Folder::Main => None,
        Folder::New(writer) | Folder::Old(writer) => Some(staging(writer)),
    }
}

/// What has which name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slots([u8; SLOTS]);

impl Slots {
    /// What has the name `slot`.
    pub fn at(&self, slot: u8) -> u8 {
        self.0.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Whether nothing has the name `slot`.
    pub fn is_free(&self, slot: u8) -> bool {
        self.at(slot) == 0
    }

    /// Gives the name `slot` to `file`.
    pub fn put(&mut self, slot: u8, file: u8) {
        if let Some(place) = self.0.get_mut(usize::from(slot)) {
            *place = file;
        }
    }

    /// Whether a folder has nothing in it.
    pub fn is_empty(&self, folder: Folder) -> bool {
        (0..JOURNAL).all(|slot| folder_of(slot) != folder || self.is_free(slot))
    }

    /// The bytes of all files that have a name, as bits.
    fn bytes(&self) -> u32 {
        let files = (0..JOURNAL).filter(|slot| !self.is_free(*slot));
        files.fold(0, |bits, slot| bits | bytes_of(self.at(slot), slot % NAMES))
    }

    /// Does a step, where it is possible.
    fn apply(&mut self, change: &Change) -> Option<()> {
        let Change { from, to, file, replaced } = *change;
        if from.is_some_and(|from| self.at(from) != file)
            || to.is_some_and(|to| self.at(to) != replaced)
        {
            return None;
        }
        if to.and_then(parent).is_some_and(|parent| self.is_free(parent)) {
            return None;
        }
        let from_staging = from.filter(|from| *from > JOURNAL).map(|slot| slot - JOURNAL - 1);
        if from_staging.is_some_and(|writer| {
            !self.is_empty(Folder::New(writer)) || !self.is_empty(Folder::Old(writer))
        }) {
            return None;
        }
        from.into_iter().for_each(|from| self.put(from, 0));
        to.into_iter().for_each(|to| self.put(to, file));
        Some(())
    }
}

/// A step of the file system: a name comes, goes, or becomes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Change {
    from: Option<u8>,
    to: Option<u8>,
    file: u8,
    /// What had the name `to`.
    replaced: u8,
}

impl Change {
    /// The folders whose names it changes, as bits.
    fn folders(&self) -> u8 {
        let own = [self.from, self.to].into_iter().flatten();
        own.fold(0, |bits, slot| bits | folder_of(slot).bit())
    }

    /// Of a rename to the flushed folder `to` from another one, what a disk may not have done yet.
    fn old_name_left(&self, to: Folder) -> Option<Self> {
        let from = self.from.filter(|from| folder_of(*from) != to)?;
        let is_rename = self.to.is_some_and(|slot| folder_of(slot) == to);
        is_rename.then_some(Self { from: Some(from), to: None, replaced: 0, ..*self })
    }

    /// The slots that it reads or changes, as bits.
    fn slots(&self) -> u32 {
        let own = [self.from, self.to].into_iter().flatten();
        own.fold(0, |bits, slot| bits | bit(slot) | parent(slot).map_or(0, bit))
    }
}

fn bit(slot: u8) -> u32 {
    1 << slot
}

/// The bit of the file `name` of a save, for its bytes.
fn bytes_of(save: u8, name: u8) -> u32 {
    bit(save * NAMES + name)
}

/// What a power failure keeps: which of the steps that were not flushed, and the bytes of which
/// files are lost, as bits.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    steps: u32,
    lost: u32,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Disk {
    /// What programs see.
    pub now: Slots,
    /// What is on the disk for sure, where the power may fail.
    flushed: Slots,
    waiting: Vec<Change>,
    may_fail: bool,
    /// Whether a power failure loses no step in a folder without those after it there.
    in_order: bool,
    /// Whether a flush of the folder that a file was renamed to may leave its old name too.
    both_names: bool,
    /// The files whose bytes are not on the disk, and those whose bytes are gone.
    dirty: u32,
    lost: u32,
}

impl Disk {
    /// A disk with nothing on it, whose power `may_fail`.
    pub fn new(may_fail: bool, in_order: bool, both_names: bool) -> Self {
        let now = Slots([0; SLOTS]);
        let (flushed, waiting) = (now.clone(), Vec::new());
        Self { now, flushed, waiting, may_fail, in_order, both_names, dirty: 0, lost: 0 }
    }

    /// Puts a file on the disk before all begins.
    pub fn begin_with(&mut self, slot: u8, file: u8) {
        self.now.put(slot, file);
        self.flushed.put(slot, file);
    }

    /// Makes a file, a folder or a journal. `None` where the name is taken.
    pub fn create(&mut self, slot: u8, file: u8) -> Option<()> {
        let is_free = self.now.is_free(slot);
        is_free.then(|| self.change(Change { from: None, to: Some(slot), file, replaced: 0 }))?
    }

    /// Writes the bytes of the new file `name` of `save`, which are not on the disk yet.
    pub fn write(&mut self, save: u8, name: u8) {
        if self.may_fail {
            self.dirty |= bytes_of(save, name);
        }
    }

    /// Flushes the bytes of a file.
    pub fn flush_bytes(&mut self, save: u8, name: u8) {
        self.dirty &= !bytes_of(save, name);
    }

    /// Renames a file. `None` where there is none, or the name is taken and it may not be replaced.
    pub fn rename(&mut self, from: u8, to: u8, may_replace: bool) -> Option<()> {
        let file = self.now.at(from);
        let may = file != 0 && (may_replace || self.now.is_free(to));
        let replaced = self.now.at(to);
        may.then(|| self.change(Change { from: Some(from), to: Some(to), file, replaced }))?
    }

    /// Deletes what has a name, if anything.
    pub fn delete(&mut self, slot: u8) -> Option<()> {
        match self.now.at(slot) {
            0 => Some(()),
            file => self.change(Change { from: Some(slot), to: None, file, replaced: 0 }),
        }
    }

    fn change(&mut self, change: Change) -> Option<()> {
        self.now.apply(&change)?;
        if self.may_fail {
            self.waiting.push(change);
        }
        Some(())
    }

    /// Flushes the names of a folder, and the steps before that these need.
    pub fn flush(&mut self, folder: Folder) {
        let (mut slots, mut folders) = (0, folder.bit());
        let mut keep = vec![false; self.waiting.len()];
        for (change, keep) in self.waiting.iter().zip(&mut keep).rev() {
            *keep = change.folders() & folders != 0 || change.slots() & slots != 0;
            if *keep {
                slots |= change.slots();
                folders |= if self.in_order { change.folders() } else { 0 };
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        for (number, (change, keep)) in waiting.iter().zip(keep).enumerate() {
            if !keep {
                self.waiting.push(*change);
                continue;
            }
            let later = waiting.iter().skip(number + 1).fold(0, |bits, it| bits | it.slots());
            let rest = change.old_name_left(folder);
            let rest = rest.filter(|it| self.both_names && it.slots() & later == 0);
            let from = change.from.filter(|_| rest.is_none());
            // What it needs is flushed with it or was before, so this is possible.
            let _ = self.flushed.apply(&Change { from, ..*change });
            self.waiting.extend(rest);
        }
    }

    /// Whether the bytes of the file `name` of `save` are there.
    pub fn is_whole(&self, save: u8, name: u8) -> bool {
        self.lost & bytes_of(save, name) == 0
    }

    /// All that a power failure may keep.
    pub fn failures(&self) -> impl Iterator<Item = Kept> {
        // The steps kept, what they make, and the folders where a step before was lost.
        let mut all = vec![(0, self.flushed.clone(), 0)];
        for (number, change) in self.waiting.iter().enumerate() {
            for (steps, mut slots, lost) in std::mem::take(&mut all) {
                let before = if self.in_order { lost | change.folders() } else { 0 };
                all.push((steps, slots.clone(), before));
                if lost & change.folders() == 0 && slots.apply(change).is_some() {
                    all.push((steps | 1 << number, slots, lost));
                }
            }
        }
        let dirty = self.dirty;
        all.into_iter().flat_map(move |(steps, slots, _)| {
            let dirty = dirty & slots.bytes();
            let next = move |lost: &u32| Some(lost.checked_sub(1)? & dirty);
            std::iter::successors(Some(dirty), next).map(move |lost| Kept { steps, lost })
        })
    }

    /// The disk after a power failure, whose power `may_fail` again. `None` where a step that was
    /// kept needs one that was lost.
    pub fn after(&self, kept: Kept, may_fail: bool) -> Option<Self> {
        let mut now = self.flushed.clone();
        for (number, change) in self.waiting.iter().enumerate() {
            if kept.steps >> number & 1 == 1 {
                now.apply(change)?;
            }
        }
        let lost = self.lost | kept.lost;
        Some(Self {
            flushed: now.clone(),
            now,
            waiting: Vec::new(),
            may_fail,
            dirty: 0,
            lost,
            ..*self
        })
    }
}
