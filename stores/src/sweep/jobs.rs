//! Jobs among the objects of a sweep: [`OpenJob`], and the weights files that may still be
//! committed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use onnx_container::{Error, ErrorKind, Result};

use crate::job::{JobObject, PartReceipt, job_of, model_key, read_text};
use crate::object::{AT_ONCE, Version};
use crate::store::Store;
use crate::url::StoreUrl;

/// A job that was neither committed nor aborted: a sweep leaves what it has written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenJob {
    /// Its [folder](crate::job::RemoteJob::folder), which has its description.
    pub url: StoreUrl,
    /// Where its model will be.
    pub model: StoreUrl,
    /// How long ago it was planned.
    pub age: Duration,
    /// How many of its parts have receipts.
    pub written: usize,
}

/// The folders of jobs that have a description and were not committed. A commit that was killed
/// may have left the description.
pub(super) fn open_jobs(listed: &[ObjectMeta]) -> BTreeSet<&str> {
    let mut open = described(listed);
    for meta in listed {
        if let Some(JobObject::Committed(job)) = job_of(meta.location.as_ref()) {
            open.remove(job);
        }
    }
    open
}

/// The folders of jobs that have a description.
pub(super) fn described(listed: &[ObjectMeta]) -> BTreeSet<&str> {
    let found = listed.iter().filter_map(|meta| match job_of(meta.location.as_ref()) {
        Some(JobObject::Description(job)) => Some(job),
        _ => None,
    });
    found.collect()
}

/// The receipts of open jobs, each with the folder of its job.
fn receipts(listed: &[ObjectMeta]) -> impl Iterator<Item = (&str, &ObjectMeta)> {
    let open = open_jobs(listed);
    listed.iter().filter_map(move |meta| match job_of(meta.location.as_ref()) {
        Some(JobObject::Receipt(job)) if open.contains(job) => Some((job, meta)),
        _ => None,
    })
}

/// The open jobs among `listed`, in the order of their folders.
pub(super) fn told(root: &StoreUrl, listed: &[ObjectMeta]) -> Vec<OpenJob> {
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    for (job, _) in receipts(listed) {
        let parts = written.entry(job).or_default();
        *parts = parts.saturating_add(1);
    }
    let open = open_jobs(listed);
    let described = listed.iter().filter_map(|meta| match job_of(meta.location.as_ref()) {
        Some(JobObject::Description(job)) if open.contains(job) => Some((job, (job, meta))),
        _ => None,
    });
    let described: BTreeMap<_, _> = described.collect();
    let jobs = described.into_values().filter_map(|(job, meta)| {
        Some(OpenJob {
            url: root.with_key(job),
            model: root.with_key(model_key(job)?),
            age: Version::of(meta).age(),
            written: written.get(job).copied().unwrap_or_default(),
        })
    });
    jobs.collect()
}

/// The weights files that open jobs have written, by their receipts.
pub(super) async fn files_of(store: &Store, listed: &[ObjectMeta]) -> Result<BTreeSet<String>> {
    let read = receipts(listed).map(|(job, meta)| async move {
        // What was committed meanwhile is named by its model, which is read again.
        let text = match read_text(store, &meta.location).await {
            // What is no text is no receipt.
            Err(error) if error.kind() == ErrorKind::Decode => None,
            text => text?,
        };
        let shown = store.shown(meta.location.as_ref());
        let receipt = text.map_or(Ok(None), |text| PartReceipt::of_stored(&text, &shown));
        let receipt = receipt.map_err(not_known)?;
        let name = receipt.and_then(|receipt| receipt.file).map(|file| file.name);
        let folder = job.rsplit_once('/').map(|(folder, _)| folder);
        let key = |name| folder.map_or_else(|| String::clone(&name), |it| format!("{it}/{name}"));
        Ok::<_, Error>(name.map(key))
    });
    let files: Vec<Option<String>> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
    Ok(files.into_iter().flatten().collect())
}

/// The error of a model, or of a receipt, that may name any file.
pub(super) fn not_known(error: Error) -> Error {
    error.because("nothing is swept, as it is not known which files this names")
}
