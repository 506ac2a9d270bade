//! [`BegunList`]: the slices that a writer has begun to write, in this run and in earlier ones. A
//! commit knows from it which elements have bytes of a run that did not end.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::disk::{no_link, read_text};
use super::receipt::WrittenTensor;
use crate::error::{Error, Result};

/// The list of one writer, open to be added to.
#[derive(Debug)]
pub(super) struct BegunList {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// In bytes.
    len: u64,
    lines: HashSet<String>,
}

impl BegunList {
    /// The list at `path`, which is made where it is not there.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let fail = |error| Error::io(&path, error);
        let mut options = File::options();
        options.create(true).append(true);
        let file = no_link(&mut options).open(&path).map_err(fail)?;
        let text = read_text(&path, false)?;
        let lines: HashSet<_> = lines(&text).map(str::to_owned).collect();
        // A line that an earlier run did not end stands for nothing that was written.
        let len = text.rfind('\n').map_or(0, |end| end.saturating_add(1)) as u64;
        file.set_len(len).map_err(fail)?;
        Ok(Self { path, state: Mutex::new(State { file, len, lines }) })
    }

    /// Notes what is about to be written.
    pub(super) fn note(&self, begun: &WrittenTensor) -> Result<()> {
        let mut line = serde_json::to_string(begun).map_err(Error::internal)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lines.contains(&line) {
            return Ok(());
        }
        line.push('\n');
        if let Err(error) = state.file.write_all(line.as_bytes()) {
            // Half of a line would be taken for the begin of the next one.
            drop(state.file.set_len(state.len));
            return Err(Error::io(&self.path, error));
        }
        state.len = state.len.saturating_add(line.len() as u64);
        line.pop();
        state.lines.insert(line);
        Ok(())
    }
}

/// The lines of a list that were written to their ends. What is cut off was not begun: the line
/// comes first.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}
