//! Which files the command takes for safetensors files: it goes by their names.

use std::path::Path;

/// Whether the name is that of a safetensors file, or of the index of several.
pub fn is_safetensors(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
}
