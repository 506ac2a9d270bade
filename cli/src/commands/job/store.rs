//! Jobs in stores: what they say of themselves, and how one is planned.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::edit::{CastReport, ExternalizeOptions};
use onnx_container::job::Recast;
use onnx_container::{Error, ErrorKind, MAX_PROTOBUF, MmapChoice, Result, SaveOptions};
use onnx_container_store::job::{RemoteCommitted, RemoteJob, RemoteJobOptions, RemoteJobStatus};
use onnx_container_store::{PublishOptions, Store, StoreUrl, job};

use super::any::AnyJob;
use super::results::{Committed, File, Layout, Named, Progress, Written};
use crate::args::{JobRewriteArgs, is_url};
use crate::commands::publish;
use crate::model::{place, reading};
use crate::terminal::failure::Failure;

impl AnyJob for RemoteJob {
    fn named(&self) -> Named {
        Named { id: self.id().to_owned(), folder: path(&self.folder()), model: path(self.url()) }
    }

    fn cast(&self) -> Option<&CastReport> {
        self.cast_report()
    }

    fn layout(&self) -> Layout {
        let files = self.files().map(|(name, bytes)| file(self.url(), name, bytes));
        let tensors = self.parts().map(|part| self.tensors(part).count()).sum();
        Layout::new(self.parts().len(), tensors, files.collect())
    }

    fn map_source(self: Box<Self>, map: MmapChoice) -> Box<dyn AnyJob> {
        Box::new(RemoteJob::map_source(*self, map))
    }

    fn to_json(&self) -> Result<String> {
        RemoteJob::to_json(self)
    }

    fn others(&self) -> Vec<PathBuf> {
        let own = path(&self.folder());
        let beginning = format!(".{}.job-", self.url().name());
        let all = own.parent().map(jobs_in).and_then(Result::ok).unwrap_or_default();
        let is_of_model = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&beginning))
        };
        all.into_iter().filter(|path| *path != own && is_of_model(path)).collect()
    }

    fn has_part(&self, part: usize) -> bool {
        RemoteJob::has_part(self, part)
    }

    fn write(&self, part: usize) -> Result<Written> {
        let (receipt, is_new) = self.write_or_find(part)?;
        let bytes = receipt.file.map_or(0, |file| file.bytes);
        Ok(Written::new(part, self.tensors(part).count(), bytes, is_new, receipt.infinite))
    }

    fn missing(&self) -> Result<Vec<usize>> {
        self.missing_parts()
    }

    fn progress(&self) -> Result<Progress> {
        let status = self.status()?;
        let (complete, committed) = (status.is_complete, status.is_committed);
        let (ended, replaced) = (status.is_ended, status.is_replaced);
        let RemoteJobStatus { done, missing, bytes_written, bytes, infinite, .. } = status;
        Ok(Progress {
            parts: self.parts().len(),
            done,
            missing,
            writers: Vec::new(),
            bytes_written,
            bytes,
            complete,
            committed,
            ended,
            replaced,
            infinite,
        })
    }

    fn commit(&self) -> Result<Committed> {
        Ok(told(RemoteJob::commit(self)?))
    }

    fn committed(&self) -> Result<Option<Committed>> {
        Ok(RemoteJob::committed(self)?.map(told))
    }

    fn abort(self: Box<Self>) -> Result<()> {
        RemoteJob::abort(*self)
    }
}

/// What a commit has done.
fn told(committed: RemoteCommitted) -> Committed {
    let published = committed.published;
    let model = File { path: path(&published.url), bytes: published.model_bytes };
    let weights = published.files.iter().map(|it| file(&published.url, &it.name, it.bytes));
    let files: Vec<_> = weights.chain([model]).collect();
    Committed {
        bytes: files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
        files,
        digest: Some(committed.digest.to_string()),
        already: committed.already,
        replaced: committed.replaced,
        e_tag: published.e_tag,
        version: published.version.map(|url| url.to_string()),
        removed: published.removed.iter().map(StoreUrl::to_string).collect(),
        removed_are: "an older version",
        left_behind: Vec::new(),
        infinite: committed.infinite,
        warnings: published.warnings,
    }
}

/// Commits the job whose folder is or was at a URL.
pub fn commit_at(path: &Path) -> Result<Committed> {
    Ok(told(RemoteJob::commit_at(&url(path)?, place::options())?))
}

/// What a commit has published of the job whose folder is or was at a URL.
pub fn committed_at(path: &Path) -> Result<Option<Committed>> {
    Ok(RemoteJob::committed_at(&url(path)?, place::options())?.map(told))
}

fn path(url: &StoreUrl) -> PathBuf {
    url.to_string().into()
}

/// The file called `name` beside the model at `url`.
fn file(url: &StoreUrl, name: &str, bytes: u64) -> File {
    let path = url.beside(name).map_or_else(|_| name.into(), |url| path(&url));
    File { path, bytes }
}

