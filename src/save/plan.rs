//! Which bytes go to which file at which offset. Pure: nothing is read or written.
//!
//! The options of the save select the layout: `layout` places weights in files of raw bytes,
//! `shards` finds where a new one begins, `safetensors` places them in files that have a header.

mod aliases;
mod layout;
mod proportion;
#[cfg(feature = "safetensors")]
mod safetensors;
mod shards;

use self::layout::Layout;
pub(crate) use self::layout::{Piece, Plan, PlannedFile, WeightPlace};
use self::proportion::{refuse_overlaps, refuse_padding};
#[cfg(feature = "safetensors")]
pub(crate) use self::safetensors::{ExportStyle, Exports};
use crate::error::Result;
#[cfg(feature = "safetensors")]
use crate::proto::ModelProto;
use crate::save::gather::equal::Equal;
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::weights::GatheredWeights;
use crate::save::options::SaveOptions;
use crate::save::options::weight_files::WeightFiles;
use crate::save::target::file_names::{check_names, data_name, shard_names};

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'c, 'a> {
    pub(crate) weights: &'a GatheredWeights<'c>,
    /// The model that has the tensors of the weights.
    #[cfg(feature = "safetensors")]
    pub(crate) model: &'a ModelProto,
    pub(crate) kept: &'a KeptFiles,
    pub(crate) equal: &'a Equal,
    /// The file name of the model.
    pub(crate) model_name: &'a str,
    pub(crate) options: &'a SaveOptions,
}

impl<'c> Plan<'c> {
    /// Plans the files of all weights that are not kept in the files they were loaded from.
    pub(crate) fn new(inputs: Inputs<'c, '_>) -> Result<Self> {
        let Inputs { weights, kept, equal, model_name, options, .. } = inputs;
        let mut layout = Layout::new(weights, kept, equal)?;
        match options.weight_files {
            WeightFiles::Embedded => layout.in_model(|_| true)?,
            WeightFiles::Packed => layout.one_file(data_name(model_name, options)?, options)?,
            WeightFiles::Sharded { max_bytes } => {
                layout.shards(max_bytes, options)?;
                layout.name_files(shard_names(model_name, layout.files.len(), options)?);
            }
            WeightFiles::Balanced { files } => {
                layout.balanced(files, options)?;
                layout.name_files(shard_names(model_name, layout.files.len(), options)?);
            }
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
        let plan = layout.finish()?;
        let in_model = weights.tensors.iter().filter_map(|tensor| {
            let is_in =
                tensor.inline || plan.places.get(tensor.weight) == Some(&WeightPlace::Model);
            weights.used.get(tensor.weight).filter(|_| is_in).map(|weight| weight.initializer)
        });
        refuse_padding(&plan.files)?;
        refuse_overlaps(in_model.chain(plan.files.iter().flat_map(PlannedFile::initializers)))?;
        check_names(model_name, plan.files.iter().map(|file| file.name.as_str()))?;
        Ok(plan)
    }
}

/// With [`WeightFiles::AsLoaded`], a weight that is in no kept file goes into the model when it has
/// fewer bytes than this, else into a new data file.
const SMALL: u64 = 1024;
