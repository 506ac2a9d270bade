//! `pack`, `split`, `embed` and `import-safetensors`: one job with several layouts.
//!
//! Load, move tensors out where the layout wants that, save, and say what was done.

mod import;
mod report;
mod verify;

use std::path::Path;

use onnx_container::{Container, ExternalizeOptions, Externalized, SaveOptions, WeightFiles};

use crate::args::{SaveArgs, WriteArgs, WriteOptions};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::write::import::Imported;
pub use crate::write::import::import;
pub use crate::write::report::Read;
use crate::write::report::Report;
pub use crate::write::verify::{Verified, verify};
use crate::{mapping, save};

/// `pack IN OUT`: one weights file.
pub fn pack(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    Job::new("pack", &args.input, &args.output, &args.write, save::packed(&args.write.save))
        .run(out)
}

/// `split IN OUT`: a weights file for each tensor.
pub fn split(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    refuse_safetensors(args)?;
    Job::new("split", &args.input, &args.output, &args.write, WeightFiles::PerTensor).run(out)
}

/// `embed IN OUT`: no weights file.
pub fn embed(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    refuse_safetensors(args)?;
    Job::new("embed", &args.input, &args.output, &args.write, WeightFiles::Embedded).run(out)
}

/// Refuses `--safetensors` where no packed file is written.
fn refuse_safetensors(args: &WriteArgs) -> Result<(), Failure> {
    if !args.write.save.safetensors {
        return Ok(());
    }
    let reason = "--safetensors is about a packed file: pack IN OUT --safetensors writes one";
    Err(Failure::Refused(reason.to_owned()))
}

/// What a command that writes was asked to do.
struct Job<'a> {
    command: &'static str,
    input: &'a Path,
    output: &'a Path,
    args: &'a WriteOptions,
    /// Which tensors go out; `None` when all come in.
    moving: Option<ExternalizeOptions>,
    options: SaveOptions,
}

impl<'a> Job<'a> {
    fn new(
        command: &'static str,
        input: &'a Path,
        output: &'a Path,
        args: &'a WriteOptions,
        layout: WeightFiles,
    ) -> Self {
        // These commands are about where bytes lie: graph order, alignment, nothing between.
        let SaveArgs { packed, target, .. } = &args.save;
        let options = save::options(layout, packed, target).keep_placement(false);
        let moving = ExternalizeOptions::new().min_bytes(args.min_bytes);
        let moving = moving.all_tensors(args.all_tensors);
        let moving = (layout != WeightFiles::Embedded).then_some(moving);
        Self { command, input, output, args, moving, options }
    }

    fn run(self, out: &mut Output) -> Result<Outcome, Failure> {
        save::refuse_weights(self.output, None)?;
        let container = Container::load(self.input, mapping::choice(&self.args.map))?;
        self.write(container, None, out)
    }

    /// Writes `container`, which was read and perhaps filled.
    fn write(
        self,
        mut container: Container,
        filled: Option<Imported>,
        out: &mut Output,
    ) -> Result<Outcome, Failure> {
        save::warn(&container);
        let map = mapping::choice(&self.args.map);
        let read = Read::of(&container, !self.args.map.no_mmap)?;
        // Held against the result later, so that moving tensors out is verified too.
        let original = self.args.verify.verify.then(|| container.clone());
        let moved = match &self.moving {
            Some(options) => container.externalize(*options)?,
            None => Externalized::default(),
        };
        let saved =
            save::save(&container, self.output, self.options.clone(), &self.args.save.target)?;
        let verified = original.map(|original| verify(&original, &saved, self.output, map));
        let report = Report::new(&self, &container, read, moved, &saved, verified, filled);
        if self.args.json {
            out.json(&report)?;
        } else {
            report.print(out)?;
        }
        Ok(Outcome::of(report.is_well()))
    }
}
