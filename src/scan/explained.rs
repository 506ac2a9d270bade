//! What is at a path that was given as that of a model and has none: a weights file, a folder, a
//! link to nothing, a file of another format, or a slip of the keyboard.

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::names::{is_named_as_a_model, model_of_weights};
use crate::error::{Error, ErrorKind};
use crate::files::external_data::directory_of;
use crate::save::model_that_needs;
use crate::util::did_you_mean::nearest;
use crate::util::retry::{exists, is_link, retried};

/// How many names of a folder are compared with one that is not there.
const MOST_NAMES: usize = 10_000;
/// How many models are named.
const MOST_MODELS: usize = 5;
/// How deep models of a folder are looked for: `snapshots/REVISION/onnx` of a cache.
const DEPTH: usize = 4;

/// The `error` of reading a model, with what is at its path in place of what a reader made of it,
/// and with the path that was probably meant.
///
/// ```
/// use onnx_container::scan::explained;
/// use onnx_container::{Container, MmapChoice};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("encoder.onnx"), "")?;
/// let error = Container::load(folder.path().join("encodr.onnx"), MmapChoice::never()).unwrap_err();
/// let text = explained(error).to_string();
/// assert!(text.contains("did you mean `") && text.contains("encoder.onnx`?"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn explained(error: Error) -> Error {
    let is_about_a_path = error.tensor().is_none() && error.related().is_empty();
    let Some(path) = error.path().filter(|_| is_about_a_path).map(Path::to_path_buf) else {
        return error;
    };
    match error.kind() {
        ErrorKind::MissingFile => missing(error, &path),
        ErrorKind::Decode => not_a_model(error, &path),
        _ if path.is_dir() && is_about_folder(&error) => {
            Error::new(error.kind(), folder(&path)).with_path(path)
        }
        _ => error,
    }
}

/// Whether the reason of `error` is that a folder is no file.
fn is_about_folder(error: &Error) -> bool {
    error.reason() == "a directory, not a file"
}

/// The `error` of a file that is not there.
fn missing(error: Error, path: &Path) -> Error {
    let text = path.to_string_lossy();
    if error.io_error().is_some()
        && let Some((scheme, _)) = text.split_once("://")
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        let reason = "a URL, not a file: download the model with its weights files first";
        return Error::new(ErrorKind::MissingFile, reason).with_path(path);
    }
    if is_link(path) {
        return error
            .and("copy the file itself: `cp -L` follows links, and so does `onnx-container cp`");
    }
    match meant(path) {
        Some(meant) => error.and(&meant),
        None => error,
    }
}

/// `did you mean ...?` with paths like `path`, where nothing is.
fn meant(path: &Path) -> Option<String> {
    let first = first_missing(path)?;
    let rest = path.strip_prefix(&first).ok()?;
    let is_file = rest.as_os_str().is_empty();
    let name = first.file_name()?.to_str()?;
    let names = names_in(&directory_of(&first), !is_file);
    let near = near(name, &names).into_iter().map(|name| first.with_file_name(name));
    let near: Vec<_> = near.collect();
    let whole: Vec<_> =
        near.iter().map(|path| path.join(rest)).filter(|path| exists(path)).collect();
    let shown = if is_file || whole.is_empty() { near } else { whole };
    let shown: Vec<_> = shown.iter().map(|path| format!("`{}`", path.display())).collect();
    (!shown.is_empty()).then(|| format!("did you mean {}?", shown.join(" or ")))
}

/// The `names` that are most like `name`. Of names with one extension the rest is compared: all
/// models are called `.onnx`.
fn near(name: &str, names: &[String]) -> Vec<String> {
    let extension = Path::new(name).extension();
    let stem = |name: &str| -> Option<String> {
        let path = Path::new(name);
        Some(path.file_stem().filter(|_| path.extension() == extension)?.to_str()?.to_owned())
    };
    let stems: Vec<_> = names.iter().filter_map(|name| stem(name)).collect();
    let own = stem(name).unwrap_or_default();
    let suffix = name.strip_prefix(&own).unwrap_or_default();
    let mut near: Vec<_> = nearest(&own, stems.iter().map(String::as_str))
        .into_iter()
        .map(|stem| format!("{stem}{suffix}"))
        .collect();
    let others = names.iter().filter(|name| Path::new(name).extension() != extension);
    let others = nearest(name, others.map(String::as_str)).into_iter().map(str::to_owned);
    near.extend(others);
    near.truncate(3);
    near
}

/// The part of `path` up to the first component that is not there.
fn first_missing(path: &Path) -> Option<PathBuf> {
    let up = path.ancestors().take_while(|part| !part.as_os_str().is_empty());
    up.take_while(|part| retried(|| part.symlink_metadata()).is_err()).last().map(Path::to_path_buf)
}

/// The names in `folder`, or those of its folders alone.
fn names_in(folder: &Path, folders: bool) -> Vec<String> {
    let entries = retried(|| std::fs::read_dir(folder)).into_iter().flatten().flatten();
    let entries = entries.take(MOST_NAMES).filter(|entry| !folders || entry.path().is_dir());
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The `error` of a file that is no model.
fn not_a_model(error: Error, path: &Path) -> Error {
    let of = |reason: String| Error::new(ErrorKind::Decode, reason).with_path(path);
    if let Ok(Some(model)) = model_that_needs(path) {
        let is_beside = directory_of(&model) == directory_of(path);
        let beside = if is_beside { ", which is beside it" } else { "" };
        let model = model.strip_prefix(".").unwrap_or(&model).display();
        return of(format!("a weights file of `{model}`{beside}, not a model"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let models = models_below(&directory_of(path), 1);
    if let Some(model) = model_of_weights(&name) {
        let is_there = exists(&path.with_file_name(&model));
        let why = match is_there {
            true => format!("`{model}`, which is beside it, does not need it"),
            false => format!("its model was probably called `{model}`, which is not there"),
        };
        return of(format!("a weights file by its name, not a model; {why}"));
    }
    match listed(&models) {
        Some(models) if !is_named_as_a_model(&name) => {
            error.and(&format!("a model beside it is {models}"))
        }
        _ => error,
    }
}

/// What is said of a folder in place of a model.
fn folder(path: &Path) -> String {
    match listed(&models_below(path, DEPTH)) {
        Some(models) => format!("a folder, not a model; in it is {models}"),
        None => "a folder, not a model, and no file below it is called .onnx".to_owned(),
    }
}

/// The first files below `folder` that have the names of models.
fn models_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let walk = WalkDir::new(folder).max_depth(depth).sort_by_file_name().into_iter();
    let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
    let entries = walk
        .filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry.file_name()))
        .take(MOST_NAMES)
        .flatten();
    let models = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy();
        !entry.file_type().is_dir() && is_named_as_a_model(&name)
    });
    models.take(MOST_MODELS + 1).map(walkdir::DirEntry::into_path).collect()
}

/// The paths of `models`, of which a few are shown.
fn listed(models: &[PathBuf]) -> Option<String> {
    let shown = models.iter().take(MOST_MODELS).map(|path| {
        let path = path.strip_prefix(".").unwrap_or(path);
        format!("`{}`", path.display())
    });
    let shown: Vec<_> = shown.collect();
    let more = if models.len() > MOST_MODELS { " and others" } else { "" };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}
