//! What a report has in it beside the model.

use onnx_container::LoadOptions;
use onnx_container::external_data::PathPolicy;
use serde::Serialize;

/// How a model is read, and which parts the page has.
#[derive(Debug, Clone, Default)]
pub struct ReportOptions {
    pub(crate) load: LoadOptions,
    pub(crate) paths: PathPolicy,
    pub(crate) stats: bool,
    pub(crate) plan: Option<MemoryPlan>,
}

impl ReportOptions {
    /// A page without statistics and without a plan.
    pub fn new(load: impl Into<LoadOptions>) -> Self {
        Self { load: load.into(), ..Self::default() }
    }

    /// Which links to weights files are followed, for the load too. Default
    /// [`PathPolicy::default`].
    #[must_use]
    pub fn paths(mut self, policy: PathPolicy) -> Self {
        self.load = self.load.paths(policy);
        self.paths = policy;
        self
    }

    /// Whether the page has the statistics of the tensors, and how far the changed ones are apart
    /// when two models are compared. All weights are read. Default false.
    #[must_use]
    pub fn stats(mut self, stats: bool) -> Self {
        self.stats = stats;
        self
    }

    /// The plan of memory that the page draws. Default none.
    #[must_use]
    pub fn plan(mut self, plan: impl Into<Option<MemoryPlan>>) -> Self {
        self.plan = plan.into();
        self
    }
}

/// Where the tensors of a run lie in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// How much memory the plan needs, in bytes.
    pub arena_bytes: u64,
    /// No plan needs less, in bytes.
    pub lower_bound: u64,
    /// The sum of all blocks, in bytes.
    pub unshared_bytes: u64,
    /// The step that needs most.
    pub peak_step: u64,
    /// Whether it is shown that no plan needs less.
    pub optimal: bool,
    /// Why the plan ends before the last step, if it does.
    pub barrier: Option<String>,
    /// The sizes that dimensions were given, such as `batch=1`.
    pub sizes: Vec<String>,
    /// The blocks.
    pub blocks: Vec<PlannedBlock>,
}

/// A range of memory, and the steps that need it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlannedBlock {
    /// The tensor.
    pub name: String,
    /// The first byte.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The first step that needs it.
    pub first_step: u64,
    /// The step after the last one that needs it.
    pub end_step: u64,
}
