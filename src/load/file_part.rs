//! [`FilePart`]: the weights of one tensor as a range of a file that is not in memory.

use crate::buffer::{Alignment, Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::dtype::DataType;
use crate::error::Result;
use crate::files::file_source::SourceFile;
use crate::tensor::source::WeightSource;

/// The bytes of a file from an offset on, as many as type and dimensions ask for.
pub(super) struct FilePart {
    file: SourceFile,
    offset: u64,
    dtype: DataType,
    dims: Vec<i64>,
    /// In bytes.
    len: u64,
    /// That of the memory that [`to_buffer`](WeightSource::to_buffer) reads them into.
    alignment: Alignment,
}

impl FilePart {
    /// Those of `file` from `offset` on.
    ///
    /// # Errors
    /// Those of [`DataType::byte_len`].
    pub(super) fn new(
        file: SourceFile,
        offset: u64,
        (dtype, dims): (DataType, Vec<i64>),
        alignment: Alignment,
    ) -> Result<Self> {
        let len = dtype.byte_len(&dims)?;
        Ok(Self { file, offset, dtype, dims, len, alignment })
    }
}

impl WeightSource for FilePart {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_at(self.offset.saturating_add(offset), out)
    }

    fn preferred_read(&self) -> usize {
        self.file.preferred_read()
    }

    fn place(&self) -> Option<(usize, u64)> {
        Some((self.file.number(), self.offset))
    }

    fn to_buffer(&self) -> Result<Buffer> {
        let len = in_memory(self.len)?;
        let mut bytes = BufferMut::zeroed(len, self.alignment.max(Alignment::CACHE_LINE))?;
        self.file.read_whole(self.offset, &mut bytes)?;
        Ok(bytes.freeze())
    }
}
