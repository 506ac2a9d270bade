//! Which bytes go to which file at which offset. Pure: nothing is read or written.
//!
//! What the save asked for decides between the layouts: `layout` places weights in files of their own
//! bytes, `safetensors` in files that have a header.

mod layout;
#[cfg(feature = "safetensors")]
mod safetensors;

use self::layout::Layout;
pub(crate) use self::layout::{Piece, Place, Plan, PlannedFile};
#[cfg(feature = "safetensors")]
pub(crate) use self::safetensors::{ExportStyle, Exports};
use crate::error::Result;
#[cfg(feature = "safetensors")]
use crate::proto::ModelProto;
use crate::save::file_names::data_name;
use crate::save::kept::Kept;
use crate::save::options::{SaveOptions, WeightFiles};
use crate::save::weights::Weights;

/// What a save of weights beside a model is planned from.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'c, 'a> {
    pub(crate) weights: &'a Weights<'c>,
    /// The model that has the tensors of the weights.
    #[cfg(feature = "safetensors")]
    pub(crate) model: &'a ModelProto,
    pub(crate) kept: &'a Kept,
    /// The file name of the model.
    pub(crate) model_name: &'a str,
    pub(crate) options: &'a SaveOptions,
}

impl<'c> Plan<'c> {
    /// Plans the files of all weights that do not stay where they are.
    pub(crate) fn new(inputs: Inputs<'c, '_>) -> Result<Self> {
        let Inputs { weights, kept, model_name, options, .. } = inputs;
        let mut layout = Layout::new(weights, kept)?;
        match options.weight_files {
            WeightFiles::Embedded => layout.in_model(|_| true)?,
            WeightFiles::Packed => layout.one_file(data_name(model_name, options)?, options)?,
            WeightFiles::PerTensor => layout.file_per_tensor(model_name, options)?,
            #[cfg(feature = "safetensors")]
            WeightFiles::Safetensors => {
                let name = data_name(model_name, options)?;
                layout.safetensors_file(inputs.model, &weights.tensors, name, options)?;
            }
            WeightFiles::AsLoaded => {
                layout.in_model(|weight| weight.len < SMALL)?;
                let name = kept.new_name.clone().map_or_else(|| data_name(model_name, options), Ok);
                layout.one_file(name?, options)?;
            }
        }
        layout.finish()
    }
}

/// From this length in bytes on, a weight that lies in no file goes into one beside those that stay.
const SMALL: u64 = 1024;
