//! [`RemoteJob::commit`]: all parts are there, and the model is published.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::{StreamExt, TryStreamExt, stream};
use onnx_container::digest::ContentDigest;
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{DecodeOptions, Message, ModelProto, TensorProto};
use onnx_container::{Buffer, Error, ErrorKind, Result, traversal};
use sha2::{Digest, Sha256};

use super::committed::{RemoteCommitted, sum_of};
use super::description::RemoteJob;
use super::folder::JobFolder;
use super::receipt::{PartReceipt, StoredFile};
use super::source::JobSource;
use super::stores::Stores;
use crate::names::hex;
use crate::object::{AT_ONCE, Object};
use crate::publish::Publication;
use crate::publishing::{Published, PublishedFile};
use crate::runtime::run;
use crate::store::Store;
use crate::sums::Sum;
use crate::url::StoreUrl;

/// The weights file of each part, and the weights that became infinite in it.
type Written = BTreeMap<usize, (StoredFile, Vec<String>)>;

impl RemoteJob {
    /// Publishes the model with the receipts in the store, and removes the job.
    ///
    /// The model is replaced by one request, whose condition is that it is the one that was there
    /// when the job was planned. A commit that ended early is done again, by any process. Where an
    /// earlier call has published the model, this returns what that has published
    /// ([`RemoteCommitted::already`]), until a [sweep](crate::sweep()) removes what says so.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] where parts are not written; [`ErrorKind::MissingFile`] where
    /// the job was aborted, it is not known how it ended, or a weights file is gone;
    /// [`ErrorKind::Changed`] where another writer published the model after the job was planned;
    /// those of [`publish`](crate::publish()).
    pub fn commit(&self) -> Result<RemoteCommitted> {
        self.commit_with(|| self.stored_receipts())
    }

