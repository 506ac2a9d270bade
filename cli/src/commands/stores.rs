//! `stores probe URL`: what a store can do.

use onnx_container_store::{Store, StoreUrl, probe};
use serde::Serialize;

use crate::args::{ProbeArgs, StoresArgs, StoresCommand};
use crate::commands::Execute;
use crate::model::place;
use crate::terminal::failure::{COULD_NOT, Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for StoresArgs {
    fn name(&self) -> &'static str {
        match self.command {
            StoresCommand::Probe(_) => "stores probe",
        }
    }

    fn json(&self) -> bool {
        match &self.command {
            StoresCommand::Probe(args) => args.json,
        }
    }

    fn code_of_failure(&self) -> u8 {
        COULD_NOT
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        match &self.command {
            StoresCommand::Probe(args) => run(args, out),
        }
    }
}

/// Tries the store and prints a table.
fn run(args: &ProbeArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let url = StoreUrl::parse(&args.url)?;
    let found = probe(&Store::open(&url, place::options())?, &url)?;
    let report = Report {
        command: "stores probe",
        store: url.root().to_owned(),
        publishes: found.publishes(),
        create: found.create,
        replace: found.replace,
        read_condition: found.read_condition,
        tags: found.tags,
        ranges: found.ranges,
    };
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.publishes))
}

#[derive(Serialize)]
struct Report {
    command: &'static str,
    store: String,
    /// Whether writers of one model notice each other.
    publishes: bool,
    create: bool,
    replace: bool,
    read_condition: bool,
    tags: bool,
    ranges: bool,
}

impl Report {
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        out.row("store", &self.store)?;
        let rows = [
            (self.create, "refuses a new object where there is one"),
            (self.replace, "refuses to replace an object that is another one by now"),
            (self.read_condition, "refuses to read an object that is another one by now"),
            (self.tags, "gives tags that change with the bytes of an object"),
            (self.ranges, "reads ranges"),
        ];
        for (can, what) in rows {
            out.row(if can { "yes" } else { "no" }, what)?;
        }
        match self.publishes {
            true => out.row("publish", "works: who publishes at the same time notices the other"),
            false => out.row("publish", "is refused, except with --unconditional"),
        }
    }
}
