//! How a container is saved: [`SaveOptions`] and [`WeightFiles`].

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::TensorBufferOptions;
use crate::consolidate::ConsolidateOptions;
use crate::inline::InlineOptions;
use crate::placement::Alignment;

/// Which files the weights go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WeightFiles {
    /// One file, `<model file>.data`, with every large initializer at an aligned offset. Where it
    /// holds all of them already it [stays as it is](SaveOptions::keep_placement).
    #[default]
    Packed,
    /// One file for each large initializer, `<model stem>-<handle>.weight`.
    PerTensor,
    /// One safetensors file, `<model stem>.safetensors`, that its own readers read too: the model
    /// refers into it by location and offset. The largest aligned tensors come first in it, so
    /// that alignment costs little padding.
    #[cfg(feature = "safetensors")]
    Safetensors,
    /// None: the weights go into the model file, of any size.
    Embedded,
    /// Those that the weights were loaded from, whatever their layout: the model is written, and refers
    /// to them where they lie. For models of gigabytes that change in their graph, or in a few tensors:
    /// of weights that lie in no file, those under 1 KiB go into the model and the others into one new
    /// data file, which takes the place of no other.
    ///
    /// A file that was read (not mapped) within two seconds of being written is compared with what was
    /// read. Each of these files has to lie beneath the target's folder, as [`Container::load`] looks for it
    /// there, and to be what it was when it was loaded; else the save is refused with
    /// [`ErrorKind::CannotKeep`], as is [`Container::to_parts`]. [`Container::dry_run`] tells
    /// beforehand. Options of packed files count for the new one.
    ///
    /// [`Container::load`]: crate::Container::load
    /// [`Container::to_parts`]: crate::Container::to_parts
    /// [`Container::dry_run`]: crate::Container::dry_run
    /// [`ErrorKind::CannotKeep`]: crate::ErrorKind::CannotKeep
    AsLoaded,
}

/// How far a save is, in bytes of weights and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes written so far.
    pub done: u64,
    /// Bytes to write in all.
    pub total: u64,
}

type ProgressFn = Arc<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>;

/// How [`Container::save`](crate::Container::save) writes. `true` (one file), `false` (one file for
/// each tensor) and [`WeightFiles`] convert.
///
/// ```
/// use onnx_container::{Alignment, SaveOptions, WeightFiles};
///
/// let options = SaveOptions::from(WeightFiles::Packed)
///     .data_name("model.onnx_data") // what browser tools look for
///     .alignment(Alignment::PAGE)
///     .sync(false);
/// ```
#[derive(Clone)]
pub struct SaveOptions {
    pub(crate) weight_files: WeightFiles,
    /// What was asked for.
    pub(crate) buffers: TensorBufferOptions,
    pub(crate) externalize: bool,
    pub(crate) alignment_large: Option<Alignment>,
    pub(crate) keep_placement: bool,
    pub(crate) data_name: Option<String>,
    pub(crate) inline_functions: Option<InlineOptions>,
    pub(crate) max_model_bytes: Option<u64>,
    pub(crate) max_bytes_in_flight: u64,
    pub(crate) sync: bool,
    pub(crate) overwrite: bool,
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) lock_timeout: Duration,
    pub(crate) progress: Option<ProgressFn>,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            weight_files: WeightFiles::Packed,
            buffers: TensorBufferOptions::new().raw_data_threshold(64),
            externalize: false,
            alignment_large: None,
            keep_placement: true,
            data_name: None,
            inline_functions: None,
            max_model_bytes: None,
            max_bytes_in_flight: Self::MAX_BYTES_IN_FLIGHT,
            sync: true,
            overwrite: true,
            protected: Vec::new(),
            lock_timeout: Duration::from_secs(30),
            progress: None,
        }
    }
}

impl From<WeightFiles> for SaveOptions {
    fn from(weight_files: WeightFiles) -> Self {
        Self { weight_files, ..Self::default() }
    }
}

impl From<TensorBufferOptions> for SaveOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self { buffers, ..Self::default() }
    }
}

impl AsRef<TensorBufferOptions> for SaveOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        &self.buffers
    }
}

impl From<SaveOptions> for TensorBufferOptions {
    fn from(options: SaveOptions) -> Self {
        options.buffers
    }
}

impl From<SaveOptions> for ConsolidateOptions {
    fn from(options: SaveOptions) -> Self {
        Self::from(options.buffers)
    }
}

impl From<bool> for SaveOptions {
    /// `true` is [`WeightFiles::Packed`], `false` is [`WeightFiles::PerTensor`].
    fn from(one_file: bool) -> Self {
        Self::from(if one_file { WeightFiles::Packed } else { WeightFiles::PerTensor })
    }
}

impl SaveOptions {
    /// The length in bytes above which [`alignment_large`](Self::alignment_large) applies: 1 MiB.
    pub const LARGE: u64 = 1 << 20;

    /// The default of [`max_bytes_in_flight`](Self::max_bytes_in_flight): 256 MiB.
    pub const MAX_BYTES_IN_FLIGHT: u64 = 256 << 20;

