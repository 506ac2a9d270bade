//! `job list FOLDER`: the jobs of the models in a folder, and how far each is.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::doors::{self, jobs_in};
use super::results::Progress;
use crate::args::JobListArgs;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy, lossy_or_null, tidy};

#[derive(Debug, Serialize)]
struct ListReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
    jobs: Vec<Listed>,
}

/// A folder of a job.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(serialize_with = "lossy")]
    folder: PathBuf,
    #[serde(serialize_with = "lossy_or_null")]
    model: Option<PathBuf>,
    /// How far it is; none where that cannot be told.
    progress: Option<Progress>,
    /// Why it cannot.
    reason: Option<String>,
}

impl Listed {
    fn new(folder: PathBuf) -> Self {
        let opened = doors::open(&folder);
        let model = opened.as_ref().ok().map(|job| job.named().model);
        let progress = opened.and_then(|job| job.progress());
        let reason = progress.as_ref().err().map(|error| error.reason().to_owned());
        Self { folder, model, progress: progress.ok(), reason }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let said = match (&self.progress, &self.reason) {
            (Some(progress), _) => progress.said(&self.folder),
            (None, reason) => reason.clone().unwrap_or_default(),
        };
        Ok(out.folded_row("job", format_args!("{}: {said}", tidy(&self.folder).display()))?)
    }
}

/// Lists them.
pub fn run(args: &JobListArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let jobs = jobs_in(&args.folder)?.into_iter().map(Listed::new).collect();
    let report = ListReport { command: "job list", folder: &args.folder, jobs };
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::Done);
    }
    report.jobs.iter().try_for_each(|job| job.print(out))?;
    if report.jobs.is_empty() {
        out.line("no jobs")?;
    }
    Ok(Outcome::Done)
}
