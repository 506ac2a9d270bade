//! What the tests share: models, folders that hold them, and runs of the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    Packed, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, MmapChoice, Tensor, traversal};
use tempfile::TempDir;

/// A folder with models in it, in which commands run.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder that holds `m.onnx`: all inline.
    pub fn with_model() -> Self {
        let folder = Self::new();
        folder.save("m.onnx", &model());
        folder
    }

    /// A folder that holds `p.onnx` and `p.onnx.data`.
    pub fn packed() -> Self {
        let folder = Self::with_model();
        folder.run(&["pack", "m.onnx", "p.onnx"]).done();
        fs::remove_file(folder.path("m.onnx")).unwrap();
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn save(&self, name: &str, model: &ModelProto) {
        fs::write(self.path(name), model.encode_to_vec().unwrap()).unwrap();
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The files of the folder alone, with their bytes.
    pub fn contents_of_files(&self) -> Vec<(String, Vec<u8>)> {
        let files = self.names().into_iter().filter(|name| self.path(name).is_file());
        files.map(|name| (name.clone(), fs::read(self.path(&name)).unwrap())).collect()
    }

    /// The folder's files with their bytes.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let read = |name: String| (name.clone(), fs::read(self.path(&name)).unwrap());
        self.names().into_iter().map(read).collect()
    }

    /// All files below the folder `name` with their bytes.
    pub fn contents_of(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut contents = Vec::new();
        let mut pending = vec![self.path(name)];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    contents.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        contents.sort();
        contents
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
        command.args(args).current_dir(self.0.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }
}

/// The outcome of a run of the command.
#[derive(Debug)]
pub struct Run(Output);

impl Run {
    pub fn of(output: Output) -> Self {
        Self(output)
    }

    pub fn code(&self) -> i32 {
        self.0.status.code().expect("ended by a signal")
    }

    pub fn stdout(&self) -> String {
        with_slashes(String::from_utf8(self.0.stdout.clone()).unwrap())
    }

    pub fn stderr(&self) -> String {
        with_slashes(String::from_utf8(self.0.stderr.clone()).unwrap())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0.stdout
    }

    pub fn json(&self) -> serde_json::Value {
        let read = serde_json::from_slice(&self.0.stdout);
        let mut value = read.unwrap_or_else(|e| panic!("{e}: {self:?}"));
        json_with_slashes(&mut value);
        value
    }

    /// Exit code 0 and nothing on stderr.
    pub fn done(self) -> Self {
        assert_eq!((self.code(), self.stderr().as_str()), (0, ""), "{self:?}");
        self
    }

    /// Exit code 1, with these texts on stderr.
    pub fn failed(self, texts: &[&str]) -> Self {
        assert_eq!(self.code(), 1, "{self:?}");
        assert!(texts.is_empty() || self.stderr().starts_with("error: "), "{self:?}");
        for text in texts {
            assert!(has(&self.stderr(), text), "no {text:?} in {self:?}");
        }
        self
    }

    /// The exit code of what `command` could not do, with these texts on stderr.
    pub fn could_not(self, command: &str, texts: &[&str]) -> Self {
        if ["check", "verify"].contains(&command) {
            self.misused(texts)
        } else {
            self.failed(texts)
        }
    }

    /// Exit code 2, with these texts on stderr.
    pub fn misused(self, texts: &[&str]) -> Self {
        assert_eq!(self.code(), 2, "{self:?}");
        for text in texts {
            assert!(has(&self.stderr(), text), "no {text:?} in {self:?}");
        }
        self
    }

    /// Standard output holds these texts.
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(has(&self.stdout(), text), "no {text:?} in {}", self.stdout());
        }
        self
    }
}

/// Whether `text` is in an output `with_slashes`.
fn has(output: &str, text: &str) -> bool {
    output.contains(&with_slashes(text.to_owned()))
}

/// `text` with paths as on other systems: messages show each backslash as two.
fn with_slashes(text: String) -> String {
    if cfg!(windows) { text.replace("\\\\", "/").replace('\\', "/") } else { text }
}

fn json_with_slashes(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = with_slashes(std::mem::take(text)),
        Value::Array(values) => values.iter_mut().for_each(json_with_slashes),
        Value::Object(values) => values.values_mut().for_each(json_with_slashes),
        _ => {}
    }
}

pub fn floats(name: &str, count: i64) -> TensorProto {
    let values = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<_>>();
    TensorProto::new(name, TensorProto::FLOAT, [count]).with_raw_data(values)
}

