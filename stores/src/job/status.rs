//! [`RemoteJob::status`], [`RemoteJob::abort`] and [`jobs_in`]: how far jobs are, and their end
//! without a result.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use onnx_container::recovery::is_of_job;
use onnx_container::{Error, ErrorKind, Result};

use super::committed::{RemoteCommitted, aborted_json};
use super::description::RemoteJob;
use super::folder::JobFolder;
use crate::listing;
use crate::object::AT_ONCE;
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// What an abort says of a commit.
const PUBLISHED: &str =
    "a commit of the job had published its model: the job is ended, and the model stays";
const BEGUN: &str = "a commit of the job had begun: the job is ended, but the model is published \
                     if that commit still runs. `onnx-container digest` of the model says which \
                     one is there";
const UNSEEN: &str = "a commit of the job had begun: the job is ended, but the model could not be \
                      read, and that commit may have published it, or publish it if it still runs. \
                      `onnx-container digest` of the model says which one is there. The read failed";

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteJobStatus {
    /// The parts that are written.
    pub done: Vec<usize>,
    /// The parts that are not.
    pub missing: Vec<usize>,
    /// How many bytes the written parts have.
    pub bytes_written: u64,
    /// How many bytes all parts have.
    pub bytes: u64,
    /// Whether all parts are written, so that the job can be committed.
    pub is_complete: bool,
    /// Whether a commit has published the model.
    pub is_committed: bool,
    /// Whether that commit has ended the job. Otherwise it was killed before it did: another
    /// [`commit`](RemoteJob::commit) ends it.
    pub is_ended: bool,
    /// Whether another model is there since, or none.
    pub is_replaced: bool,
    /// The weights, by their old names and in their order, of which finite numbers became infinite
    /// by a cast, as far as the written parts tell; see
    /// [`CastReport::infinite`](onnx_container::edit::CastReport::infinite).
    pub infinite: Vec<String>,
}

/// What is known of a job without its receipts.
struct Stage {
    done: Vec<usize>,
    missing: Vec<usize>,
    committed: Option<RemoteCommitted>,
    is_ended: bool,
}

impl RemoteJob {
    /// How far the job is, by the receipts in its store, each of which is read; of one that a
    /// commit has ended, as [`committed`](Self::committed) says it.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] where the job was aborted, and where it is not known how it
    /// ended; those of the store.
    pub fn status(&self) -> Result<RemoteJobStatus> {
        let mut stage = self.stage()?;
        let mut infinite = BTreeSet::new();
        if stage.committed.is_none() {
            let receipts = self.stored_receipts()?;
            let written: BTreeSet<_> = receipts.iter().map(|receipt| receipt.part).collect();
            // A commit or an abort may have removed receipts meanwhile.
            if written.len() < self.parts().len() {
                stage = self.stage()?;
            }
            if stage.committed.is_none() {
                // A damaged receipt stands for nothing.
                let parts = self.parts();
                (stage.done, stage.missing) = parts.partition(|part| written.contains(part));
            }
            infinite.extend(receipts.into_iter().flat_map(|receipt| receipt.infinite));
        }
        if let Some(committed) = &stage.committed {
            infinite = committed.infinite.iter().cloned().collect();
        }
        let Stage { done, missing, committed, is_ended } = stage;
        let files = done.iter().filter_map(|part| self.plan.files.get(*part));
        Ok(RemoteJobStatus {
            bytes_written: files.fold(0, |sum, file| file.bytes.saturating_add(sum)),
            bytes: self.bytes(),
            is_complete: missing.is_empty(),
            is_committed: committed.is_some(),
            is_ended,
            is_replaced: committed.is_some_and(|committed| committed.replaced),
            done,
            missing,
            infinite: infinite.into_iter().collect(),
        })
    }

    /// How far the job is, without a look into receipts.
    fn stage(&self) -> Result<Stage> {
        match self.found() {
            Ok((done, missing, is_committed)) => {
                let committed = if is_committed { self.committed()? } else { None };
                Ok(Stage { done, missing, committed, is_ended: false })
            }
            Err(error) if error.kind() == ErrorKind::MissingFile => {
                let committed = Some(self.committed()?.ok_or(error)?);
                let (done, missing) = (self.parts().collect(), Vec::new());
                Ok(Stage { done, missing, committed, is_ended: true })
            }
            Err(error) => Err(error),
        }
    }

