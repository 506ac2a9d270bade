//! Opening the files that locations name: beneath the handle of a directory, and by the rules of a
//! [`PathPolicy`].
//!
//! A path is never checked and then opened: the kernel resolves it beneath an open descriptor, or
//! it is resolved first and then opened beneath the descriptor without following any link. So a
//! link that is changed meanwhile leads nowhere.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result, leads_nowhere};
use crate::files::external_data::location::{check_location, directory_of};
use crate::files::external_data::root::{Opened, Refusal, Root, has_other_names};
use crate::util::retry::{is_link, retried};

/// Where links that lead to weights may lead. Each policy refuses absolute locations, `..`, NUL
/// bytes, in-memory tags, and what is not a regular file.
///
/// ```no_run
/// use onnx_container::external_data::PathPolicy;
/// use onnx_container::{Container, LoadOptions};
///
/// // A folder of links to weights on another disk.
/// let options = LoadOptions::new().paths(PathPolicy::Trusted);
/// let container = Container::load("model.onnx", options)?;
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PathPolicy {
    /// No links: neither a symbolic one on the way to a file, nor a file with other names (hard
    /// links). This is what onnx reads since 1.21.
    Strict,
    /// Links lead to files beneath the model's directory, or beneath the directory of the model's
    /// own file where the path of the model is a link itself, as in the cache of Hugging Face. This
    /// is what onnxruntime reads.
    #[default]
    ModelDirs,
    /// Links lead anywhere. The author of the folder chooses which files are read.
    Trusted,
}

impl PathPolicy {
    /// How to ask for it, in the library and in the command.
    fn options(self) -> &'static str {
        match self {
            Self::Strict => "the path policy strict (`--paths strict`)",
            Self::ModelDirs => "the path policy model-dirs (`--paths model-dirs`)",
            Self::Trusted => "the path policy trusted (`--paths trusted`)",
        }
    }
}

/// A directory that files are opened beneath.
///
/// On Linux the kernel resolves the whole path beneath an open descriptor (`openat2`), so that
/// neither `..` nor a symbolic link leads out of the directory. Elsewhere on Unix, links are
/// resolved, and the result is opened component by component without following any. On Windows, the
/// resolved path is compared with the directory's, and the file with that path. Only regular files
/// are opened.
#[derive(Debug)]
pub struct Directory {
    policy: PathPolicy,
    root: Root,
    /// The directory of the model's own file, where the path of the model is a link.
    of_own_file: Option<Root>,
}

