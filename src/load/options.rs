//! [`LoadOptions`]: how a model is loaded, and [`VerifyDigests`]. What a load does is left to
//! `load`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::buffer::Alignment;
use crate::buffer::MmapChoice;
use crate::buffer::{Buffer, TensorBufferOptions};
use crate::container::consolidate::ConsolidateOptions;
use crate::digest::ContentDigest;
use crate::error::Result;
use crate::files::external_data::{Directory, PathPolicy, directory_of, without_dots};
use crate::files::file_source::{FileSource, FilesFrom, SharedSource};
use crate::limits::Limits;
use crate::wire::DecodeOptions;

/// How a model is loaded. A [`MmapChoice`] converts.
///
/// ```
/// use onnx_container::{LoadOptions, MmapChoice};
///
/// // The structure alone: no weights file is touched, or has to be there.
/// let options = LoadOptions::new().mmap(MmapChoice::never()).weights(false);
/// ```
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub(crate) mmap: MmapChoice,
    pub(crate) weights: bool,
    pub(crate) base_dir: Option<PathBuf>,
    /// Where the model is read from, if that is a file.
    pub(crate) model_path: Option<PathBuf>,
    pub(crate) paths: PathPolicy,
    /// Bytes given by the caller, by location without `.` components.
    pub(crate) files: HashMap<String, Buffer>,
    /// Opens the other files, in place of a folder.
    pub(crate) source: Option<SharedSource>,
    pub(crate) decode: DecodeOptions,
    pub(crate) verify_digests: VerifyDigests,
    /// What the digest of the model has to be.
    pub(crate) expected: Option<ContentDigest>,
}

/// When a load compares a model with the digests that are stored with it. `true` is
/// [`Always`](Self::Always), `false` [`Never`](Self::Never).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyDigests {
    /// It does not: the default.
    #[default]
    Never,
    /// Where there are any. So a program that stores new digests with what it loaded does not vouch
    /// for weights that were damaged before.
    WhereStored,
    /// A model without any is an error.
    Always,
}

impl From<bool> for VerifyDigests {
    fn from(verify: bool) -> Self {
        if verify { Self::Always } else { Self::Never }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            mmap: MmapChoice::never(),
            weights: true,
            base_dir: None,
            model_path: None,
            paths: PathPolicy::default(),
            files: HashMap::new(),
            source: None,
            decode: DecodeOptions::new(),
            verify_digests: VerifyDigests::Never,
            expected: None,
        }
    }
}

impl From<DecodeOptions> for LoadOptions {
    fn from(decode: DecodeOptions) -> Self {
        Self { decode, ..Self::default() }
    }
}

impl From<TensorBufferOptions> for LoadOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self::from(DecodeOptions::from(buffers))
    }
}

impl AsRef<TensorBufferOptions> for LoadOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        self.decode.as_ref()
    }
}

impl From<LoadOptions> for TensorBufferOptions {
    fn from(options: LoadOptions) -> Self {
        options.decode.into()
    }
}

impl From<LoadOptions> for ConsolidateOptions {
    fn from(options: LoadOptions) -> Self {
        Self::from(TensorBufferOptions::from(options))
    }
}

impl From<MmapChoice> for LoadOptions {
    fn from(mmap: MmapChoice) -> Self {
        Self::default().mmap(mmap)
    }
}

impl LoadOptions {
    /// The defaults: files are read, weights are loaded, from the model's own directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether files are mapped or read. Default [`MmapChoice::never`].
    #[must_use]
    pub fn mmap(mut self, mmap: MmapChoice) -> Self {
        self.mmap = mmap;
        self
    }

    /// Whether weights are loaded. Without them no data file is touched and external entries are
    /// kept, for [`Container::attach`](crate::Container::attach) or
    /// [`Container::insert`](crate::Container::insert). Default true.
    #[must_use]
    pub fn weights(mut self, weights: bool) -> Self {
        self.weights = weights;
        self
    }

