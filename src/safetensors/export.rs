//! [`Container::export_safetensors`]: the large initializers as safetensors files of their own.
//!
//! The files are planned by the module that plans saves, and are staged and renamed like those of a
//! save: all of them appear, or the former files are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::container::lookup::list;
use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::save::{
    ExportStyle, Exports, GatheredWeights, Meter, ModelFolder, NotLoaded, PlannedFile, Request,
    SaveOptions, SaveTarget, SavedFile, Staging, refuse_attached, stage_files,
};
use crate::util::retry::retried;

/// How [`Container::export_safetensors`] writes. [`SaveOptions`] convert; of these the alignment
/// (which enables [`padding`](Self::padding)), `sync`, `overwrite` and `progress` are used.
///
/// ```
/// use onnx_container::SaveOptions;
/// use onnx_container::safetensors::ExportOptions;
///
/// let options = ExportOptions::from(SaveOptions::new().sync(false))
///     .max_shard_bytes(5_000_000_000)
///     .metadata("license", "apache-2.0");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    save: SaveOptions,
    max_shard_bytes: Option<u64>,
    metadata: BTreeMap<String, String>,
    padding: Option<bool>,
}

impl From<SaveOptions> for ExportOptions {
    fn from(save: SaveOptions) -> Self {
        Self { save, ..Self::default() }
    }
}

impl ExportOptions {
    /// The defaults: one file, tensors only, synced to disk, existing files replaced.
    pub fn new() -> Self {
        Self::default()
    }

    /// The maximum number of bytes of tensors in one file. Tensors that do not fit are written to
    /// shards, `NAME-00001-of-00003.safetensors`, with an index `NAME.safetensors.index.json`; a
    /// tensor longer than the maximum has a shard of its own. Default: no limit.
    #[must_use]
    pub fn max_shard_bytes(mut self, bytes: u64) -> Self {
        self.max_shard_bytes = Some(bytes);
        self
    }

    /// Whether padding entries, which are no tensors, are written so that every tensor begins at a
    /// multiple of 256 bytes, or of [`SaveOptions::alignment`]. Default false, unless an alignment
    /// was set: readers that compare the names in a file with those of a model, such as
    /// `safetensors.torch.load_model`, refuse unknown entries.
    ///
    /// Without padding the data begin at an aligned offset, and every tensor at a multiple of the
    /// greatest power of two that divides its length, up to 4096. Where all lengths are multiples
    /// of 256, as those of most large matrices are, every tensor is then aligned to 256 bytes.
    #[must_use]
    pub fn padding(mut self, padding: bool) -> Self {
        self.padding = Some(padding);
        self
    }

    /// Adds an entry to `__metadata__`. Default: `format` is `pt`, which tells transformers that
    /// tensors are row-major.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    fn style(&self) -> ExportStyle<'_> {
        let Self { save, max_shard_bytes, metadata, padding } = self;
        let padding = padding.unwrap_or(save.has_alignment());
        ExportStyle { max_shard: *max_shard_bytes, metadata, padding, save }
    }
}

/// What [`Container::export_safetensors`] wrote.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Exported {
    /// The files in the target's directory; the index comes last.
    pub files: Vec<SavedFile>,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// The number of tensors that have an entry.
    pub tensors: usize,
    /// Tensors written as `U8` bytes, because readers do not have their type. Type and shape come
    /// from the model that they fill.
    pub as_bytes: Vec<String>,
    /// Tensors without an entry of their own, and the entry that has their bytes. They are in the
    /// metadata too.
    pub tied: BTreeMap<String, String>,
    /// Entries whose name differs from their tensor's, because another tensor has that name: the
    /// name of the entry, and the tensor's.
    pub renamed: BTreeMap<String, String>,
    /// Inline tensors, which are in no file; those without elements are in the files.
    pub left_out: Vec<String>,
    /// Large initializers that no tensor of the model refers to; they were not written.
    pub unused: Vec<Handle>,
    /// Files of an earlier export to this name that this one did not replace. They are not deleted.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub left_behind: Vec<PathBuf>,
    /// Problems that did not prevent the export: a staging folder that cannot be removed, tensors
    /// that are larger than the maximum size of a shard.
    pub warnings: Vec<Error>,
}

