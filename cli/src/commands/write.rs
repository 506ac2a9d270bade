//! `pack`, `split`, `embed` and `import-safetensors`: one job with several layouts.
//!
//! Each loads a model, moves tensors out of it where the layout requires that, saves it and prints
//! a report.

mod import;
mod mapped;
mod report;
mod verify;

use std::path::{Path, PathBuf};

use onnx_container::edit::{ExternalizeOptions, Externalized};
use onnx_container::{Container, SaveOptions, Saved, WeightFiles};

use crate::args::{
    EmbedArgs, ImportArgs, InOut, LayoutArgs, MovingArgs, PackArgs, ShardNameArg, SplitArgs,
    WriteArgs,
};
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::commands::write::import::Imported;
pub use crate::commands::write::report::Read;
use crate::commands::write::report::WriteReport;
pub use crate::commands::write::verify::{Verified, verify};
use crate::files::transformers_config::TransformersConfig;
use crate::model::vouched::Vouched;
use crate::model::{kept_name, needed, place, reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for ImportArgs {
    fn name(&self) -> &'static str {
        "import-safetensors"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        import(self, out)
    }
}

/// `import-safetensors MODEL WEIGHTS OUT`, by the names of the weights or by a mapping.
fn import(args: &ImportArgs, out: &mut Output) -> Result<Outcome, Failure> {
    match args.matched.is_some() || args.mapping.is_some() {
        true => mapped::import(args, out),
        false => import::import(args, out),
    }
}

impl Execute for PackArgs {
    fn name(&self) -> &'static str {
        "pack"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        pack(self, out)
    }
}

/// `pack IN OUT`: one weights file, or shards of it.
fn pack(args: &PackArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let InOut { input, output } = &args.paths;
    let mut job = WriteJob::packed("pack", input, output, &args.write, &args.moving, &args.layout);
    if let Some(config) = &args.config {
        if args.layout.shard_names != Some(ShardNameArg::TransformersJs) {
            let reason = "--config is read by transformers.js: add --shard-names transformers-js";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let own = needed::files(input, reading::of(&args.write.read))?;
        job.config = Some(TransformersConfig::read(config, output, &own)?);
    }
    job.run(out)
}

impl Execute for SplitArgs {
    fn name(&self) -> &'static str {
        "split"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        split(self, out)
    }
}

/// `split IN OUT`: a weights file for each tensor.
fn split(args: &SplitArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let InOut { input, output } = &args.paths;
    let options = save::options(WeightFiles::PerTensor, None, &args.write.target);
    WriteJob::new("split", input, output, &args.write, Some(&args.moving), options).run(out)
}

impl Execute for EmbedArgs {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        embed(self, out)
    }
}

/// `embed IN OUT`: no weights file.
fn embed(args: &EmbedArgs, out: &mut Output) -> Result<Outcome, Failure> {
    if args.write.target.checksums {
        let reason = "--checksums is about weights files, and embed writes none";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let InOut { input, output } = &args.paths;
    let options = save::options(WeightFiles::Embedded, None, &args.write.target);
    WriteJob::new("embed", input, output, &args.write, None, options).embed(out)
}

/// What a command that writes was asked to do.
struct WriteJob<'a> {
    command: &'static str,
    input: &'a Path,
    output: &'a Path,
    args: &'a WriteArgs,
    /// Which tensors are moved out of the model; `None` when all are moved in.
    moving: Option<ExternalizeOptions>,
    options: SaveOptions,
    /// Where the number of weights files is written.
    config: Option<TransformersConfig>,
}

impl<'a> WriteJob<'a> {
    fn new(
        command: &'static str,
        input: &'a Path,
        output: &'a Path,
        args: &'a WriteArgs,
        moving: Option<&MovingArgs>,
        options: SaveOptions,
    ) -> Self {
        let externalizing = |args: &MovingArgs| {
            ExternalizeOptions::new().min_bytes(args.min_bytes).all_tensors(args.all_tensors)
        };
        // These commands choose where the bytes are: in graph order, aligned, without gaps.
        let options = options.keep_placement(false);
        let moving = moving.map(externalizing);
        Self { command, input, output, args, moving, options, config: None }
    }