    /// The directory that locations are relative to. Default: that of the model file; none for
    /// [`Container::load_bytes`](crate::Container::load_bytes).
    #[must_use]
    pub fn base_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(directory.into());
        self
    }

    /// The path of the model, for [`Container::load_bytes`](crate::Container::load_bytes) and
    /// [`Container::attach`](crate::Container::attach), which are not given it: locations are
    /// relative to its directory unless there is a [`base_dir`](Self::base_dir), and links may lead
    /// to the directory of its own file ([`PathPolicy::ModelDirs`]). Default: the path that is
    /// loaded.
    #[must_use]
    pub fn model_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.model_path = Some(path.into());
        self
    }

    /// Where links that lead to weights may lead. Default [`PathPolicy::ModelDirs`].
    #[must_use]
    pub fn paths(mut self, policy: PathPolicy) -> Self {
        self.paths = policy;
        self
    }

    /// With the path of the model that is read, unless there is one.
    pub(crate) fn of_model(mut self, path: &Path) -> Self {
        self.model_path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// The path of the directory that locations are relative to; `None` where it is not known, or
    /// where a source opens the files.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let of_model = || self.model_path.as_deref().map(directory_of);
        self.base_dir.clone().or_else(of_model).filter(|_| self.source.is_none())
    }

    /// Where weights files are opened: that directory, or the source.
    pub(crate) fn files_place(&self) -> Result<Option<FilesFrom>> {
        if let Some(source) = &self.source {
            return Ok(Some(FilesFrom::Source(source.clone())));
        }
        let Some(folder) = self.folder() else { return Ok(None) };
        let directory = Directory::with_policy(folder, self.paths)?;
        let directory = match &self.model_path {
            Some(model) => directory.with_model(model)?,
            None => directory,
        };
        Ok(Some(FilesFrom::Folder(directory)))
    }

    /// Supplies the bytes of the weights file at `location`, which is then not read from disk. The
    /// `location` may also be a handle of the model, such as `#w`.
    #[must_use]
    pub fn file(mut self, location: impl AsRef<str>, bytes: impl Into<Buffer>) -> Self {
        self.files.insert(without_dots(location.as_ref()), bytes.into());
        self
    }

    /// Forbids (`true`) or requires (`false`) copies of the bytes of tensors. Without this call
    /// tensors are slices of the files (mapped or read once), and only a tensor that does not have
    /// the requested [`alignment`](Self::alignment) is copied.
    ///
    /// - `true`: nothing is copied. A tensor that is not aligned is
    ///   [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    /// - `false`: each external tensor, and each inline one at or above the
    ///   [threshold](Self::raw_data_threshold), has memory of its own that is freed with it. No
    ///   file stays mapped or in memory. During the load, a file that is read and not mapped is in
    ///   memory beside the copies of its tensors: twice the weights. A map takes no memory of the
    ///   process.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::buffer::Ownership;
    /// use onnx_container::{Container, LoadOptions, WeightFiles};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", ndarray::array![1_u8, 2])?;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// container.save(&path, WeightFiles::Packed)?;
    ///
    /// let copied = Container::load(&path, LoadOptions::new().no_copy(false))?;
    /// let bytes = copied.get("#w").unwrap().to_buffer()?;
    /// drop(copied);
    /// assert_eq!(bytes.ownership(), Ownership::Owned);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn no_copy(mut self, no_copy: bool) -> Self {
        self.decode = self.decode.no_copy(no_copy);
        self
    }

    /// The smallest length in bytes at which a tensor is aligned and, where bytes are copied, an
    /// inline one gets memory of its own. Default 1024.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.decode = self.decode.raw_data_threshold(bytes);
        self
    }

    /// The alignment in bytes of the addresses of tensors at or above the threshold: a tensor whose
    /// address in the mapped or read file is not a multiple of it is copied. Default `None`: any
    /// address.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.decode = self.decode.alignment(alignment);
        self
    }

    /// Supplies the bytes of several weights files by their locations, as [`file`](Self::file) does
    /// for one: for example those of [`to_parts`](crate::Container::to_parts).
    ///
    /// ```
    /// use onnx_container::{Container, LoadOptions, SaveOptions};
    /// # use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// # let mut graph = GraphProto::new("g");
    /// # graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// # let mut container = Container::new(ModelProto::new(graph));
    /// # container.insert("#w", ndarray::array![1_u8, 2])?;
    /// let parts = container.to_parts(SaveOptions::new())?;
    /// let options = LoadOptions::new().files(parts.files);
    /// let again = Container::load_bytes(parts.model, options)?;
    /// assert_eq!(again.tensor("w")?.as_slice::<u8>()?, [1, 2]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn files<L: AsRef<str>, B: Into<Buffer>>(
        self,
        files: impl IntoIterator<Item = (L, B)>,
    ) -> Self {
        files.into_iter().fold(self, |options, (location, bytes)| options.file(location, bytes))
    }

    /// Opens the weights files by `source`, in place of a folder: from an object store, an archive,
    /// decrypted. [`FileSource`] has an example.
    ///
    /// Each file is opened once, by the location that tensors name. Its bytes are read when they
    /// are needed, unless they are in memory already or [`no_copy`](Self::no_copy)`(false)` has all
    /// of them read by the load. The bytes of [`file`](Self::file) come first;
    /// [`base_dir`](Self::base_dir), [`paths`](Self::paths) and, for weights,
    /// [`mmap`](Self::mmap) have no meaning. [`weights_files`](crate::Container::weights_files)
    /// does not list the files, and a save to a folder writes all weights. Safetensors files do not
    /// regard it. Default: the folder.
    #[must_use]
    pub fn files_from(mut self, source: impl FileSource + 'static) -> Self {
        self.source = Some(SharedSource::new(source));
        self
    }

    /// Whether the model and its tensors are compared with the digests that are stored with them,
    /// see [`SaveOptions::digests`](crate::SaveOptions::digests): every byte of the weights is
    /// read, on all cores. A load fails with
    /// [`ErrorKind::WrongDigest`](crate::ErrorKind::WrongDigest) for each tensor that differs, with
    /// its file and byte range, and with `true` also when there are no digests. Default false.
    ///
    /// Whole files are compared too: weights files with the `checksum` that tensors give them,
    /// files that are links to blobs in a cache of Hugging Face with their names there. Where there
    /// is any of these, a model may be without stored digests.
    ///
    /// It needs the weights, and the whole model: without [`weights`](Self::weights), and by an
    /// [`Outline`](crate::Outline), it is
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument). For safetensors files it
    /// has no meaning.
    #[must_use]
    pub fn verify_digests(mut self, verify: impl Into<VerifyDigests>) -> Self {
        self.verify_digests = verify.into();
        self
    }

    /// The [digest](crate::Container::digest) that the model must have, weights included: a service
    /// pins what it was tested with. The load reads all weights once more to hash them.
    ///
    /// ```no_run
    /// use onnx_container::{Container, LoadOptions};
    ///
    /// let digest = std::env::var("MODEL_DIGEST")?; // as `onnx-container digest` prints it
    /// let options = LoadOptions::new().expect_digest(digest.parse()?);
    /// let container = Container::load("model.onnx", options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Another digest is [`ErrorKind::WrongDigest`](crate::ErrorKind::WrongDigest). Default none.
    /// Without [`weights`](Self::weights), by an [`Outline`](crate::Outline) and by
    /// [`check_model`](crate::check::check_model), a digest to expect is
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument); safetensors files have
    /// none, and do not regard it.
    #[must_use]
    pub fn expect_digest(mut self, digest: ContentDigest) -> Self {
        self.expected = Some(digest);
        self
    }

    /// How much the model may hold before it is refused. Default: [`Limits::new`], which no real
    /// model exceeds.
    ///
    /// An [`Outline`](crate::Outline) is limited by what is decoded of it.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.decode = self.decode.limits(limits);
        self
    }
}