impl Directory {
    /// Opens the directory `path`; the empty path is the current directory. Links lead to files
    /// inside it ([`PathPolicy::ModelDirs`]).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is not a directory, [`ErrorKind::MissingFile`] or
    /// [`ErrorKind::Io`] when it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_policy(path, PathPolicy::default())
    }

    /// As [`open`](Self::open), with another policy.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_policy(path: impl AsRef<Path>, policy: PathPolicy) -> Result<Self> {
        let root = Root::open(path.as_ref())?;
        Ok(Self { policy, root, of_own_file: None })
    }

    /// Opens the directory that has the model at `path`. Where that path is a link, links of the
    /// directory may also lead to files beneath the directory that has the model's own file
    /// ([`PathPolicy::ModelDirs`]).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_model(path: impl AsRef<Path>, policy: PathPolicy) -> Result<Self> {
        Self::with_policy(directory_of(path.as_ref()), policy)?.with_model(path.as_ref())
    }

    /// This directory, for the model at `path`, which may be elsewhere.
    pub(crate) fn with_model(mut self, path: &Path) -> Result<Self> {
        // With a stricter policy it only serves to say which one allows a link.
        if is_link(path)
            && let Ok(own) = retried(|| path.canonicalize())
        {
            self.of_own_file = Some(Root::open(&directory_of(&own))?);
        }
        Ok(self)
    }

    /// The directory's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// The path of `location` for messages and for callers that only name files.
    pub fn join(&self, location: &str) -> PathBuf {
        if self.path() == Path::new(".") { location.into() } else { self.path().join(location) }
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
    /// [`ErrorKind::UnsafePath`] when the location leads to what the policy refuses or is not a
    /// regular file, [`ErrorKind::MissingFile`] when nothing is there, [`ErrorKind::Io`] otherwise.
    pub fn open_file(&self, location: &str) -> Result<File> {
        self.open_known(location).map(|(file, _)| file)
    }

    /// As [`open_file`](Self::open_file), with the metadata that were read to see that the file is
    /// a regular one.
    pub(crate) fn open_known(&self, location: &str) -> Result<(File, Metadata)> {
        check_location(location).map_err(|e| e.with_path(self.join(location)))?;
        let opened = self.opened(Path::new(location));
        let (file, metadata) = opened.map_err(|refusal| self.explain(location, refusal))?;
        if metadata.is_file() {
            return Ok((file, metadata));
        }
        let what = if metadata.is_dir() { "a directory" } else { "a device, pipe or socket" };
        let reason = format!("{what}, not a regular file");
        Err(Error::new(ErrorKind::UnsafePath, reason).with_path(self.join(location)))
    }

    fn opened(&self, location: &Path) -> std::result::Result<(File, Metadata), Refusal> {
        let file = match self.policy {
            PathPolicy::Strict => self.root.open_without_links(location)?,
            PathPolicy::ModelDirs => self.open_inside(location)?,
            PathPolicy::Trusted => self.root.open_anywhere(location)?,
        };
        let metadata = retried(|| file.metadata())?;
        if self.policy == PathPolicy::Strict
            && metadata.is_file()
            && has_other_names(&file, &metadata)
        {
            return Err(Refusal::OtherNames);
        }
        Ok((file, metadata))
    }

    /// Opens what is beneath the model's directory or that of its own file, wherever links lead on
    /// the way.
    fn open_inside(&self, location: &Path) -> Opened {
        match self.root.open_beneath(location)? {
            Some(file) => Ok(file),
            None => self.open_resolved(location),
        }
    }

    /// As `open_inside`: links are resolved, and then none is followed.
    fn open_resolved(&self, location: &Path) -> Opened {
        let target = retried(|| self.path().canonicalize())?.join(location).canonicalize()?;
        for root in std::iter::once(&self.root).chain(&self.of_own_file) {
            if let Some(inside) = root.inside(&target)? {
                return root.open_without_links(inside);
            }
        }
        Err(Refusal::Outside(target))
    }

    fn explain(&self, location: &str, refusal: Refusal) -> Error {
        let path = self.join(location);
        let refused = |reason: String| Error::new(ErrorKind::UnsafePath, reason).with_path(&path);
        match refusal {
            // It was put there after links had been resolved.
            Refusal::Link if self.policy != PathPolicy::Strict => {
                refused("a symbolic link that is being changed".to_owned())
            }
            Refusal::Link => {
                let allowed = match self.open_inside(Path::new(location)) {
                    Err(Refusal::Outside(_)) => PathPolicy::Trusted,
                    _ => PathPolicy::ModelDirs,
                };
                let allowed = allowed.options();
                refused(format!("a symbolic link, or in a folder that is one: {allowed} allows it"))
            }
            Refusal::OtherNames => {
                let allowed = PathPolicy::ModelDirs.options();
                refused(format!("a file with other names (hard links): {allowed} allows it"))
            }
            Refusal::Outside(target) => refused(format!(
                "a symbolic link that leads out of the model's directory, to `{}`: {} allows it",
                target.display(),
                PathPolicy::Trusted.options()
            )),
            Refusal::Io(error) => explain_io(location, path, error),
        }
    }
}

