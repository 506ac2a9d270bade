//! All processes on one disk: what may happen next, and what must hold.

use crate::disk::{Disk, Folder, JOURNAL, Kept, MODEL, NAMES, Slots, new_file, old_file, staging};
use crate::process::{Call, Opened, Process, READER, RECOVERY, shown};
use crate::rules::{Files, Journal, Mutation, OLD, Rules, save_of};
use crate::search::Model;
use crate::switch::{Switch, Way};

const PROCESSES: usize = 4;
const WRITERS: u8 = 2;

/// All that decides what may come next.
#[derive(Debug, Clone, Hash)]
pub struct World {
    disk: Disk,
    /// The process that has locked the folder.
    lock: Option<u8>,
    processes: [Process; PROCESSES],
    /// What the journal of each writer says.
    journals: [Journal; WRITERS as usize],
    kills: u8,
    fails: u8,
    power_failures: u8,
    /// Whether a writer has reported success.
    is_said: bool,
    /// Whether the recovery locked the folder when all writers had ended.
    recovers_last: bool,
    is_after_failure: bool,
    broken: Option<&'static str>,
}

/// What happens.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// A process makes its next call.
    Call(u8),
    /// A process is killed.
    Kill(u8),
    /// A rename of a writer fails.
    Fail(u8),
    /// The power fails.
    PowerFailure(Kept),
    /// The recovery is called once more.
    Recover,
}

const RENAME: &str = "a call finds other files than those it was planned for";
const DELETED: &str = "an old file is deleted while it is needed";
const NO_WAY: &str = "a recovery finds an error and touches nothing";
const MIXED: &str = "a reader finds a model without its weights";
const NO_MODEL: &str = "a reader finds no model";
const LEFT: &str = "a journal, a staging folder or a file is left";
const LOST: &str = "the model is lost";
const FORGOTTEN: &str = "a save that was done is not there";
const STUCK: &str = "processes wait for ever";

impl World {
    fn process(&self, process: u8) -> Option<&Process> {
        self.processes.get(usize::from(process))
    }

    fn process_mut(&mut self, process: u8) -> Option<&mut Process> {
        self.processes.get_mut(usize::from(process))
    }

    fn is_over(&self, process: u8) -> bool {
        self.process(process).is_none_or(Process::is_over)
    }

    fn writers_are_over(&self) -> bool {
        (0..WRITERS).all(|writer| self.is_over(writer))
    }

    fn opened(&mut self) -> Option<&mut Opened> {
        self.process_mut(READER).map(|reader| &mut reader.opened)
    }

    /// The journal that is in place.
    fn journal(&self) -> Option<Journal> {
        let writer = self.disk.now.at(JOURNAL).checked_sub(1)?;
        self.journals.get(usize::from(writer)).copied()
    }

    fn end(&mut self, process: u8) {
        if let Some(process) = self.process_mut(process) {
            *process = Process::default();
        }
        if self.lock == Some(process) {
            self.lock = None;
        }
    }

    fn is_disturbed(&mut self) {
        if let Some(reader) =
            self.process_mut(READER).filter(|reader| reader.is_begun && !reader.is_over())
        {
            reader.opened.is_disturbed = true;
        }
    }

    /// Whether an old file may be deleted: all new ones are in place, or all to be removed are
    /// away.
    fn may_delete(&self, rules: &Rules, slot: u8) -> bool {
        let is_old = |writer: u8| (0..NAMES).any(|name| old_file(writer, name) == slot);
        let Some(journal) = (0..WRITERS).find(|&writer| is_old(writer)) else {
            return slot >= NAMES;
        };
        // It is in place too.
        if self.disk.now.at(slot % NAMES) == self.disk.now.at(slot) {
            return true;
        }
        let Some(journal) = self.journals.get(usize::from(journal)) else { return false };
        let now = &self.disk.now;
        if rules.removes(journal.writer) {
            return journal.names().all(|name| now.at(name) != journal.old(name));
        }
        let mut new = journal.names().filter(|&name| journal.has_new(name));
        new.all(|name| now.at(name) == journal.save())
    }

