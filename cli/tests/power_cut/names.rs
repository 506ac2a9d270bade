//! Which names may be on a disk after the power is cut, by the rules of file systems.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::record::{Disk, Id, NameChange, Names};

/// What a file system says of changes that were not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// ext4 as it is mounted by default (`data=ordered`, `delalloc`). Names are in one log, whose
    /// running transaction has all changes so far; `fsync` of anything commits it. So the disk has
    /// the first of all changes, and at least those before the last flush.
    /// Source: Documentation/filesystems/ext4/journal.rst and admin-guide/ext4.rst of Linux.
    Ext4,
    /// The same, where a file may have its length before its bytes (`nodelalloc`,
    /// `data=writeback`). Source: the options in admin-guide/ext4.rst.
    Ext4Early,
    /// XFS: changes are in a log in their order, and `fsync` forces the log up to the last change
    /// of the inode that is flushed. So the disk has the first of all changes, and at least those
    /// up to the last change of what was flushed.
    /// Source: Documentation/filesystems/xfs/xfs-delayed-logging-design.rst of Linux.
    Xfs,
    /// btrfs: the tree of the last transaction, which any time may have committed, so the disk has
    /// the first of all changes; `fsync` writes a log of one inode, which is replayed onto that:
    /// a file has its names of that time, with the folders that lead there, and a folder its
    /// entries, of which new folders have theirs. A file that was renamed to the folder from
    /// another one has both names, unless it is in the log itself: `real` finds that on disks.
    /// Source: the tests generic/321, 322, 335, 376 and 640 of fstests, which say what must
    /// survive. Of a file that was moved out of a folder, a flush of this folder may leave neither
    /// name here: 335 excludes that, after btrfs had such errors.
    Btrfs,
    /// What fsync(2) of Linux says: `fsync` of a file does not flush its name, that of a folder
    /// flushes its entries. Changes of one folder come in their order, and those of two folders in
    /// any. A rename between two folders is there as a whole or not.
    Folders,
    /// POSIX, which says no more than that `fsync` flushes: changes that were not flushed come in
    /// any order, where each needs only the one before it of the same name. So it is on a file
    /// system without a log. A rename is there as a whole or not: where it is not, the file system
    /// has to be repaired first.
    Posix,
}

pub const RULES: [Rule; 6] =
    [Rule::Ext4, Rule::Ext4Early, Rule::Xfs, Rule::Btrfs, Rule::Folders, Rule::Posix];

impl Rule {
    /// Whether a file may have its length and zeros though its length was not set beforehand.
    pub fn has_zeros(self) -> bool {
        matches!(self, Self::Ext4Early | Self::Folders | Self::Posix)
    }
}

/// The most sets of changes of one cut.
const MOST_SETS: usize = 20_000;

/// What can be reached, with its path.
type Paths = Vec<(Arc<str>, Id)>;

/// What can be reached after a cut. Each has a number.
pub struct Trees<'r> {
    disk: &'r Disk<'r>,
    rule: Rule,
    /// The changes of names, each with the call that made it.
    changes: Vec<(usize, &'r [NameChange])>,
    /// The names after so many changes.
    prefixes: Vec<Names>,
    trees: Vec<Paths>,
    numbers: HashMap<Paths, usize>,
    /// Each change with those that it needs, one bit for each.
    needs: Vec<u128>,
    /// The numbers of sets of changes.
    of_sets: HashMap<u128, usize>,
}

impl<'r> Trees<'r> {
    pub fn new(disk: &'r Disk<'r>, rule: Rule) -> Self {
        let calls = disk.calls.iter().enumerate();
        let changes = calls.filter(|(_, call)| !call.names.is_empty());
        let changes: Vec<_> = changes.map(|(at, call)| (at, call.names.as_slice())).collect();
        assert!(changes.len() <= 128, "{} changes of names", changes.len());
        let mut prefixes = vec![disk.record.start.clone()];
        for (_, change) in &changes {
            let mut names = prefixes[prefixes.len() - 1].clone();
            apply(change, &mut names);
            prefixes.push(names);
        }
        let needs = needs(&changes, rule);
        let (trees, numbers, of_sets) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { disk, rule, changes, prefixes, trees, numbers, needs, of_sets }
    }

