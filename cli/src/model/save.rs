//! Saving a model as the command line says, and what was written.
//!
//! A model file over 2 GiB is refused before anything is written, unless it was asked for.

pub mod links;
mod loaded;

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::save::{Deduplicated, SavedFile, ShardNames, Statistics};
use onnx_container::{ByteSize, Error, ErrorKind, MAX_PROTOBUF, SaveOptions, Saved, WeightFiles};
use serde::Serialize;

pub use loaded::Loaded;

use crate::args::{LayoutArgs, PackedArgs, TargetArgs};
use crate::model::save::links::Links;
use crate::model::{data_files, mapped_leftovers};
use crate::terminal::failure::Failure;
use crate::terminal::output::{Output, count, lossy, lossy_or_null, print_on_stderr, tidy};
use crate::terminal::progress;

/// How many of a list are printed, unless a dry run asks for the whole plan.
const SHORT: usize = 5;

/// The options of the command line for packed weights.
pub fn packed(args: &LayoutArgs, target: &TargetArgs) -> SaveOptions {
    let options = options(args.weight_files(), Some(&args.packed), target);
    let names = args.shard_names.map_or(ShardNames::Numbered, ShardNames::from);
    options.shard_names(names).dedup(args.dedup)
}

/// The options of the command line for `layout`. `packed` has those for a layout with one weights
/// file.
pub fn options(
    layout: WeightFiles,
    packed: Option<&PackedArgs>,
    target: &TargetArgs,
) -> SaveOptions {
    let options = SaveOptions::from(layout).sync(!target.no_sync).direct_io(!target.no_direct_io);
    let options = options.overwrite(!target.no_clobber).digests(target.digests);
    let options = options.checksums(target.checksums);
    let options = options.remove_left_behind(!target.old.keep_old);
    let Some(packed) = packed else { return options };
    let aligned = options.alignment(packed.align).alignment_large(packed.align_large);
    match &packed.data_name {
        Some(name) => aligned.data_name(name),
        None => aligned,
    }
}

/// Refuses to write a model to `path` when it is the file `other`, which the command reads, or has
/// the name of weights: such a file is probably somebody's checkpoint.
pub fn refuse_weights(path: &Path, other: Option<&Path>) -> Result<(), Failure> {
    let same = |other: &Path| {
        path.canonicalize().ok().is_some_and(|p| other.canonicalize().ok() == Some(p))
    };
    let shown = path.display();
    if other.is_some_and(same) {
        let reason = format!(
            "`{shown}`: is read by this command and would be replaced by the model: choose another OUT"
        );
        return Err(Failure::Refused(reason));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    if name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") {
        let reason =
            format!("`{shown}`: OUT must be the model, such as NAME.onnx, not a weights file");
        return Err(Failure::Refused(reason));
    }
    Ok(())
}

/// Writes what was `loaded` to `path`, or only plans.
pub fn save(
    loaded: &impl Loaded,
    path: &Path,
    options: SaveOptions,
    args: &TargetArgs,
) -> Result<Saved, Failure> {
    try_save(loaded, path, options, args).map_err(|error| refused(error, path, args))
}

/// As [`save`], with the library's error.
pub fn try_save(
    loaded: &impl Loaded,
    path: &Path,
    options: SaveOptions,
    args: &TargetArgs,
) -> Result<Saved, Error> {
    let options = options.max_model_bytes((!args.allow_over_2gib).then_some(MAX_PROTOBUF));
    let links = Links::beside(path);
    let mut saved = if args.dry_run {
        loaded.dry_run(path, progress::reporting_waits(options))?
    } else {
        progress::shown(options, path, |options| loaded.save(path, options))?
    };
    mapped_leftovers::put_off(path, &mut saved.warnings);
    saved.warnings.extend(links.replaced(&saved, args.dry_run));
    print_warnings(&saved.warnings);
    Ok(saved)
}

/// The most warnings that are printed on stderr; `--json` has all.
const WARNINGS: usize = 20;

/// Prints the warnings of a load, a save or an export on stderr, or the first of very many.
pub fn print_warnings(warnings: &[Error]) {
    let first = warnings.iter().take(WARNINGS);
    first.for_each(|warning| print_on_stderr(format_args!("warning: {warning}")));
    if let Some(more) = warnings.len().checked_sub(WARNINGS).filter(|more| *more > 0) {
        print_on_stderr(format_args!("warning: and {more} more, see --json"));
    }
}

