//! The `external_data` entries of a tensor, and opening the file at a `location`.
//!
//! Entries and locations are untrusted input. So entries are parsed strictly, a location is checked
//! component by component, and files are opened only beneath the model's directory. The [specification]
//! leaves defaults open; where readers differ, only what every reader accepts is accepted, and the rest
//! is refused with an error that says why.
//!
//! [specification]: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::buffer::Buffer;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{StringStringEntryProto, TensorProto};
use crate::wire::Str;

/// The parsed `external_data` of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalData {
    /// The file, relative to the model's directory, or a handle such as `#w`.
    pub location: String,
    /// The first byte of the data in the file; 0 where the entry is absent.
    pub offset: u64,
    /// The length in bytes. When it is absent or `0`, it follows from dtype and dims.
    pub length: Option<u64>,
    /// The SHA-1 of the whole file, as written.
    pub checksum: Option<String>,
    /// Keys that the specification does not name. Some readers refuse them.
    pub unknown_keys: Vec<String>,
}

/// Whether the data of `tensor` are outside the model file.
pub fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location == Some(TensorProto::EXTERNAL)
}

/// Whether `location` is a symbolic handle, which refers to memory and not to a file.
pub fn is_handle(location: &str) -> bool {
    location.starts_with('#')
}

impl ExternalData {
    /// Parses the entries of `tensor`.
    ///
    /// ```
    /// use onnx_container::external_data::ExternalData;
    /// use onnx_container::proto::{StringStringEntryProto, TensorProto};
    ///
    /// let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [2], "model.onnx.data");
    /// tensor.external_data.push(StringStringEntryProto::new("offset", "256"));
    /// let data = ExternalData::parse(&tensor)?;
    /// assert_eq!(data.range(8)?, 256..264);
    ///
    /// tensor.external_data.push(StringStringEntryProto::new("length", "+8"));
    /// assert!(ExternalData::parse(&tensor).is_err());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when `location` is missing or empty, a key occurs twice, a
    /// number is not plain decimal digits or does not fit 63 bits, or the tensor also carries
    /// inline data; [`ErrorKind::Unsupported`] for a segment.
    pub fn parse(tensor: &TensorProto) -> Result<Self> {
        let (location, entries) = Entries::of(tensor)?;
        Ok(Self {
            location: location.to_owned(),
            offset: entries.offset.unwrap_or(0),
            length: entries.declared_length(),
            checksum: entries.checksum.map(str::to_owned),
            unknown_keys: entries.unknown_keys.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The bytes of the file that hold `len` bytes of tensor data.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when the entry's length differs from `len`; [`ErrorKind::OutOfBounds`] when
    /// the range passes 2^63.
    pub fn range(&self, len: u64) -> Result<Range<u64>> {
        range(self.offset, self.length, len)
    }
}

/// The range of `len` bytes from `offset` on, where the entries give the length `declared`.
fn range(offset: u64, declared: Option<u64>, len: u64) -> Result<Range<u64>> {
    if let Some(length) = declared.filter(|length| *length != len) {
        let reason = format!("external data length is {length} bytes, dtype and shape need {len}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    let end = end.ok_or_else(|| {
        let reason = format!("external data offset {offset} plus {len} bytes overflows");
        Error::new(ErrorKind::OutOfBounds, reason)
    })?;
    Ok(offset..end)
}

/// The handle of the external `tensor`, with its `#`, borrowed from it; `None` where
/// [`ExternalData::parse`] fails or the location is a file.
pub(crate) fn handle_of(tensor: &TensorProto) -> Option<&str> {
    if !is_external(tensor) {
        return None;
    }
    let (location, _) = Entries::of(tensor).ok()?;
    is_handle(location).then_some(location)
}

/// The entries of one tensor, borrowed from it; each key at most once.
#[derive(Default)]
pub(crate) struct Entries<'t> {
    location: Option<&'t str>,
    offset: Option<u64>,
    length: Option<u64>,
    checksum: Option<&'t str>,
    unknown_keys: Vec<&'t str>,
    unknown: HashSet<&'t str>,
}

impl<'t> Entries<'t> {
    /// The location of `tensor`, which is not empty, and all its entries.
    pub(crate) fn of(tensor: &'t TensorProto) -> Result<(&'t str, Self)> {
        let mut entries = Self::default();
        for entry in &tensor.external_data {
            entries.take(entry)?;
        }
        if inline_payload(tensor) {
            return Err(invalid("has both external and inline data"));
        }
        if tensor.segment.is_some() {
            let reason = "is a segment of a tensor, which no reader supports";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let location = entries.location.filter(|location| !location.is_empty());
        let location = location.ok_or_else(|| invalid("external data has no location"))?;
        Ok((location, entries))
    }

    /// As [`ExternalData::range`].
    pub(crate) fn range(&self, len: u64) -> Result<Range<u64>> {
        range(self.offset.unwrap_or(0), self.declared_length(), len)
    }

    /// The length in bytes, where one is given.
    fn declared_length(&self) -> Option<u64> {
        self.length.filter(|length| *length > 0)
    }

    /// The first of the keys that the specification does not name.
    pub(crate) fn unknown_key(&self) -> Option<&'t str> {
        self.unknown_keys.first().copied()
    }

    fn take(&mut self, entry: &'t StringStringEntryProto) -> Result<()> {
        // Compared as bytes: models have thousands of entries, and the known keys are ASCII.
        let again = match entry.key.as_ref().map_or(&[][..], Str::as_bytes) {
            b"location" => self.location.replace(text(&entry.value)?).is_some(),
            b"offset" => self.offset.replace(number("offset", &entry.value)?).is_some(),
            b"length" => self.length.replace(number("length", &entry.value)?).is_some(),
            b"checksum" => self.checksum.replace(text(&entry.value)?).is_some(),
            _ => {
                let (key, _) = (text(&entry.key)?, text(&entry.value)?);
                self.unknown_keys.push(key);
                !self.unknown.insert(key)
            }
        };
        if again {
            return Err(invalid(format!("external data key `{}` occurs twice", text(&entry.key)?)));
        }
        Ok(())
    }
}

/// The text of a key or value, empty where there is none.
fn text(string: &Option<Str>) -> Result<&str> {
    string.as_ref().map_or(Ok(""), |string| {
        string.to_str().map_err(|_| {
            invalid(format!("external data entry `{}` is not UTF-8", string.to_string_lossy()))
        })
    })
}

/// Parses decimal digits and nothing else: readers differ on signs, spaces and underscores.
fn number(key: &str, value: &Option<Str>) -> Result<u64> {
    let digits = value.as_ref().map_or(&[][..], Str::as_bytes);
    let add = |number: u64, byte: &u8| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    };
    let parsed = digits.iter().try_fold(0, add).filter(|n| i64::try_from(*n).is_ok());
    match parsed.filter(|_| !digits.is_empty()) {
        Some(number) => Ok(number),
        None => {
            let value = text(value)?;
            let reason =
                format!("external data {key} {value:?} is not a decimal number below 2^63");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}

/// Whether any value field holds data.
pub(crate) fn inline_payload(tensor: &TensorProto) -> bool {
    tensor.raw_data.as_ref().is_some_and(|raw| !raw.is_empty())
        || !tensor.float_data.is_empty()
        || !tensor.int32_data.is_empty()
        || !tensor.string_data.is_empty()
        || !tensor.int64_data.is_empty()
        || !tensor.double_data.is_empty()
        || !tensor.uint64_data.is_empty()
}

/// A copy of `tensor` without value fields and external entries: no element is copied.
pub(crate) fn header_of(tensor: &TensorProto) -> TensorProto {
    let TensorProto { dims, segment, name, doc_string, metadata_props, unknown, .. } = tensor;
    TensorProto {
        dims: dims.clone(),
        data_type: tensor.data_type,
        segment: segment.clone(),
        name: name.clone(),
        doc_string: doc_string.clone(),
        metadata_props: metadata_props.clone(),
        unknown: unknown.clone(),
        ..TensorProto::default()
    }
}

/// Removes every value field and external entry from `tensor`.
pub(crate) fn clear_payload(tensor: &mut TensorProto) {
    clear_values(tensor);
    tensor.external_data.clear();
    tensor.data_location = None;
}

/// Removes every value field from `tensor`.
fn clear_values(tensor: &mut TensorProto) {
    tensor.raw_data = None;
    tensor.float_data.clear();
    tensor.int32_data.clear();
    tensor.string_data.clear();
    tensor.int64_data.clear();
    tensor.double_data.clear();
    tensor.uint64_data.clear();
}

/// Makes `tensor` external with exactly these `entries`, in place of whatever data it had.
fn set_entries(tensor: &mut TensorProto, entries: Vec<StringStringEntryProto>) {
    clear_payload(tensor);
    tensor.data_location = Some(TensorProto::EXTERNAL);
    tensor.external_data = entries;
}

/// Makes `tensor` hold `bytes` itself, in place of whatever data it had.
pub(crate) fn set_inline(tensor: &mut TensorProto, bytes: Buffer) {
    clear_payload(tensor);
    tensor.raw_data = Some(bytes);
}

/// Makes `tensor` refer to the handle `#name`.
pub(crate) fn set_handle(tensor: &mut TensorProto, handle: &str) {
    set_entries(tensor, vec![StringStringEntryProto::new("location", handle)]);
}

/// Makes the external `tensor` refer to the handle `location`. The list of its entries is used again and
/// the key is shared, so that nothing is allocated.
pub(crate) fn move_to_handle(tensor: &mut TensorProto, location: Str) {
    static KEY: LazyLock<Str> = LazyLock::new(|| Str::from("location"));
    clear_values(tensor);
    tensor.external_data.truncate(1);
    if let Some(entry) = tensor.external_data.first_mut() {
        entry.key = Some(KEY.clone());
        entry.value = Some(location);
        entry.unknown.clear();
    }
}

/// Makes `tensor` refer to `range` (bytes) of the file `location`, which has the SHA-1 `checksum` if one is given.
pub(crate) fn set_range(
    tensor: &mut TensorProto,
    (location, checksum): (&Str, Option<&Str>),
    range: &Range<u64>,
) {
    // Shared by all entries: a save makes them twice for each tensor.
    static KEYS: LazyLock<[Str; 4]> =
        LazyLock::new(|| ["location", "offset", "length", "checksum"].map(Str::from));
    let length = range.end.saturating_sub(range.start);
    let values = [location.clone(), range.start.to_string().into(), length.to_string().into()];
    let entries = KEYS.iter().cloned().zip(values.into_iter().chain(checksum.cloned()));
    let entries = entries.map(|(key, value)| StringStringEntryProto::new(key, value));
    set_entries(tensor, entries.collect());
}

/// The data type and byte length of `tensor`, packed as the spec says.
pub(crate) fn layout(tensor: &TensorProto) -> Result<(DataType, u64)> {
    let dtype = DataType::try_from(tensor.data_type.unwrap_or(0))?;
    if dtype == DataType::String {
        return Err(Error::new(ErrorKind::DataType, "a STRING tensor cannot be external"));
    }
    Ok((dtype, dtype.byte_len(&tensor.dims)?))
}

/// Refuses a `location` that could name anything but a file beneath the model's directory.
///
/// Each component is checked, so `w..bin` passes and `a/../w.bin` does not. The rule is the same on
/// every platform: a drive letter is refused on Linux too, since the model may be copied to Windows.
///
/// ```
/// use onnx_container::external_data::check_location;
///
/// assert!(check_location("weights/w..bin").is_ok());
/// for location in ["../w.bin", "/etc/passwd", "C:\\w.bin", "a/", "w\0.bin"] {
///     assert!(check_location(location).is_err());
/// }
/// ```
///
/// # Errors
/// [`ErrorKind::UnsafePath`] with the reason.
pub fn check_location(location: &str) -> Result<()> {
    let bytes = location.as_bytes();
    let drive = bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.get(1) == Some(&b':');
    let reason = if location.is_empty() {
        "location is empty"
    } else if location.contains('\0') {
        "location contains a NUL byte"
    } else if location.starts_with("*/_ORT_") {
        "location is an in-memory tag of onnxruntime, which a file must not contain"
    } else if location.starts_with(['/', '\\']) || drive {
        "location is an absolute path"
    } else if location.split(['/', '\\']).any(|component| component == "..") {
        "location contains a `..` component"
    } else if location.ends_with('/') || Path::new(location).file_name().is_none() {
        "location names a directory"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::UnsafePath, format!("{reason}: {location:?}")))
}

/// `location` without its `.` and empty components, so that `./w` and `w` are recognized as the same
/// file.
pub(crate) fn without_dots(location: &str) -> String {
    let parts = location.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

/// `name` in the form in which file systems that ignore case compare it. It is converted to upper case
/// and then to lower case, so that `ſ`, `ß` and a final `ς` become `s`, `ss` and `σ`, as they do there.
pub(crate) fn fold_case(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The directory that holds the file `path`.
pub(crate) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The error for a file of `len` bytes at `path` that should have `needed` bytes: the data of `count`
/// tensors end beyond it, and `range` is that of the first of them. A file that begins like a known
/// `format` may be the wrong file.
pub(crate) fn cut_off(
    path: impl Into<PathBuf>,
    format: Option<&str>,
    len: u64,
    needed: u64,
    range: &Range<u64>,
    count: usize,
) -> Error {
    let what = format.map_or(String::new(), |format| format!("{format}, not raw data, or "));
    let mut reason = format!(
        "{what}cut off: the file has {len} bytes, {needed} are needed; the data of this tensor are \
         bytes {} to {}",
        range.start, range.end
    );
    if count > 1 {
        reason += &format!(", and those of {} more end beyond the file", count - 1);
    }
    Error::new(ErrorKind::OutOfBounds, reason).with_path(path).with_offset(range.start)
}

/// A directory that files are opened beneath.
///
/// On Linux the kernel resolves the whole path beneath an open descriptor (`openat2`), so that neither
/// `..` nor a symbolic link leads out of the directory; elsewhere the resolved path is compared with
/// the directory's. Links to files inside the directory are followed. Only regular files are opened.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    descriptor: File,
}

impl Directory {
    /// Opens the directory `path`; the empty path is the current directory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is not a directory, [`ErrorKind::MissingFile`] or
    /// [`ErrorKind::Io`] when it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let meta = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if !meta.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, "not a directory").with_path(path));
        }
        Ok(Self {
            path: path.to_path_buf(),
            #[cfg(target_os = "linux")]
            descriptor: Self::descriptor(path).map_err(|e| Error::io(path, e))?,
        })
    }

    /// A descriptor to open files beneath, which needs no permission to list the directory.
    #[cfg(target_os = "linux")]
    fn descriptor(path: &Path) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(open(path, flags, Mode::empty())?.into())
    }

