//! What a disk may hold after the power is cut, by the rules of file systems: from a record of
//! calls to states.
//!
//! The power is cut after each call, and before the first. What was flushed before is on the disk.
//! Of the rest a rule says which names may be, and which content a file may have.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::names::{Rule, Trees};
use crate::record::{Bytes, Disk, Id, Record, Time, Version};

/// The length of a block of a disk in bytes.
const BLOCK: usize = 4096;

/// What a file may have of bytes that were written and not flushed.
///
/// The bytes of a file are written to the disk later than they are written to the file, in any
/// order, and its length with them (ext4 `delalloc`, XFS, btrfs: blocks are allocated when they are
/// written back, and the length is updated when that has ended). Where the length was set before
/// (`ftruncate`, `fallocate`), or with `nodelalloc` and no order of data, blocks that were not
/// written are read as zeros (unwritten extents).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// All was written.
    Whole,
    /// What was flushed before; of a new file, no byte.
    Nothing,
    /// What the file was before its last change.
    Earlier,
    /// The length, and all zeros.
    Zeros,
    /// The first block and no more.
    CutAfterFirst,
    /// All blocks that are full.
    CutAfterFull,
    /// The length, and zeros in all but the last block: it was written back first.
    OnlyLast,
}

const DATA: [Data; 7] = [
    Data::Whole,
    Data::Nothing,
    Data::Earlier,
    Data::Zeros,
    Data::CutAfterFirst,
    Data::CutAfterFull,
    Data::OnlyLast,
];

/// A file or a folder of a state, with its path; a file has content and a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    pub path: Arc<str>,
    pub id: Id,
    pub file: Option<(Bytes, Time)>,
}

/// What a disk may hold: folders before what is in them.
pub type State = Vec<Entry>;

/// Where a state comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    pub rule: Rule,
    /// How many calls were done.
    pub cut: usize,
    pub what: String,
}

/// The states by one rule: how many, and each once.
#[derive(Default)]
pub struct OfRule {
    pub cuts: usize,
    pub states: usize,
    pub distinct: HashSet<State>,
}

/// The states of a record by several rules, each once.
#[derive(Default)]
pub struct States {
    pub all: HashMap<State, Origin>,
    /// Those that may be when the command has ended.
    pub at_end: HashSet<State>,
    pub of_rules: Vec<(Rule, OfRule)>,
}

impl States {
    /// The states of `record` by these rules.
    pub fn of(disk: &Disk<'_>, rules: &[Rule]) -> Self {
        let mut states = Self::default();
        for rule in rules {
            let found = states.add(disk, *rule);
            states.of_rules.push((*rule, found));
        }
        states
    }

    fn add(&mut self, disk: &Disk<'_>, rule: Rule) -> OfRule {
        let mut count = OfRule::default();
        let mut trees = Trees::new(disk, rule);
        let mut done = HashMap::new();
        for cut in 0..=disk.record.calls.len() {
            count.cuts += 1;
            let is_end = cut == disk.record.calls.len();
            for tree in trees.after(cut) {
                let paths = trees.get(tree);
                let choices = choices(disk, paths, cut, rule);
                if let Some(known) = done.get(&(tree, choices.clone())).filter(|_| !is_end) {
                    count.states += known;
                    continue;
                }
                let mut states = 0;
                for (what, chosen) in combined(&choices) {
                    states += 1;
                    let state = state(paths, &chosen);
                    if is_end {
                        self.at_end.insert(state.clone());
                    }
                    if count.distinct.insert(state.clone()) {
                        let what = || format!("names {tree}, data {what}");
                        self.all.entry(state).or_insert_with(|| Origin { rule, cut, what: what() });
                    }
                }
                count.states += states;
                done.insert((tree, choices), states);
            }
        }
        count
    }
}

/// What a file may be: its contents in the order of [`DATA`], or its only one; and its time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Choice {
    id: Id,
    contents: Vec<Bytes>,
    time: Time,
}

/// What each file that can be reached may be.
fn choices(disk: &Disk<'_>, paths: &[(Arc<str>, Id)], cut: usize, rule: Rule) -> Vec<Choice> {
    let files = paths.iter().map(|(_, id)| *id).filter(|id| !disk.record.is_folder(*id));
    let files: BTreeSet<Id> = files.collect();
    files.into_iter().map(|id| choice(disk, id, cut, rule)).collect()
}

