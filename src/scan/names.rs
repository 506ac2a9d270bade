//! What the name of a file tells of it: a model, weights of a model, weights, or neither.

use super::report::Certainty;
use crate::save::{is_default_name, is_name_of_one_weight};

/// What the names of models end with.
const MODELS: &[&str] = &[".onnx"];

/// What the names of weights files of ONNX models end with.
const WEIGHTS: &[&str] = &[".data", "_data", ".weight", ".weights"];

/// What the names of files end with that other programs store weights in.
const CHECKPOINTS: &[&str] =
    &[".bin", ".ckpt", ".h5", ".msgpack", ".params", ".pt", ".pth", ".safetensors"];

/// Extensions of binary files that are commonly beside models and are no weights.
const OTHERS: &str = "7z a bmp bz2 dll dylib engine exe gguf gif gz ico incomplete jpeg jpg lock \
                      mlmodel model mp3 mp4 npy npz o ort parquet pb pdf pickle pkl plan png pyc \
                      so sqlite tar tflite tgz tif tiff ttf wav webp whl xz zip zst";

/// Whether a file called `name` is a model by its name.
pub(super) fn is_named_as_a_model(name: &str) -> bool {
    ends_with_any(name, MODELS)
}

/// Whether a file called `name` holds weights by its name, of an ONNX model or a checkpoint.
pub(super) fn is_named_as_weights(name: &str) -> bool {
    is_of_onnx(name) || ends_with_any(name, CHECKPOINTS)
}

/// How sure it is by its name that a file holds weights, where the models `models` are in its
/// folder, and why; `None` for what is no weights file. `is_binary` says what its bytes look like.
pub(super) fn weights(
    name: &str,
    models: &[String],
    is_binary: bool,
) -> Option<(Certainty, String)> {
    let is_of = |model: &&String| {
        name.starts_with(unchanged_start(model))
            && (is_default_name(model, name) || is_name_of_one_weight(model, name))
    };
    if let Some(model) = models.iter().find(is_of) {
        let reason = format!("named after `{model}`, which does not need it");
        return Some((Certainty::Sure, reason));
    }
    if is_of_onnx(name) && is_binary {
        let reason = "named as weights files are, and no model needs it";
        return Some((Certainty::Likely, reason.to_owned()));
    }
    if is_of_onnx(name) {
        let reason = "named as weights files are, but its bytes are text";
        return Some((Certainty::Possible, reason.to_owned()));
    }
    if ends_with_any(name, CHECKPOINTS) {
        let reason = "may be a checkpoint that other programs read: no model needs it";
        return Some((Certainty::Possible, reason.to_owned()));
    }
    let is_unknown = is_binary && !is_of_another_kind(name) && !is_named_as_a_model(name);
    is_unknown.then(|| {
        (Certainty::Possible, "a binary file beside a model that does not need it".to_owned())
    })
}

/// The part of a model's name that every default name of its weights files begins with: what comes
/// before the first character that a save may write in another way, and of a long name what is not
/// cut. It rules out most pairs of a model and a file at once, of which a folder can have millions.
fn unchanged_start(model: &str) -> &str {
    let end = model.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(model.len());
    model.get(..end.min(NEVER_CUT)).unwrap_or_default()
}

/// How many bytes of a model's name are in the names of its weights files, if it has so many.
const NEVER_CUT: usize = 128;

/// What the model is probably called whose weights file has the name `name`; `None` for other
/// files.
pub(super) fn model_of_weights(name: &str) -> Option<String> {
    if !is_of_onnx(name) {
        return None;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix('_').unwrap_or(name);
    let stem = WEIGHTS.iter().find_map(|end| {
        let at = stem.len().checked_sub(end.len())?;
        let (stem, rest) = stem.split_at_checked(at)?;
        rest.eq_ignore_ascii_case(end).then_some(stem)
    })?;
    let is_model = is_named_as_a_model(stem);
    (!stem.is_empty()).then(|| if is_model { stem.to_owned() } else { format!("{stem}.onnx") })
}

/// Whether `name` ends as those of weights files of ONNX models do: also `model.onnx_data_1`.
fn is_of_onnx(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = stem.strip_suffix('_').filter(|_| stem.len() < name.len());
    ends_with_any(name, WEIGHTS) || numbered.is_some_and(|stem| ends_with_any(stem, &["_data"]))
}

fn is_of_another_kind(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| OTHERS.split(' ').any(|other| other == extension))
}

fn ends_with_any(name: &str, ends: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_weights_tell_their_model() {
        for (name, model) in [
            ("dec.onnx.data", Some("dec.onnx")),
            ("dec.onnx_data", Some("dec.onnx")),
            ("dec.onnx_data_12", Some("dec.onnx")),
            ("dec.DATA", Some("dec.onnx")),
            ("layer.weight", Some("layer.onnx")),
            ("dec.onnx", None),
            ("dec_1", None),
            (".data", None),
        ] {
            assert_eq!(model_of_weights(name).as_deref(), model, "{name}");
        }
    }

    #[test]
    fn names_tell_how_sure_it_is_that_a_file_holds_weights() {
        use Certainty::{Likely, Possible, Sure};
        // Windows has no name with a colon.
        let colon = if cfg!(windows) { "" } else { ":" };
        let odd = format!("a..b c{colon}d.onnx");
        let (odd_data, odd_weight) = (odd.replace("..", "__") + ".data", odd.replace(':', "_"));
        let odd_weight = odd_weight.replace("..", "__").replace(".onnx", "-w.weight");
        let models = ["m.onnx", "enc.onnx", &odd].map(str::to_owned);
        for (name, binary, text) in [
            ("m.onnx.data", Some(Sure), Some(Sure)),
            ("m.onnx_data", Some(Sure), Some(Sure)),
            ("m.onnx_data_1", Some(Sure), Some(Sure)),
            ("m-00001-of-00002.onnx.data", Some(Sure), Some(Sure)),
            ("enc-layer.0.weight", Some(Sure), Some(Sure)),
            (&odd_data, Some(Sure), Some(Sure)),
            (&odd_weight, Some(Sure), Some(Sure)),
            ("other.onnx.data", Some(Likely), Some(Possible)),
            ("model.onnx_data_9", Some(Likely), Some(Possible)),
            ("x.WEIGHT", Some(Likely), Some(Possible)),
            ("foo.data", Some(Likely), Some(Possible)),
            ("old_weights.bin", Some(Possible), Some(Possible)),
            ("m.safetensors", Some(Possible), Some(Possible)),
            ("weights", Some(Possible), None),
            ("notes.txt", Some(Possible), None),
            ("shot.PNG", None, None),
            ("tokenizer.model", None, None),
            ("b.onnx", None, None),
            ("README", Some(Possible), None),
        ] {
            let of = |is_binary| weights(name, &models, is_binary).map(|(certainty, _)| certainty);
            assert_eq!((of(true), of(false)), (binary, text), "{name}");
        }
        // A long name is cut for the numbers of shards.
        let long = [format!("{}.onnx", "m".repeat(240))];
        let shard = format!("{}-00001-of-00002.onnx.data", "m".repeat(230));
        let found = weights(&shard, &long, true);
        assert_eq!(found.map(|(certainty, _)| certainty), Some(Sure));
    }
}
