//! `versions URL` and `rollback URL VERSION`: the versions that `publish --keep` leaves.

use onnx_container_store::{PublishOptions, Store, StoreUrl, is_url, rollback, versions};
use serde::Serialize;

use super::{Told, refused, replacing, unknown};
use crate::args::{RollbackArgs, VersionsArgs};
use crate::commands::Execute;
use crate::model::{place, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;
use crate::terminal::stop;

impl Execute for VersionsArgs {
    fn name(&self) -> &'static str {
        "versions"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        let url = StoreUrl::parse(&self.url)?;
        let found = versions(&Store::open(&url, place::options())?, &url)?;
        let versions: Vec<_> = found.iter().map(StoreUrl::to_string).collect();
        if self.json {
            out.json(&Listed { command: "versions", url: url.to_string(), versions })?;
        } else {
            versions.iter().try_for_each(|version| out.line(version))?;
        }
        Ok(Outcome::Done)
    }
}

impl Execute for RollbackArgs {
    fn name(&self) -> &'static str {
        "rollback"
    }

    fn json(&self) -> bool {
        self.trial.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        let url = StoreUrl::parse(&self.url)?;
        let store = Store::open(&url, place::options())?;
        let version = version(&store, &url, &self.earlier)?;
        let options = PublishOptions::new().if_present(replacing(&self.replacing));
        let options = options.dry_run(self.trial.dry_run);
        let roll_back = || rollback(&store, &url, &version, &options).map_err(refused);
        let published = match self.trial.dry_run {
            true => roll_back()?,
            false => {
                let done = |_: &_| Some(format!("`{url}` was rolled back"));
                stop::interruptible(&unknown(&self.url, "rolled back"), roll_back, done)?
            }
        };
        save::print_warnings(&published.warnings);
        let told = Told::new(&published, self.trial.dry_run);
        if self.trial.json {
            out.json(&RolledBack { command: "rollback", told })?;
        } else {
            told.print(out)?;
        }
        Ok(Outcome::Done)
    }
}

/// The version of the model at `url` that `given` means: a URL, or the beginning of its time.
fn version(store: &Store, url: &StoreUrl, given: &str) -> Result<StoreUrl, Failure> {
    if is_url(given) {
        return Ok(StoreUrl::parse(given)?);
    }
    let is_meant = |version: &StoreUrl| {
        let time = version.name().rsplit_once(".version-").map(|(_, time)| time);
        time.is_some_and(|time| !given.is_empty() && time.starts_with(given))
    };
    let mut found: Vec<_> = versions(store, url)?.into_iter().filter(is_meant).collect();
    match (found.pop(), found.is_empty()) {
        (Some(version), true) => Ok(version),
        (None, _) => Err(Failure::Refused(format!(
            "`{url}` has no version of this time: `versions {url}` lists them"
        ))),
        (Some(_), false) => Err(Failure::Refused(format!(
            "`{url}` has several versions of this time: `versions {url}` lists them"
        ))),
    }
}

#[derive(Serialize)]
struct Listed {
    command: &'static str,
    url: String,
    /// The oldest first.
    versions: Vec<String>,
}

#[derive(Serialize)]
struct RolledBack<'a> {
    command: &'static str,
    #[serde(flatten)]
    told: Told<'a>,
}
