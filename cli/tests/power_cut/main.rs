//! The command, with the power cut after each of its calls that change a file system.
//!
//! Killed processes leave what they wrote. A power failure also loses what was not flushed, and a
//! file system may have done what came later before what came earlier. As ALICE (Pillai et al.,
//! OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018) do, this program records the calls of a
//! command with their effects (`record`), derives from them what a disk may hold by the rules of
//! several file systems (`names`, `disk`), makes each such folder once (`state`), and looks whether
//! it is the old model or the new one, before recovery and after it (`verdict`).
//!
//! Owners, permissions and times of folders are not a part of the states.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// Only functions with `#[test]` are tests for clippy, and their helpers are not.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod cases;
mod device;
mod disk;
mod models;
mod names;
mod real;
mod record;
mod state;
#[path = "../killed/tracer.rs"]
#[allow(dead_code)]
mod tracer;
mod verdict;

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;

use crate::cases::Case;
use crate::disk::States;
use crate::names::Rule;
use crate::real::Kind;
use crate::record::{Disk, Record, record};
use crate::verdict::{Judge, Verdict};

/// A new folder, in memory where that is possible.
fn scratch() -> TempDir {
    match Path::new("/dev/shm") {
        memory if memory.is_dir() => tempfile::tempdir_in(memory).unwrap(),
        _ => tempfile::tempdir().unwrap(),
    }
}

fn recorded(case: &Case) -> Record {
    let folder = scratch();
    case.make(folder.path());
    let record = record(folder.path(), case.command(folder.path()));
    assert_eq!(record.code, 0, "{}: {}", case.name, record.stderr);
    record
}

/// A case with what was found in its states.
struct Checked {
    wrong: Vec<String>,
    states: usize,
    verdicts: BTreeMap<Verdict, usize>,
    /// How many have a staging folder of which the disk lost the list.
    left: usize,
}

/// Makes and checks the states of a record. Those that `judge` knows are not made again.
fn checked(judge: &mut Judge<'_>, disk: &Disk<'_>) -> Checked {
    let case = judge.case;
    let states = States::of(disk, case.rules);
    judge.check(states.all.keys());
    let (mut wrong, mut left, mut verdicts) = (Vec::new(), 0, BTreeMap::new());
    for (state, origin) in &states.all {
        let mut judged = judge.of(state, states.at_end.contains(state));
        left += usize::from(judged.is_left);
        let mut others = states.of_rules.iter().filter(|(rule, _)| *rule != Rule::Posix);
        if judged.is_cut_off && others.any(|(_, of_rule)| of_rule.distinct.contains(state)) {
            judged.verdict = Err("others find a model without its weights".to_owned());
        }
        match judged.verdict {
            Ok(verdict) => *verdicts.entry(verdict).or_insert(0) += 1,
            Err(said) => {
                let call = origin.cut.checked_sub(1).map_or("none", |at| disk.calls[at].name);
                let (rule, cut, what) = (origin.rule, origin.cut, &origin.what);
                let name = &case.name;
                wrong.push(format!("{name}: {rule:?}, after call {cut}, {call}; {what}: {said}"));
            }
        }
    }
    print(judge, &states, disk);
    Checked { wrong, states: states.all.len(), verdicts, left }
}

/// Says what was made and found by each rule.
fn print(judge: &Judge<'_>, states: &States, disk: &Disk<'_>) {
    println!("{}: {} calls, {} states", judge.case.name, disk.calls.len(), states.all.len());
    for (rule, of_rule) in &states.of_rules {
        let mut found = BTreeMap::new();
        for state in &of_rule.distinct {
            let verdict = judge.of(state, states.at_end.contains(state)).verdict.ok();
            let name = verdict.map_or("wrong".to_owned(), |verdict| format!("{verdict:?}"));
            *found.entry(name).or_insert(0) += 1;
        }
        let (cuts, states, distinct) = (of_rule.cuts, of_rule.states, of_rule.distinct.len());
        println!("  {rule:?}: {cuts} cuts, {states} states, {distinct} distinct: {found:?}");
    }
}