fn explain_io(location: &str, path: PathBuf, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound
        && let Some(reason) = leads_nowhere(&path)
    {
        return Error::new(ErrorKind::MissingFile, reason).with_path(path);
    }
    let hint = match error.kind() {
        io::ErrorKind::NotFound if location.contains('\\') => {
            "no such file (the location contains a backslash, which only Windows separates by)"
        }
        io::ErrorKind::NotFound => "no such file",
        io::ErrorKind::InvalidInput => "not a regular file",
        io::ErrorKind::IsADirectory => "a directory, not a regular file",
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// What each policy, and each way to open, makes of a location: may it be opened?
    #[test]
    fn each_policy_by_each_way_opens_the_same() {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        for folder in ["model/sub", "own/deep", "elsewhere"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["model/w", "model/sub/w", "own/w", "own/deep/w", "own/m", "elsewhere/w"] {
            fs::write(at(file), file).unwrap();
        }
        for (target, link) in [
            ("../own/m", "model/m"),
            ("w", "model/in"),
            ("sub", "model/folder"),
            ("../own/w", "model/own"),
            ("../own/deep", "model/own_folder"),
            ("../elsewhere/w", "model/out"),
            ("../elsewhere", "model/out_folder"),
            ("out", "model/twice"),
            ("/dev/null", "model/device"),
            ("around", "model/around"),
            ("absent", "model/dangling"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        symlink(at("model/w"), at("model/absolute")).unwrap();
        fs::hard_link(at("elsewhere/w"), at("model/hard")).unwrap();
        let of = |policy| Directory::of_model(at("model/m"), policy).unwrap();
        let [strict, dirs, trusted] =
            [PathPolicy::Strict, PathPolicy::ModelDirs, PathPolicy::Trusted].map(of);
        let plain = Directory::open(at("model")).unwrap();
        for (location, expected) in [
            ("w", [true; 4]),
            ("./sub//w", [true; 4]),
            ("in", [false, true, true, true]),
            ("absolute", [false, true, true, true]),
            ("folder/w", [false, true, true, true]),
            ("hard", [false, true, true, true]),
            ("own", [false, false, true, true]),
            ("own_folder/w", [false, false, true, true]),
            ("out", [false, false, false, true]),
            ("out_folder/w", [false, false, false, true]),
            ("twice", [false, false, false, true]),
            ("device", [false; 4]),
            ("around", [false; 4]),
            ("dangling", [false; 4]),
            ("absent", [false; 4]),
            ("sub", [false; 4]),
            ("w/x", [false; 4]),
            ("../own/w", [false; 4]),
        ] {
            for (directory, expected) in
                [&strict, &plain, &dirs, &trusted].into_iter().zip(expected)
            {
                let opened = directory.open_file(location);
                assert_eq!(
                    opened.is_ok(),
                    expected,
                    "{location} {:?}: {opened:?}",
                    directory.policy
                );
            }
            // Without the kernel's help the rules are the same.
            let is_file = |opened: Opened| {
                opened.is_ok_and(|file| file.metadata().is_ok_and(|found| found.is_file()))
            };
            let path = Path::new(location);
            if check_location(location).is_ok() {
                assert_eq!(is_file(plain.open_resolved(path)), expected[1], "{location}");
                assert_eq!(is_file(dirs.open_resolved(path)), expected[2], "{location}");
                let steps = is_file(strict.root.open_step_by_step(path));
                assert_eq!(steps, expected[0] || location == "hard", "{location}");
            }
        }
    }

    #[test]
    fn a_refusal_says_what_allows_it() {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        fs::create_dir(at("model")).unwrap();
        fs::write(at("model/w"), "w").unwrap();
        fs::write(at("out"), "w").unwrap();
        symlink("w", at("model/in")).unwrap();
        symlink("../out", at("model/out")).unwrap();
        fs::hard_link(at("out"), at("model/hard")).unwrap();
        for (policy, location, said) in [
            (PathPolicy::Strict, "in", "`--paths model-dirs`"),
            (PathPolicy::Strict, "hard", "`--paths model-dirs`"),
            (PathPolicy::Strict, "out", "`--paths trusted`"),
            (PathPolicy::ModelDirs, "out", "`--paths trusted`"),
        ] {
            let directory = Directory::with_policy(at("model"), policy).unwrap();
            let error = directory.open_file(location).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsafePath);
            assert!(error.to_string().contains(said), "{location}: {error}");
        }
        let dirs = Directory::with_policy(at("model"), PathPolicy::ModelDirs).unwrap();
        let error = dirs.explain("in", Refusal::Link);
        assert!(error.reason().contains("is being changed"), "{error}");
        for (location, said) in [("w", true), ("d\\w", false)] {
            let missing = dirs.explain(location, Refusal::Io(io::ErrorKind::NotFound.into()));
            assert_eq!(
                (missing.kind(), missing.reason() == "no such file"),
                (ErrorKind::MissingFile, said)
            );
        }
        let other = dirs.explain("w", Refusal::Io(io::Error::from_raw_os_error(13)));
        assert_eq!(other.kind(), ErrorKind::Io);
    }

    /// Where the kernel has no `openat2`.
    #[test]
    fn a_link_and_a_file_that_is_not_there_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("w"), "w").unwrap();
        fs::create_dir(at("d")).unwrap();
        symlink("w", at("link")).unwrap();
        symlink("d", at("folder")).unwrap();
        let root = Directory::with_policy(folder.path(), PathPolicy::Strict).unwrap().root;
        for (location, link) in
            [("link", true), ("folder/w", true), ("gone", false), ("d/gone", false), ("w/w", false)]
        {
            let refused = root.open_step_by_step(Path::new(location)).unwrap_err();
            assert_eq!(matches!(refused, Refusal::Link), link, "{location}: {refused:?}");
        }
    }
}
