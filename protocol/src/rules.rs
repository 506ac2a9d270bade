//! What is searched: which files saves replace, who takes part, and how the protocol is broken.

use crate::disk::{MODEL, NAMES, Slots};

/// The save that wrote the files that are there at the beginning.
pub const OLD: u8 = 1;
const FIRST: u8 = 2;

/// The save of a writer.
pub fn save_of(writer: u8) -> u8 {
    FIRST + writer
}

/// Which files there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Each save has the weights files of the one before.
    SameNames,
    /// Each save has a weights file of its own, and the old ones stay: one rename replaces the
    /// model.
    NewNames,
    /// Each save has a weights file of its own, and removes those of the model that it replaces.
    Removed,
    /// As `SameNames`, and there is no model at the beginning.
    NoModel,
    /// As `SameNames`, and the first writer removes the model with its weights.
    Removal,
}

/// How the protocol is broken, to see that the search notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "tests/search.rs says what each is")]
pub enum Mutation {
    ModelBeforeWeights,
    OldModelAfterOldWeights,
    ModelStaysInPlace,
    OldDeletedEarly,
    JournalBeforeStaging,
    NoJournal,
    OtherJournalReplaced,
    UnlockedBeforeJournalGoes,
    RecoveryWithoutLock,
    RunningSavesSwept,
    UndoBringsModelBackFirst,
    UndoBringsOldBackFirst,
    RemovalTakesModelLast,
    RemovalDeletesAtOnce,
    ReaderLooksOnce,
    ReaderRecoversNothing,
    BytesNotFlushed,
    JournalNotFlushed,
    FoundJournalNotFlushed,
    OldNotFlushed,
    WeightsNotFlushed,
    ModelNotFlushed,
    StagingNotFlushed,
    SecondNamesStay,
    UndoneOldNotFlushed,
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Which files there are.
    pub files: Files,
    /// How many writers take part, at most two.
    pub writers: u8,
    /// Whether a reader that knows the journal takes part.
    pub reader: bool,
    /// How many processes may be killed.
    pub kills: u8,
    /// How many renames of writers may fail.
    pub fails: u8,
    /// How often the power may fail.
    pub power_failures: u8,
    /// Whether a power failure keeps the steps in a folder in their order. Else it keeps any.
    pub in_order: bool,
    /// Whether a flush of the folder that a file was renamed to may leave its old name too, until
    /// the other folder is flushed.
    pub both_names: bool,
    /// Whether the journal's inodes tell old files from new ones. All files have one length and one
    /// time.
    pub inodes: bool,
    /// How the protocol is broken.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// Whether the protocol is broken in this way.
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether there is a model at the beginning.
    pub fn begins_with_model(&self) -> bool {
        self.files != Files::NoModel
    }

    /// Whether the writer removes the model.
    pub fn removes(&self, writer: u8) -> bool {
        self.files == Files::Removal && writer == 0
    }

    /// Whether there may be no model at the end.
    pub fn may_end_without_model(&self) -> bool {
        matches!(self.files, Files::NoModel | Files::Removal)
    }

    /// The weights files of a save.
    pub fn weights(&self, save: u8) -> std::ops::Range<u8> {
        match self.files {
            Files::NewNames | Files::Removed if save != OLD => save..save + 1,
            _ => 0..2,
        }
    }

    /// The files of a save, the model last.
    pub fn files(&self, save: u8) -> impl Iterator<Item = u8> {
        self.weights(save).chain([MODEL])
    }

    /// The files that a switch of this writer has, the model last: the new ones, those of the model
    /// in place that it removes. None where it removes a model that is not there.
    pub fn listed(&self, writer: u8, now: &Slots) -> Journal {
        let mut journal = Journal { writer, ..Journal::default() };
        let (save, in_place) = (save_of(writer), now.at(MODEL));
        for name in 0..NAMES {
            let is_new = !self.removes(writer) && self.files(save).any(|own| own == name);
            let goes = in_place != 0
                && (self.files == Files::Removed || self.removes(writer))
                && self.files(in_place).any(|own| own == name);
            journal.set(name, is_new, if is_new || goes { now.at(name) } else { 0 });
        }
        journal
    }
}

/// What a journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Journal {
    /// Whose staging folder it names.
    pub writer: u8,
    /// For each file whether there is a new one, and the old one.
    entries: [(bool, u8); NAMES as usize],
}

impl Journal {
    fn set(&mut self, name: u8, is_new: bool, old: u8) {
        if let Some(entry) = self.entries.get_mut(usize::from(name)) {
            *entry = (is_new, old);
        }
    }

    /// The save of its new files.
    pub fn save(&self) -> u8 {
        save_of(self.writer)
    }

    fn entry(&self, name: u8) -> (bool, u8) {
        self.entries.get(usize::from(name)).copied().unwrap_or_default()
    }

    /// Whether it has a new file of this name.
    pub fn has_new(&self, name: u8) -> bool {
        self.entry(name).0
    }

    /// The old file of this name, or 0.
    pub fn old(&self, name: u8) -> u8 {
        self.entry(name).1
    }

    /// The names that it lists, the model last.
    pub fn names(self) -> impl DoubleEndedIterator<Item = u8> {
        (0..NAMES).filter(move |&name| self.has_new(name) || self.old(name) != 0)
    }

    /// Those of weights.
    pub fn weights(self) -> impl DoubleEndedIterator<Item = u8> {
        self.names().filter(|&name| name != MODEL)
    }

    /// Whether weights are replaced or removed.
    pub fn replaces_weights(self) -> bool {
        self.weights().any(|name| self.old(name) != 0)
    }

    /// Whether one rename replaces the old model.
    pub fn replaces_model(self) -> bool {
        !self.replaces_weights() && self.old(MODEL) != 0
    }
}
