//! One save: planned and checked before the first byte is written, then staged, written and
//! published.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::directory_of;
use crate::save::gather::attached::refuse_attached;
use crate::save::gather::content::Content;
use crate::save::gather::kept::{KeptFile, KeptFiles};
use crate::save::gather::readers;
use crate::save::options::SaveOptions;
use crate::save::options::statistics::{Statistics, timed};
use crate::save::options::weight_files::WeightFiles;
use crate::save::plan::{Plan, PlannedFile};
use crate::save::prepared::PlannedFiles;
use crate::save::saved::Saved;
use crate::save::target::folder::{ModelFolder, Request, files_read_by};
use crate::save::target::old_files::OldFiles;
use crate::save::target::publish::{NewFile, Published, Staging};
use crate::save::target::{SaveTarget, SavedFile};
use crate::save::unchanged::SameFiles;
use crate::save::write::holes::hole_bytes;
use crate::save::write::meter::{Meter, Metered};
use crate::save::write::stage_files;
use crate::util::byte_size::ByteSize;
use crate::util::names::fold_case;
use crate::util::retry::{exists, retried};

/// One save: its plan and its result, complete before anything is written.
pub(super) struct PlannedSave<'c> {
    content: &'c Content<'c>,
    options: &'c SaveOptions,
    target: SaveTarget,
    folder: ModelFolder,
    kept: KeptFiles,
    plan: Plan<'c>,
    /// The weights files that the caller named.
    asked: BTreeSet<String>,
    /// The files of tensors that were not loaded.
    not_loaded: BTreeSet<String>,
    saved: Saved,
}

impl<'c> PlannedSave<'c> {
    /// Plans the save of `content` to `target`. Nothing is written.
    pub(super) fn new(
        content: &'c Content<'_>,
        target: SaveTarget,
        options: &'c SaveOptions,
    ) -> Result<Self> {
        let weights = content.weights_to_save(options)?;
        weights.refuse_declared()?;
        let kept = KeptFiles::new(&weights, &target, options)?;
        let planned = PlannedFiles::new(content, weights, &kept, &target.name, options)?;
        let PlannedFiles { plan, model, model_len, refused, statistics, .. } = planned;
        let PlannedFiles { deduplicated, unused, not_loaded, .. } = planned;
        let mut files: Vec<_> = plan.files.iter().map(PlannedFile::to_saved).collect();
        files.push(SavedFile::new(target.name.as_str(), model_len));
        let saved = Saved {
            unchanged: false,
            bytes: files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
            files,
            kept: kept.files.iter().map(KeptFile::to_saved).collect(),
            unreferenced_bytes: kept.unreferenced_bytes(),
            deduplicated,
            statistics,
            inlined: content.inlined.clone(),
            free_bytes: target.free_bytes(),
            unused,
            removed: Vec::new(),
            left_behind: Vec::new(),
            still_needed: Vec::new(),
            warnings: Vec::new(),
            model: Arc::new(model),
        };
        let (folder, asked) = (ModelFolder::of(&target), asked(&plan, options));
        let mut save =
            Self { content, options, target, folder, kept, plan, asked, not_loaded, saved };
        save.saved.warnings = save.warnings(refused);
        match save.old_files() {
            Ok(old) => {
                (save.saved.left_behind, save.saved.still_needed) = (old.left, old.still_needed);
            }
            Err(error) => save.saved.warnings.push(error),
        }
        // Why nothing is removed is a warning already: the files left behind are not known either.
        save.note_removed(&save.superseded().unwrap_or_default());
        Ok(save)
    }

    /// What the save has written, or would write.
    pub(super) fn into_saved(self) -> Saved {
        self.saved
    }

    /// The result, to be completed.
    pub(super) fn saved_mut(&mut self) -> &mut Saved {
        &mut self.saved
    }

    /// Refuses to replace what must not be replaced, and a model file that is too long.
    pub(super) fn check(&self) -> Result<()> {
        self.check_files()?;
        self.folder.check(&self.request(), self.options)
    }

    /// As [`check`](Self::check), after completing or undoing a save that was killed where that
    /// helps, which is a warning; and refuses too little space.
    pub(super) fn check_to_write(&mut self) -> Result<()> {
        self.check_files()?;
        let recovered = self.folder.check_recovered(&self.request(), self.options)?;
        self.saved.warnings.extend(recovered);
        let holes = self.plan.files.iter().map(hole_bytes);
        let holes = holes.fold(0, u64::saturating_add);
        self.target.check_space(self.saved.bytes.saturating_sub(holes))
    }

    /// Whether all files are there as they would be written: then nothing is to be done.
    ///
    /// # Errors
    /// Those of the locks, and of the flush of kept files.
    pub(super) fn is_unchanged(&mut self) -> Result<bool> {
        let Some(same) = self.same_files() else { return Ok(false) };
        let mut folders = self.kept.folders();
        folders.push(self.target.directory.clone());
        let _locks = self.options.lock_all(&folders)?;
        if self.check_locked().is_err() || !same.are_still() {
            return Ok(false);
        }
        if self.options.sync {
            self.kept.flush()?;
            same.flush();
        }
        self.note_unchanged();
        Ok(true)
    }