    fn delete(&mut self, rules: &Rules, slot: u8) -> Option<()> {
        if !self.disk.now.is_free(slot) && !self.may_delete(rules, slot) {
            self.broken = Some(DELETED);
        }
        self.disk.delete(slot)
    }

    fn lock_as(&mut self, process: u8) {
        self.lock = Some(process);
        self.recovers_last |= process == RECOVERY && self.writers_are_over();
    }

    fn recover(&mut self, rules: &Rules, process: u8) {
        let Some(journal) = self.journal() else { return };
        match Switch::new(rules, &self.disk, journal, true).recover() {
            Some(calls) => self.go_on_with(process, calls),
            None => self.broken = Some(NO_WAY),
        }
    }

    fn go_on_with(&mut self, process: u8, calls: impl IntoIterator<Item = Call>) {
        if let Some(process) = self.process_mut(process) {
            process.go_on_with(calls);
        }
    }

    fn publish(&mut self, rules: &Rules, writer: u8) {
        let journal = rules.listed(writer, &self.disk.now);
        if rules.removes(writer) && self.disk.now.is_free(MODEL) {
            return self.go_on_with(writer, [Call::Delete(staging(writer)), Call::Unlock]);
        }
        if let Some(place) = self.journals.get_mut(usize::from(writer)) {
            *place = journal;
        }
        let calls = Switch::new(rules, &self.disk, journal, false).publish();
        self.go_on_with(writer, calls);
    }

    /// Removes what no journal names and no process uses, except old files.
    fn sweep(&mut self, rules: &Rules) {
        let named = self.journal().map(|journal| journal.writer);
        let now = &self.disk.now;
        let mut calls = Vec::new();
        for writer in (0..WRITERS).filter(|writer| Some(*writer) != named) {
            let is_used = !self.is_over(writer) && !rules.has(Mutation::RunningSavesSwept);
            let is_there = !now.is_free(staging(writer));
            if is_there && !is_used && now.is_empty(Folder::Old(writer)) {
                let new = (0..NAMES).map(|name| new_file(writer, name));
                let new = new.filter(|slot| !now.is_free(*slot));
                calls.extend(new.chain([staging(writer)]).map(Call::Delete));
            }
        }
        self.go_on_with(RECOVERY, calls);
    }

    /// Makes a call; `None` where it finds other files than those that it was planned for.
    fn make(&mut self, rules: &Rules, process: u8, call: Call) -> Option<()> {
        match call {
            Call::MakeStaging(writer) => self.disk.create(staging(writer), 1)?,
            Call::Write(writer, name) => {
                self.disk.create(new_file(writer, name), save_of(writer))?;
                self.disk.write(save_of(writer), name);
            }
            Call::FlushBytes(writer, name) => self.disk.flush_bytes(save_of(writer), name),
            Call::Flush(folder) => self.disk.flush(folder),
            Call::Announce(writer) => {
                if rules.has(Mutation::OtherJournalReplaced) {
                    self.disk.delete(JOURNAL)?;
                }
                self.disk.create(JOURNAL, writer + 1)?;
            }
            Call::Rename { from, to, may_replace } => {
                self.disk.rename(from, to, may_replace)?;
                if from == MODEL || to == MODEL {
                    self.opened()?.is_moved |= self.process(READER)?.opened.model != 0;
                }
            }
            Call::Delete(slot) => self.delete(rules, slot)?,
            Call::Lock => self.lock_as(process),
            Call::Unlock => self.lock = self.lock.filter(|holder| *holder != process),
            Call::Recover => self.recover(rules, process),
            Call::Publish => self.publish(rules, process),
            Call::Say => self.is_said = true,
            Call::Sweep => self.sweep(rules),
            read => self.read(rules, read)?,
        }
        Some(())
    }