fn url(path: &Path) -> Result<StoreUrl> {
    // Only texts are told to be URLs.
    StoreUrl::parse(path.to_str().unwrap_or_default())
}

/// The job at a URL, or that of a copy of its JSON. None for other paths.
pub fn open(path: &Path) -> Result<Option<Box<dyn AnyJob>>> {
    if is_url(path) {
        return Ok(Some(Box::new(RemoteJob::open(&url(path)?, place::options())?)));
    }
    // What is no file, such as a pipe, can be read only once.
    let text = path.is_file().then(|| fs::read_to_string(path).ok()).flatten();
    let Some(text) = text.filter(|text| RemoteJob::is_json_of(text)) else { return Ok(None) };
    let job = RemoteJob::from_json(&text, place::options());
    Ok(Some(Box::new(job.map_err(|error| error.with_path(path))?)))
}

/// Ends the job whose folder is at a URL.
pub fn abort_at(path: &Path) -> Result<()> {
    let url = url(path)?;
    RemoteJob::abort_at(&Store::open(&url, place::options())?, &url)
}

/// The folders of the jobs of the models at a URL.
pub fn jobs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let url = url(folder)?;
    let found = job::jobs_in(&Store::open(&url, place::options())?, &url)?;
    Ok(found.iter().map(path).collect())
}

/// Plans a rewrite to a store.
pub fn plan(args: &JobRewriteArgs, recast: Option<Recast>) -> Result<Box<dyn AnyJob>, Failure> {
    let input = args.paths.input.to_str().ok_or_else(|| {
        let reason = "a job names IN in its JSON, which takes no name of other bytes than UTF-8";
        Error::new(ErrorKind::InvalidArgument, reason).with_path(&args.paths.input)
    })?;
    let target = url(&args.paths.output)?;
    let job = RemoteJob::rewrite(input, &target, place::options(), recast, options(args));
    Ok(Box::new(job.map_err(publish::refused)?))
}

/// The layout, and what the commit does.
fn options(args: &JobRewriteArgs) -> RemoteJobOptions {
    let packed = &args.layout.packed;
    let save = SaveOptions::new().digests(args.digests).dedup(args.layout.dedup);
    let save = save.alignment(packed.align).alignment_large(packed.align_large);
    let save = save.keep_placement(false).max_model_bytes(MAX_PROTOBUF);
    let save = packed.data_name.iter().fold(save, SaveOptions::data_name);
    let publish = PublishOptions::from(save).if_present(publish::if_present(&args.publication));
    let publish = publish.keep(args.publication.keep);
    let moving = ExternalizeOptions::new().min_bytes(args.moving.min_bytes);
    let moving = moving.all_tensors(args.moving.all_tensors);
    let options = RemoteJobOptions::from(args.parts).publish(publish).externalize(moving);
    options.source(reading::of_source(&args.trust, args.no_mmap))
}

/// Refuses options that a model at this place does not have.
pub fn refuse_options(args: &JobRewriteArgs) -> Result<(), Failure> {
    let refused = match is_url(&args.paths.output) {
        true => those_of_folders(args),
        false => those_of_stores(args),
    };
    let given = refused.into_iter().find(|(is_given, ..)| *is_given);
    given.map_or(Ok(()), |(_, option, reason)| Err(Failure::Usage(format!("{option}: {reason}"))))
}

/// Whether an option was given, its name, and why it is refused.
type Refused = (bool, &'static str, &'static str);

fn those_of_folders(args: &JobRewriteArgs) -> Vec<Refused> {
    const FILES: &str = "in a store each part is a weights file: --parts says how many there are";
    const OLD: &str = "old weights files stay in a store until `sweep` removes them";
    vec![
        (args.layout.safetensors, "--safetensors", FILES),
        (args.layout.max_shard_size.is_some(), "--max-shard-size", FILES),
        (args.per_tensor, "--per-tensor", FILES),
        (args.no_clobber, "--no-clobber", "in a store --create fails where there is a model"),
        (args.old.keep_old, "--keep-old", OLD),
        (args.old.delete_old, "--delete-old", OLD),
        (args.no_sync, "--no-sync", "a store has no files to flush: leave the option out"),
        (
            args.allow_over_2gib,
            "--allow-over-2gib",
            "a model in a store has at most 2 GiB: --all-tensors and a smaller --min-bytes move \
             more tensors out of it",
        ),
    ]
}

fn those_of_stores(args: &JobRewriteArgs) -> Vec<Refused> {
    const STORE: &str = "this is for a model in a store: give the URL of one as OUT";
    let publication = &args.publication;
    vec![
        (
            publication.create,
            "--create",
            "this is for a model in a store: in a folder --no-clobber fails where there is one",
        ),
        (publication.keep > 0, "--keep", STORE),
        (publication.replacing.expect.is_some(), "--expect", STORE),
        (publication.replacing.unconditional, "--unconditional", STORE),
    ]
}