/// How many states were found, of durable commands and of others, none of which is wrong.
fn check(cases: Vec<Case>) -> (usize, usize) {
    let (mut wrong, mut durable, mut others) = (Vec::new(), 0, 0);
    for case in cases {
        let record = recorded(&case);
        let checked = checked(&mut Judge::new(&case, &record), &Disk::new(&record));
        let has = |verdict: Verdict| checked.verdicts.contains_key(&verdict);
        let flushes = record.calls.iter().filter(|call| call.flushed.is_some()).count();
        let (name, verdicts, left) = (&case.name, &checked.verdicts, checked.left);
        let is_recovery = case.is_recovery();
        assert!(has(Verdict::New) && record.calls.len() > 3, "{name}: {verdicts:?}");
        assert!(has(Verdict::Old) || is_recovery, "{name}: {verdicts:?}");
        assert_eq!(flushes > 0, case.sync, "{name}");
        // A save that is undone has no journal any more when its folder is removed.
        assert!(!case.sync || left == 0 || is_recovery, "{name}: {left} folders of nobody");
        assert!(case.sync || has(Verdict::Refused), "{name}: {verdicts:?}");
        *if case.sync { &mut durable } else { &mut others } += checked.states;
        wrong.extend(checked.wrong);
    }
    println!("{durable} distinct states of durable commands, {others} of others");
    let few = wrong.iter().take(20).map(|said| format!("\n{said}")).collect::<String>();
    assert!(wrong.is_empty(), "{} states are wrong, of which some:{few}", wrong.len());
    (durable, others)
}

#[test]
fn a_power_failure_leaves_the_old_model_or_the_new_one() {
    let (durable, others) = check(cases::all());
    assert!(durable > 8000 && others > 3000, "{durable} and {others} states");
}

#[test]
#[ignore = "needs ONNX_CONTAINER_PYTHON, a Python with the package"]
fn a_power_failure_during_a_save_of_python_leaves_the_old_model_or_the_new_one() {
    let (durable, others) = check(cases::of_python());
    assert!(durable > 700 && others > 1000, "{durable} and {others} states");
}

/// How many disks of each run are looked at where `ONNX_CONTAINER_DISKS` does not say how many.
const FEW_DISKS: usize = 6;

/// Cuts the power of real file systems of a kind: all cases, where `ONNX_CONTAINER_DISKS` is set.
fn check_disks(kind: &Kind) {
    let most = std::env::var("ONNX_CONTAINER_DISKS").ok().map(|text| text.parse().unwrap());
    let cases: Vec<_> = match most {
        Some(_) => cases::all(),
        // A save, several models at once, and a recovery.
        None => cases::few()
            .into_iter()
            .enumerate()
            .filter(|(at, _)| [0, 3, 5].contains(at))
            .map(|(_, (case, _))| case)
            .collect(),
    };
    let (mut wrong, mut disks, mut journals, mut both_names) = (Vec::new(), 0, 0, 0);
    for case in cases.iter().filter(|case| case.sync) {
        let found = real::check(kind, case, most.unwrap_or(FEW_DISKS)).unwrap();
        let has = |verdict: Verdict| found.verdicts.contains_key(&verdict);
        assert!(has(Verdict::New) && (has(Verdict::Old) || case.is_recovery()), "{}", case.name);
        disks += found.disks;
        journals += found.journals;
        both_names += found.both_names;
        wrong.extend(found.wrong);
    }
    let name = kind.name;
    println!("{name}: {disks} disks, {journals} with a journal, {both_names} with both names");
    assert!(journals > 0 && (both_names > 0 || name != "btrfs"));
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "mounts file systems: needs root, FUSE and mkfs.ext4"]
fn a_disk_of_ext4_whose_power_is_cut_has_the_old_model_or_the_new_one() {
    check_disks(&real::EXT4);
}

#[test]
#[ignore = "mounts file systems: needs root, FUSE and mkfs.ext4"]
fn a_disk_of_ext4_that_orders_no_data_has_the_old_model_or_the_new_one() {
    check_disks(&real::EXT4_EARLY);
}

