//! Maps: distinct keys with an element each.

use onnx_container_proto::{Buffer, DataType, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::numeric::broadcast::each_of;

/// A map: distinct keys of INT64 or STRING, each with one element of a type. Cloning shares both.
///
/// ONNX also has maps to other values; its operators make and take maps to elements alone.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{Buffer, Tensor};
/// use onnx_container_machine::{Map, Value};
///
/// let keys = Tensor::from_strings([2], vec![Buffer::from(b"no".to_vec()), Buffer::from(b"a".to_vec())])?;
/// let values = Value::from_elements([2], &[0.25_f32, 0.75])?;
/// let map = Map::new(keys, values.tensor()?.clone())?;
/// assert_eq!(map.values().as_slice::<f32>()?, [0.75, 0.25]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    keys: Tensor,
    values: Tensor,
}

impl Map {
    /// The map from each element of the vector `keys` to that of `values` at the same place, in the
    /// order of the keys.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] for keys of another type than INT64 and STRING and for values narrower
    /// than a byte, [`ErrorKind::Shape`] when both are not vectors of one length,
    /// [`ErrorKind::Value`] when a key is there twice.
    pub fn new(keys: Tensor, values: Tensor) -> Result<Self> {
        check_types(keys.dtype(), values.dtype())?;
        if keys.dims().len() != 1 || keys.dims() != values.dims() {
            let (keys, values) = (keys.dims(), values.dims());
            let reason = format!("a map of keys of shape {keys:?} and values of shape {values:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let order = match keys.strings() {
            Some(strings) => order(&strings.iter().map(|key| &key[..]).collect::<Vec<_>>()),
            None => order(&keys.to_slice::<i64>()?),
        }?;
        if order.is_sorted() {
            return Ok(Self { keys, values });
        }
        Ok(Self { keys: rearranged(&keys, &order)?, values: rearranged(&values, &order)? })
    }

    /// The keys in ascending order, strings by their bytes: a vector.
    pub fn keys(&self) -> &Tensor {
        &self.keys
    }

    /// The element of each key: a vector.
    pub fn values(&self) -> &Tensor {
        &self.values
    }
}

/// Whether there are maps from `key` to `value`.
pub(super) fn check_types(key: DataType, value: DataType) -> Result<()> {
    if !matches!(key, DataType::Int64 | DataType::String) {
        let reason = format!("a map has keys of INT64 or STRING, not {key}");
        return Err(Error::new(ErrorKind::Type, reason));
    }
    if value == DataType::Undefined || value.bit_width().is_some_and(|bits| bits < 8) {
        let reason = format!("a map to elements of {value} is not supported");
        return Err(Error::new(ErrorKind::Type, reason));
    }
    Ok(())
}

/// The places of `keys` in the order of these.
fn order<K: Ord>(keys: &[K]) -> Result<Vec<usize>> {
    let mut order: Vec<_> = (0..keys.len()).collect();
    order.sort_by_key(|place| keys.get(*place));
    let key = |place: &usize| keys.get(*place);
    let twice =
        order.windows(2).any(|pair| pair.first().and_then(key) == pair.last().and_then(key));
    if twice {
        return Err(Error::new(ErrorKind::Value, "a key is twice in a map"));
    }
    Ok(order)
}

/// The elements of a vector at these places.
fn rearranged(tensor: &Tensor, places: &[usize]) -> Result<Tensor> {
    if let Some(strings) = tensor.strings() {
        let strings = places.iter().map(|place| strings.at(*place).cloned());
        return Ok(Tensor::from_strings(tensor.dims(), strings.collect::<Result<_>>()?)?);
    }
    let bytes = tensor.as_bytes().or_bug("numbers without bytes")?;
    let width = each_of(bytes.len(), places.len());
    let mut elements = Vec::with_capacity(bytes.len());
    for place in places {
        elements.extend_from_slice(bytes.part(place * width..(place + 1) * width)?);
    }
    Ok(Tensor::new(tensor.dtype(), tensor.dims(), Buffer::from(elements))?)
}
