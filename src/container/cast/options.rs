//! Which weights are cast, [`CastOptions`], and what was done, [`CastReport`].

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::container::cast::convert::Float;
use crate::container::cast::overflow::Overflows;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal::Place;
use crate::proto::TensorProto;

/// The type among those that convert.
///
/// # Errors
/// [`ErrorKind::DataType`] for every other type.
pub(super) fn float(dtype: DataType) -> Result<Float> {
    Float::of(dtype).ok_or_else(|| {
        let reason = format!("FLOAT, FLOAT16 and BFLOAT16 are cast, {dtype} is not");
        Error::new(ErrorKind::DataType, reason)
    })
}

/// Decides by name or place whether a tensor is cast.
type Choose = Arc<dyn Fn(&Place<'_>, &TensorProto) -> bool + Send + Sync>;

/// Which weights [`Container::cast`](crate::Container::cast) casts.
#[derive(Clone)]
pub struct CastOptions {
    from: Option<DataType>,
    pub(super) min_bytes: u64,
    except: HashSet<String>,
    choose: Option<Choose>,
    pub(super) compute: bool,
    pub(super) keep_io: bool,
    pub(super) keep_ops: HashSet<String>,
}

impl Default for CastOptions {
    fn default() -> Self {
        Self {
            from: None,
            min_bytes: Self::MIN_BYTES,
            except: HashSet::new(),
            choose: None,
            compute: false,
            keep_io: true,
            keep_ops: HashSet::new(),
        }
    }
}

impl CastOptions {
    /// The length in bytes from which on weights are cast by default.
    pub const MIN_BYTES: u64 = 1024;

    /// The defaults: weights of 1024 bytes and more, of the other two of FLOAT, FLOAT16 and
    /// BFLOAT16.
    pub fn new() -> Self {
        Self::default()
    }

    /// The type that is cast. Default: both others of FLOAT, FLOAT16 and BFLOAT16.
    #[must_use]
    pub fn from_dtype(mut self, dtype: DataType) -> Self {
        self.from = Some(dtype);
        self
    }

    /// Casts weights of this length in bytes or more. Default 1024: smaller ones save nothing, and
    /// some must stay exact, such as an epsilon that FLOAT16 would round to zero.
    #[must_use]
    pub fn min_bytes(mut self, min_bytes: u64) -> Self {
        self.min_bytes = min_bytes;
        self
    }

    /// Leaves out the tensors with these names, with or without their scope. A name that no tensor
    /// has changes nothing.
    #[must_use]
    pub fn except<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.except.extend(names.into_iter().map(Into::into));
        self
    }

    /// Casts only tensors for which `choose` returns `true`.
    #[must_use]
    pub fn choose(
        mut self,
        choose: impl Fn(&Place<'_>, &TensorProto) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.choose = Some(Arc::new(choose));
        self
    }

    /// Whether the graph also computes in the new type. Default `false`: it computes in the old
    /// type.
    ///
    /// With `true`, each node whose operator takes the new type, in the version that the model
    /// imports, reads and writes the new type in place of the old. Nodes of other operators, of
    /// other domains, and with values of unknown type are unchanged; `Cast` nodes convert between
    /// them and the others. Calls of functions are unchanged too: call
    /// [`Container::inline_functions`](crate::Container::inline_functions) first to convert their
    /// bodies. `If`, `Loop` and `Scan` keep the types of their own inputs and outputs, and the
    /// nodes of their bodies are converted.
    #[must_use]
    pub fn compute(mut self, compute: bool) -> Self {
        self.compute = compute;
        self
    }

    /// With [`compute`](Self::compute): whether inputs and outputs of the model keep their declared
    /// types. Default `true`. With `false` those of the old type get the new one, except for inputs
    /// with an initializer, and outputs that are initializers, constants or inputs.
    #[must_use]
    pub fn keep_io(mut self, keep_io: bool) -> Self {
        self.keep_io = keep_io;
        self
    }

    /// With [`compute`](Self::compute): operators (`Softmax`), or names of nodes, that are not
    /// converted.
    #[must_use]
    pub fn keep_ops<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.keep_ops.extend(names.into_iter().map(Into::into));
        self
    }

    /// The type that is cast, where the caller gave it.
    pub(super) fn given_source(&self) -> Option<Float> {
        self.from.and_then(Float::of)
    }

    /// The types that are cast to `to`.
    pub(super) fn sources_for(&self, to: DataType) -> Result<Vec<Float>> {
        let to = float(to)?;
        match self.from {
            Some(from) => Ok(vec![float(from)?]),
            None => {
                let all = [Float::F32, Float::F16, Float::Bf16];
                Ok(all.into_iter().filter(|from| *from != to).collect())
            }
        }
    }

    /// Whether a tensor is cast, by its name and place.
    pub(super) fn chooses(&self, place: &Place<'_>, tensor: &TensorProto) -> bool {
        let named = |name: String| self.except.contains(&name);
        let excepted = !self.except.is_empty()
            && (named(place.name_of(tensor)) || named(place.qualified_name(tensor)));
        !excepted && self.choose.as_ref().is_none_or(|choose| choose(place, tensor))
    }
}

