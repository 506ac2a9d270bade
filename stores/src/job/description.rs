//! [`RemoteJob`]: what is written, in which parts, and where it goes.

use std::collections::HashSet;

use onnx_container::edit::CastReport;
use onnx_container::external_data::check_location;
use onnx_container::recovery::is_of_job;
use onnx_container::work::JsonKind;
use onnx_container::{ByteSize, DataType, Error, ErrorKind, MmapChoice, Result};
use serde::{Deserialize, Serialize};

use super::folder::JobFolder;
use super::source::JobSource;
use super::stores::Stores;
use crate::object::Version;
use crate::publishing::{IfPresent, PublishOptions};
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// The most bytes of an object: that of S3 for long, so that parts of it fit memory.
const MOST_BYTES: u64 = 5 << 40;

const KIND: JsonKind =
    JsonKind { format: "onnx-container store job", version: 1, name: "a job of a store" };

/// A model of a store that many processes write together: each puts its part there, a weights file,
/// and one commit publishes the model.
///
/// A job is a value: it has no process, no connection and no credentials, and goes to other
/// machines as [JSON](Self::to_json) or by the URL of its [folder](Self::folder).
///
/// ```
/// use std::sync::Arc;
/// use object_store::memory::InMemory;
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, DataType, Initializer, LoadOptions};
/// use onnx_container_store::job::RemoteJob;
/// use onnx_container_store::{RemoteModel, Store, StoreUrl};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("a", TensorProto::UINT8, [2], "#a"));
/// graph.initializer.push(TensorProto::external("b", TensorProto::UINT8, [3], "#b"));
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#a", Initializer::declared(DataType::Uint8, [2])?)?;
/// container.insert("#b", Initializer::declared(DataType::Uint8, [3])?)?;
///
/// // One process plans,
/// let store = Store::new(Arc::new(InMemory::new()), "s3://models");
/// let url = StoreUrl::parse("s3://models/m.onnx")?;
/// let job = RemoteJob::plan(&container, &url, &store, 2)?.to_json()?;
/// // others write, in any order, each part once or more often,
/// for part in 0..2 {
///     let job = RemoteJob::from_json(&job, &store)?;
///     job.write_from(part, &|name: &str| {
///         let elements = if name == "a" { vec![1_u8, 2] } else { vec![3, 4, 5] };
///         Ok(elements.into())
///     })?;
/// }
/// // and one commits.
/// RemoteJob::from_json(&job, &store)?.commit()?;
/// let model = RemoteModel::open_in(&store, &url)?.load(LoadOptions::new())?;
/// assert_eq!(model.tensor("b")?.as_slice::<u8>()?, [3, 4, 5]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RemoteJob {
    pub(super) plan: Plan,
    pub(super) stores: Stores,
    /// The store of the model.
    pub(super) store: Store,
    pub(super) url: StoreUrl,
    /// What the cast of a rewrite did, where this process has planned it.
    pub(super) cast: Option<CastReport>,
}

/// What all processes of a job know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub(super) id: String,
    /// The name of the store of the model, and its key there.
    pub(super) root: String,
    pub(super) key: String,
    /// How many parts the plan was asked for.
    pub(super) asked_parts: usize,
    /// The weights file of each part.
    pub(super) files: Vec<PlannedFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<JobSource>,
    /// The SHA-256 of the model with the names of the plan.
    pub(super) model: String,
    /// The model that the commit replaces; none where there was none.
    pub(super) replaces: Option<Version>,
    /// Whether the commit replaces whatever is there, without a condition.
    #[serde(default)]
    pub(super) overwrite: bool,
    pub(super) keep: usize,
    pub(super) digests: bool,
}

/// A weights file, as it is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedFile {
    /// What the model of the plan calls it.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// In the order of their offsets.
    pub(super) tensors: Vec<FileTensor>,
    /// Ranges that tensors have within those of others: their offsets and lengths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) shared: Vec<(u64, u64)>,
}

