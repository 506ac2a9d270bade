//! Removing the weights files that no model names: what publications left that ended early, and
//! what models named that were replaced.
//!
//! Models are read first, so a file that is named is no candidate. A publication names a file long
//! after it is there, so only old files are. It does not name an old file that no model names: it
//! sends its bytes under another name. Before a file is deleted, the models that changed meanwhile
//! are read again, and the file is looked at again.

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};
use onnx_container::recovery::is_of_job;
use onnx_container::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::again::again;
use crate::errors::from_store;
use crate::job::{JobObject, job_of};
use crate::listing;
use crate::missing::DEFAULT_AGE;
use crate::names::is_published_name;
use crate::object::{AT_ONCE, Object, Version};
use crate::probe::TRIAL;
use crate::remote::RemoteModel;
use crate::runtime::run;
use crate::store::Store;
use crate::url::{StoreUrl, path_of};

pub use jobs::OpenJob;

/// MiB of models that are in memory at once; a longer one is there alone.
const IN_MEMORY: usize = 512;

/// How a folder of a store is swept.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    older_than: Duration,
    delete: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { older_than: DEFAULT_AGE, delete: false }
    }
}

impl SweepOptions {
    /// What is older than a week is told, and nothing deleted.
    pub fn new() -> Self {
        Self::default()
    }

    /// How old a file has to be. Default a week. Less is safe only where nobody publishes
    /// meanwhile: a publication takes a file for granted that is younger than half a week.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = age;
        self
    }

    /// Whether files are deleted. Default false.
    #[must_use]
    pub fn delete(mut self, delete: bool) -> Self {
        self.delete = delete;
        self
    }
}

/// What a sweep found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Sweep {
    /// How many models were read.
    pub models: usize,
    /// How many weights files they name.
    pub named: usize,
    /// Files that no model names and that are old enough; deleted where that was asked for.
    pub swept: Vec<SweptObject>,
    /// Files that no model names and that are younger.
    pub young: Vec<SweptObject>,
    /// The jobs below the folder that were neither committed nor aborted. Their files are in
    /// neither list, and stay until somebody ends the job.
    pub jobs: Vec<OpenJob>,
}

/// An object that no model names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweptObject {
    /// Where it is.
    pub url: StoreUrl,
    /// Its length in bytes.
    pub bytes: u64,
    /// How long ago it was written.
    pub age: Duration,
}

/// Models by their keys, and the weights files that each names.
type Named = BTreeMap<String, (Version, BTreeSet<String>)>;

/// Finds weights files below `folder` that a [publication](crate::publish) made and that no model
/// names, and deletes them where that is asked for. Other objects are never touched. What an
/// [open job](OpenJob) has written stays.
///
/// # Errors
/// Where the store cannot be listed, and where a model cannot be read: it may name any file.
pub fn sweep(store: &Store, folder: &StoreUrl, options: &SweepOptions) -> Result<Sweep> {
    folder.refuse_read_only()?;
    // What is there is known by what is beside it.
    if folder.key().split('/').any(is_of_job) {
        let reason = "this is the folder of a job: sweep that of its model";
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(folder.to_string()));
    }
    run(async {
        let listed = list(store, folder).await?;
        let models = read_models(store, folder, &listed, Named::new()).await?;
        let of_jobs = jobs::files_of(store, &listed).await?;
        let (old, young) = candidates(folder, &listed, (&models, &of_jobs), options.older_than);
        let jobs = jobs::told(folder, &listed);
        let named: BTreeSet<_> = models.values().flat_map(|(_, files)| files).collect();
        let (models_read, named) = (models.len(), named.len());
        let swept = match options.delete && !old.is_empty() {
            true => delete(store, folder, old, models, options).await?,
            false => old,
        };
        Ok(Sweep { models: models_read, named, swept, young, jobs })
    })
}

/// All objects below `folder`, and the models of the folders above it, which may name files in it.
async fn list(store: &Store, folder: &StoreUrl) -> Result<Vec<ObjectMeta>> {
    let prefix = path_of(folder.key())?;
    let mut listed = listing::below(store, folder.key()).await?;
    // What is not listed names files, too.
    listing::check_end(store, folder, &listed).await?;
    // Some servers list all that they have.
    listed.retain(|meta| meta.location.prefix_matches(&prefix));
    let mut above = folder.key();
    while !above.is_empty() {
        above = above.rsplit_once('/').map_or("", |(above, _)| above);
        let beside = listing::inside(store, above).await?;
        listed.extend(beside.objects.into_iter().filter(|meta| is_model(meta.location.as_ref())));
    }
    Ok(listed)
}

