//! What `scan --json` prints.

use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container::scan::{
    Certainty, EqualWeights, FileState, LeftKind, Orphan, ScannedModel, WeightsFolder,
};
use serde::Serialize;

use super::found::Scanned;
use crate::terminal::output::{lossy, lossy_or_null};

/// The whole object.
#[derive(Serialize)]
pub struct Report<'a> {
    command: &'static str,
    scans: Vec<Folder<'a>>,
}

impl<'a> Report<'a> {
    pub fn new(scanned: &'a [Scanned]) -> Self {
        Self { command: "scan", scans: scanned.iter().map(Folder::new).collect() }
    }
}

/// What is below a folder.
#[derive(Serialize)]
struct Folder<'a> {
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
    files: usize,
    bytes: u64,
    models: Vec<Model<'a>>,
    not_models: Vec<Fault>,
    orphans: Vec<Listed<'a>>,
    without_model: Vec<Weights<'a>>,
    left: Vec<Left<'a>>,
    dangling: Vec<Fault>,
    equal: Option<Vec<Equal<'a>>>,
    unread: Vec<Fault>,
    reclaimable_bytes: u64,
    perhaps_reclaimable_bytes: u64,
    shareable_bytes: Option<u64>,
    shareable_in_one_folder_bytes: Option<u64>,
}

impl<'a> Folder<'a> {
    fn new(scanned: &'a Scanned) -> Self {
        let scan = &scanned.scan;
        let of_saves = scan.left.iter().map(|it| Left {
            path: &it.path,
            bytes: it.bytes,
            kind: match it.kind {
                LeftKind::Unneeded => "unneeded",
                LeftKind::InUse => "in_use",
                LeftKind::Job => "job",
                LeftKind::Committed => "committed",
                _ => "needed",
            },
        });
        let unfinished = scanned.unfinished.iter();
        let of_commands =
            unfinished.map(|it| Left { path: &it.path, bytes: it.bytes, kind: "unneeded" });
        Self {
            folder: &scan.folder,
            files: scan.files,
            bytes: scan.bytes,
            models: scan.models.iter().map(Model::new).collect(),
            not_models: scan.not_models.iter().map(Fault::new).collect(),
            orphans: scan.orphans.iter().map(Listed::new).collect(),
            without_model: scan.without_model.iter().map(Weights::new).collect(),
            left: of_saves.chain(of_commands).collect(),
            dangling: scan.dangling.iter().map(Fault::new).collect(),
            equal: scan.equal.as_ref().map(|equal| equal.iter().map(Equal::new).collect()),
            unread: scan.errors.iter().map(Fault::new).collect(),
            reclaimable_bytes: scanned.reclaimable_bytes(),
            perhaps_reclaimable_bytes: scan.perhaps_reclaimable(),
            shareable_bytes: scan.shareable(),
            shareable_in_one_folder_bytes: scan.shareable_in_one_folder(),
        }
    }
}

#[derive(Serialize)]
struct Model<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    bytes: u64,
    model_bytes: u64,
    files: Vec<File<'a>>,
    #[serde(serialize_with = "lossy_or_null")]
    link_to: Option<&'a PathBuf>,
    #[serde(serialize_with = "lossy_or_null")]
    same_file_as: Option<&'a PathBuf>,
    is_whole: bool,
    is_damaged: bool,
}

impl<'a> Model<'a> {
    fn new(model: &'a ScannedModel) -> Self {
        let file = |file: &'a onnx_container::scan::ScannedFile| File {
            path: &file.path,
            location: &file.location,
            bytes: file.bytes,
            state: match file.state {
                FileState::Present => "present",
                FileState::CutOff => "cut_off",
                FileState::Missing => "missing",
                FileState::Wrong => "wrong",
                FileState::Stripped => "stripped",
                _ => "refused",
            },
            reason: file.reason.as_deref(),
        };
        Self {
            path: &model.path,
            bytes: model.all_bytes(),
            model_bytes: model.bytes,
            files: model.files.iter().map(file).collect(),
            link_to: model.link_to.as_ref(),
            same_file_as: model.same_file_as.as_ref(),
            is_whole: model.is_whole,
            is_damaged: model.is_damaged,
        }
    }
}

#[derive(Serialize)]
struct File<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    location: &'a str,
    bytes: u64,
    state: &'static str,
    reason: Option<&'a str>,
}

/// What is wrong with a path.
#[derive(Serialize)]
struct Fault {
    path: Option<String>,
    reason: String,
}

impl Fault {
    fn new(error: &Error) -> Self {
        let path = error.path().map(|path| path.display().to_string());
        Self { path, reason: error.reason().to_owned() }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    bytes: u64,
    reclaimable_bytes: u64,
    certainty: &'static str,
    reason: &'a str,
}

impl<'a> Listed<'a> {
    fn new(orphan: &'a Orphan) -> Self {
        let Orphan { path, bytes, frees, certainty, reason, .. } = orphan;
        let certainty = match certainty {
            Certainty::Sure => "sure",
            Certainty::Likely => "likely",
            _ => "possible",
        };
        Self { path, bytes: *bytes, reclaimable_bytes: *frees, certainty, reason }
    }
}

#[derive(Serialize)]
struct Weights<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    files: usize,
    bytes: u64,
}

impl<'a> Weights<'a> {
    fn new(folder: &'a WeightsFolder) -> Self {
        Self { path: &folder.path, files: folder.files, bytes: folder.bytes }
    }
}

#[derive(Serialize)]
struct Left<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    bytes: u64,
    kind: &'static str,
}

#[derive(Serialize)]
struct Equal<'a> {
    bytes: u64,
    copies: usize,
    shareable_bytes: u64,
    shareable_in_one_folder_bytes: u64,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    tensor: &'a str,
}

impl<'a> Equal<'a> {
    fn new(equal: &'a EqualWeights) -> Self {
        let tensors = equal.places.iter();
        let tensors = tensors.map(|place| Tensor { model: &place.model, tensor: &place.tensor });
        Self {
            bytes: equal.bytes,
            copies: equal.copies,
            shareable_bytes: equal.shareable,
            shareable_in_one_folder_bytes: equal.saves_in_one_folder(),
            tensors: tensors.collect(),
        }
    }
}