/// Elements from `first` on that differ, so that no two weights are equal.
pub fn weight(name: &str, dims: &[i64], first: f32) -> TensorProto {
    let count = dims.iter().product::<i64>();
    let values = (0..count).flat_map(|i| (first + i as f32 / 1024.0).to_le_bytes());
    TensorProto::new(name, TensorProto::FLOAT, dims.to_vec())
        .with_raw_data(values.collect::<Vec<_>>())
}

fn longs(name: &str, values: &[i64]) -> TensorProto {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    TensorProto::new(name, TensorProto::INT64, [i64::try_from(values.len()).unwrap()])
        .with_raw_data(bytes)
}

fn constant(output: &str, value: TensorProto) -> NodeProto {
    let mut node = NodeProto::new("Constant", [""; 0], [output]);
    node.attribute.push(AttributeProto::tensor("value", value));
    node
}

/// A model with large and small tensors in every kind of place, all of them inline.
pub fn model() -> ModelProto {
    let mut then = GraphProto::new("then");
    then.initializer.push(floats("inner", 600));
    then.node.push(NodeProto::new("Add", ["y", "inner"], ["z_then"]));
    then.output.push(ValueInfoProto::tensor("z_then", TensorProto::FLOAT, [600]));
    let mut other = GraphProto::new("else");
    other.node.push(NodeProto::new("Identity", ["y"], ["z_else"]));
    other.output.push(ValueInfoProto::tensor("z_else", TensorProto::FLOAT, [600]));
    let mut branch = NodeProto::new("If", ["flag"], ["z"]);
    branch.attribute.push(AttributeProto::graph("then_branch", then));
    branch.attribute.push(AttributeProto::graph("else_branch", other));

    let mut typed = TensorProto::new("typed", TensorProto::FLOAT, [300]);
    typed.float_data = Packed::from((0..300_u16).map(f32::from).collect::<Vec<_>>()).into();

    let mut graph = GraphProto::new("main");
    graph.initializer =
        vec![floats("w", 1000), floats("small", 4), typed, longs("sizes", &[1; 200])];
    graph.node = vec![
        constant("c", floats("", 500)),
        NodeProto::new("Split", ["x", "sizes"], ["y"]),
        branch,
    ];
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [-1]));
    graph.input.push(ValueInfoProto::tensor("flag", TensorProto::BOOL, []));

    let mut function = FunctionProto::new("local", "f");
    function.opset_import.push(OperatorSetIdProto::new("", 21));
    function.node.push(constant("k", floats("", 400)));

    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.producer_name = Some("a test".into());
    model.opset_import = vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("local", 1)];
    model.functions.push(function);
    model
}

/// y = x + w and z = |x|, of FLOAT [batch, 4], with w = 0, 1, 2, 3.
pub fn sums() -> ModelProto {
    let mut graph = GraphProto::new("g");
    let dims = || ["batch".into(), 4.into()];
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, dims()));
    graph.initializer.push(floats("w", 4));
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    graph.node.push(NodeProto::new("Abs", ["x"], ["z"]));
    for name in ["y", "z"] {
        graph.output.push(ValueInfoProto::tensor_with(name, DataType::Float, dims()));
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// A model with one external tensor of four floats for each `location`.
pub fn external(locations: &[&str]) -> ModelProto {
    let mut graph = GraphProto::new("main");
    for (i, location) in locations.iter().enumerate() {
        let name = format!("w{i}");
        let mut tensor = TensorProto::external(name, TensorProto::FLOAT, [4], *location);
        tensor.external_data.push(StringStringEntryProto::new("length", "16"));
        graph.initializer.push(tensor);
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model
}

/// Every tensor of the model at `path`: name, type, shape and bytes.
pub fn tensors(path: &Path) -> Vec<(String, String, Vec<u8>)> {
    let container = Container::load(path, MmapChoice::never()).unwrap();
    let model = container.embed().unwrap();
    let mut tensors = Vec::new();
    traversal::tensors(&model, |place, proto| {
        let tensor = Tensor::try_from(proto).unwrap();
        let what = format!("{} {:?}", tensor.dtype(), tensor.dims());
        tensors.push((place.qualified_name(proto), what, tensor.as_bytes().unwrap().to_vec()));
        Ok(())
    })
    .unwrap();
    tensors
}

/// Asserts what `job write 0-63 --json` says of a job of 8 tensors, of which the part `found` was
/// written before.
pub fn assert_written_of_8(said: &serde_json::Value, found: usize) {
    let parts = said["written"].as_array().unwrap();
    let states = parts.iter().map(|it| it["state"].as_str().unwrap());
    let expected = (0..64).map(|part| match part {
        part if part == found => "found",
        0..8 => "written",
        _ => "empty",
    });
    assert!(states.eq(expected), "{said}");
}
