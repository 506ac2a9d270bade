//! Every state that a switch, its undo and its deletions can end in, by a kill or by a power
//! failure, is recovered.
//!
//! All files have one length and one time, old ones and new ones, as two checkpoints of a model
//! have on a file system with a coarse clock. One of them is in a folder below the model's. After
//! each recovery all files are old or all are new, and nothing else is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::names::{journal_name, staged_name};
use super::{Switch, recover};

const STAGING: &str = ".m.onnx.saving-aB3xYz";
const NAMES: [&str; 3] = ["w1", "sub/w2", "m.onnx"];
/// Which files are replaced; the others are new.
const OLD: [&[&str]; 6] = [
    &[],
    &["m.onnx"],
    &["w1"],
    &["w1", "sub/w2"],
    &["m.onnx", "sub/w2"],
    &["w1", "sub/w2", "m.onnx"],
];

/// A change of the file system.
#[derive(Debug, Clone)]
enum Step {
    Rename(PathBuf, PathBuf),
    Delete(PathBuf),
    DeleteFolder(PathBuf),
}

impl Step {
    fn run(&self) {
        match self {
            Self::Rename(from, to) => fs::rename(from, to).unwrap(),
            Self::Delete(path) => fs::remove_file(path).unwrap(),
            Self::DeleteFolder(path) => fs::remove_dir(path).unwrap(),
        }
    }

    /// Gives what was renamed its old name too.
    #[cfg(unix)]
    fn leave_both_names(&self) {
        if let Self::Rename(from, to) = self {
            fs::hard_link(to, from).unwrap();
        }
    }
}

/// A file that the switch removes.
const REMOVED: &str = "w0";

/// A switch that was announced, the files that it replaces, and whether it removes one.
struct Case {
    folder: tempfile::TempDir,
    old: &'static [&'static str],
    removes: bool,
}

impl Case {
    /// With a journal that names no inodes where `has_inodes` is not set, as they were before.
    fn new(old: &'static [&'static str], (has_inodes, removes): (bool, bool)) -> Self {
        let case = Self { folder: tempfile::tempdir().unwrap(), old, removes };
        for part in ["old", "new"] {
            fs::create_dir_all(case.staged(part)).unwrap();
        }
        fs::create_dir(case.at("sub")).unwrap();
        let put = |path: PathBuf, text| {
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(2)).unwrap();
        };
        case.all_old().iter().for_each(|name| put(case.at(name), "old"));
        NAMES.iter().for_each(|name| put(case.staged_file("new", name), "new"));
        let both = (case.folder.path(), case.folder.path());
        let names = NAMES.map(str::to_owned);
        let switch = Switch::new(both, &case.at(STAGING), &names, |_| true, false).unwrap();
        let removed = if removes { vec![REMOVED.to_owned()] } else { Vec::new() };
        switch.removing(&removed).unwrap().announce().unwrap();
        if !has_inodes {
            case.forget_inodes();
        }
        case
    }

    /// Writes the journal as the first version did.
    fn forget_inodes(&self) {
        let journal = fs::read_to_string(self.journal()).unwrap();
        let mut fields: Vec<_> = journal.split('\0').map(str::to_owned).collect();
        fields.remove(2);
        fields[0] = "onnx-container switch 1".into();
        for field in fields.iter_mut().filter(|field| field.split(' ').count() == 3) {
            if field.starts_with(|c: char| c.is_ascii_digit()) {
                *field = field.rsplit_once(' ').unwrap().0.to_owned();
            }
        }
        fs::write(self.journal(), fields.join("\0")).unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn staged(&self, part: &str) -> PathBuf {
        self.at(STAGING).join(part)
    }

    fn staged_file(&self, part: &str, name: &str) -> PathBuf {
        self.staged(part).join(&*staged_name(name))
    }

    fn journal(&self) -> PathBuf {
        self.at(&journal_name("m.onnx"))
    }

    /// The files that are moved away, the model last.
    fn all_old(&self) -> Vec<&'static str> {
        let removed = self.removes.then_some(REMOVED);
        let old = ["w1", "sub/w2"].into_iter().filter(|name| self.old.contains(name));
        let model = self.old.contains(&"m.onnx").then_some("m.onnx");
        old.chain(removed).chain(model).collect()
    }

    fn replaces_weights(&self) -> bool {
        self.all_old().iter().any(|name| *name != "m.onnx")
    }

    /// The steps of the switch in their order; each list is on the disk before the next begins.
    fn switch(&self) -> Vec<Vec<Step>> {
        let old = if self.replaces_weights() { self.all_old() } else { Vec::new() };
        let away =
            old.iter().rev().map(|name| Step::Rename(self.at(name), self.staged_file("old", name)));
        let into = |name: &&str| Step::Rename(self.staged_file("new", name), self.at(name));
        let [weights @ .., model] = &NAMES;
        vec![away.collect(), weights.iter().map(into).collect(), vec![into(model)]]
    }

    /// The steps that undo what was done of the switch.
    fn undo(&self, done: &[Step]) -> Vec<Step> {
        let back = |(from, to): (&PathBuf, &PathBuf)| Step::Rename(to.clone(), from.clone());
        let (mut new, mut old) = (Vec::new(), Vec::new());
        let is_new = |from: &Path| from.starts_with(self.staged("new"));
        if self.replaces_weights() || self.old.is_empty() {
            new.push(Step::Delete(self.staged("new").join("m.onnx")));
        }
        for step in done.iter().rev() {
            let Step::Rename(from, to) = step else { panic!("{step:?}") };
            if is_new(from) { &mut new } else { &mut old }.push(back((from, to)));
        }
        // Weights first, in their order.
        old.sort_by_key(|step| match step {
            Step::Rename(_, to) => self.all_old().iter().position(|name| to.ends_with(name)),
            _ => None,
        });
        new.into_iter().chain(old).collect()
    }

    /// What is deleted when all files are in place.
    fn deletions(&self) -> Vec<Step> {
        let mut files: Vec<_> = fs::read_dir(self.staged("old"))
            .unwrap()
            .map(|entry| Step::Delete(entry.unwrap().path()))
            .collect();
        files.sort_by_key(|step| format!("{step:?}"));
        files
    }

    fn check(&self, expected: &[&str], at: &str) {
        let recovery = recover(self.folder.path()).unwrap();
        assert!(recovery.errors.is_empty(), "{:?} {at}: {recovery:?}", self.old);
        let mut found = BTreeMap::new();
        for folder in ["", "sub/"] {
            for entry in fs::read_dir(self.at(folder)).unwrap().map(Result::unwrap) {
                let name = format!("{folder}{}", entry.file_name().to_str().unwrap());
                if name != "sub" {
                    let text = fs::read_to_string(entry.path());
                    found.insert(name, text.unwrap_or_else(|_| "(folder)".into()));
                }
            }
        }
        let all = |text: &str, names: &[&str]| -> BTreeMap<_, _> {
            names.iter().map(|name| ((*name).to_owned(), text.to_owned())).collect()
        };
        // A file that was to be removed stays where the switch was interrupted before it moved it.
        if self.removes && found.get("m.onnx").is_some_and(|model| model == "new") {
            found.remove(REMOVED);
        }
        let which = match &found {
            found if *found == all("new", &NAMES) => "new",
            found if *found == all("old", &self.all_old()) => "old",
            _ => "mixed",
        };
        assert!(expected.contains(&which), "{:?} {at}: {which}: {found:?}", self.old);
        let again = recover(self.folder.path()).unwrap();
        assert!(again.finished.is_empty() && again.undone.is_empty(), "{at}: {again:?}");
    }
}

