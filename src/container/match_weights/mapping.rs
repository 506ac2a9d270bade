//! [`WeightMapping`]: which weights each tensor of a model is made of, and its form as JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::util::json_kind::JsonKind;

/// What the JSON says of itself.
const KIND: JsonKind =
    JsonKind { format: "onnx-container.weight-mapping", version: 1, name: "a mapping of weights" };

/// Which weights of a checkpoint each tensor of a model is, found by [`Container::match_weights`].
///
/// All lists are in graph order, but `unused`, which is sorted. The JSON form is stable: fields are
/// only added.
///
/// [`Container::match_weights`]: crate::Container::match_weights
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightMapping {
    /// The tensors that are made of weights.
    pub matched: Vec<MatchedTensor>,
    /// Tensors whose elements are all equal, so that their content does not tell where they come
    /// from, and whose name is not that of such a weight.
    pub uniform: Vec<String>,
    /// Tensors of floats that are made of no weights in a form that is looked for.
    pub unmatched: Vec<String>,
    /// Tensors that are not looked at: of other types, or with fewer elements than
    /// [`MatchOptions::min_elements`](super::MatchOptions::min_elements).
    pub skipped: Vec<String>,
    /// Weights that no tensor is made of.
    pub unused: Vec<String>,
}

/// A tensor of the model, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MatchedTensor {
    /// Its name, with its scope.
    pub tensor: String,
    /// Its element type. Weights of another float type are rounded to it.
    #[serde(serialize_with = "type_name", deserialize_with = "type_of_name")]
    pub dtype: DataType,
    /// Its dimensions.
    pub dims: Vec<i64>,
    /// The weights that it is made of.
    pub source: Composition,
    /// Others that have the same bytes: content does not tell which one it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Composition>,
}

/// Parts of weights, joined along an axis of the tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Composition {
    /// The axis along which the parts are joined; 0 where there is one.
    pub axis: usize,
    /// The parts, in their order along the axis.
    pub parts: Vec<WeightPart>,
}

/// A weight, or a slice of one, with its axes in another order: the slice is reshaped to `shape`,
/// and its axes are permuted as numpy's `transpose(permutation)` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightPart {
    /// The name of the weight in the checkpoint.
    pub weight: String,
    /// Its dimensions there.
    pub dims: Vec<i64>,
    /// The part of it, where that is not the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<WeightSlice>,
    /// The dimensions whose order is changed.
    pub shape: Vec<i64>,
    /// The number of the axis of `shape` that each axis is.
    pub permutation: Vec<usize>,
}

/// Consecutive indices of one axis of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightSlice {
    /// The axis.
    pub axis: usize,
    /// The first index.
    pub start: i64,
    /// How many.
    pub len: i64,
}

impl Composition {
    pub(super) fn of(part: WeightPart) -> Self {
        Self { axis: 0, parts: vec![part] }
    }

    /// The names of the weights.
    pub fn weights(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.weight.as_str())
    }
}

impl WeightPart {
    /// A whole weight, as it is.
    pub(super) fn whole(weight: &str, dims: &[i64]) -> Self {
        let permutation = (0..dims.len()).collect();
        let (dims, shape) = (dims.to_vec(), dims.to_vec());
        Self { weight: weight.to_owned(), dims, slice: None, shape, permutation }
    }

    /// Whether the axes are in their own order.
    pub(super) fn is_in_order(&self) -> bool {
        self.permutation.iter().enumerate().all(|(axis, from)| axis == *from)
    }

    /// The dimensions after the permutation; an axis that there is not has none.
    pub(super) fn permuted(&self) -> Vec<i64> {
        self.permutation.iter().filter_map(|axis| self.shape.get(*axis).copied()).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct Stamped<M> {
    format: String,
    version: u32,
    mapping: M,
}

impl WeightMapping {
    /// The mapping as JSON, see `docs/safetensors.md`.
    ///
    /// # Errors
    /// None that a mapping of names that are text can have.
    pub fn to_json(&self) -> Result<String> {
        let (format, version) = (KIND.format.to_owned(), KIND.version);
        let stamped = Stamped { format, version, mapping: self };
        serde_json::to_string_pretty(&stamped).map_err(Error::internal)
    }

    /// The mapping of a JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) for text that is no such JSON;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for another version of it.
    pub fn from_json(text: &str) -> Result<Self> {
        KIND.check(text)?;
        let stamped: Stamped<Self> =
            serde_json::from_str(text).map_err(|error| KIND.not_one(error))?;
        Ok(stamped.mapping)
    }

    /// The match of the tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&MatchedTensor> {
        self.matched.iter().find(|matched| matched.tensor == name)
    }
}

fn type_name<S: Serializer>(dtype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

fn type_of_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = DataType::ALL.iter().find(|dtype| dtype.name() == name);
    found.copied().ok_or_else(|| de::Error::custom(format!("`{name}` is no element type")))
}
