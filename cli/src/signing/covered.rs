//! Whether files hold nothing but the weights of a model, whose content is signed.
//!
//! Whoever changes a model names the files that it needs. Such a file may be excused from being signed only if the
//! content says all that is in it: the elements of tensors, and zeros between them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Container, DataType, Error, LoadOptions, Result, traversal};

use crate::needed::{needed, plain};
use crate::reading::Reading;

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// Those of the files called `names` that hold nothing but weights of the model at `path`.
pub fn only_weights(
    path: &Path,
    reading: Reading,
    names: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
    let needed = needed(container.model(), path, reading.paths)?;
    let mut used = used(container.model(), names);
    let mut only = BTreeSet::new();
    for file in &needed.files {
        let name = plain(&file.location);
        let Some(ranges) = used.remove(&name) else { continue };
        let opened = needed.open(file)?;
        if is_zero_beside(opened, ranges).map_err(|error| Error::io(&file.path, error))? {
            only.insert(name);
        }
    }
    Ok(only)
}

/// The bytes of tensors in each of the files called `names`.
fn used(model: &ModelProto, names: &BTreeSet<String>) -> HashMap<String, Vec<Range<u64>>> {
    let mut used: HashMap<_, Vec<_>> = HashMap::new();
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let Ok(data) = ExternalData::parse(tensor) else { continue };
        let name = plain(&data.location);
        let end = byte_len(tensor).and_then(|len| data.offset.checked_add(len));
        if let Some(end) = end.filter(|_| names.contains(&name)) {
            used.entry(name).or_default().push(data.offset..end);
        }
    }
    used
}

fn byte_len(tensor: &TensorProto) -> Option<u64> {
    let dtype = DataType::try_from(tensor.data_type.unwrap_or_default()).ok()?;
    dtype.byte_len(&tensor.dims).ok()
}

/// Whether all bytes of `file` outside of `ranges` are zero.
fn is_zero_beside(mut file: File, mut ranges: Vec<Range<u64>>) -> std::io::Result<bool> {
    let len = file.metadata()?.len();
    ranges.push(len..len);
    ranges.sort_by_key(|range| (range.start, range.end));
    let (mut end, mut chunk) = (0, vec![0; CHUNK]);
    for range in ranges {
        let gap = end..range.start.min(len);
        end = end.max(range.end);
        if gap.is_empty() {
            continue;
        }
        file.seek(SeekFrom::Start(gap.start))?;
        let mut reader = (&mut file).take(gap.end - gap.start);
        loop {
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
