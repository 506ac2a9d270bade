//! [`Job::commit`]: all parts are there, and the model is put in place.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::begun;
use super::committed::{Committed, gone, marked_in};
use super::description::Job;
use super::disk::{kind_at, read_text};
use super::folder::JobFolder;
use super::mark::Mark;
use super::receipt::{Receipt, WrittenTensor, part_of};
use super::slice::{TensorSlice, check_cover};
use super::staged::digests;
use super::stamp::{FileStamp, sha256};
use crate::buffer::{Buffer, MmapChoice};
use crate::buffers::FileIdentity;
use crate::digest::ContentDigest;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::directory_of;
use crate::proto::Message;
use crate::save::{
    Done, EncodedFile, EncodedSave, Existing, ModelFolder, SaveTarget, SavedFile, file_ids,
    give_access_of, is_copy,
};
use crate::util::file_id;

const NOT_REMOVED: &str = "the model is in place, but not all of the job is removed";
/// What is said where the model to be replaced is another one, and a commit was killed before.
const HAD_BEGUN: &str = "a commit of this job was killed before, and may have put its model there \
                         first: where it did, `job abort` ends the job";

impl Job {
    /// Puts the model and its weights files in place, with the receipts in the job's folder, and
    /// removes that folder.
    ///
    /// The files that are there are replaced as by a save: all of them or none, whenever the
    /// process ends. A commit that was killed is done again. The model that was there when the job
    /// was planned is replaced, and no other. Where an earlier call had committed the job, the
    /// weights files say so ([`Committed::already`]), on Linux and as long as they and the model
    /// are what that call put in place.
    ///
    /// # Errors
    /// One error for all tensors that are not written, or written twice, before anything is
    /// changed ([`ErrorKind::MissingTensor`], [`ErrorKind::InvalidArgument`]);
    /// [`ErrorKind::Changed`] where the model was replaced after the job was planned, or a part is
    /// being written; [`ErrorKind::MissingFile`] where the job was aborted, and where it cannot be
    /// told whether it was or was committed; those of [`save_encoded`](crate::save::save_encoded).
    pub fn commit(&self) -> Result<Committed> {
        self.commit_locked(|| self.receipts())
    }

    /// As [`commit`](Self::commit), with the `receipts` that an engine has carried.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); [`ErrorKind::Changed`] for a receipt that is not in the
    /// folder of the job, because its writer has begun again.
    pub fn commit_receipts(
        &self,
        receipts: impl IntoIterator<Item = Receipt>,
    ) -> Result<Committed> {
        self.commit_locked(|| self.carried(receipts.into_iter().collect()))
    }

    /// Commits with the receipts of `given`, which is called when nobody writes any more, or finds
    /// what an earlier call has put in place.
    fn commit_locked(&self, given: impl FnOnce() -> Result<Vec<Receipt>>) -> Result<Committed> {
        match self.commit_open(given) {
            // It may have ended meanwhile.
            Err(_) if kind_at(self.job_folder().path())?.is_none() => self.committed_before(),
            ended => ended,
        }
    }

    fn commit_open(&self, given: impl FnOnce() -> Result<Vec<Receipt>>) -> Result<Committed> {
        let folder = self.job_folder();
        folder.check()?;
        let lock = folder.lock_to_commit()?;
        let receipts = given()?;
        let receipts = self.of_this_job(receipts)?;
        self.check_complete(&receipts)?;
        self.check_begun(&receipts)?;
        let (model, digest) = self.final_model(&receipts)?;
        // A call that was killed may have put all in place.
        let already = self.is_committed()?;
        let mut committed = self.publish(&model, digest)?;
        committed.already = already;
        let infinite = receipts.iter().flat_map(|receipt| receipt.infinite.iter().cloned());
        committed.infinite = infinite.collect::<BTreeSet<_>>().into_iter().collect();
        // From the mark on no process writes, so the lock may go before the folder, as it must
        // where a folder with an open file cannot be renamed.
        drop(lock);
        // Another process may have been faster.
        if let Err(error) = self.remove_folder()
            && !folder.is_removed()
        {
            committed.warnings.push(error.because(NOT_REMOVED));
        }
        Ok(committed)
    }