/// Saves with `save_as` so that weights stay in the files that they were loaded from. Where that is
/// not possible, saves with one weights file.
pub fn keeping_files(
    save_as: impl Fn(WeightFiles) -> Result<Saved, Error>,
) -> Result<Saved, Error> {
    match save_as(WeightFiles::AsLoaded) {
        Err(error) if error.each().all(|error| error.kind() == ErrorKind::CannotKeep) => {
            save_as(WeightFiles::Packed)
        }
        other => other,
    }
}

/// The failure for an `error` of a save to `output`, with what the user can do about it.
pub fn refused(error: Error, output: &Path, args: &TargetArgs) -> Failure {
    if let Some(hint) = data_files::hint(&error, output, args.no_clobber) {
        return Failure::Hinted(error, hint);
    }
    if error.kind() != ErrorKind::ModelTooLarge {
        return error.into();
    }
    let hint = format!(
        "onnx and onnxruntime refuse a model file over {MAX_PROTOBUF} bytes (2 GiB). Use pack or split, \
         or --allow-over-2gib to write it anyway"
    );
    Failure::Hinted(error, hint)
}

/// Prints the warnings of a load on stderr.
pub fn warn(loaded: &impl Loaded) {
    print_warnings(loaded.warnings());
}

/// The files of a save, for people and as JSON.
#[derive(Debug, Serialize)]
pub struct Written {
    dry_run: bool,
    /// Whether nothing was written, because all is there as it would be written.
    unchanged: bool,
    /// Beside one another, the model last.
    files: Vec<File>,
    bytes: u64,
    /// The number of weights files for transformers.js, where they have the names that it looks
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_external_data_format: Option<usize>,
    /// The file that this number was written into, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_or_null")]
    config: Option<PathBuf>,
    /// Weights files that the model refers to and that were not written.
    kept_files: Vec<File>,
    /// Bytes of the kept files that no tensor refers to.
    unreferenced_bytes: u64,
    unused: Vec<String>,
    /// What storing equal tensors once spared, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplicated: Option<Deduplicated>,
    statistics: Statistics,
    /// Whether they are printed for people.
    #[serde(skip)]
    timings: bool,
    /// Whether digests were stored with the model that was read, and are with what was written no
    /// more.
    dropped_digests: bool,
    /// Bytes that were free on the target's file system before the save, where the system reports
    /// them.
    free_bytes: Option<u64>,
    removed: Vec<String>,
    left_behind: Vec<String>,
    still_needed: Vec<StillNeeded>,
    /// Whether files that are left behind were to be removed.
    #[serde(skip)]
    keep_old: bool,
    warnings: Vec<String>,
}

/// Prints how long the save took, and what became of the bytes of tensors.
fn print_statistics(done: &Statistics, dry_run: bool, out: &mut Output) -> io::Result<()> {
    let steps = [
        ("plan", done.planning),
        ("produce lazy weights", done.producing),
        ("write", done.writing),
        ("flush", done.flushing),
        ("publish", done.publishing),
    ];
    let steps = steps.iter().filter(|(_, time)| !time.is_zero());
    let steps = steps.map(|(step, time)| format!("{:.3} ms to {step}", time.as_secs_f64() * 1e3));
    out.row_of_parts("took", steps, ", ")?;
    let sizes = [done.copied_bytes, done.shared_bytes, done.kept_bytes].map(ByteSize);
    let [copied, shared, kept] = sizes;
    if dry_run {
        let sizes = format_args!("{copied} to copy, {shared} to share, {kept} to keep");
        return out.row("tensors", sizes);
    }
    out.row("tensors", format_args!("{copied} copied, {shared} shared, {kept} kept"))
}

#[derive(Debug, Serialize)]
struct File {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    bytes: u64,
}

impl File {
    fn line(&self) -> String {
        format!("{:>12}  {}", self.bytes, self.path.display())
    }
}

/// The number of the weights files among `files`, of which the model is last, when they have the
/// names that transformers.js looks for.
fn files_for_transformers_js(files: &[File]) -> Option<usize> {
    let (model, weights) = files.split_last()?;
    let name = [model.path.as_os_str().as_encoded_bytes(), b"_data"].concat();
    let first = weights.first()?;
    (first.path.as_os_str().as_encoded_bytes() == name).then_some(weights.len())
}

