//! What a job has in its store: small objects under one prefix beside the model,
//! `.<model>.job-<id>/`.
//!
//! - `job.json`: the job. It is there first, and without it there is no job.
//! - `model.onnx`: the model as it will be, with the names that the plan gave the weights files. It
//!   is there last: without it the plan did not end.
//! - `receipts/part-00017.json`: what the writer of a part has written.
//! - `committing-a1B2c3`: the SHA-256 of the model that a commit is about to publish, while it is
//!   at it.
//! - `committed.json`: what the commit has published. From there on only removal is left, of all
//!   but this: a commit that is done again finds it, until a sweep removes it.
//! - `aborted.json`: the same of an abort.
//!
//! The weights files are beside the model. They belong to the job as long as a receipt names them.

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt, PutMode, PutPayload};
use onnx_container::recovery::{is_of_job, new_job_name};
use onnx_container::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::again::again;
use crate::errors::from_store;
use crate::listing;
use crate::names::hex;
use crate::object::{AT_ONCE, Object};
use crate::store::Store;
use crate::url::{StoreUrl, path_of};

const JOB: &str = "job.json";
const MODEL: &str = "model.onnx";
const RECEIPTS: &str = "receipts";
const COMMITTED: &str = "committed.json";
const ABORTED: &str = "aborted.json";
/// How the name of a note of a commit begins, each of which has its own.
const COMMITTING: &str = "committing-";

/// How many names are tried before something else is wrong.
const MOST_NAMES: usize = 100;
/// The most bytes of an object of a job. A model is a Protobuf message, which is shorter; a
/// description has some 100 bytes for each tensor.
const MOST_BYTES: u64 = 1 << 31;

/// What is said of a job without a description.
const GONE: &str = "the job is not there: it was committed or aborted";
const WAS_COMMITTED: &str = "the job is not there: it was committed";
const WAS_ABORTED: &str = "the job is not there: it was aborted";
const HALF_MADE: &str = "the plan of this job did not end: its process was killed, or still runs. \
                         Abort the job and plan it again";

/// What an abort finds of commits, when the description is gone.
pub(super) struct Commits {
    /// Whether one has published its model, and said so.
    pub(super) is_done: bool,
    /// The SHA-256 of each model that one is about to publish, or was when it was killed.
    pub(super) noted: Vec<String>,
}

/// The prefix of a job.
#[derive(Debug, Clone)]
pub(super) struct JobFolder {
    store: Store,
    /// The prefix, without a slash at its end.
    url: StoreUrl,
}

impl JobFolder {
    /// That of the job `id` of the model at `model`.
    pub(super) fn of(store: &Store, model: &StoreUrl, id: &str) -> Self {
        let name = format!(".{}.job-{id}", model.name());
        Self { store: store.clone(), url: sibling(model, &name) }
    }

    /// That at `url`, or that of the `job.json` at `url`.
    pub(super) fn at(store: &Store, url: &StoreUrl) -> Self {
        let key = url.key().trim_end_matches('/');
        let key = key.strip_suffix(JOB).map_or(key, |key| key.trim_end_matches('/'));
        Self { store: store.clone(), url: url.with_key(key) }
    }

