//! Bytes of tensors that have no meaning: a BOOL other than 0 and 1, and bits after the last
//! element of types that are narrower than a byte.
//!
//! Readers differ on both: one takes a BOOL of 2 for true, another shows a 2. This is the part of a
//! check that reads weights, so it is made only on request.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use crate::buffers::{in_memory, read_at};
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_source::SourceFile;

/// Where the bytes of a tensor are.
pub(super) enum ByteSource<'a> {
    Memory(&'a [u8]),
    File(&'a File, &'a Path),
    Source(&'a SourceFile),
}

/// How many bytes are read at once.
const BLOCK: u64 = 1 << 20;

/// What has no meaning among the bytes `range` of `source`, which are those of a tensor.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn meaningless(
    dtype: DataType,
    dims: &[i64],
    source: &ByteSource<'_>,
    range: &Range<u64>,
) -> Result<Option<Error>> {
    if range.is_empty() {
        return Ok(None);
    }
    if dtype == DataType::Bool {
        return neither_true_nor_false(source, range);
    }
    let used = element_count(dims)?.wrapping_mul(u64::from(dtype.bit_width().unwrap_or(8))) % 8;
    let last = range.end.saturating_sub(1)..range.end;
    if used == 0 || read(source, &last)?.iter().all(|byte| byte >> used == 0) {
        return Ok(None);
    }
    let reason = match dtype {
        DataType::Float6E2M3 | DataType::Float6E3M2 => {
            "bits after the last element are set, which onnx.checker refuses"
        }
        _ => "bits after the last element are set",
    };
    Ok(Some(Error::new(ErrorKind::InvalidModel, reason).with_offset(last.start)))
}

fn neither_true_nor_false(source: &ByteSource<'_>, range: &Range<u64>) -> Result<Option<Error>> {
    let mut start = range.start;
    while start < range.end {
        let block = start..range.end.min(start.saturating_add(BLOCK));
        let bytes = read(source, &block)?;
        if let Some((at, byte)) = (start..).zip(&bytes).find(|(_, byte)| **byte > 1) {
            let reason = format!("a BOOL of {byte}, neither 0 nor 1: readers differ on its value");
            return Ok(Some(Error::new(ErrorKind::InvalidModel, reason).with_offset(at)));
        }
        start = block.end;
    }
    Ok(None)
}

/// The place of the first byte among the bytes `range` of `source` that is not zero.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn first_set(source: &ByteSource<'_>, range: &Range<u64>) -> Result<Option<u64>> {
    let mut start = range.start;
    while start < range.end {
        let block = start..range.end.min(start.saturating_add(BLOCK));
        let bytes = read(source, &block)?;
        if let Some((at, _)) = (start..).zip(&bytes).find(|(_, byte)| **byte != 0) {
            return Ok(Some(at));
        }
        start = block.end;
    }
    Ok(None)
}

fn read(source: &ByteSource<'_>, range: &Range<u64>) -> Result<Vec<u8>> {
    let len = in_memory(range.end.saturating_sub(range.start))?;
    match source {
        ByteSource::Memory(bytes) => {
            let start = in_memory(range.start)?;
            let bytes = bytes.get(start..).and_then(|bytes| bytes.get(..len)).map(<[u8]>::to_vec);
            bytes.ok_or_else(|| Error::internal(format!("the bytes {range:?}")))
        }
        ByteSource::File(file, path) => {
            let mut bytes = vec![0; len];
            read_at(file, &mut bytes, range.start).map_err(|e| Error::io(*path, e))?;
            Ok(bytes)
        }
        ByteSource::Source(file) => {
            let mut bytes = vec![0; len];
            file.read_at(range.start, &mut bytes)?;
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_without_a_meaning_are_reported() {
        let long = [vec![1; 1 << 20], vec![0, 255]].concat();
        type Case<'a> = (DataType, &'a [i64], &'a [u8], Option<u64>);
        let cases: &[Case<'_>] = &[
            (DataType::Bool, &[3], &[0, 1, 1], None),
            (DataType::Bool, &[3], &[0, 2, 255], Some(1)),
            (DataType::Bool, &[(1 << 20) + 2], &long, Some((1 << 20) + 1)),
            (DataType::Bool, &[0], &[], None),
            (DataType::Uint8, &[2], &[2, 255], None),
            (DataType::Int4, &[3], &[0xff, 0x0f], None),
            (DataType::Int4, &[3], &[0xff, 0x1f], Some(1)),
            (DataType::Int4, &[2, 2], &[0xff, 0xff], None),
            (DataType::Uint2, &[5], &[0xff, 0x03], None),
            (DataType::Uint2, &[5], &[0xff, 0x04], Some(1)),
            (DataType::Float4E2M1, &[1], &[0x10], Some(0)),
            (DataType::Float6E2M3, &[4], &[0xff, 0xff, 0xff], None),
            (DataType::Float6E2M3, &[3], &[0xff, 0xff, 0x03], None),
            (DataType::Float6E3M2, &[3], &[0xff, 0xff, 0x04], Some(2)),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        for (dtype, dims, bytes, expected) in cases {
            std::fs::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            for source in [ByteSource::Memory(bytes), ByteSource::File(&file, &path)] {
                let found = meaningless(*dtype, dims, &source, &(0..bytes.len() as u64)).unwrap();
                assert_eq!(found.and_then(|error| error.offset()), *expected, "{dtype} {dims:?}");
            }
        }
    }
}