impl Written {
    /// The report of a save of what was `loaded` to `output`, or of a dry run.
    pub fn new(loaded: &impl Loaded, output: &Path, saved: &Saved, args: &TargetArgs) -> Self {
        let folder = output.parent().unwrap_or(Path::new(""));
        let file = |file: &SavedFile| File { path: folder.join(&file.name), bytes: file.bytes };
        let left = saved.left_behind.iter();
        let warnings = loaded.warnings().iter().chain(&saved.warnings);
        let files: Vec<_> = saved.files.iter().map(file).collect();
        Self {
            use_external_data_format: files_for_transformers_js(&files),
            config: None,
            dry_run: args.dry_run,
            unchanged: saved.unchanged,
            statistics: saved.statistics,
            timings: args.timings,
            dropped_digests: loaded.had_digests() && !args.digests,
            files,
            bytes: saved.bytes,
            kept_files: saved.kept.iter().map(file).collect(),
            unreferenced_bytes: saved.unreferenced_bytes,
            deduplicated: saved.deduplicated,
            unused: saved.unused.iter().map(ToString::to_string).collect(),
            free_bytes: saved.free_bytes,
            removed: saved.removed.iter().map(|path| tidy(path).display().to_string()).collect(),
            left_behind: left.map(|path| tidy(path).display().to_string()).collect(),
            still_needed: saved.still_needed.iter().map(StillNeeded::new).collect(),
            keep_old: args.old.keep_old,
            warnings: warnings.map(ToString::to_string).collect(),
        }
    }

    /// Adds warnings of the command.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }

    /// Says that the number of weights files was written into the file `config`.
    pub fn configured(&mut self, config: PathBuf) {
        self.config = Some(config);
    }

