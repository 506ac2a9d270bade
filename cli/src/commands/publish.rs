//! `publish IN URL`: a model into a store. `rollback` and `versions` are about what it left there.

mod versions;

use std::path::Path;

use onnx_container::edit::ExternalizeOptions;
use onnx_container::{ByteSize, Error, ErrorKind, MAX_PROTOBUF, SaveOptions};
use onnx_container_files::sha256::hex;
use onnx_container_store::{
    IfPresent, PublishOptions, Published, PublishedFile, StoreUrl, publish,
};
use serde::Serialize;

use crate::args::{PublicationArgs, PublishArgs, ReplacingArgs};
use crate::commands::{Execute, leftovers};
use crate::model::vouched::Vouched;
use crate::model::{place, reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy};
use crate::terminal::stop;

impl Execute for PublishArgs {
    fn name(&self) -> &'static str {
        "publish"
    }

    fn json(&self) -> bool {
        self.trial.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.input]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// What is said where a signal ends the work.
fn unknown(url: &str, done: &str) -> String {
    format!("whether `{url}` was {done} is not known: `digest` tells which model is there")
}

/// Publishes the model and says what was sent.
fn run(args: &PublishArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let options = options(args)?;
    let vouched = Vouched::of(args.digests, args.ignore_stored_digests);
    let mut container = vouched::load(&args.input, reading::of(&args.read), vouched)?;
    save::warn(&container);
    let moving = ExternalizeOptions::new().min_bytes(args.moving.min_bytes);
    container.externalize(moving.all_tensors(args.moving.all_tensors))?;
    let options = match place::tag_of_read(&args.input, &args.url) {
        Some(tag) if if_present(&args.publication) == IfPresent::Replace => {
            options.if_present(IfPresent::ReplaceVersion(tag))
        }
        _ => options,
    };
    let send = || publish(&args.url, place::options(), &container, options).map_err(refused);
    let published = match args.trial.dry_run {
        true => send()?,
        false => {
            let done = |it: &Published| Some(format!("`{}` was published", it.url));
            stop::interruptible(&unknown(&args.url, "published"), send, done)?
        }
    };
    let warnings = container.warnings().iter().map(ToString::to_string);
    let warnings = warnings.chain(leftovers::warnings([args.input.as_path()]));
    let warnings = warnings.chain(published.warnings.iter().map(ToString::to_string)).collect();
    save::print_warnings(&published.warnings);
    let told = Told::new(&published, args.trial.dry_run);
    let report = Report { command: "publish", input: &args.input, told, warnings };
    if args.trial.json {
        out.json(&report)?;
    } else {
        report.told.print(out)?;
    }
    Ok(Outcome::Done)
}

fn options(args: &PublishArgs) -> Result<PublishOptions, Failure> {
    if args.layout.shard_names.is_some() {
        let reason = "--shard-names: published files are called by their content";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let layout = &args.layout;
    let save = SaveOptions::from(layout.weight_files()).digests(args.digests).dedup(layout.dedup);
    let save = save.alignment(layout.packed.align).alignment_large(layout.packed.align_large);
    let save = save.keep_placement(false).max_model_bytes(MAX_PROTOBUF);
    let save = layout.packed.data_name.iter().fold(save, SaveOptions::data_name);
    let publication = &args.publication;
    let options = PublishOptions::from(save).if_present(if_present(publication));
    Ok(options.keep(publication.keep).dry_run(args.trial.dry_run))
}

/// What is done with a model that is there.
pub fn if_present(args: &PublicationArgs) -> IfPresent {
    match args.create {
        true => IfPresent::Refuse,
        false => replacing(&args.replacing),
    }
}

/// Which model is replaced.
fn replacing(args: &ReplacingArgs) -> IfPresent {
    match &args.expect {
        Some(tag) => IfPresent::ReplaceVersion(tag.clone()),
        None if args.unconditional => IfPresent::Overwrite,
        None => IfPresent::Replace,
    }
}

/// The failure of a publication, with what the user can do about it.
pub fn refused(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Unsupported if error.reason().contains("two writers") => {
            let hint = "--unconditional publishes all the same: of two who publish at the same \
                        time, one then overwrites the other";
            Failure::Hinted(error, hint.to_owned())
        }
        _ => error.into(),
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(flatten)]
    told: Told<'a>,
    warnings: Vec<String>,
}

/// What a publication or a rollback did.
#[derive(Debug, Serialize)]
struct Told<'a> {
    url: String,
    e_tag: Option<&'a str>,
    dry_run: bool,
    model_bytes: u64,
    files: Vec<ToldFile<'a>>,
    /// The length of the files that were sent.
    sent_bytes: u64,
    version: Option<String>,
    removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ToldFile<'a> {
    name: &'a str,
    bytes: u64,
    /// Of a file that a publication has read.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    sent: bool,
}

impl<'a> Told<'a> {
    fn new(published: &'a Published, dry_run: bool) -> Self {
        let file = |file: &'a PublishedFile| ToldFile {
            name: &file.name,
            bytes: file.bytes,
            sha256: file.sha256.as_ref().map(|sum| hex(sum)),
            sent: file.sent,
        };
        let sent = published.files.iter().filter(|file| file.sent).map(|file| file.bytes);
        Self {
            url: published.url.to_string(),
            e_tag: published.e_tag.as_deref(),
            dry_run,
            model_bytes: published.model_bytes,
            files: published.files.iter().map(file).collect(),
            sent_bytes: sent.fold(0, u64::saturating_add),
            version: published.version.as_ref().map(StoreUrl::to_string),
            removed: published.removed.iter().map(StoreUrl::to_string).collect(),
        }
    }

    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let tense = |will, done| if self.dry_run { will } else { done };
        let size = ByteSize(self.model_bytes);
        out.row(tense("publishes", "published"), format_args!("{} ({size})", self.url))?;
        if let Some(tag) = self.e_tag {
            out.row("tag", tag)?;
        }
        let sent = self.files.iter().filter(|file| file.sent).count();
        let there = self.files.len().saturating_sub(sent);
        if sent > 0 {
            let (files, bytes) = (count(sent, "weights file"), ByteSize(self.sent_bytes));
            out.row(tense("sends", "sent"), format_args!("{files} ({bytes})"))?;
        }
        if there > 0 {
            out.row("kept", format_args!("{}, there already", count(there, "weights file")))?;
        }
        for ToldFile { name, bytes, .. } in &self.files {
            out.line(format_args!("{bytes:>12}  {name}"))?;
        }
        if let Some(version) = &self.version {
            out.row("version", version)?;
        }
        let removed = tense("removes", "removed");
        self.removed.iter().try_for_each(|version| out.row(removed, version))
    }
}