    /// The defaults: one weights file, aligned, durable, replacing what is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which files the weights go to. Default [`WeightFiles::Packed`].
    #[must_use]
    pub fn weight_files(mut self, weight_files: WeightFiles) -> Self {
        self.weight_files = weight_files;
        self
    }

    /// Whether inline tensors are written to the weights files too, from
    /// [`raw_data_threshold`](Self::raw_data_threshold) on and as
    /// [`Container::externalize`](crate::Container::externalize) moves them out; the container keeps
    /// them. Tensors in bodies of local functions stay inline. Default false.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Alignment, Container, SaveOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for (name, len) in [("a", 4), ("b", 16), ("c", 1000)] {
    ///     let tensor = TensorProto::new(name, TensorProto::FLOAT, [len]);
    ///     graph.initializer.push(tensor.with_raw_data(vec![0; 4 * len as usize]));
    /// }
    /// let container = Container::new(ModelProto::new(graph));
    /// let folder = tempfile::tempdir().unwrap();
    /// let options = SaveOptions::new().externalize(true).alignment(Alignment::CACHE_LINE);
    /// let saved = container.save(folder.path().join("m.onnx"), options)?;
    /// assert_eq!(saved.files[0].bytes, 64 + 4000); // `a` has less than 64 bytes
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn externalize(mut self, externalize: bool) -> Self {
        self.externalize = externalize;
        self
    }

