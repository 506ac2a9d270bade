//! `pack`, `split`, `embed` and `import-safetensors`: one job with several layouts.
//!
//! Load, move tensors out where the layout wants that, look at the plan, write, and say what was
//! done. The plan is made first also for a real write, because a model file over 2 GiB is refused
//! before anything is written.

mod import;
mod report;
mod verify;

use std::path::Path;

use onnx_container::{
    Container, ExternalizeOptions, Externalized, MAX_PROTOBUF, SaveOptions, Saved, WeightFiles,
};

use crate::args::{WriteArgs, WriteOptions};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, complain, human};
use crate::write::import::Imported;
pub use crate::write::import::import;
use crate::write::report::{Read, Report};
use crate::write::verify::Verified;
use crate::{mapping, progress};

/// `pack IN OUT`: one weights file.
pub fn pack(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    Job::new("pack", &args.input, &args.output, &args.write, packed(&args.write)).run(out)
}

/// `split IN OUT`: a weights file for each tensor.
pub fn split(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    Job::new("split", &args.input, &args.output, &args.write, WeightFiles::PerTensor).run(out)
}

/// `embed IN OUT`: no weights file.
pub fn embed(args: &WriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    Job::new("embed", &args.input, &args.output, &args.write, WeightFiles::Embedded).run(out)
}

/// Which kind of packed file was asked for.
fn packed(args: &WriteOptions) -> WeightFiles {
    if args.safetensors { WeightFiles::Safetensors } else { WeightFiles::One }
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
        let options = SaveOptions::from(layout).alignment(args.align);
        let options = options.alignment_large(args.align_large);
        let options = match &args.data_name {
            Some(name) => options.data_name(name),
            None => options,
        };
        let moving = ExternalizeOptions::new().min_bytes(args.min_bytes);
        let moving = moving.all_tensors(args.all_tensors);
        let moving = (layout != WeightFiles::Embedded).then_some(moving);
        Self { command, input, output, args, moving, options }
    }

    fn run(self, out: &mut Output) -> Result<Outcome, Failure> {
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
        warn(&container);
        let read = Read::of(&container, !self.args.map.no_mmap)?;
        // Held against the result later, so that moving tensors out is verified too.
        let original = self.args.verify.then(|| container.clone());
        let moved = match &self.moving {
            Some(options) => container.externalize(*options)?,
            None => Externalized::default(),
        };
        let saved = self.save(&container)?;
        let verified = original.map(|original| self.verify(&original, &saved));
        let report = Report::new(&self, &container, read, moved, &saved, verified, filled);
        if self.args.json {
            out.json(&report)?;
        } else {
            report.print(out)?;
        }
        Ok(Outcome::of(report.is_well()))
    }

    /// Writes, or only plans.
    fn save(&self, container: &Container) -> Result<Saved, Failure> {
        let (path, args) = (self.output, self.args);
        let options = self.options.clone().sync(!args.no_sync).overwrite(!args.no_clobber);
        let plan = container.dry_run(path, options.clone())?;
        if !args.allow_over_2gib {
            refuse_over_2gib(path, &plan)?;
        }
        if args.dry_run {
            return Ok(plan);
        }
        let bar = progress::bar("writing", plan.bytes);
        drop(plan);
        let saved = container.save(path, progress::shown(options, &bar));
        bar.finish_and_clear();
        Ok(saved?)
    }

    fn verify(&self, original: &Container, saved: &Saved) -> Verified {
        let bar = progress::bar("verifying", saved.bytes);
        let map = mapping::choice(&self.args.map);
        let verified = verify::verify(original, saved, self.output, map, &bar);
        bar.finish_and_clear();
        verified
    }
}

fn warn(container: &Container) {
    for warning in container.warnings() {
        complain(format_args!("warning: {warning}"));
    }
}

/// The size of the model file, the last of those in `plan`, must be one that readers take.
fn refuse_over_2gib(path: &Path, plan: &Saved) -> Result<(), Failure> {
    let bytes = plan.files.last().map_or(0, |model| model.bytes);
    if bytes <= MAX_PROTOBUF {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "`{}` would have {bytes} bytes ({}): onnx and onnxruntime refuse a model file over \
         {MAX_PROTOBUF} bytes (2 GiB). Use pack or split, or --allow-over-2gib to write it anyway",
        path.display(),
        human(bytes),
    )))
}
