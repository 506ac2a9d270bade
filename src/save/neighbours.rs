//! Which files the other models of a folder refer to, so that a save does not take them away.
//!
//! A folder can hold models of many gigabytes, and the question is only for their `location`
//! entries. So they are not loaded: the messages are walked on disk, and payloads are skipped.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::external_data::without_dots;

/// The messages on the way to an external entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Function,
    Training,
    Node,
    Attribute,
    Sparse,
    Tensor,
    Entry,
}

impl Kind {
    /// The message in field `number`, when an external entry can lie in it.
    fn child(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) | (Self::Training, 1 | 2) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Tensor, 13) => Self::Entry,
            _ => return None,
        })
    }
}

/// The other models of a folder: regular files, or links to some, called `*.onnx`.
pub(crate) fn neighbours(directory: &Path, model_name: &str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths: BTreeSet<_> = entries.map(|entry| entry.path()).collect();
    paths.into_iter().filter(move |path| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
            && path.file_name().is_some_and(|name| *name != *model_name)
    })
}

/// The files that the model at `path` refers to, without `.` components: as far as it can be read.
/// What is not a model refers to nothing.
pub(crate) fn locations(path: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // A broken model may still be somebody's: what it was seen to need before the fault counts.
    let _ = skim(path, &mut found);
    found
}

fn skim(path: &Path, found: &mut BTreeSet<String>) -> io::Result<()> {
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(malformed());
    }
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    Skim { file: BufReader::new(file), at: 0, found }.message(Kind::Model, end, 0)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a model")
}

/// As deep as the decoder goes by default.
const MAX_DEPTH: u32 = 100;
/// No file system has longer paths, in bytes.
const MAX_TEXT: u64 = 1 << 16;

/// A walk over the messages of a file.
struct Skim<'f> {
    file: BufReader<File>,
    at: u64,
    found: &'f mut BTreeSet<String>,
}

impl Skim<'_> {
    /// Walks a message that ends at byte `end`.
    fn message(&mut self, kind: Kind, end: u64, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(malformed());
        }
        let mut entry = [None, None];
        while self.at < end {
            let tag = self.varint()?;
            let number = tag >> 3;
            match tag & 7 {
                0 => drop(self.varint()?),
                1 => self.skip(8, end)?,
                5 => self.skip(4, end)?,
                2 => {
                    let len = self.varint()?;
                    self.payload(kind, number, len, end, depth, &mut entry)?;
                }
                // Groups: no model has any.
                _ => return Err(malformed()),
            }
        }
        if let [Some(key), Some(value)] = entry
            && key == "location"
        {
            self.found.insert(without_dots(&value));
        }
        Ok(())
    }

    fn payload(
        &mut self,
        kind: Kind,
        number: u64,
        len: u64,
        end: u64,
        depth: u32,
        entry: &mut [Option<String>; 2],
    ) -> io::Result<()> {
        if let Some(child) = kind.child(number) {
            // A file that was cut off ends inside its messages.
            return self.message(child, self.at.saturating_add(len).min(end), depth + 1);
        }
        let slot = usize::try_from(number).ok().and_then(|n| entry.get_mut(n.checked_sub(1)?));
        match slot.filter(|_| kind == Kind::Entry && len <= MAX_TEXT) {
            Some(slot) => *slot = Some(self.text(len, end)?),
            None => self.skip(len, end)?,
        }
        Ok(())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let mut byte = [0];
            self.file.read_exact(&mut byte)?;
            self.at += 1;
            let [byte] = byte;
            value |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed())
    }

    fn text(&mut self, len: u64, end: u64) -> io::Result<String> {
        let to = self.at.checked_add(len).filter(|to| *to <= end).ok_or_else(malformed)?;
        let mut bytes = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut bytes)?;
        self.at = to;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn skip(&mut self, len: u64, end: u64) -> io::Result<()> {
        let to = self.at.checked_add(len).filter(|to| *to <= end).ok_or_else(malformed)?;
        self.file.seek_relative(i64::try_from(len).map_err(|_| malformed())?)?;
        self.at = to;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeProto,
        SparseTensorProto, TensorProto, TrainingInfoProto,
    };

    fn external(location: &str) -> TensorProto {
        TensorProto::external("w", TensorProto::FLOAT, [1], location)
    }

    fn node(attribute: AttributeProto) -> NodeProto {
        let mut node = NodeProto::new("Op", ["x"], ["y"]);
        node.attribute = vec![attribute];
        node
    }

    fn written(model: &ModelProto) -> BTreeSet<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), model.encode_to_vec().unwrap()).unwrap();
        locations(file.path())
    }

    #[test]
    fn every_place_is_found() {
        let mut inner = GraphProto::new("inner");
        inner.initializer = vec![external("subgraph")];
        let sparse = |n: &str| {
            let indices = external(&format!("{n}_indices"));
            SparseTensorProto::new(external(&format!("{n}_values")), indices, [1])
        };
        let mut graph = GraphProto::new("g");
        graph.initializer = vec![external("./initializer")];
        graph.sparse_initializer.push(sparse("sparse"));
        graph.node = vec![
            node(AttributeProto::tensor("a", external("attribute"))),
            node(AttributeProto::tensors("a", vec![external("list")])),
            node(AttributeProto::graph("a", inner.clone())),
            node(AttributeProto::sparse_tensor("a", sparse("one"))),
            node(AttributeProto::sparse_tensors("a", vec![sparse("many")])),
        ];
        let mut model = ModelProto::new(graph);
        let mut function = FunctionProto::new("d", "F");
        function.node = vec![node(AttributeProto::tensor("a", external("function")))];
        function.attribute_proto = vec![AttributeProto::tensor("a", external("default"))];
        model.functions = vec![function];
        let mut training = TrainingInfoProto::default();
        inner.initializer = vec![external("training")];
        training.algorithm = Some(Box::new(inner));
        model.training_info.push(training);

        let expected = "attribute default function initializer list many_indices many_values \
                        one_indices one_values sparse_indices sparse_values subgraph training";
        let found = written(&model);
        assert_eq!(found.into_iter().collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn what_is_not_a_model_refers_to_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [&b"\x3b"[..], b"\x3a\x03\x2a\x09\x4a", b"\x12\x09", b"\xff"] {
            std::fs::write(file.path(), bytes).unwrap();
            assert!(skim(file.path(), &mut BTreeSet::new()).is_err(), "{bytes:?}");
            assert!(locations(file.path()).is_empty(), "{bytes:?}");
        }
        assert!(locations(Path::new(".")).is_empty());
    }

    #[test]
    fn a_model_that_is_cut_off_still_needs_its_files() {
        let mut graph = GraphProto::new("g");
        graph.initializer = vec![external("first"), external("second")];
        let bytes = ModelProto::new(graph).encode_to_vec().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes[..bytes.len() - 8]).unwrap();
        assert_eq!(locations(file.path()), BTreeSet::from(["first".to_owned()]));
    }
}