    /// Makes a call of the reader.
    fn read(&mut self, rules: &Rules, call: Call) -> Option<()> {
        match call {
            Call::Look => {
                *self.opened()? = Opened::default();
                let is_journaled = !self.disk.now.is_free(JOURNAL);
                self.go_on_with(READER, [Process::after_look(rules, is_journaled)]);
            }
            Call::TryLock if self.lock.is_none() => {
                self.lock_as(READER);
                self.go_on_with(READER, [Call::Recover, Call::Unlock, Call::OpenModel]);
            }
            Call::TryLock => self.go_on_with(READER, [Call::OpenModel]),
            Call::OpenModel => {
                let save = self.disk.now.at(MODEL);
                self.opened()?.model = save;
                self.go_on_with(READER, Process::after_model(rules, save));
            }
            Call::OpenWeights(name) => {
                let file = self.disk.now.at(name);
                let opened = self.opened()?;
                opened.is_mixed |= file != opened.model;
            }
            Call::LookAgain => self.look_again(rules),
            Call::LookForModel(waits) => {
                let is_there = !self.disk.now.is_free(MODEL);
                match Process::after_wait(waits, is_there) {
                    Some(call) => self.go_on_with(READER, [call]),
                    None => {
                        let is_disturbed = self.opened()?.is_disturbed;
                        if !is_disturbed && !rules.may_end_without_model() {
                            self.broken = Some(NO_MODEL);
                        }
                    }
                }
            }
            Call::Wait(waits) => self.go_on_with(READER, [Call::LookForModel(waits)]),
            _ => {}
        }
        Some(())
    }

    fn look_again(&mut self, rules: &Rules) {
        let now = self.disk.now.at(MODEL);
        let Some(opened) = self.opened() else { return };
        let is_same = !opened.is_moved && opened.model == now;
        if !is_same && !rules.has(Mutation::ReaderLooksOnce) {
            return self.go_on_with(READER, [Call::Look]);
        }
        if opened.is_mixed {
            self.broken = Some(MIXED);
        }
    }

    /// The save whose model is in place with all its weights, or 0 for none.
    ///
    /// # Errors
    /// What is wrong.
    fn in_place(&self, rules: &Rules) -> Result<u8, &'static str> {
        let (now, save) = (&self.disk.now, self.disk.now.at(MODEL));
        let is_whole = |name| now.at(name) == save && self.disk.is_whole(save, name);
        // A file system that keeps any steps may keep the last of a list of renames alone.
        let may_miss = !rules.in_order && self.is_after_failure && !self.is_settled();
        let is_right = |name| is_whole(name) || (may_miss && name != MODEL && now.is_free(name));
        let is_one = save == 0 || rules.files(save).all(is_right);
        if is_one { Ok(save) } else { Err(MIXED) }
    }

    /// What is wrong where nobody runs and the recovery has run.
    fn end_fault(&self, rules: &Rules, save: u8) -> Option<&'static str> {
        let now: &Slots = &self.disk.now;
        if (NAMES..staging(WRITERS)).any(|slot| !now.is_free(slot)) {
            return Some(LEFT);
        }
        if save == 0
            && (!rules.may_end_without_model() || (0..NAMES).any(|name| !now.is_free(name)))
        {
            return Some(LOST);
        }
        let is_missing = save == 0 && rules.files != Files::Removal;
        (self.is_said && (save == OLD || is_missing)).then_some(FORGOTTEN)
    }

    /// Whether nobody runs and the recovery has run since.
    fn is_settled(&self) -> bool {
        self.writers_are_over() && self.is_over(RECOVERY) && self.recovers_last
    }
}

/// What may be killed: a process that made a call; of readers, one that recovers.
fn may_be_killed(world: &World, process: u8) -> bool {
    let is_begun = world.process(process).is_some_and(|own| own.is_begun && !own.is_over());
    is_begun && (process != READER || world.lock == Some(process))
}

/// Whether the next rename of a writer may fail, after which it undoes those before.
fn may_fail(rules: &Rules, world: &World, process: u8) -> bool {
    let is_rename = world
        .process(process)
        .is_some_and(|own| !own.gives_up && matches!(own.calls.first(), Some(Call::Rename { .. })));
    let own = world.journal().filter(|journal| journal.writer == process);
    is_rename
        && world.lock == Some(process)
        && own.is_some_and(|own| Switch::new(rules, &world.disk, own, false).way() != Way::Done)
}

impl Model for Rules {
    type State = World;
    type Action = Action;

