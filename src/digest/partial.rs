//! [`PartialDigest`]: the digests of the tensors of one [`Part`], and how those of all parts become
//! the digest of the model.
//!
//! A part holds a digest of the model without elements too, so that parts of two models are not
//! joined. Nothing says where the model is or who has hashed it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::hashed::hashed;
use super::jobs::External;
use super::sha256::Digest;
use super::structure::{self, Bare};
use super::{ContentDigest, Digests};
use crate::container::Container;
use crate::container::part::Part;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::graph::traversal;
use crate::proto::ModelProto;
use crate::util::json_kind::JsonKind;

const KIND: JsonKind =
    JsonKind { format: "onnx-container partial digest", version: 1, name: "a partial digest" };
/// How many parts that are missing are named.
const FEW: usize = 20;

/// The digests of the tensors of one part of a model: see [`Container::partial_digest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialDigest {
    part: Part,
    /// That of the model in which all elements are the same.
    model: Digest,
    /// In graph order.
    tensors: Vec<HashedTensor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HashedTensor {
    /// The number of tensors before it in graph order.
    position: usize,
    digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct Stamped<D> {
    format: String,
    version: u32,
    partial_digest: D,
}

impl PartialDigest {
    /// Which part it is.
    pub fn part(&self) -> Part {
        self.part
    }

    /// How many tensors the part has.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the part has no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The value as JSON: some 100 bytes for each tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`].
    pub fn to_json(&self) -> Result<String> {
        let (format, version) = (KIND.format.to_owned(), KIND.version);
        let stamped = Stamped { format, version, partial_digest: self };
        serde_json::to_string(&stamped).map_err(Error::internal)
    }

    /// The value of a JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for text that is no such JSON, [`ErrorKind::Unsupported`] for another
    /// version of it.
    pub fn from_json(text: &str) -> Result<Self> {
        KIND.check(text)?;
        let stamped: Stamped<Self> =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        let found = stamped.partial_digest;
        if !found.tensors.is_sorted_by(|one, next| one.position < next.position) {
            return Err(KIND.not_one("its tensors are not in graph order"));
        }
        Ok(found)
    }
}

impl Container {
    /// The digests of the tensors of one part of the model. Any number of processes digest a model
    /// together, on any machines: each a part, and one of them
    /// [joins the parts](Self::digest_of_parts).
    ///
    /// ```
    /// use onnx_container::digest::PartialDigest;
    /// use onnx_container::proto::{GraphProto, ModelProto};
    /// use onnx_container::{Container, Part, Tensor};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["a", "b", "c"] {
    ///     graph.initializer.push(Tensor::from(vec![1.0_f32, 3.0]).to_proto(name));
    /// }
    /// let container = Container::new(ModelProto::new(graph));
    ///
    /// let mut parts = Vec::new();
    /// for number in 0..2 {
    ///     let text = container.partial_digest(Part::new(number, 2)?)?.to_json()?;
    ///     parts.push(PartialDigest::from_json(&text)?);
    /// }
    /// assert_eq!(container.digest_of_parts(parts)?, container.digest()?);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`digest`](Self::digest), for tensors of the part.
    pub fn partial_digest(&self, part: Part) -> Result<PartialDigest> {
        self.check_nesting()?;
        let share = part.share(&self.model);
        let external = |tensor| self.initializer_of(tensor).map(|(_, found)| External::of(found));
        let (mut tensors, mut errors) = (Vec::new(), Errors::default());
        for (place, tensor, digest) in hashed(&self.model, &share, external) {
            match digest {
                Ok(digest) => {
                    tensors.push(HashedTensor { position: place.position.index(), digest });
                }
                Err(error) => {
                    errors.push_with(|| error.with_tensor(place.qualified_name(tensor)));
                }
            }
        }
        match errors.join() {
            Some(error) => Err(error),
            None => Ok(PartialDigest { part, model: without_elements(&self.model)?, tensors }),
        }
    }

    /// The digest of the model, of which these are the parts: that of [`digest`](Self::digest). No
    /// weight is read, so the model may have been loaded without
    /// [weights](crate::LoadOptions::weights). The parts come in any order, and a part may be there
    /// twice. A part without tensors may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] for a part of another model, and where two parts have other digests
    /// of a tensor; [`ErrorKind::InvalidArgument`] for a part of another number of parts;
    /// [`ErrorKind::MissingTensor`] where parts are missing.
    pub fn digest_of_parts(
        &self,
        parts: impl IntoIterator<Item = PartialDigest>,
    ) -> Result<ContentDigest> {
        self.check_nesting()?;
        let mut collected = Collected::of(&self.model)?;
        for part in parts {
            collected.add(&part)?;
        }
        Ok(collected.finish()?.named(&self.model))
    }
}

/// A digest of `model` in which all elements are the same.
fn without_elements(model: &ModelProto) -> Result<Digest> {
    let bare = Bare::of(model);
    bare.digest(bare.model())
}

/// The parts of a model that are there.
struct Collected<'m> {
    model: &'m ModelProto,
    without_elements: Digest,
    /// The digest of each tensor, in graph order.
    tensors: Vec<Option<Digest>>,
    first: Option<Part>,
    numbers: BTreeSet<usize>,
}

