//! One error type for the whole crate.
//!
//! Someone who ships a model needs to know which tensor, which file and which byte is at fault, so
//! an [`Error`] has a [kind](ErrorKind) for programs and a context for people. Work that can find
//! several faults (all missing files, all findings of a check) collects them in one error, see
//! [`Error::related`].

mod joined;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::joined::{Joined, Several, write_listed};

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the tensor, file and byte where it is known.
///
/// `Display` is one line in lower case: context first, then the reason.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::OutOfBounds, "ends at byte 20, the file has 16")
///     .with_tensor("encoder.w")
///     .with_path("model.onnx.data");
/// assert_eq!(error.kind(), ErrorKind::OutOfBounds);
/// assert_eq!(
///     error.to_string(),
///     "tensor `encoder.w`: `model.onnx.data`: ends at byte 20, the file has 16",
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    reason: String,
    tensor: Option<String>,
    path: Option<PathBuf>,
    offset: Option<u64>,
    /// Whether the reason says where that is.
    has_range: bool,
    related: Vec<Error>,
    source: Option<Arc<io::Error>>,
}

/// The class of an [`Error`], for programs that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a read, a write or a mapping.
    Io,
    /// The bytes are not a protobuf message.
    Decode,
    /// The file is what a failed download leaves, such as a Git LFS pointer or a web page.
    NotDownloaded,
    /// The protobuf message is not a valid ONNX model.
    InvalidModel,
    /// Two readers may take the file for two models.
    Ambiguous,
    /// An external tensor names a handle or an entry that nothing resolves.
    MissingHandle,
    /// A file that the model needs is not there.
    MissingFile,
    /// The model has no tensor of the name that was asked for.
    MissingTensor,
    /// A weights file that no model refers to.
    Unneeded,
    /// A tensor shares its bytes with others, and it was not said which of them are meant.
    Tied,
    /// A tensor is still used where it was to be deleted.
    InUse,
    /// A type is unknown, not the declared one, or not possible here.
    DataType,
    /// The type of a value is needed that neither is declared nor follows from declared ones.
    MissingType,
    /// Dimensions are negative, overflow, or disagree with the data.
    Shape,
    /// A byte range goes beyond the end of its file or buffer.
    OutOfBounds,
    /// A path leaves its directory or names something that is not a regular file.
    UnsafePath,
    /// A name or a target is taken by something that must not be replaced.
    AlreadyExists,
    /// There is not enough free space for what is to be written.
    NoSpace,
    /// A message or file is larger than its reader or writer allows.
    TooLarge,
    /// The model file would be larger than
    /// `SaveOptions::max_model_bytes` allows.
    ModelTooLarge,
    /// Weights that were to stay in the files that they were loaded from cannot stay there.
    CannotKeep,
    /// The request is valid but not supported.
    Unsupported,
    /// A file changed, or another took its place, while it was used or since it was loaded.
    Changed,
    /// Bytes do not have the digest that was stated or stored for them.
    WrongDigest,
    /// A signature is by another key than the one that was given (`onnx-container-signing`).
    OtherKey,
    /// A model is not the one that was signed (`onnx-container-signing`).
    NotVerified,
    /// The caller ended the work: by its progress callback, or by [`Cancel`](crate::Cancel).
    Cancelled,
    /// An argument is not one that the call accepts.
    InvalidArgument,
    /// Code of the caller failed, such as a source of weights; see [`Error::other`].
    Other,
    /// A bug of this crate: something that its own code rules out has happened.
    Internal,
}

/// The error of a call that was cancelled, or of a file that does not fit memory, which an
/// `io::Error` passed on.
fn passed_on(source: &io::Error) -> Option<Error> {
    let inner = source.get_ref()?.downcast_ref::<Error>()?;
    matches!(inner.kind(), ErrorKind::Cancelled | ErrorKind::TooLarge).then(|| inner.clone())
}

/// How many links are followed to find out where one leads.
const MOST_LINKS: usize = 40;

