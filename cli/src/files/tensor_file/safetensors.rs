//! safetensors files of tensors that were named one by one.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::safetensors::{self, Exported};
use onnx_container::{Container, DataType, Error, ErrorKind, Result, SaveOptions, Tensor};

use crate::model::reading::Reading;

/// How many names an error lists.
const LISTED: usize = 8;

/// Writes `tensors` under their names to one file, staged and renamed.
pub fn write(
    path: &Path,
    tensors: &[(Cow<'_, str>, Tensor)],
    options: SaveOptions,
) -> Result<Exported> {
    let handles = (0..).map(|number: usize| format!("#{number}"));
    let named: Vec<_> = handles.zip(tensors).collect();
    let mut graph = GraphProto::new("tensors");
    for (handle, (name, tensor)) in &named {
        super::bytes_of(tensor).map_err(|e| e.with_tensor(&**name))?;
        let (name, dtype) = (entry_name(name), tensor.dtype().number());
        graph.initializer.push(TensorProto::external(name, dtype, tensor.dims(), handle));
    }
    let mut container = Container::new(ModelProto::new(graph));
    for (handle, (_, tensor)) in named {
        container.insert(&handle, tensor.clone())?;
    }
    container.export_safetensors(path, options)
}

/// The entry called `name` of the file or shards at `path`, else the only one, to stand for `like`;
/// and all files that were opened.
pub fn read(
    path: &Path,
    reading: Reading,
    name: &str,
    like: &Tensor,
) -> Result<(Tensor, Vec<PathBuf>)> {
    let weights = safetensors::load(path, reading)?;
    let mut entries = weights.iter();
    let only = match (entries.next(), entries.next()) {
        (Some((_, tensor)), None) => Some(tensor),
        _ => None,
    };
    let Some(tensor) = weights.get(entry_name(name)).or(only) else {
        let mut names: Vec<_> = weights.iter().map(|(name, _)| name).take(LISTED + 1).collect();
        if names.len() > LISTED {
            names.truncate(LISTED);
            names.push("...");
        }
        let reason = format!("no such entry; there are {}", names.join(", "));
        return Err(Error::new(ErrorKind::MissingTensor, reason));
    };
    Ok((as_declared(tensor, like)?, weights.files().to_vec()))
}

/// The name of a tensor without the `#` of a handle.
fn entry_name(name: &str) -> &str {
    name.strip_prefix('#').unwrap_or(name)
}

/// `tensor`, or what its bytes are where the format has no type for `like`.
fn as_declared(tensor: &Tensor, like: &Tensor) -> Result<Tensor> {
    match tensor.buffer() {
        Some(bytes)
            if tensor.dtype() == DataType::Uint8
                && like.dtype().may_be_bytes()
                && like.dtype().fits_bytes(like.dims(), tensor.dims())
                && bytes.len() == like.byte_len() =>
        {
            Tensor::new(like.dtype(), like.dims(), bytes.clone())
        }
        _ => Ok(tensor.clone()),
    }
}
