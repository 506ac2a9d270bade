//! How a job is planned: [`JobOptions`], and what a rewrite changes, [`Recast`].

use serde::{Deserialize, Serialize};

use super::source_options::SourceOptions;
use crate::container::Container;
use crate::container::cast::{CastOptions, CastReport};
use crate::container::externalize::ExternalizeOptions;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::save::{SaveOptions, WeightFiles};

/// How [`Job::plan`](super::Job::plan) divides the work, and what the commit does. A number of
/// parts, [`SaveOptions`] and [`WeightFiles`] convert.
///
/// ```
/// use onnx_container::job::JobOptions;
/// use onnx_container::{SaveOptions, WeightFiles};
///
/// let shards = SaveOptions::from(WeightFiles::Sharded { max_bytes: 4 << 30 }).digests(true);
/// let options = JobOptions::from(64).save(shards);
/// ```
#[derive(Debug, Clone)]
pub struct JobOptions {
    pub(super) parts: usize,
    pub(super) slices: bool,
    pub(super) save: SaveOptions,
    pub(super) externalize: Option<ExternalizeOptions>,
    pub(super) source: SourceOptions,
}

impl Default for JobOptions {
    fn default() -> Self {
        let (save, source) = (SaveOptions::new(), SourceOptions::new());
        Self { parts: 1, slices: false, save, externalize: None, source }
    }
}

impl JobOptions {
    /// The most parts of a job.
    pub const MAX_PARTS: usize = 100_000;

    /// One part, and the defaults of a save.
    pub fn new() -> Self {
        Self::default()
    }

    /// Into how many parts the weights are divided. Default 1. A job of fewer tensors has fewer,
    /// and the others have [nothing to write](super::Job::has_part).
    #[must_use]
    pub fn parts(mut self, parts: usize) -> Self {
        self.parts = parts;
        self
    }

    /// Whether processes write slices of tensors ([`Job::slice_writer`](super::Job::slice_writer))
    /// and not parts. A job is one or the other: no process may write over what another has
    /// written. Default false.
    #[must_use]
    pub fn slices(mut self, slices: bool) -> Self {
        self.slices = slices;
        self
    }

    /// The layout, and how the result is put in place. A job does not keep files where they are,
    /// and has no checksums of files; digests are known from the receipts.
    #[must_use]
    pub fn save(mut self, save: impl Into<SaveOptions>) -> Self {
        self.save = save.into();
        self
    }

    /// Which inline tensors a [rewrite](super::Job::rewrite) moves out of the model first, as
    /// [`Container::externalize`] does. By default those that [`SaveOptions::externalize`] moves
    /// out, which counts for nothing where these options are given. What
    /// [`plan`](super::Job::plan) is given has them where its caller wants them.
    #[must_use]
    pub fn externalize(mut self, options: impl Into<Option<ExternalizeOptions>>) -> Self {
        self.externalize = options.into();
        self
    }

    /// How a [rewrite](super::Job::rewrite) opens its source, in every process.
    #[must_use]
    pub fn source(mut self, options: SourceOptions) -> Self {
        self.source = options;
        self
    }

    /// The options of a rewrite, where what the save moves out of the model is moved out before it:
    /// parts are written from what has moved.
    pub(super) fn moving_first(mut self) -> Self {
        let by_save = self.save.take_externalize();
        self.externalize = self.externalize.or(by_save);
        self
    }

    /// The options of the plan: digests are added by the commit.
    pub(super) fn layout(&self) -> SaveOptions {
        self.save.clone().digests(false)
    }

    /// Refuses what a job cannot do.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidArgument, reason));
        if self.parts == 0 || self.parts > Self::MAX_PARTS {
            return invalid(format!(
                "a job has 1 to {} parts, not {}",
                Self::MAX_PARTS,
                self.parts
            ));
        }
        if self.slices && self.parts > 1 {
            return invalid("a job that is written in slices has no parts".to_owned());
        }
        if matches!(self.save.weight_files, WeightFiles::Embedded | WeightFiles::AsLoaded) {
            return invalid("a job writes the weights into files of their own".to_owned());
        }
        if self.save.checksums {
            return invalid("a job has no checksums of files: ask for digests".to_owned());
        }
        Ok(())
    }
}

impl From<usize> for JobOptions {
    fn from(parts: usize) -> Self {
        Self::new().parts(parts)
    }
}

impl From<SaveOptions> for JobOptions {
    fn from(save: SaveOptions) -> Self {
        Self::new().save(save)
    }
}

impl From<WeightFiles> for JobOptions {
    fn from(weight_files: WeightFiles) -> Self {
        Self::new().save(weight_files)
    }
}

/// The float type that a rewrite stores and computes in: [`Container::cast`], as the command
/// `cast` does it.
///
/// ```
/// use onnx_container::DataType;
/// use onnx_container::job::Recast;
///
/// let recast = Recast::new(DataType::Float16).keep_io(true);
/// let recast = recast.keep_ops(["Softmax"]).except(["lm_head.weight"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recast {
    to: DataType,
    #[serde(default)]
    keep_io: bool,
    #[serde(default)]
    except: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keep_ops: Vec<String>,
}

impl Recast {
    /// FLOAT, FLOAT16 or BFLOAT16.
    pub fn new(to: DataType) -> Self {
        Self { to, keep_io: false, except: Vec::new(), keep_ops: Vec::new() }
    }

    /// Whether inputs and outputs of the model keep their types. Default false.
    #[must_use]
    pub fn keep_io(mut self, keep_io: bool) -> Self {
        self.keep_io = keep_io;
        self
    }

    /// The names of weights that stay as they are.
    #[must_use]
    pub fn except<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.except.extend(names.into_iter().map(Into::into));
        self
    }

    /// Operators (`Softmax`), or names of nodes, that compute in the old type; see
    /// [`CastOptions::keep_ops`].
    #[must_use]
    pub fn keep_ops<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.keep_ops.extend(names.into_iter().map(Into::into));
        self
    }

    /// Casts the weights of `container`.
    ///
    /// # Errors
    /// Those of [`Container::cast`].
    pub fn apply(&self, container: &mut Container) -> Result<CastReport> {
        let options = CastOptions::new().compute(true).keep_io(self.keep_io);
        let options = options.except(self.except.iter().cloned());
        container.cast(self.to, options.keep_ops(self.keep_ops.iter().cloned()))
    }
}
