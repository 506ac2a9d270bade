//! `scan DIR...`: the models below folders, their files, and what nobody needs.
//!
//! It looks and changes nothing: not even saves that were killed are completed first.

mod found;
mod json;
mod text;

use std::path::PathBuf;

use onnx_container::scan::{ScanOptions, scan};
use onnx_container::{Error, LoadOptions};

use self::found::Scanned;
use crate::args::ScanArgs;
use crate::commands::Execute;
use crate::model::reading;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, print_on_stderr};

impl Execute for ScanArgs {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Looks through the folders and prints what is in them.
fn run(args: &ScanArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let load = LoadOptions::from(reading::of(&args.read));
    let options = ScanOptions::from(load).equal(args.equal).min_equal_bytes(args.min_bytes);
    let look = |folder: &PathBuf| Ok(Scanned::new(scan(folder, options.clone())?));
    let scanned = args.folders.iter().map(look).collect::<Result<Vec<_>, Error>>()?;
    if args.json {
        out.json(&json::Report::new(&scanned))?;
    } else {
        text::print(&scanned, out)?;
    }
    let unread = scanned.iter().flat_map(|scanned| &scanned.scan.errors);
    let unread: Vec<_> = unread.collect();
    unread.iter().for_each(|error| print_on_stderr(format_args!("warning: {error}")));
    Ok(Outcome::of(unread.is_empty()))
}
