//! What of a model file single readers take for something else: [`refuse_ambiguous`].
//!
//! Protobuf lets one message be written in many ways, and not all readers know all of them. A field
//! of one value may be there twice, and the last one counts, or, of messages, both are merged;
//! other readers take one of the two. Bytes that do not count may make the beginning of another
//! format. A content digest is of what counts, so such a file can be two models with one digest.
//! Whatever an ordinary writer writes has none of this.
//!
//! `known` has the fields, `scan` walks the records once and copies nothing, `found` is what it
//! found.

mod found;
mod known;
mod scan;

use std::path::Path;

pub(crate) use self::found::Ambiguity;

use crate::error::{Error, ErrorKind, Result};
use crate::files::consistent_read::read_one_save;
use crate::files::file_format::known_format;
use crate::limits::Limits;
use crate::load::LoadOptions;

/// Refuses a model file that two readers can take for two models, although it decodes: in which a
/// field of one value is there more than once, numbers are not in their only form, or whose first
/// bytes are those of another format.
///
/// [`Container::digest`](crate::Container::digest) is of what the file is for an official reader.
/// Where such a digest is compared with one from elsewhere, as signatures on content are, this
/// tells that the file is nothing else for any other. What this crate and the official library
/// write is not refused. [`check_model`](crate::check::check_model) lists all that is found.
///
/// ```
/// use onnx_container::proto::{GraphProto, Message, ModelProto};
/// use onnx_container::check::refuse_ambiguous;
/// use onnx_container::{ErrorKind, MmapChoice};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("m.onnx");
/// let bytes = ModelProto::new(GraphProto::new("g")).encode_to_vec()?;
/// std::fs::write(&path, &bytes).unwrap();
/// refuse_ambiguous(&path, MmapChoice::never())?;
///
/// // A producer before another one, which counts.
/// std::fs::write(&path, [b"\x12\x01a\x12\x01b", &bytes[..]].concat()).unwrap();
/// let error = refuse_ambiguous(&path, MmapChoice::never()).unwrap_err();
/// assert_eq!((error.kind(), error.offset()), (ErrorKind::Ambiguous, Some(3)));
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Ambiguous`] with the first byte concerned, [`ErrorKind::Decode`] where the file is
/// no model, and those of reading it. Of the options only those count that are about the model
/// file.
pub fn refuse_ambiguous(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<()> {
    let (path, options) = (path.as_ref(), options.into());
    let first = read_one_save(path, options.mmap, |bytes| {
        let found = ambiguities(&bytes, &options.decode.limits)?;
        Ok(found.into_iter().next().map(|found| found.error()))
    });
    let first = first.map_err(|error| error.with_path(path))?.value;
    first.map_or(Ok(()), |error| Err(error.with_path(path)))
}

/// What of the model in `bytes` single readers take for something else, one for each field and way,
/// the first byte first.
pub(crate) fn ambiguities(bytes: &[u8], limits: &Limits) -> Result<Vec<Ambiguity>> {
    let begins = known_format(bytes).map(Ambiguity::begins_as);
    let rest = scan::model(bytes, limits)
        .ok_or_else(|| Error::new(ErrorKind::Decode, "its records are not those of a model"))?;
    Ok(begins.into_iter().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records, one after the other.
    fn found(records: &[&[u8]]) -> Vec<String> {
        let found = ambiguities(&records.concat(), &Limits::new()).unwrap();
        found.iter().map(|found| found.error().to_string()).collect()
    }

    const IR: &[u8] = b"\x08\x0a";
    /// A graph that is called `g`.
    const GRAPH: &[u8] = b"\x3a\x03\x12\x01g";

    #[test]
    fn each_way_in_which_readers_differ_is_found() {
        let cases: &[(&str, &[&[u8]], &str)] = &[
            ("a number twice", &[IR, IR], "byte 2: `ir_version` of ModelProto is there 2 times"),
            (
                "a text twice",
                &[b"\x12\x01a\x12\0"],
                "byte 3: `producer_name` of ModelProto is there 2",
            ),
            ("three times", &[IR, IR, IR], "`ir_version` of ModelProto is there 3 times"),
            (
                "a message twice",
                &[IR, GRAPH, GRAPH],
                "`graph` of ModelProto is there 2 times: some",
            ),
            (
                "within a message",
                &[b"\x3a\x06\x12\x01g\x12\x01h"],
                "`name` of GraphProto is there 2",
            ),
            (
                "in a list",
                &[b"\x42\x06\x10\x01\x10\x02\x0a\0"],
                "byte 4: `version` of OperatorSetIdProto",
            ),
            // The type of the first input: two alternatives, and one of them twice.
            (
                "two alternatives",
                &[b"\x3a\x08\x5a\x06\x12\x04\x0a\0\x22\0"],
                "byte 8: TypeProto has 2 of its alternatives",
            ),
            (
                "an alternative twice",
                &[b"\x3a\x08\x5a\x06\x12\x04\x0a\0\x0a\0"],
                "TypeProto has 2 of its alternatives",
            ),
            ("packed", &[b"\x3a\x06\x2a\x04\x0a\x02\x02\x03"], "`dims` of TensorProto is packed"),
            (
                "not packed",
                &[b"\x3a\x07\x2a\x05\x25\0\0\x80\x3f"],
                "`float_data` of TensorProto is not",
            ),
            (
                "in two pieces",
                &[b"\x3a\x08\x2a\x06\x3a\x01\x01\x3a\x01\x02"],
                "`int64_data` of TensorProto is in 2 pieces",
            ),
            (
                "another wire type",
                &[IR, b"\x38\x01"],
                "`graph` of ModelProto has a record of another wire type",
            ),
            ("a group", &[IR, b"\x3b\x08\x01\x3c"], "ModelProto has a group"),
            ("an unknown group", &[IR, b"\xa3\x06\xa4\x06"], "ModelProto has a group"),
            (
                "a padded tag",
                &[b"\x88\0\x0a"],
                "byte 0: a number of ModelProto is not in its shortest",
            ),
            (
                "a padded length",
                &[IR, b"\x12\x81\0a"],
                "byte 3: a number of `producer_name` of ModelProto",
            ),
            ("a padded value", &[b"\x08\x8a\0"], "byte 1: a number of `ir_version` of ModelProto"),
            (
                "beyond 64 bits",
                &[b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"],
                "not in its shortest",
            ),
            (
                "padded in a list",
                &[b"\x3a\x06\x2a\x04\x3a\x02\x81\0"],
                "a number of `int64_data` of TensorProto",
            ),
            (
                "beyond 32 bits",
                &[b"\x3a\x0a\x2a\x08\x10\xff\xff\xff\xff\x0f\x0a\0"],
                "`data_type` of TensorProto has a number beyond 32 bits",
            ),
            (
                "a first field that is not known",
                &[b"\x7a\x01a", IR],
                "it begins with a field that ONNX",
            ),
            ("of .ort", &[b"\x12\x09\0\0ORTM...", IR], "it begins as an ONNX Runtime .ort file"),
            (
                "of TensorFlow Lite",
                &[b"\x12\x09\0\0TFL3...", IR],
                "it begins as a TensorFlow Lite file",
            ),
            ("of safetensors", &[b"\x12\x08\0\0\0\0\0\0{}", IR], "it begins as a safetensors file"),
            (
                "an entry with more than a key and a value",
                &[b"\x3a\x08\x2a\x06\x6a\x04\x0a\0\x18\x01"],
                "StringStringEntryProto has a field that ONNX does not have, and no digest covers it",
            ),
            (
                "a text where a digest is stored",
                &[b"\x72\x1a\x0a\x15onnx_container.sha256\x12\x01a"],
                "`metadata_props` of ModelProto has something else than a digest",
            ),
            (
                "a digest of a tensor, and more",
                &[
                    b"\x3a\x60\x2a\x5e\x82\x01\x5b\x0a\x15onnx_container.sha256\x12\x40",
                    &[b'0'; 64],
                    b"\x48\x01",
                ],
                "`metadata_props` of TensorProto has something else than a digest",
            ),
        ];
        for (what, records, expected) in cases {
            let (place, reason) =
                match expected.split_once(": ").filter(|(p, _)| p.starts_with("byte")) {
                    Some((place, reason)) => (format!("(at {place})"), reason),
                    None => (String::new(), *expected),
                };
            let found = found(records);
            let is_it = |said: &String| said.contains(reason) && said.contains(&place);
            assert!(found.iter().any(is_it), "{what}: {found:?}");
        }
    }

    #[test]
    fn nothing_is_found_in_what_has_one_reading() {
        for (what, records) in [
            ("no record", &[][..]),
            ("fields in any order", &[GRAPH, b"\x12\x01p", IR]),
            ("the largest numbers", &[b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]),
            (
                "a negative number of 32 bits",
                &[b"\x3a\x0f\x2a\x0d\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\0"],
            ),
            ("a field of a later version", &[IR, b"\xa2\x06\x01a\xa2\x06\x01a"]),
            ("lists", &[b"\x42\x02\x10\x01\x42\x02\x10\x02"]),
            ("a stored digest", &[b"\x72\x59\x0a\x15onnx_container.sha256\x12\x40", &[b'0'; 64]]),
            ("another entry", &[b"\x72\x06\x0a\x01k\x12\x01v"]),
            ("numbers of a list", &[b"\x3a\x06\x2a\x04\x08\x02\x08\x03"]),
        ] {
            // Two shapes of 32 bits above are lists of one dimension, which is not packed.
            let found: Vec<_> =
                found(records).into_iter().filter(|said| !said.contains("is packed")).collect();
            assert!(found.is_empty(), "{what}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&b"\x08"[..], b"\x3a\x05\x12", b"\0", b"\x3b\x08\x01", b"\x3c", b"\x08\xff"] {
            let error = ambiguities(bytes, &Limits::new()).err().map(|error| error.kind());
            assert_eq!(error, Some(ErrorKind::Decode), "{bytes:x?}");
        }
        let deep = |levels: usize| {
            (0..levels).fold(vec![], |inner: Vec<u8>, _| {
                let attribute = [&[0x32, u8::try_from(inner.len()).unwrap()], &inner[..]].concat();
                let node =
                    [&[0x2a, u8::try_from(attribute.len()).unwrap()], &attribute[..]].concat();
                [&[0x0a, u8::try_from(node.len()).unwrap()], &node[..]].concat()
            })
        };
        let graph = deep(12);
        let model = [&[0x3a, u8::try_from(graph.len()).unwrap()], &graph[..]].concat();
        assert!(ambiguities(&model, &Limits::new()).unwrap().is_empty());
        let few = Limits::new().with(crate::load::Limit::Nesting, 20);
        assert!(ambiguities(&model, &few).is_err());
    }
}
