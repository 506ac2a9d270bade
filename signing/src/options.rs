//! [`SignOptions`] and [`VerifyOptions`]: how a model is signed and verified.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;

use onnx_container::external_data::PathPolicy;
use onnx_container::{Error, ErrorKind, Limits, LoadOptions, MmapChoice, Result};

use crate::keys::{PrivateKey, PublicKey};
use crate::signed::Warning;
use crate::terms::{self, Terms};

/// How the files of a model are opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) mmap: MmapChoice,
    pub(crate) paths: PathPolicy,
    pub(crate) limits: Limits,
}

impl Reading {
    fn new() -> Self {
        Self { mmap: MmapChoice::never(), paths: PathPolicy::default(), limits: Limits::new() }
    }
}

/// The setters that both kinds of options have.
macro_rules! setters_of_both {
    ($Options:ident) => {
        impl $Options {
            /// Whether the model's files are mapped. Default: [`MmapChoice::never`].
            #[must_use]
            pub fn mmap(mut self, mmap: MmapChoice) -> Self {
                self.reading.mmap = mmap;
                self
            }

            /// Which links to weights files are followed when the model is read. Links are never
            /// signed. Default: [`PathPolicy::ModelDirs`].
            #[must_use]
            pub fn paths(mut self, policy: PathPolicy) -> Self {
                self.reading.paths = policy;
                self
            }

            /// How much the model may hold. Default: [`Limits::new`].
            #[must_use]
            pub fn limits(mut self, limits: Limits) -> Self {
                self.reading.limits = limits;
                self
            }

            /// How messages name options and calls, for callers that give them other names.
            /// Default: the names of this crate.
            #[must_use]
            pub fn terms(mut self, terms: Terms) -> Self {
                self.terms = terms;
                self
            }
        }
    };
}

setters_of_both!(SignOptions);
setters_of_both!(VerifyOptions);

impl From<Reading> for LoadOptions {
    fn from(reading: Reading) -> Self {
        Self::from(reading.mmap).paths(reading.paths).limits(reading.limits)
    }
}

/// How the digests of shards are named. It is for readers alone: what counts is the method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardForm {
    /// `sha256`, as the specification says.
    #[default]
    Spec,
    /// `sha256-sharded-N`, the only form that the Python package model-signing 1.1 reads.
    ModelSigning,
}

type WarningFn = Box<dyn Fn(&Warning) + Send + Sync>;
type WritingFn = Box<dyn Fn() -> ControlFlow<()> + Send + Sync>;

/// How a model is signed.
///
/// ```no_run
/// use onnx_container_signing::{PrivateKey, SignOptions, sign};
///
/// let key = PrivateKey::read("key.pem")?;
/// let signed = sign("m/model.onnx", &SignOptions::new(key).all_files(true))?;
/// println!("{}", signed.signature.display());
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub struct SignOptions {
    pub(crate) key: PrivateKey,
    pub(crate) signature: Option<PathBuf>,
    pub(crate) all_files: bool,
    pub(crate) shard_size: Option<u64>,
    shard_form: Option<ShardForm>,
    pub(crate) ignore_stored_digests: bool,
    pub(crate) sync: bool,
    pub(crate) overwrite: bool,
    pub(crate) reading: Reading,
    pub(crate) on_warning: Option<WarningFn>,
    pub(crate) writing: Option<WritingFn>,
    pub(crate) terms: Terms,
}

impl SignOptions {
    /// The defaults: the files of the model, each as a whole, by `key` to `model.sig` beside the
    /// model.
    pub fn new(key: PrivateKey) -> Self {
        Self {
            key,
            signature: None,
            all_files: false,
            shard_size: None,
            shard_form: None,
            ignore_stored_digests: false,
            sync: true,
            overwrite: true,
            reading: Reading::new(),
            on_warning: None,
            writing: None,
            terms: terms::own,
        }
    }

    /// The signature on files to write, `NAME.sig`; that on content is `NAME.digest.sig` beside it.
    /// Default: `model.sig` in the folder of the model.
    #[must_use]
    pub fn signature(mut self, path: impl Into<PathBuf>) -> Self {
        self.signature = Some(path.into());
        self
    }

    /// Signs every file of the model's folder. Default: `false`, only those of the model.
    #[must_use]
    pub fn all_files(mut self, all: bool) -> Self {
        self.all_files = all;
        self
    }