    /// As [`is_unchanged`](Self::is_unchanged), for a dry run.
    pub(super) fn would_be_unchanged(&mut self) {
        if self.same_files().is_some() {
            self.note_unchanged();
        }
    }

    /// The files that are there, where they have the bytes that would be written, and none would be
    /// removed. No weights are made to find out.
    fn same_files(&self) -> Option<SameFiles> {
        let makes_weights = self.content.container.iter().any(|(_, it)| it.as_buffer().is_none());
        if makes_weights || !self.saved.removed.is_empty() {
            return None;
        }
        let model = (self.model_len(), &*self.saved.model);
        SameFiles::find(&self.target.path(), model, &self.plan.files)
    }

    fn note_unchanged(&mut self) {
        let Saved { unchanged, statistics, .. } = &mut self.saved;
        let Statistics { copied_bytes, kept_bytes, .. } = statistics;
        *kept_bytes = kept_bytes.saturating_add(*copied_bytes);
        (*unchanged, *copied_bytes) = (true, 0);
    }

    /// Stages the files, writes them and puts them in place.
    pub(super) fn write(&mut self) -> Result<()> {
        let meter = Meter::new(self.options, self.saved.bytes);
        meter.step()?;
        let mut staging = Staging::new(&self.target.directory, &self.target.name, self.options)?;
        match self.stage(&mut staging, &meter) {
            Ok(()) => self.publish(staging, &meter),
            Err(error) => Err(staging.discard(error)),
        }
    }

    /// Whether a packed file that was to be kept has since been removed or changed.
    pub(super) fn lost_its_file(&self) -> bool {
        self.options.weight_files == WeightFiles::Packed && self.kept.check().is_err()
    }

    /// Writes the weights and the model beside it, and waits until all files are on the disk where
    /// that was requested.
    fn stage(&self, staging: &mut Staging, meter: &Meter<'_>) -> Result<()> {
        stage_files(staging, &self.plan.files, self.options, meter)?;
        self.stage_model(staging, meter)?;
        staging.flush()?;
        if self.options.sync {
            timed(&mut staging.flushing, || self.kept.flush())?;
        }
        Ok(())
    }

    fn stage_model(&self, staging: &mut Staging, meter: &Meter<'_>) -> Result<()> {
        staging.list([self.target.name.as_str()])?;
        let NewFile { file, path, .. } = staging.create(&self.target.name)?;
        timed(&mut staging.writing, || {
            let result = self.saved.model.encode(&mut Metered::new(&file, meter));
            result.map_err(|e| meter.explain(e).with_path(path))
        })
    }

