//! The tensors of a model: their types and shapes, and where their elements are.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use super::packed_weights::weight_counts;
use super::text::text_of;
use crate::container::Container;
use crate::dtype::{DataType, element_count};
use crate::error::Result;
use crate::files::external_data::{ExternalData, is_external, is_handle, without_dots};
#[cfg(feature = "safetensors")]
use crate::graph::traversal::Site;
use crate::graph::traversal::{self, Place};
use crate::proto::TensorProto;
use crate::util::cancel;

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TensorSummary {
    /// Its name.
    pub name: String,
    /// The path to the graph that holds it; empty for the main graph.
    pub scope: String,
    /// What it is there, such as `Initializer`.
    pub site: String,
    /// The operator of the node that holds it, for tensors in attributes.
    pub operator: Option<String>,
    /// The element type, or the number of an unknown one.
    pub dtype: String,
    /// The dimensions.
    pub shape: Vec<i64>,
    /// The number of elements; `None` when the dimensions give none.
    pub elements: Option<u64>,
    /// How many weights of the network it stands for: its elements, or more where an element has
    /// several codes of a quantized weight; none for scales and zero points.
    pub parameters: u64,
    /// `None` when type and shape do not give a length.
    pub bytes: Option<u64>,
    /// Where its elements are.
    pub stored: Stored,
}

/// Where the elements of a tensor are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "where", rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Stored {
    /// In the message.
    Inline {
        /// The field that has them; `nothing` for a tensor without elements.
        field: &'static str,
    },
    /// Inline, and the elements were removed.
    Nowhere,
    /// In a file.
    External {
        /// The file, as the tensor names it.
        location: String,
        /// The first byte there.
        offset: u64,
        /// The length in bytes, where the tensor has one.
        length: Option<u64>,
    },
    /// Behind a handle of the container.
    Handle {
        /// The handle, with its `#`.
        handle: String,
        /// The file that they were loaded from.
        path: Option<String>,
        /// The first byte there.
        offset: Option<u64>,
    },
    /// The message contradicts itself.
    Invalid {
        /// How.
        reason: String,
    },
}

/// Every tensor of the model of `container`, in graph order.
pub(super) fn of(container: &Container) -> Result<Vec<TensorSummary>> {
    let counts = weight_counts(container.model());
    let tensor = |(place, proto): (Place<'_>, &TensorProto)| {
        cancel::check()?;
        let mut tensor = TensorSummary::of(&place, proto);
        let name = proto.name.as_ref().map(|name| name.as_bytes());
        if let Some(count) = name.and_then(|name| counts.get(name)) {
            tensor.parameters = *count;
        }
        tensor.stored.look_behind(container, proto);
        Ok(tensor)
    };
    traversal::iter(container.model()).map(tensor).collect()
}

impl TensorSummary {
    fn of(place: &Place<'_>, tensor: &TensorProto) -> Self {
        let number = tensor.data_type.unwrap_or(0);
        let dtype = DataType::try_from(number);
        let elements = element_count(&tensor.dims).ok();
        Self {
            name: place.name_of(tensor),
            scope: place.scope.to_string(),
            site: format!("{:?}", place.site),
            operator: text_of(place.op_type),
            dtype: dtype.as_ref().map_or_else(|_| number.to_string(), ToString::to_string),
            shape: tensor.dims.clone(),
            elements,
            parameters: elements.unwrap_or_default(),
            bytes: dtype.ok().and_then(|dtype| byte_len(dtype, tensor)),
            stored: Stored::of(tensor),
        }
    }

    /// An entry of a safetensors file.
    #[cfg(feature = "safetensors")]
    pub(crate) fn of_entry(
        name: String,
        dtype: DataType,
        shape: Vec<i64>,
        (location, offset): (String, u64),
    ) -> Self {
        let bytes = dtype.byte_len(&shape).ok();
        let elements = element_count(&shape).ok();
        Self {
            name,
            scope: String::new(),
            site: format!("{:?}", Site::Initializer),
            operator: None,
            dtype: dtype.to_string(),
            elements,
            parameters: elements.unwrap_or_default(),
            shape,
            bytes,
            stored: Stored::External { location, offset, length: bytes },
        }
    }

    /// The name with the scope before it.
    pub fn qualified_name(&self) -> Cow<'_, str> {
        if self.scope.is_empty() {
            return Cow::Borrowed(&self.name);
        }
        Cow::Owned(format!("{}/{}", self.scope, self.name))
    }

    /// The file or handle with its elements and the range there, which tied tensors share. `None`
    /// where they are not in a file.
    pub(super) fn range(&self) -> Option<Range<'_>> {
        match &self.stored {
            Stored::External { location, offset, length } => {
                Some((plain(location), *offset, length.or(self.bytes).unwrap_or_default()))
            }
            Stored::Handle { handle, .. } => {
                Some((Cow::Borrowed(handle), 0, self.bytes.unwrap_or_default()))
            }
            _ => None,
        }
    }
}