    /// Signs files in pieces of so many bytes, so that one file is hashed by all cores. Default:
    /// files as a whole.
    #[must_use]
    pub fn shard_size(mut self, bytes: u64) -> Self {
        self.shard_size = Some(bytes);
        self
    }

    /// How the digests of shards are named; refused without [`shard_size`](Self::shard_size).
    /// Default: [`ShardForm::Spec`].
    #[must_use]
    pub fn shard_form(mut self, form: ShardForm) -> Self {
        self.shard_form = Some(form);
        self
    }

    /// Signs a model that does not have the digests which are stored with it. Default: `false`,
    /// such a model is refused.
    #[must_use]
    pub fn ignore_stored_digests(mut self, ignore: bool) -> Self {
        self.ignore_stored_digests = ignore;
        self
    }

    /// Waits until the signatures are on the disk. Default: `true`.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Replaces signatures of this model by this key. Default: `true`.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Is called with each warning at once, also where the signing then fails. Default: warnings
    /// are in [`Signed::warnings`](crate::Signed::warnings) alone.
    #[must_use]
    pub fn on_warning(mut self, tell: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Box::new(tell));
        self
    }

    /// Is called before the first file is made and before each piece of one is written;
    /// [`ControlFlow::Break`] ends the signing with [`ErrorKind::Cancelled`], and what was staged
    /// is removed, as after [`Cancel::cancel`](onnx_container::Cancel::cancel). Default: nothing is
    /// called.
    #[must_use]
    pub fn writing(
        mut self,
        goes_on: impl Fn() -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.writing = Some(Box::new(goes_on));
        self
    }

    /// The form of the digests of shards.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that contradict each other.
    pub(crate) fn checked_form(&self) -> Result<ShardForm> {
        let reason = match (self.shard_size, self.shard_form) {
            (Some(0), _) => "a shard has at least one byte",
            (None, Some(_)) => "a form of shards has no effect without a shard size",
            (_, form) => return Ok(form.unwrap_or_default()),
        };
        Err(Error::new(ErrorKind::InvalidArgument, reason))
    }
}

impl fmt::Debug for SignOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignOptions")
            .field("key", &self.key)
            .field("signature", &self.signature)
            .field("all_files", &self.all_files)
            .field("shard_size", &self.shard_size)
            .finish_non_exhaustive()
    }
}

/// How a model is verified.
///
/// ```no_run
/// use onnx_container_signing::{PublicKey, VerifyOptions, verify};
///
/// let key = PublicKey::read("key.pub")?;
/// verify("m/model.onnx", &VerifyOptions::new(key).require_files(true))?;
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    pub(crate) key: PublicKey,
    pub(crate) signature: Option<PathBuf>,
    pub(crate) ignore_unsigned_files: bool,
    pub(crate) all_files: bool,
    pub(crate) require_files: bool,
    pub(crate) reading: Reading,
    pub(crate) terms: Terms,
}

impl VerifyOptions {
    /// The defaults: signatures by `key` at `model.sig` and `model.digest.sig` beside the model, or
    /// at `NAME.sig` and `NAME.digest.sig` where only these say that they are of `NAME.onnx`.
    pub fn new(key: PublicKey) -> Self {
        Self {
            key,
            signature: None,
            ignore_unsigned_files: false,
            all_files: false,
            require_files: false,
            reading: Reading::new(),
            terms: terms::own,
        }
    }

    /// The signature; `NAME.digest.sig` beside it is verified too. Default: see [`Self::new`].
    #[must_use]
    pub fn signature(mut self, path: impl Into<PathBuf>) -> Self {
        self.signature = Some(path.into());
        self
    }

    /// Ignores files of the folder that were not signed, except those of the model. Default:
    /// `false`.
    #[must_use]
    pub fn ignore_unsigned_files(mut self, ignore: bool) -> Self {
        self.ignore_unsigned_files = ignore;
        self
    }

    /// Counts every file of the folder that was not signed, also those that the signature says it
    /// leaves out. Default: `false`.
    #[must_use]
    pub fn all_files(mut self, all: bool) -> Self {
        self.all_files = all;
        self
    }

    /// Requires all files to match; matching content is not enough. Default: `false`.
    #[must_use]
    pub fn require_files(mut self, require: bool) -> Self {
        self.require_files = require;
        self
    }

    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.all_files && self.ignore_unsigned_files {
            let reason = "files that were not signed are both to count and to be ignored";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        Ok(())
    }
}