    /// The directory's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `location` for messages and for callers that only name files.
    pub fn join(&self, location: &str) -> PathBuf {
        if self.path == Path::new(".") { location.into() } else { self.path.join(location) }
    }

    /// Opens the regular file at `location` for reading.
    ///
    /// ```
    /// use onnx_container::ErrorKind;
    /// use onnx_container::external_data::Directory;
    ///
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("w.bin"), [0; 8])?;
    /// let directory = Directory::open(folder.path())?;
    /// assert_eq!(directory.open_file("./w.bin")?.metadata()?.len(), 8);
    /// assert_eq!(directory.open_file("../w.bin").unwrap_err().kind(), ErrorKind::UnsafePath);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnsafePath`] when the location leaves the directory or is not a regular file,
    /// [`ErrorKind::MissingFile`] when nothing is there, [`ErrorKind::Io`] otherwise.
    pub fn open_file(&self, location: &str) -> Result<File> {
        self.open_known(location).map(|(file, _)| file)
    }

    /// As [`open_file`](Self::open_file), with the metadata that were read to see that the file is a
    /// regular one.
    pub(crate) fn open_known(&self, location: &str) -> Result<(File, Metadata)> {
        check_location(location).map_err(|e| e.with_path(self.join(location)))?;
        let file = self.open_beneath(location).map_err(|e| self.explain(location, e))?;
        let meta = file.metadata().map_err(|e| Error::io(self.join(location), e))?;
        if meta.is_file() {
            return Ok((file, meta));
        }
        let what = if meta.is_dir() { "a directory" } else { "a device, pipe or socket" };
        let reason = format!("{what}, not a regular file");
        Err(Error::new(ErrorKind::UnsafePath, reason).with_path(self.join(location)))
    }

    fn explain(&self, location: &str, error: io::Error) -> Error {
        let path = self.join(location);
        let hint = match error.kind() {
            io::ErrorKind::NotFound if location.contains('\\') => {
                "no such file (the location contains a backslash, which only Windows separates by)"
            }
            io::ErrorKind::NotFound => "no such file",
            io::ErrorKind::InvalidInput => "not a regular file",
            io::ErrorKind::CrossesDevices => {
                "a symbolic link that leads out of the model's directory, as in the cache of Hugging \
                 Face: `hf download --local-dir DIRECTORY` makes files of such links"
            }
            // This is the error of opening a socket, or a device without a driver.
            _ if error.raw_os_error() == Some(6) => "a device, pipe or socket, not a regular file",
            _ => return Error::io(path, error),
        };
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::MissingFile,
            _ => ErrorKind::UnsafePath,
        };
        Error::new(kind, hint).with_path(path)
    }

    #[cfg(target_os = "linux")]
    fn open_beneath(&self, location: &str) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
        use rustix::io::Errno;
        // Opening a FIFO must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = |path: &Path| {
            openat2(&self.descriptor, path, flags, Mode::empty(), resolve).map(File::from)
        };
        match open(Path::new(location)) {
            // `openat2` refuses an absolute link even when its target is inside, so the link is
            // resolved first.
            Err(Errno::XDEV) => open(&self.resolve(location)?).map_err(io::Error::from),
            // Kernels before 5.6 and some sandboxes do not have `openat2`.
            Err(Errno::NOSYS | Errno::PERM) => self.open_resolved(location),
            other => other.map_err(io::Error::from),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_beneath(&self, location: &str) -> io::Result<File> {
        self.open_resolved(location)
    }

    /// Opens the resolved path after checking that it is inside the directory.
    fn open_resolved(&self, location: &str) -> io::Result<File> {
        let path = self.path.canonicalize()?.join(self.resolve(location)?);
        if !std::fs::metadata(&path)?.is_file() {
            let reason = "not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        File::open(path)
    }

    /// The path of `location` relative to the directory, with every link resolved.
    fn resolve(&self, location: &str) -> io::Result<PathBuf> {
        let root = self.path.canonicalize()?;
        let target = root.join(location).canonicalize()?;
        let inside = target.strip_prefix(&root).map(Path::to_path_buf);
        inside.map_err(|_| io::Error::from(io::ErrorKind::CrossesDevices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(entries: &[(&str, &str)]) -> TensorProto {
        let mut tensor = TensorProto::new("w", DataType::Float.number(), [4]);
        let entries = entries.iter().map(|(k, v)| StringStringEntryProto::new(*k, *v)).collect();
        set_entries(&mut tensor, entries);
        tensor
    }

    #[test]
    fn numbers_are_plain_digits() {
        for (value, number) in
            [("0", 0), ("16", 16), ("007", 7), ("9223372036854775807", i64::MAX as u64)]
        {
            let parsed = ExternalData::parse(&tensor(&[("location", "w.bin"), ("offset", value)]));
            assert_eq!(parsed.unwrap().offset, number);
        }
        for value in [
            "",
            " 0",
            "+0",
            "-1",
            "1_6",
            "0x0",
            "1e3",
            "9223372036854775808",
            "18446744073709551616",
        ] {
            for key in ["offset", "length"] {
                let error = ExternalData::parse(&tensor(&[("location", "w.bin"), (key, value)]))
                    .unwrap_err();
                assert!(error.reason().contains(key), "{error}");
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn without_the_kernels_help_the_rules_are_the_same() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("model");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("w.bin"), "inside").unwrap();
        std::fs::write(outer.path().join("out.bin"), "outside").unwrap();
        std::os::unix::fs::symlink("w.bin", root.join("in")).unwrap();
        std::os::unix::fs::symlink("../out.bin", root.join("out")).unwrap();
        std::os::unix::fs::symlink("/dev/null", root.join("device")).unwrap();
        let directory = Directory::open(&root).unwrap();
        let kind = |location: &str| {
            let opened = directory.open_resolved(location);
            opened.map_err(|error| directory.explain(location, error).kind()).err()
        };
        for (location, expected) in [
            ("w.bin", None),
            ("in", None),
            ("sub", Some(ErrorKind::UnsafePath)),
            ("out", Some(ErrorKind::UnsafePath)),
            ("device", Some(ErrorKind::UnsafePath)),
            ("absent", Some(ErrorKind::MissingFile)),
        ] {
            assert_eq!(kind(location), expected, "{location}");
        }
    }

    #[test]
    fn entries_are_strict() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "no location"),
            (&[("location", "")], "no location"),
            (&[("location", "a"), ("location", "a")], "`location` occurs twice"),
            (&[("location", "a"), ("offset", "0"), ("offset", "0")], "`offset` occurs twice"),
            (&[("location", "a"), ("x", "0"), ("x", "0")], "`x` occurs twice"),
        ];
        for (entries, reason) in cases {
            let error = ExternalData::parse(&tensor(entries)).unwrap_err();
            assert!(error.reason().contains(reason), "{error}");
        }
        let both =
            TensorProto { raw_data: Some(vec![0; 16].into()), ..tensor(&[("location", "a")]) };
        assert!(ExternalData::parse(&both).unwrap_err().reason().contains("inline"));
    }

    #[test]
    fn unknown_keys_are_kept_apart_and_zero_length_is_unset() {
        let parsed = ExternalData::parse(&tensor(&[
            ("location", "w.bin"),
            ("length", "0"),
            ("basepath", "/x"),
            ("prepacked_0", "y"),
        ]))
        .unwrap();
        assert_eq!(parsed.unknown_keys, ["basepath", "prepacked_0"]);
        assert_eq!(parsed.length, None);
        assert_eq!(parsed.range(16).unwrap(), 0..16);
    }

    #[test]
    fn ranges_are_exact() {
        let entry = |offset: u64, length: Option<u64>| ExternalData {
            location: "w".into(),
            offset,
            length,
            checksum: None,
            unknown_keys: Vec::new(),
        };
        assert_eq!(entry(8, Some(16)).range(16).unwrap(), 8..24);
        for length in [15, 17, 1_000_000_000_000_000] {
            assert_eq!(entry(0, Some(length)).range(16).unwrap_err().kind(), ErrorKind::Shape);
        }
        for offset in [i64::MAX as u64 - 15, u64::MAX] {
            assert_eq!(entry(offset, None).range(16).unwrap_err().kind(), ErrorKind::OutOfBounds);
        }
    }

    #[test]
    fn locations_are_judged_by_component() {
        for good in ["w.bin", "sub/w.bin", "./w.bin", "w..bin", "..w", "sub\\w.bin", "ä/ü", "..."]
        {
            assert!(check_location(good).is_ok(), "{good}");
        }
        let bad = [
            "",
            "..",
            "../w",
            "a/../w",
            "a/..",
            "/etc/hostname",
            "//w",
            "\\w",
            "\\\\?\\w",
            "C:\\w",
            "c:w",
            "w\0x",
            "w/",
            ".",
            "./",
            "..\\w",
            "a\\..\\w",
            "*/_ORT_MEM_ADDR_/*",
            "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*",
        ];
        for bad in bad {
            assert_eq!(check_location(bad).unwrap_err().kind(), ErrorKind::UnsafePath, "{bad}");
        }
    }
}
