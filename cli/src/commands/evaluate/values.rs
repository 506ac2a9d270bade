//! Files of values: `.npy`, `.npz` and `.pb`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use onnx_container::{
    Buffer, DataType, Error, ErrorKind, MmapChoice, Result as Loaded, Tensor, failed_download,
};
use onnx_container_machine::{Declared, Dim, Type, Value, data};
use zip::{ZipArchive, ZipWriter};

use crate::files::tensor_file::npy;
use crate::terminal::failure::Failure;

/// What is known of a value before its file is read.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    ty: Option<Cow<'a, Type>>,
    /// The dimensions, those that may have any size as `None`.
    dims: Option<Vec<Option<usize>>>,
    /// Whether the only array of an npz file has to have its name.
    by_name: bool,
}

impl<'a> Wanted<'a> {
    /// As the graph declares it.
    pub fn of(declared: &'a Declared) -> Self {
        let fixed = |dim: &Dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None };
        let dims = declared.dims.as_ref();
        Self {
            ty: declared.ty.as_ref().map(Cow::Borrowed),
            dims: dims.map(|dims| dims.iter().map(fixed).collect()),
            by_name: false,
        }
    }

    /// As `value` is, and in an npz file under its name: another array is another output.
    pub fn like(value: &Value) -> Self {
        let dims = match value {
            Value::Tensor(tensor) => Some(tensor.shape().into_iter().map(Some).collect()),
            _ => None,
        };
        Self { ty: Some(Cow::Owned(value.ty())), dims, by_name: true }
    }

    fn has(&self, shape: &[usize]) -> bool {
        self.dims.as_ref().is_none_or(|dims| {
            let fits = |(dim, size): (&Option<usize>, &usize)| dim.is_none_or(|dim| dim == *size);
            dims.len() == shape.len() && dims.iter().zip(shape).all(fits)
        })
    }
}

/// What a file has.
#[derive(Debug)]
pub enum Read {
    Value(Value),
    /// An array of this shape, which is not the wanted one. Its elements were not read.
    OtherShape(Vec<usize>),
}

/// The wanted value in the file at `path`: in an npz file the array `name`, or the only one.
pub fn read(path: &Path, name: &str, wanted: &Wanted<'_>) -> Result<Read, Failure> {
    let about = |error: Error| Failure::from(error.with_tensor(name).with_path(path));
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("npy") => regular(path).and_then(|file| array(file, wanted)).map_err(about),
        Some("npz") => entry(path, name, wanted).map_err(about),
        Some("pb") => {
            let bytes = file(path)?;
            let decoded = match &wanted.ty {
                Some(ty) => data::decode(&bytes, ty),
                None => message(&bytes).map_err(Into::into),
            };
            let decoded =
                decoded.map_err(|error| match (failed_download(&bytes), Failure::from(error)) {
                    (Some(what), _) => about(Error::new(ErrorKind::NotDownloaded, what)),
                    (None, Failure::Model(error)) => about(error),
                    (None, other) => other.about(path),
                });
            decoded.map(Read::Value)
        }
        _ => {
            let path = path.display();
            Err(Failure::Usage(format!("the suffix of `{path}` is not .npy, .npz or .pb")))
        }
    }
}

/// The file, which is read and not mapped: values are copied into the memory of the run anyway.
fn file(path: &Path) -> Loaded<Buffer> {
    MmapChoice::never().buffer(path)
}

/// The file at `path`, if it is a regular one: opening a pipe would wait for its writer.
fn regular(path: &Path) -> Loaded<File> {
    let failed = |error| Error::io(path, error);
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(Error::new(ErrorKind::UnsafePath, "not a regular file"));
    }
    File::open(path).map_err(failed)
}

/// The tensor in a message, when the caller does not state a type.
fn message(bytes: &Buffer) -> Loaded<Value> {
    use onnx_container::proto::{Message, TensorProto};
    Ok(Tensor::try_from(&TensorProto::decode(bytes)?)?.into())
}

/// The array that `npy` begins with. When its type is not stated, it has that of the header. Its
/// elements are read only when it has the wanted type and shape, and as many as the header says: a
/// few compressed bytes can stand for any number.
fn array(mut npy: impl io::Read, wanted: &Wanted<'_>) -> Loaded<Read> {
    let header = npy::Head::read(&mut npy)?;
    let dtype = match wanted.ty.as_deref() {
        Some(Type::Tensor(dtype)) => *dtype,
        Some(other) => {
            let reason = format!("it is {other}, which only a .pb file holds");
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        None => header.dtype().unwrap_or(DataType::Float),
    };
    let layout = header.layout(dtype, true)?;
    if !wanted.has(layout.shape()) {
        return Ok(Read::OtherShape(layout.shape().to_vec()));
    }
    Ok(Read::Value(layout.read(&mut npy)?.into()))
}

/// The array `name.npy` in the npz file at `path`, or its only entry.
fn entry(path: &Path, name: &str, wanted: &Wanted<'_>) -> Loaded<Read> {
    let mut archive = ZipArchive::new(regular(path)?).map_err(unreadable)?;
    let member = format!("{name}.npy");
    let index = match (archive.index_for_name(&member), archive.len()) {
        (Some(index), _) => index,
        (None, 1) if !wanted.by_name => 0,
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
    array(archive.by_index(index).map_err(unreadable)?, wanted)
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Decode, format!("not an npz file that can be read: {error}"))
}

/// Writes `value` as one npy or pb file.
pub fn write(value: &Value, npy: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if !npy {
        return Ok(data::write(value, out)?);
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
    first(folder, candidates)
}

/// As [`find`], for the value called `name`, whose file may also have its name: `<name>.npy`.
pub fn find_named(folder: &Path, stem: &str, i: usize, name: &str) -> Option<PathBuf> {
    let by_number = first(folder, [format!("{stem}_{i}.pb"), format!("{stem}_{i}.npy")]);
    by_number
        // A name from the model leads to no other folder.
        .or_else(|| {
            let is_plain = !name.chars().any(std::path::is_separator);
            let files = [format!("{name}.npy"), format!("{name}.pb")];
            is_plain.then(|| first(folder, files)).flatten()
        })
        .or_else(|| first(folder, [format!("{stem}s.npz")]))
}

fn first(folder: &Path, names: impl IntoIterator<Item = String>) -> Option<PathBuf> {
    names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
}
