//! [`scan`]: every model below a folder with its files, and the files that no model needs.
//!
//! Nothing is changed, and no weight is read unless equal weights are asked for. Models are told by
//! their content and not by their names: `content` looks at the beginning of each file, and at the
//! messages of one that is a model. `tree` lists the files, each once however many names it has,
//! `needed` finds which of them models need, `names` says what a name tells of weights, `orphans`
//! decides on the files that nothing needs, and `equal` compares weights. `explained` says what is
//! at a path that is no model. What saves left is known to the room `recovery`.

mod content;
mod equal;
mod explained;
mod names;
mod needed;
mod options;
mod orphans;
mod report;
mod tree;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub use self::explained::explained;
pub use self::options::ScanOptions;
pub use self::report::{
    Certainty, EqualWeights, FileState, LeftFile, LeftKind, Orphan, Scan, ScannedFile,
    ScannedModel, WeightsFolder, WeightsPlace,
};

use self::content::Content;
use self::needed::Needed;
use self::tree::Tree;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::refuse_nul;
use crate::files::recovery::{LeftState, left_by_saves};
use crate::util::cancel;
use crate::util::retry::retried;

/// Finds every model below `folder`, its files, and the files that no model needs.
///
/// Links to folders are not followed, and folders called `.git` are not entered. A file that has
/// several names, by links or hard links, counts once. What cannot be read is in
/// [`Scan::errors`], and the scan goes on.
///
/// ```
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
/// use onnx_container::scan::{Certainty, ScanOptions, scan};
///
/// let folder = tempfile::tempdir().unwrap();
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "m.onnx.data"));
/// let model = ModelProto::new(graph).encode_to_vec()?;
/// for (name, bytes) in [("m.onnx", &model[..]), ("m.onnx.data", &[1, 2]), ("m.onnx_data", &[0, 1])] {
///     std::fs::write(folder.path().join(name), bytes).unwrap();
/// }
/// let found = scan(folder.path(), ScanOptions::new())?;
/// assert_eq!(found.models.len(), 1);
/// assert_eq!(found.models[0].files[0].path, folder.path().join("m.onnx.data"));
/// assert_eq!(found.orphans[0].path, folder.path().join("m.onnx_data"));
/// assert_eq!(found.orphans[0].certainty, Certainty::Sure);
/// assert_eq!(found.reclaimable(), 2);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where `folder` is not a folder; [`ErrorKind::MissingFile`] and
/// [`ErrorKind::Io`] when it cannot be listed; [`ErrorKind::Cancelled`].
pub fn scan(folder: impl AsRef<Path>, options: impl Into<ScanOptions>) -> Result<Scan> {
    let (folder, options) = (folder.as_ref(), options.into());
    refuse_nul(folder)?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let metadata = retried(|| folder.metadata()).map_err(|error| Error::io(folder, error))?;
    if !metadata.is_dir() {
        let reason = "not a folder: a scan looks at folders";
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(folder));
    }
    retried(|| std::fs::read_dir(folder)).map_err(|error| Error::io(folder, error))?;
    let tree = Tree::walk(folder);
    let contents = content::of_all(&tree)?;
    let mut errors = tree.errors.clone();
    let left = left_files(&tree, &mut errors);
    let mut needed = Needed::find(&tree, &contents, &left, folder);
    let mut found = Scan {
        folder: folder.to_path_buf(),
        files: tree.files.iter().filter(|file| file.is_inside()).count(),
        bytes: left
            .iter()
            .map(|left| left.bytes)
            .fold(needed.all_bytes(&tree, &contents), u64::saturating_add),
        models: std::mem::take(&mut needed.models),
        not_models: content::not_models(&tree, &contents),
        dangling: tree.dangling.clone(),
        ..Scan::default()
    };
    orphans::find(&tree, &contents, &needed, &mut found);
    errors.extend(contents.iter().filter_map(|content| match content {
        Content::Unread(error) => Some(error.clone()),
        _ => None,
    }));
    errors.extend(needed.errors.iter().cloned());
    if options.equal {
        let (equal, failed) = equal::find(&found.models, &options)?;
        found.equal = Some(equal);
        errors.extend(failed);
    }
    cancel::check()?;
    (found.left, found.errors, found.folders) = (left, errors, tree.folders);
    Ok(found)
}

/// What saves left in the folders of `tree`.
fn left_files(tree: &Tree, errors: &mut Vec<Error>) -> Vec<LeftFile> {
    let mut left = Vec::new();
    for folder in &tree.with_leftovers {
        match left_by_saves(folder) {
            Ok(found) => left.extend(found.into_iter().map(|it| left_file(it, errors))),
            Err(error) => errors.push(error),
        }
    }
    count_once(tree, &mut left);
    left
}

/// Says how many bytes each has. A file that several have counts once: of a job and of a save that
/// a killed commit left, it is the job's, which may go on.
fn count_once(tree: &Tree, left: &mut [LeftFile]) {
    let is_of_job = |it: &&mut LeftFile| matches!(it.kind, LeftKind::Job | LeftKind::Committed);
    let (jobs, others): (Vec<_>, Vec<_>) = left.iter_mut().partition(is_of_job);
    let mut known = HashSet::new();
    for one in jobs.into_iter().chain(others) {
        one.bytes = tree.bytes_below(&one.path, &mut known);
    }
}

/// One of these, whose bytes are not counted yet.
fn left_file((path, state): (PathBuf, LeftState), errors: &mut Vec<Error>) -> LeftFile {
    let kind = match state {
        LeftState::Needed => LeftKind::Needed,
        LeftState::InUse => LeftKind::InUse,
        LeftState::Unneeded => LeftKind::Unneeded,
        LeftState::Job => match is_committed(&path) {
            Ok(true) => LeftKind::Committed,
            Ok(false) => LeftKind::Job,
            Err(error) => {
                errors.push(error);
                LeftKind::Job
            }
        },
    };
    LeftFile { path, bytes: 0, kind }
}

/// Whether the job whose folder is at `path` is committed, and what is left of it may go.
#[cfg(feature = "jobs")]
fn is_committed(path: &Path) -> Result<bool> {
    crate::job::is_committed(path)
}

#[cfg(not(feature = "jobs"))]
fn is_committed(_: &Path) -> Result<bool> {
    Ok(false)
}
