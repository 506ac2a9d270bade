//! Weights files whose names follow from that of the model: what to do when one of them is in the
//! way.

use std::path::Path;

use onnx_container::{Error, ErrorKind};

/// What another name of the data files would do about `error`; `None` where the model is in the way
/// as well.
pub fn hint(error: &Error, output: &Path, no_clobber: bool) -> Option<String> {
    let is_model = |error: &Error| error.path().and_then(Path::file_name) == output.file_name();
    if error.each().any(is_model) {
        return None;
    }
    let refused = |error: &Error| {
        let refused = error.path()?.file_name()?.to_str()?;
        (error.kind() == ErrorKind::AlreadyExists).then(|| DataFile::of(refused, output))?
    };
    let hint = match error.each().find_map(refused)? {
        DataFile::ForTransformersJs => {
            return Some(
                "transformers.js looks for these names alone: delete files that no model needs, or choose \
                 another OUT"
                    .to_owned(),
            );
        }
        _ if no_clobber => "--data-name NAME puts the weights into another file".to_owned(),
        DataFile::Single => {
            "--data-name NAME puts the weights into another file. A file that no model \
                             refers to can be removed, or replaced by giving its own name as NAME"
                .to_owned()
        }
        DataFile::Shard { all } => format!(
            "--data-name NAME gives the files other names. Files that no model refers to can be removed, or \
             replaced by --data-name {all}"
        ),
    };
    Some(hint)
}

/// A file that has a name which follows from that of the model.
#[derive(Debug, PartialEq, Eq)]
enum DataFile {
    Single,
    /// One of several, whose names are made of the name `all`.
    Shard {
        all: String,
    },
    ForTransformersJs,
}

impl DataFile {
    /// What the file called `name` is beside the model `output`.
    fn of(name: &str, output: &Path) -> Option<Self> {
        let model = output.file_name()?.to_str()?;
        let packed = format!("{model}.data");
        let safetensors = output.with_extension("safetensors");
        let end = name.strip_prefix(model).and_then(|rest| rest.strip_prefix("_data"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if name == packed || safetensors.file_name().is_some_and(|file| file == name) {
            Some(Self::Single)
        } else if end.is_some_and(|e| e.is_empty() || e.strip_prefix('_').is_some_and(is_number)) {
            Some(Self::ForTransformersJs)
        } else {
            let all = without_number(name).filter(|all| *all == packed)?;
            Some(Self::Shard { all })
        }
    }
}

/// `m.onnx.data` for `m-00001-of-00003.onnx.data`.
fn without_number(name: &str) -> Option<String> {
    let (before, after) = name.rsplit_once("-of-")?;
    let (stem, number) = before.rsplit_once('-')?;
    let extension = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit());
    let count = after.strip_suffix(extension)?;
    (is_number(number) && is_number(count)).then(|| format!("{stem}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_are_known_by_their_names() {
        let shard = || Some(DataFile::Shard { all: "m.onnx.data".to_owned() });
        let cases = [
            ("m.onnx.data", Some(DataFile::Single)),
            ("m.safetensors", Some(DataFile::Single)),
            ("m-00001-of-00003.onnx.data", shard()),
            ("m-123456-of-123456.onnx.data", shard()),
            ("m.onnx_data", Some(DataFile::ForTransformersJs)),
            ("m.onnx_data_12", Some(DataFile::ForTransformersJs)),
            ("m.onnx_data_x", None),
            ("m-1-of-00003.onnx.data", None),
            ("n-00001-of-00003.onnx.data", None),
            ("m-00001-of-.onnx.data", None),
            ("m-w.weight", None),
        ];
        for (name, expected) in cases {
            assert_eq!(DataFile::of(name, Path::new("d/m.onnx")), expected, "{name}");
        }
    }
}
