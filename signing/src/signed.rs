//! [`Signed`]: what a signing wrote, and what it warns of.

use std::fmt;
use std::path::PathBuf;

use onnx_container::Error;
use onnx_container::digest::ContentDigest;

/// What a signing wrote.
#[derive(Debug)]
#[non_exhaustive]
pub struct Signed {
    /// The public key: the SHA-256 of its PEM, as signatures name it.
    pub key: String,
    /// The curve of the key: `P-256`, `P-384` or `P-521`.
    pub curve: &'static str,
    /// The signature on files.
    pub signature: PathBuf,
    /// The bytes of a shard; `None` where files were signed as a whole.
    pub shard_size: Option<u64>,
    /// The signed files, as paths beneath the folder of the model.
    pub files: Vec<String>,
    /// The signature on content; a folder has none.
    pub content: Option<SignedContent>,
    /// How many other files are in the folder.
    pub unsigned_files: usize,
    /// How many of them the signature cannot leave out by name, so that a verification has to be
    /// told to ignore them.
    pub nameless_files: usize,
    /// What is worth knowing, although the model was signed.
    pub warnings: Vec<Warning>,
}

/// The signature on the content of a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SignedContent {
    /// The file of the signature.
    pub signature: PathBuf,
    /// What the model contains.
    pub digest: ContentDigest,
}

/// What a signing warns of.
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning {
    /// What a killed signing left cannot be removed.
    NotRemoved(Error),
    /// What the load of the model warned of.
    Loaded(Vec<Error>),
    /// Two readers may take the model's file for two models.
    Ambiguous(Error),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRemoved(error) => error.fmt(f),
            Self::Loaded(errors) => {
                let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("; "))
            }
            Self::Ambiguous(error) => {
                write!(f, "{error}; no file with these bytes is verified by its content alone")
            }
        }
    }
}
