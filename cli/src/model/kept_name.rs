//! The name of the weights file of a model that is replaced: weights that are packed by default
//! keep it, because other programs look for it, such as transformers.js for `model.onnx_data`.

use std::collections::BTreeSet;
use std::path::Path;

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::model_files::other_models_that_need;
use onnx_container::{Container, LoadOptions, SaveOptions, traversal};
use onnx_container_files::locations::plain;

use crate::args::{LayoutArgs, PackedArgs};
use crate::model::reading::Reading;

/// `options` for the model at `output`, with the name of the only weights file of the model that is
/// there, where the user asked for no layout and no name.
pub fn kept(
    options: SaveOptions,
    layout: &LayoutArgs,
    output: &Path,
    reading: Reading,
) -> SaveOptions {
    let is_plain =
        layout.max_shard_size.is_none() && !layout.safetensors && layout.shard_names.is_none();
    if is_plain { kept_packed(options, &layout.packed, output, reading) } else { options }
}

/// As [`kept`], of a command with one layout.
pub fn kept_packed(
    options: SaveOptions,
    packed: &PackedArgs,
    output: &Path,
    reading: Reading,
) -> SaveOptions {
    if packed.data_name.is_some() {
        return options;
    }
    match only_name(output, reading) {
        Some(name) => options.data_name(name),
        None => options,
    }
}

/// The name of the only weights file of the model at `path`, if it can be that of a packed file.
fn only_name(path: &Path, reading: Reading) -> Option<String> {
    // A load of the path would complete a save that was killed, which a dry run does not.
    let bytes = reading.map.buffer(path).ok()?;
    let options = LoadOptions::from(reading).weights(false);
    let container = Container::load_bytes(bytes, options).ok()?;
    let mut names = BTreeSet::new();
    for (_, tensor) in traversal::iter(container.model()) {
        if is_external(tensor) {
            names.insert(plain(&ExternalData::parse(tensor).ok()?.location));
        }
        if names.len() > 1 {
            return None;
        }
    }
    let name = names.pop_first()?;
    let is_used = other_models_that_need(path, [name.clone()]).ok()?.contains_key(&name);
    (!is_used && is_of_packed(path, &name)).then_some(name)
}

/// Whether a packed file may have this name: it is not that of another layout, nor one that is
/// refused.
fn is_of_packed(path: &Path, name: &str) -> bool {
    let lower = name.to_lowercase();
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_of_one = lower.ends_with(".weight") && name.starts_with(&format!("{stem}-"));
    let is_refused = name.contains(['/', '\\']) || name.contains("..") || name.starts_with('#');
    let is_other = lower.ends_with(".safetensors") || lower.ends_with(".onnx");
    let is_shard = lower.contains("-of-0");
    !is_of_one && !is_refused && !is_other && !is_shard && path.with_file_name(name).is_file()
}
