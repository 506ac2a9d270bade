//! [`Job::plan`] and [`Job::rewrite`]: the layout is made, the work divided, and the files are
//! there in their full length, before anybody writes.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::description::{Job, JobFile, PlannedTensor, Publishing};
use super::ended::remove_marked_jobs;
use super::options::{JobOptions, Recast};
use super::source::{RewriteSource, SeenCast};
use super::stamp::{FileStamp, sha256};
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::{flush_folder, random};
use crate::save::{ModelFolder, Prepared, PreparedPiece, Request, SaveTarget, SavedFile};
use crate::util::shares::shares;

/// How many names are tried before something else is wrong.
const MOST_NAMES: usize = 1000;

impl Job {
    /// Plans a save of `container` to `path`, whose weights others write.
    ///
    /// Of weights only type and dimensions are needed, so they may be
    /// [declared](crate::Initializer::declared). The folder of the job is made beside the model,
    /// with the weights files in their full length; nothing else changes. The largest tensor goes
    /// to the part that has the least so far, then the next one.
    ///
    /// # Errors
    /// Those of [`Container::prepare`] and those of a save before it writes: a file that must not
    /// be replaced, too little space; [`ErrorKind::InvalidArgument`](crate::ErrorKind) for what a
    /// job cannot do.
    pub fn plan(
        container: &Container,
        path: impl AsRef<Path>,
        options: impl Into<JobOptions>,
    ) -> Result<Self> {
        let options = options.into();
        if options.externalize.is_some() {
            let reason = "only a rewrite moves tensors out: externalize the container first";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        Self::planned(container, path.as_ref(), &options, None)
    }

    /// Plans a rewrite of the model at `source` to `path`: in another layout, and cast where
    /// `recast` says so. Every part reads what it writes from `source`, so callers need no weights:
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// Those of a load, of [`plan`](Self::plan), and of [`Container::cast`].
    pub fn rewrite(
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        recast: Option<Recast>,
        options: impl Into<JobOptions>,
    ) -> Result<Self> {
        let options = options.into().moving_first();
        refuse_url(source.as_ref())?;
        let (source, container, cast) =
            RewriteSource::new(source.as_ref(), recast, options.externalize, options.source)?;
        let job = Self::planned(&container, path.as_ref(), &options, Some(source))?;
        Ok(Self { cast: SeenCast(cast), ..job })
    }

    fn planned(
        container: &Container,
        path: &Path,
        options: &JobOptions,
        source: Option<RewriteSource>,
    ) -> Result<Self> {
        options.check()?;
        let target = SaveTarget::new(path)?;
        let folder = ModelFolder::of(&target);
        folder.recover(&options.save)?;
        let prepared = container.prepare(target.name.as_str(), options.layout())?;
        check(container, &target, &folder, &prepared, options)?;
        remove_marked_jobs(&target.directory);
        let directory = std::path::absolute(&target.directory);
        let directory = directory.map_err(|error| Error::io(&target.directory, error))?;
        let mut model = Vec::new();
        prepared.encode_model(&mut model)?;
        let mut job = Self {
            id: String::new(),
            directory,
            name: target.name.clone(),
            parts: 0,
            asked_parts: options.parts,
            slices: options.slices,
            files: prepared.files().into_iter().map(JobFile::from).collect(),
            tensors: prepared
                .pieces()
                .filter_map(|piece| tensor(&piece).transpose())
                .collect::<Result<_>>()?,
            source,
            cast: SeenCast::default(),
            model: sha256(&model),
            replaces: FileStamp::of(path)?,
            publishing: Publishing::of(&options.save)?,
        };
        job.divide(options.parts)?;
        job.make_folder()?;
        match job.fill_folder(&prepared, &model) {
            Ok(()) => Ok(job),
            Err(error) => {
                drop(job.remove_folder());
                Err(error)
            }
        }
    }

    /// Gives each tensor its part: the largest first, to the part that has the least.
    fn divide(&mut self, parts: usize) -> Result<()> {
        let lengths = self.tensors.iter().map(PlannedTensor::byte_len);
        let lengths: Vec<_> = lengths.collect::<Result<_>>()?;
        self.parts = parts.min(lengths.len()).max(1);
        let shares = shares(&lengths, self.parts);
        self.tensors.iter_mut().zip(shares).for_each(|(tensor, part)| tensor.part = part);
        Ok(())
    }

    /// Makes the folder of the job under a name that no other has.
    fn make_folder(&mut self) -> Result<()> {
        for _ in 0..MOST_NAMES {
            self.id = random();
            match self.job_folder().create() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map_err(|error| Error::io(self.folder(), error)),
            }
        }
        Err(Error::io(self.folder(), io::ErrorKind::AlreadyExists.into()))
    }

    /// Makes the files of the job: first what says which there are, last what says that all are.
    fn fill_folder(&self, prepared: &Prepared, model: &[u8]) -> Result<()> {
        let folder = self.job_folder();
        let sync = self.publishing.sync;
        folder.put(&folder.json(), self.to_json()?.as_bytes(), sync)?;
        folder.create_parts()?;
        for number in 0..self.files.len() {
            prepared.create_file(number, &self.staged_file(number)?, sync)?;
        }
        folder.put(&folder.model(), model, sync)?;
        if sync { flush_folder(&self.directory, &self.directory) } else { Ok(()) }
    }
}

impl From<SavedFile> for JobFile {
    fn from(file: SavedFile) -> Self {
        Self { name: file.name, bytes: file.bytes }
    }
}

/// The tensor of a piece; none for a header.
fn tensor(piece: &PreparedPiece<'_>) -> Result<Option<PlannedTensor>> {
    let Some(handle) = piece.handle else { return Ok(None) };
    let negative = |_| Error::internal("an initializer with a negative dimension");
    let dims = piece.initializer.dims().iter().map(|length| u64::try_from(*length));
    Ok(Some(PlannedTensor {
        name: handle.name().to_owned(),
        dtype: piece.initializer.dtype(),
        dims: dims.collect::<Result<_, _>>().map_err(negative)?,
        file: piece.file,
        offset: piece.offset,
        part: 0,
    }))
}

/// Refuses what is no path, but the URL of a model in a store, which `onnx-container-store` reads.
fn refuse_url(source: &Path) -> Result<()> {
    let scheme = source.to_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
    let is_plain = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // One letter is a drive of Windows.
    if !scheme.is_some_and(|scheme| scheme.len() > 1 && is_plain(scheme)) {
        return Ok(());
    }
    let reason = "is in a store, and a job in a folder reads its source from a folder: copy it there \
                  first, by `onnx-container pack URL OUT`, or by `onnx_container_store::fetch` and a \
                  save";
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(source))
}

/// Refuses what a save to `target` refuses before it writes.
fn check(
    container: &Container,
    target: &SaveTarget,
    folder: &ModelFolder,
    prepared: &Prepared,
    options: &JobOptions,
) -> Result<()> {
    let mut files = prepared.files();
    files.push(SavedFile::new(target.name.as_str(), prepared.model_len()));
    let request = Request {
        files: &files,
        is_model: true,
        asked: &BTreeSet::new(),
        overwrite: options.save.overwrite,
        container,
        protected: &options.save.protected,
    };
    folder.check_recovered(&request, &options.save)?;
    target.check_space(files.iter().fold(0, |sum, file| file.bytes.saturating_add(sum)))
}
