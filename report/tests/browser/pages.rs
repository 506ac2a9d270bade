//! Models, and the pages that are made of them.

use std::path::PathBuf;

use onnx_container::proto::{
    GraphProto, Message, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use onnx_container::{Container, Tensor, WeightFiles};
use onnx_container_report::{MemoryPlan, PlannedBlock, ReportOptions, report};
use tempfile::TempDir;

/// A folder of models, which lasts as long as their pages.
pub struct Models(TempDir);

/// A page in a file.
pub struct Written {
    pub url: String,
    pub bytes: usize,
    _folder: TempDir,
}

fn model(tensors: impl IntoIterator<Item = TensorProto>) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.initializer.extend(tensors);
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

impl Models {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A model with these tensors in it.
    pub fn save(&self, name: &str, tensors: impl IntoIterator<Item = TensorProto>) {
        std::fs::write(self.path(name), model(tensors).encode_to_vec().unwrap()).unwrap();
    }

    /// A model with three tensors in a file; the elements begin with `first`.
    pub fn save_packed(&self, name: &str, first: u8) {
        let floats: Vec<_> = (0..4096_u16).map(|n| f32::from(n) + f32::from(first)).collect();
        let tensors = [
            Tensor::from(floats.clone()).to_proto("a.w"),
            Tensor::from(floats).to_proto("b.w"),
            Tensor::from(vec![first; 4096]).to_proto("b.codes"),
        ];
        let mut container = Container::new(model(tensors));
        container.externalize(1).unwrap();
        container.save(self.path(name), WeightFiles::Packed).unwrap();
    }

    /// A model with four layers, each in a file of its own, but the last in the model.
    pub fn save_shards(&self, name: &str) {
        let tensor = |n: i64| {
            let file = format!("{n}.data");
            std::fs::write(self.path(&file), vec![0; 100_000]).unwrap();
            TensorProto::external(format!("layers.{n}.w"), TensorProto::UINT8, [100_000], &file)
        };
        let inline = TensorProto::new("layers.3.w", TensorProto::UINT8, [100_000]);
        let inline = inline.with_raw_data(vec![0; 100_000]);
        self.save(name, (0..3).map(tensor).chain([inline]));
    }

    /// A model with a tensor of these elements for each name, and this text about its graph.
    pub fn save_doubles(&self, name: &str, tensors: &[(&str, Vec<f64>)], documentation: &str) {
        let mut model = model(
            tensors.iter().map(|(name, elements)| Tensor::from(elements.clone()).to_proto(name)),
        );
        if let Some(graph) = model.graph.as_mut() {
            graph.doc_string = Some(Box::new(documentation.into()));
        }
        std::fs::write(self.path(name), model.encode_to_vec().unwrap()).unwrap();
    }

    /// A model with so many tensors, in a file that is not there.
    pub fn save_very_many(&self, name: &str, count: i64) {
        let kinds = ["q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down", "norm"];
        let tensor = |n: i64| {
            let (layer, kind) = (n / 8, kinds[(n % 8) as usize]);
            let name = format!("model.experts.{}.layers.{layer}.{kind}.weight", layer % 64);
            let shape = [64 + n % 5, 64 + layer % 3];
            let mut tensor = TensorProto::external(name, TensorProto::FLOAT16, shape, "w.data");
            for (key, value) in [("offset", n * 16384), ("length", shape[0] * shape[1] * 2)] {
                tensor.external_data.push(StringStringEntryProto::new(key, value.to_string()));
            }
            tensor
        };
        self.save(name, (0..count).map(tensor));
    }

    /// The page of a model, in a folder of its own.
    pub fn page(&self, model: &str, other: Option<&str>, options: &ReportOptions) -> Written {
        let other = other.map(|other| self.path(other));
        let page = report(&self.path(model), other.as_deref(), options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        page.save(&path, false).unwrap();
        let url = format!("file://{}", path.display());
        Written { url, bytes: page.html.len(), _folder: folder }
    }
}

/// A plan of two blocks.
pub fn plan() -> MemoryPlan {
    let block = |name: &str, offset, first_step| PlannedBlock {
        name: name.to_owned(),
        offset,
        bytes: 64,
        first_step,
        end_step: first_step + 2,
    };
    MemoryPlan {
        arena_bytes: 128,
        lower_bound: 128,
        unshared_bytes: 128,
        peak_step: 1,
        optimal: true,
        blocks: vec![block("x", 0, 0), block("y", 64, 1)],
        ..MemoryPlan::default()
    }
}
