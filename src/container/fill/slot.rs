//! A slot for the weights of one tensor, and whether given weights fit it.
//!
//! Which slots share bytes is left to `slots`, what follows from that to `ties`.

use std::collections::BTreeSet;

use crate::container::Handle;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::traversal::Place;
use crate::proto::TensorProto;
use crate::tensor::initializer::Initializer;
use crate::util::cancel;

/// A slot for the weights of one tensor.
#[derive(Debug)]
pub(super) struct WeightSlot {
    /// The name of the tensor with its scope.
    pub(super) tensor: String,
    pub(super) dtype: DataType,
    pub(super) dims: Vec<i64>,
    pub(super) inline: bool,
    /// Whether there is an initializer already, or the tensor is inline.
    pub(super) full: bool,
    /// Whether weights were given that do not fit.
    pub(super) refused: bool,
    /// The handle that the tensor names, or is to have.
    pub(super) handle: Option<Handle>,
    pub(super) given: Option<Initializer>,
    /// The name of the weights.
    pub(super) given_as: String,
    /// The first slot of those that are one thing: tensors of one handle, or of one type and shape
    /// on one range of a file. A name may stand for all of them.
    pub(super) thing: usize,
}

impl WeightSlot {
    /// The slot of `tensor`, which is its own thing and has the number `number`.
    pub(super) fn new(place: &Place<'_>, tensor: &TensorProto, number: usize) -> Result<Self> {
        let (dtype, _) = external_data::layout(tensor)?;
        let inline = !is_external(tensor);
        Ok(Self {
            tensor: place.qualified_name(tensor),
            dtype,
            dims: tensor.dims.clone(),
            inline,
            full: inline,
            refused: false,
            handle: None,
            given: None,
            given_as: String::new(),
            thing: number,
        })
    }

    /// Whether weights were given for this slot, whether they fit or not.
    pub(super) fn answered(&self) -> bool {
        self.given.is_some() || self.refused
    }

    pub(super) fn byte_len(&self) -> Result<u64> {
        self.dtype.byte_len(&self.dims)
    }

    /// Whether `other` has the same type and dimensions.
    pub(super) fn has_form_of(&self, other: &Self) -> bool {
        (self.dtype, &self.dims) == (other.dtype, &other.dims)
    }

    /// Checks that `other`, on the same handle, has the same type and length.
    pub(super) fn may_share(&self, other: &Self) -> Result<()> {
        if self.dtype != other.dtype {
            let reason = format!(
                "declared {}, but `{}` with the same handle is declared {}",
                other.dtype, self.tensor, self.dtype
            );
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        let (this, len) = (self.byte_len()?, other.byte_len()?);
        if len != this {
            let reason = format!(
                "needs {len} bytes, but `{}` with the same handle needs {this}",
                self.tensor
            );
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(())
    }

    /// `initializer` with the type and dimensions that this slot declares. `others` are dimensions
    /// that it may have besides, of tensors on the same handle.
    pub(super) fn fit(
        &self,
        initializer: Initializer,
        others: &BTreeSet<Vec<i64>>,
    ) -> Result<Initializer> {
        let declared = self.as_declared(initializer, others)?;
        if !self.inline || declared.is_declared() {
            return Ok(declared);
        }
        // An inline tensor needs its bytes in one piece.
        Ok(declared.to_tensor()?.into())
    }

    fn as_declared(
        &self,
        initializer: Initializer,
        others: &BTreeSet<Vec<i64>>,
    ) -> Result<Initializer> {
        let (dtype, dims) = (initializer.dtype(), initializer.dims());
        let mut declared = std::iter::once(&self.dims).chain(others);
        if dtype == DataType::Uint8 && self.dtype.may_be_bytes() {
            let has_length = initializer.byte_len() == self.byte_len()?;
            if has_length && declared.clone().any(|form| self.dtype.fits_bytes(form, dims)) {
                return initializer.retyped(self.dtype, &self.dims);
            }
        }
        if dtype != self.dtype {
            let mut reason = format!("the weights are {dtype}, the model declares {}", self.dtype);
            if dtype == DataType::Uint8 && self.dtype.may_be_bytes() {
                reason = format!(
                    "the weights are {dtype} {dims:?}, the model declares {} {:?}: packed bytes have \
                     one dimension, or the declared ones with the last in bytes",
                    self.dtype, self.dims
                );
            }
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        if dims == self.dims {
            return Ok(initializer);
        }
        if declared.any(|form| form == dims) {
            return initializer.retyped(self.dtype, &self.dims);
        }
        let mut reason = format!("the weights are {dims:?}, the model declares {:?}", self.dims);
        if dims.iter().rev().eq(&self.dims) {
            reason += ": the exporter stored them transposed; transpose the weights first";
        }
        Err(Error::new(ErrorKind::Shape, reason))
    }

    /// The number of elements, as dimensions.
    pub(super) fn flat(&self) -> Result<[i64; 1]> {
        let count = i64::try_from(element_count(&self.dims)?);
        Ok([count.map_err(|_| Error::internal("more elements than bytes"))?])
    }

    /// The error for weights called `given` that differ from others for the same tensor.
    pub(super) fn given_twice(&self, given: &str) -> Error {
        let reason = format!(
            "two weights are given for it, `{}` and `{given}`, and they differ",
            self.given_as
        );
        Error::new(ErrorKind::InvalidArgument, reason).with_tensor(self.tensor.as_str())
    }
}

/// Whether both have the same bytes; an initializer that cannot be read equals no other, and in a
/// call that is cancelled none does.
pub(crate) fn same_bytes(one: &Initializer, other: &Initializer) -> bool {
    const CHUNK: usize = 1 << 20;
    let len = one.byte_len();
    if len != other.byte_len() {
        return false;
    }
    if one.address().is_some_and(|address| Some(address) == other.address()) {
        return true;
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for at in (0..len).step_by(CHUNK) {
        if cancel::check().is_err() {
            return false;
        }
        let n = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
        left.resize(n, 0);
        right.resize(n, 0);
        let read = one.read_at(at, &mut left).and_then(|()| other.read_at(at, &mut right)).is_ok();
        if !read || left != right {
            return false;
        }
    }
    true
}
