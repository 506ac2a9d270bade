//! [`RemoteJobOptions`]: how a job is divided, and what its commit does.

use onnx_container::edit::ExternalizeOptions;
use onnx_container::job::{JobOptions, SourceOptions};
use onnx_container::{Error, ErrorKind, Result, SaveOptions, WeightFiles};

use crate::publishing::PublishOptions;

/// How [`RemoteJob::plan`](super::RemoteJob::plan) divides the work, and what the commit does. A
/// number of parts and [`PublishOptions`] convert.
///
/// ```
/// use onnx_container::SaveOptions;
/// use onnx_container_store::PublishOptions;
/// use onnx_container_store::job::RemoteJobOptions;
///
/// let publish = PublishOptions::from(SaveOptions::new().digests(true)).keep(3);
/// let options = RemoteJobOptions::from(64).publish(publish);
/// ```
#[derive(Debug, Clone)]
pub struct RemoteJobOptions {
    pub(super) parts: usize,
    pub(super) publish: PublishOptions,
    pub(super) externalize: Option<ExternalizeOptions>,
    pub(super) source: SourceOptions,
}

impl Default for RemoteJobOptions {
    fn default() -> Self {
        let (publish, source) = (PublishOptions::new(), SourceOptions::new());
        Self { parts: 1, publish, externalize: None, source }
    }
}

impl RemoteJobOptions {
    /// One part, and the defaults of a publication.
    pub fn new() -> Self {
        Self::default()
    }

    /// Into how many parts the weights are divided, each of which is one weights file. Default 1. A
    /// job of fewer tensors has fewer, and the others have
    /// [nothing to write](super::RemoteJob::has_part).
    #[must_use]
    pub fn parts(mut self, parts: usize) -> Self {
        self.parts = parts;
        self
    }

    /// How the commit publishes the model, and the alignment of weights.
    #[must_use]
    pub fn publish(mut self, publish: impl Into<PublishOptions>) -> Self {
        self.publish = publish.into();
        self
    }

    /// Which inline tensors a [rewrite](super::RemoteJob::rewrite) moves out of the model first. By
    /// default those that [`SaveOptions::externalize`] moves out, which counts for nothing where
    /// these options are given.
    #[must_use]
    pub fn externalize(mut self, options: impl Into<Option<ExternalizeOptions>>) -> Self {
        self.externalize = options.into();
        self
    }

    /// How a [rewrite](super::RemoteJob::rewrite) opens its source, in every process.
    #[must_use]
    pub fn source(mut self, options: SourceOptions) -> Self {
        self.source = options;
        self
    }

    /// The options of a rewrite, where what the save moves out of the model is moved out before it.
    pub(super) fn moving_first(mut self) -> Self {
        let by_save = self.publish.save.take_externalize();
        self.externalize = self.externalize.or(by_save);
        self
    }

    /// How the weights files are laid out: digests are added by the commit.
    pub(super) fn layout(&self) -> SaveOptions {
        let files = WeightFiles::Balanced { files: self.parts };
        self.publish.save.clone().digests(false).weight_files(files)
    }

    /// Refuses what a job cannot do.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidArgument, reason));
        let (parts, most) = (self.parts, JobOptions::MAX_PARTS);
        if parts == 0 || parts > most {
            return invalid(format!("a job has 1 to {most} parts, not {parts}"));
        }
        let save = &self.publish.save;
        if save.files() != WeightFiles::Packed {
            let reason = "a job in a store has one weights file for each part: ask for parts";
            return invalid(reason.to_owned());
        }
        if save.has_checksums() {
            return invalid("a job has no checksums of files: ask for digests".to_owned());
        }
        if self.publish.dry_run {
            return invalid("a job is planned, and not tried: abort it".to_owned());
        }
        Ok(())
    }
}

impl From<usize> for RemoteJobOptions {
    fn from(parts: usize) -> Self {
        Self::new().parts(parts)
    }
}

impl From<PublishOptions> for RemoteJobOptions {
    fn from(publish: PublishOptions) -> Self {
        Self::new().publish(publish)
    }
}
