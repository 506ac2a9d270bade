//! The digests that are stored with a model, and where the bytes of its tensors are on disk: noted
//! before a load gives the tensors handles, and compared with what was loaded.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::container::Container;
use crate::container::part::Share;
use crate::digest::{self, Compared, External, Origin, Stated, Stored};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, ExternalData, is_external};
use crate::files::file_source::FilesFrom;
use crate::graph::traversal;
use crate::load::options::{LoadOptions, VerifyDigests};
use crate::proto::{ModelProto, TensorProto};

/// What a model was before it was loaded.
pub(crate) struct Origins {
    stored: Stored,
    /// What is stated about whole files.
    stated: Stated,
    /// Where these files are, or why that cannot be opened.
    from: Result<Option<FilesFrom>>,
    /// The file and the range of each tensor, in graph order. That of an inline one has no path: it
    /// is that of the model.
    places: Vec<Origin>,
    /// The length of the model in bytes, if it is known.
    len: Option<u64>,
}

impl Origins {
    /// Those of `model` as [`of`](Self::of) has them, where `options` ask for a comparison with
    /// what is stored.
    pub(super) fn to_verify(
        model: &ModelProto,
        options: &LoadOptions,
        bytes: Option<&Buffer>,
    ) -> Option<Self> {
        if options.verify_digests == VerifyDigests::Never {
            return None;
        }
        let said = Self::said(model, options, bytes);
        let has_any = !said.0.is_empty() || !said.1.is_empty();
        let is_wanted = has_any || options.verify_digests == VerifyDigests::Always;
        is_wanted.then(|| Self::with(said, model, options, bytes))
    }

    /// Those of `model`, which was decoded from `bytes`, if these are at hand.
    pub(crate) fn of(model: &ModelProto, options: &LoadOptions, bytes: Option<&Buffer>) -> Self {
        Self::with(Self::said(model, options, bytes), model, options, bytes)
    }

    /// The digests that are stored with `model`, and what is stated about whole files.
    fn said(model: &ModelProto, options: &LoadOptions, bytes: Option<&Buffer>) -> (Stored, Stated) {
        let may_be_links = options.source.is_none();
        let folder = folder_of(options);
        let stated = Stated::of(model, (folder.as_deref(), may_be_links), &options.files);
        (Stored::of(model), stated.with_model(options.model_path.as_deref(), bytes))
    }

    fn with(
        (stored, stated): (Stored, Stated),
        model: &ModelProto,
        options: &LoadOptions,
        bytes: Option<&Buffer>,
    ) -> Self {
        let folder = folder_of(options);
        let origin = |tensor: &TensorProto| match is_external(tensor) {
            true => in_file(tensor, folder.as_deref()),
            false => (None, bytes.and_then(|bytes| within(bytes, tensor))),
        };
        let places = traversal::iter(model).map(|(_, tensor)| origin(tensor)).collect();
        let len = bytes.map(|bytes| bytes.len() as u64);
        Self { stored, stated, from: options.files_place(), places, len }
    }

    /// What the user is told where nothing covers some of the files: only others have digests.
    pub(crate) fn not_covered(&self) -> Option<Error> {
        let others = self.stated.not_covered().filter(|_| self.has_only_stated())?;
        let reason = format!(
            "no digests are stored with this model: only files that have a checksum, or a name that is one, were \
             compared, and not {others}"
        );
        Some(Error::new(ErrorKind::WrongDigest, reason))
    }

    /// Whether something is stated about whole files, and nothing else is stored.
    fn has_only_stated(&self) -> bool {
        self.stored.is_empty() && !self.stated.is_empty()
    }

    /// Compares the `share` of `model`, whose external tensors have their elements where `external`
    /// says, with its digests, and its files with what is stated about them. To have either is
    /// enough. Adds to what was `done`.
    pub(crate) fn verify<'c>(
        &self,
        (model, share): (&'c ModelProto, &Share),
        external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
        done: &mut Compared,
    ) -> Result<()> {
        let origin = |position| match position {
            Some(position) => self.places.get(position).cloned().unwrap_or_default(),
            None => (None, self.len.map(|len| 0..len)),
        };
        let from = self.from.as_ref().map_err(Error::clone);
        let files = from.and_then(|from| self.stated.verify(share, from.as_ref(), done));
        if self.has_only_stated() {
            return files;
        }
        let tensors = match self.stored.is_empty() {
            true => Err(digest::no_digests()),
            false => digest::verify((model, share), &self.stored, external, origin, done),
        };
        let errors = [tensors, files].into_iter().filter_map(Result::err);
        let each = errors.flat_map(|error| error.each().cloned().collect::<Vec<_>>());
        Error::join(each).map_or(Ok(()), Err)
    }

    /// Compares `container`, which was loaded, with the digests that were stored with it.
    pub(super) fn verify_loaded(&self, container: &Container) -> Result<()> {
        let external = |tensor| {
            container.initializer_of(tensor).map(|(_, initializer)| External::of(initializer))
        };
        self.verify((&container.model, &Share::ALL), external, &mut Compared::default())
    }
}

/// The folder of the weights files, for messages.
fn folder_of(options: &LoadOptions) -> Option<PathBuf> {
    options.folder().filter(|folder| folder != Path::new("."))
}

fn in_file(tensor: &TensorProto, folder: Option<&Path>) -> Origin {
    let Ok(entry) = ExternalData::parse(tensor) else { return Origin::default() };
    let location = &entry.location;
    let path = folder.map_or_else(|| PathBuf::from(location), |folder| folder.join(location));
    let len = external_data::layout(tensor).map(|(_, len)| len);
    (Some(path), len.and_then(|len| entry.range(len)).ok())
}

/// Where in `bytes` the elements of an inline tensor are, if they were not copied.
fn within(bytes: &Buffer, tensor: &TensorProto) -> Option<Range<u64>> {
    let raw = tensor.raw_data.as_ref().filter(|raw| !raw.is_empty())?;
    let start = raw.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
    let end = start.checked_add(raw.len()).filter(|end| *end <= bytes.len())?;
    Some(u64::try_from(start).ok()?..u64::try_from(end).ok()?)
}