impl<'m> Collected<'m> {
    fn of(model: &'m ModelProto) -> Result<Self> {
        let tensors = vec![None; traversal::iter(model).count()];
        let (first, numbers) = (None, BTreeSet::new());
        Ok(Self { model, without_elements: without_elements(model)?, tensors, first, numbers })
    }

    fn add(&mut self, partial: &PartialDigest) -> Result<()> {
        let part = partial.part;
        if partial.model != self.without_elements {
            let reason = format!(
                "part {part} is of another model, or the model was changed: digest its parts again"
            );
            return Err(Error::new(ErrorKind::Changed, reason));
        }
        let first = *self.first.get_or_insert(part);
        if first.of() != part.of() {
            let reason =
                format!("parts {first} and {part} are of two divisions: join those of one");
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        self.numbers.insert(part.number());
        for HashedTensor { position, digest } in &partial.tensors {
            let slot = self.tensors.get_mut(*position).ok_or_else(|| {
                let reason = format!("part {part} has a tensor that the model has not: {position}");
                Error::new(ErrorKind::Changed, reason)
            })?;
            if *slot.get_or_insert(*digest) != *digest {
                return Err(self.two_digests(*position, part));
            }
        }
        Ok(())
    }

    /// What is wrong where `part` has another digest of a tensor than one before it.
    fn two_digests(&self, position: usize, part: Part) -> Error {
        let reason = format!(
            "part {part} has another digest of this tensor than a part before it: its elements were changed in \
             between"
        );
        self.of_tensor(Error::new(ErrorKind::Changed, reason), position)
    }

    /// `error` with the name of the tensor at `position`.
    fn of_tensor(&self, error: Error, position: usize) -> Error {
        match traversal::iter(self.model).nth(position) {
            Some((place, tensor)) => error.with_tensor(place.qualified_name(tensor)),
            None => error,
        }
    }

    fn finish(self) -> Result<Digests> {
        if let Some(position) = self.tensors.iter().position(Option::is_none) {
            return Err(self.missing(position));
        }
        let tensors: Vec<_> = self.tensors.into_iter().flatten().collect();
        Ok(Digests { model: structure::digest(self.model, &tensors)?, tensors })
    }

    /// What is wrong where no part has the tensor at `position`.
    fn missing(&self, position: usize) -> Error {
        let Some(first) = self.first else {
            return Error::new(ErrorKind::MissingTensor, "there are no parts to join");
        };
        let needed: BTreeSet<_> = first.numbers(self.model).into_iter().collect();
        let missing: Vec<_> = needed.difference(&self.numbers).collect();
        if missing.is_empty() {
            let reason = "no part has this tensor, and all parts are there: processes have read the model from \
                          other files, and divided it in another way";
            return self.of_tensor(Error::new(ErrorKind::MissingTensor, reason), position);
        }
        let named = missing.iter().take(FEW).map(|number| format!("{number}/{}", first.of()));
        let named = named.collect::<Vec<_>>().join(", ");
        let reason = match missing.len().saturating_sub(FEW) {
            0 => format!("these parts are missing: {named}"),
            more => format!("these parts are missing: {named} and {more} more"),
        };
        Error::new(ErrorKind::MissingTensor, reason)
    }
}