impl fmt::Debug for CastOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastOptions")
            .field("from", &self.from)
            .field("min_bytes", &self.min_bytes)
            .field("except", &self.except)
            .field("compute", &self.compute)
            .field("keep_io", &self.keep_io)
            .field("keep_ops", &self.keep_ops)
            .finish_non_exhaustive()
    }
}

/// What [`Container::cast`](crate::Container::cast) did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CastReport {
    /// The number of tensors that were cast.
    pub cast: usize,
    /// The length of these tensors before, in bytes. Tensors that share their bytes are counted
    /// once.
    pub bytes_before: u64,
    /// Their length now, in bytes, counted the same way.
    pub bytes_after: u64,
    /// Tensors that have the length and type to be cast, but are unchanged.
    pub uncast: Vec<NotCast>,
    /// The number of nodes that compute in the new type now, with [`CastOptions::compute`].
    pub nodes: usize,
    /// Nodes that read or write the old type and are unchanged: their names, or operator and first
    /// output where they have none.
    pub kept_nodes: Vec<String>,
    /// How many of `kept_nodes` call local functions. Call
    /// [`Container::inline_functions`](crate::Container::inline_functions) first to convert what
    /// these compute.
    pub calls: usize,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) overflows: Overflows,
}

impl CastReport {
    /// The weights, by their old names, of which finite numbers became infinite: they are beyond
    /// the largest of the new type, 65504 of FLOAT16. Those that are not cast are listed too where
    /// a new `Cast` node converts them when the model runs: small ones, and those left out.
    ///
    /// Weights behind handles are converted when they are read, so this is known after a save, and
    /// before it only of inline weights.
    pub fn infinite(&self) -> Vec<&str> {
        self.overflows.names()
    }
}

/// A tensor that has the length and type to be cast, and that
/// [`Container::cast`](crate::Container::cast) left unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotCast {
    /// Its name, with the scope before it.
    pub tensor: String,
    /// Why.
    pub reason: NotCastReason,
}

/// Why a tensor is not cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotCastReason {
    /// It is also an input of the graph: a caller can give another value, of the declared type.
    GraphInput,
    /// Shape inference reads it, such as the scales of a `Resize`, and does not look behind a
    /// `Cast`.
    ShapeOperand,
    /// It is an attribute of an operator other than `Constant`, and its type decides the operator's
    /// output.
    Attribute,
    /// It has no name, so no node can compute its old value.
    Nameless,
    /// It has the name of a value of a graph around its own, which an initializer may have and the
    /// output of a `Cast` may not.
    HidesValue,
    /// [`CastOptions::except`] or [`CastOptions::choose`] leaves it out.
    Excepted,
}

impl fmt::Display for NotCastReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::GraphInput => "an input of the graph",
            Self::ShapeOperand => "read by shape inference",
            Self::Attribute => "an attribute",
            Self::Nameless => "without a name",
            Self::HidesValue => "called like a value of an outer graph",
            Self::Excepted => "excepted",
        })
    }
}

#[cfg(feature = "serde")]
crate::util::as_text::serialize_as_text!(NotCastReason);
