//! How a container is saved: [`SaveOptions`], and which files the weights go to (`weight_files`).
//! What a save tells its caller: `progress`, `statistics`.

mod asked;
mod conversions;
mod digests;
pub(in crate::save) mod progress;
mod replacing;
pub(in crate::save) mod statistics;
pub(in crate::save) mod weight_files;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Alignment;
use crate::buffer::TensorBufferOptions;
use crate::container::externalize::ExternalizeOptions;
use crate::error::Result;
use crate::files::recovery::FolderLock;
use crate::graph::inline::InlineOptions;
use crate::save::options::progress::{Progress, ProgressFn, Waiting, WaitingFn, cancelled};
use crate::save::options::weight_files::{ShardNames, WeightFiles};

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
    pub(crate) shard_names: ShardNames,
    /// The requested layout.
    pub(crate) buffers: TensorBufferOptions,
    pub(crate) externalize: bool,
    pub(crate) alignment_large: Option<Alignment>,
    pub(crate) keep_placement: bool,
    pub(crate) dedup: bool,
    pub(crate) digests: bool,
    pub(crate) checksums: bool,
    pub(crate) data_name: Option<String>,
    pub(crate) data_suffix: Option<String>,
    pub(crate) inline_functions: Option<InlineOptions>,
    pub(crate) max_model_bytes: Option<u64>,
    pub(crate) max_bytes_in_flight: u64,
    pub(crate) sync: bool,
    pub(crate) direct_io: bool,
    pub(crate) overwrite: bool,
    pub(crate) remove_superseded: bool,
    pub(crate) remove_left_behind: bool,
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) lock_timeout: Duration,
    waiting: Option<WaitingFn>,
    pub(crate) progress: Option<ProgressFn>,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            weight_files: WeightFiles::Packed,
            shard_names: ShardNames::Numbered,
            buffers: TensorBufferOptions::new().raw_data_threshold(64),
            externalize: false,
            alignment_large: None,
            keep_placement: true,
            dedup: false,
            digests: false,
            checksums: false,
            data_name: None,
            data_suffix: None,
            inline_functions: None,
            max_model_bytes: None,
            max_bytes_in_flight: Self::MAX_BYTES_IN_FLIGHT,
            sync: true,
            direct_io: true,
            overwrite: true,
            remove_superseded: false,
            remove_left_behind: false,
            protected: Vec::new(),
            lock_timeout: Duration::from_secs(30),
            waiting: None,
            progress: None,
        }
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

    /// How the files of [`WeightFiles::Sharded`] are called. Default [`ShardNames::Numbered`]. The
    /// other layouts have names of their own.
    ///
    /// ```
    /// use onnx_container::save::ShardNames;
    /// use onnx_container::{SaveOptions, WeightFiles};
    ///
    /// let browser = SaveOptions::from(WeightFiles::Sharded { max_bytes: 1 << 30 })
    ///     .shard_names(ShardNames::TransformersJs);
    /// ```
    #[must_use]
    pub fn shard_names(mut self, names: ShardNames) -> Self {
        self.shard_names = names;
        self
    }

    /// Whether inline tensors of at least [`raw_data_threshold`](Self::raw_data_threshold) bytes
    /// are written to the weights files too, as by
    /// [`Container::externalize`](crate::Container::externalize); the container itself is not
    /// changed. Tensors in bodies of local functions remain inline. Default false.
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

    /// What [`externalize`](Self::externalize) moves out of the model, and is not asked for any
    /// longer.
    #[doc(hidden)] // for jobs, whose parts are written from what has moved
    pub fn take_externalize(&mut self) -> Option<ExternalizeOptions> {
        std::mem::take(&mut self.externalize).then(|| self.buffers.into())
    }

    /// The least number of bytes of an inline tensor that [`externalize`](Self::externalize) writes
    /// to a weights file. Default 64. It does not apply to initializers behind handles.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.buffers.raw_data_threshold = bytes;
        self
    }

    /// The alignment of every tensor in a packed file or a shard. `None` is the default,
    /// [`Alignment::DEVICE`]: 256 bytes.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.buffers.alignment = alignment.into();
        self
    }

    /// The alignment of tensors over [`LARGE`](Self::LARGE) bytes, where it is greater than
    /// [`alignment`](Self::alignment). `None` is the default, [`Alignment::PAGE`]: 4096 bytes.
    #[must_use]
    pub fn alignment_large(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.alignment_large = alignment.into();
        self
    }

    /// Whether a packed file is kept when it already has every large initializer, so that only the
    /// model is written. Default true; `false` writes the weights again.
    ///
    /// This is for changes to a model of gigabytes that do not change its weights. The file is kept
    /// when the container was loaded from it (mapped or read), when it has not been replaced or
    /// written to since, and when all offsets have the alignment that was requested, if any. It
    /// must be the file that [`data_name`](Self::data_name) names, else `<model file>.data`, else
    /// the only file that the model now at the target refers to. The offsets in it do not change,
    /// whatever their order and the bytes between them. If any of these conditions fails, all files
    /// are written as usual. [`Saved::kept`](crate::Saved::kept) lists the files that were kept.
    ///
    /// A file is the same when its device, inode, length and times are. This is checked when the
    /// save begins and again before the model is renamed. A file that was read (not mapped) within
    /// two seconds of being written is never considered the same: a later write may leave the same
    /// times.
    ///
    /// Applies to [`WeightFiles::Packed`]; [`WeightFiles::AsLoaded`] always keeps files, the others
    /// never.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, MmapChoice, SaveOptions, WeightFiles};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", ndarray::array![1_u8, 2])?;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// container.save(&path, WeightFiles::Packed)?;
    ///
    /// // SAFETY: nobody writes to or truncates these files while they are mapped.
    /// let mut loaded = Container::load(&path, unsafe { MmapChoice::auto() })?;
    /// loaded.model_mut().producer_name = Some("me".into());
    /// let saved = loaded.save(&path, WeightFiles::Packed)?;
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

    /// Whether weights of equal bytes are stored once, also where they lie in different places of
    /// memory. Default false: only bytes that are shared in memory are shared in files.
    ///
    /// Weights of equal length are read and compared when the save is planned, also by
    /// [`dry_run`](crate::Container::dry_run); types and shapes may differ, except in
    /// `WeightFiles::Safetensors`, where every tensor keeps an entry, or its name in the metadata.
    /// Their tensors then have one range of the file, or one file in [`WeightFiles::PerTensor`],
    /// and are tied when the model is loaded: [`Container::replace`](crate::Container::replace)
    /// asks what is to become of the others, and
    /// [`FillOptions::tied`](crate::edit::FillOptions::tied) tells it for
    /// [`Container::fill`](crate::Container::fill). Weights that overlap in part very much are not
    /// compared. Weights that a save makes when it writes them
    /// ([`Initializer::lazy`](crate::Initializer::lazy)) are not compared: that would make them
    /// twice. No file is kept as it is, except by [`WeightFiles::AsLoaded`], where only what goes
    /// to a new file is compared. [`Saved::deduplicated`](crate::Saved::deduplicated) tells what
    /// was spared.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, SaveOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["a", "b"] {
    ///     graph.initializer.push(TensorProto::external(name, TensorProto::UINT8, [3], format!("#{name}")));
    /// }
    /// let mut container = Container::new(ModelProto::new(graph));
    /// for handle in ["#a", "#b"] {
    ///     container.insert(handle, ndarray::array![1_u8, 2, 3])?; // two arrays
    /// }
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let saved = container.save(folder.path().join("m.onnx"), SaveOptions::new().dedup(true))?;
    /// let spared = saved.deduplicated.unwrap();
    /// assert_eq!((saved.files[0].bytes, spared.tensors, spared.bytes), (3, 1, 3));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn dedup(mut self, dedup: bool) -> Self {
        self.dedup = dedup;
        self
    }

    /// The name of the packed file, beside the model. Default `<model file>.data`. A file of this
    /// name that no model needs is replaced only where the name is given here.
    /// [`Sharded`](WeightFiles::Sharded) puts the numbers of the shards before its extension, and
    /// replaces files of these names likewise.
    #[must_use]
    pub fn data_name(mut self, name: impl Into<String>) -> Self {
        self.data_name = Some(name.into());
        self
    }

    /// Whether local functions are inlined in the written model, as by
    /// [`inline_functions`](crate::inline::inline_functions) with default options; the container
    /// keeps them. Default false. [`Saved::inlined`](crate::Saved::inlined) has the result.
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
    /// assert_eq!(saved.inlined.as_ref().unwrap().calls, 1);
    /// assert!(saved.structure().functions.is_empty() && container.model().functions.len() == 1);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn inline_functions(mut self, inline: bool) -> Self {
        self.inline_functions = inline.then(InlineOptions::new);
        self
    }

    /// Inlines local functions in the written model with these options; the container keeps them.
    /// Default: no functions are inlined.
    ///
    /// ```
    /// use onnx_container::inline::InlineOptions;
    /// use onnx_container::SaveOptions;
    ///
    /// let options = SaveOptions::new().inline_with(InlineOptions::new().except(["local::attention"]));
    /// ```
    #[must_use]
    pub fn inline_with(mut self, options: impl Into<InlineOptions>) -> Self {
        self.inline_functions = Some(options.into());
        self
    }

    /// The maximum length of the model file in bytes. A longer one is refused with
    /// [`ErrorKind::ModelTooLarge`](crate::ErrorKind::ModelTooLarge) before anything is written.
    /// `None` is the default: no limit, though many readers refuse files over
    /// [`MAX_PROTOBUF`](crate::MAX_PROTOBUF).
    #[must_use]
    pub fn max_model_bytes(mut self, max: impl Into<Option<u64>>) -> Self {
        self.max_model_bytes = max.into();
        self
    }

    /// How many bytes of [lazy](crate::Initializer::lazy) weights may be produced and not yet
    /// written. Default [`MAX_BYTES_IN_FLIGHT`](Self::MAX_BYTES_IN_FLIGHT). A longer weight is
    /// produced alone. Sources that ask for reads of more than 1 MiB
    /// ([`preferred_read`](crate::WeightSource::preferred_read)) count as lazy weights do, part by
    /// part. Other weights do not count.
    #[must_use]
    pub fn max_bytes_in_flight(mut self, max: u64) -> Self {
        self.max_bytes_in_flight = max;
        self
    }

    /// Whether the save waits until all files are on the disk. Default true; without it a power
    /// failure soon after the save can lose the new files.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Whether a save that [waits for the disk](Self::sync) writes large weights past the page
    /// cache. Default true: on Linux such a save takes two thirds of the time and a tenth of the
    /// CPU time (1 GB on a virtual disk: 0.59 s, and 0.80 s through the cache). The price is that
    /// the first reader of the new files reads these weights from the disk, in twice the time,
    /// where after a save through the cache they are still in memory. Where the file system does
    /// not support direct I/O, and without [`sync`](Self::sync), the cache is used.
    #[must_use]
    pub fn direct_io(mut self, direct: bool) -> Self {
        self.direct_io = direct;
        self
    }

    /// How long a save waits for a lock (flock) on the target's folder before it fails with
    /// [`ErrorKind::Io`](crate::ErrorKind::Io). Saves hold the lock while they check the folder and
    /// while they rename files; another program may hold it for any time. Default 30 seconds.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Calls `report` every few milliseconds while the save waits for the lock on a folder (see
    /// [`lock_timeout`](Self::lock_timeout)), so that a user can be told why nothing happens.
    /// `Break` cancels the save and leaves the old files in place.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use onnx_container::SaveOptions;
    ///
    /// let options = SaveOptions::new().waiting(|waiting| {
    ///     eprint!("\rwaiting for `{}` for {:?}", waiting.folder.display(), waiting.elapsed);
    ///     ControlFlow::Continue(())
    /// });
    /// ```
    #[must_use]
    pub fn waiting(
        mut self,
        report: impl Fn(Waiting<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.waiting = Some(Arc::new(report));
        self
    }

    /// Calls `report` before the first file is created, as bytes are written, and when all files
    /// are complete and about to be renamed. Calls may come from any thread. `Break` cancels the
    /// save and leaves the old files in place.
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

    /// Locks `folder`; waits for another holder of the lock, and reports that, as the options say.
    pub(crate) fn lock(&self, folder: &Path) -> Result<FolderLock> {
        FolderLock::wait(folder, self.lock_timeout, |folder, elapsed| self.report(folder, elapsed))
    }

    /// Locks all of `folders`.
    pub(crate) fn lock_all(&self, folders: &[PathBuf]) -> Result<Vec<FolderLock>> {
        let report = |folder: &Path, elapsed| self.report(folder, elapsed);
        FolderLock::wait_for_all(folders, self.lock_timeout, report)
    }

    /// Tells the caller that the save waits.
    fn report(&self, folder: &Path, elapsed: Duration) -> Result<()> {
        match self.waiting.as_ref().map(|report| report(Waiting { folder, elapsed })) {
            Some(ControlFlow::Break(())) => Err(cancelled()),
            _ => Ok(()),
        }
    }

    /// The alignment of a tensor of `len` bytes.
    pub(crate) fn alignment_of(&self, len: u64) -> Alignment {
        let small = self.buffers.alignment.unwrap_or(Alignment::DEVICE);
        let large = self.alignment_large.unwrap_or(Alignment::PAGE);
        if len > Self::LARGE { small.max(large) } else { small }
    }

    /// Whether an alignment was requested.
    #[cfg(feature = "safetensors")]
    pub(crate) fn has_alignment(&self) -> bool {
        self.buffers.alignment.is_some() || self.alignment_large.is_some()
    }

    /// The requested alignment of a tensor of `len` bytes that is already in a file.
    pub(crate) fn alignment_asked(&self, len: u64) -> Alignment {
        let large = self.alignment_large.filter(|_| len > Self::LARGE);
        self.buffers.alignment.max(large).unwrap_or(Alignment::DENSE)
    }
}

