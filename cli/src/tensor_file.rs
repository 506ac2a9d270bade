//! Files that hold a tensor and no model.
//!
//! What `extract` writes and `replace` reads. A file never has to fit memory: what can be written
//! from where the elements lie, or used where the file is mapped, is not copied.

mod npy;

use std::io::Write;
use std::path::Path;

use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, Error, ErrorKind, Result, Tensor};

use crate::args::FileFormat;

impl FileFormat {
    /// The format that the suffix of `path` says.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npy" => Some(Self::Npy),
            "raw" | "bin" => Some(Self::Raw),
            "pb" => Some(Self::Pb),
            _ => None,
        }
    }

    /// The suffix of such files.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Npy => ".npy",
            Self::Raw => ".raw",
            Self::Pb => ".pb",
        }
    }

    /// Writes `tensor`, which is called `name`; `codes` is for types that npy does not have.
    pub fn write(
        self,
        name: &str,
        tensor: &Tensor,
        codes: bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        match self {
            Self::Npy => npy::write(tensor, codes, out),
            Self::Raw => out.write_all(bytes_of(tensor)?).map_err(failed),
            Self::Pb => tensor.to_proto(name).encode(&mut { out }),
        }
    }

    /// Reads a tensor from the bytes of a file, to stand for `like`: of the same type, and where the
    /// format does not say a shape, of the same shape.
    pub fn read(self, bytes: &Buffer, like: &Tensor, codes: bool) -> Result<Tensor> {
        match self {
            Self::Npy => npy::read(bytes, like.dtype(), codes),
            Self::Raw => {
                bytes_of(like)?;
                Tensor::new(like.dtype(), like.dims(), bytes.clone())
            }
            Self::Pb => Tensor::try_from(&TensorProto::decode(bytes)?),
        }
    }
}

/// The bytes of `tensor`, which strings do not have.
fn bytes_of(tensor: &Tensor) -> Result<&[u8]> {
    tensor.as_bytes().ok_or_else(|| {
        let reason = "strings have no fixed width: --format pb holds them";
        Error::new(ErrorKind::DataType, reason)
    })
}

/// An error of the file that is written, which the caller names.
fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, error.to_string())
}
