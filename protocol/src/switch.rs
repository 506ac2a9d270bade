//! The switch: its calls from where the files are, and what can be done with one that ended early.
//!
//! As in `src/files/recovery/switch.rs`, where the files are says what is done. The length and the
//! time of all files are equal here, so they tell nothing.

use crate::disk::{Disk, Folder, JOURNAL, MODEL, NAMES, Slots, new_file, old_file, staging};
use crate::process::Call;
use crate::rules::{Journal, Mutation, Rules};

/// Which file has the name of one of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Free,
    Old,
    New,
    Other,
}

/// Where the files of one name are.
#[derive(Debug, Clone, Copy)]
struct FoundFiles {
    position: Position,
    /// Whether a whole file is in place.
    has_length: bool,
    staged: bool,
    damaged: bool,
    saved: bool,
}

/// What can be done with an interrupted switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All files are in place.
    Done,
    /// It is completed.
    Finish,
    /// It is undone.
    Undo,
    /// Files that it does not know are in the way, or some that it needs are gone.
    None,
}

/// Calls that are still to be made, and what they leave.
#[derive(Debug)]
pub struct Switch<'a> {
    rules: &'a Rules,
    disk: &'a Disk,
    journal: Journal,
    is_resumed: bool,
    slots: Slots,
    calls: Vec<Call>,
}

impl<'a> Switch<'a> {
    /// The switch of a journal, begun or not.
    pub fn new(rules: &'a Rules, disk: &'a Disk, journal: Journal, is_resumed: bool) -> Self {
        let slots = disk.now.clone();
        Self { rules, disk, journal, is_resumed, slots, calls: Vec::new() }
    }

    /// The calls of a save or of a removal, from the journal to its end.
    pub fn publish(mut self) -> Vec<Call> {
        let writer = self.journal.writer;
        if !self.rules.has(Mutation::NoJournal) {
            self.calls.push(Call::Announce(writer));
            self.flush_unless(Mutation::JournalNotFlushed);
        }
        if self.rules.removes(writer) {
            self.take_all_away();
        } else {
            self.finish();
            self.flush_unless(Mutation::ModelNotFlushed);
        }
        let unlocks_early = self.rules.has(Mutation::UnlockedBeforeJournalGoes);
        if unlocks_early {
            self.calls.push(Call::Unlock);
        }
        self.end();
        self.calls.push(Call::Say);
        self.calls.extend((!unlocks_early).then_some(Call::Unlock));
        self.calls
    }

    /// The calls of a save whose rename failed.
    pub fn give_up(mut self) -> Vec<Call> {
        self.undo();
        self.calls.extend([Call::Delete(JOURNAL), Call::Flush(Folder::Main)]);
        self.delete_staging();
        self.calls.push(Call::Unlock);
        self.calls
    }

    /// The calls of a recovery; `None` where nothing may be touched.
    pub fn recover(mut self) -> Option<Vec<Call>> {
        let way = self.way();
        if way != Way::Done {
            self.flush_unless(Mutation::FoundJournalNotFlushed);
            if !self.rules.has(Mutation::SecondNamesStay) {
                self.delete_second_names();
            }
        }
        match way {
            Way::Done => {}
            Way::Finish => self.finish(),
            Way::Undo => self.undo(),
            Way::None => return None,
        }
        self.flush_unless(Mutation::ModelNotFlushed);
        if way == Way::Undo {
            self.calls.extend([Call::Delete(JOURNAL), Call::Flush(Folder::Main)]);
            self.remove_staging();
        } else {
            self.end();
        }
        Some(self.calls)
    }

    /// Deletes second names in the staging folder of files that are in place.
    fn delete_second_names(&mut self) {
        let writer = self.journal.writer;
        for name in self.journal.names() {
            for slot in [new_file(writer, name), old_file(writer, name)] {
                if self.is_second_name(slot) {
                    self.slots.put(slot, 0);
                    self.calls.push(Call::Delete(slot));
                }
            }
        }
    }

    /// Whether the file in the staging folder is the one in place too.
    fn is_second_name(&self, slot: u8) -> bool {
        let file = self.slots.at(slot);
        self.is_resumed && file != 0 && file == self.slots.at(slot % NAMES)
    }

    /// Removes the staging folder and then the journal.
    fn end(&mut self) {
        let journal_first = self.rules.has(Mutation::JournalBeforeStaging);
        if journal_first {
            self.calls.push(Call::Delete(JOURNAL));
        }
        self.remove_staging();
        self.calls.extend((!journal_first).then_some(Call::Delete(JOURNAL)));
    }

