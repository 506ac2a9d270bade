//! Files that hold a tensor and no model.
//!
//! `extract` writes them and `replace` reads them. A file does not have to fit into memory:
//! elements that can be written from a mapped file, or used in it, are not copied.

pub mod npy;
pub mod safetensors;

use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, Error, ErrorKind, MmapChoice, Result, Tensor, failed_download};

use crate::args::FileFormat;
use crate::model::reading::Reading;

/// The suffixes that name a format.
pub const SUFFIXES: &str = ".npy, .raw, .bin, .pb, .safetensors";

impl FileFormat {
    /// The format that the suffix of `path` names.
    pub fn of(path: &Path) -> Option<Self> {
        if path.to_str().is_some_and(|path| path.ends_with(".safetensors.index.json")) {
            return Some(Self::Safetensors);
        }
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npy" => Some(Self::Npy),
            "raw" | "bin" => Some(Self::Raw),
            "pb" => Some(Self::Pb),
            "safetensors" => Some(Self::Safetensors),
            _ => None,
        }
    }

    /// The suffix of such files.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Npy => ".npy",
            Self::Raw => ".raw",
            Self::Pb => ".pb",
            Self::Safetensors => ".safetensors",
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
            Self::Safetensors => {
                let reason = "a safetensors file is written as a whole: -o NAME.safetensors";
                Err(Error::new(ErrorKind::Unsupported, reason))
            }
        }
    }

    /// Reads a tensor from the file at `path`, to stand for the tensor `like` called `name`: of its
    /// type, and where the format does not say a shape, of its shape. Returns the files that were
    /// read, too.
    pub fn read(
        self,
        path: &Path,
        reading: Reading,
        name: &str,
        like: &Tensor,
        codes: bool,
    ) -> Result<(Tensor, Vec<PathBuf>)> {
        let tensor = match self {
            Self::Npy => decoded(path, reading.map, |bytes| npy::read(bytes, like.dtype(), codes)),
            Self::Raw => decoded(path, reading.map, |bytes| {
                bytes_of(like)?;
                Tensor::new(like.dtype(), like.dims(), bytes.clone())
            }),
            Self::Pb => {
                decoded(path, reading.map, |bytes| Tensor::try_from(&TensorProto::decode(bytes)?))
            }
            Self::Safetensors => return safetensors::read(path, reading, name, like),
        };
        Ok((tensor?, vec![path.to_path_buf()]))
    }
}

/// The tensor that `decode` makes of the file at `path`. When it refuses the file, the error says
/// whether the file is a failed download. A file that it accepts is not examined, because raw
/// elements may be any bytes.
fn decoded(
    path: &Path,
    map: MmapChoice,
    decode: impl FnOnce(&Buffer) -> Result<Tensor>,
) -> Result<Tensor> {
    let bytes = map.buffer(path)?;
    decode(&bytes).map_err(|error| match failed_download(&bytes) {
        Some(what) => Error::new(ErrorKind::NotDownloaded, what),
        None => error,
    })
}

/// The bytes of `tensor`; an error for a tensor of strings, which has none.
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