/// A tensor, and its place in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileTensor {
    /// The name: that of the handle, without `#`.
    pub name: String,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<i64>,
    /// The offset in the file in bytes.
    pub offset: u64,
}

impl FileTensor {
    /// The length in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] where it is over 2^64.
    pub fn byte_len(&self) -> Result<u64> {
        self.dtype.byte_len(&self.dims)
    }
}

#[derive(Serialize, Deserialize)]
struct Stamped<J> {
    format: String,
    version: u32,
    job: J,
}

impl RemoteJob {
    pub(super) fn new(plan: Plan, stores: Stores) -> Result<Self> {
        let url = stores.named(&plan.root, &plan.key)?;
        let store = stores.of(&url)?;
        Ok(Self { plan, stores, store, url, cast: None })
    }

    /// What tells the job from others of the model.
    pub fn id(&self) -> &str {
        &self.plan.id
    }

    /// Where the model will be.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The prefix beside the model that has the description and the receipts until the commit.
    pub fn folder(&self) -> StoreUrl {
        self.job_folder().url().clone()
    }

    pub(super) fn job_folder(&self) -> JobFolder {
        JobFolder::of(&self.store, &self.url, &self.plan.id)
    }

    /// The numbers of the parts.
    pub fn parts(&self) -> std::ops::Range<usize> {
        0..self.plan.files.len()
    }

    /// Whether the part of this number can be written: one of [`parts`](Self::parts), or one up to
    /// the number that the plan was asked for. Where the model has fewer tensors that has nothing
    /// to write, so that an engine that counts to its own number does not fail.
    pub fn has_part(&self, part: usize) -> bool {
        part < self.plan.asked_parts.max(self.plan.files.len())
    }

    /// The weights files, one for each part, by the names of the plan and with their lengths in
    /// bytes. The commit gives them names of their content.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.plan.files.iter().map(|file| (file.name.as_str(), file.bytes))
    }

    /// How many bytes all weights files have.
    pub fn bytes(&self) -> u64 {
        self.plan.files.iter().fold(0, |sum, file| file.bytes.saturating_add(sum))
    }

    /// The names of the tensors of a part: those of their handles, without `#`.
    pub fn tensors(&self, part: usize) -> impl Iterator<Item = &str> {
        self.file_tensors(part).iter().map(|tensor| tensor.name.as_str())
    }

    /// The tensors of a part, in the order of their offsets.
    pub fn file_tensors(&self, part: usize) -> &[FileTensor] {
        self.plan.files.get(part).map_or(&[], |file| &file.tensors)
    }

    /// What the cast of a [rewrite](Self::rewrite) did, in the process that planned it; none where
    /// the job was opened. Which weights became infinite is known when they are written
    /// ([`PartReceipt::infinite`](super::PartReceipt)), and before that of those in the model.
    pub fn cast_report(&self) -> Option<&CastReport> {
        self.cast.as_ref()
    }

    /// How the commit publishes the model.
    pub(super) fn publishing(&self) -> PublishOptions {
        let if_present = match self.plan.overwrite {
            true => IfPresent::Overwrite,
            false => IfPresent::Replace,
        };
        PublishOptions::new().if_present(if_present).keep(self.plan.keep)
    }

    /// This job, whose [rewrite](Self::rewrite) of a model in a folder has the model file mapped by
    /// this process, or read whole; see
    /// [`SourceOptions::mmap`](onnx_container::job::SourceOptions).
    #[must_use]
    pub fn map_source(mut self, map: MmapChoice) -> Self {
        if let Some(source) = &mut self.plan.source {
            source.map(map);
        }
        self
    }

    /// The job as JSON: some 100 bytes for each tensor.
    ///
    /// # Errors
    /// None that a job can have.
    pub fn to_json(&self) -> Result<String> {
        self.plan.to_json()
    }

    /// The job of a JSON text, whose stores are reached as `stores` says.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for text that is no such JSON, [`ErrorKind::Unsupported`] for another
    /// version of it, [`ErrorKind::InvalidModel`] for places that are not within the files, and
    /// those of [`Store::open`].
    pub fn from_json(text: &str, stores: impl Into<Stores>) -> Result<Self> {
        Self::new(Plan::from_json(text)?, stores.into())
    }

    /// The job whose folder, or the `job.json` in it, is at `url`.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`] where it is not there, and those of
    /// [`from_json`](Self::from_json).
    pub fn open(url: &StoreUrl, stores: impl Into<Stores>) -> Result<Self> {
        let stores = stores.into();
        let folder = JobFolder::at(&stores.of(url)?, url);
        let (id, model) = folder.names()?;
        let text = run(folder.job())?;
        let mut plan = Plan::from_json(&text).map_err(|error| error.with_path(folder.shown()))?;
        // One whose root is a folder of the bucket calls the same object by another key.
        let is_here =
            plan.key == model.key() || format!("{}/{}", plan.root, plan.key) == model.to_string();
        if plan.id != id || !is_here {
            let reason = "the folder has the description of another job";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(folder.shown()));
        }
        // A store may have several names, and the job is where it was found.
        (plan.root, plan.key) = (model.root().to_owned(), model.key().to_owned());
        Self::new(plan, stores)
    }

    /// Whether `text` is the description of a job in a store, and not of one in a folder.
    pub fn is_json_of(text: &str) -> bool {
        KIND.is_of(text)
    }
}

