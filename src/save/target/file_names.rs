//! What the files of a save are called.
//!
//! Every file system and every reader must accept the names: no directory, no `..` anywhere, no two
//! names that differ in case alone. Which bytes a file holds is decided in `plan`.

use std::collections::HashSet;
use std::path::Path;

use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{check_location, is_handle, refuse_nul};
use crate::save::options::SaveOptions;
use crate::save::options::weight_files::ShardNames;
#[cfg(feature = "safetensors")]
use crate::save::options::weight_files::WeightFiles;
use crate::util::names::UniqueNames;
use crate::util::names::fold_case;

/// The name of the packed file, checked: a plain file name other than the model's.
pub(crate) fn data_name(model_name: &str, options: &SaveOptions) -> Result<String> {
    let name = options.data_name.clone().unwrap_or_else(|| match options.weight_files {
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors => default_safetensors_name(model_name),
        _ => match &options.data_suffix {
            Some(suffix) => location_name(model_name, suffix),
            None => default_data_name(model_name),
        },
    });
    valid_data_name(name, model_name)
}

/// `name`, when a data file beside the model can have it.
fn valid_data_name(name: String, model_name: &str) -> Result<String> {
    let reason = if fold_case(&name) == fold_case(model_name) {
        "the data file cannot have the model's name"
    } else if let Some(reason) = refused(&name) {
        reason
    } else if fold_case(&name).ends_with(".onnx") {
        "the data file cannot have a name that ends in `.onnx`, as models do"
    } else {
        check_location(&name)?;
        return Ok(name);
    };
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name))
}

/// `name`, when a data file of the model can have it that is not one of the `others`.
pub(crate) fn new_data_name<'n>(
    name: String,
    model_name: &str,
    mut others: impl Iterator<Item = &'n str>,
) -> Result<String> {
    if others.any(|other| fold_case(other) == fold_case(&name)) {
        let reason = "another data file of the model has this name";
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name));
    }
    valid_data_name(name, model_name)
}

/// Refuses what is no plain file name.
pub(crate) fn check_model_name(name: &str) -> Result<()> {
    refuse_nul(Path::new(name))?;
    if Path::new(name).file_name().is_some_and(|file| file == name) && !name.contains('\\') {
        return Ok(());
    }
    let reason = "a model's name is that of a file, without a folder";
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name))
}

/// The names of `count` shards, checked like [`data_name`].
pub(crate) fn shard_names(
    model_name: &str,
    count: usize,
    options: &SaveOptions,
) -> Result<Vec<String>> {
    let name_of: &dyn Fn(usize) -> String = match (options.shard_names, &options.data_name) {
        (ShardNames::TransformersJs, Some(name)) => {
            let reason =
                "transformers.js looks for `<model file>_data`: its files have no other name";
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name));
        }
        (ShardNames::TransformersJs, None) => &|number| transformers_js_name(model_name, number),
        (ShardNames::Numbered, _) if count <= 1 => {
            return data_name(model_name, options).map(|name| vec![name]);
        }
        (ShardNames::Numbered, Some(name)) => {
            let (stem, extension) = split_extension(name);
            &move |number| format!("{stem}{}", numbered(number, count, extension))
        }
        (ShardNames::Numbered, None) => {
            &|number| numbered_default_name(&default_data_name(model_name), number, count)
        }
    };
    let valid = |number| {
        let name = valid_data_name(name_of(number), model_name);
        match options.shard_names {
            ShardNames::TransformersJs => name.map_err(|error| {
                error.because(
                    "not a valid file name; rename the model (transformers.js derives this name from it)",
                )
            }),
            ShardNames::Numbered => name,
        }
    };
    (0..count).map(valid).collect()
}

/// The name of a shard that transformers.js looks for.
fn transformers_js_name(model_name: &str, number: usize) -> String {
    match number {
        0 => format!("{model_name}_data"),
        number => format!("{model_name}_data_{number}"),
    }
}

/// The name of shard `number` of a file of the default name; a long stem is cut.
fn numbered_default_name(name: &str, number: usize, count: usize) -> String {
    let (stem, extension) = split_extension(name);
    with_suffix(stem, &numbered(number, count, extension))
}

