//! Cuts the power of real file systems: a command writes to one on a disk that records what it is
//! told (`device`). A cut leaves what was flushed, and of the later writes all, all except one,
//! the last alone, some at random, or the last by half. Each such disk is mounted, so that the
//! file system replays its log, and must hold the old model or the new one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::Case;
use crate::device::{BLOCK, Content, Event, Mounted, Place, run};
use crate::disk::{State, States};
use crate::names::Rule;
use crate::record::{Disk, Record, record_with};
use crate::verdict::{Judge, Verdict};

/// A kind of file system: how it is made and mounted, and the rule that says what a cut leaves.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    mib: u64,
    make: &'static [&'static str],
    mount: &'static str,
    rule: Rule,
}

pub const EXT4: Kind = Kind {
    name: "ext4",
    mib: 32,
    make: &["-q", "-E", "lazy_itable_init=0"],
    mount: "noinit_itable",
    rule: Rule::Ext4,
};

pub const EXT4_EARLY: Kind =
    Kind { mount: "noinit_itable,nodelalloc,data=writeback", rule: Rule::Ext4Early, ..EXT4 };

/// 300 MiB is the least that `mkfs.xfs` makes, and other disks have its number (`nouuid`).
pub const XFS: Kind =
    Kind { name: "xfs", mib: 300, make: &["-q"], mount: "nouuid", rule: Rule::Xfs };

/// 109 MiB is the least that `mkfs.btrfs` makes.
pub const BTRFS: Kind =
    Kind { name: "btrfs", mib: 112, make: &["-q"], mount: "nodiscard", rule: Rule::Btrfs };

impl Kind {
    fn content(&self) -> Result<Content, String> {
        let folder = crate::scratch();
        let image = folder.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(self.mib << 20)).unwrap();
        run(Command::new(format!("mkfs.{}", self.name)).args(self.make).arg(&image))?;
        Ok(Content::of_image(&image))
    }

    fn mounted(&self, place: &Place, content: Content) -> Result<Mounted, String> {
        Mounted::new(place, content, self.name, self.mount)
    }
}

/// A command with what the disk was told of it.
struct Told {
    start: Content,
    events: Vec<Event>,
    /// How many events there were when the command had ended.
    end: usize,
    record: Record,
}

/// Runs a case on a new disk. After so many calls the file system writes all that it has
/// (`syncfs`), as it does by itself after some seconds.
fn told(
    kind: &Kind,
    case: &Case,
    place: &Place,
    written_after: Option<usize>,
) -> Result<Told, String> {
    let folder = folder(place);
    let mounted = kind.mounted(place, kind.content()?)?;
    fs::create_dir(&folder).unwrap();
    case.make(&folder);
    let start = mounted.end().0;
    let mounted = kind.mounted(place, start.clone())?;
    let root = fs::File::open(place.root()).unwrap();
    let mut write = |calls| {
        if written_after == Some(calls) {
            rustix::fs::syncfs(&root).unwrap();
        }
    };
    let record = record_with(&folder, case.command(&folder), &mut write);
    drop(root);
    assert_eq!(record.code, 0, "{}: {}", case.name, record.stderr);
    let end = mounted.event_count();
    let events = mounted.end().1;
    Ok(Told { start, events, end, record })
}

/// The folder of a case. File systems have folders of their own beside it.
fn folder(place: &Place) -> PathBuf {
    place.root().join("case")
}

/// A disk after a cut: what was flushed, and which of the writes after that.
#[derive(Debug)]
struct Cut {
    /// How many events were done.
    after: usize,
    flushed: usize,
    /// Writes that are not flushed and on the disk.
    kept: Vec<usize>,
    /// Whether the last one is on the disk by half.
    is_torn: bool,
}

/// Numbers that look random and are the same each time (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << by } else { self.0 >> by };
        }
        self.0
    }
}

/// The cuts after each event, each disk once.
fn cuts(events: &[Event]) -> Vec<Cut> {
    let (mut cuts, mut known, mut random) = (Vec::new(), HashSet::new(), Random(1));
    let mut flushed = 0;
    for after in 0..=events.len() {
        let last = after.checked_sub(1);
        if last.is_some_and(|last| matches!(events[last], Event::Flush)) {
            flushed = after;
        }
        let pending: Vec<_> = (flushed..after).collect();
        let is_long =
            |at: &usize| matches!(&events[*at], Event::Write { bytes, .. } if bytes.len() > BLOCK);
        let mut sets = vec![(pending.clone(), false)];
        if last.as_ref().is_some_and(is_long) && !pending.is_empty() {
            sets.push((pending.clone(), true));
        }
        if pending.len() > 1 {
            let lost = pending[random.next() as usize % (pending.len() - 1)];
            sets.push((pending.iter().copied().filter(|at| *at != lost).collect(), false));
            sets.push((
                pending.iter().copied().filter(|_| random.next() % 2 == 0).collect(),
                false,
            ));
            sets.push((vec![after - 1], false));
        }
        for (kept, is_torn) in sets {
            if known.insert((flushed, kept.clone(), is_torn)) {
                cuts.push(Cut { after, flushed, kept, is_torn });
            }
        }
    }
    cuts
}

