//! What a model contains, as one digest, however it is stored: [`Container::digest`].
//!
//! `jobs` hashes the bytes of every tensor, `tensors` makes the digest of a tensor of that,
//! `hashed` those of all, and `structure` the digest of the model, in which each tensor stands for
//! its elements. `stored` reads and stores digests in a message, and `verify` compares with them.
//! `partial` has the digests of the tensors of a part, and joins them.
//! `stated` compares whole files with what is said about them elsewhere, as `whole` reads them.
//! `docs/digests.md` says what is hashed; a change of that is another scheme, with another version.

pub(crate) mod semantic;

mod hashed;
mod jobs;
#[cfg(feature = "jobs")]
mod partial;
mod sha256;
mod stated;
mod stored;
mod structure;
mod tensors;
mod verify;
mod whole;

use std::fmt;

pub(crate) use self::hashed::of_some;
pub(crate) use self::jobs::{External, Jobs, Padding, texts_digest};
#[cfg(feature = "jobs")]
pub use self::partial::PartialDigest;
pub use self::semantic::{OutputDigest, SemanticDifference, SemanticDigest};
pub(crate) use self::sha256::Digest;
pub(crate) use self::stated::Stated;
pub(crate) use self::stored::Stored;
pub(crate) use self::structure::{Bare, digest_of_function, digest_of_node};
pub use self::verify::Compared;
pub(crate) use self::verify::{Origin, no_digests, verify};
pub(crate) use self::whole::Whole;

use self::hashed::hashed;
use self::sha256::of_a_model;
use crate::container::Container;
use crate::container::part::Share;
#[cfg(feature = "jobs")]
use crate::error::{Error, ErrorKind};
use crate::error::{Errors, Result};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};

/// A digest of what a model contains: see [`Container::digest`].
///
/// It is displayed as `sha256:` and 64 hexadecimal digits, and parsed from them. Two are equal when
/// the models are.
///
/// ```
/// use onnx_container::digest::ContentDigest;
///
/// let text = format!("sha256:{}", "0f".repeat(32));
/// let digest: ContentDigest = text.parse()?;
/// assert_eq!(digest.to_string(), text);
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ContentDigest {
    model: Digest,
    tensors: Vec<TensorDigest>,
}

/// A digest of the type, dimensions and elements of one tensor. Two are equal when their names and
/// digests are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TensorDigest {
    name: String,
    digest: Digest,
}

impl ContentDigest {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.model.as_bytes()
    }

    /// The digests of all tensors, in graph order; none where this was parsed.
    pub fn tensors(&self) -> &[TensorDigest] {
        &self.tensors
    }
}

of_a_model!(ContentDigest, tensors);

#[cfg(feature = "jobs")]
impl ContentDigest {
    /// The digest of `model`, of whose external tensors others have hashed the bytes: `sum_of` has
    /// their SHA-256. No weight is read, so the digest of a model of terabytes is known when its
    /// parts are written.
    ///
    /// ```
    /// use onnx_container::digest::ContentDigest;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::Container;
    /// use sha2::{Digest, Sha256};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [3], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1_u8, 2, 3])?;
    ///
    /// let sum = Sha256::digest([1, 2, 3]).into();
    /// let digest = ContentDigest::of_sums(container.model(), |_| Some(sum))?;
    /// assert_eq!(digest, container.digest()?);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] for a tensor without a sum, and those of tensors in the model.
    pub fn of_sums(
        model: &ModelProto,
        mut sum_of: impl FnMut(&TensorProto) -> Option<[u8; 32]>,
    ) -> Result<Self> {
        let missing = || Error::new(ErrorKind::MissingTensor, "nobody has hashed its bytes");
        let external = |tensor| {
            let sum = sum_of(tensor).ok_or_else(missing)?;
            Ok(External::hashed(Digest::from_bytes(sum)))
        };
        Ok(Digests::of(model, external)?.named(model))
    }

