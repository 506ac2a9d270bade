//! The tensors of a model: their types and shapes, and where their data are.

use std::collections::HashSet;

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::traversal::{self, Place};
use onnx_container::{DataType, Result};
use onnx_container_files::locations::plain;
use serde::Serialize;

use super::text_of;
use crate::commands::files::Listed;
use crate::model::needed::State;

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

/// Where a tensor's data are.
#[derive(Debug, Serialize)]
#[serde(tag = "where", rename_all = "lowercase")]
pub enum Stored {
    Inline {
        field: &'static str,
    },
    /// Inline, but its data were removed.
    Nowhere,
    External {
        location: String,
        offset: u64,
        length: Option<u64>,
    },
    Invalid {
        reason: String,
    },
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
            return match field(tensor) {
                Some(field) => Self::Inline { field },
                None if tensor.dims.contains(&0) => Self::Inline { field: "nothing" },
                None => Self::Nowhere,
            };
        }
        match ExternalData::parse(tensor) {
            Ok(ExternalData { location, offset, length, .. }) => {
                Self::External { location, offset, length }
            }
            Err(error) => Self::Invalid { reason: error.to_string() },
        }
    }
}

/// The field that holds an inline tensor's data, if any does.
fn field(tensor: &TensorProto) -> Option<&'static str> {
    let fields = [
        (tensor.raw_data.is_some(), "raw_data"),
        (!tensor.float_data.is_empty(), "float_data"),
        (!tensor.int32_data.is_empty(), "int32_data"),
        (!tensor.int64_data.is_empty(), "int64_data"),
        (!tensor.double_data.is_empty(), "double_data"),
        (!tensor.uint64_data.is_empty(), "uint64_data"),
        (!tensor.string_data.is_empty(), "string_data"),
    ];
    fields.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
}

/// Tensors and their bytes, by where they are stored. The bytes of tied tensors are counted once.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    pub tensors: usize,
    pub inline: usize,
    pub inline_bytes: u64,
    pub external: usize,
    pub external_bytes: u64,
    /// External tensors that share the bytes of another one.
    pub tied: usize,
    /// Tensors that should be inline and have no data.
    pub nowhere: usize,
    pub invalid: usize,
}

/// A file and the range in it.
type Range = (String, u64, u64);

impl Totals {
    /// The totals of `tensors`.
    pub fn of(tensors: &[TensorInfo]) -> Self {
        let (mut totals, mut ranges) = (Self::default(), HashSet::new());
        tensors.iter().for_each(|tensor| totals.add(tensor, &mut ranges));
        totals
    }

    fn add(&mut self, tensor: &TensorInfo, ranges: &mut HashSet<Range>) {
        self.tensors += 1;
        match (&tensor.stored, tensor.bytes) {
            (Stored::Invalid { .. }, _) | (_, None) => self.invalid += 1,
            (Stored::Nowhere, _) => self.nowhere += 1,
            (Stored::Inline { .. }, Some(bytes)) => {
                self.inline += 1;
                self.inline_bytes = self.inline_bytes.saturating_add(bytes);
            }
            (Stored::External { location, offset, length }, Some(bytes)) => {
                self.external += 1;
                if ranges.insert((plain(location), *offset, length.unwrap_or(bytes))) {
                    self.external_bytes = self.external_bytes.saturating_add(bytes);
                } else {
                    self.tied += 1;
                }
            }
        }
    }
}

/// Weights files, counted by their state.
#[derive(Debug, Default, Serialize)]
pub struct FileTotals {
    pub files: usize,
    /// Of those that are there.
    pub bytes: u64,
    pub present: usize,
    pub cut_off: usize,
    pub missing: usize,
    pub wrong: usize,
    pub refused: usize,
}

impl FileTotals {
    /// The totals of `files`.
    pub fn of(files: &[Listed<'_>]) -> Self {
        let count = |state| files.iter().filter(|file| file.state == state).count();
        Self {
            files: files.len(),
            bytes: files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add),
            present: count(State::Present),
            cut_off: count(State::CutOff),
            missing: count(State::Missing),
            wrong: count(State::Wrong),
            refused: count(State::Refused),
        }
    }
}
