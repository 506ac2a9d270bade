//! `share MODEL MODEL...`: one file of weights for several models.

use std::path::{Path, PathBuf};

use onnx_container::model_files::{FileOptions, SharedWeights, share_weights};
use onnx_container::save::Deduplicated;
use onnx_container::{ByteSize, LoadOptions, SaveOptions};
use serde::Serialize;

use crate::args::ShareArgs;
use crate::commands::{Execute, leftovers};
use crate::model::mapped_leftovers::put_off;
use crate::model::reading;
use crate::model::save::print_warnings;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy, tidy};
use crate::terminal::progress;

impl Execute for ShareArgs {
    fn name(&self) -> &'static str {
        "share"
    }

    fn json(&self) -> bool {
        self.place.json
    }

    fn models(&self) -> Vec<&Path> {
        self.models.iter().map(PathBuf::as_path).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Shares, and prints a report.
fn run(args: &ShareArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let place = &args.place;
    let load = LoadOptions::from(reading::of(&place.read));
    let save = SaveOptions::new().sync(!place.no_sync).remove_left_behind(!args.old.keep_old);
    let run = |save| {
        let options = FileOptions::new().load(load.clone()).save(save).dry_run(place.dry_run);
        share_weights(&args.models, args.data_name.as_deref(), options)
    };
    let mut shared = match place.dry_run {
        true => run(progress::reporting_waits(save))?,
        false => progress::shown_as(save, "the models share their weights".to_owned(), run)?,
    };
    args.models.last().iter().for_each(|model| put_off(model, &mut shared.warnings));
    print_warnings(&shared.warnings);
    let report = Listing::new(args, &shared);
    if place.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Listing {
    command: &'static str,
    dry_run: bool,
    files: Vec<File>,
    bytes: u64,
    deduplicated: Deduplicated,
    removed: Vec<String>,
    left_behind: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct File {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    bytes: u64,
}

impl Listing {
    fn new(args: &ShareArgs, shared: &SharedWeights) -> Self {
        let folder = args.models.first().and_then(|model| model.parent()).unwrap_or(Path::new(""));
        let file = |name: &String, bytes| File { path: folder.join(name), bytes };
        let files: Vec<_> = shared.files.iter().map(|it| file(&it.name, it.bytes)).collect();
        let texts =
            |paths: &[PathBuf]| paths.iter().map(|path| tidy(path).display().to_string()).collect();
        let left = leftovers::warnings(args.models.iter().map(PathBuf::as_path));
        Self {
            command: "share",
            dry_run: args.place.dry_run,
            bytes: files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
            files,
            deduplicated: shared.deduplicated,
            removed: texts(&shared.removed),
            left_behind: texts(&shared.left_behind),
            warnings: shared.warnings.iter().map(ToString::to_string).chain(left).collect(),
        }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let tense = |will: &'static str, done: &'static str| if self.dry_run { will } else { done };
        let Deduplicated { tensors, bytes, .. } = &self.deduplicated;
        let (tensors, bytes) = (count(*tensors, "tensor"), ByteSize(*bytes));
        let said = format_args!("{tensors} ({bytes}) with equal ones, which are stored once");
        out.row(tense("shares", "shared"), said)?;
        let (files, bytes) = (count(self.files.len(), "file"), ByteSize(self.bytes));
        out.row(tense("writes", "wrote"), format_args!("{files} ({bytes})"))?;
        for File { path, bytes } in &self.files {
            out.line(format_args!("{bytes:>12}  {}", path.display()))?;
        }
        for path in &self.removed {
            out.row(tense("removes", "removed"), format_args!("{path}, which no model needs"))?;
        }
        for path in &self.left_behind {
            let need = if self.dry_run { "would need" } else { "needs" };
            out.row("left", format_args!("{path}: no model {need} it any more"))?;
        }
        if self.dry_run {
            out.row("dry run", "nothing was written")?;
        }
        Ok(())
    }
}
