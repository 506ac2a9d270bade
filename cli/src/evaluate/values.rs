//! Files of values: `.npy`, `.npz` and `.pb`.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use onnx_container::{
    Buffer, DataType, Error, ErrorKind, MmapChoice, Result as Loaded, Tensor, failed_download,
};
use onnx_container_machine::{Type, Value, data};
use zip::{ZipArchive, ZipWriter};

use crate::failure::Failure;
use crate::tensor_file::npy;

/// The value of type `ty` in the file at `path`: in an npz file the array `name`, or the only one.
pub fn read(path: &Path, name: &str, ty: Option<&Type>) -> Result<Value, Failure> {
    let about = |error: Error| Failure::from(error.with_tensor(name).with_path(path));
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("npy") => array(&file(path)?, ty).map_err(about),
        Some("npz") => entry(path, name).and_then(|bytes| array(&bytes, ty)).map_err(about),
        Some("pb") => {
            let bytes = file(path)?;
            let decoded = match ty {
                Some(ty) => data::decode(&bytes, ty),
                None => message(&bytes).map_err(Into::into),
            };
            decoded.map_err(|error| match (failed_download(&bytes), Failure::from(error)) {
                (Some(what), _) => about(Error::new(ErrorKind::Decode, what)),
                (None, Failure::Model(error)) => about(error),
                (None, other) => other.about(path),
            })
        }
        _ => {
            let path = path.display();
            Err(Failure::Usage(format!("the suffix of `{path}` is none of .npy, .npz, .pb")))
        }
    }
}

/// The file, which is read and not mapped: values are copied into the memory of the run anyway.
fn file(path: &Path) -> Loaded<Buffer> {
    MmapChoice::never().buffer(path)
}

/// The tensor in a message, when the caller does not state a type.
fn message(bytes: &Buffer) -> Loaded<Value> {
    use onnx_container::proto::{Message, TensorProto};
    Ok(Tensor::try_from(&TensorProto::decode(bytes)?)?.into())
}

/// The array in an npy file. When the caller does not state a type, it has the type in the file's
/// header.
fn array(bytes: &Buffer, ty: Option<&Type>) -> Loaded<Value> {
    let read = |dtype| npy::read(bytes, dtype, true);
    let tensor = match ty {
        Some(Type::Tensor(dtype)) => read(*dtype)?,
        Some(other) => {
            let reason = format!("it is {other}, which only a .pb file holds");
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        None => {
            let known = DataType::ALL.iter().filter(|dtype| npy::has(**dtype));
            let mut found = known.map(|dtype| read(*dtype));
            match found.find(|read| !matches!(read, Err(e) if e.kind() == ErrorKind::DataType)) {
                Some(read) => read?,
                None => read(DataType::Float)?,
            }
        }
    };
    Ok(tensor.into())
}

/// The longest array that is read from an npz file, in bytes: a few compressed bytes can stand for any
/// number of zeros.
const LONGEST: u64 = 64 << 30;

/// The bytes of `name.npy` in the npz file at `path`, or of its only entry.
fn entry(path: &Path, name: &str) -> Loaded<Buffer> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut archive = ZipArchive::new(file).map_err(unreadable)?;
    let wanted = format!("{name}.npy");
    let index = match (archive.index_for_name(&wanted), archive.len()) {
        (Some(index), _) => index,
        (None, 1) => 0,
        (None, _) => {
            // NumPy calls the array of the entry `x.npy` x.
            let arrays = archive.file_names().flatten();
            let arrays =
                arrays.map(|entry| entry.strip_suffix(".npy").unwrap_or(&entry).to_owned());
            let arrays = arrays.take(8).collect::<Vec<_>>().join(", ");
            let reason = format!("the npz file has no array `{name}`; it has {arrays}");
            return Err(Error::new(ErrorKind::MissingTensor, reason));
        }
    };
    let entry = archive.by_index(index).map_err(unreadable)?;
    let mut bytes = Vec::new();
    entry.take(LONGEST).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(Buffer::from(bytes))
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Decode, format!("not an npz file that can be read: {error}"))
}

/// Writes `value` as one npy or pb file.
pub fn write(value: &Value, npy: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if !npy {
        return out.write_all(&data::encode(value)?).map_err(Failure::from);
    }
    check_array(&value.ty())?;
    Ok(npy::write(value.tensor()?, true, out)?)
}

/// Whether an npy file can hold values of type `ty`.
pub fn check_array(ty: &Type) -> Loaded<()> {
    let reason = match ty {
        Type::Tensor(DataType::String) => {
            "strings have no fixed width: --format pb holds them".to_owned()
        }
        Type::Tensor(_) => return Ok(()),
        other => format!("{other} is no array: --format pb holds it"),
    };
    Err(Error::new(ErrorKind::DataType, reason))
}

/// Writes `values` by name as one npz file, uncompressed.
pub fn write_npz(values: &[(String, Value)], out: impl Write + Seek) -> Result<(), Failure> {
    let mut archive = ZipWriter::new(out);
    // Without a time, so that the same values are the same file.
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .large_file(true);
    let failed = |error: &dyn std::fmt::Display| Error::new(ErrorKind::Io, error.to_string());
    for (name, value) in values {
        archive.start_file(format!("{name}.npy"), options).map_err(|e| failed(&e))?;
        write(value, true, &mut archive)?;
    }
    archive.finish().map_err(|e| failed(&e))?;
    Ok(())
}

/// Refuses a `folder` that does not exist or is not a folder.
pub fn must_be_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::read_dir(folder).map_err(|error| Error::io(folder, error))?;
    Ok(())
}

/// The file of value `i` in `folder`, whose name begins with `stem`: `input` or `output`. If there
/// is none, `<stem>s.npz`, which has all values by name.
pub fn find(folder: &Path, stem: &str, i: usize) -> Option<PathBuf> {
    let candidates = [format!("{stem}_{i}.pb"), format!("{stem}_{i}.npy"), format!("{stem}s.npz")];
    candidates.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
}