    /// As [`commit`](Self::commit), for the job whose folder is at `url`, also one that an earlier
    /// call has committed.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`commit`](Self::commit).
    pub fn commit_at(url: &StoreUrl, stores: impl Into<Stores>) -> Result<RemoteCommitted> {
        let stores = stores.into();
        let store = stores.of(url)?;
        let folder = JobFolder::at(&store, url);
        match Self::open(url, stores) {
            Ok(job) => job.commit(),
            Err(error) if error.kind() == ErrorKind::MissingFile => {
                done_before(&store, &folder, &folder.names()?.1)?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// What a commit has published, and whether it is [still there](RemoteCommitted::replaced).
    /// `None` where the job goes on or was aborted, and where a [sweep](crate::sweep()) has removed
    /// what says so.
    ///
    /// # Errors
    /// Those of the store.
    pub fn committed(&self) -> Result<Option<RemoteCommitted>> {
        done(&self.store, &self.job_folder(), &self.url)
    }

    /// As [`committed`](Self::committed), for the job whose folder is or was at `url`.
    ///
    /// # Errors
    /// Those of the store.
    pub fn committed_at(
        url: &StoreUrl,
        stores: impl Into<Stores>,
    ) -> Result<Option<RemoteCommitted>> {
        let store = stores.into().of(url)?;
        let folder = JobFolder::at(&store, url);
        done(&store, &folder, &folder.names()?.1)
    }

    /// As [`commit`](Self::commit), with the `receipts` that an engine has carried.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); [`ErrorKind::InvalidArgument`] for a receipt of another
    /// job.
    pub fn commit_receipts(
        &self,
        receipts: impl IntoIterator<Item = PartReceipt>,
    ) -> Result<RemoteCommitted> {
        self.commit_with(|| Ok(receipts.into_iter().collect()))
    }

    fn commit_with(
        &self,
        receipts: impl FnOnce() -> Result<Vec<PartReceipt>>,
    ) -> Result<RemoteCommitted> {
        let folder = self.job_folder();
        if let Some(done) = done_before(&self.store, &folder, &self.url)? {
            run(folder.end())?;
            return Ok(done);
        }
        self.commit_open(&folder, receipts).or_else(|error| {
            // Another process may have committed the job meanwhile.
            let meanwhile = done_before(&self.store, &folder, &self.url).ok().flatten();
            meanwhile.ok_or(error)
        })
    }

    /// Commits a job that nobody has committed before.
    fn commit_open(
        &self,
        folder: &JobFolder,
        receipts: impl FnOnce() -> Result<Vec<PartReceipt>>,
    ) -> Result<RemoteCommitted> {
        run(folder.check_there())?;
        let ready = receipts().and_then(|receipts| self.ready(receipts));
        // What is missing where a job has ended was removed.
        let ended = |error| run(folder.check_there()).and(Err(error));
        let (files, model, digest) = ready.or_else(ended)?;
        let infinite = files.values().flat_map(|(_, infinite)| infinite.iter().cloned());
        let infinite: Vec<_> = infinite.collect::<BTreeSet<_>>().into_iter().collect();
        let files = files.into_values().map(|(file, _)| published(file)).collect();
        let published = self.put_model(folder, model, files)?;
        let mut committed =
            RemoteCommitted { published, digest, infinite, already: false, replaced: false };
        // What fails from here on does not change what is published.
        let ended = committed
            .to_json()
            .and_then(|json| run(folder.put_committed(json)))
            .and_then(|()| run(folder.end()));
        if let Err(error) = ended {
            let why = "the model is published, but not all of the job is removed";
            committed.published.warnings.push(error.because(why));
        }
        Ok(committed)
    }

    /// The weights files of all parts, which are there, and the model with its digest.
    fn ready(&self, receipts: Vec<PartReceipt>) -> Result<(Written, Buffer, ContentDigest)> {
        let files = self.complete(receipts)?;
        self.check_files(&files)?;
        let (model, digest) = self.final_model(&files)?;
        Ok((files, model, digest))
    }

    /// Publishes the model, unless the job was aborted.
    fn put_model(
        &self,
        folder: &JobFolder,
        model: Buffer,
        files: Vec<PublishedFile>,
    ) -> Result<Published> {
        let note = run(folder.note_commit(hex(&Sha256::digest(&model).into())))?;
        // An abort is noticed up to here. A later one finds the note.
        let put = run(folder.check_there());
        let put = put.and_then(|()| self.publication().put_model(model, files));
        let is_refused =
            |error: &Error| matches!(error.kind(), ErrorKind::Changed | ErrorKind::MissingFile);
        if put.as_ref().is_err_and(is_refused) {
            // A note that stays says no more than that a commit has begun.
            drop(run(folder.remove(&note)));
        }
        put
    }

    fn publication(&self) -> Publication {
        let (options, replaces) = (self.publishing(), self.plan.replaces.clone());
        Publication::planned(&self.store, &self.url, options, replaces)
    }

    /// The receipts in the store, of parts that the job has.
    pub(super) fn stored_receipts(&self) -> Result<Vec<PartReceipt>> {
        let parts = run(self.job_folder().parts())?;
        let known = parts.into_iter().filter(|part| self.parts().contains(part));
        let folder = self.job_folder();
        let texts: Vec<Option<String>> = run(async {
            let asked = known.map(|part| folder.stored_receipt(part));
            stream::iter(asked).buffered(AT_ONCE).try_collect().await
        })?;
        let shown = folder.shown();
        let texts = texts.iter().flatten();
        let receipts = texts.map(|text| PartReceipt::of_stored(text, &shown));
        let receipts = receipts.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        Ok(receipts.filter(|receipt| self.is_mine(receipt)).collect())
    }

    pub(super) fn is_mine(&self, receipt: &PartReceipt) -> bool {
        receipt.job == self.plan.id && self.has_part(receipt.part)
    }

    /// The weights file of each part, and the weights that became infinite in it.
    fn complete(&self, receipts: Vec<PartReceipt>) -> Result<Written> {
        let mut files = BTreeMap::new();
        for receipt in receipts {
            let part = receipt.part;
            if !self.is_mine(&receipt) {
                let reason = format!("the receipt of part {part} is of another job");
                return Err(Error::new(ErrorKind::InvalidArgument, reason));
            }
            let Some(file) = receipt.file else { continue };
            let planned = self.plan.files.get(part);
            if planned.is_none_or(|planned| planned.bytes != file.bytes) {
                let reason = format!("the receipt of part {part} is of a file of another length");
                return Err(Error::new(ErrorKind::InvalidArgument, reason));
            }
            // Of two runs of a part either file will do.
            files.insert(part, (file, receipt.infinite));
        }
        let missing: Vec<_> = self.parts().filter(|part| !files.contains_key(part)).collect();
        if missing.is_empty() {
            return Ok(files);
        }
        let shown: Vec<_> = missing.iter().take(12).map(ToString::to_string).collect();
        let and_others = if missing.len() > shown.len() { " and others" } else { "" };
        let all = self.plan.files.len();
        let reason = match missing.len() {
            1 => format!("part {} of {all} is not written", shown.join(", ")),
            _ => format!("parts {}{and_others} of {all} are not written", shown.join(", ")),
        };
        Err(Error::new(ErrorKind::MissingTensor, reason).with_path(self.job_folder().shown()))
    }

    /// Refuses weights files that are not there in their length: their receipts may be old.
    fn check_files(&self, files: &Written) -> Result<()> {
        let check = |file: &StoredFile| {
            let url = self.url.beside(&file.name);
            let bytes = file.bytes;
            async move {
                let url = url?;
                let found = Object::head(&self.store, url.key()).await?.len();
                if found == bytes {
                    return Ok(());
                }
                let reason = format!("has {found} bytes, and its receipt {bytes}");
                Err(Error::new(ErrorKind::Changed, reason).with_path(url.to_string()))
            }
        };
        run(async {
            let checked = files.values().map(|(file, _)| check(file));
            stream::iter(checked).buffer_unordered(AT_ONCE).try_collect::<()>().await
        })
    }

    /// The encoded model as it is published, and its digest.
    fn final_model(&self, files: &Written) -> Result<(Buffer, ContentDigest)> {
        let folder = self.job_folder();
        let encoded = run(folder.model())?;
        if hex(&Sha256::digest(&encoded).into()) != self.plan.model {
            let reason = "is not the model of the plan: it was changed or cut off. Abort the job";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(folder.shown()));
        }
        let limits = self.plan.source.as_ref().map(JobSource::limits).unwrap_or_default();
        let options = DecodeOptions::new().limits(limits);
        let mut model = ModelProto::decode_with(&Buffer::from(encoded), &options)?;
        let planned = self.plan.files.iter().map(|file| file.name.as_str());
        let stored = planned.zip(files.values().map(|(file, _)| file));
        let by_name: HashMap<&str, &StoredFile> = stored.collect();
        let digest = ContentDigest::of_sums(&model, sums(&by_name))?;
        relocate(&mut model, &by_name)?;
        if self.plan.digests {
            digest.store_in(&mut model);
        }
        Ok((model.encode_to_vec()?.into(), digest))
    }
}

/// What an earlier commit has published at `url`, and whether it is still there.
fn done(store: &Store, folder: &JobFolder, url: &StoreUrl) -> Result<Option<RemoteCommitted>> {
    let Some(committed) = stored(folder, url)? else { return Ok(None) };
    let replaced = is_replaced(store, &committed.published)?;
    Ok(Some(RemoteCommitted { replaced, ..committed }))
}

/// The same for a commit: what the job has done is known where the store does not say what is there
/// now. That is a warning.
fn done_before(
    store: &Store,
    folder: &JobFolder,
    url: &StoreUrl,
) -> Result<Option<RemoteCommitted>> {
    let Some(mut committed) = stored(folder, url)? else { return Ok(None) };
    match is_replaced(store, &committed.published) {
        Ok(replaced) => committed.replaced = replaced,
        Err(error) => {
            let why = "the model is published, but not known to be still there";
            committed.published.warnings.push(error.because(why));
        }
    }
    Ok(Some(committed))
}

/// What the folder of a job says of an earlier commit.
fn stored(folder: &JobFolder, url: &StoreUrl) -> Result<Option<RemoteCommitted>> {
    let Some(text) = run(folder.committed())? else { return Ok(None) };
    let read = RemoteCommitted::from_json(&text, url);
    read.map(Some).map_err(|error| error.with_path(folder.shown()))
}

/// Whether another model is there than the one that was published, or none.
fn is_replaced(store: &Store, published: &Published) -> Result<bool> {
    let Published { url, e_tag, model_bytes, .. } = published;
    match run(Object::head(store, url.key())) {
        Ok(found) => Ok(found.len() != *model_bytes || is_other(found.e_tag(), e_tag.as_deref())),
        Err(error) if error.kind() == ErrorKind::MissingFile => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether these are the tags of two objects. A proxy may leave a tag out, or make it a weak one.
fn is_other<'t>(found: Option<&'t str>, expected: Option<&'t str>) -> bool {
    let strong = |tag: &'t str| tag.strip_prefix("W/").unwrap_or(tag);
    found.zip(expected).is_some_and(|(found, expected)| strong(found) != strong(expected))
}

/// The digest of the bytes of a tensor, by its place in the files that the plan names.
fn sums<'f>(
    files: &HashMap<&'f str, &'f StoredFile>,
) -> impl FnMut(&TensorProto) -> Option<Sum> + use<'f> {
    let mut by_place = HashMap::new();
    for (name, file) in files {
        for range in &file.ranges {
            if let Some(sum) = sum_of(&range.sha256) {
                by_place.insert(((*name).to_owned(), range.offset, range.bytes), sum);
            }
        }
    }
    move |tensor| {
        let place = ExternalData::parse(tensor).ok()?;
        match place.length.unwrap_or(0) {
            0 => Some(Sha256::digest([]).into()),
            length => by_place.get(&(place.location, place.offset, length)).copied(),
        }
    }
}

/// Gives the weights files in `model` the names that they have in the store.
fn relocate(model: &mut ModelProto, files: &HashMap<&str, &StoredFile>) -> Result<()> {
    for (_, tensor) in traversal::iter_mut(model) {
        if !is_external(tensor) {
            continue;
        }
        let place = ExternalData::parse(tensor)?;
        let Some(file) = files.get(place.location.as_str()) else {
            let reason = format!("no part of the job has `{}`", place.location);
            return Err(Error::internal(reason));
        };
        let mut entries = tensor.external_data.iter_mut();
        let is_location =
            |key: &onnx_container::proto::Str| key.to_str().is_ok_and(|key| key == "location");
        if let Some(entry) = entries.find(|entry| entry.key.as_ref().is_some_and(is_location)) {
            entry.value = Some(file.name.as_str().into());
        }
    }
    Ok(())
}

fn published(file: StoredFile) -> PublishedFile {
    let StoredFile { name, bytes, sha256, .. } = file;
    PublishedFile { name, bytes, sha256: sum_of(&sha256), sent: true }
}