    pub fn get(&self, tree: usize) -> &[(Arc<str>, Id)] {
        &self.trees[tree]
    }

    /// The numbers of the names that may be when so many calls are done.
    pub fn after(&mut self, cut: usize) -> BTreeSet<usize> {
        match self.rule {
            Rule::Ext4 | Rule::Ext4Early | Rule::Xfs => {
                let numbers = self.surely(cut)..=self.made(cut);
                numbers.map(|count| self.number(&self.prefixes[count].clone())).collect()
            }
            Rule::Btrfs => {
                let made = self.made(cut);
                let both = (0..=made).flat_map(|count| [(count, false), (count, true)]);
                both.map(|(count, keeps)| self.number(&self.replayed(count, cut, keeps))).collect()
            }
            Rule::Folders | Rule::Posix => self.sets(cut),
        }
    }

    fn number(&mut self, names: &Names) -> usize {
        let paths = paths(names);
        if let Some(number) = self.numbers.get(&paths) {
            return *number;
        }
        self.trees.push(paths.clone());
        self.numbers.insert(paths, self.trees.len() - 1);
        self.trees.len() - 1
    }

    /// How many changes were made by the first `calls`.
    fn made(&self, calls: usize) -> usize {
        self.changes.partition_point(|(at, _)| *at < calls)
    }

    /// The flushes among the first `calls`: which call, and of what.
    fn flushes(&self, calls: usize) -> impl Iterator<Item = (usize, Id)> {
        let calls = self.disk.calls[..calls].iter().enumerate();
        calls.filter_map(|(at, call)| Some((at, call.flushed?)))
    }

    /// How many changes are on the disk for sure, where all are in one log.
    fn surely(&self, cut: usize) -> usize {
        let needs = |(at, id)| match self.rule {
            Rule::Xfs => self.made(self.last_change(id, at)),
            _ => self.made(at),
        };
        self.flushes(cut).map(needs).max().unwrap_or(0)
    }

    /// How many calls were done at the last change of an inode before the call `at`.
    fn last_change(&self, id: Id, at: usize) -> usize {
        let versions = self.disk.record.versions[id].iter();
        let written = versions.map(|version| version.after).filter(|after| *after <= at).max();
        let concerns = |change: &NameChange| {
            change.folder == id || change.before == Some(id) || change.after == Some(id)
        };
        let named = self.changes.iter().take_while(|(call, _)| *call < at);
        let named = named.filter(|(_, change)| change.iter().any(concerns)).last();
        written.unwrap_or(0).max(named.map_or(0, |(call, _)| call + 1))
    }

    /// The names after the first `count` changes, and what was flushed since. A flush of a folder
    /// may keep other names of files that were there at the transaction.
    fn replayed(&self, count: usize, cut: usize, keeps_names: bool) -> Names {
        let mut names = self.prefixes[count].clone();
        for (at, id) in self.flushes(cut) {
            let made = self.made(at);
            if made > count {
                let committed = keeps_names.then_some(&self.prefixes[count]);
                let mut replay = Replay { now: &self.prefixes[made], names: &mut names, committed };
                match self.disk.record.is_folder(id) {
                    true => replay.folder(id),
                    false => replay.inode(id),
                }
            }
        }
        names
    }

    /// All sets of changes that were made before a cut, in which each has those that it needs, and
    /// a folder has those that it had when it was flushed.
    fn sets(&mut self, cut: usize) -> BTreeSet<usize> {
        let made = self.made(cut);
        let mut sure = 0;
        for (at, id) in self.flushes(cut).filter(|(_, id)| self.disk.record.is_folder(*id)) {
            for number in 0..self.made(at) {
                if self.changes[number].1.iter().any(|change| change.folder == id) {
                    sure |= self.needs[number];
                }
            }
        }
        let (mut known, mut open) = (HashSet::from([sure]), vec![sure]);
        while let Some(set) = open.pop() {
            // What changes a folder that cannot be reached makes no other state.
            let tree = self.of_set(set);
            let reached: HashSet<Id> = self.trees[tree].iter().map(|(_, id)| *id).collect();
            let is_seen =
                |change: &NameChange| change.folder == 0 || reached.contains(&change.folder);
            let missing = (0..made).filter(|number| set & (1 << number) == 0);
            let seen: Vec<_> =
                missing.filter(|number| self.changes[*number].1.iter().any(is_seen)).collect();
            for number in seen {
                let with = set | self.needs[number];
                if known.insert(with) {
                    assert!(known.len() < MOST_SETS, "too many sets at call {cut}");
                    open.push(with);
                }
            }
        }
        known.into_iter().map(|set| self.of_set(set)).collect()
    }