/// What is to be said of `path`, where it is a link and nothing is where it leads.
pub fn leads_nowhere(path: &Path) -> Option<String> {
    let mut target = path.read_link().ok()?;
    let mut at = path.parent()?.join(&target);
    for _ in 0..MOST_LINKS {
        let Ok(next) = at.read_link() else {
            let is_there = at.symlink_metadata().is_ok();
            let reason = || format!("a link to `{}`, which is not there", target.display());
            return (!is_there).then(reason);
        };
        at = at.parent()?.join(&next);
        target = next;
    }
    None
}

impl Error {
    /// An error of `kind` with a `reason`: one clause, lower case, no full stop.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            reason: reason.into(),
            tensor: None,
            path: None,
            offset: None,
            has_range: false,
            related: Vec::new(),
            source: None,
        }))
    }

    /// An operating-system error about `path`. Where that is a link to nothing, the reason says
    /// where it leads.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match passed_on(&source) {
            Some(error) if error.kind() == ErrorKind::Cancelled => return error,
            Some(error) => return error.with_path(path),
            None => {}
        }
        let (kind, reason) = match source.kind() {
            io::ErrorKind::NotFound => (ErrorKind::MissingFile, leads_nowhere(&path)),
            io::ErrorKind::StorageFull => (ErrorKind::NoSpace, None),
            _ => (ErrorKind::Io, None),
        };
        let reason = reason.unwrap_or_else(|| source.to_string());
        let mut error = Self::new(kind, reason).with_path(path);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// Any error, for a [source of weights](crate::WeightSource) that fails with one.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{Error, ErrorKind};
    ///
    /// let error = Error::other("the key has expired").with_tensor("encoder.w");
    /// assert_eq!(error.kind(), ErrorKind::Other);
    /// assert_eq!(error.to_string(), "tensor `encoder.w`: the key has expired");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = io::Error::other(error);
        let mut error = Self::new(ErrorKind::Other, source.to_string());
        error.0.source = Some(Arc::new(source));
        error
    }

    /// The system's error behind this one; this one where there is none.
    #[doc(hidden)]
    pub fn into_io(self) -> io::Error {
        let source = self.0.source.as_deref().map(|source| (source.raw_os_error(), source.kind()));
        match source {
            Some((Some(code), _)) => io::Error::from_raw_os_error(code),
            Some((None, kind)) => io::Error::new(kind, self),
            None => io::Error::other(self),
        }
    }

    /// What only a bug of this crate can cause, with `what` was found. Nothing was written.
    #[doc(hidden)] // for the crates above this one
    pub fn internal(what: impl fmt::Display) -> Self {
        let reason = format!("internal error, please report it: {what}");
        Self::new(ErrorKind::Internal, reason)
    }

    /// Joins `errors` into one: `None` when there are none, the error itself when it is alone,
    /// otherwise an error of the first one's kind that lists them in [`related`](Self::related): of
    /// more than 1,000, the first ones.
    pub fn join(errors: impl IntoIterator<Item = Self>) -> Option<Self> {
        errors.into_iter().collect::<Errors>().join()
    }

    /// One error for all of `errors`, with a reason that holds for each.
    #[doc(hidden)] // for the crates above this one
    pub fn joined(kind: ErrorKind, reason: String, errors: Vec<Self>) -> Self {
        let mut joined = Self::new(kind, reason);
        joined.0.related = errors;
        joined
    }

    /// The error of the system, or of code of the caller, behind this one. The reason has its text.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_deref()
    }

    /// Puts `what` before the reason.
    #[doc(hidden)] // for the crates above this one
    #[must_use]
    pub fn because(mut self, what: &str) -> Self {
        self.0.reason = format!("{what}: {}", self.0.reason);
        self
    }

    /// Puts `what` after the reason.
    #[must_use]
    #[doc(hidden)]
    pub fn and(mut self, what: &str) -> Self {
        self.0.reason = format!("{}; {what}", self.0.reason);
        self
    }

    /// Names the tensor or handle concerned, unless a more precise name is there already.
    #[must_use]
    pub fn with_tensor(mut self, tensor: impl Into<String>) -> Self {
        self.0.tensor.get_or_insert_with(|| tensor.into());
        self
    }

    /// Names the file concerned, unless one is named already.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// States the byte offset concerned, unless one is stated already.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// States the offset of the bytes concerned, which the reason names.
    #[must_use]
    #[doc(hidden)]
    pub fn with_range_in_reason(mut self, start: u64) -> Self {
        self.0.has_range = true;
        self.with_offset(start)
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The tensor or handle concerned.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }

    /// The file concerned.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset concerned, in the file or in the input.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The reason alone, without its context.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Every error of a joined one; empty when this error stands for itself.
    pub fn related(&self) -> &[Error] {
        &self.0.related
    }

    /// Every single error: this one, or of a joined one each that it joins.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{Error, ErrorKind};
    ///
    /// let missing = Error::new(ErrorKind::MissingFile, "no such file").with_path("w.bin");
    /// let unsafe_path = Error::new(ErrorKind::UnsafePath, "leaves the directory").with_path("../x");
    /// let joined = Error::join(vec![missing, unsafe_path]).ok_or("no errors")?;
    /// assert_eq!(joined.each().count(), 2);
    /// assert!(joined.has(ErrorKind::UnsafePath) && !joined.has(ErrorKind::Io));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn each(&self) -> impl Iterator<Item = &Error> {
        let mut pending = vec![self];
        std::iter::from_fn(move || {
            loop {
                let error = pending.pop()?;
                if error.0.related.is_empty() {
                    return Some(error);
                }
                pending.extend(error.0.related.iter().rev());
            }
        })
    }

    /// Whether this error, or one of those that it joins, is of `kind`.
    pub fn has(&self, kind: ErrorKind) -> bool {
        self.each().any(|error| error.kind() == kind)
    }
}

