//! How a job, its files, its parts and the next call are named to people.

use std::path::{Path, PathBuf};

use onnx_container::job::Job;
use onnx_container::save::SavedFile;
use serde::Serialize;

use crate::terminal::failure::Failure;
use crate::terminal::output::{Output, lossy};
use crate::terminal::shell::quoted;

/// The most numbers and ranges that a line names.
const MOST: usize = 12;

/// What tells a job from others.
#[derive(Debug, Serialize)]
pub struct Named {
    id: String,
    #[serde(serialize_with = "lossy")]
    folder: PathBuf,
    #[serde(serialize_with = "lossy")]
    model: PathBuf,
}

impl Named {
    pub fn new(job: &Job) -> Self {
        Self { id: job.id().to_owned(), folder: job.folder(), model: job.path() }
    }

    /// The folder of the job.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prints the rows that every report of a job begins with.
    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        out.row("job", &self.id)?;
        out.row("model", self.model.display())?;
        out.row("folder", self.folder.display())?;
        Ok(())
    }
}

/// A file beside the model, or the model.
#[derive(Debug, Serialize)]
pub struct File {
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    pub bytes: u64,
}

impl File {
    /// The files `all` beside the model at `path`.
    pub fn beside(path: &Path, all: &[SavedFile]) -> Vec<Self> {
        let folder = path.parent().unwrap_or(Path::new(""));
        all.iter().map(|it| Self { path: folder.join(&it.name), bytes: it.bytes }).collect()
    }

    pub fn print(&self, out: &mut Output) -> Result<(), Failure> {
        Ok(out.line(format_args!("{:>12}  {}", self.bytes, self.path.display()))?)
    }
}

/// Sorted numbers as ranges with both of their ends.
fn ranges(parts: &[usize]) -> Vec<String> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for part in parts.iter().copied() {
        match ranges.last_mut().filter(|(_, last)| last.checked_add(1) == Some(part)) {
            Some((_, last)) => *last = part,
            None => ranges.push((part, part)),
        }
    }
    let text = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect()
}

/// `part 3`, `parts 3, 7-9`.
pub fn told(parts: &[usize]) -> String {
    let ranges = ranges(parts);
    let noun = if parts.len() == 1 { "part" } else { "parts" };
    let shown = ranges.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match ranges.len().checked_sub(MOST).filter(|more| *more > 0) {
        Some(_) => format!("{} {noun}: {shown} and others", parts.len()),
        None => format!("{noun} {shown}"),
    }
}

/// What writes the parts `missing` of the job at `path`.
pub fn call_to_write(path: &Path, missing: &[usize]) -> String {
    let (ranges, path) = (ranges(missing), quoted(&path.display().to_string()));
    let which = if ranges.len() > MOST { "--all".to_owned() } else { ranges.join(" ") };
    format!("`onnx-container job write {path} {which}`")
}

/// What is to be called next.
pub fn next_call(path: &Path, missing: &[usize], complete: bool) -> String {
    match (complete, missing.is_empty()) {
        (true, _) => format!("`onnx-container job commit {}`", quoted(&path.display().to_string())),
        (false, false) => call_to_write(path, missing),
        (false, true) => "the other writers, then job commit".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_ranges() {
        let every_second: Vec<_> = (0..40).step_by(2).collect();
        for (parts, said, call) in [
            (&[3][..], "part 3", "`onnx-container job write m.job 3`"),
            (&[3, 7], "parts 3, 7", "`onnx-container job write m.job 3 7`"),
            (&[0, 1, 2, 5, 6], "parts 0-2, 5-6", "`onnx-container job write m.job 0-2 5-6`"),
            (
                &every_second,
                "20 parts: 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and others",
                "`onnx-container job write m.job --all`",
            ),
        ] {
            assert_eq!(told(parts), said);
            assert_eq!(call_to_write(Path::new("m.job"), parts), call);
        }
        let commit = next_call(Path::new("my job"), &[], true);
        assert_eq!(commit, "`onnx-container job commit 'my job'`");
    }
}
