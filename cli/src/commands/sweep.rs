//! `sweep URL`: weights files in a store that no model names.

use onnx_container::ByteSize;
use onnx_container_store::{OpenJob, Store, StoreUrl, Sweep, SweepOptions, SweptObject, sweep};
use serde::Serialize;

use crate::args::SweepArgs;
use crate::commands::Execute;
use crate::model::place;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count};
use crate::terminal::stop;

impl Execute for SweepArgs {
    fn name(&self) -> &'static str {
        "sweep"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

const UNKNOWN: &str = "files may have been deleted: run `sweep --delete` again";

/// Finds the files, deletes them where that was asked for, and lists them.
fn run(args: &SweepArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let url = StoreUrl::parse(&args.url)?;
    let store = Store::open(&url, place::options())?;
    let options = SweepOptions::new().older_than(args.older_than).delete(args.delete);
    let look = || sweep(&store, &url, &options);
    let deleted = |found: &Sweep| {
        let any = !found.swept.is_empty();
        any.then(|| format!("{} were deleted", count(found.swept.len(), "file")))
    };
    let found = match args.delete {
        true => stop::interruptible(UNKNOWN, look, deleted)?,
        false => look()?,
    };
    let listed = |objects: &[SweptObject]| objects.iter().map(Swept::from).collect::<Vec<_>>();
    let report = Report {
        command: "sweep",
        url: url.to_string(),
        deleted: args.delete,
        models: found.models,
        named: found.named,
        swept: listed(&found.swept),
        young: listed(&found.young),
        jobs: found.jobs.iter().map(Job::from).collect(),
    };
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

#[derive(Serialize)]
struct Report {
    command: &'static str,
    url: String,
    deleted: bool,
    models: usize,
    named: usize,
    swept: Vec<Swept>,
    young: Vec<Swept>,
    jobs: Vec<Job>,
}

/// An open job.
#[derive(Serialize)]
struct Job {
    folder: String,
    model: String,
    age_seconds: u64,
    written: usize,
}

impl From<&OpenJob> for Job {
    fn from(job: &OpenJob) -> Self {
        let (folder, model) = (job.url.to_string(), job.model.to_string());
        Self { folder, model, age_seconds: job.age.as_secs(), written: job.written }
    }
}

#[derive(Serialize)]
struct Swept {
    url: String,
    bytes: u64,
    age_seconds: u64,
}

impl From<&SweptObject> for Swept {
    fn from(object: &SweptObject) -> Self {
        let (url, bytes) = (object.url.to_string(), object.bytes);
        Self { url, bytes, age_seconds: object.age.as_secs() }
    }
}

impl Report {
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let (models, named) = (count(self.models, "model"), count(self.named, "weights file"));
        out.row("read", format_args!("{models}; {named} in use"))?;
        let bytes = |objects: &[Swept]| {
            ByteSize(objects.iter().map(|object| object.bytes).fold(0, u64::saturating_add))
        };
        let (files, size) = (count(self.swept.len(), "file"), bytes(&self.swept));
        match (self.swept.is_empty(), self.deleted) {
            (true, _) => out.row("nothing", "to sweep")?,
            (false, true) => out.row("deleted", format_args!("{files} ({size})"))?,
            (false, false) => {
                out.row("unneeded", format_args!("{files} ({size}); --delete deletes them"))?;
            }
        }
        for Swept { url, bytes, .. } in &self.swept {
            out.line(format_args!("{bytes:>12}  {url}"))?;
        }
        if !self.young.is_empty() {
            let (files, size) = (count(self.young.len(), "file"), bytes(&self.young));
            out.row("young", format_args!("{files} ({size}) that no model needs, which stay"))?;
        }
        self.print_jobs(out)
    }

    fn print_jobs(&self, out: &mut Output) -> std::io::Result<()> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let jobs = count(self.jobs.len(), "job");
        let until = "their files stay until `job commit` or `job abort`";
        out.row("open", format_args!("{jobs}: {until}"))?;
        for Job { folder, age_seconds, written, .. } in &self.jobs {
            let (age, parts) = (age(*age_seconds), count(*written, "part"));
            out.folded_row("", format_args!("{folder}: {age} old, {parts} written"))?;
        }
        Ok(())
    }
}

/// A time in its longest unit: `3 days`.
fn age(seconds: u64) -> String {
    let units = [(86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let longest = units.into_iter().find(|(length, _)| seconds >= *length);
    let (length, unit) = longest.unwrap_or((1, "second"));
    count(usize::try_from(seconds / length).unwrap_or(usize::MAX), unit)
}
