//! What a state of a disk is: the old model, the new one, or what may not be.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onnx_container::LoadOptions;
use onnx_container::recovery::recover;
use tempfile::TempDir;

use crate::cases::{Case, Promise};
use crate::disk::{Entry, State};
use crate::models::{Found, is_shared, read, read_with};
use crate::record::Record;
use crate::state::{How, is_journal, make};

/// What a state was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    Old,
    New,
    /// Of a save that is not durable: an error.
    Refused,
    /// Of a save that is not durable: a file has its length and not its bytes, which the digests
    /// say that the model has of its weights.
    Digests,
    /// The same without digests: nobody says so.
    Silent,
}

/// What is said of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What it is, or what is wrong.
    pub verdict: Result<Verdict, String>,
    /// Whether a staging folder stays of which the disk lost the list, so that nobody knows whose
    /// it is.
    pub is_left: bool,
    /// Whether others find a model without its weights until somebody recovers it.
    pub is_cut_off: bool,
}

/// The checks of all states of a case. A state that was checked is known.
pub struct Judge<'c> {
    pub case: &'c Case,
    record: &'c Record,
    known: HashMap<State, Judged>,
}

impl<'c> Judge<'c> {
    pub fn new(case: &'c Case, record: &'c Record) -> Self {
        Self { case, record, known: HashMap::new() }
    }