fn each_case(mut run: impl FnMut(&'static [&'static str], (bool, bool))) {
    for old in OLD {
        // The first journals had no inodes, and removed nothing.
        for how in [(true, false), (true, true), (false, false)] {
            run(old, how);
        }
    }
}

/// Every subset of `count` things, as bits.
fn subsets(count: usize) -> std::ops::Range<usize> {
    0..1 << count
}

#[test]
fn a_switch_that_is_killed_is_completed() {
    each_case(|old, how| {
        let count = Case::new(old, how).switch().concat().len();
        for done in 0..=count {
            let case = Case::new(old, how);
            case.switch().concat().iter().take(done).for_each(Step::run);
            case.check(&["new"], &format!("after {done} of {count}"));
        }
    });
}

/// Another model may have come to need it since.
#[test]
fn a_file_that_an_interrupted_switch_has_not_removed_stays() {
    let case = Case::new(&["m.onnx"], (true, true));
    assert_eq!(recover(case.folder.path()).unwrap().finished.len(), 1);
    let text = |name| fs::read_to_string(case.at(name)).unwrap();
    assert_eq!((text("m.onnx"), text(REMOVED)), ("new".to_owned(), "old".to_owned()));
    assert!(!case.journal().exists() && !case.at(STAGING).exists());
}

#[test]
fn an_undo_that_is_killed_leaves_all_old_or_all_new_files() {
    each_case(|old, how| {
        let count = Case::new(old, how).switch().concat().len();
        for done in 0..count {
            for undone in 0.. {
                let case = Case::new(old, how);
                let steps = case.switch().concat();
                steps[..done].iter().for_each(Step::run);
                let undo = case.undo(&steps[..done]);
                undo.iter().take(undone).for_each(Step::run);
                // Until the new model is deleted it can go on; then it is undone.
                let deletes = matches!(undo.first(), Some(Step::Delete(_)));
                let expected = if deletes && undone > 0 { "old" } else { "new" };
                case.check(&[expected], &format!("{undone} of {done} steps undone"));
                if undone >= undo.len() {
                    break;
                }
            }
        }
    });
}

