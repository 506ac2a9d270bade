//! Where tensors are written: one file, a directory, or standard output.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result, model_that_needs};
use tempfile::{Builder, NamedTempFile};

use crate::args::ExtractArgs;
use crate::failure::Failure;

/// What `-o` names.
#[derive(Debug)]
pub enum Target {
    Stdout,
    File(PathBuf),
    Directory(PathBuf),
}

impl Target {
    /// The target that `args` name, seen to hold what they ask for.
    pub fn of(args: &ExtractArgs) -> Result<Self, Failure> {
        let (path, several) = (&args.output, args.names.len() > 1);
        let refused = |reason: &str| Err(Failure::Usage(reason.to_owned()));
        if path.as_os_str() == "-" {
            return match (several, args.out.json) {
                (true, _) => refused("standard output takes one tensor; -o DIR/ takes several"),
                (_, true) => refused("standard output takes the tensor or --json, not both"),
                _ => Ok(Self::Stdout),
            };
        }
        let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if slash || path.is_dir() {
            return Ok(Self::Directory(path.clone()));
        }
        Ok(Self::File(path.clone()))
    }
}

/// Why nothing may be written to `path`; `own` are the files of the model that is read.
pub fn refusal(path: &Path, own: &[PathBuf], no_clobber: bool) -> Option<Error> {
    if !folder(path).is_dir() {
        return Some(Error::new(ErrorKind::Io, "no such folder").with_path(folder(path)));
    }
    path.symlink_metadata().ok()?;
    let refuse = |kind, reason: &str| Some(Error::new(kind, reason).with_path(path));
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        return refuse(ErrorKind::UnsafePath, "not a regular file; - is standard output");
    }
    if path.canonicalize().is_ok_and(|path| own.contains(&path)) {
        return refuse(ErrorKind::AlreadyExists, "a file of the model itself: not replaced");
    }
    if path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("onnx")) {
        return refuse(ErrorKind::AlreadyExists, "a model: not replaced by a tensor");
    }
    if let Some(model) = model_that_needs(path) {
        let reason = format!("`{}` refers to this file: it is not replaced", model.display());
        return refuse(ErrorKind::AlreadyExists, &reason);
    }
    if no_clobber { refuse(ErrorKind::AlreadyExists, "exists already") } else { None }
}

/// A file that was written beside its target and is not yet renamed; dropping it removes it.
#[derive(Debug)]
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Has `write` fill a file that will be `path`; with `sync` it is on the disk then.
    pub fn new(
        path: PathBuf,
        sync: bool,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<Self> {
        let fail = |e| Error::io(&path, e);
        let folder = folder(&path);
        folder.metadata().map_err(|e| Error::io(folder, e))?;
        let file = builder().tempfile_in(folder).map_err(fail)?;
        let mut buffered = BufWriter::new(file.as_file());
        write(&mut buffered).map_err(|e| e.with_path(&path))?;
        buffered.flush().map_err(fail)?;
        drop(buffered);
        if sync {
            file.as_file().sync_all().map_err(fail)?;
        }
        Ok(Self { file, path })
    }

    /// Renames the file to its target.
    pub fn publish(self, no_clobber: bool) -> Result<()> {
        let Self { file, path } = self;
        let published =
            if no_clobber { file.persist_noclobber(&path) } else { file.persist(&path) };
        published.map(drop).map_err(|e| Error::io(&path, e.error))
    }
}

/// Temporary files with the mode that the umask gives, as any other new file.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".extract-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}

/// The directory that holds `path`.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
