//! Models whose weights all have one value, and how they are read again.

use std::path::Path;

use onnx_container::external_data::ExternalData;
use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx_container::{Container, ErrorKind, LoadOptions, MmapChoice, SaveOptions, WeightFiles};

/// That of the graph, which is its name, and that of all weights.
pub type Value = (f32, f32);

/// How many elements a tensor has: some blocks of a disk and a part of one.
pub const SMALL: usize = 5000;
/// So that weights files are longer than 1 MiB, and written without the page cache.
pub const LARGE: usize = 100_000;

/// A model of three tensors of so many elements. The model's own file has some blocks too.
pub fn save(path: &Path, (graph, value): Value, len: usize, layout: WeightFiles) {
    let mut graph = GraphProto::new(format!("{graph}"));
    for name in ["a", "b", "c"] {
        let dims = [i64::try_from(len).unwrap()];
        let handle = format!("#{name}");
        graph.initializer.push(TensorProto::external(name, TensorProto::FLOAT, dims, handle));
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model.doc_string = Some(Box::new("some words. ".repeat(800).as_str().into()));
    let mut container = Container::new(model);
    for name in ["#a", "#b", "#c"] {
        container.insert(name, ndarray::Array1::from_elem(len, value)).unwrap();
    }
    container.save(path, SaveOptions::from(layout).sync(false)).unwrap();
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Model(Value),
    /// A model whose weights are not of one value.
    Mixed,
    /// No model, as the error says.
    Missing,
    Failed(String),
}

/// Reads the model at `path` with all its weights.
pub fn read(path: &Path) -> Found {
    read_with(path, LoadOptions::new().mmap(MmapChoice::never()))
}

pub fn read_with(path: &Path, options: LoadOptions) -> Found {
    let container = match Container::load(path, options) {
        Ok(container) => container,
        Err(error) => {
            let is_missing = error.kind() == ErrorKind::MissingFile && error.path() == Some(path);
            return if is_missing { Found::Missing } else { Found::Failed(error.to_string()) };
        }
    };
    let name = container.model().graph.as_ref().and_then(|graph| graph.name.as_ref());
    let Some(graph) = name.and_then(|name| name.to_str().ok()?.parse().ok()) else {
        return Found::Mixed;
    };
    let mut values = Vec::new();
    let initializers = &container.model().graph.as_ref().unwrap().initializer;
    if initializers.len() != 3 {
        return Found::Mixed;
    }
    let embedded = initializers.iter().filter_map(|tensor| tensor.raw_data.as_ref());
    values.extend(embedded.map(|bytes| value_of(bytes)));
    for (_, weight) in container.iter() {
        match weight.to_tensor() {
            Ok(tensor) => values.push(value_of(tensor.as_bytes().unwrap())),
            Err(error) => return Found::Failed(error.to_string()),
        }
    }
    // Models that share weights have tensors of one value as one.
    match values.first() {
        Some(Some(value)) if values.iter().all(|other| *other == Some(*value)) => {
            Found::Model((graph, *value))
        }
        _ => Found::Mixed,
    }
}

/// The value of all elements, if they have one. Each is compared with the one before it.
fn value_of(bytes: &[u8]) -> Option<f32> {
    let first = bytes.first_chunk::<4>()?;
    (bytes[4..] == bytes[..bytes.len() - 4]).then(|| f32::from_le_bytes(*first))
}

/// Whether the model at `path` has its weights in the file that models share; `None` where it
/// cannot be read.
pub fn is_shared(path: &Path) -> Option<bool> {
    let container = Container::load(path, LoadOptions::new().weights(false)).ok()?;
    let graph = container.model().graph.as_ref()?;
    let location = ExternalData::parse(graph.initializer.first()?).ok().map(|it| it.location);
    Some(location.is_some_and(|it| it == "shared.onnx.data"))
}