fn choice(disk: &Disk<'_>, id: Id, cut: usize, rule: Rule) -> Choice {
    let record = disk.record;
    let versions = &record.versions[id];
    let flush = disk.calls[..cut].iter().rposition(|call| call.flushed == Some(id));
    let at = |calls: usize| versions.iter().rev().find(|version| version.after <= calls).copied();
    // The files of the beginning were there for long.
    let flushed = at(flush.unwrap_or(0));
    let last = at(cut).unwrap();
    let base = flushed.map_or_else(|| record.number(b""), |version| version.bytes);
    if base == last.bytes {
        return Choice { id, contents: vec![base], time: last.time };
    }
    let mut before = versions.iter().rev().skip_while(|version| version.after > cut);
    let earlier = before.find(|version| version.bytes != last.bytes);
    let earlier = earlier.filter(|it| flushed.is_none_or(|flushed| it.after >= flushed.after));
    let earlier = earlier.map_or(base, |version| version.bytes);
    let all = DATA.map(|data| content(data, last, (base, earlier), rule, record));
    Choice { id, contents: all.to_vec(), time: last.time }
}

/// The content of a file that is flushed as `base` and was last written as `last`.
fn content(
    data: Data,
    last: Version,
    (base, earlier): (Bytes, Bytes),
    rule: Rule,
    record: &Record,
) -> Bytes {
    let (whole, kept) = (record.bytes(last.bytes), record.bytes(base));
    // What was flushed stays where bytes were added to it.
    let kept = if whole.starts_with(&kept) { kept.len() } else { 0 };
    let len = whole.len();
    let full = len - len % BLOCK;
    let has_zeros = last.is_reserved || rule.has_zeros();
    let last_block = len.saturating_sub(1) / BLOCK * BLOCK;
    let zeros_to =
        |end: usize| record.number(&[&whole[..kept], &vec![0; end - kept], &whole[end..]].concat());
    match data {
        Data::Zeros if has_zeros => zeros_to(len),
        Data::OnlyLast if last_block > kept && has_zeros => zeros_to(last_block),
        Data::CutAfterFirst if len > BLOCK && kept < BLOCK => record.number(&whole[..BLOCK]),
        Data::CutAfterFull if full > kept && full < len => record.number(&whole[..full]),
        Data::Nothing => base,
        Data::Earlier => earlier,
        _ => last.bytes,
    }
}

/// The contents and times of all files.
type Chosen = HashMap<Id, (Bytes, Time)>;

/// All files in the same way; and all whole or without what was not flushed, and each alone in
/// another way.
fn combined(choices: &[Choice]) -> Vec<(String, Chosen)> {
    let of = |choice: &Choice, way: usize| *choice.contents.get(way).unwrap_or(&choice.contents[0]);
    let all = |way: usize| -> Chosen {
        choices.iter().map(|choice| (choice.id, (of(choice, way), choice.time))).collect()
    };
    let open: Vec<_> = choices.iter().filter(|choice| choice.contents.len() > 1).collect();
    if open.is_empty() {
        return vec![("flushed".to_owned(), all(0))];
    }
    let mut made = Vec::new();
    for (way, data) in DATA.iter().enumerate() {
        made.push((format!("{data:?}"), all(way)));
    }
    if open.len() > 1 {
        for base in [0, 1] {
            for choice in &open {
                for way in (0..DATA.len()).filter(|way| *way != base) {
                    let mut chosen = all(base);
                    chosen.insert(choice.id, (of(choice, way), choice.time));
                    let what = format!("{:?}, {} {:?}", DATA[base], choice.id, DATA[way]);
                    made.push((what, chosen));
                }
            }
        }
    }
    made
}

fn state(paths: &[(Arc<str>, Id)], chosen: &Chosen) -> State {
    let entry = |(path, id): &(Arc<str>, Id)| Entry {
        path: path.clone(),
        id: *id,
        file: chosen.get(id).copied(),
    };
    paths.iter().map(entry).collect()
}
