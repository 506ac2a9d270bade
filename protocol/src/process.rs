//! The programs of processes: calls of the system, one after the other.
//!
//! A process that holds the lock of the folder plans its calls from one look at it: nobody else
//! renames files there meanwhile.

use crate::disk::{Folder, MODEL, new_file, staging};
use crate::rules::{Mutation, Rules, save_of};

/// The recovery, `recover FOLDER`. Writers are 0 and 1.
pub const RECOVERY: u8 = 2;
/// The reader that knows the journal.
pub const READER: u8 = 3;

/// How often a reader waits for a model that is not there: each other process may take it once.
const WAITS: u8 = 4;

/// A call of the system, or a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Makes the staging folder of a writer.
    MakeStaging(u8),
    /// Writes the new file of a writer, or a part of it.
    Write(u8, u8),
    /// Flushes the bytes of a new file of a writer.
    FlushBytes(u8, u8),
    /// Flushes the names in a folder.
    Flush(Folder),
    /// Puts the journal of a writer in place.
    Announce(u8),
    /// Renames a file.
    Rename {
        /// The slot it has.
        from: u8,
        /// The slot it gets.
        to: u8,
        /// Whether another file may have it.
        may_replace: bool,
    },
    /// Deletes a file or an empty folder, if it is there.
    Delete(u8),
    /// Locks the folder, when that is possible.
    Lock,
    /// Unlocks the folder.
    Unlock,
    /// Reads the journal and plans the recovery.
    Recover,
    /// Reads which files are in place and plans the switch.
    Publish,
    /// Reports success.
    Say,
    /// Plans the removal of what killed saves left that no journal names.
    Sweep,
    /// Looks for the journal.
    Look,
    /// Locks the folder where nobody has locked it.
    TryLock,
    /// Opens the model.
    OpenModel,
    /// Opens a weights file.
    OpenWeights(u8),
    /// Looks whether the model is the one that was opened.
    LookAgain,
    /// Waits until the folder is not locked.
    Wait(u8),
    /// Looks whether there is a model.
    LookForModel(u8),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Process {
    /// The calls to be made. A process without any has ended.
    pub calls: Vec<Call>,
    /// Whether it made a call.
    pub is_begun: bool,
    /// Whether a writer undoes what it did.
    pub gives_up: bool,
    /// What a reader has opened.
    pub opened: Opened,
}

/// What a reader has seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Opened {
    /// The model.
    pub model: u8,
    /// Whether weights are missing, or those of another save.
    pub is_mixed: bool,
    /// Whether the model's name was given to a file since: its time of change tells.
    pub is_moved: bool,
    /// Whether a process was killed since the look for the journal.
    pub is_disturbed: bool,
}

impl Process {
    fn of(calls: Vec<Call>) -> Self {
        Self { calls, ..Self::default() }
    }

    /// A writer that saves or removes.
    pub fn writer(rules: &Rules, writer: u8) -> Self {
        let recover = (!rules.has(Mutation::OtherJournalReplaced)).then_some(Call::Recover);
        let locked = [Call::Lock].into_iter().chain(recover);
        if rules.removes(writer) {
            return Self::of(locked.chain([Call::MakeStaging(writer), Call::Publish]).collect());
        }
        let mut calls = vec![Call::MakeStaging(writer)];
        let files: Vec<_> = rules.files(save_of(writer)).collect();
        calls.extend(files.iter().map(|&name| Call::Write(writer, name)));
        if !rules.has(Mutation::BytesNotFlushed) {
            calls.extend(files.iter().map(|&name| Call::FlushBytes(writer, name)));
        }
        calls.push(Call::Flush(Folder::New(writer)));
        Self::of(calls.into_iter().chain(locked).chain([Call::Publish]).collect())
    }

    /// A recovery of the folder.
    pub fn recovery(rules: &Rules) -> Self {
        let mut calls = vec![Call::Lock, Call::Recover, Call::Sweep, Call::Unlock];
        if rules.has(Mutation::RecoveryWithoutLock) {
            calls.retain(|call| !matches!(call, Call::Lock | Call::Unlock));
        }
        Self::of(calls)
    }

    /// A reader that knows the journal.
    pub fn reader() -> Self {
        Self::of(vec![Call::Look])
    }

    /// Whether all its calls are made, or it was killed.
    pub fn is_over(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes these calls before the others.
    pub fn go_on_with(&mut self, calls: impl IntoIterator<Item = Call>) {
        self.calls.splice(0..0, calls);
    }

    /// The calls of a reader after its look for the journal, which it found or not.
    pub fn after_look(rules: &Rules, is_journaled: bool) -> Call {
        let recovers = is_journaled && !rules.has(Mutation::ReaderRecoversNothing);
        if recovers { Call::TryLock } else { Call::OpenModel }
    }

    /// The calls of a reader that opened the model of `save`, or none.
    pub fn after_model(rules: &Rules, save: u8) -> Vec<Call> {
        if save == 0 {
            return vec![Call::Wait(0)];
        }
        rules.weights(save).map(Call::OpenWeights).chain([Call::LookAgain]).collect()
    }

    /// The next call of a reader that found a model after so many waits, or none; `None` where it
    /// gives up.
    pub fn after_wait(waits: u8, is_there: bool) -> Option<Call> {
        match is_there {
            true => Some(Call::Look),
            false => (waits < WAITS).then_some(Call::Wait(waits + 1)),
        }
    }
}

/// The name of a slot, for people.
pub fn shown(slot: u8) -> String {
    let name = |name: u8| if name == MODEL { "model".to_owned() } else { format!("weights{name}") };
    for writer in 0..2 {
        for file in 0..=MODEL {
            if slot == new_file(writer, file) {
                return format!("staging{writer}/new/{}", name(file));
            }
            if slot == crate::disk::old_file(writer, file) {
                return format!("staging{writer}/old/{}", name(file));
            }
        }
        if slot == staging(writer) {
            return format!("staging{writer}/");
        }
    }
    if slot == crate::disk::JOURNAL { "the journal".to_owned() } else { name(slot) }
}