#[test]
fn deletions_that_are_killed_leave_the_new_files_whatever_is_deleted_first() {
    each_case(|old, how| {
        let replaced = Case::new(old, how);
        let files = if replaced.replaces_weights() { replaced.all_old().len() } else { 0 };
        for deleted in subsets(files) {
            // The folders go when they are empty, in whatever order a version deletes them.
            for folders in subsets(2) {
                let case = Case::new(old, how);
                case.switch().concat().iter().for_each(Step::run);
                let all = case.deletions();
                assert_eq!(all.len(), files);
                // It is deleted last. Without inodes, no other order is told from an undo.
                let model_first = case.old.contains(&"m.onnx") && deleted & 1 == 1;
                if cfg!(windows) && case.removes && model_first && deleted + 1 != 1 << files {
                    continue;
                }
                let chosen = all.iter().enumerate().filter(|(bit, _)| deleted >> bit & 1 == 1);
                chosen.for_each(|(_, step)| step.run());
                if folders & 1 == 1 {
                    Step::DeleteFolder(case.staged("new")).run();
                }
                if folders >> 1 & 1 == 1 && deleted + 1 == 1 << files {
                    Step::DeleteFolder(case.staged("old")).run();
                }
                case.check(&["new"], &format!("{deleted:b} deleted, folders {folders:b}"));
            }
        }
    });
}

/// Between two flushes a disk may have written any of the renames.
#[test]
fn a_power_failure_between_two_flushes_leaves_all_old_or_all_new_files() {
    each_case(|old, how| {
        for failed in 0..3 {
            let count = Case::new(old, how).switch()[failed].len();
            for written in subsets(count) {
                let case = Case::new(old, how);
                let lists = case.switch();
                lists[..failed].concat().iter().for_each(Step::run);
                let chosen = lists[failed].iter().enumerate();
                let chosen = chosen.filter(|(bit, _)| written >> bit & 1 == 1);
                chosen.for_each(|(_, step)| step.run());
                case.check(&["new"], &format!("list {failed}, {written:b} written"));
            }
        }
    });
}

/// A disk of btrfs may have a rename's new name, and the old name too.
#[cfg(unix)]
#[test]
fn a_power_failure_that_leaves_both_names_of_renames_is_recovered() {
    each_case(|old, how| {
        let steps = Case::new(old, how).switch();
        let (away, all) = (steps[0].len(), steps.concat().len());
        for done in 0..=all {
            // Once a new file is in place, the old one cannot have this name too.
            let first = if done > away { away } else { 0 };
            for both in subsets(done - first) {
                let case = Case::new(old, how);
                for (number, step) in case.switch().concat().iter().take(done).enumerate() {
                    step.run();
                    if number >= first && both >> (number - first) & 1 == 1 {
                        step.leave_both_names();
                    }
                }
                case.check(&["new"], &format!("{done} of {all}, {both:b} with both names"));
            }
        }
    });
}

#[cfg(unix)]
#[test]
fn a_power_failure_that_leaves_both_names_of_an_undo_is_recovered() {
    each_case(|old, how| {
        let steps = Case::new(old, how).switch().concat();
        for done in 0..steps.len() {
            let undo = Case::new(old, how).undo(&steps[..done]);
            for both in subsets(undo.len()) {
                let case = Case::new(old, how);
                let steps = case.switch().concat();
                steps[..done].iter().for_each(Step::run);
                let undo = case.undo(&steps[..done]);
                for (number, step) in undo.iter().enumerate() {
                    step.run();
                    // The folder is flushed after new files are taken out of it.
                    let old = case.staged("old");
                    let is_old = matches!(step, Step::Rename(from, _) if from.starts_with(&old));
                    if both >> number & 1 == 1 && is_old {
                        step.leave_both_names();
                    }
                }
                let deletes = matches!(undo.first(), Some(Step::Delete(_)));
                let expected = if deletes { "old" } else { "new" };
                case.check(&[expected], &format!("{done} steps undone, {both:b} with both names"));
            }
        }
    });
}

/// As a power failure leaves a save that was not flushed: any of the new files may be gone.
#[test]
fn new_files_that_are_lost_before_the_switch_leave_the_old_ones() {
    each_case(|old, how| {
        for lost in subsets(NAMES.len()).skip(1) {
            let case = Case::new(old, how);
            for (bit, name) in NAMES.iter().enumerate() {
                if lost >> bit & 1 == 1 {
                    fs::remove_file(case.staged_file("new", name)).unwrap();
                }
            }
            case.check(&["old"], &format!("{lost:b} lost"));
        }
    });
}
