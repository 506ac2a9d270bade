//! An entry of a safetensors file, and the names that padding entries may have.
//!
//! Which entries there are is decided in `safetensors`, and their offsets in `section`.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::buffer::Buffer;
use crate::container::Handle;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::save::plan::layout::Piece;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

/// Bytes at the start of a file that are not a tensor of the model.
pub(super) fn plain_bytes(bytes: Vec<u8>) -> Result<Piece<'static>> {
    let dims = i64::try_from(bytes.len());
    let dims = dims.map_err(|_| Error::new(ErrorKind::TooLarge, "a header of 2^63 bytes"))?;
    let bytes = Tensor::new(DataType::Uint8, [dims], Buffer::from(bytes))?;
    Ok(Piece { offset: 0, initializer: Cow::Owned(bytes.into()), handle: None })
}

/// Bytes that become one entry.
pub(super) struct PlannedEntry<'c> {
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) dims: Vec<i64>,
    /// Where the bytes are; `None` for an inline tensor, which has no elements.
    pub(super) bytes: Option<(&'c Handle, &'c Initializer)>,
    /// The number of the first weight that has these bytes.
    pub(super) weight: Option<usize>,
    /// Other tensors of the same bytes, type and shape.
    pub(super) tied: Vec<String>,
}

impl<'c> PlannedEntry<'c> {
    /// In bytes.
    pub(super) fn len(&self) -> u64 {
        self.bytes.map_or(0, |(_, initializer)| initializer.byte_len())
    }

    /// The piece that puts its bytes at `offset` of a file; `None` where it has no bytes.
    pub(super) fn piece(&self, offset: u64) -> Option<Piece<'c>> {
        self.bytes.map(|(handle, initializer)| Piece::new(offset, handle, initializer))
    }

    /// The type and shape in the header: plain bytes where readers do not know the tensor's type.
    pub(super) fn stored(&self) -> Result<(DataType, Vec<i64>)> {
        if is_readable(self.dtype, &self.dims) {
            return Ok((self.dtype, self.dims.clone()));
        }
        let len = i64::try_from(self.len());
        let len = len.map_err(|_| Error::internal("a tensor of 2^63 bytes is to be written"))?;
        Ok((DataType::Uint8, vec![len]))
    }
}

/// Whether readers accept entries of this type and shape. One type name that a reader does not know
/// makes the whole file unreadable for it, so the newest types are not used: no framework has the
/// 6-bit floats, and onnx_ir does not know the `FNUZ` types. PyTorch reads 4-bit floats as pairs.
pub(super) fn is_readable(dtype: DataType, dims: &[i64]) -> bool {
    use DataType::{Float4E2M1, Float6E2M3, Float6E3M2, Float8E4M3Fnuz, Float8E5M2Fnuz};
    match dtype {
        Float6E2M3 | Float6E3M2 | Float8E4M3Fnuz | Float8E5M2Fnuz => false,
        Float4E2M1 => dims.last().is_some_and(|last| last % 2 == 0),
        _ => dtype.safetensors_name().is_some(),
    }
}

/// The names of a model's tensors that padding could have.
#[derive(Default)]
pub(super) struct TensorsLikePadding {
    /// The numbers of underscores before `padding__.`.
    underscores: HashSet<usize>,
    /// The numbers in `__padding_N__.`.
    numbers: HashSet<u64>,
}

impl TensorsLikePadding {
    /// The maximum number of underscores in front, so that the names of padding are short whatever
    /// the names of the tensors.
    const MOST: usize = 16;

    pub(super) fn add(&mut self, name: &str) {
        let rest = name.trim_start_matches('_');
        if rest.starts_with("padding__.") {
            self.underscores.insert(name.len() - rest.len());
        }
        let numbered = name.strip_prefix("__padding_").and_then(|rest| rest.split_once("__."));
        if let Some(number) = numbered.and_then(|(number, _)| number.parse().ok()) {
            self.numbers.insert(number);
        }
    }

    /// The prefix of the names of padding, which no tensor's name has.
    pub(super) fn prefix(&self) -> String {
        let underscores = (2..=Self::MOST).find(|count| !self.underscores.contains(count));
        if let Some(count) = underscores {
            return format!("{}padding__.", "_".repeat(count));
        }
        let mut number = 2_u64;
        while self.numbers.contains(&number) {
            number += 1;
        }
        format!("__padding_{number}__.")
    }
}
