//! What a save did, in numbers: how long each step took, and what became of the bytes of its
//! tensors.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::error::Result;
#[cfg(feature = "serde")]
use crate::util::as_text::seconds;

/// How long a save took, and what became of the bytes of the tensors that it resolved: those behind
/// handles, and those that [`SaveOptions::externalize`](crate::SaveOptions::externalize) moved out
/// of the model. Each such tensor's bytes are copied, shared or kept.
///
/// ```
/// use onnx_container::Container;
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
///
/// let mut graph = GraphProto::new("g");
/// for name in ["a", "b"] {
///     graph.initializer.push(TensorProto::external(name, TensorProto::UINT8, [2], "#w")); // tied
/// }
/// let mut container = Container::new(ModelProto::new(graph));
/// container.insert("#w", ndarray::array![1_u8, 2])?;
///
/// let folder = tempfile::tempdir().unwrap();
/// let done = container.save(folder.path().join("m.onnx"), true)?.statistics;
/// assert_eq!((done.copied_bytes, done.shared_bytes, done.kept_bytes), (2, 2, 0));
/// println!("{:?} to write, {:?} to flush", done.writing, done.flushing);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Statistics {
    /// The time until the first file was created: resolving tensors, comparing equal weights,
    /// placing bytes, and checking what would be replaced. All that a dry run takes; the other
    /// times are zero then.
    #[cfg_attr(feature = "serde", serde(rename = "planning_seconds", serialize_with = "seconds"))]
    pub planning: Duration,
    /// The time in which [lazy](crate::Initializer::lazy) weights were made, added up over the
    /// threads that made them. They work while the save writes, so that this may be longer than
    /// [`writing`](Self::writing).
    #[cfg_attr(feature = "serde", serde(rename = "producing_seconds", serialize_with = "seconds"))]
    pub producing: Duration,
    /// The time in which weights and model were written to new files.
    #[cfg_attr(feature = "serde", serde(rename = "writing_seconds", serialize_with = "seconds"))]
    pub writing: Duration,
    /// The time in which the save waited for files to be on the disk; zero without
    /// [`SaveOptions::sync`](crate::SaveOptions::sync).
    #[cfg_attr(feature = "serde", serde(rename = "flushing_seconds", serialize_with = "seconds"))]
    pub flushing: Duration,
    /// The time in which the new files took the places of the old ones, with the wait for the
    /// folder's lock.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "publishing_seconds", serialize_with = "seconds")
    )]
    pub publishing: Duration,
    /// Bytes that were written for tensors, without padding: to weights files, and to the model as
    /// often as a tensor is inline in it. Tensors that are inline in the container are part of its
    /// graph and do not count.
    pub copied_bytes: u64,
    /// Bytes of tensors that have a range of another tensor.
    pub shared_bytes: u64,
    /// Bytes in files that were kept, each once.
    pub kept_bytes: u64,
}

impl Statistics {
    /// A tensor of `len` bytes is written into the model.
    pub(crate) fn add_inline(&mut self, len: u64) {
        self.copied_bytes = self.copied_bytes.saturating_add(len);
    }

    /// Tensors have `ranges` in the files of these numbers; the files are kept, or written.
    pub(crate) fn add_ranges(&mut self, ranges: Vec<(usize, Range<u64>)>, kept: bool) {
        let lengths = ranges.iter().map(|(_, range)| range.end.saturating_sub(range.start));
        let all = lengths.fold(0, u64::saturating_add);
        let distinct = distinct_bytes(ranges);
        let stored = if kept { &mut self.kept_bytes } else { &mut self.copied_bytes };
        *stored = stored.saturating_add(distinct);
        self.shared_bytes = self.shared_bytes.saturating_add(all.saturating_sub(distinct));
    }
}

/// The number of bytes in the `ranges` of files, each byte of a file once.
pub(crate) fn distinct_bytes(mut ranges: Vec<(usize, Range<u64>)>) -> u64 {
    ranges.sort_unstable_by_key(|(file, range)| (*file, range.start));
    let (mut distinct, mut last, mut end) = (0_u64, None, 0);
    for (file, range) in ranges {
        if last != Some(file) {
            (last, end) = (Some(file), 0);
        }
        distinct = distinct.saturating_add(range.end.saturating_sub(range.start.max(end)));
        end = range.end.max(end);
    }
    distinct
}

/// Does `work` and adds the time that it takes to `time`.
pub(crate) fn timed<T>(time: &mut Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work();
    *time = time.saturating_add(start.elapsed());
    done
}

/// What was spared by storing equal weights once:
/// [`SaveOptions::dedup`](crate::SaveOptions::dedup).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Deduplicated {
    /// The number of tensors of the model that now share the bytes of another one. Tensors that
    /// already shared theirs in memory do not count.
    pub tensors: usize,
    /// The number of bytes that were not written for them, without padding.
    pub bytes: u64,
    /// The number of [lazy](crate::Initializer::lazy) weights, which were not compared.
    pub lazy: usize,
    /// The number of weights that were not compared because they overlap one another in part so
    /// much that a small file would take hours: each of their bytes would be read more than eight
    /// times on average, and more than 256 MiB in all.
    pub overlapping: usize,
}
