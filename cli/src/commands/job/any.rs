//! A job, wherever its model is: in a folder or in a store. The commands of jobs know no more of
//! it, so that each is written once.

use std::path::PathBuf;

use onnx_container::edit::CastReport;
use onnx_container::{MmapChoice, Result};

use super::results::{Committed, Layout, Named, Progress, Written};

/// A job of either kind.
pub trait AnyJob {
    fn named(&self) -> Named;

    /// What the cast of a rewrite does, which this process has planned.
    fn cast(&self) -> Option<&CastReport>;

    /// What is planned.
    fn layout(&self) -> Layout;

    /// Says whether the model file of the source is mapped.
    fn map_source(self: Box<Self>, map: MmapChoice) -> Box<dyn AnyJob>;

    fn to_json(&self) -> Result<String>;

    /// The folders of the other jobs of the model, as far as they are found.
    fn others(&self) -> Vec<PathBuf>;

    fn has_part(&self, part: usize) -> bool;

    fn write(&self, part: usize) -> Result<Written>;

    /// The parts without a receipt. Each of many writers may ask.
    fn missing(&self) -> Result<Vec<usize>>;

    /// How far the job is, by the receipts that can be read.
    fn progress(&self) -> Result<Progress>;

    fn commit(&self) -> Result<Committed>;

    /// What a commit has put in place, of a job that has ended; none where it goes on, was aborted,
    /// or it cannot be told.
    fn committed(&self) -> Result<Option<Committed>>;

    fn abort(self: Box<Self>) -> Result<()>;
}