    /// `will` where nothing was written, else `done`.
    pub fn tense(&self, will: &'static str, done: &'static str) -> &'static str {
        if self.dry_run { will } else { done }
    }

    /// Prints the files, and what was left.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        self.print_files(out)?;
        self.print_deduplicated(out)?;
        self.print_kept(out)?;
        self.print_left(out)?;
        if self.dropped_digests {
            let tense = self.tense("drops", "dropped");
            out.row(
                tense,
                format_args!(
                    "the digests that were stored with the model: --digests stores new ones"
                ),
            )?;
        }
        if self.timings {
            print_statistics(&self.statistics, self.dry_run, out)?;
        }
        if self.dry_run { self.print_dry_run(out) } else { Ok(()) }
    }

    fn print_files(&self, out: &mut Output) -> io::Result<()> {
        let (files, bytes) = (count(self.files.len(), "file"), ByteSize(self.bytes));
        let tense = self.tense("writes", "wrote");
        if self.unchanged {
            out.row(
                tense,
                format_args!("nothing: what would be written is there: {files} ({bytes})"),
            )?;
        } else {
            out.row(tense, format_args!("{files} ({bytes})"))?;
        }
        // The model comes first here: it is what one looks for.
        let mut lines: Vec<_> = self.files.iter().map(File::line).collect();
        lines.rotate_right(1.min(self.files.len()));
        self.list(lines.into_iter(), out)?;
        self.print_config(out)
    }

    /// Prints where transformers.js reads the number of weights files.
    fn print_config(&self, out: &mut Output) -> io::Result<()> {
        let Some(model) = self.files.last() else { return Ok(()) };
        let name = model.path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(config) = &self.config {
            let files = count(self.files.len().saturating_sub(1), "file");
            let (config, says) = (config.display(), self.tense("would say", "says"));
            return out
                .row("config", format_args!("{config} {says} that {name} has {files} of weights"));
        }
        let Some(count) = self.use_external_data_format else { return Ok(()) };
        let name = serde_json::Value::from(&*name);
        out.row("config", "transformers.js finds the weights by this in config.json:")?;
        out.line(format_args!(
            "{:>10}\"transformers.js_config\": {{\"use_external_data_format\": {{{name}: {count}}}}}",
            ""
        ))
    }

    fn print_deduplicated(&self, out: &mut Output) -> io::Result<()> {
        let Some(Deduplicated { tensors, bytes, overlapping, .. }) = &self.deduplicated else {
            return Ok(());
        };
        if *overlapping > 0 {
            let weights = count(*overlapping, "tensor");
            out.row("skipped", format_args!("{weights} that overlap too much to be compared"))?;
        }
        if *tensors == 0 {
            return out.row("shared", "no others: none are equal");
        }
        let (tensors, bytes) = (count(*tensors, "tensor"), ByteSize(*bytes));
        let tense = self.tense("shares", "shared");
        out.row(tense, format_args!("{tensors} ({bytes}) with equal ones, which are stored once"))
    }

    fn print_kept(&self, out: &mut Output) -> io::Result<()> {
        if self.kept_files.is_empty() {
            return Ok(());
        }
        let bytes = self.kept_files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let (files, bytes) = (count(self.kept_files.len(), "file"), ByteSize(bytes));
        let unreferenced = match self.unreferenced_bytes {
            0 => String::new(),
            bytes => format!(", {} of it in no tensor of the model", ByteSize(bytes)),
        };
        out.row("kept", format_args!("{files} of weights, unchanged ({bytes}{unreferenced})"))?;
        self.list(self.kept_files.iter().map(File::line), out)
    }

    fn print_dry_run(&self, out: &mut Output) -> io::Result<()> {
        if let Some(free) = self.free_bytes.filter(|free| *free < self.bytes) {
            let (needed, free) = (ByteSize(self.bytes), ByteSize(free));
            out.row("space", format_args!("not enough: needs {needed}, {free} free"))?;
        }
        out.row("dry run", "nothing was written")
    }

    fn print_left(&self, out: &mut Output) -> io::Result<()> {
        if !self.unused.is_empty() {
            out.row("unused", "initializers that no tensor refers to; they were not written")?;
            self.list(self.unused.iter().map(|handle| format!("{:>14}{handle}", "")), out)?;
        }
        if !self.removed.is_empty() {
            let files = count(self.removed.len(), "file");
            let tense = self.tense("removes", "removed");
            out.row(tense, format_args!("{files} that only the replaced model needed"))?;
            self.list(self.removed.iter().map(|path| format!("{:>14}{path}", "")), out)?;
        }
        if !self.left_behind.is_empty() {
            let files = count(self.left_behind.len(), "file");
            let advice = match self.dry_run && self.keep_old {
                true => "without --keep-old, those beside it are removed",
                false => "delete them yourself",
            };
            out.row("left", format_args!("{files} that only the replaced model needed: {advice}"))?;
            // All of them: no model names them any more, so no later command finds them.
            let left = self.left_behind.iter();
            first(left.map(|path| format!("{:>14}{path}", "")), usize::MAX, out)?;
        }
        self.still_needed.iter().try_for_each(|file| file.print(out))
    }

    /// Prints the first few lines of a list; for a dry run all, since the plan is what is wanted.
    pub fn list(
        &self,
        lines: impl ExactSizeIterator<Item = String>,
        out: &mut Output,
    ) -> io::Result<()> {
        if self.dry_run { first(lines, usize::MAX, out) } else { short(lines, out) }
    }
}

/// A weights file of the replaced model that other models need.
#[derive(Debug, Serialize)]
struct StillNeeded {
    path: String,
    needed_by: Vec<String>,
}

impl StillNeeded {
    fn new(file: &onnx_container::save::StillNeeded) -> Self {
        let text = |path: &PathBuf| tidy(path).display().to_string();
        Self { path: text(&file.path), needed_by: file.needed_by.iter().map(text).collect() }
    }

    /// The row that says that the file stays, and how its weights are in one file again.
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Some((first, more)) = self.needed_by.split_first() else { return Ok(()) };
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let advice = "share stores the weights of several models once";
        let path = &self.path;
        out.row("stays", format_args!("{path}: needed by `{first}`{more}; {advice}"))
    }
}

/// Prints the first few of `lines`, and how many more there are.
pub fn short(lines: impl ExactSizeIterator<Item = String>, out: &mut Output) -> io::Result<()> {
    first(lines, SHORT, out)
}

/// Prints at most `most` of `lines`, and how many more there are.
fn first(
    lines: impl ExactSizeIterator<Item = String>,
    most: usize,
    out: &mut Output,
) -> io::Result<()> {
    let more = lines.len().saturating_sub(most);
    for line in lines.take(most) {
        out.line(line)?;
    }
    if more > 0 { out.line(format_args!("{:>14}and {more} more", "")) } else { Ok(()) }
}
