//! Jobs in folders: what they say of themselves, and how one is planned.

use std::path::{Path, PathBuf};

use onnx_container::digest::ContentDigest;
use onnx_container::edit::{CastReport, ExternalizeOptions};
use onnx_container::job::{self, Job, JobOptions, JobStatus, Recast, jobs_of};
use onnx_container::{
    Error, ErrorKind, MAX_PROTOBUF, MmapChoice, Result, SaveOptions, WeightFiles,
};
use onnx_container_signing::{says_content, signatures_of};

use super::any::AnyJob;
use super::results::{Committed, File, Layout, Named, Progress, Written};
use crate::args::{JobRewriteArgs, OldFiles, TargetArgs};
use crate::model::save::links::Links;
use crate::model::{kept_name, reading, save};
use crate::terminal::failure::Failure;
use crate::terminal::output::tidy;

impl AnyJob for Job {
    fn named(&self) -> Named {
        Named { id: self.id().to_owned(), folder: self.folder(), model: self.path() }
    }

    fn cast(&self) -> Option<&CastReport> {
        self.cast_report()
    }

    fn layout(&self) -> Layout {
        let files = File::beside(&self.path(), &self.files());
        Layout::new(self.parts().len(), self.tensors().len(), files)
    }

    fn map_source(self: Box<Self>, map: MmapChoice) -> Box<dyn AnyJob> {
        Box::new(Job::map_source(*self, map))
    }

    fn to_json(&self) -> Result<String> {
        Job::to_json(self)
    }

    fn others(&self) -> Vec<PathBuf> {
        let found = jobs_of(self.path()).unwrap_or_default().into_iter();
        found.filter(|folder| *folder != self.folder()).collect()
    }

    fn has_part(&self, part: usize) -> bool {
        Job::has_part(self, part)
    }

    fn write(&self, part: usize) -> Result<Written> {
        let (receipt, is_new) = self.write_or_find(part)?;
        Ok(Written::new(part, receipt.tensors.len(), receipt.bytes, is_new, receipt.infinite))
    }

    fn missing(&self) -> Result<Vec<usize>> {
        self.missing_parts()
    }

    fn progress(&self) -> Result<Progress> {
        let status = self.status()?;
        let (complete, committed) = (status.is_complete, status.is_committed);
        let (ended, replaced) = (status.is_ended, status.is_replaced);
        let JobStatus { done, missing, writers, bytes_written, bytes, infinite, .. } = status;
        Ok(Progress {
            parts: self.parts().len(),
            done,
            missing,
            writers,
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
        let links = Links::beside(&self.path());
        let committed = Job::commit(self)?;
        let mut warnings = links.replaced_by(&committed.files, false);
        if !committed.already {
            warnings.extend(old_signatures(&self.path(), committed.digest.as_ref()));
        }
        let mut committed = told(&self.path(), committed);
        committed.warnings.extend(warnings);
        Ok(committed)
    }

    fn committed(&self) -> Result<Option<Committed>> {
        Ok(Job::committed(self)?.map(|committed| told(&self.path(), committed)))
    }

    fn abort(self: Box<Self>) -> Result<()> {
        Job::abort(*self)
    }
}

/// A warning for each signature of the model at `path` that is older than the model, unless it is
/// of the same content, whose `digest` is known. A commit that was killed may have put the model in
/// place before, and then it was signed.
fn old_signatures(path: &Path, digest: Option<&ContentDigest>) -> impl Iterator<Item = Error> {
    let reason = "signs the model that was replaced: `sign` signs the new one";
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let model = modified(path);
    let holds = move |path: &Path| digest.is_some_and(|digest| says_content(path, digest));
    let is_old = move |path: &PathBuf| modified(path) <= model && !holds(path);
    let warning = move |path: PathBuf| Error::new(ErrorKind::Changed, reason).with_path(path);
    signatures_of(path).into_iter().filter(is_old).map(warning)
}

/// What a commit of the job whose model is at `path` has done.
fn told(path: &Path, committed: job::Committed) -> Committed {
    let texts =
        |paths: &[PathBuf]| paths.iter().map(|path| tidy(path).display().to_string()).collect();
    Committed {
        files: File::beside(path, &committed.files),
        bytes: committed.bytes,
        digest: committed.digest.map(|digest| digest.to_string()),
        already: committed.already,
        replaced: committed.replaced,
        e_tag: None,
        version: None,
        removed: texts(&committed.removed),
        removed_are: "which no model needs",
        left_behind: texts(&committed.left_behind),
        infinite: committed.infinite,
        warnings: committed.warnings,
    }
}

/// Commits the job whose folder is or was at `path`; its model is at `model`.
pub fn commit_at(path: &Path, model: &Path) -> Result<Committed> {
    Ok(told(model, job::commit_job(path)?))
}

/// What a commit has put in place of the job whose folder was at `path`; its model is at `model`.
pub fn committed_at(path: &Path, model: &Path) -> Result<Option<Committed>> {
    Ok(job::committed_job(path)?.map(|committed| told(model, committed)))
}

/// Plans a rewrite to a folder.
pub fn plan(args: &JobRewriteArgs, recast: Option<Recast>) -> Result<Box<dyn AnyJob>, Failure> {
    let (input, output) = (&args.paths.input, &args.paths.output);
    save::refuse_weights(output, None)?;
    let job = Job::rewrite(input, output, recast, options(args))
        .map_err(|error| save::refused(error, output, &target(args)))?;
    Ok(Box::new(job))
}

/// The layout, as `pack` and `split` have it.
fn options(args: &JobRewriteArgs) -> JobOptions {
    let moving = ExternalizeOptions::new().min_bytes(args.moving.min_bytes);
    let save = saving(args).keep_placement(false);
    let save = save.max_model_bytes((!args.allow_over_2gib).then_some(MAX_PROTOBUF));
    let options = JobOptions::from(args.parts).save(save);
    let options = options.externalize(moving.all_tensors(args.moving.all_tensors));
    options.source(reading::of_source(&args.trust, args.no_mmap))
}

fn saving(args: &JobRewriteArgs) -> SaveOptions {
    let target = target(args);
    if args.per_tensor {
        return save::options(WeightFiles::PerTensor, None, &target);
    }
    let packed = save::packed(&args.layout, &target);
    kept_name::kept(packed, &args.layout, &args.paths.output, reading::unmapped())
}

/// The options as other commands that write have them.
fn target(args: &JobRewriteArgs) -> TargetArgs {
    let OldFiles { keep_old, delete_old } = args.old;
    TargetArgs {
        dry_run: false,
        no_clobber: args.no_clobber,
        old: OldFiles { keep_old, delete_old },
        no_sync: args.no_sync,
        no_direct_io: false,
        timings: false,
        digests: args.digests,
        ignore_stored_digests: false,
        checksums: false,
        allow_over_2gib: args.allow_over_2gib,
    }
}
