//! What is in a model, as one owned value: [`Container::summary`].
//!
//! It is made of the messages alone: no weight is read, and none has to be loaded. `values` says
//! what goes in and comes out, `graphs` counts nodes, `tensors` lists tensors with the places of
//! their elements, `quantization` finds what is quantized, and `modules` adds tensors up by the
//! parts of their names. Whether the weights files are there is left to the caller.

mod graphs;
mod modules;
mod packed_weights;
mod quantization;
mod tensors;
mod text;
mod values;

pub(crate) use self::graphs::operator;
pub use self::graphs::{Graphs, OperatorCount};
pub use self::modules::{Module, module_parts};
pub use self::quantization::{BlockOperator, DequantizedWeights, Quantization};
pub use self::tensors::{DtypeTotals, Stored, TensorSummary, TensorTotals};
pub use self::values::{Dim, ValueSummary};

use self::text::{domain, text_of};
use crate::container::Container;
use crate::container::reader_limits;
use crate::error::Result;
use crate::graph::stored_digests;
use crate::proto::{ModelProto, OperatorSetIdProto};
use crate::util::did_you_mean::nearest;

/// What is in a model: [`Container::summary`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Summary {
    /// The version of the format.
    pub ir_version: Option<i64>,
    /// The program that made the model.
    pub producer: Option<String>,
    /// The version of that program.
    pub producer_version: Option<String>,
    /// The domain of the model.
    pub domain: Option<String>,
    /// The version of the model.
    pub model_version: Option<i64>,
    /// What the model says of itself.
    pub doc_string: Option<String>,
    /// The operator sets that it imports.
    pub opsets: Vec<Opset>,
    /// Why onnxruntime refuses the model for these versions, in words.
    pub refused: Vec<String>,
    /// Keys and values, in their order, without stored digests.
    pub metadata: Vec<Entry>,
    /// Whether digests are stored with the model: of a container with weights, whether there were
    /// some when it was loaded.
    pub has_digests: bool,
    /// The name of the main graph.
    pub graph: Option<String>,
    /// The inputs of the main graph.
    pub inputs: Vec<ValueSummary>,
    /// The outputs of the main graph.
    pub outputs: Vec<ValueSummary>,
    /// Nodes, functions and subgraphs, counted.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub graphs: Graphs,
    /// What is quantized.
    pub quantization: Quantization,
    /// The number of weights that all tensors stand for, as [`TensorSummary::parameters`] says;
    /// those of tied tensors count once.
    pub parameters: u64,
    /// All tensors, added up.
    pub totals: TensorTotals,
    /// The tensors of each element type, added up: the most bytes first.
    pub dtypes: Vec<DtypeTotals>,
    /// The tensors, the largest first.
    pub tensors: Vec<TensorSummary>,
}

/// An operator set that a model imports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Opset {
    /// The domain; `ai.onnx` is ONNX's own.
    pub domain: String,
    /// The version.
    pub version: Option<i64>,
}

/// A key and its value in the metadata of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

impl Entry {
    pub(crate) fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

impl Container {
    /// What is in the model: inputs, outputs, versions, operators, tensors, what is quantized.
    ///
    /// Weights are not read, and need not be loaded: a container that was loaded without them says
    /// in which file each tensor is.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("a.w", TensorProto::FLOAT, [4, 8], "w.bin"));
    /// let summary = Container::new(ModelProto::new(graph)).summary()?;
    /// assert_eq!((summary.parameters, summary.totals.external_bytes), (32, 128));
    /// assert_eq!(summary.modules().children[0].name, "a");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) for a model that nests too deep.
    pub fn summary(&self) -> Result<Summary> {
        self.check_nesting()?;
        let model = self.model();
        let metadata = self.metadata().map(|(key, value)| Entry::new(key, value)).collect();
        let tensors = tensors::of(self)?;
        Ok(Summary {
            ir_version: model.ir_version,
            producer: text_of(model.producer_name.as_ref()),
            producer_version: text_of(model.producer_version.as_ref()),
            domain: text_of(model.domain.as_ref()),
            model_version: model.model_version,
            doc_string: text_of(model.doc_string.as_deref()),
            opsets: opsets(model),
            refused: reader_limits::of_model(model),
            metadata,
            has_digests: self.had_digests() || stored_digests::has_digests(model),
            graph: model.graph.as_ref().and_then(|graph| text_of(graph.name.as_ref())),
            inputs: values::inputs(model),
            outputs: values::outputs(model),
            graphs: Graphs::of(model),
            quantization: Quantization::of(model),
            ..Summary::default()
        }
        .with_tensors(tensors))
    }
}

impl Summary {
    /// With these tensors, added up and put in order.
    pub(crate) fn with_tensors(mut self, mut tensors: Vec<TensorSummary>) -> Self {
        (self.totals, self.dtypes, self.parameters) = tensors::totals(&tensors);
        tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes));
        self.tensors = tensors;
        self
    }

    /// The names of tensors that are most like `name`, which none has, the best first.
    pub fn names_like(&self, name: &str) -> Vec<String> {
        let names: Vec<_> = self.tensors.iter().map(TensorSummary::qualified_name).collect();
        let near = nearest(name, names.iter().map(AsRef::as_ref));
        near.into_iter().map(str::to_owned).collect()
    }

    /// The tensors added up by the parts of their names, which `.` and `/` separate: the modules of
    /// the program that the model was exported from.
    pub fn modules(&self) -> Module {
        Module::of(&self.tensors)
    }
}

fn opsets(model: &ModelProto) -> Vec<Opset> {
    let opset = |opset: &OperatorSetIdProto| Opset {
        domain: domain(opset.domain.as_ref()),
        version: opset.version,
    };
    model.opset_import.iter().map(opset).collect()
}