    /// Stores the digests of the model and of its tensors in `model`, as
    /// [`SaveOptions::digests`](crate::SaveOptions::digests) does. They do not change the digest.
    pub fn store_in(&self, model: &mut ModelProto) {
        let tensors: Vec<_> = self.tensors.iter().map(|tensor| tensor.digest).collect();
        stored::store(model, &self.model, &tensors);
    }
}

impl TensorDigest {
    /// The name of the tensor with its graph before it, as in reports. It is no part of the digest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.digest.as_bytes()
    }
}

impl fmt::Display for TensorDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.digest)
    }
}

impl Container {
    /// A digest of the model and its weights, which does not depend on how they are stored: in
    /// which files, at which places, in `raw_data` or typed fields, by which handles, with the
    /// fields of the messages in which order.
    ///
    /// Everything else counts: names, the order of nodes and tensors, documentation, metadata,
    /// fields that this crate does not know. [`semantic_digest`](Self::semantic_digest) is the
    /// digest that does not change with these. `docs/digests.md` says what is hashed, in enough
    /// detail for other programs.
    ///
    /// Time is that of reading the weights once, on all cores. Tensors on the same bytes are hashed
    /// once. What is not in memory is read in parts, except lazy weights, which are made one at a
    /// time by each thread.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::edit::ExternalizeOptions;
    /// use onnx_container::Container;
    ///
    /// let mut graph = GraphProto::new("g");
    /// let weight = TensorProto::new("w", TensorProto::UINT8, [2048]).with_raw_data(vec![1; 2048]);
    /// graph.initializer.push(weight);
    /// let mut container = Container::new(ModelProto::new(graph));
    /// let digest = container.digest()?;
    /// assert!(digest.to_string().starts_with("sha256:"));
    ///
    /// container.externalize(ExternalizeOptions::new())?;
    /// assert_eq!(container.digest()?, digest);
    /// container.insert("#w", vec![2_u8; 2048])?;
    /// assert_ne!(container.digest()?, digest);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all tensors that have no elements to hash: without an initializer behind their
    /// handle ([`ErrorKind::MissingHandle`](crate::ErrorKind::MissingHandle)), or whose type, shape
    /// and data disagree; and those of sources. [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge)
    /// when tensors overlap in part so often that each byte of the weights would be read many
    /// times.
    pub fn digest(&self) -> Result<ContentDigest> {
        Ok(self.digests()?.named(&self.model))
    }

    /// As [`digest`](Self::digest), without the names of tensors, which may take far more memory
    /// than the model.
    pub(crate) fn digests(&self) -> Result<Digests> {
        self.check_nesting()?;
        let external = |tensor| self.initializer_of(tensor).map(|(_, found)| External::of(found));
        Digests::of(&self.model, external)
    }
}

/// The digests of a model and its tensors, the latter in graph order.
pub(crate) struct Digests {
    model: Digest,
    tensors: Vec<Digest>,
}

impl Digests {
    /// Those of `model`, whose external tensors have their elements where `external` says.
    pub(crate) fn of<'c>(
        model: &'c ModelProto,
        external: impl FnMut(&'c TensorProto) -> Result<External<'c>>,
    ) -> Result<Self> {
        let (mut tensors, mut errors) = (Vec::new(), Errors::default());
        for (place, tensor, digest) in hashed(model, &Share::ALL, external) {
            match digest {
                Ok(digest) => tensors.push(digest),
                Err(error) => {
                    errors.push_with(|| error.with_tensor(place.qualified_name(tensor)));
                }
            }
        }
        match errors.join() {
            Some(error) => Err(error),
            None => Ok(Self { model: structure::digest(model, &tensors)?, tensors }),
        }
    }

    /// The digests with the names of the tensors of `model`, of which they are.
    pub(crate) fn named(self, model: &ModelProto) -> ContentDigest {
        let named = traversal::iter(model).zip(self.tensors).map(|((place, tensor), digest)| {
            TensorDigest { name: place.qualified_name(tensor), digest }
        });
        ContentDigest { model: self.model, tensors: named.collect() }
    }

    /// Stores the digests in `model`, of which they are.
    pub(crate) fn store_in(&self, model: &mut ModelProto) {
        stored::store(model, &self.model, &self.tensors);
    }
}
