//! The report of a cast, as text and as JSON.

use std::io;
use std::path::Path;

use onnx_container::edit::CastReport;
use onnx_container::{Container, Saved};
use serde::Serialize;

use super::casting::{Casting, Told};
#[cfg(feature = "machine")]
use super::difference::Compared;
use crate::args::CastArgs;
use crate::commands::leftovers;
use crate::commands::write::Read;
use crate::model::save::Written;
use crate::terminal::output::{Output, lossy};

/// What was read, cast and written.
#[derive(Debug, Serialize)]
pub struct CastInfo<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    #[serde(flatten)]
    casting: Casting,
    #[serde(flatten)]
    written: Written,
    #[cfg(feature = "machine")]
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
}

impl<'a> CastInfo<'a> {
    pub fn new(
        args: &'a CastArgs,
        container: &Container,
        read: Read,
        cast: CastReport,
        saved: &Saved,
    ) -> Self {
        let mut written = Written::new(container, &args.paths.output, saved, &args.target);
        written.warn(leftovers::warnings([args.paths.input.as_path()]));
        Self {
            command: "cast",
            input: &args.paths.input,
            output: &args.paths.output,
            read,
            casting: Casting::new(args.to.into(), args.min_bytes, cast, told(args)),
            written,
            #[cfg(feature = "machine")]
            compared: None,
        }
    }

    /// With what `--verify` found.
    #[cfg(feature = "machine")]
    pub fn compared(self, compared: Compared) -> Self {
        Self { compared: Some(compared), ..self }
    }

    /// Whether nothing was found to be wrong.
    #[cfg(feature = "machine")]
    pub fn is_well(&self) -> bool {
        self.compared.as_ref().is_none_or(Compared::is_well)
    }

    /// Whether nothing was found to be wrong: nothing was looked for.
    #[cfg(not(feature = "machine"))]
    pub fn is_well(&self) -> bool {
        true
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.read.print(self.input, out)?;
        self.casting.print(out)?;
        self.written.print(out)?;
        #[cfg(feature = "machine")]
        if let Some(compared) = &self.compared {
            compared.print(out)?;
        }
        Ok(())
    }
}

fn told(args: &CastArgs) -> Told {
    if args.target.dry_run { Told::DryRun } else { Told::Done }
}