    fn of_set(&mut self, set: u128) -> usize {
        if let Some(number) = self.of_sets.get(&set) {
            return *number;
        }
        let mut names = self.disk.record.start.clone();
        for number in (0..self.changes.len()).filter(|number| set & (1 << number) != 0) {
            apply(self.changes[number].1, &mut names);
        }
        let number = self.number(&names);
        self.of_sets.insert(set, number);
        number
    }
}

/// Each change with those before it that it needs.
fn needs(changes: &[(usize, &[NameChange])], rule: Rule) -> Vec<u128> {
    let is_needed = |earlier: &NameChange, later: &NameChange| {
        earlier.folder == later.folder && (rule == Rule::Folders || earlier.name == later.name)
    };
    let mut needs: Vec<u128> = Vec::new();
    for (number, (_, later)) in changes.iter().enumerate() {
        let mut set = 1 << number;
        for (other, (_, earlier)) in changes[..number].iter().enumerate() {
            if earlier.iter().any(|one| later.iter().any(|other| is_needed(one, other))) {
                set |= needs[other];
            }
        }
        needs.push(set);
    }
    needs
}

/// What can be reached from the folder.
fn paths(names: &Names) -> Paths {
    let mut found = Paths::new();
    let mut folders = vec![(0, String::new())];
    while let Some((folder, path)) = folders.pop() {
        for ((_, name), id) in names.range((folder, Arc::from(""))..(folder + 1, Arc::from(""))) {
            let path = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
            found.push((Arc::from(path.as_str()), *id));
            folders.push((*id, path));
        }
    }
    found.sort();
    found
}

fn apply(changes: &[NameChange], names: &mut Names) {
    for NameChange { folder, name, after, .. } in changes {
        let key = (*folder, name.clone());
        match after {
            Some(id) => drop(names.insert(key, *id)),
            None => drop(names.remove(&key)),
        }
    }
}

/// The replay of a log of btrfs onto the names of a transaction.
struct Replay<'n> {
    /// The names when the log was written.
    now: &'n Names,
    names: &'n mut Names,
    /// The names of the transaction, where files that have one keep it: only the folder is in the
    /// log, not they themselves.
    committed: Option<&'n Names>,
}

impl Replay<'_> {
    fn places(names: &Names, id: Id) -> Vec<(Id, Arc<str>)> {
        names.iter().filter(|(_, named)| **named == id).map(|(place, _)| place.clone()).collect()
    }

    /// Gives an inode its names, and the folders that lead to it theirs.
    fn inode(&mut self, id: Id) {
        let places = Self::places(self.now, id);
        for place in Self::places(self.names, id) {
            if !places.contains(&place) {
                self.names.remove(&place);
            }
        }
        for place in places {
            if self.names.insert(place.clone(), id) != Some(id) {
                self.inode(place.0);
            }
        }
    }

    /// Gives a folder its entries, and new folders in it theirs.
    fn folder(&mut self, id: Id) {
        self.inode(id);
        let entries = |names: &Names| -> Vec<_> {
            let all = names.iter().filter(|((folder, _), _)| *folder == id);
            all.map(|(place, named)| (place.clone(), *named)).collect()
        };
        for (place, _) in entries(self.names) {
            if !self.now.contains_key(&place) {
                self.names.remove(&place);
            }
        }
        for (place, named) in entries(self.now) {
            let is_new = Self::places(self.names, named).is_empty();
            self.names.insert(place, named);
            let is_committed =
                self.committed.is_some_and(|names| !Self::places(names, named).is_empty());
            if !is_committed {
                self.inode(named);
            }
            if is_new {
                self.folder(named);
            }
        }
    }
}