    fn remove_staging(&mut self) {
        if !self.slots.is_free(staging(self.journal.writer)) {
            self.delete_staging();
            self.flush_unless(Mutation::StagingNotFlushed);
        }
    }

    fn delete_staging(&mut self) {
        let writer = self.journal.writer;
        for name in self.journal.names() {
            for slot in [new_file(writer, name), old_file(writer, name)] {
                if !self.slots.is_free(slot) {
                    self.calls.push(Call::Delete(slot));
                }
            }
        }
        self.calls.push(Call::Delete(staging(writer)));
    }

    /// What can be done now.
    pub fn way(&self) -> Way {
        let all: Vec<_> = self.journal.names().map(|name| (name, self.found(name))).collect();
        let any = |is: &dyn Fn(&FoundFiles) -> bool| all.iter().any(|(_, found)| is(found));
        if !self.journal.has_new(MODEL) {
            let has_other = any(&|found| found.position == Position::Other);
            let is_gone = |found: &FoundFiles| !found.saved && found.position == Position::Free;
            return match (any(&|found| found.saved), any(&|found| found.position == Position::Old))
            {
                (false, _) => Way::Done,
                (true, true) if has_other => Way::None,
                (true, true) => Way::Undo,
                (true, false) if has_other && !any(&is_gone) => Way::None,
                (true, false) => Way::Done,
            };
        }
        if self.is_done(&all) {
            return Way::Done;
        }
        let goes_on = |(name, found): &(u8, FoundFiles)| match found.position {
            Position::New => !found.damaged,
            Position::Free | Position::Old => !self.journal.has_new(*name) || found.staged,
            Position::Other => false,
        };
        let goes_back = |(name, found): &(u8, FoundFiles)| match found.position {
            Position::Old => true,
            Position::New | Position::Free => self.journal.old(*name) == 0 || found.saved,
            Position::Other => false,
        };
        match (all.iter().all(goes_on), all.iter().all(goes_back)) {
            (true, _) => Way::Finish,
            (false, true) => Way::Undo,
            (false, false) => Way::None,
        }
    }

    fn is_done(&self, all: &[(u8, FoundFiles)]) -> bool {
        let model = all.last().map(|(_, found)| found.position);
        let is_old = model == Some(Position::Old);
        let is_in_place = |(name, found): &(u8, FoundFiles)| match self.journal.has_new(*name) {
            false => !found.saved || !is_old,
            true => found.has_length && !found.staged && !found.damaged,
        };
        if all.iter().all(is_in_place) && !(self.journal.replaces_model() && is_old) {
            return true;
        }
        let is_left = |(_, found): &(u8, FoundFiles)| found.staged || found.damaged || found.saved;
        let is_untouched = |(name, found): &(u8, FoundFiles)| match found.position {
            Position::Old => true,
            Position::Free => self.journal.old(*name) == 0,
            Position::New | Position::Other => false,
        };
        let has_model = model.is_some_and(|model| model != Position::Free);
        !all.iter().any(is_left) && (has_model || all.iter().all(is_untouched))
    }

    fn found(&self, name: u8) -> FoundFiles {
        let (journal, writer) = (self.journal, self.journal.writer);
        let at = |slot| {
            Some(self.slots.at(slot)).filter(|file| *file != 0 && !self.is_second_name(slot))
        };
        let is_whole = |file: u8| self.disk.is_whole(file, name);
        let in_place = Some(self.slots.at(name)).filter(|file| *file != 0);
        let new = at(new_file(writer, name));
        let staged = new.is_some_and(is_whole);
        let saved = journal.old(name) != 0 && at(old_file(writer, name)).is_some();
        let position = match in_place {
            None => Position::Free,
            Some(file) => self.position(name, file, (new.is_some(), saved)),
        };
        let damaged = new.is_some() && !staged;
        FoundFiles { position, has_length: in_place.is_some_and(is_whole), staged, damaged, saved }
    }

    fn position(&self, name: u8, file: u8, staged_and_saved: (bool, bool)) -> Position {
        let journal = self.journal;
        let is_like = self.disk.is_whole(file, name);
        let is = |own: u8| if self.rules.inodes { own == file } else { is_like };
        let is_new = journal.has_new(name) && is_like && is(journal.save());
        let is_old = journal.old(name) != 0 && is(journal.old(name));
        let must_be_new = match staged_and_saved {
            (true, true) => return Position::Other,
            (true, false) => false,
            (false, true) => true,
            (false, false) if journal.replaces_model() && name == MODEL => {
                let is_clearly_old = is_old && !is_like;
                !is_clearly_old && !self.has_staged_weights()
            }
            (false, false) => journal.old(name) == 0,
        };
        match must_be_new {
            true if is_new => Position::New,
            false if is_old => Position::Old,
            _ => Position::Other,
        }
    }