/// `-00001-of-00003` and the extension.
fn numbered(number: usize, count: usize, extension: &str) -> String {
    format!("-{:05}-of-{count:05}{extension}", number.saturating_add(1))
}

/// The stem and the extension of the name of a data file: the extension of `m.onnx.data` is
/// `.onnx.data`.
fn split_extension(name: &str) -> (&str, &str) {
    let stem = name.strip_suffix(".onnx.data").filter(|stem| !stem.is_empty());
    let at = match stem {
        Some(stem) => stem.len(),
        None => name.rfind('.').filter(|at| *at > 0).unwrap_or(name.len()),
    };
    name.split_at_checked(at).unwrap_or((name, ""))
}

/// Why a data file beside the model must not have this name. [`check_location`] has the other
/// rules.
fn refused(name: &str) -> Option<&'static str> {
    if name.contains(['/', '\\']) {
        Some("the data file lies beside the model: its name has no directory")
    } else if is_handle(name) {
        Some("a data file's name does not start with `#`, which marks handles")
    } else if name.len() > MAX_NAME {
        Some("the data file's name is longer than 255 bytes")
    } else if name.contains("..") {
        Some("a data file's name has no `..`, which onnx takes for the folder above")
    } else {
        None
    }
}

/// Checks the `names` of all weights files of a plan, after every step that makes or changes a
/// name: a reader or a file system that refuses one would refuse the whole model.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::ErrorKind::Internal), because names that the caller gave were
/// checked earlier.
pub(crate) fn check_names<'n>(
    model_name: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<()> {
    let mut taken = HashSet::from([fold_case(model_name)]);
    for name in names {
        let fail = |reason: &str| Error::internal(reason).with_path(name);
        if let Some(reason) = refused(name) {
            return Err(fail(reason));
        }
        check_location(name).map_err(|error| fail(error.reason()))?;
        if !taken.insert(fold_case(name)) {
            return Err(fail("two files of one name"));
        }
    }
    Ok(())
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

/// The name of an additional data file of a model: `<model file>.data`, with a number where
/// `is_taken` holds for that name.
pub(crate) fn free_data_name(model_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = default_data_name(model_name);
    let mut number = 1_u64;
    while is_taken(&name) {
        number += 1;
        name = location_name(model_name, &format!("_{number}.data"));
    }
    name
}

/// Whether `name` is one that a save of the model gives by default to a file of several weights.
/// That of a safetensors file is not: it may be a checkpoint.
pub(crate) fn is_default_name(model_name: &str, name: &str) -> bool {
    let data_name = default_data_name(model_name);
    // What is left of the name between these two.
    let between = |start: &str, end: &str| {
        name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap_or_default()
    };
    name == data_name
        || name == location_name(model_name, PACKED_BY_ONNX)
        || name == transformers_js_name(model_name, 0)
        || is_number(between(&format!("{}_", transformers_js_name(model_name, 0)), ""))
        || is_number(between(&format!("{model_name}_"), ".data"))
        || shard_numbers(&data_name, name).is_some()
}

/// The numbers `-00001-of-00003` in `name`, where that is the name of a shard of the file that is
/// called `data_name` by default.
fn shard_numbers<'n>(data_name: &str, name: &'n str) -> Option<&'n str> {
    let (stem, extension) = split_extension(data_name);
    let numbered = name.strip_suffix(extension)?;
    let (start, count) = numbered.rsplit_once("-of-")?;
    let (start, number) = start.rsplit_once('-')?;
    let numbers = numbered.strip_prefix(start)?;
    let is_shard = is_number(number)
        && is_number(count)
        && number.len() == count.len()
        && name == with_suffix(stem, &format!("{numbers}{extension}"));
    is_shard.then_some(numbers)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `name` is one that a save of the model may give by default to the file of one weight.
pub(crate) fn is_name_of_one_weight(model_name: &str, name: &str) -> bool {
    let rest = name.strip_prefix(&weight_prefix(model_name));
    rest.is_some_and(|rest| rest.strip_suffix(".weight").is_some_and(|rest| !rest.is_empty()))
}