    fn start(&self) -> World {
        let mut disk = Disk::new(self.power_failures > 0, self.in_order, self.both_names);
        if self.begins_with_model() {
            self.files(OLD).for_each(|name| disk.begin_with(name, OLD));
        }
        let writer = |writer: u8| match writer < self.writers {
            true => Process::writer(self, writer),
            false => Process::default(),
        };
        let reader = if self.reader { Process::reader() } else { Process::default() };
        World {
            disk,
            lock: None,
            processes: [writer(0), writer(1), Process::recovery(self), reader],
            journals: [Journal::default(); WRITERS as usize],
            kills: self.kills,
            fails: self.fails,
            power_failures: self.power_failures,
            is_said: false,
            recovers_last: false,
            is_after_failure: false,
            broken: None,
        }
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for process in [0, 1, RECOVERY, READER] {
            actions.push(Action::Call(process));
            if world.kills > 0 && may_be_killed(world, process) {
                actions.push(Action::Kill(process));
            }
            if world.fails > 0 && process < WRITERS && may_fail(self, world, process) {
                actions.push(Action::Fail(process));
            }
        }
        if world.power_failures > 0 {
            actions.extend(world.disk.failures().map(Action::PowerFailure));
        }
        if world.writers_are_over() && world.is_over(RECOVERY) && !world.recovers_last {
            actions.push(Action::Recover);
        }
    }

    fn next(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Call(process) => {
                let call = *world.process(process)?.calls.first()?;
                let waits = matches!(call, Call::Lock | Call::Wait(_)) && world.lock.is_some();
                if waits {
                    return None;
                }
                let own = next.process_mut(process)?;
                own.calls.remove(0);
                own.is_begun = true;
                if next.make(self, process, call).is_none() {
                    next.broken = Some(RENAME);
                }
                if next.is_over(process) {
                    next.end(process);
                }
            }
            Action::Kill(process) => {
                next.kills -= 1;
                next.recovers_last &= process != RECOVERY;
                next.end(process);
                next.is_disturbed();
            }
            Action::Fail(process) => {
                next.fails -= 1;
                let own = Switch::new(self, &world.disk, world.journal()?, false);
                let calls = own.give_up();
                let failing = next.process_mut(process)?;
                failing.gives_up = true;
                failing.calls = calls;
            }
            Action::PowerFailure(kept) => {
                next.power_failures -= 1;
                next.disk = world.disk.after(kept, next.power_failures > 0)?;
                (0..WRITERS).for_each(|writer| next.end(writer));
                for process in [RECOVERY, READER] {
                    if world.process(process)?.is_begun {
                        next.end(process);
                    }
                }
                next.lock = None;
                next.recovers_last = false;
                next.is_after_failure = true;
            }
            Action::Recover => *next.process_mut(RECOVERY)? = Process::recovery(self),
        }
        Some(next)
    }

    fn fault(&self, world: &World, is_last: bool) -> Option<&'static str> {
        let save = match world.in_place(self) {
            Ok(save) => save,
            Err(fault) => return Some(fault),
        };
        if world.broken.is_some() {
            return world.broken;
        }
        if world.is_settled() {
            return world.end_fault(self, save);
        }
        is_last.then_some(STUCK)
    }

    fn describe(&self, world: &World, action: Action) -> String {
        let who = |process: u8| match process {
            RECOVERY => "the recovery".to_owned(),
            READER => "the reader".to_owned(),
            writer => format!("writer {writer}"),
        };
        let next = |process: u8| world.process(process).and_then(|own| own.calls.first().copied());
        match action {
            Action::Call(process) => match next(process) {
                Some(Call::Rename { from, to, .. }) => {
                    format!("{}: rename {} to {}", who(process), shown(from), shown(to))
                }
                Some(Call::Delete(slot)) => format!("{}: delete {}", who(process), shown(slot)),
                call => format!("{}: {call:?}", who(process)),
            },
            Action::Kill(process) => format!("{} is killed", who(process)),
            Action::Fail(process) => format!("the next rename of {} fails", who(process)),
            Action::PowerFailure(kept) => format!("the power fails: {kept:?}"),
            Action::Recover => "the recovery is called again".to_owned(),
        }
    }
}