    /// Puts the staged files in place, unless what they replace has changed since it was checked.
    fn publish(&mut self, staging: Staging, meter: &Meter<'_>) -> Result<()> {
        let Staging { producing, writing, flushing, .. } = staging;
        let mut done = Statistics { producing, writing, flushing, ..self.saved.statistics };
        let Published { removed, warnings, locks } = timed(&mut done.publishing, || {
            let locked = staging.lock(self.kept.folders())?;
            if let Err(error) = self.check_locked().and_then(|()| meter.step()) {
                return Err(locked.discard(error));
            }
            // What cannot be read may need the files, so they stay.
            let (removed, unsure) = match self.superseded() {
                Ok(removed) => (removed, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            let mut published = locked.publish(removed)?;
            published.warnings.extend(unsure);
            Ok(published)
        })?;
        drop(locks);
        self.saved.statistics = done;
        self.note_removed(&removed);
        self.saved.warnings.extend(warnings);
        Ok(())
    }

    fn check_locked(&self) -> Result<()> {
        self.kept.check()?;
        self.folder.check_locked(&self.request())
    }

    fn check_files(&self) -> Result<()> {
        let Self { content, target, saved, .. } = self;
        refuse_attached(&content.container, &target.directory, &saved.files)?;
        self.check_kept()?;
        self.check_len()
    }

    /// What this save requests of the target's folder.
    fn request(&self) -> Request<'_> {
        Request {
            files: &self.saved.files,
            is_model: true,
            asked: &self.asked,
            overwrite: self.options.overwrite,
            container: &self.content.container,
            protected: &self.options.protected,
        }
    }

    /// The locations of the files that the saved model refers to and that this save does not write.
    fn stays(&self) -> impl Iterator<Item = &String> {
        self.kept.files.iter().map(|file| &file.location).chain(&self.not_loaded)
    }

    /// Refuses to replace a file that the saved model refers to without writing it.
    fn check_kept(&self) -> Result<()> {
        let stays: HashSet<_> = self.stays().map(|location| fold_case(location)).collect();
        let errors = self.saved.files.iter().filter(|file| stays.contains(&fold_case(&file.name)));
        let errors = errors.map(|file| {
            let reason = "the saved model refers to weights in this file: it is not replaced";
            let path = self.target.directory.join(&file.name);
            Error::new(ErrorKind::AlreadyExists, reason).with_path(path)
        });
        Error::join(errors).map_or(Ok(()), Err)
    }

    fn check_len(&self) -> Result<()> {
        let len = self.model_len();
        if self.options.max_model_bytes.is_none_or(|max| len <= max) {
            return Ok(());
        }
        let reason = format!("the model file would have {len} bytes ({})", ByteSize(len));
        Err(Error::new(ErrorKind::ModelTooLarge, reason).with_path(self.target.path()))
    }

    /// The length of the model file in bytes.
    fn model_len(&self) -> u64 {
        self.saved.files.last().map_or(0, |model| model.bytes)
    }

    /// Problems that do not prevent the save, for [`Saved::warnings`]: those of the tensors that
    /// readers refuse, and all others.
    fn warnings(&self, refused: Vec<Error>) -> Vec<Error> {
        let mut warnings = self.missing_files();
        warnings.extend(refused);
        warnings.extend(readers::versions(&self.content.shared_model()));
        warnings.extend(readers::malformed(&self.content.shared_model()));
        warnings.extend(self.content.inlined.iter().flat_map(|inlined| inlined.warnings.clone()));
        warnings.extend(readers::files(&self.target, self.stays()));
        warnings.extend(readers::model_file(&self.target, self.model_len()));
        warnings
    }

    /// The files that the saved model still refers to, that were not loaded, and that are not in
    /// the target's folder.
    fn missing_files(&self) -> Vec<Error> {
        let paths = self.not_loaded.iter().map(|location| self.target.directory.join(location));
        let missing = paths.filter(|path| !exists(path));
        let reason = "the saved model needs this file, which was not loaded and is not there";
        missing.map(|path| Error::new(ErrorKind::MissingFile, reason).with_path(path)).collect()
    }

    /// Files of the replaced model that the new model does not need.
    fn old_files(&self) -> Result<OldFiles> {
        let needed = self.needed();
        self.folder.old_files(|name| needed.has(name))
    }

    /// The names of those that the save removes, where that was asked for.
    ///
    /// # Errors
    /// Why a neighbour cannot be read, which may need them.
    fn superseded(&self) -> Result<Vec<String>> {
        if !self.options.removes_old_files() {
            return Ok(Vec::new());
        }
        let needed = self.needed();
        // Another model in another folder may have its bytes in them by a link, and keep it.
        let here = real_folder(&self.target.path());
        let is_elsewhere = |path: &PathBuf| real_folder(path) != here;
        let read = files_read_by(&self.content.container).into_iter().filter(is_elsewhere);
        let protected: Vec<_> = self.options.protected.iter().cloned().chain(read).collect();
        let any_name = self.options.remove_left_behind;
        self.folder.superseded(|name| needed.has(name), &protected, any_name)
    }

    /// Notes that the files of the names `removed` are removed, and not left behind.
    fn note_removed(&mut self, removed: &[String]) {
        let now = removed.iter().map(|name| self.target.directory.join(name)).collect();
        let Saved { removed, left_behind, .. } = &mut self.saved;
        // What was planned to be removed is left behind where it is not removed after all.
        left_behind.append(removed);
        *removed = now;
        left_behind.retain(|path| !removed.contains(path));
    }

    /// The files that the new model needs.
    fn needed(&self) -> Needed<'_> {
        let mut needed = Needed::new(&self.target, self.stays());
        needed.names.extend(self.saved.files.iter().map(|file| fold_case(&file.name)));
        needed
    }
}

/// The files that a new model needs.
pub(super) struct Needed<'s> {
    target: &'s SaveTarget,
    /// In folded case.
    names: HashSet<String>,
    /// The real paths of those that stay: another name may be a link to one of them.
    real: HashSet<PathBuf>,
}

impl<'s> Needed<'s> {
    /// The files of the `names`, which stay in the folder of `target`.
    pub(super) fn new<'n>(target: &'s SaveTarget, names: impl Iterator<Item = &'n String>) -> Self {
        let (mut folded, mut real) = (HashSet::new(), HashSet::new());
        for name in names {
            folded.insert(fold_case(name));
            real.extend(real_path(target, name));
        }
        Self { target, names: folded, real }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let is_real = || real_path(self.target, name).is_some_and(|path| self.real.contains(&path));
        self.names.contains(&fold_case(name)) || is_real()
    }
}

/// The real path of the folder of the file at `path`.
fn real_folder(path: &Path) -> Option<PathBuf> {
    retried(|| directory_of(path).canonicalize()).ok()
}

/// The real path of the file `name` in the folder of `target`, where it is there.
fn real_path(target: &SaveTarget, name: &str) -> Option<PathBuf> {
    retried(|| target.directory.join(name).canonicalize()).ok()
}

/// The weights files of `plan` that the caller named, or gave the name that shards have theirs
/// from.
fn asked(plan: &Plan<'_>, options: &SaveOptions) -> BTreeSet<String> {
    match (&options.data_name, options.weight_files) {
        (Some(_), WeightFiles::Sharded { .. } | WeightFiles::Balanced { .. }) => {
            plan.files.iter().map(|file| file.name.clone()).collect()
        }
        (asked, _) => asked.iter().cloned().collect(),
    }
}
