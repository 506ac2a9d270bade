//! Which files the other models of a folder refer to, so that a save does not take them away.
//!
//! A folder can hold models of many gigabytes, and the question is only for their `location`
//! entries. So they are not loaded: the messages are walked on disk, and payloads are skipped.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::external_data::{directory_of, fold_case, without_dots};

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

/// A model in the folder of the file `path` that refers to it: it breaks when the file is replaced.
///
/// The folder's `.onnx` files are looked at, and nothing of them is loaded. A save and an export look
/// by themselves.
///
/// ```
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
///
/// let folder = tempfile::tempdir().unwrap();
/// let (model, weights) = (folder.path().join("m.onnx"), folder.path().join("w.bin"));
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "w.bin"));
/// std::fs::write(&model, ModelProto::new(graph).encode_to_vec()?).unwrap();
/// std::fs::write(&weights, [1, 2]).unwrap();
/// assert_eq!(onnx_container::model_that_needs(&weights), Some(model));
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub fn model_that_needs(path: impl AsRef<Path>) -> Option<PathBuf> {
    let path = path.as_ref();
    let name = path.file_name()?.to_str()?;
    Needed::by_others(&directory_of(path), "").by(name).map(Path::to_path_buf)
}

/// The files of a folder that its models need, but for one model.
pub(crate) struct Needed {
    directory: PathBuf,
    /// By their names where case is ignored: the names as they are, with a model that needs them.
    names: HashMap<String, Vec<(String, PathBuf)>>,
}

impl Needed {
    /// What the models of `directory` need that stay when `model_name` is replaced.
    pub(crate) fn by_others(directory: &Path, model_name: &str) -> Self {
        let root = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        let mut needed = Self { directory: directory.to_path_buf(), names: HashMap::new() };
        let replaced = root.join(model_name);
        for model in neighbours(directory, model_name).filter(|path| !is_same(path, &replaced)) {
            for location in locations(&model) {
                let target = directory.join(&location).canonicalize().ok();
                let target = target.as_deref().and_then(|t| t.strip_prefix(&root).ok()?.to_str());
                // A link is needed, and what it leads to.
                let target = target.filter(|target| *target != location);
                target.into_iter().for_each(|target| needed.add(target, &model));
                needed.add(&location, &model);
            }
        }
        needed
    }

    fn add(&mut self, name: &str, model: &Path) {
        let same = self.names.entry(fold_case(name)).or_default();
        same.push((name.to_owned(), model.to_path_buf()));
    }

    /// A model that needs the file called `name`, which exists.
    pub(crate) fn by(&self, name: &str) -> Option<&Path> {
        let same = self.names.get(&fold_case(name))?;
        let (_, model) = same.iter().find(|(other, _)| {
            let path = |name: &str| self.directory.join(name);
            other == name || same_entry(&path(other), &path(name))
        })?;
        Some(model)
    }
}

/// Whether `path` is a link to the `model`, or its name in another case where case is ignored.
fn is_same(path: &Path, model: &Path) -> bool {
    if path.is_symlink() {
        return path.canonicalize().is_ok_and(|target| target == *model);
    }
    let folded = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(fold_case);
    folded(path).is_some_and(|name| Some(name) == folded(model)) && same_entry(path, model)
}

/// Whether two paths, which differ in case alone, are one file. Links are not followed.
#[cfg(unix)]
fn same_entry(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// Whether two paths, which differ in case alone, are one file.
#[cfg(not(unix))]
fn same_entry(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
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
                3 => self.skip_group(end, depth + 1)?,
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

    /// Skips a group, which only unknown fields are.
    fn skip_group(&mut self, end: u64, depth: u32) -> io::Result<()> {
        while self.at < end && depth <= MAX_DEPTH {
            match self.varint()? & 7 {
                0 => drop(self.varint()?),
                1 => self.skip(8, end)?,
                2 => {
                    let len = self.varint()?;
                    self.skip(len, end)?;
                }
                3 => self.skip_group(end, depth + 1)?,
                4 => return Ok(()),
                5 => self.skip(4, end)?,
                _ => break,
            }
        }
        Err(malformed())
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
    fn unknown_groups_are_passed_over() {
        let mut graph = GraphProto::new("g");
        graph.initializer = vec![external("w.data")];
        let model = ModelProto::new(graph).encode_to_vec().unwrap();
        // Field 99: a group of a varint, a string and an empty group.
        let group = b"\x9b\x06\x08\x01\x12\x01w\x1b\x1c\x9c\x06";
        let bytes = [&group[..], &model].concat();
        assert!(ModelProto::decode(&bytes.clone().into()).is_ok());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(locations(file.path()), BTreeSet::from(["w.data".to_owned()]));
        std::fs::write(file.path(), [0x1b].repeat(1000)).unwrap();
        assert!(skim(file.path(), &mut BTreeSet::new()).is_err());
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