impl Container {
    /// Writes the large initializers to `path`, a `.safetensors` file, or to shards beside it.
    ///
    /// Inline tensors are not written, except initializers without elements:
    /// [`externalize`](Self::externalize) moves them out first. An entry has the name of its
    /// tensor, with the scope before it in a subgraph; where that name is taken, a number is added,
    /// so that the result is no other tensor's name. Tied tensors are written once. The files are
    /// staged and renamed: after a failure the former files are still there.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::safetensors::ExportOptions;
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["a", "b"] {
    ///     graph.initializer.push(TensorProto::external(name, TensorProto::UINT8, [2], format!("#{name}")));
    /// }
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#a", array![1_u8, 2])?;
    /// container.insert("#b", array![3_u8, 4])?;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.safetensors");
    /// let exported = container.export_safetensors(&path, ExportOptions::new().max_shard_bytes(2))?;
    /// let names: Vec<_> = exported.files.iter().map(|file| file.name.as_str()).collect();
    /// assert_eq!(names, [
    ///     "m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json",
    /// ]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Before anything is written: the errors of [`check`](Self::check), a name that does not end
    /// in `.safetensors`, names of shards over 255 bytes, or a container without large initializers
    /// ([`ErrorKind::InvalidArgument`]), and the errors of the target as in [`save`](Self::save).
    /// Later [`ErrorKind::Io`].
    pub fn export_safetensors(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<ExportOptions>,
    ) -> Result<Exported> {
        let (path, options) = (path.as_ref(), options.into());
        let mut target = SaveTarget::new(path)?;
        let stem = stem(&target.name).map_err(|error| error.with_path(path))?.to_owned();
        let moved = HashMap::new();
        let weights = GatheredWeights::resolve(self, &self.model, &moved, NotLoaded::Refuse)?;
        weights.refuse_declared()?;
        if self.is_empty() {
            let reason = "there are no large initializers: move tensors out of the model first";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let plan = Exports::new(&self.model, &weights, &stem, &options.style())?;
        let files: Vec<_> = plan.files.iter().map(PlannedFile::to_saved).collect();
        if let Some(last) = files.last() {
            target.name.clone_from(&last.name);
        }
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        refuse_attached(self, &target.directory, &files)?;
        let folder = ModelFolder::of(&target);
        let asked = BTreeSet::new();
        let request = Request {
            files: &files,
            is_model: false,
            asked: &asked,
            overwrite: options.save.overwrite,
            container: self,
            protected: &options.save.protected,
        };
        let mut warnings = folder.recover(&options.save)?;
        warnings.extend(folder.check_recovered(&request, &options.save)?);
        warnings.extend(too_large_for_shards(&plan.oversized, options.max_shard_bytes));
        target.check_space(bytes)?;
        let left_behind = left_behind(&target, &stem, &files);
        let meter = Meter::new(&options.save, bytes);
        meter.step()?;
        let mut staging = Staging::new(&target.directory, &target.name, &options.save)?;
        let staged = stage_files(&mut staging, &plan.files, &options.save, &meter);
        if let Err(error) = staged.and_then(|()| staging.flush()) {
            return Err(staging.discard(error));
        }
        let locked = staging.lock(Vec::new())?;
        if let Err(error) = folder.check_locked(&request).and_then(|()| meter.step()) {
            return Err(locked.discard(error));
        }
        warnings.extend(locked.publish(Vec::new())?.warnings);
        let Exports { tensors, as_bytes, tied, renamed, left_out, unused, .. } = plan;
        Ok(Exported {
            files,
            bytes,
            tensors,
            as_bytes,
            tied,
            renamed,
            left_out,
            unused,
            left_behind,
            warnings,
        })
    }
}

/// The warning that `oversized` tensors, with their lengths, make shards longer than `max` bytes.
fn too_large_for_shards(oversized: &[(String, u64)], max: Option<u64>) -> Option<Error> {
    let max = max.filter(|_| !oversized.is_empty())?;
    let count = oversized.len();
    let are = if count == 1 { "tensor is" } else { "tensors are" };
    let names = list(oversized.iter().map(|(name, len)| format!("`{name}` ({len} bytes)")));
    let reason = format!(
        "{count} {are} larger than the maximum shard size of {max} bytes and alone in a shard: {names}"
    );
    Some(Error::new(ErrorKind::TooLarge, reason))
}

const SUFFIX: &str = ".safetensors";

/// `name` without the suffix `.safetensors`, which is required so that an export cannot replace a
/// model.
fn stem(name: &str) -> Result<&str> {
    let stem = name.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty());
    stem.ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "the name does not end in `.safetensors`")
    })
}

/// Files of an earlier export that a reader could still open.
fn left_behind(target: &SaveTarget, stem: &str, files: &[SavedFile]) -> Vec<PathBuf> {
    let entries = retried(|| std::fs::read_dir(&target.directory)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut left: Vec<_> = names
        .filter(|name| is_of_export(name, stem) && files.iter().all(|file| file.name != *name))
        .map(|name| target.directory.join(name))
        .collect();
    left.sort();
    left
}

/// Whether `name` is one that an export to `<stem>.safetensors` can have.
fn is_of_export(name: &str, stem: &str) -> bool {
    let Some(rest) = name.strip_prefix(stem) else { return false };
    if rest == SUFFIX || rest.strip_prefix(SUFFIX) == Some(".index.json") {
        return true;
    }
    let numbers = rest.strip_prefix('-').and_then(|rest| rest.strip_suffix(SUFFIX));
    let numbers = numbers.and_then(|numbers| numbers.split_once("-of-"));
    let is_number = |n: &str| n.len() >= 5 && n.bytes().all(|b| b.is_ascii_digit());
    numbers.is_some_and(|(one, of)| is_number(one) && is_number(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exports_are_known() {
        let cases = [
            ("m.safetensors", true),
            ("m.safetensors.index.json", true),
            ("m-00001-of-00002.safetensors", true),
            ("m-100001-of-100002.safetensors", true),
            ("m-1-of-2.safetensors", false),
            ("m-00001-of-00002.bin", false),
            ("m2.safetensors", false),
            ("n.safetensors", false),
            ("m.safetensors.bak", false),
        ];
        for (name, known) in cases {
            assert_eq!(is_of_export(name, "m"), known, "{name}");
        }
    }
}