impl Plan {
    pub(super) fn to_json(&self) -> Result<String> {
        let stamped = Stamped { format: KIND.format.to_owned(), version: KIND.version, job: self };
        serde_json::to_string(&stamped).map_err(Error::internal)
    }

    fn from_json(text: &str) -> Result<Self> {
        KIND.check(text)?;
        let Stamped { job, .. }: Stamped<Self> =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        job.check()?;
        Ok(job)
    }

    /// Refuses a job that no plan makes: it may come from anywhere.
    fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidModel, reason));
        let name = self.key.rsplit_once('/').map_or(self.key.as_str(), |(_, name)| name);
        if !is_of_job(&format!(".{name}.job-{}", self.id)) || !name.ends_with(".onnx") {
            return invalid("the job names no model of a store".to_owned());
        }
        let most = onnx_container::job::JobOptions::MAX_PARTS;
        if self.asked_parts > most || self.files.len() > most {
            return invalid(format!("the job has more than {most} parts"));
        }
        let mut names = HashSet::new();
        for file in &self.files {
            let is_name = check_location(&file.name).is_ok() && !file.name.contains('/');
            if !is_name || !names.insert(file.name.as_str()) {
                return invalid(format!("the job has a weights file called `{}`", file.name));
            }
            file.check()?;
        }
        Ok(())
    }
}

impl PlannedFile {
    /// Refuses a file that no object can be, and tensors that are not where a plan puts them: one
    /// behind the other in the file.
    pub(super) fn check(&self) -> Result<()> {
        if self.bytes > MOST_BYTES {
            let (bytes, most) = (ByteSize(self.bytes), ByteSize(MOST_BYTES));
            let reason =
                format!("a part has {bytes}, and an object at most {most}: ask for more parts");
            return Err(Error::new(ErrorKind::TooLarge, reason));
        }
        let outside = |name: &str| {
            let reason = format!("is not in the {} bytes of `{}`", self.bytes, self.name);
            Error::new(ErrorKind::InvalidModel, reason).with_tensor(name)
        };
        let mut end = 0;
        for tensor in &self.tensors {
            let after = tensor.offset.checked_add(tensor.byte_len()?);
            let after = after.filter(|after| *after <= self.bytes && tensor.offset >= end);
            end = after.ok_or_else(|| outside(&tensor.name))?;
        }
        for (offset, bytes) in &self.shared {
            let end = offset.checked_add(*bytes).filter(|end| *end <= self.bytes);
            end.ok_or_else(|| outside("a shared range"))?;
        }
        Ok(())
    }
}
