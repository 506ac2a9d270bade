//! Links that a save replaces by files. What they led to is not changed, and other programs may
//! expect it there: in a snapshot of a Hugging Face cache every file is a link to a blob.

use std::path::{Path, PathBuf};

use onnx_container::save::SavedFile;
use onnx_container::{Error, ErrorKind, Saved};

use crate::terminal::output::tidy;

/// The links of a folder, before a save.
pub struct Links {
    folder: PathBuf,
    /// Their paths, and the file that each leads to.
    found: Vec<(PathBuf, PathBuf)>,
}

impl Links {
    /// Those beside a model. What cannot be listed has none: the save says so.
    pub fn beside(model: &Path) -> Self {
        let folder = model.parent().unwrap_or(Path::new("")).to_owned();
        let entries = listed(&folder).read_dir().into_iter().flatten().flatten();
        let names = entries.filter(|entry| entry.path().is_symlink()).map(|it| it.file_name());
        let links = names.map(|name| folder.join(name));
        let found = links.filter_map(|link| Some((link.clone(), link.canonicalize().ok()?)));
        let found = found.collect();
        Self { folder, found }
    }

    /// A warning for each that `saved` replaced, or would replace in a dry run.
    pub fn replaced(&self, saved: &Saved, dry_run: bool) -> Vec<Error> {
        if saved.unchanged { Vec::new() } else { self.replaced_by(&saved.files, dry_run) }
    }

    /// As [`replaced`](Self::replaced), of `files` that are written.
    pub fn replaced_by(&self, files: &[SavedFile], dry_run: bool) -> Vec<Error> {
        let written = files.iter().map(|file| self.folder.join(&file.name));
        let link = |path: PathBuf| self.found.iter().find(|(link, _)| *link == path);
        let links = written.filter_map(link).filter(|(link, _)| dry_run || !link.is_symlink());
        links.map(|(link, target)| warning(link, target, dry_run)).collect()
    }
}

/// The path of `folder`, which is empty for the one in which the command runs.
fn listed(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// What is said of one `link` to `target`.
fn warning(link: &Path, target: &Path, dry_run: bool) -> Error {
    let becomes = if dry_run { "would become" } else { "became" };
    let reason = match is_cached(link, target) {
        true => format!(
            "a link of a Hugging Face cache, which {becomes} a file of its own: the blob in the \
             cache is not changed, and programs that load this snapshot read the new file; give an \
             OUT outside of the cache to leave the snapshot as it is"
        ),
        false => format!(
            "a link to `{}`, which {becomes} a file of its own: what it led to is not changed",
            tidy(target).display()
        ),
    };
    Error::new(ErrorKind::UnsafePath, reason).with_path(link)
}

/// Whether a link of a snapshot leads to a blob of the same cache.
fn is_cached(link: &Path, target: &Path) -> bool {
    let folder = listed(link.parent().unwrap_or(Path::new(""))).canonicalize();
    let Some(blobs) = target.parent().filter(|blobs| blobs.ends_with("blobs")) else {
        return false;
    };
    let snapshots = blobs.with_file_name("snapshots");
    folder.is_ok_and(|folder| folder.starts_with(snapshots))
}
