//! PyTorch weights in ONNX files: one tensor, and a module whose structure Python exported.
//!
//! The first model adds a tensor to its input. The others, in `tests/data/torch`, came out of
//! `torch.onnx.export` without their weights, which are the variables of a module here. All are
//! saved, loaded again and compared.
//!
//! ```sh
//! eval "$(scripts/setup-libtorch.sh)"
//! cargo run --features tch --example torch_export
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};

use onnx_container::edit::FillOptions;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use onnx_container::{Container, Initializer, LoadOptions, MmapChoice, WeightFiles, torch};
use tch::nn::{self, Module, ModuleT};
use tch::{Device, Kind, Tensor};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// `y = x + weight`, where `weight` lies elsewhere.
fn add() -> ModelProto {
    let mut graph = GraphProto::new("demo_torch");
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [4, 8]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [4, 8]));
    graph.node.push(NodeProto::new("Add", ["x", "weight"], ["y"]));
    graph.initializer.push(TensorProto::external("weight", TensorProto::FLOAT, [4, 8], "#weight"));
    ModelProto::new(graph).with_operator_set("", 18)
}

fn one_tensor(folder: &Path) -> Result<()> {
    let weight = Tensor::ones([4, 8], (Kind::Float, Device::Cpu));
    let mut container = Container::new(add());
    container.insert("#weight", &weight)?;

    let path = folder.join("demo_torch.onnx");
    let saved = container.save(&path, WeightFiles::Packed)?;
    for file in &saved.files {
        println!("{}: {} bytes", file.name, file.bytes);
    }

    let loaded = Container::load(&path, MmapChoice::never())?;
    same("#weight", &loaded, &weight)
}

/// The module of `scripts/make_torch_models.py`. Its output layer is the embedding.
struct Tagger {
    embed: nn::Embedding,
    mix: nn::Linear,
    fc1: nn::Linear,
    bn: nn::BatchNorm,
    fc2: nn::Linear,
    norm: nn::LayerNorm,
}

impl Tagger {
    fn new(root: &nn::Path<'_>) -> Self {
        let no_bias = nn::LinearConfig { bias: false, ..Default::default() };
        Self {
            embed: nn::embedding(root / "embed", 24, 80, Default::default()),
            mix: nn::linear(root / "mix", 80, 80, no_bias),
            fc1: nn::linear(root / "fc1", 80, 16, Default::default()),
            bn: nn::batch_norm1d(root / "bn", 16, Default::default()),
            fc2: nn::linear(root / "fc2", 16, 80, Default::default()),
            norm: nn::layer_norm(root / "norm", vec![80], Default::default()),
        }
    }

    fn scores(&self, words: &Tensor) -> Tensor {
        let mixed = self.mix.forward(&self.embed.forward(words));
        let hidden = self.bn.forward_t(&self.fc1.forward(&mixed).relu(), false);
        self.norm.forward(&self.fc2.forward(&hidden)).matmul(&self.embed.ws.tr())
    }
}

/// Fills what Python exported with the variables of a module here, under the names and in the
/// shapes that the exporter left them.
fn filled(structure: &str, weights: Vec<(String, Initializer)>) -> Result<Container> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch");
    let mut container = Container::load(folder.join(structure), LoadOptions::new().weights(false))?;
    // Tied weights are one tensor in the graph, called by the later of its two names. `strict`:
    // a variable that the graph does not have is an error.
    let options = FillOptions::new().rename("embed.weight", "head.weight").strict(true);
    let filled = container.fill(weights, options)?;
    println!("{structure}: {} variables, {} bytes", filled.filled, filled.bytes);
    Ok(container)
}

fn module(folder: &Path) -> Result<()> {
    tch::manual_seed(20);
    let store = nn::VarStore::new(Device::Cpu);
    let tagger = Tagger::new(&store.root());
    tch::no_grad(|| store.variables().into_values().for_each(|mut v| drop(v.uniform_(0.1, 1.0))));

    let mut weights = torch::variables(&store)?;
    let path = folder.join("tagger.onnx");
    filled("structure.onnx", weights.clone())?.save(&path, WeightFiles::Packed)?;
    let loaded = Container::load(&path, MmapChoice::never())?;
    same("#head.weight", &loaded, &tagger.embed.ws)?;
    same("#mix.weight", &loaded, &tagger.mix.ws)?;

    // An exporter that optimizes computes a transpose in advance, and the weight's name is gone.
    if let Some(mix) = weights.iter_mut().find(|(name, _)| name == "mix.weight") {
        *mix = ("val_1".to_owned(), Initializer::try_from(tagger.mix.ws.tr())?);
    }
    let path = folder.join("optimized.onnx");
    filled("optimized.onnx", weights)?.save(&path, WeightFiles::Packed)?;
    let loaded = Container::load(&path, MmapChoice::never())?;
    same("#val_1", &loaded, &tagger.mix.ws.tr())?;

    // What a reader of the files has to compute.
    let scores = tagger.scores(&Tensor::from_slice(&[3_i64, 1, 4, 1, 5]));
    std::fs::write(folder.join("scores.f32"), &*Initializer::try_from(&scores)?.to_buffer()?)?;
    Ok(())
}

/// Holds what was loaded behind `handle` to the tensor that was saved.
fn same(handle: &str, loaded: &Container, saved: &Tensor) -> Result<()> {
    let weight = loaded.get(handle).ok_or("no such handle")?.to_tch()?;
    println!("loaded {handle}: {:?} {:?}", weight.kind(), weight.size());
    if weight == *saved { Ok(()) } else { Err(format!("{handle} differs").into()) }
}

fn main() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.as_deref().unwrap_or(temporary.path());
    one_tensor(folder)?;
    module(folder)
}

#[test]
fn runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    one_tensor(folder.path())?;
    module(folder.path())
}