impl Told {
    /// The disk after a cut.
    fn disk(&self, cut: &Cut) -> Content {
        let mut content = self.start.clone();
        self.write(&mut content, 0..cut.flushed, cut);
        for at in &cut.kept {
            self.write(&mut content, *at..at + 1, cut);
        }
        content
    }

    fn write(&self, content: &mut Content, events: Range<usize>, cut: &Cut) {
        for (at, event) in events.clone().zip(&self.events[events]) {
            let Event::Write { offset, bytes } = event else { continue };
            let is_half = cut.is_torn && at + 1 == cut.after;
            let len = if is_half { bytes.len() / 2 / BLOCK * BLOCK } else { bytes.len() };
            content.write(*offset, &bytes[..len]);
        }
    }
}

/// The paths of a folder, and which are folders.
type Tree = BTreeMap<String, bool>;

/// The names of a folder, and whether a file is in place and in a staging folder.
fn tree(root: &Path) -> (Tree, bool) {
    let (mut tree, mut inodes) = (Tree::new(), BTreeMap::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let is_folder = entry.file_type().unwrap().is_dir();
            tree.insert(name.clone(), is_folder);
            inodes.insert(name, entry.ino());
            folders.extend(is_folder.then_some(path));
        }
    }
    let in_place = |name: &str| -> Option<String> {
        let (folder, staged) = name.split_once("/.")?;
        Some(format!("{folder}/{}", staged.splitn(3, '/').nth(2)?))
    };
    let has_both = inodes
        .iter()
        .any(|(name, inode)| in_place(name).is_some_and(|place| inodes.get(&place) == Some(inode)));
    (tree, has_both)
}

fn tree_of(state: &State) -> Tree {
    state.iter().map(|entry| (entry.path.to_string(), entry.file.is_none())).collect()
}

/// What was found on the disks of a case.
#[derive(Default)]
pub struct Found {
    pub disks: usize,
    pub verdicts: BTreeMap<Verdict, usize>,
    pub wrong: Vec<String>,
    /// How many disks have a journal.
    pub journals: usize,
    /// How many have a file with two names.
    pub both_names: usize,
}

/// Cuts the power of a command that runs four times: as it is, and with a `syncfs` after a quarter,
/// a half and three quarters of its calls. Looks at no more than `most` of the disks of each.
pub fn check(kind: &Kind, case: &Case, most: usize) -> Result<Found, String> {
    let place = Place::new();
    let mut found = Found::default();
    let mut count = None;
    for quarter in 0..4 {
        let written_after = count.map(|calls: usize| calls * quarter / 4);
        let told = told(kind, case, &place, written_after)?;
        count = Some(told.record.calls.len());
        found.add(&told, (kind, case, &place), most)?;
    }
    Ok(found)
}

impl Found {
    fn add(
        &mut self,
        told: &Told,
        (kind, case, place): (&Kind, &Case, &Place),
        most: usize,
    ) -> Result<(), String> {
        let (judge, folder) = (Judge::new(case, &told.record), folder(place));
        let (mut cuts, mut random) = (cuts(&told.events), Random(2));
        while cuts.len() > most {
            cuts.swap_remove(random.next() as usize % cuts.len());
        }
        let mut trees = BTreeSet::new();
        for cut in &cuts {
            let mounted = kind.mounted(place, told.disk(cut))?;
            let (tree, has_both) = tree(&folder);
            self.journals += usize::from(tree.keys().any(|name| name.ends_with(".switching")));
            self.both_names += usize::from(has_both);
            trees.insert(tree);
            let mut judged = judge.of_folder(&folder, cut.after >= told.end);
            mounted.end();
            if judged.is_cut_off {
                judged.verdict = Err("others find a model without its weights".to_owned());
            } else if judged.is_left && !case.is_recovery() {
                judged.verdict = Err("a staging folder of nobody is left".to_owned());
            }
            match judged.verdict {
                Ok(verdict) => *self.verdicts.entry(verdict).or_insert(0) += 1,
                Err(said) => {
                    let (name, kind, count) = (&case.name, kind.name, told.events.len());
                    self.wrong.push(format!("{name}, {kind}, {cut:?} of {count} events: {said}"));
                }
            }
        }
        self.disks += cuts.len();
        let derived = States::of(&Disk::new(&told.record), &[kind.rule]);
        let derived: HashSet<_> = derived.all.keys().map(tree_of).collect();
        let unknown = trees.iter().filter(|tree| !derived.contains(*tree));
        let name = format!("{} on {}", case.name, kind.name);
        self.wrong.extend(unknown.map(|tree| format!("{name}: {:?} has not {tree:?}", kind.rule)));
        let flushes = told.events.iter().filter(|event| matches!(event, Event::Flush)).count();
        let writes = told.events.len() - flushes;
        let (disks, trees) = (cuts.len(), trees.len());
        println!(
            "{name}: {writes} writes, {flushes} flushes, {disks} disks, {trees} trees of names"
        );
        Ok(())
    }
}
