//! The files of a model: its own and the weights files that it names. No weight is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onnx_container::external_data::{Directory, ExternalData, PathPolicy, is_external};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Container, Error, LoadOptions, Result, traversal};

use crate::locations::plain;

/// Calls `visit` with each external tensor of `model` and what it says of its data. Returns the
/// errors of tensors that name no file, or not one file.
///
/// # Errors
/// When graphs nest too deeply.
pub fn externals(
    model: &ModelProto,
    mut visit: impl FnMut(&TensorProto, ExternalData),
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    traversal::tensors(model, |place, tensor| {
        if is_external(tensor) {
            match ExternalData::parse(tensor) {
                Ok(data) => visit(tensor, data),
                Err(error) => errors.push(error.with_tensor(place.qualified_name(tensor))),
            }
        }
        Ok(())
    })?;
    Ok(errors)
}

/// The locations that are written in `model`, each by the one form of its file, and the errors of
/// [`externals`].
///
/// # Errors
/// As [`externals`].
pub fn locations(model: &ModelProto) -> Result<(BTreeMap<String, String>, Vec<Error>)> {
    let mut locations = BTreeMap::new();
    let errors = externals(model, |_, data| {
        locations.entry(plain(&data.location)).or_insert(data.location);
    })?;
    Ok((locations, errors))
}

/// The files of the model at `path` that are there, as absolute paths: what is not replaced. A file
/// that does not exist cannot be, so it is left out.
///
/// The model is decoded for this alone. Weights that are attached to it would be those of another
/// save, if one replaces the model meanwhile; [`Container::load`] reads graph and weights of one
/// save.
///
/// # Errors
/// When the model cannot be read.
pub fn paths(path: &Path, load: LoadOptions, policy: PathPolicy) -> Result<Vec<PathBuf>> {
    let container = Container::load(path, load.weights(false))?;
    let directory = Directory::of_model(path, policy)?;
    let (locations, _) = locations(container.model())?;
    let weights = locations.values().map(|location| directory.join(location));
    Ok(weights.chain([path.to_owned()]).filter_map(|path| path.canonicalize().ok()).collect())
}