fn is_model(key: &str) -> bool {
    key.ends_with(".onnx") && job_of(key).is_none()
}

/// The models among `listed`, of which those in `known` were read before.
async fn read_models(
    store: &Store,
    folder: &StoreUrl,
    listed: &[ObjectMeta],
    known: Named,
) -> Result<Named> {
    let models = listed.iter().filter(|meta| is_model(meta.location.as_ref()));
    let (known, memory) = (&known, &Semaphore::new(IN_MEMORY));
    let read = models.map(|meta| async move {
        let key = meta.location.as_ref();
        if let Some((version, files)) = known.get(key)
            && version.is(&Version::of(meta))
        {
            return Ok(Some((key.to_owned(), (version.clone(), files.clone()))));
        }
        let mib = usize::try_from(meta.size >> 20).unwrap_or(IN_MEMORY);
        let permits = mib.saturating_add(1).min(IN_MEMORY);
        let permits = u32::try_from(permits).map_err(Error::internal)?;
        let _memory = memory.acquire_many(permits).await.map_err(Error::internal)?;
        let model = match Object::whole(store, key).await {
            Ok((object, bytes)) => RemoteModel::new(store, &folder.with_key(key), object, bytes),
            Err(error) if error.kind() == ErrorKind::MissingFile => return Ok(None),
            Err(error) => return Err(jobs::not_known(error)),
        };
        let locations = model.locations().map_err(jobs::not_known)?;
        let beside = |location: &String| Ok(model.url().beside(location)?.key().to_owned());
        let files = locations.iter().map(beside).collect::<Result<_>>().map_err(jobs::not_known)?;
        Ok(Some((key.to_owned(), (model.object().version().clone(), files))))
    });
    let read: Vec<Option<_>> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// Files that no model names: old ones, and young ones.
fn candidates(
    folder: &StoreUrl,
    listed: &[ObjectMeta],
    (models, jobs): (&Named, &BTreeSet<String>),
    older_than: Duration,
) -> (Vec<SweptObject>, Vec<SweptObject>) {
    let of_models = models.values().flat_map(|(_, files)| files);
    let named: BTreeSet<&str> = of_models.chain(jobs).map(String::as_str).collect();
    let (open, described) = (jobs::open_jobs(listed), jobs::described(listed));
    let ours = listed.iter().filter(|meta| {
        let key = meta.location.as_ref();
        match job_of(key) {
            // Without it the description would stand for a job that goes on.
            Some(JobObject::Committed(job)) => return !described.contains(job),
            // A job without its description has ended, however its writers go on.
            Some(object) => return !open.contains(object.folder()),
            None => {}
        }
        let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
        let is_ours = is_published_name(name) || name.starts_with(TRIAL);
        is_ours && !is_model(key) && !named.contains(key)
    });
    let object = |meta: &ObjectMeta| SweptObject {
        url: folder.with_key(meta.location.as_ref()),
        bytes: meta.size,
        age: Version::of(meta).age(),
    };
    ours.map(object).partition(|object| object.age >= older_than)
}

/// Deletes those of `old` that are still old and that still no model names.
async fn delete(
    store: &Store,
    folder: &StoreUrl,
    old: Vec<SweptObject>,
    models: Named,
    options: &SweepOptions,
) -> Result<Vec<SweptObject>> {
    let listed = list(store, folder).await?;
    // Jobs first: one that is committed meanwhile is named by its model.
    let jobs = jobs::files_of(store, &listed).await?;
    let models = read_models(store, folder, &listed, models).await?;
    let (still, _) = candidates(folder, &listed, (&models, &jobs), options.older_than);
    let still: BTreeSet<String> =
        still.into_iter().map(|object| object.url.key().to_owned()).collect();
    let deleted = old.into_iter().filter(|object| still.contains(object.url.key()));
    let deleted = deleted.map(|object| async move {
        let path = object.url.path()?;
        match Object::head(store, object.url.key()).await {
            Ok(now) if now.version().age() < options.older_than => return Ok(None),
            Err(error) if error.kind() == ErrorKind::MissingFile => return Ok(None),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        match again(|| store.objects().delete(&path)).await {
            Ok(()) => Ok(Some(object)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(from_store(&object.url.to_string(), error)),
        }
    });
    let deleted: Vec<Option<SweptObject>> =
        stream::iter(deleted).buffered(AT_ONCE).try_collect().await?;
    Ok(deleted.into_iter().flatten().collect())
}