    pub(super) fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The id of the job, and the URL of its model.
    pub(super) fn names(&self) -> Result<(String, StoreUrl)> {
        let name = self.url.name();
        let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(".job-"));
        let (model, id) = parts.filter(|_| is_of_job(name)).ok_or_else(|| {
            let reason = "this is no job of a model: one is called `.m.onnx.job-a1B2c3`";
            Error::new(ErrorKind::InvalidArgument, reason).with_path(self.url.to_string())
        })?;
        Ok((id.to_owned(), sibling(&self.url, model)))
    }

    fn object(&self, name: &str) -> StoreUrl {
        self.url.with_key(format!("{}/{name}", self.url.key()))
    }

    fn receipt(&self, part: usize) -> StoreUrl {
        self.object(&format!("{RECEIPTS}/{}.json", part_name(part)))
    }

    /// Puts the first object of a new job of the model at `model` there: what `json` makes of its
    /// id.
    pub(super) async fn create(
        store: &Store,
        model: &StoreUrl,
        json: impl Fn(&str) -> Result<String>,
    ) -> Result<String> {
        for _ in 0..MOST_NAMES {
            let id = new_id(model)?;
            let job = Self::of(store, model, &id).object(JOB);
            let (json, path) = (json(&id)?, job.path()?);
            let created =
                store.objects().put_opts(&path, json.clone().into(), PutMode::Create.into());
            match created.await {
                Ok(_) => return Ok(id),
                Err(StoreError::AlreadyExists { .. }) => {
                    // The answer may be lost that said that this one is there.
                    let there = get(store, &path).await?;
                    if there.is_some_and(|there| there == json.as_bytes()) {
                        return Ok(id);
                    }
                }
                // A store without conditions: two jobs of one id are unlikely.
                Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
                    put(store, &job, json.into()).await?;
                    return Ok(id);
                }
                Err(error) => return Err(from_store(&job.to_string(), error)),
            }
        }
        let reason = "no name for a job is free";
        Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(model.to_string()))
    }

    /// Puts the last object of the plan there.
    pub(super) async fn put_model(&self, model: Vec<u8>) -> Result<()> {
        put(&self.store, &self.object(MODEL), model.into()).await
    }

    /// Puts a receipt there, unless there is one; returns whether it is there now.
    pub(super) async fn add_receipt(&self, part: usize, json: String) -> Result<bool> {
        let receipt = self.receipt(part);
        let (path, bytes) = (receipt.path()?, PutPayload::from(json.clone()));
        match self.store.objects().put_opts(&path, bytes, PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            // A store without conditions, or an answer that is lost.
            Err(_) => self.put_receipt(part, json).await.map(|()| true),
        }
    }

    /// Puts a receipt there, in place of what is there.
    pub(super) async fn put_receipt(&self, part: usize, json: String) -> Result<()> {
        put(&self.store, &self.receipt(part), json.into()).await
    }

    /// Notes that a commit is about to publish the model of this SHA-256. Returns the note.
    pub(super) async fn note_commit(&self, sha256: String) -> Result<StoreUrl> {
        let note = self.object(&format!("{COMMITTING}{}", new_id(&self.url)?));
        put(&self.store, &note, sha256.into()).await?;
        Ok(note)
    }

    pub(super) async fn put_committed(&self, json: String) -> Result<()> {
        put(&self.store, &self.object(COMMITTED), json.into()).await
    }

    /// The description.
    pub(super) async fn job(&self) -> Result<String> {
        match self.text(&self.object(JOB)).await? {
            Some(text) => Ok(text),
            None => Err(self.gone().await?),
        }
    }

    /// The model of the plan.
    pub(super) async fn model(&self) -> Result<Vec<u8>> {
        let found = get(&self.store, &self.object(MODEL).path()?).await?;
        found.ok_or_else(|| self.missing(HALF_MADE))
    }

    /// The receipt of a part, if there is one. What is no text is none.
    pub(super) async fn stored_receipt(&self, part: usize) -> Result<Option<String>> {
        match self.text(&self.receipt(part)).await {
            Err(error) if error.kind() == ErrorKind::Decode => Ok(None),
            text => text,
        }
    }

    /// What a commit has published, if one has.
    pub(super) async fn committed(&self) -> Result<Option<String>> {
        self.text(&self.object(COMMITTED)).await
    }

    pub(super) async fn is_committed(&self) -> Result<bool> {
        self.is_there(COMMITTED).await
    }

    async fn text(&self, url: &StoreUrl) -> Result<Option<String>> {
        read_text(&self.store, &url.path()?).await
    }

    /// Refuses a job that is not there.
    pub(super) async fn check_there(&self) -> Result<()> {
        match self.is_there(JOB).await? {
            true => Ok(()),
            false => Err(self.gone().await?),
        }
    }

    /// Refuses a job that has ended, unless an abort has left more of it than a late receipt.
    pub(super) async fn check_can_end(&self) -> Result<()> {
        if self.is_described().await? {
            return Ok(());
        }
        let model = self.object(MODEL);
        let is_rest =
            |meta: &ObjectMeta| meta.location.as_ref() == model.key() || is_of_commit(meta);
        match self.list().await?.iter().any(is_rest) {
            true => Ok(()),
            false => Err(self.gone().await?),
        }
    }

    /// Refuses a job that is not there whole: its model is put last, and may go first.
    pub(super) async fn check_whole(&self) -> Result<()> {
        self.check_there().await?;
        if self.is_there(MODEL).await? {
            return Ok(());
        }
        let is_committed = self.is_committed().await?;
        Err(self.missing(if is_committed { WAS_COMMITTED } else { HALF_MADE }))
    }

    /// Whether the job has a description.
    pub(super) async fn is_described(&self) -> Result<bool> {
        self.is_there(JOB).await
    }

    /// Whether the job has a description, and no commit has published its model. By one request.
    pub(super) async fn is_open(&self) -> Result<bool> {
        let listed = listing::inside(&self.store, self.url.key()).await?;
        let has = |name| {
            let key = self.object(name);
            listed.objects.iter().any(|meta| meta.location.as_ref() == key.key())
        };
        Ok(has(JOB) && !has(COMMITTED))
    }

    /// Whether the model beside the job has one of these SHA-256.
    pub(super) async fn model_is_one_of(&self, sums: &[String]) -> Result<bool> {
        if sums.is_empty() {
            return Ok(false);
        }
        match Object::whole(&self.store, self.names()?.1.key()).await {
            Ok((_, model)) => Ok(sums.contains(&hex(&Sha256::digest(&model).into()))),
            Err(error) if error.kind() == ErrorKind::MissingFile => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn is_there(&self, name: &str) -> Result<bool> {
        let path = self.object(name).path()?;
        match again(|| self.store.objects().head(&path)).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(from_store(&self.shown(), error)),
        }
    }

    /// The error of a job without a description, which says how the job ended where that is there.
    async fn gone(&self) -> Result<Error> {
        let reason = match (self.is_there(COMMITTED).await?, self.is_there(ABORTED).await?) {
            (true, _) => WAS_COMMITTED,
            (false, true) => WAS_ABORTED,
            (false, false) => GONE,
        };
        Ok(self.missing(reason))
    }

    fn missing(&self, reason: &str) -> Error {
        Error::new(ErrorKind::MissingFile, reason).with_path(self.shown())
    }

    /// The parts that have receipts, in order.
    pub(super) async fn parts(&self) -> Result<Vec<usize>> {
        let listed = self.list().await?;
        let names = listed.iter().filter_map(|meta| name_of(meta.location.as_ref()));
        let mut parts: Vec<_> = names.filter_map(part_of).collect();
        parts.sort_unstable();
        parts.dedup();
        Ok(parts)
    }

    async fn list(&self) -> Result<Vec<ObjectMeta>> {
        let prefix = path_of(self.url.key())?;
        let mut listed = listing::below(&self.store, self.url.key()).await?;
        // Some servers list all that they have, and what is listed here is removed.
        listed.retain(|meta| meta.location.prefix_matches(&prefix));
        Ok(listed)
    }

    pub(super) async fn remove_receipt(&self, part: usize) -> Result<()> {
        self.remove(&self.receipt(part)).await
    }

    /// Removes all objects of the job, except those that say how it ended: the description first,
    /// so that no writer begins.
    pub(super) async fn end(&self) -> Result<()> {
        self.remove(&self.object(JOB)).await?;
        self.remove_rest().await
    }

    /// Removes the description alone. Returns what is there of commits.
    ///
    /// A commit looks for the description behind its note, and this for notes behind the removal of
    /// the description: so one of the two sees the other.
    pub(super) async fn close(&self) -> Result<Commits> {
        self.remove(&self.object(JOB)).await?;
        let listed = self.list().await?;
        let committed = self.object(COMMITTED);
        let is_done = listed.iter().any(|meta| meta.location.as_ref() == committed.key());
        let notes = listed.iter().filter(|meta| is_of_commit(meta));
        let notes = notes.map(|meta| get(&self.store, &meta.location));
        let notes: Vec<_> = stream::iter(notes).buffered(AT_ONCE).try_collect().await?;
        // One that is gone is of a commit that was refused.
        let notes = notes.into_iter().flatten();
        let noted = notes.map(|note| String::from_utf8_lossy(&note).into_owned()).collect();
        Ok(Commits { is_done, noted })
    }

    pub(super) async fn put_aborted(&self, json: String) -> Result<()> {
        put(&self.store, &self.object(ABORTED), json.into()).await
    }

    /// Removes all objects of a job without a description, except those that say how it ended. The
    /// notes of commits are the last: an abort that is done again tells of them.
    pub(super) async fn remove_rest(&self) -> Result<()> {
        let ends = [self.object(COMMITTED), self.object(ABORTED)];
        let listed = self.list().await?;
        let (notes, others): (Vec<_>, Vec<_>) = listed.iter().partition(|meta| is_of_commit(meta));
        for objects in [others, notes] {
            let urls = objects.iter().map(|meta| self.url.with_key(meta.location.as_ref()));
            let rest = urls.filter(|url| !ends.contains(url));
            let removed = rest.map(|url| async move { self.remove(&url).await });
            stream::iter(removed).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
        Ok(())
    }

    pub(super) async fn remove(&self, url: &StoreUrl) -> Result<()> {
        let path = url.path()?;
        match again(|| self.store.objects().delete(&path)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(from_store(&url.to_string(), error)),
        }
    }

    pub(super) fn shown(&self) -> String {
        self.url.to_string()
    }
}

/// The object called `name` beside the one at `url`.
fn sibling(url: &StoreUrl, name: &str) -> StoreUrl {
    match url.key().rsplit_once('/') {
        Some((folder, _)) => url.with_key(format!("{folder}/{name}")),
        None => url.with_key(name),
    }
}

/// An id for a job of `model`, or for a note.
fn new_id(model: &StoreUrl) -> Result<String> {
    let name = new_job_name(model.name());
    let id = name.rsplit_once(".job-").map(|(_, id)| id.to_owned());
    id.ok_or_else(|| Error::internal("a job without an id"))
}

/// Whether the note of a commit has this name.
fn is_note(name: &str) -> bool {
    name.strip_prefix(COMMITTING).is_some_and(|id| is_of_job(&format!(".m.job-{id}")))
}

fn is_of_commit(meta: &ObjectMeta) -> bool {
    meta.location.filename().is_some_and(is_note)
}

/// The name of the writer of a part.
pub(super) fn part_name(part: usize) -> String {
    format!("part-{part:05}")
}

/// The part whose receipt is called `name`.
fn part_of(name: &str) -> Option<usize> {
    let part = name.strip_prefix("part-")?.strip_suffix(".json")?.parse().ok()?;
    (format!("{}.json", part_name(part)) == name).then_some(part)
}

fn name_of(key: &str) -> Option<&str> {
    let (folder, name) = key.rsplit_once('/')?;
    folder.ends_with(RECEIPTS).then_some(name)
}

/// Writes a small object, whatever is there.
async fn put(store: &Store, url: &StoreUrl, payload: PutPayload) -> Result<()> {
    let path = url.path()?;
    let put = again(|| store.objects().put(&path, payload.clone())).await;
    put.map(|_| ()).map_err(|error| from_store(&url.to_string(), error))
}

/// The bytes of a small object, if it is there.
async fn get(store: &Store, path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || async {
        let answer = store.objects().get(path).await?;
        if answer.meta.size > MOST_BYTES {
            return Ok(Err(answer.meta.size));
        }
        answer.bytes().await.map(Ok)
    };
    let shown = || store.shown(path.as_ref());
    match again(read).await {
        Ok(Ok(bytes)) => Ok(Some(bytes.into())),
        Ok(Err(size)) => {
            let reason = format!("{size} bytes are too many for an object of a job");
            Err(Error::new(ErrorKind::TooLarge, reason).with_path(shown()))
        }
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(from_store(&shown(), error)),
    }
}

/// The text of a small object, if it is there.
pub(crate) async fn read_text(store: &Store, path: &Path) -> Result<Option<String>> {
    let text = get(store, path).await?.map(String::from_utf8).transpose();
    let no_text = |_| Error::new(ErrorKind::Decode, "is no text");
    text.map_err(no_text).map_err(|error| error.with_path(store.shown(path.as_ref())))
}

/// What an object is of a job, and the key of the folder of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobObject<'k> {
    Description(&'k str),
    /// It says that the model is published.
    Committed(&'k str),
    /// It names a weights file.
    Receipt(&'k str),
    Other(&'k str),
}

impl<'k> JobObject<'k> {
    pub(crate) fn folder(self) -> &'k str {
        match self {
            Self::Description(folder)
            | Self::Committed(folder)
            | Self::Receipt(folder)
            | Self::Other(folder) => folder,
        }
    }
}

/// What the object of this key is of a job, if it is of one. What others put into its folder is of
/// none.
pub(crate) fn job_of(key: &str) -> Option<JobObject<'_>> {
    let (folder, name) = key.rsplit_once('/')?;
    if is_folder(folder) {
        return match name {
            JOB => Some(JobObject::Description(folder)),
            COMMITTED => Some(JobObject::Committed(folder)),
            MODEL | ABORTED => Some(JobObject::Other(folder)),
            name if is_note(name) => Some(JobObject::Other(folder)),
            _ => None,
        };
    }
    let (folder, receipts) = folder.rsplit_once('/')?;
    let is_receipt = is_folder(folder) && receipts == RECEIPTS && part_of(name).is_some();
    is_receipt.then_some(JobObject::Receipt(folder))
}

/// The key of the model of the job whose folder has this key.
pub(crate) fn model_key(folder: &str) -> Option<String> {
    let (above, name) = folder.rsplit_once('/').map_or((None, folder), |(it, at)| (Some(it), at));
    let model = name.strip_prefix('.')?.rsplit_once(".job-")?.0;
    Some(above.map_or_else(|| model.to_owned(), |above| format!("{above}/{model}")))
}

/// Whether a job of a model has a folder of this key.
fn is_folder(key: &str) -> bool {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    let model = name.rsplit_once(".job-").map(|(model, _)| model);
    is_of_job(name) && model.is_some_and(|model| model.ends_with(".onnx"))
}
