//! The targets that nothing may replace: what is read, models, the weights of other models, and
//! special files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onnx_container::save::{NotReplaced, not_replaced};
use onnx_container::{Error, ErrorKind, Result};

/// Why nothing may be written to `path`; `own` are the files that are read.
pub fn refusal(path: &Path, own: &[PathBuf], no_clobber: bool) -> Option<Error> {
    refusals([path], own, no_clobber).err()
}

/// Why nothing may be written to some of `paths`, in one error; `own` are the files that are read.
/// This is the one rule for all files that a program writes and that are no models: special files,
/// models, weights of models and what is read are refused; of a link the link is replaced, and
/// never what it leads to. With `no_clobber` nothing is replaced.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`], [`ErrorKind::UnsafePath`], or [`ErrorKind::Io`] for a folder that
/// is not there; those of reading the folders.
pub fn refusals<'p>(
    paths: impl IntoIterator<Item = &'p Path>,
    own: &[PathBuf],
    no_clobber: bool,
) -> Result<()> {
    let mut errors = Vec::new();
    let mut by_folder: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for path in paths {
        match refused_by_itself(path, own) {
            Some(error) => errors.push(error),
            None if path.symlink_metadata().is_ok() => {
                by_folder.entry(folder(path)).or_default().push(path);
            }
            None => {}
        }
    }
    for (folder, paths) in by_folder {
        match refused_by_models(folder, &paths, no_clobber) {
            Ok(refused) => errors.extend(refused),
            Err(error) => errors.push(error),
        }
    }
    Error::join(errors).map_or(Ok(()), Err)
}

/// What speaks against `path` whatever else is in its folder.
fn refused_by_itself(path: &Path, own: &[PathBuf]) -> Option<Error> {
    if !folder(path).is_dir() {
        let folder = folder(path);
        let reason = format!("no such folder; `mkdir -p {}` makes it", folder.display());
        return Some(Error::new(ErrorKind::Io, reason).with_path(folder));
    }
    path.symlink_metadata().ok()?;
    let refuse = |kind, reason: &str| Some(Error::new(kind, reason).with_path(path));
    // A stream of a process may be a regular file, and its link is there for all programs.
    if std::fs::read_link(path).is_ok_and(|target| target.starts_with("/proc")) {
        return refuse(ErrorKind::UnsafePath, "a link to something that is not a regular file");
    }
    if path.is_dir() {
        return refuse(ErrorKind::UnsafePath, "a folder: give the name of the file in it");
    }
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        return refuse(ErrorKind::UnsafePath, "not a regular file");
    }
    if path.canonicalize().is_ok_and(|path| own.contains(&path)) {
        return refuse(
            ErrorKind::AlreadyExists,
            "this file belongs to the model or is read by this command: it is not replaced",
        );
    }
    if path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("onnx")) {
        return refuse(ErrorKind::AlreadyExists, IS_MODEL);
    }
    None
}

const IS_MODEL: &str = "this is a model: it is not replaced";

/// What speaks against the files `paths` of `folder`, which are there: that they are models, or
/// weights of models.
fn refused_by_models(folder: &Path, paths: &[&Path], no_clobber: bool) -> Result<Vec<Error>> {
    // A name that is no Unicode is in no model.
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let names: Vec<_> = paths.iter().filter_map(|path| name(path)).collect();
    let kept = not_replaced(folder, &names)?;
    let reason = |path: &Path| match name(path).and_then(|name| kept.get(&name)) {
        Some(NotReplaced::NeededBy(model)) => {
            Some(format!("`{}` refers to this file: it is not replaced", model.display()))
        }
        Some(_) => Some(IS_MODEL.to_owned()),
        None => no_clobber.then(|| "exists already".to_owned()),
    };
    let refused = paths.iter().filter_map(|path| {
        Some(Error::new(ErrorKind::AlreadyExists, reason(path)?).with_path(path))
    });
    Ok(refused.collect())
}

/// The directory that holds `path`.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
