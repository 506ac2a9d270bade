//! How far a job is, for people and as JSON.

use onnx_container::ByteSize;
use onnx_container::job::{Job, JobStatus};
use serde::Serialize;

use crate::terminal::output::count;

/// How far a job is, as it is printed.
#[derive(Debug, Serialize)]
pub struct Progress {
    pub parts: usize,
    pub done: Vec<usize>,
    pub missing: Vec<usize>,
    pub writers: Vec<String>,
    pub bytes_written: u64,
    pub bytes: u64,
    pub complete: bool,
}

impl Progress {
    pub fn new(job: &Job, status: JobStatus) -> Self {
        let JobStatus { done, missing, writers, bytes_written, bytes, is_complete, .. } = status;
        let (parts, complete) = (job.parts().len(), is_complete);
        Self { parts, done, missing, writers, bytes_written, bytes, complete }
    }

    /// How much is written, in words.
    pub fn said(&self) -> String {
        let (written, all) = (ByteSize(self.bytes_written), ByteSize(self.bytes));
        match self.parts {
            0 => format!("{} ({written} of {all})", count(self.writers.len(), "writer")),
            parts => {
                format!("{} of {} ({written} of {all})", self.done.len(), count(parts, "part"))
            }
        }
    }
}