    /// Checks those of the `states` that were not checked yet, a few at a time, in parallel.
    pub fn check<'s>(&mut self, states: impl Iterator<Item = &'s State>) {
        let new: Vec<_> = states.filter(|state| !self.known.contains_key(*state)).collect();
        let (next, seen) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
        let judged = Mutex::new(Vec::new());
        let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(state) = new.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let verdict = self.judge(state, &seen);
                        lock(&judged).push(((*state).clone(), verdict));
                    }
                });
            }
        });
        self.known.extend(judged.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// What a state is that was checked. At the end of a durable command it is the new one.
    pub fn of(&self, state: &State, is_end: bool) -> Judged {
        self.at_end(self.known[state].clone(), is_end)
    }

    /// What the folder `root` is, of a durable command; it is recovered.
    pub fn of_folder(&self, root: &Path, is_end: bool) -> Judged {
        let seen = self.seen(root);
        let judged = self.recovered(root, false);
        let judged = match judged.verdict {
            Ok(verdict) => with_seen(judged, verdict, seen),
            Err(_) => judged,
        };
        self.at_end(judged, is_end)
    }

    fn at_end(&self, mut judged: Judged, is_end: bool) -> Judged {
        if let Ok(found) = judged.verdict
            && is_end
            && self.case.sync
            && found != Verdict::New
        {
            judged.verdict = Err(format!("the command has ended, and this is {found:?}"));
        }
        judged
    }

    fn judge(&self, state: &State, seen: &Mutex<HashMap<State, Result<Seen, String>>>) -> Judged {
        let is_visible = |entry: &&Entry| !entry.path.split('/').any(|name| name.starts_with('.'));
        let visible: State = state.iter().filter(is_visible).cloned().collect();
        let known = lock(seen).get(&visible).cloned();
        let seen = known.unwrap_or_else(|| {
            let folder = self.made(&visible, true);
            let found = self.seen(folder.path());
            lock(seen).insert(visible, found.clone());
            found
        });
        let is_torn = self.is_torn(state);
        let mut judged = self.recovered(self.made(state, true).path(), is_torn);
        let Ok(verdict) = judged.verdict else { return judged };
        if self.case.sync || !is_torn {
            judged = with_seen(judged, verdict, seen);
        }
        // As a copy of the folder, in which the inodes of the journal are those of nobody.
        if self.case.sync && state.iter().any(|entry| is_journal(&entry.path)) {
            let again = self.recovered(self.made(state, false).path(), is_torn).verdict;
            if again != Ok(verdict) {
                judged.verdict = Err(format!("{verdict:?}, but as a copy {again:?}"));
            }
        }
        judged
    }

    fn made(&self, state: &State, keeps_inodes: bool) -> TempDir {
        let folder = crate::scratch();
        make(
            self.record,
            state,
            folder.path(),
            How { keeps_inodes, is_stopped: self.case.is_stopped },
        );
        folder
    }

    /// Whether a file has the length that it was to have, and other bytes.
    fn is_torn(&self, state: &State) -> bool {
        let len = |bytes| self.record.bytes(bytes).len();
        state.iter().any(|entry| {
            let versions = &self.record.versions[entry.id];
            entry.file.zip(versions.last()).is_some_and(|((bytes, _), last)| {
                let was = versions.first().filter(|first| first.after == 0).map(|it| it.bytes);
                len(bytes) == len(last.bytes) && bytes != last.bytes && Some(bytes) != was
            })
        })
    }

    /// What a program sees that knows nothing of recovery.
    fn seen(&self, root: &Path) -> Result<Seen, String> {
        let refused = |found: Found| match found {
            Found::Failed(_) if !self.case.sync => Ok(Seen::Nothing),
            found => Err(format!("{found:?}")),
        };
        match self.case.promise {
            Promise::Model { path, old, new } => match read(&root.join(path)) {
                Found::Failed(said)
                    if said.ends_with("no such file") && self.is_old(root, path) =>
                {
                    Ok(Seen::CutOff)
                }
                Found::Model(value) if value == new => Ok(Seen::New),
                Found::Model(value) if Some(value) == old => Ok(Seen::Old),
                Found::Missing => Ok(Seen::Nothing),
                found => refused(found),
            },
            Promise::Moved { new, .. } => {
                let [old, new] = [Some("in/m.onnx"), new].map(|p| p.map(|p| read(&root.join(p))));
                let is_whole = |found: &Option<Found>| *found == Some(Found::Model((2.0, 2.0)));
                match (&old, new) {
                    (Some(Found::Missing), None) => Ok(Seen::Nothing),
                    (Some(Found::Failed(said)), None) if said.ends_with("no such file") => {
                        Ok(Seen::CutOff)
                    }
                    (old, new) if is_whole(old) || is_whole(&new) => Ok(Seen::Old),
                    _ if !self.case.sync => Ok(Seen::Nothing),
                    found => Err(format!("no whole model: {found:?}")),
                }
            }
            Promise::Shared => {
                for path in ["in/a.onnx", "in/b.onnx", "in/c.onnx"] {
                    match read(&root.join(path)) {
                        Found::Missing | Found::Model((2.0, 2.0)) => {}
                        Found::Failed(said)
                            if said.ends_with("no such file") && self.is_old(root, path) =>
                        {
                            return Ok(Seen::CutOff);
                        }
                        found => return refused(found),
                    }
                }
                Ok(Seen::Nothing)
            }
            Promise::Signed => self.signatures(root).map(|_| Seen::Nothing),
        }
    }

    /// What recovery makes of the folder `root`, and whether a folder without its list stays.
    fn recovered(&self, root: &Path, is_torn: bool) -> Judged {
        let mut is_left = false;
        let verdict = self.recover(root, &mut is_left);
        let verdict = match verdict {
            Err(_) if !self.case.sync && is_torn => self.told_by_digests(root),
            verdict => verdict,
        };
        Judged { verdict, is_left, is_cut_off: false }
    }

    /// A model with other bytes than it was to have: where digests are stored, they say so.
    fn told_by_digests(&self, root: &Path) -> Result<Verdict, String> {
        let Promise::Model { path, .. } = self.case.promise else { return Ok(Verdict::Silent) };
        if !self.case.args.contains("--digests") {
            return Ok(Verdict::Silent);
        }
        match read_with(&root.join(path), LoadOptions::new().verify_digests(true)) {
            Found::Failed(_) => Ok(Verdict::Digests),
            found => Err(format!("{found:?}, and no digest says so")),
        }
    }

    fn recover(&self, root: &Path, is_left: &mut bool) -> Result<Verdict, String> {
        let folders = ["in", "out"].map(|name| root.join(name));
        for folder in &folders {
            let recovery = recover(folder).map_err(|error| error.to_string())?;
            if !recovery.errors.is_empty() {
                if self.case.sync {
                    return Err(format!("{:?}", recovery.errors));
                }
                return Ok(Verdict::Refused);
            }
        }
        let verdict = self.found(root)?;
        for folder in &folders {
            self.check_hidden(folder, is_left)?;
            let again = recover(folder).map_err(|error| error.to_string())?;
            let has_done = again.finished.len() + again.undone.len() + again.removed;
            if has_done > 0 || !again.errors.is_empty() {
                return Err(format!("a second recovery: {again:?}"));
            }
        }
        match self.found(root)? {
            again if again == verdict => Ok(verdict),
            again => Err(format!("{verdict:?}, then {again:?}")),
        }
    }

    /// Checks that nothing hidden is left in `folder`, with the exceptions that docs/safety.md
    /// names: a job, what `sign` leaves, and a staging folder without its list.
    fn check_hidden(&self, folder: &Path, is_left: &mut bool) -> Result<(), String> {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let is_of_job = name.contains(".job-") || name.contains(".ended-");
            let is_of_sign = name.starts_with(".onnx-container-signing-");
            if !name.starts_with('.') || is_of_job || is_of_sign {
                continue;
            }
            let list = fs::read(entry.path().join("files")).unwrap_or_default();
            if !name.contains(".saving-") || list.starts_with(b"onnx-container save 1\0") {
                return Err(format!("{name} is left"));
            }
            *is_left = true;
        }
        Ok(())
    }

    /// What is there after recovery.
    fn found(&self, root: &Path) -> Result<Verdict, String> {
        let refused = |found: Found| match found {
            Found::Failed(_) if !self.case.sync => Ok(Verdict::Refused),
            found => Err(format!("{found:?} is found")),
        };
        match self.case.promise {
            Promise::Model { path, old, new } => match read(&root.join(path)) {
                Found::Model(value) if value == new => Ok(Verdict::New),
                Found::Model(value) if Some(value) == old => Ok(Verdict::Old),
                Found::Missing if old.is_none() => Ok(Verdict::Old),
                found => refused(found),
            },
            Promise::Moved { new, replaces, keeps_weights } => {
                let is_copy = self.case.args.starts_with("cp");
                let old = read(&root.join("in/m.onnx"));
                let found = new.map(|new| read(&root.join(new)));
                let is_new = found == new.map(|_| Found::Model((2.0, 2.0)));
                let is_replaced = match found {
                    Some(Found::Model((1.0, 1.0))) => replaces,
                    Some(Found::Missing) => !replaces,
                    _ => false,
                };
                match old {
                    Found::Model((2.0, 2.0)) if is_copy && is_new => Ok(Verdict::New),
                    Found::Model((2.0, 2.0)) if is_new || is_replaced => Ok(Verdict::Old),
                    Found::Missing if !is_copy && is_new => {
                        let left = names(&root.join("in")).into_iter().find(|n| n.starts_with('m'));
                        // Names of two folders need not come back together without a flush.
                        match left.filter(|_| !keeps_weights && self.case.sync) {
                            Some(left) => Err(format!("{left} is left")),
                            None => Ok(Verdict::New),
                        }
                    }
                    _ if !self.case.sync && self.is_refused(&[&old], found.as_ref()) => {
                        Ok(Verdict::Refused)
                    }
                    old => Err(format!("{old:?} and {found:?}")),
                }
            }
            Promise::Shared => {
                let paths = ["a", "b", "c"].map(|name| root.join(format!("in/{name}.onnx")));
                for path in &paths {
                    match read(path) {
                        Found::Model((2.0, 2.0)) => {}
                        found => return refused(found),
                    }
                }
                match paths.map(|path| is_shared(&path)) {
                    [Some(true), Some(true), Some(true)] => Ok(Verdict::New),
                    [Some(false), Some(false), Some(false)] => Ok(Verdict::Old),
                    shared => Err(format!("some are shared: {shared:?}")),
                }
            }
            Promise::Signed => self.signatures(root),
        }
    }

    /// Whether the model at `path`, its weights aside, is the old one.
    fn is_old(&self, root: &Path, path: &str) -> bool {
        let place = self.record.start.iter().filter(|((_, name), _)| path.ends_with(&**name));
        let mut old = place.filter_map(|(_, id)| self.record.versions[*id].first());
        fs::read(root.join(path))
            .is_ok_and(|now| old.any(|old| *self.record.bytes(old.bytes) == *now))
    }

    fn is_refused(&self, old: &[&Found], new: Option<&Found>) -> bool {
        let is_error = |found: &Found| matches!(found, Found::Failed(_) | Found::Missing);
        old.iter().all(|found| is_error(found)) && new.is_none_or(is_error)
    }

    /// Whether the two signatures are old or new ones, and whole.
    fn signatures(&self, root: &Path) -> Result<Verdict, String> {
        let mut found = Vec::new();
        for name in ["model.sig", "model.digest.sig"] {
            let Ok(bytes) = fs::read(root.join("in").join(name)) else {
                found.push(None);
                continue;
            };
            let content = |id: usize| {
                let last = self.record.versions[id].last()?;
                Some(self.record.bytes(last.bytes).to_vec())
            };
            let named = |names: &crate::record::Names| {
                let place = names.iter().find(|((_, own), _)| **own == *name)?;
                content(*place.1)
            };
            let is_old = named(&self.record.start).is_some_and(|old| old == bytes);
            let is_new = named(&self.record.end).is_some_and(|new| new == bytes);
            if is_old == is_new {
                return Err(format!("{name} is neither the old one nor the new one"));
            }
            found.push(Some(is_new));
        }
        match found.as_slice() {
            [Some(true), Some(true)] => Ok(Verdict::New),
            [Some(false), Some(false) | None] | [Some(true), None] => Ok(Verdict::Old),
            found => Err(format!("signatures that are new: {found:?}")),
        }
    }
}

/// With what others see, which is not older than the `verdict` of recovery.
fn with_seen(mut judged: Judged, verdict: Verdict, seen: Result<Seen, String>) -> Judged {
    match seen {
        Err(said) => judged.verdict = Err(format!("seen by others: {said}")),
        Ok(Seen::New) if verdict == Verdict::Old => {
            judged.verdict = Err("others see the new one, then it is the old one".to_owned());
        }
        Ok(seen) => judged.is_cut_off = seen == Seen::CutOff,
    }
    judged
}

/// What others see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Old,
    New,
    /// A model without its weights.
    CutOff,
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
