//! [`OpenFiles`]: the weights files of a job that one writer writes to. A part may have more files
//! than a process may have open.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use super::description::Job;
use crate::error::{Error, Result};

/// How many files are kept open.
const MOST_OPEN: usize = 64;

/// Files that are opened when they are written to.
#[derive(Debug)]
pub(super) struct OpenFiles<'j> {
    job: &'j Job,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<usize, Arc<File>>,
    /// All that were ever open.
    used: BTreeSet<usize>,
}

impl<'j> OpenFiles<'j> {
    pub(super) fn new(job: &'j Job) -> Self {
        Self { job, state: Mutex::default() }
    }

    /// The weights file of this index.
    pub(super) fn get(&self, number: usize) -> Result<Arc<File>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = state.open.get(&number) {
            return Ok(file.clone());
        }
        let file = Arc::new(self.job.open_file(number)?);
        if state.open.len() >= MOST_OPEN {
            state.open.clear();
        }
        state.open.insert(number, file.clone());
        state.used.insert(number);
        Ok(file)
    }

    /// Waits until all that was written is on the disk, where the job wants that.
    pub(super) fn flush(self) -> Result<()> {
        let State { open, used } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !self.job.publishing.sync {
            return Ok(());
        }
        for number in used {
            let file = open.get(&number).cloned();
            let file = file.map_or_else(|| self.job.open_file(number).map(Arc::new), Ok)?;
            file.sync_all().map_err(|error| Error::io(self.job.folder(), error))?;
        }
        Ok(())
    }
}