impl fmt::Debug for Error {
    /// The kind and the message: what `fn main() -> Result` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

/// Errors that are joined to one.
pub type Errors = Joined<Error>;

impl Several for Error {
    type Kind = ErrorKind;

    fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    fn joined(kind: ErrorKind, reason: String, errors: Vec<Self>) -> Self {
        Self::joined(kind, reason, errors)
    }
}

/// Text of which at most so many characters are shown: names come from strangers and may have any
/// length.
struct Cut<'t>(&'t str, usize);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, most) = self;
        match text.char_indices().nth(*most).and_then(|(end, _)| text.get(..end)) {
            Some(shown) => write!(f, "{shown}... ({} bytes in all)", text.len()),
            None => f.write_str(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tensor) = &self.0.tensor {
            write!(f, "tensor `{}`: ", Cut(tensor, 200))?;
        }
        if let Some(path) = &self.0.path {
            write!(f, "`{}`: ", path.display())?;
        }
        Cut(&self.0.reason, 2000).fmt(f)?;
        if let Some(offset) = self.0.offset.filter(|_| !self.0.has_range) {
            write!(f, " (at byte {offset})")?;
        }
        write_listed(&self.0.related, f)
    }
}

impl std::error::Error for Error {
    /// The cause of the [`io_error`](Self::io_error). Its own text is part of this error's, and
    /// each cause is printed once.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref()?.source()
    }
}

impl From<io::Error> for Error {
    /// An operating-system error about no file in particular: `?` in a
    /// [`WeightSource`](crate::WeightSource) of one's own. [`Error::io`] names the file.
    fn from(source: io::Error) -> Self {
        if let Some(error) = passed_on(&source) {
            return error;
        }
        let mut error = Self::new(ErrorKind::Io, source.to_string());
        error.0.source = Some(Arc::new(source));
        error
    }
}

