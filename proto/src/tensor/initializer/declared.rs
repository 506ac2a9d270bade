//! Declared initializers: type and dimensions of weights that others write.
//!
//! The ranks of a training job have the weights, and one process has the graph. It plans the files
//! of a model whose weights it only declares.

use std::sync::Arc;

use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::source::WeightSource;

/// A type and dimensions, without elements.
#[derive(Clone)]
pub(super) struct Declared {
    pub(super) dtype: DataType,
    pub(super) dims: Arc<[i64]>,
    /// In bytes.
    pub(super) len: u64,
}

impl Declared {
    pub(super) fn new(dtype: DataType, dims: Vec<i64>) -> Result<Self> {
        let len = dtype.byte_len(&dims)?;
        Ok(Self { dtype, dims: dims.into(), len })
    }
}

impl WeightSource for Declared {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        let reason =
            "the weight is only declared: its type and shape are known, its elements are not here";
        Err(Error::new(ErrorKind::MissingHandle, reason))
    }
}