/// The name of the weights file `name` of the model `old` when the model is called `new`: one that
/// saves give by default follows the model, any other stays.
pub(crate) fn renamed_with_model(old: &str, new: &str, name: &str) -> String {
    let renamed = renamed_by_rule(old, new, name).filter(|_| old != new);
    let is_valid = |name: &String| valid_data_name(name.clone(), new).is_ok();
    renamed.filter(is_valid).unwrap_or_else(|| name.to_owned())
}

fn renamed_by_rule(old: &str, new: &str, name: &str) -> Option<String> {
    if is_name_of_one_weight(old, name) {
        let rest = name.strip_prefix(&weight_prefix(old))?;
        return Some(weight_prefix(new) + rest);
    }
    if !is_default_name(old, name) {
        return None;
    }
    let (old_data, new_data) = (default_data_name(old), default_data_name(new));
    if name == old_data {
        return Some(new_data);
    }
    if name == location_name(old, PACKED_BY_ONNX) {
        return Some(location_name(new, PACKED_BY_ONNX));
    }
    // `_data`, `_data_1`, `_2.data`
    if let Some(rest) = name.strip_prefix(old) {
        return Some(location_name(new, rest));
    }
    let (new_stem, new_extension) = split_extension(&new_data);
    let numbers = shard_numbers(&old_data, name)?;
    Some(with_suffix(new_stem, &format!("{numbers}{new_extension}")))
}

/// What onnx's `ModelContainer` puts behind the model's file name for its packed file.
const PACKED_BY_ONNX: &str = ".weight";

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

/// The prefix of the names of a model's files for single tensors: `<stem>-`.
pub(crate) fn weight_prefix(model_name: &str) -> String {
    let stem = model_name.strip_suffix(".onnx").unwrap_or(model_name);
    without_dot_dot(&format!("{}-", clean(stem)))
}

/// Makes file names for handles: `<stem>-<clean handle>.weight`, without a second `.weight` where
/// the handle ends in it, at most 255 bytes long, and unique even on file systems that ignore case.
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
        let name = clean(handle.name());
        // Most weights are called that already.
        let plain = name.strip_suffix(".weight").filter(|plain| !plain.is_empty());
        let base = self.prefix.clone() + plain.unwrap_or(&name);
        self.names.name(&without_dot_dot(&base), ".weight")
    }
}

