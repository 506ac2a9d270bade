//! What a walk found: the files that tensors name, and how many bytes of each they need.
//!
//! A location counts as soon as it is read, also where the tensor is cut off. How far the data of a
//! tensor reach is told by fields in any order, so this waits for the end of the tensor.

use std::collections::BTreeMap;

use crate::dtype::DataType;
use crate::files::external_data::{decimal, without_dots};

/// The fields of a tensor that say how long it is, and where it is, by their numbers.
pub(super) const DIMS: u64 = 1;
const DATA_TYPE: u64 = 2;
const DATA_LOCATION: u64 = 14;

/// What was found so far.
#[derive(Default)]
pub(super) struct Found {
    /// The files, without `.` components, and how many bytes of each the tensors need.
    pub(super) files: BTreeMap<String, u64>,
    /// Whether a message would be longer than what is around it.
    pub(super) is_cut: bool,
    tensor: Tensor,
}

/// The tensor in which the walk is.
#[derive(Default)]
struct Tensor {
    location: Option<String>,
    offset: u64,
    length: u64,
    dims: Vec<i64>,
    data_type: i32,
    is_external: bool,
}

impl Found {
    /// A tensor begins.
    pub(super) fn begin(&mut self) {
        let mut dims = std::mem::take(&mut self.tensor.dims);
        dims.clear();
        self.tensor = Tensor { dims, ..Tensor::default() };
    }

    /// The tensor is at its end.
    pub(super) fn end(&mut self) {
        let Some(end) = self.tensor.end() else { return };
        let location = self.tensor.location.as_ref();
        if let Some(needed) = location.and_then(|location| self.files.get_mut(location)) {
            *needed = end.max(*needed);
        }
    }

    /// A number in the tensor. Others than those that tell its length are passed over.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        match field {
            DIMS => self.tensor.dims.push(value.cast_signed()),
            DATA_TYPE => self.tensor.data_type = i32::try_from(value).unwrap_or_default(),
            DATA_LOCATION => self.tensor.is_external = value == 1,
            _ => {}
        }
    }

    /// An entry of the tensor's external data.
    pub(super) fn entry(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        let (Some(key), Some(value)) = (key, value) else { return };
        match key {
            b"location" => {
                let location = without_dots(&String::from_utf8_lossy(value));
                if !self.files.contains_key(&location) {
                    self.files.insert(location.clone(), 0);
                }
                self.tensor.location = Some(location);
            }
            // What no reader takes says nothing.
            b"offset" => self.tensor.offset = decimal(value).unwrap_or_default(),
            b"length" => self.tensor.length = decimal(value).unwrap_or_default(),
            _ => {}
        }
    }
}

impl Tensor {
    /// Where its data end; where no length can be told, where they begin; `None` where its elements
    /// are in the message.
    fn end(&self) -> Option<u64> {
        let by_shape = || DataType::try_from(self.data_type).ok()?.byte_len(&self.dims).ok();
        let len = Some(self.length).filter(|len| *len > 0).or_else(by_shape);
        self.is_external.then(|| self.offset.saturating_add(len.unwrap_or_default()))
    }
}