fn byte_len(dtype: DataType, tensor: &TensorProto) -> Option<u64> {
    if dtype == DataType::String {
        let lens = tensor.string_data.iter().map(|string| string.len() as u64);
        return Some(lens.sum());
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

    /// Says what is behind a handle, where there is an initializer.
    fn look_behind(&mut self, container: &Container, proto: &TensorProto) {
        let Self::External { location, .. } = self else { return };
        if !is_handle(location) {
            return;
        }
        let Ok((handle, initializer)) = container.initializer_of(proto) else { return };
        let buffer = initializer.as_buffer();
        let source = buffer.as_ref().and_then(|bytes| bytes.source()).map(|(place, _)| place);
        let place = initializer.file_range().or(source);
        let path = place.as_ref().map(|place| place.path.to_string_lossy().into_owned());
        let offset = place.map(|place| place.range.start);
        *self = Self::Handle { handle: handle.to_string(), path, offset };
    }
}

/// The field that holds an inline tensor's elements, if any does.
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TensorTotals {
    /// All tensors.
    pub tensors: usize,
    /// Those with their elements in the model.
    pub inline: usize,
    /// The bytes of these.
    pub inline_bytes: u64,
    /// Those with their elements in files, or behind handles.
    pub external: usize,
    /// The bytes of these.
    pub external_bytes: u64,
    /// External tensors that share the bytes of another one.
    pub tied: usize,
    /// Tensors that should be inline and have no elements.
    pub nowhere: usize,
    /// Tensors with a message that contradicts itself.
    pub invalid: usize,
}

/// The tensors of one element type. The elements of tied tensors are counted once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DtypeTotals {
    /// The type.
    pub dtype: String,
    /// The number of tensors.
    pub tensors: usize,
    /// The number of their elements.
    pub elements: u64,
    /// The bytes of these.
    pub bytes: u64,
}

/// A file or handle, and the first byte and the length there.
pub(super) type Range<'t> = (Cow<'t, str>, u64, u64);

/// `tensors`, added up, in all and by their types, and their parameters.
pub(super) fn totals(tensors: &[TensorSummary]) -> (TensorTotals, Vec<DtypeTotals>, u64) {
    let (mut totals, mut ranges, mut parameters) = (TensorTotals::default(), HashSet::new(), 0_u64);
    let mut by_dtype: BTreeMap<&str, DtypeTotals> = BTreeMap::new();
    for tensor in tensors {
        let is_first = totals.add(tensor, &mut ranges);
        let of = by_dtype.entry(&tensor.dtype).or_default();
        of.tensors += 1;
        if is_first {
            of.elements = of.elements.saturating_add(tensor.elements.unwrap_or_default());
            of.bytes = of.bytes.saturating_add(tensor.bytes.unwrap_or_default());
            parameters = parameters.saturating_add(tensor.parameters);
        }
    }
    let named = |(dtype, of): (&str, DtypeTotals)| DtypeTotals { dtype: dtype.to_owned(), ..of };
    let mut dtypes: Vec<_> = by_dtype.into_iter().map(named).collect();
    dtypes.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    (totals, dtypes, parameters)
}

impl TensorTotals {
    /// Adds `tensor`. Whether its bytes are not those of another one.
    fn add<'t>(&mut self, tensor: &'t TensorSummary, ranges: &mut HashSet<Range<'t>>) -> bool {
        self.tensors += 1;
        let Some(bytes) = tensor.bytes else {
            self.invalid += 1;
            return false;
        };
        let Some(range) = tensor.range() else {
            return self.add_inline(&tensor.stored, bytes);
        };
        self.external += 1;
        let is_first = ranges.insert(range);
        if is_first {
            self.external_bytes = self.external_bytes.saturating_add(bytes);
        } else {
            self.tied += 1;
        }
        is_first
    }

    /// Adds a tensor that is not in a file. Whether it is valid.
    fn add_inline(&mut self, stored: &Stored, bytes: u64) -> bool {
        match stored {
            Stored::Nowhere => self.nowhere += 1,
            Stored::Inline { .. } => {
                self.inline += 1;
                self.inline_bytes = self.inline_bytes.saturating_add(bytes);
            }
            _ => {
                self.invalid += 1;
                return false;
            }
        }
        true
    }
}

/// `location` without its `.` and empty components, so that `./w` and `w` are one file. An absolute
/// path stays one.
fn plain(location: &str) -> Cow<'_, str> {
    let is_plain = |part: &str| !part.is_empty() && part != ".";
    if location.split('/').all(is_plain) {
        return Cow::Borrowed(location);
    }
    let absolute = if location.starts_with('/') { "/" } else { "" };
    Cow::Owned(format!("{absolute}{}", without_dots(location)))
}