impl From<std::convert::Infallible> for Error {
    /// Never called: lets a conversion that cannot fail stand where one that can is asked for.
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// As an object: `kind`, `tensor`, `path`, `offset` in bytes, `message`, and `errors`, every single
/// error where this one joins several.
#[cfg(feature = "serde")]
impl serde::Serialize for Error {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let joins = !self.related().is_empty();
        let errors: Vec<_> = self.each().filter(|_| joins).collect();
        let mut object = to.serialize_struct("Error", 6)?;
        object.serialize_field("kind", &self.kind())?;
        object.serialize_field("tensor", &self.tensor())?;
        object.serialize_field("path", &self.path().map(Path::to_string_lossy))?;
        object.serialize_field("offset", &self.offset())?;
        let message = if joins { self.reason().to_owned() } else { self.to_string() };
        object.serialize_field("message", &message)?;
        object.serialize_field("errors", &errors)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As programs print an error with its causes.
    fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
        let causes = std::iter::successors(Some(error), |error| (**error).source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn each_cause_is_printed_once() {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such key");
        let nested = || io::Error::other(Error::from(missing()));
        for (error, text) in [
            (Error::from(missing()), "no such key"),
            (Error::io("w.bin", missing()), "no such key"),
            (Error::from(missing()).because("the store"), "no such key"),
            (Error::from(nested()), "no such key"),
            (Error::new(ErrorKind::Io, "no such key"), "no such key"),
        ] {
            let printed = with_causes(&error);
            assert_eq!(printed.matches(text).count(), 1, "{printed}");
        }
        let error = Error::io("w.bin", missing());
        assert_eq!(error.io_error().unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_nothing_says_where_it_leads() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        for (target, name) in [
            ("../../blobs/9e5d", "gone"),
            ("gone", "chain"),
            ("file", "fine"),
            ("round", "round"),
            ("sub/none", "sub/below"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        let said = |name: &str| Error::io(at(name), io::ErrorKind::NotFound.into());
        for name in ["gone", "chain"] {
            let error = said(name);
            assert_eq!(error.reason(), "a link to `../../blobs/9e5d`, which is not there");
            assert_eq!(error.kind(), ErrorKind::MissingFile);
        }
        assert_eq!(said("sub/below").reason(), "a link to `sub/none`, which is not there");
        for name in ["fine", "round", "none", "none/none"] {
            assert!(!said(name).reason().contains("a link"), "{name}");
        }
    }

    #[test]
    fn what_an_io_error_passes_on_keeps_its_kind() {
        let passed = |kind| Error::new(kind, "why").into_io();
        for (kind, path) in
            [(ErrorKind::TooLarge, Some(Path::new("w"))), (ErrorKind::Cancelled, None)]
        {
            let error = Error::io("w", passed(kind));
            assert_eq!((error.kind(), error.path(), error.reason()), (kind, path, "why"));
            assert_eq!(Error::from(passed(kind)).kind(), kind);
        }
        assert_eq!(Error::io("w", passed(ErrorKind::Shape)).kind(), ErrorKind::Io);
    }

    #[test]
    fn of_many_errors_the_first_are_listed_and_fewer_shown() {
        let all = |n| (0..n).map(|i| Error::new(ErrorKind::Io, format!("no {i}")));
        let joined = |n| Error::join(all(n)).unwrap();
        assert!(Error::join(Vec::new()).is_none());
        assert_eq!(joined(1).to_string(), "no 0");
        assert_eq!(joined(3).to_string(), "3 problems: no 0; no 1; no 2");
        assert_eq!((joined(1000).reason(), joined(1000).related().len()), ("1000 problems", 1000));
        let many = joined(150_000);
        assert_eq!(many.reason(), "150000 problems, of which 1000 are listed");
        assert_eq!((many.kind(), many.related().len()), (ErrorKind::Io, 1000));
        assert!(many.to_string().ends_with("; no 99; and 900 more"), "{many}");
    }

    #[test]
    fn names_of_any_length_are_cut_where_they_are_shown() {
        let long = "ä".repeat(1 << 20);
        let error = Error::new(ErrorKind::Io, format!("no `{long}`")).with_tensor(long.as_str());
        assert!(error.to_string().len() < 6000, "{}", error.to_string().len());
        assert!(error.to_string().contains("ä... (2097152 bytes in all)`: no `ä"));
        assert_eq!(error.tensor(), Some(long.as_str()));
        let exact = "ä".repeat(200);
        let error = Error::new(ErrorKind::Io, "no").with_tensor(exact.as_str());
        assert_eq!(error.to_string(), format!("tensor `{exact}`: no"));
    }
}