    fn has_staged_weights(&self) -> bool {
        let writer = self.journal.writer;
        let is_staged = |slot| !self.slots.is_free(slot) && !self.is_second_name(slot);
        self.journal.weights().any(|name| is_staged(new_file(writer, name)))
    }

    /// The renames that are left, in their order.
    fn finish(&mut self) {
        let (journal, writer) = (self.journal, self.journal.writer);
        let moves_away = journal.replaces_weights() && !self.rules.has(Mutation::ModelStaysInPlace);
        if moves_away {
            let mut names: Vec<_> = journal.names().rev().collect();
            if self.rules.has(Mutation::OldModelAfterOldWeights) {
                names.reverse();
            }
            names.retain(|&name| {
                let stays = self.is_resumed && !journal.has_new(name);
                !stays && self.found(name).position == Position::Old
            });
            names.iter().for_each(|&name| self.rename(name, old_file(writer, name), false));
            self.flush_old();
            if self.rules.has(Mutation::OldDeletedEarly) {
                names
                    .iter()
                    .for_each(|&name| self.calls.push(Call::Delete(old_file(writer, name))));
            }
        }
        if self.rules.has(Mutation::ModelBeforeWeights) {
            self.put_in_place(MODEL, moves_away);
        }
        for name in journal.weights().filter(|&name| journal.has_new(name)) {
            self.put_in_place(name, moves_away);
        }
        self.flush_unless(Mutation::WeightsNotFlushed);
        self.put_in_place(MODEL, moves_away);
    }

    fn put_in_place(&mut self, name: u8, is_free: bool) {
        if self.found(name).position != Position::New {
            let may_replace = !is_free && self.journal.old(name) != 0;
            self.rename(new_file(self.journal.writer, name), name, may_replace);
        }
    }

    /// Brings the old files back.
    fn undo(&mut self) {
        if self.rules.has(Mutation::UndoBringsOldBackFirst) {
            self.bring_old_back();
        }
        let (journal, writer) = (self.journal, self.journal.writer);
        for name in journal.names().rev() {
            if self.found(name).position == Position::New {
                self.rename(name, new_file(writer, name), false);
            }
            if name == MODEL && !journal.replaces_model() {
                self.slots.put(new_file(writer, name), 0);
                self.calls.push(Call::Delete(new_file(writer, name)));
            }
        }
        self.calls.push(Call::Flush(Folder::Main));
        self.bring_old_back();
        self.calls.push(Call::Flush(Folder::Main));
        if !self.rules.has(Mutation::UndoneOldNotFlushed) {
            self.calls.push(Call::Flush(Folder::Old(writer)));
        }
    }

    fn bring_old_back(&mut self) {
        let writer = self.journal.writer;
        let mut names: Vec<_> = self.journal.names().collect();
        if self.rules.has(Mutation::UndoBringsModelBackFirst) {
            names.reverse();
        }
        for name in names {
            if self.found(name).saved {
                if name == MODEL {
                    self.calls.push(Call::Flush(Folder::Main));
                }
                self.rename(old_file(writer, name), name, false);
            }
        }
    }

    /// The renames of a removal.
    fn take_all_away(&mut self) {
        let writer = self.journal.writer;
        let mut names: Vec<_> = self.journal.names().rev().collect();
        if self.rules.has(Mutation::RemovalTakesModelLast) {
            names.reverse();
        }
        for name in names {
            if self.rules.has(Mutation::RemovalDeletesAtOnce) {
                self.calls.push(Call::Delete(name));
            } else {
                self.rename(name, old_file(writer, name), false);
            }
        }
        self.flush_old();
    }

    fn rename(&mut self, from: u8, to: u8, may_replace: bool) {
        let file = self.slots.at(from);
        self.slots.put(from, 0);
        self.slots.put(to, file);
        self.calls.push(Call::Rename { from, to, may_replace });
    }

    fn flush_old(&mut self) {
        if !self.rules.has(Mutation::OldNotFlushed) {
            let old = Folder::Old(self.journal.writer);
            self.calls.extend([old, Folder::Main].map(Call::Flush));
        }
    }

    fn flush_unless(&mut self, mutation: Mutation) {
        if !self.rules.has(mutation) {
            self.calls.push(Call::Flush(Folder::Main));
        }
    }
}