    /// What a commit has put in place, of a job that has ended, and whether it is
    /// [still there](Committed::replaced). `None` where the job goes on or was aborted, and where
    /// it cannot be told: the weights files say it, on Linux.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn committed(&self) -> Result<Option<Committed>> {
        if kind_at(self.job_folder().path())?.is_some() {
            return Ok(None);
        }
        self.marked()
    }

    /// What an earlier call has put in place, as its marks say, whether it is still there or not.
    pub(super) fn marked(&self) -> Result<Option<Committed>> {
        let files = self.files.iter().map(|file| file.name.clone());
        Committed::found(&self.directory, &self.name, files, &self.id)
    }

    /// The same, if all of it is there.
    pub(super) fn found_by_mark(&self) -> Result<Option<Committed>> {
        Ok(self.marked()?.filter(|found| !found.replaced))
    }

    /// What an earlier call has put in place, of a job whose folder is gone.
    fn committed_before(&self) -> Result<Committed> {
        match self.marked()? {
            Some(found) => without_left(found, &self.job_folder()).unless_replaced(&self.path()),
            None => Err(gone(&self.path(), self.untouched()?)),
        }
    }

    /// `error`; where a file is missing because the folder is gone, how the job has ended, if that
    /// can be read.
    pub(super) fn unless_gone(&self, error: Error) -> Error {
        let is_gone = matches!(kind_at(self.job_folder().path()), Ok(None));
        if error.kind() != ErrorKind::MissingFile || !is_gone {
            return error;
        }
        match self.marked() {
            Ok(Some(found)) => match found.unless_replaced(&self.path()) {
                Ok(_) => gone(&self.path(), Some("committed")),
                Err(replaced) => replaced,
            },
            Ok(None) => self.untouched().map_or(error, |how| gone(&self.path(), how)),
            Err(_) => error,
        }
    }

    /// Whether a commit that was killed has put the model in place: as links of the job's files, or
    /// as copies.
    pub(super) fn has_published(&self) -> bool {
        let receipts = || self.of_this_job(self.receipts()?);
        let model = || Ok(self.final_model(&receipts()?)?.0);
        self.is_published() || model().and_then(|model| self.is_in_place(&model)).unwrap_or(false)
    }

    /// How a job has ended of which nothing is in place; `None` where that is not known.
    fn untouched(&self) -> Result<Option<&'static str>> {
        let path = self.path();
        if kind_at(&self.directory)?.is_none() || FileStamp::of(&path)? != self.replaces {
            return Ok(None);
        }
        if self.replaces.is_none() {
            return Ok(Some("aborted, its folder was moved, or its model was removed since"));
        }
        // A commit writes nothing where all is there already.
        let is_planned = self.is_model_planned()?;
        let how = "aborted, its folder was moved, or its old model was put back since: the model \
                   is the one that it was to replace";
        Ok((is_planned == Some(false)).then_some(how))
    }

    /// `receipts`, if they are those in the folder.
    fn carried(&self, receipts: Vec<Receipt>) -> Result<Vec<Receipt>> {
        for receipt in receipts.iter().filter(|it| !it.tensors.is_empty()) {
            // What was written again since has another receipt, or none yet.
            if self.stored(&receipt.writer)?.as_ref() != Some(receipt) {
                let reason = format!(
                    "the receipt of {} is not the one in the folder of the job: it was written again",
                    receipt.writer
                );
                return Err(self.changed(reason));
            }
        }
        Ok(receipts)
    }

    /// The receipts in the folder.
    pub(super) fn receipts(&self) -> Result<Vec<Receipt>> {
        let writers = self.job_folder().writers()?;
        let receipts = writers.iter().map(|writer| self.stored(writer).map(|it| it.into_iter()));
        Ok(receipts.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// `receipts`, each writer's once, if all are of this job.
    pub(super) fn of_this_job(
        &self,
        receipts: impl IntoIterator<Item = Receipt>,
    ) -> Result<Vec<Receipt>> {
        let mut by_writer = std::collections::BTreeMap::new();
        for receipt in receipts {
            let is_part = |part| self.has_part(part);
            if receipt.job != self.id || !part_of(&receipt.writer).is_none_or(is_part) {
                let reason = format!("the receipt of {} is of another job", receipt.writer);
                return Err(Error::new(ErrorKind::InvalidArgument, reason));
            }
            by_writer.insert(receipt.writer.clone(), receipt);
        }
        Ok(by_writer.into_values().collect())
    }

    /// Refuses a job whose tensors are not all written, each element once.
    pub(super) fn check_complete(&self, receipts: &[Receipt]) -> Result<()> {
        let mut written: HashMap<&str, Vec<Option<&TensorSlice>>> = HashMap::new();
        for tensor in receipts.iter().flat_map(|receipt| &receipt.tensors) {
            written.entry(&tensor.name).or_default().push(tensor.slice.as_ref());
        }
        let mut errors = Errors::default();
        for tensor in &self.tensors {
            let slices = written.remove(tensor.name.as_str()).unwrap_or_default();
            let whole = TensorSlice::whole(&tensor.dims);
            let mut slices: Vec<_> =
                slices.into_iter().map(|slice| slice.unwrap_or(&whole)).collect();
            let covered = match slices.is_empty() {
                true => Err(Error::new(ErrorKind::MissingTensor, self.unwritten(tensor.part))),
                false => check_cover(&mut slices, &tensor.dims),
            };
            if let Err(error) = covered {
                errors.push(error.with_tensor(tensor.name.as_str()));
            }
        }
        if let Some(name) = written.keys().next() {
            let reason = "a receipt has a tensor that the job has not";
            errors.push(Error::new(ErrorKind::InvalidArgument, reason).with_tensor(*name));
        }
        errors.join().map_or(Ok(()), Err)
    }

    /// Refuses where a run has begun to write slices that are in no receipt of its writer: others
    /// have written all elements, and their bytes may be gone there.
    pub(super) fn check_begun(&self, receipts: &[Receipt]) -> Result<()> {
        let folder = self.job_folder();
        for writer in folder.slice_writers()? {
            let text = read_text(&folder.begun(&writer), false)?;
            let receipt = receipts.iter().find(|receipt| receipt.writer == writer);
            let written = receipt.into_iter().flat_map(|receipt| &receipt.tensors);
            let ended: HashSet<_> = written.map(|it| (&it.name, &it.slice)).collect();
            for line in begun::lines(&text) {
                let begun: WrittenTensor = serde_json::from_str(line).map_err(|error| {
                    self.changed(format!("what {writer} has begun cannot be read: {error}"))
                })?;
                if !ended.contains(&(&begun.name, &begun.slice)) {
                    let reason = self.unended(&writer, receipt.is_some())?;
                    return Err(self.changed(reason).with_tensor(begun.name));
                }
            }
        }
        Ok(())
    }

    /// Why what `writer` has begun is not committed.
    fn unended(&self, writer: &str, is_given: bool) -> Result<String> {
        Ok(match (is_given, self.stored(writer)?) {
            (false, Some(_)) => {
                format!("the receipt of {writer} is in the folder, and was not given")
            }
            (false, None) => format!(
                "{writer} began to write elements that others have written too, and did not end: \
                 abort the job and plan it again"
            ),
            (true, _) => format!(
                "an earlier run of {writer} has written other slices, perhaps over those of other \
                 writers: abort the job and plan it again"
            ),
        })
    }

    fn changed(&self, reason: String) -> Error {
        Error::new(ErrorKind::Changed, reason).with_path(self.folder())
    }

    fn unwritten(&self, part: usize) -> String {
        match self.parts().len() {
            0 | 1 => "nobody has written it".to_owned(),
            parts => format!("part {part} of {parts} is not written"),
        }
    }

    /// The encoded model as it is put in place, and its digest.
    fn final_model(&self, receipts: &[Receipt]) -> Result<(Buffer, Option<ContentDigest>)> {
        let path = self.job_folder().model();
        let encoded = MmapChoice::never().buffer(&path)?;
        if sha256(&encoded) != self.model {
            let reason = "is not the model of the plan: it was changed or cut off. Abort the job";
            return Err(Error::new(ErrorKind::Changed, reason).with_path(path));
        }
        let mut model = self.decoded(&encoded).map_err(|error| error.with_path(path))?;
        let wanted = self.publishing.digests;
        let Some(digests) = digests(self, &model, receipts, wanted)? else {
            return Ok((encoded, None));
        };
        let encoded = match wanted {
            true => {
                digests.store_in(&mut model);
                model.encode_to_vec()?.into()
            }
            false => encoded,
        };
        Ok((encoded, Some(digests.named(&model))))
    }

    /// Puts the files in place.
    fn publish(&self, model: &Buffer, digest: Option<ContentDigest>) -> Result<Committed> {
        let target = SaveTarget::new(&self.path())?;
        let options = self.publishing.options();
        // A commit that was killed may have come so far that this completes it.
        let recovered = ModelFolder::of(&target).recover(&options)?;
        let (job, model_sum) = (self.id.clone(), sha256(model));
        let mark = Mark { job, model: model_sum, digest: digest.clone() };
        if self.is_in_place(model)? {
            // Its files are those of the job where a commit has linked them.
            self.job_folder().mark_commit(self.publishing.sync)?;
            self.mark_files(&mark);
            return Ok(self.put_in_place(model, digest, recovered));
        }
        let has_begun = self.job_folder().is_committing()?;
        let unchanged = || {
            let replaced = FileStamp::check(&self.path(), self.replaces);
            replaced.map_err(|error| if has_begun { error.and(HAD_BEGUN) } else { error })?;
            let source = self.source.as_ref();
            source.map_or(Ok(()), |source| source.check_in(&self.directory))
        };
        unchanged()?;
        let files = (0..self.files.len()).map(|number| self.staged(number, &mark));
        let files: Vec<_> = files.collect::<Result<_>>()?;
        let encoded = EncodedFile::new(self.name.as_str(), [model.clone()]);
        let save = EncodedSave::new(target, &encoded, &files, &options)?;
        let save = save.reading(Vec::new(), &unchanged);
        let prepared = save.prepare()?;
        let is_first = self.job_folder().mark_commit(self.publishing.sync)?;
        let Done { removed, left_behind, warnings, .. } = save.write().inspect_err(|_| {
            // An earlier commit may have left links of the files anywhere.
            if is_first && self.is_unlinked() {
                // Where the mark stays, writers are refused for nothing.
                drop(self.job_folder().unmark_commit());
            }
        })?;
        let warnings = [recovered, prepared, warnings].concat();
        Ok(Committed { removed, left_behind, ..self.put_in_place(model, digest, warnings) })
    }

    fn put_in_place(
        &self,
        model: &Buffer,
        digest: Option<ContentDigest>,
        warnings: Vec<Error>,
    ) -> Committed {
        let mut files = self.files();
        files.push(SavedFile::new(self.name.as_str(), model.len() as u64));
        Committed { warnings, ..Committed::new(files, digest) }
    }

    /// Leaves the mark of this job on the weights files in place, which are equal to its own. One
    /// that has other names may be another model's, so it is left alone unless it is the job's.
    fn mark_files(&self, mark: &Mark) {
        for (number, file) in self.files.iter().enumerate() {
            let path = self.directory.join(&file.name);
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let is_alone =
                metadata.is_file() && file_id::name_count_at(&path, &metadata) == Some(1);
            if (is_alone || self.is_linked(number))
                && let Ok(file) = File::open(path)
            {
                mark.put(&file);
            }
        }
    }

    /// Whether no weights file of the job has another name: no model, and no save that was killed,
    /// has one of them.
    fn is_unlinked(&self) -> bool {
        let alone = |number| {
            let path = self.staged_file(number).ok()?;
            let metadata = path.symlink_metadata().ok()?;
            Some(file_id::name_count_at(&path, &metadata) == Some(1))
        };
        (0..self.files.len()).all(|number| alone(number).unwrap_or(false))
    }

    /// Whether the files are in place already: a commit of this job was killed after that.
    fn is_in_place(&self, model: &Buffer) -> Result<bool> {
        if !is_copy(&self.path(), &**model, model.len() as u64) {
            return Ok(false);
        }
        for (number, file) in self.files.iter().enumerate() {
            let (staged, there) = (self.staged_file(number)?, self.directory.join(&file.name));
            let opened = File::open(&staged).map_err(|error| Error::io(&staged, error))?;
            if file_ids(&staged)? != file_ids(&there)? && !is_copy(&there, opened, file.bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The weights file of this index, as one that exists. It gets the access to what it replaces,
    /// and the mark of the job.
    fn staged(&self, number: usize, mark: &Mark) -> Result<EncodedFile> {
        let path = self.staged_file(number)?;
        let fail = |error| Error::io(&path, error);
        let file: File = self.open_file(number)?;
        let name = self.files.get(number).map(|file| file.name.clone()).unwrap_or_default();
        // First, since an attribute needs the permission to write.
        mark.put(&file);
        give_access_of(&[self.directory.join(&name), self.path()], &file).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        let existing = Existing {
            identity: FileIdentity::of(&file, &metadata),
            modified: None,
            len: metadata.len(),
            may_link: true,
            path: path.clone(),
        };
        Ok(EncodedFile::existing(name, existing).replace_unneeded(self.publishing.named))
    }
}

/// As [`Job::commit`], for the job whose folder is at `folder`, also one that an earlier call has
/// committed, so that the folder is gone.
///
/// # Errors
/// Those of [`Job::open`] and [`Job::commit`].
pub fn commit_job(folder: impl AsRef<Path>) -> Result<Committed> {
    let folder = folder.as_ref();
    match Job::open(folder) {
        Ok(job) => job.commit(),
        // Why it cannot be opened is what a user has to know.
        Err(error) => match committed_beside(&JobFolder::at(folder)) {
            Ok(Some((model, found))) => {
                without_left(found, &JobFolder::at(folder)).unless_replaced(&model)
            }
            _ => Err(error),
        },
    }
}

/// What an earlier commit has put in place, without what it has left of the job, whose files have
/// the weights files as second names: readers refuse a file that has two.
fn without_left(mut found: Committed, folder: &JobFolder) -> Committed {
    if let Err(error) = folder.remove_left() {
        found.warnings.push(error.because(NOT_REMOVED));
    }
    found
}

/// As [`Job::committed`], for the job whose folder was at `folder`, by the weights files of the
/// model there, and by those of the job that are still beside it.
///
/// # Errors
/// Those of the disk.
pub fn committed_job(folder: impl AsRef<Path>) -> Result<Option<Committed>> {
    let found = committed_beside(&JobFolder::at(folder.as_ref()))?;
    Ok(found.map(|(_, committed)| committed))
}

/// The same, with the place of the model.
fn committed_beside(folder: &JobFolder) -> Result<Option<(PathBuf, Committed)>> {
    let Some((name, id)) = folder.names().filter(|_| folder.check_there().is_err()) else {
        return Ok(None);
    };
    let directory = directory_of(folder.path());
    let path = directory.join(name);
    let located =
        SaveTarget::new(&path).and_then(|target| ModelFolder::of(&target).locations_of(&path));
    // What is no model there names no file.
    let mut files = located.unwrap_or_default();
    files.extend(marked_in(&directory, id)?);
    Ok(Committed::found(&directory, name, files, id)?.map(|committed| (path, committed)))
}