    /// A job that writes packed weights.
    fn packed(
        command: &'static str,
        input: &'a Path,
        output: &'a Path,
        args: &'a WriteArgs,
        moving: &MovingArgs,
        layout: &LayoutArgs,
    ) -> Self {
        let options = save::packed(layout, &args.target);
        let options = kept_name::kept(options, layout, output, reading::of(&args.read));
        Self::new(command, input, output, args, Some(moving), options)
    }

    fn run(self, out: &mut Output) -> Result<Outcome, Failure> {
        save::refuse_weights(self.output, None)?;
        let reading = reading::of(&self.args.read);
        let container = vouched::load(self.input, reading, Vouched::from(&self.args.target))?;
        self.write(container, None, out)
    }

    /// Moves all weights into the model.
    fn embed(self, out: &mut Output) -> Result<Outcome, Failure> {
        save::refuse_weights(self.output, None)?;
        let reading = reading::of(&self.args.read);
        if self.args.target.digests {
            // The digest of a model needs the whole graph too.
            let container = vouched::load(self.input, reading, Vouched::from(&self.args.target))?;
            return self.write(container, None, out);
        }
        // Only to verify is the whole graph needed. It is loaded before the save, which may replace
        // it.
        let original = self.args.verify.then(|| place::load(self.input, reading)).transpose()?;
        let outline = place::outline(self.input, reading)?;
        save::warn(&outline);
        let read = Read::of(&outline, !self.args.read.no_mmap)?;
        let saved = save::save(&outline, self.output, self.options.clone(), &self.args.target)?;
        let verified = original.map(|original| self.verify(&original, &saved));
        let moved = Externalized::default();
        let report = WriteReport::new(&self, &outline, read, moved, &saved, verified, None);
        self.print(report, out)
    }

    /// Writes `container`, which was read and perhaps filled.
    fn write(
        mut self,
        mut container: Container,
        filled: Option<Imported>,
        out: &mut Output,
    ) -> Result<Outcome, Failure> {
        save::warn(&container);
        let read = Read::of(&container, !self.args.read.no_mmap)?;
        // Compared with the result later, so that moving tensors out is verified too.
        let original = self.args.verify.then(|| container.clone());
        let moved = match &self.moving {
            Some(options) => container.externalize(*options)?,
            None => Externalized::default(),
        };
        let saved = save::save(&container, self.output, self.options.clone(), &self.args.target)?;
        let verified = original.map(|original| self.verify(&original, &saved));
        let config = self.config.take().map(|config| self.configure(config, &saved)).transpose()?;
        let mut report = WriteReport::new(&self, &container, read, moved, &saved, verified, filled);
        if let Some(config) = config {
            report.configured(config);
        }
        self.print(report, out)
    }

    /// Writes how many weights files were `saved` into `config`, unless for a dry run, and returns
    /// its path.
    fn configure(&self, config: TransformersConfig, saved: &Saved) -> Result<PathBuf, Failure> {
        let path = config.path().to_path_buf();
        if self.args.target.dry_run {
            return Ok(path);
        }
        let count = saved.files.len().saturating_sub(1);
        let name = self.output.file_name().unwrap_or_default().to_string_lossy();
        let own = needed::files(self.output, reading::of(&self.args.read));
        let written = own.and_then(|own| config.write(&name, count, &own));
        written.map_err(|error| error.and("the model is written, this entry is not"))?;
        Ok(path)
    }

    /// Compares what was `saved` with the `original`.
    fn verify(&self, original: &Container, saved: &Saved) -> Verified {
        // A model without a meaning, such as one that lacks a node, has no digest.
        let semantic = original.semantic_digest().ok();
        verify(original, semantic, saved, self.output, reading::of(&self.args.read))
    }

    fn print(&self, mut report: WriteReport<'_>, out: &mut Output) -> Result<Outcome, Failure> {
        report.warn(leftovers::warnings([self.input]));
        if self.args.json {
            out.json(&report)?;
        } else {
            report.print(out)?;
        }
        Ok(Outcome::of(report.is_well()))
    }
}
