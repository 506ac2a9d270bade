//! The tensors of a model: what they are and where their data lie.

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::traversal::{self, Place};
use onnx_container::{DataType, Result};
use serde::Serialize;

use super::text_of;

/// One tensor.
#[derive(Debug, Serialize)]
pub struct TensorInfo {
    pub name: String,
    /// The path to the graph that holds it; empty for the main graph.
    pub scope: String,
    /// What it is there, such as `Initializer`.
    pub site: String,
    /// The operator of the node that holds it, for tensors in attributes.
    pub operator: Option<String>,
    pub dtype: String,
    pub shape: Vec<i64>,
    /// `None` when type and shape do not give a length.
    pub bytes: Option<u64>,
    pub stored: Stored,
}

/// Where a tensor's data lie.
#[derive(Debug, Serialize)]
#[serde(tag = "where", rename_all = "lowercase")]
pub enum Stored {
    Inline { field: &'static str },
    External { location: String, offset: u64, length: Option<u64> },
    Invalid { reason: String },
}

/// Every tensor of `model`, the largest first.
pub fn of(model: &ModelProto) -> Result<Vec<TensorInfo>> {
    let mut tensors = Vec::new();
    traversal::tensors(model, |place, tensor| {
        tensors.push(TensorInfo::of(place, tensor));
        Ok(())
    })?;
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes));
    Ok(tensors)
}

impl TensorInfo {
    fn of(place: &Place<'_>, tensor: &TensorProto) -> Self {
        let number = tensor.data_type.unwrap_or(0);
        let dtype = DataType::try_from(number);
        Self {
            name: place.name_of(tensor),
            scope: place.scope.to_string(),
            site: format!("{:?}", place.site),
            operator: text_of(place.op_type),
            dtype: dtype.as_ref().map_or_else(|_| number.to_string(), ToString::to_string),
            shape: tensor.dims.clone(),
            bytes: dtype.ok().and_then(|dtype| byte_len(dtype, tensor)),
            stored: Stored::of(tensor),
        }
    }

    /// The name with the scope before it.
    pub fn qualified_name(&self) -> String {
        if self.scope.is_empty() {
            return self.name.clone();
        }
        format!("{}/{}", self.scope, self.name)
    }
}

fn byte_len(dtype: DataType, tensor: &TensorProto) -> Option<u64> {
    if dtype == DataType::String {
        let lens = tensor.string_data.iter().map(|string| string.len());
        return u64::try_from(lens.sum::<usize>()).ok();
    }
    dtype.byte_len(&tensor.dims).ok()
}

impl Stored {
    fn of(tensor: &TensorProto) -> Self {
        if !is_external(tensor) {
            return Self::Inline { field: field(tensor) };
        }
        match ExternalData::parse(tensor) {
            Ok(ExternalData { location, offset, length, .. }) => {
                Self::External { location, offset, length }
            }
            Err(error) => Self::Invalid { reason: error.to_string() },
        }
    }
}

/// The field that holds an inline tensor's data.
fn field(tensor: &TensorProto) -> &'static str {
    let fields = [
        (tensor.raw_data.is_some(), "raw_data"),
        (!tensor.float_data.is_empty(), "float_data"),
        (!tensor.int32_data.is_empty(), "int32_data"),
        (!tensor.int64_data.is_empty(), "int64_data"),
        (!tensor.double_data.is_empty(), "double_data"),
        (!tensor.uint64_data.is_empty(), "uint64_data"),
        (!tensor.string_data.is_empty(), "string_data"),
    ];
    fields.into_iter().find_map(|(is_set, name)| is_set.then_some(name)).unwrap_or("nothing")
}

/// Tensors and their bytes, by where they lie.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    pub tensors: usize,
    pub inline: usize,
    pub inline_bytes: u64,
    pub external: usize,
    pub external_bytes: u64,
    pub invalid: usize,
}

impl Totals {
    /// The totals of `tensors`.
    pub fn of(tensors: &[TensorInfo]) -> Self {
        let mut totals = Self { tensors: tensors.len(), ..Self::default() };
        tensors.iter().for_each(|tensor| totals.add(tensor));
        totals
    }

    fn add(&mut self, tensor: &TensorInfo) {
        let (count, sum) = match (&tensor.stored, tensor.bytes) {
            (Stored::Invalid { .. }, _) | (_, None) => {
                self.invalid += 1;
                return;
            }
            (Stored::Inline { .. }, _) => (&mut self.inline, &mut self.inline_bytes),
            (Stored::External { .. }, _) => (&mut self.external, &mut self.external_bytes),
        };
        *count += 1;
        *sum = sum.saturating_add(tensor.bytes.unwrap_or(0));
    }
}