impl fmt::Debug for SaveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveOptions")
            .field("weight_files", &self.weight_files)
            .field("shard_names", &self.shard_names)
            .field("buffers", &self.buffers)
            .field("externalize", &self.externalize)
            .field("alignment_large", &self.alignment_large)
            .field("keep_placement", &self.keep_placement)
            .field("dedup", &self.dedup)
            .field("digests", &self.digests)
            .field("checksums", &self.checksums)
            .field("data_name", &self.data_name)
            .field("data_suffix", &self.data_suffix)
            .field("inline_functions", &self.inline_functions)
            .field("max_model_bytes", &self.max_model_bytes)
            .field("max_bytes_in_flight", &self.max_bytes_in_flight)
            .field("sync", &self.sync)
            .field("direct_io", &self.direct_io)
            .field("overwrite", &self.overwrite)
            .field("remove_superseded", &self.remove_superseded)
            .field("remove_left_behind", &self.remove_left_behind)
            .field("protected", &self.protected)
            .field("lock_timeout", &self.lock_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_tensors_have_the_large_alignment() {
        let large = Alignment::new(1 << 16).unwrap();
        let options = SaveOptions::new().alignment_large(large);
        for (len, asked, given) in [
            (SaveOptions::LARGE, Alignment::DENSE, Alignment::DEVICE),
            (SaveOptions::LARGE + 1, large, large),
        ] {
            assert_eq!(
                (options.alignment_asked(len), options.alignment_of(len)),
                (asked, given),
                "{len}"
            );
        }
    }

    #[test]
    fn options_are_shown_with_what_they_say() {
        let shown = format!("{:?}", SaveOptions::new().dedup(true).data_name("w.bin"));
        assert!(shown.contains("dedup: true") && shown.contains("w.bin"), "{shown}");
    }
}