    /// The parts that are not written. Unlike [`status`](Self::status) this reads no receipt, but
    /// lists their names, so each of many writers may ask.
    ///
    /// # Errors
    /// Those of [`status`](Self::status).
    pub fn missing_parts(&self) -> Result<Vec<usize>> {
        match self.found() {
            Err(error) if error.kind() == ErrorKind::MissingFile => {
                // Nothing is missing of a job that is committed.
                match run(self.job_folder().is_committed())? {
                    true => Ok(Vec::new()),
                    false => Err(error),
                }
            }
            found => Ok(found?.1),
        }
    }

    /// The parts that are written, those that are not, and whether a commit has published the
    /// model.
    fn found(&self) -> Result<(Vec<usize>, Vec<usize>, bool)> {
        let folder = self.job_folder();
        let (found, is_committed) = run(async {
            folder.check_there().await?;
            let found = folder.parts().await?;
            // After the receipts, which a commit removes later.
            let is_committed = folder.is_committed().await?;
            if !is_committed {
                folder.check_whole().await?;
            }
            Ok::<_, Error>((found, is_committed))
        })?;
        // Of a job that is committed all parts were written; their receipts may be gone.
        let (done, missing): (Vec<_>, Vec<_>) =
            self.parts().partition(|part| is_committed || found.binary_search(part).is_ok());
        Ok((done, missing, is_committed))
    }

    /// Ends the job: its description and receipts are removed. Weights files that were written stay
    /// for a [sweep](crate::sweep()), as other models may name them.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] where the job was committed or aborted; [`ErrorKind::Changed`]
    /// where a commit had published the model, or had begun and may still publish it (the job is
    /// then ended); and those of the store, after which an abort again ends the job.
    pub fn abort(self) -> Result<()> {
        abort_at(&self.job_folder())
    }

    /// As [`abort`](Self::abort), for the job whose folder is at `url`, also one whose description
    /// cannot be read.
    ///
    /// # Errors
    /// Those of [`abort`](Self::abort).
    pub fn abort_at(store: &Store, url: &StoreUrl) -> Result<()> {
        let folder = JobFolder::at(store, url);
        folder.names()?;
        abort_at(&folder)
    }
}

fn abort_at(folder: &JobFolder) -> Result<()> {
    let how = run(async {
        if folder.committed().await?.is_none() {
            return abort_open(folder).await;
        }
        // A commit that was killed may have left more than what says so.
        let is_described = folder.is_described().await?;
        folder.end().await?;
        match is_described {
            true => Ok(Some(PUBLISHED.to_owned())),
            false => folder.check_there().await.map(|()| None),
        }
    })?;
    match how {
        None => Ok(()),
        Some(how) => Err(Error::new(ErrorKind::Changed, how).with_path(folder.shown())),
    }
}

/// Ends a job that no commit has ended, also one that an abort has ended in part. Returns what is
/// to be said of a commit that had begun.
async fn abort_open(folder: &JobFolder) -> Result<Option<String>> {
    folder.check_can_end().await?;
    let commits = folder.close().await?;
    // The job is ended whatever this says.
    let published = match commits.is_done {
        true => Ok(true),
        false => folder.model_is_one_of(&commits.noted).await,
    };
    if !matches!(published, Ok(true)) {
        folder.put_aborted(aborted_json()?).await?;
    }
    folder.remove_rest().await?;
    Ok(match published {
        Ok(true) => Some(PUBLISHED.to_owned()),
        Ok(false) => (!commits.noted.is_empty()).then(|| BEGUN.to_owned()),
        Err(error) => Some(format!("{UNSEEN}: {}", error.reason())),
    })
}

/// The folders of jobs of the models in `folder` that were neither committed nor aborted, in the
/// order of their names.
///
/// # Errors
/// Where the store cannot be listed.
pub fn jobs_in(store: &Store, folder: &StoreUrl) -> Result<Vec<StoreUrl>> {
    folder.refuse_read_only()?;
    run(async {
        let listed = listing::inside(store, folder.key()).await?;
        let urls = listed.common_prefixes.iter().map(|it| folder.with_key(it.as_ref()));
        // Some servers list a prefix of which nothing is left.
        let found = urls.filter(|url| is_of_job(url.name())).map(|url| async move {
            let is_open = JobFolder::at(store, &url).is_open().await?;
            Ok::<_, Error>(is_open.then_some(url))
        });
        let found: Vec<_> = stream::iter(found).buffered(AT_ONCE).try_collect().await?;
        let mut jobs: Vec<StoreUrl> = found.into_iter().flatten().collect();
        jobs.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(jobs)
    })
}
