//! `versions URL` and `rollback VERSION URL`: the versions that `publish --keep` leaves.

use onnx_container_store::{PublishOptions, Store, StoreUrl, rollback, versions};
use serde::Serialize;

use super::{Told, if_present, refused};
use crate::args::{RollbackArgs, VersionsArgs};
use crate::commands::Execute;
use crate::model::place;
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
        self.present.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        let (url, version) = (StoreUrl::parse(&self.url)?, StoreUrl::parse(&self.version)?);
        let store = Store::open(&url, place::options())?;
        let options = PublishOptions::new().if_present(if_present(&self.present));
        let options = options.dry_run(self.present.dry_run);
        let published = rollback(&store, &url, &version, &options).map_err(refused)?;
        if !self.present.dry_run {
            stop::written(format!("`{url}` was rolled back"));
        }
        let told = Told::new(&published, self.present.dry_run, false);
        if self.present.json {
            out.json(&RolledBack { command: "rollback", told })?;
        } else {
            told.print(out)?;
        }
        Ok(Outcome::Done)
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
