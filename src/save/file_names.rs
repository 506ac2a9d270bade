//! What the files of a save are called.
//!
//! Every file system and every reader must accept the names: no directory, no `..` anywhere, no two
//! names that differ in case alone. Which bytes a file holds is decided in `plan`.

use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{check_location, fold_case, is_handle};
use crate::names::UniqueNames;
use crate::save::options::SaveOptions;
#[cfg(feature = "safetensors")]
use crate::save::options::WeightFiles;

/// The name of the packed file, checked: a plain file name other than the model's.
pub(crate) fn data_name(model_name: &str, options: &SaveOptions) -> Result<String> {
    let name = options.data_name.clone().unwrap_or_else(|| match options.weight_files {
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors => default_safetensors_name(model_name),
        _ => default_data_name(model_name),
    });
    let reason = if name.contains(['/', '\\']) {
        "the data file lies beside the model: its name has no directory"
    } else if fold_case(&name) == fold_case(model_name) {
        "the data file cannot have the model's name"
    } else if is_handle(&name) {
        "a data file's name does not start with `#`, which marks handles"
    } else if name.len() > MAX_NAME {
        "the data file's name is longer than 255 bytes"
    } else if name.contains("..") {
        "a data file's name has no `..`, which onnx takes for the folder above"
    } else if fold_case(&name).ends_with(".onnx") {
        "the data file is not called like another model"
    } else {
        check_location(&name)?;
        return Ok(name);
    };
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name))
}

/// `<model file>.data`, cleaned where the model's name is not valid in a location: `#m`, `C:m`.
pub(crate) fn default_data_name(model_name: &str) -> String {
    location_name(model_name, ".data")
}

/// `<model stem>.safetensors`, cleaned where that is not a valid location.
#[cfg(feature = "safetensors")]
fn default_safetensors_name(model_name: &str) -> String {
    location_name(model_name.strip_suffix(".onnx").unwrap_or(model_name), ".safetensors")
}

/// The name of an additional data file of a model: `<model file>.data`, or with a number where
/// `is_taken` holds for that.
pub(crate) fn free_data_name(model_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = default_data_name(model_name);
    let mut number = 1_u64;
    while is_taken(&name) {
        number += 1;
        name = location_name(model_name, &format!("_{number}.data"));
    }
    name
}

fn location_name(base: &str, suffix: &str) -> String {
    let name = without_dot_dot(&with_suffix(base, suffix));
    let plain = !is_handle(&name) && !name.contains('\\') && check_location(&name).is_ok();
    if plain { name } else { clean(&name) }
}

/// onnx's loader refuses a location that contains `..` anywhere.
fn without_dot_dot(name: &str) -> String {
    name.replace("..", "__")
}

/// The longest file name, in bytes, that common file systems hold.
pub(crate) const MAX_NAME: usize = 255;

/// How the names of a model's files for single tensors begin: `<stem>-`.
pub(crate) fn weight_prefix(model_name: &str) -> String {
    let stem = model_name.strip_suffix(".onnx").unwrap_or(model_name);
    without_dot_dot(&format!("{}-", clean(stem)))
}

/// Makes file names for handles: `<stem>-<clean handle>.weight`, at most 255 bytes long, and unique even
/// on file systems that ignore case.
pub(crate) struct FileNames {
    prefix: String,
    names: UniqueNames,
}

impl FileNames {
    pub(crate) fn new(model_name: &str) -> Self {
        let mut names = UniqueNames::of_files(MAX_NAME);
        names.take(model_name);
        Self { prefix: weight_prefix(model_name), names }
    }

    pub(crate) fn name(&mut self, handle: &Handle) -> String {
        let base = self.prefix.clone() + &clean(handle.name());
        self.names.name(&without_dot_dot(&base), ".weight")
    }
}

/// Replaces characters that some file system or shell does not accept in a name by `_`.
fn clean(name: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    name.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// `base` followed by `suffix`; a long `base` is cut so that the name has at most [`MAX_NAME`] bytes.
fn with_suffix(base: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len()).min(base.len());
    let end = (0..=room).rev().find(|end| base.is_char_boundary(*end));
    format!("{}{suffix}", base.get(..end.unwrap_or(0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_clean_unique_and_short() {
        let mut names = FileNames::new("m.onnx");
        let long = format!("#{}", "ä".repeat(300));
        let cases = [
            ("#w", "m-w.weight"),
            ("#W", "m-W_2.weight"),
            ("#w/x", "m-w_x.weight"),
            ("#w:x", "m-w_x_2.weight"),
            ("#a..b", "m-a__b.weight"),
            ("#con.", "m-con.weight"),
            ("#../../etc/passwd", "m-______etc_passwd.weight"),
            // One file where case is ignored, though neither is the other's lower case.
            ("#ς", "m-ς.weight"),
            ("#Σ", "m-Σ_2.weight"),
            ("#straße", "m-straße.weight"),
            ("#STRASSE", "m-STRASSE_2.weight"),
        ];
        for (handle, name) in cases {
            assert_eq!(names.name(&handle.parse().unwrap()), name);
        }
        let mut given = HashSet::new();
        for _ in 0..3 {
            let name = names.name(&long.parse().unwrap());
            assert!(name.len() <= MAX_NAME && name.ends_with(".weight"), "{name}");
            assert!(given.insert(name));
        }
    }
}