/// Replaces characters that some file system or shell does not accept in a name by `_`.
fn clean(name: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    name.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// `base` followed by `suffix`; a long `base` is cut so that the name has at most [`MAX_NAME`]
/// bytes.
fn with_suffix(base: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len()).min(base.len());
    let end = (0..=room).rev().find(|end| base.is_char_boundary(*end));
    format!("{}{suffix}", base.get(..end.unwrap_or(0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_clean_unique_and_short() {
        let mut names = FileNames::new("m.onnx");
        let long = format!("#{}", "ä".repeat(300));
        let cases = [
            ("#w", "m-w.weight"),
            ("#W", "m-W_2.weight"),
            ("#w.weight", "m-w_3.weight"),
            ("#fc.weight", "m-fc.weight"),
            ("#.weight", "m-.weight.weight"),
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

    #[test]
    fn default_names_follow_the_name_of_the_model() {
        for (name, new) in [
            ("m.onnx.data", "n o.onnx.data"),
            ("m.onnx.weight", "n o.onnx.weight"),
            ("m.onnx_data", "n o.onnx_data"),
            ("m.onnx_data_1", "n o.onnx_data_1"),
            ("m.onnx_2.data", "n o.onnx_2.data"),
            ("m-00001-of-00003.onnx.data", "n o-00001-of-00003.onnx.data"),
            ("m-a.b.weight", "n_o-a.b.weight"),
            ("m.safetensors", "m.safetensors"),
            ("own", "own"),
            ("sub/m.onnx.data", "sub/m.onnx.data"),
        ] {
            let renamed = renamed_with_model("m.onnx", "n o.onnx", name);
            // What a name of one weight has instead of a blank is the business of `clean`.
            let cleaned = weight_prefix("n o.onnx") + "a.b.weight";
            let new = if name == "m-a.b.weight" { cleaned.as_str() } else { new };
            assert_eq!(renamed, new, "{name}");
            assert_eq!(renamed_with_model("m.onnx", "m.onnx", name), name);
            assert!(renamed == name || is_default_name("n o.onnx", &renamed) || renamed == cleaned);
        }
        // A name that no data file may have is not given.
        for new in ["#m", "a".repeat(254).as_str()] {
            let renamed = renamed_with_model("m.onnx", new, "m.onnx_data");
            assert!(valid_data_name(renamed.clone(), new).is_ok(), "{renamed}");
        }
    }

    #[test]
    fn default_names_are_known_from_those_that_a_caller_chose() {
        for (name, is_default) in [
            ("m.onnx.data", true),
            ("m.onnx.weight", true),
            ("m.onnx_data", true),
            ("m.onnx_data_1", true),
            ("m.onnx_2.data", true),
            ("m-00001-of-00003.onnx.data", true),
            ("m-a.b.weight", false),
            ("m.safetensors", false),
            ("m.onnx", false),
            ("m.data", false),
            ("n.onnx.data", false),
            ("m.onnx_data_", false),
            ("m.onnx_data_x", false),
            ("m.onnx_.data", false),
            ("m-1-of-00003.onnx.data", false),
            ("m-00001-of-x.onnx.data", false),
            ("m-.weight", false),
            ("m.weight", false),
            ("sub/m.onnx.data", false),
        ] {
            assert_eq!(is_default_name("m.onnx", name), is_default, "{name}");
        }
        for (name, is_one) in
            [("m-a.b.weight", true), ("m-.weight", false), ("n-a.weight", false), ("m-a", false)]
        {
            assert_eq!(is_name_of_one_weight("m.onnx", name), is_one, "{name}");
        }
    }

    /// The numbers of shards are kept where a long name is cut for them.
    #[test]
    fn shards_of_a_long_name_are_known() {
        let long = format!("{}.onnx", "m".repeat(240));
        let shards = shard_names(&long, 2, &SaveOptions::new()).unwrap();
        let of_short = ["o-00001-of-00002.onnx.data", "o-00002-of-00002.onnx.data"];
        for (name, short) in shards.iter().zip(of_short) {
            assert!(is_default_name(&long, name), "{name}");
            assert_eq!(renamed_with_model(&long, "o.onnx", name), short);
            assert_eq!(&renamed_with_model("o.onnx", &long, short), name);
            assert!(!is_default_name(&long, &name[1..]), "{name}");
        }
    }

    #[test]
    fn a_name_that_a_reader_refuses_is_found_before_anything_is_written() {
        let long = "w".repeat(256);
        let names =
            ["a..b", "..", "w/x", "w\\x", "#w", "", "/w", "C:w", "a\0", "M.ONNX", "same", &long];
        for name in names {
            let error = check_names("m.onnx", ["fine", "SAME", name]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{name:?}");
        }
        check_names("m.onnx", ["a", "b.c", "äöü", &long[..255]]).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Names of models and tensors are any strings; those of the files made from them are not.
        #[test]
        fn every_name_that_is_made_is_one_that_readers_take(
            model in prop_oneof!["[.a/:#*\\\\_ _2é\0-]{1,6}(\\.onnx)?", "\\PC{1,300}", "[.]{250,255}"],
            handles in prop::collection::vec(
                prop_oneof!["[.a/:#*\\\\A _2]{1,5}", "\\PC{1,300}", "[.w]{240,300}"], 1..8),
        ) {
            // A model's own name is a file name.
            let model = model.replace(['/', '\0'], "_");
            let mut names = FileNames::new(&model);
            let handles = handles.iter().filter_map(|name| format!("#{name}").parse().ok());
            let mut files: Vec<_> = handles.map(|handle: Handle| names.name(&handle)).collect();
            let taken = default_data_name(&model);
            files.push(free_data_name(&model, |name| name == taken));
            files.push(taken);
            #[cfg(feature = "safetensors")]
            files.push(default_safetensors_name(&model));
            let checked = check_names(&model, files.iter().map(String::as_str));
            prop_assert!(checked.is_ok(), "{model:?} {files:?}: {checked:?}");
        }
    }
}
