//! `recover FOLDER|MODEL`, and what every command does first: completes the saves that were killed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use onnx_container::job::{abort_job, jobs_in, jobs_of, remove_ended_jobs};
use onnx_container::recovery::{Recovery, recover, recover_model};
use onnx_container_files::{targets, unfinished};
use onnx_container_signing::remove_abandoned;
use serde::Serialize;

use crate::args::{RecoverArgs, is_url};
use crate::commands::Execute;
use crate::terminal::failure::{Failure, JsonError, Outcome, print_error};
use crate::terminal::output::{Output, count, lossy, print_on_stderr, tidy};
use crate::terminal::stop;

impl Execute for RecoverArgs {
    fn name(&self) -> &'static str {
        "recover"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Recovers, and says what was completed, undone and removed.
fn run(args: &RecoverArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let unknown = "what was recovered is not known: run `recover` again";
    let done = |_: &_| Some("what could be recovered was recovered".to_owned());
    let (recovery, removed) = stop::interruptible(unknown, || recovered(args), done)?;
    let printed = match args.json {
        true => {
            out.json(&RecoverReport::new(&args.path, &recovery, &removed)).map_err(Failure::from)
        }
        false => print(&recovery, &removed, out),
    };
    recovery.errors.iter().for_each(print_error);
    printed?;
    Ok(Outcome::of(recovery.errors.is_empty()))
}

/// Completes or undoes the interrupted saves in the folder, or of the model.
fn recovered(args: &RecoverArgs) -> Result<(Recovery, Removed), Failure> {
    let mut recovery = recover(&args.path)?;
    let folder = if args.path.is_dir() { &*args.path } else { targets::folder(&args.path) };
    let (signing, errors) = remove_abandoned(folder);
    recovery.errors.extend(errors);
    let (written, errors) = unfinished::remove_abandoned(folder);
    recovery.errors.extend(errors);
    let (ended, errors) = remove_ended_jobs(folder);
    recovery.errors.extend(errors);
    let mut removed = Removed { signing, written, ended, ..Removed::default() };
    removed.look_at_jobs(args, &mut recovery.errors);
    Ok((recovery, removed))
}

/// What was removed of commands that were killed, and of jobs.
#[derive(Default)]
struct Removed {
    /// How many files of `sign`.
    signing: usize,
    /// How many files of those that write something else than models.
    written: usize,
    /// How many folders of jobs that had ended.
    ended: usize,
    /// The folders of jobs that the user has given up.
    jobs: Vec<PathBuf>,
    /// Those of jobs that stay.
    kept: Vec<PathBuf>,
}

impl Removed {
    /// Finds the jobs, and ends them where the user says that nobody goes on with them.
    fn look_at_jobs(&mut self, args: &RecoverArgs, errors: &mut Vec<onnx_container::Error>) {
        let jobs = if args.path.is_dir() { jobs_in(&args.path) } else { jobs_of(&args.path) };
        let jobs = jobs.unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for job in jobs {
            match args.jobs.then(|| abort_job(&job)) {
                Some(Ok(())) => self.jobs.push(job),
                Some(Err(error)) => errors.push(error),
                None => self.kept.push(job),
            }
        }
    }

    fn print_jobs(&self, out: &mut Output) -> Result<(), Failure> {
        if self.ended > 0 {
            let folders = count(self.ended, "folder");
            out.row("removed", format_args!("{folders} of jobs that had ended"))?;
        }
        for path in &self.jobs {
            out.row("removed", format_args!("{}: a job", tidy(path).display()))?;
        }
        for path in &self.kept {
            let advice = "a job, which stays: `job abort` ends it, recover --jobs ends all";
            out.folded_row("job", format_args!("{}: {advice}", tidy(path).display()))?;
        }
        Ok(())
    }
}

fn print(recovery: &Recovery, removed: &Removed, out: &mut Output) -> Result<(), Failure> {
    for path in &recovery.finished {
        out.row("completed", format_args!("{}: the new files are in place", tidy(path).display()))?;
    }
    for path in &recovery.undone {
        out.row("undone", format_args!("{}: the old files are in place", tidy(path).display()))?;
    }
    if recovery.removed > 0 {
        let folders = count(recovery.removed, "staging folder");
        out.row("removed", format_args!("{folders} of saves that had changed nothing"))?;
    }
    for (number, who) in [(removed.signing, "a `sign`"), (removed.written, "another command")] {
        if number > 0 {
            let files = count(number, "file");
            out.row("removed", format_args!("{files} of {who} that was killed"))?;
        }
    }
    removed.print_jobs(out)?;
    let files = removed.signing.saturating_add(removed.written).saturating_add(removed.ended);
    let files = files.saturating_add(removed.jobs.len()).saturating_add(removed.kept.len());
    let nothing = recovery.finished.is_empty() && recovery.undone.is_empty() && files == 0;
    if nothing && recovery.removed == 0 && recovery.errors.is_empty() {
        out.line("nothing to recover")?;
    }
    Ok(())
}

/// What [`before_reading`] did, as it was said.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The saves that were completed or undone before models were read.
pub fn said() -> Vec<String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Completes or undoes an interrupted save of `model`, and tells the user. What is not possible is
/// told by the command itself, when it reads the model.
pub fn before_reading(model: &Path) {
    if is_url(model) {
        return;
    }
    let Ok(recovery) = recover_model(model) else { return };
    let finished = recovery.finished.iter().map(|path| (path, "complete now, with the new files"));
    let undone = recovery.undone.iter().map(|path| (path, "undone now, with the old files"));
    for (path, what) in finished.chain(undone) {
        stop::written("an interrupted save was recovered".to_owned());
        let path = tidy(path).display();
        let said = format!("a save of `{path}` was interrupted; it is {what}");
        print_on_stderr(format_args!("warning: {said}"));
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push(said);
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct RecoverReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
    /// The models with their new files in place.
    finished: Vec<String>,
    /// The models with their old files in place.
    undone: Vec<String>,
    /// How many staging folders were removed.
    removed: usize,
    /// How many files of killed runs of `sign` were removed.
    removed_signing: usize,
    /// How many files of other commands that were killed were removed.
    removed_unfinished: usize,
    /// How many folders of jobs that had ended were removed.
    removed_ended_jobs: usize,
    /// The folders of jobs that were removed.
    removed_jobs: Vec<String>,
    /// Those of jobs that stay.
    jobs: Vec<String>,
    errors: Vec<JsonError>,
}

impl<'a> RecoverReport<'a> {
    fn new(folder: &'a Path, recovery: &Recovery, files: &Removed) -> Self {
        let names =
            |paths: &[PathBuf]| paths.iter().map(|path| tidy(path).display().to_string()).collect();
        Self {
            command: "recover",
            folder,
            finished: names(&recovery.finished),
            undone: names(&recovery.undone),
            removed: recovery.removed,
            removed_signing: files.signing,
            removed_unfinished: files.written,
            removed_ended_jobs: files.ended,
            removed_jobs: names(&files.jobs),
            jobs: names(&files.kept),
            errors: recovery.errors.iter().map(JsonError::from).collect(),
        }
    }
}