#[test]
#[ignore = "mounts file systems: needs root, FUSE and mkfs.xfs"]
fn a_disk_of_xfs_whose_power_is_cut_has_the_old_model_or_the_new_one() {
    check_disks(&real::XFS);
}

#[test]
#[ignore = "mounts file systems: needs root, FUSE and mkfs.btrfs"]
fn a_disk_of_btrfs_whose_power_is_cut_has_the_old_model_or_the_new_one() {
    check_disks(&real::BTRFS);
}

/// Whether a disk has states that are wrong, or on which a folder stays that is nobody's.
fn is_noticed(judge: &mut Judge<'_>, disk: &Disk<'_>) -> bool {
    judge.case.rules.iter().any(|rule| {
        let states = States::of(disk, &[*rule]);
        judge.check(states.all.keys());
        states.all.keys().any(|state| {
            let judged = judge.of(state, states.at_end.contains(state));
            let is_cut_off = judged.is_cut_off && *rule != Rule::Posix;
            judged.verdict.is_err() || judged.is_left || is_cut_off
        })
    })
}

/// The path of what each call flushed, and the how manieth flush of it that is; random parts of
/// names left out.
fn flushes(record: &Record) -> Vec<(usize, String)> {
    let mut counts = BTreeMap::new();
    let mut flushes = Vec::new();
    for (number, call) in record.calls.iter().enumerate() {
        let Some(flushed) = call.flushed else { continue };
        let parts = record.first_paths[flushed].split('/');
        let plain = |part: &str| match part {
            part if part.contains(".saving-") => "STAGING".to_owned(),
            part => part.rsplit_once("-signing-").map_or(part, |(start, _)| start).to_owned(),
        };
        let path = parts.map(plain).collect::<Vec<_>>().join("/");
        let count = counts.entry(path.clone()).or_insert(0);
        *count += 1;
        flushes.push((number, format!("{path} {count}")));
    }
    flushes
}

/// Without a flush there is a state that is wrong: so the states have what flushes are for.
#[test]
fn a_flush_that_is_left_out_is_noticed() {
    let mut noticed = 0;
    for (case, spare) in cases::few() {
        let record = recorded(&case);
        let mut judge = Judge::new(&case, &record);
        assert!(!is_noticed(&mut judge, &Disk::new(&record)), "{}", case.name);
        let mut unnoticed = Vec::new();
        for (number, flush) in flushes(&record) {
            match is_noticed(&mut judge, &Disk::new(&record).without(number)) {
                true => noticed += 1,
                false => unnoticed.push(flush),
            }
        }
        println!("{}: not noticed: {unnoticed:?}", case.name);
        assert_eq!(unnoticed, spare, "{}", case.name);
    }
    println!("{noticed} flushes that are left out are noticed");
    assert!(noticed > 30, "{noticed}");
}

/// A rename moves a file out of the model's folder and into `old/`: one of the two is flushed at
/// least.
#[test]
fn two_flushes_that_stand_in_for_each_other_are_needed() {
    let (case, spare) = cases::few().swap_remove(2);
    let record = recorded(&case);
    let flushes = flushes(&record).into_iter();
    let both = flushes.filter(|(_, flush)| spare.contains(&flush.as_str()));
    let disk = both.fold(Disk::new(&record), |disk, (number, _)| disk.without(number));
    assert!(is_noticed(&mut Judge::new(&case, &record), &disk));
}

/// The journal comes before the first rename.
#[test]
fn a_journal_that_comes_late_is_noticed() {
    let (case, _) = cases::few().swap_remove(0);
    let record = recorded(&case);
    let renames = record.calls.iter().enumerate().filter(|(_, call)| call.name == "renameat2");
    let renames: Vec<_> = renames.map(|(number, _)| number).collect();
    let is_journal = |change: &record::NameChange| change.name.ends_with(".switching");
    assert!(record.calls[renames[0]].names.iter().any(is_journal));
    for later in &renames[1..] {
        let disk = Disk::new(&record).swapped(renames[0], *later);
        assert!(is_noticed(&mut Judge::new(&case, &record), &disk), "after call {later}");
    }
}
