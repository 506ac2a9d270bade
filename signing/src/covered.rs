//! Whether files hold nothing but the weights of a model, whose content is signed.
//!
//! A changed model may name any files. Such a file may be excused from being signed only if the
//! content says all that is in it: the elements of tensors, and zeros between them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::iter;
use std::ops::Range;
use std::path::Path;

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Container, DataType, Error, LoadOptions, Result, traversal, work};
use onnx_container_files::locations::plain;

use crate::needed::Needed;
use crate::options::Reading;

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// Those of the files called `names` that hold nothing but weights of the model at `path`.
pub fn only_weights(
    path: &Path,
    reading: Reading,
    names: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
    let needed = Needed::by(container.model(), path, reading)?;
    let used = used(container.model(), names);
    drop(container);
    let mut only = BTreeSet::new();
    for (name, location) in &needed.locations {
        let before = used.partition_point(|(of, _)| **of < **name);
        let mut ranges = used.iter().skip(before).take_while(|(of, _)| **of == **name).peekable();
        if ranges.peek().is_none() {
            continue;
        }
        let opened = needed.open(location)?;
        let ranges = ranges.map(|(_, range)| range.clone());
        let failed = |error| Error::io(needed.path(location), error);
        if is_zero_beside(opened, ranges).map_err(failed)? {
            only.insert(name.clone());
        }
    }
    Ok(only)
}

/// The bytes of tensors in each of the files called `names`: the name of the file and the range,
/// sorted.
fn used<'n>(model: &ModelProto, names: &'n BTreeSet<String>) -> Vec<(&'n str, Range<u64>)> {
    let mut used = Vec::new();
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let Ok(data) = ExternalData::parse(tensor) else { continue };
        let end = byte_len(tensor).and_then(|len| data.offset.checked_add(len));
        let name = names.get(&plain(&data.location));
        used.extend(name.zip(end).map(|(name, end)| (name.as_str(), data.offset..end)));
    }
    used.sort_unstable_by_key(|(name, range)| (*name, range.start, range.end));
    used
}

fn byte_len(tensor: &TensorProto) -> Option<u64> {
    let dtype = DataType::try_from(tensor.data_type.unwrap_or_default()).ok()?;
    dtype.byte_len(&tensor.dims).ok()
}

/// Whether all bytes of `file` outside of `ranges`, which are sorted, are zero.
fn is_zero_beside(mut file: File, ranges: impl Iterator<Item = Range<u64>>) -> io::Result<bool> {
    let len = file.metadata()?.len();
    let (mut end, mut chunk) = (0, vec![0; CHUNK]);
    // Behind the last of them comes the end of the file.
    for range in ranges.chain(iter::once(len..len)) {
        let gap = end..range.start.min(len);
        end = end.max(range.end);
        if gap.is_empty() {
            continue;
        }
        file.seek(SeekFrom::Start(gap.start))?;
        let mut reader = (&mut file).take(gap.end - gap.start);
        loop {
            work::check().map_err(io::Error::other)?;
            let read = reader.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            if chunk.iter().take(read).any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
