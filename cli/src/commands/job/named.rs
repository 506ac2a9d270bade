//! How parts of a job and the next call are named to people.

use std::path::Path;

use crate::terminal::shell::quoted;

/// The most numbers and ranges that a line names.
const MOST: usize = 12;

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
