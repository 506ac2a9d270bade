//! The records of protobuf that sequences, optionals and maps are made of.

use onnx_container_proto::Buffer;

use crate::error::{Error, ErrorKind, Result};

/// The tag and the length before a payload of `len` bytes.
pub(super) fn record(field: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    push_varint(&mut out, (field << 3) | 2);
    push_varint(&mut out, len as u64);
    out
}

pub(super) fn payload(bytes: &Buffer, at: &mut usize) -> Result<Buffer> {
    let len = usize::try_from(varint(bytes, at)?).map_err(|_| malformed(*at))?;
    let end = at.checked_add(len).ok_or_else(|| malformed(*at))?;
    let payload = bytes.slice(*at..end).ok_or_else(|| malformed(*at))?;
    *at = end;
    Ok(payload)
}

pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or_else(|| malformed(*at))?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed(*at))
}

pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

pub(super) fn malformed(at: usize) -> Error {
    let reason = format!("byte {at} is not part of a sequence, optional or map");
    Error::new(ErrorKind::Container, reason)
}