    /// From how many bytes on [`externalize`](Self::externalize) writes an inline tensor to a weights
    /// file. Default 64. What is behind a handle goes to a weights file at any length.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.buffers.raw_data_threshold = bytes;
        self
    }

    /// The alignment of every tensor in a packed file. `None` is the default, [`Alignment::DEVICE`]: 256
    /// bytes.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.buffers.alignment = alignment.into();
        self
    }

    /// The alignment of tensors over [`LARGE`](Self::LARGE) bytes, when it is the greater one.
    /// `None` is the default, [`Alignment::PAGE`]: 4096 bytes.
    #[must_use]
    pub fn alignment_large(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.alignment_large = alignment.into();
        self
    }

    /// Whether a packed file stays as it is where it holds every large initializer already, so that
    /// only the model is written. Default true; `false` packs the weights anew.
    ///
    /// This is for changes to a model of gigabytes that leave its weights alone. It takes a container
    /// that was loaded from that very file, mapped or read, which nobody replaced or wrote to since;
    /// the file is the one that [`data_name`](Self::data_name) says, else `<model file>.data`, else
    /// the only one that the model now at the target refers to. Offsets stay what they are, in graph
    /// order or not and with whatever lies between, unless an alignment was asked for that they do
    /// not have. Where any of this is not so, everything is written as usual.
    /// [`Saved::kept`](crate::Saved::kept) tells.
    ///
    /// Whether a file is the same is told by device, inode, length and times, when the save begins
    /// and again when the model is renamed. A file that was read (not mapped) within two seconds of
    /// being written is never taken for the same: the next write may leave the same times.
    ///
    /// Counts for [`WeightFiles::Packed`]; [`WeightFiles::AsLoaded`] always keeps, the others never.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, MmapChoice, SaveOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", ndarray::array![1_u8, 2])?;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// container.save(&path, true)?;
    ///
    /// // SAFETY: nobody writes to or truncates these files while they are mapped.
    /// let mut loaded = Container::load(&path, unsafe { MmapChoice::auto() })?;
    /// loaded.model_mut().producer_name = Some("me".into());
    /// let saved = loaded.save(&path, true)?;
    /// assert_eq!((saved.files.len(), saved.kept[0].name.as_str()), (1, "m.onnx.data"));
    ///
    /// let anew = loaded.save(&path, SaveOptions::new().keep_placement(false))?;
    /// assert_eq!((anew.files.len(), anew.kept.len()), (2, 0));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn keep_placement(mut self, keep: bool) -> Self {
        self.keep_placement = keep;
        self
    }

    /// The name of the packed file, beside the model. Default `<model file>.data`.
    #[must_use]
    pub fn data_name(mut self, name: impl Into<String>) -> Self {
        self.data_name = Some(name.into());
        self
    }

    /// Whether local functions are inlined in what is written, as
    /// [`inline_functions`](crate::inline_functions) does by default; the container keeps them.
    /// Default false. [`Saved::inlined`](crate::Saved::inlined) tells what came of it.
    ///
    /// ```
    /// use onnx_container::proto::{FunctionProto, GraphProto, ModelProto, NodeProto};
    /// use onnx_container::{Container, SaveOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.node.push(NodeProto::new("nothing", ["x"], ["y"]));
    /// let mut function = FunctionProto::new("", "nothing");
    /// function.input.push("a".into());
    /// function.output.push("b".into());
    /// function.node.push(NodeProto::new("Abs", ["a"], ["b"]));
    /// let mut model = ModelProto::new(graph);
    /// model.functions.push(function);
    /// let container = Container::new(model);
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let options = SaveOptions::new().inline_functions(true);
    /// let saved = container.save(folder.path().join("m.onnx"), options)?;
    /// assert_eq!(saved.inlined.unwrap().calls, 1);
    /// assert!(saved.model.functions.is_empty() && container.model().functions.len() == 1);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn inline_functions(mut self, inline: bool) -> Self {
        self.inline_functions = inline.then(InlineOptions::new);
        self
    }

    /// Inlines local functions in what is written, as these options say; the container keeps them.
    /// Default: none are inlined.
    ///
    /// ```
    /// use onnx_container::{InlineOptions, SaveOptions};
    ///
    /// let options = SaveOptions::new().inline_with(InlineOptions::new().except(["local::attention"]));
    /// ```
    #[must_use]
    pub fn inline_with(mut self, options: impl Into<InlineOptions>) -> Self {
        self.inline_functions = Some(options.into());
        self
    }

    /// Refuses a model file of more bytes with [`ErrorKind::ModelTooLarge`](crate::ErrorKind::ModelTooLarge)
    /// and its path, before anything is written. `None` is the default: a model file has any length, though many
    /// readers take none over [`MAX_PROTOBUF`](crate::MAX_PROTOBUF).
    #[must_use]
    pub fn max_model_bytes(mut self, max: impl Into<Option<u64>>) -> Self {
        self.max_model_bytes = max.into();
        self
    }

    /// How many bytes of [lazy](crate::Initializer::lazy) weights may be made and not yet written. Default
    /// [`MAX_BYTES_IN_FLIGHT`](Self::MAX_BYTES_IN_FLIGHT). A weight that is longer than that goes through
    /// alone; other weights do not count, since they are not made.
    #[must_use]
    pub fn max_bytes_in_flight(mut self, max: u64) -> Self {
        self.max_bytes_in_flight = max;
        self
    }

    /// Whether the save waits until everything is on the disk. Default true; without it a power
    /// failure soon after can lose the new files.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Whether files that are there may be replaced. Default true.
    ///
    /// Also then a weights file is replaced only when the model that is replaced refers to it, or when
    /// it was named by [`data_name`](Self::data_name); never when another model needs it, in this
    /// folder or in one above, and never when the container's bytes lie in it and it is not the
    /// replaced model's own.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Files that are not replaced in any case, such as what else the caller reads.
    ///
    /// ```
    /// use onnx_container::SaveOptions;
    ///
    /// let options = SaveOptions::new().protect(["checkpoint.safetensors"]);
    /// ```
    #[must_use]
    pub fn protect(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.protected.extend(paths.into_iter().map(Into::into));
        self
    }

    /// How long a save waits for others that hold a lock on the target's folder. Saves hold it while
    /// they look at what is there and while they rename; another program may hold it (flock) for any
    /// time. After that the save fails with [`ErrorKind::Io`](crate::ErrorKind::Io). Default 30 seconds.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Calls `report` before the first file is made, as bytes are written, from any thread, and when all
    /// files are complete and are going to be renamed; `Break` cancels the save, which then leaves what
    /// was there.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use onnx_container::SaveOptions;
    ///
    /// let options = SaveOptions::new().progress(|progress| {
    ///     eprint!("\r{} of {} bytes", progress.done, progress.total);
    ///     ControlFlow::Continue(())
    /// });
    /// ```
    #[must_use]
    pub fn progress(
        mut self,
        report: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.progress = Some(Arc::new(report));
        self
    }

    /// The alignment of a tensor of `len` bytes.
    pub(crate) fn alignment_of(&self, len: u64) -> Alignment {
        let small = self.buffers.alignment.unwrap_or(Alignment::DEVICE);
        let large = self.alignment_large.unwrap_or(Alignment::PAGE);
        if len > Self::LARGE { small.max(large) } else { small }
    }

    /// Whether an alignment was asked for.
    #[cfg(feature = "safetensors")]
    pub(crate) fn has_alignment(&self) -> bool {
        self.buffers.alignment.is_some() || self.alignment_large.is_some()
    }

    /// The alignment that was asked for a tensor of `len` bytes, wherever it lies already.
    pub(crate) fn alignment_asked(&self, len: u64) -> Alignment {
        let large = self.alignment_large.filter(|_| len > Self::LARGE);
        self.buffers.alignment.max(large).unwrap_or(Alignment::DENSE)
    }
}

impl fmt::Debug for SaveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveOptions")
            .field("weight_files", &self.weight_files)
            .field("buffers", &self.buffers)
            .field("externalize", &self.externalize)
            .field("alignment_large", &self.alignment_large)
            .field("keep_placement", &self.keep_placement)
            .field("data_name", &self.data_name)
            .field("inline_functions", &self.inline_functions)
            .field("max_model_bytes", &self.max_model_bytes)
            .field("max_bytes_in_flight", &self.max_bytes_in_flight)
            .field("sync", &self.sync)
            .field("overwrite", &self.overwrite)
            .field("protected", &self.protected)
            .field("lock_timeout", &self.lock_timeout)
            .finish_non_exhaustive()
    }
}
