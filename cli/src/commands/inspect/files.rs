//! The weights files of a model, counted, and those of safetensors.

use std::path::Path;
use std::sync::Arc;

use onnx_container::Error;
use onnx_container::summary::{Stored, Summary};
use serde::Serialize;

use crate::model::needed::{NeededFile, State};

/// Weights files, counted by their state.
#[derive(Debug, Default, Serialize)]
pub struct FileTotals {
    pub files: usize,
    /// Of those that are there.
    pub bytes: u64,
    pub present: usize,
    pub cut_off: usize,
    pub missing: usize,
    pub wrong: usize,
    pub refused: usize,
    /// In a store, which was not asked for them.
    pub unknown: usize,
}

impl FileTotals {
    /// The totals of `files`.
    pub fn of(files: &[NeededFile]) -> Self {
        let count = |state| files.iter().filter(|file| file.state() == state).count();
        let bytes = files.iter().filter_map(|file| *file.len.as_ref().ok()?);
        Self {
            files: files.len(),
            bytes: bytes.fold(0, |sum, bytes| sum.saturating_add(bytes)),
            present: count(State::Present),
            cut_off: count(State::CutOff),
            missing: count(State::Missing),
            wrong: count(State::Wrong),
            refused: count(State::Refused),
            unknown: count(State::Unknown),
        }
    }

    /// The number of files in this state.
    pub fn count(&self, state: State) -> usize {
        match state {
            State::Present => self.present,
            State::CutOff => self.cut_off,
            State::Missing => self.missing,
            State::Wrong => self.wrong,
            State::Refused => self.refused,
            State::Unknown => self.unknown,
        }
    }
}

/// The files of the tensors in `summary`, which is of the safetensors file or index at `path`.
pub fn of_safetensors(summary: &Summary, path: &Path) -> Vec<NeededFile> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::<NeededFile>::new();
    let mut places: Vec<_> =
        summary.tensors.iter().filter_map(|it| Some((it, it.bytes?))).collect();
    places.sort_by(|(a, _), (b, _)| location(&a.stored).cmp(&location(&b.stored)));
    for (tensor, bytes) in places {
        let Some((location, offset)) = location(&tensor.stored) else { continue };
        if files.last().is_none_or(|file| file.location != location) {
            files.push(file(folder, location));
        }
        if let Some(file) = files.last_mut() {
            file.tensors += 1;
            file.end = file.end.max(offset.saturating_add(bytes));
        }
    }
    files
}

fn location(stored: &Stored) -> Option<(&str, u64)> {
    match stored {
        Stored::External { location, offset, .. } => Some((location, *offset)),
        _ => None,
    }
}

fn file(folder: &Path, location: &str) -> NeededFile {
    let path = folder.join(location);
    let len = std::fs::metadata(&path).map(|data| Some(data.len()));
    let len = len.map_err(|error| Arc::new(Error::io(&path, error)));
    NeededFile { location: location.to_owned(), path, tensors: 0, end: 0, len }
}
