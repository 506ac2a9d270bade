//! What is in attributes: literals of every type, references, and the parameters they refer to.

use onnx_container::proto::{AttributeProto, SparseTensorProto, TensorProto, TypeProto};

use super::Generator;
use super::body::{Body, Kind};
use crate::support::{floats, int64s, parameter};

/// The kinds of attributes that operators here have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeKind {
    Float,
    Floats,
    /// A length.
    Int,
    Axis,
    Ints,
    String,
    Strings,
    Tensor,
    Tensors,
    SparseTensor,
    SparseTensors,
    Type,
    Types,
    Graph,
    Graphs,
}

impl AttributeKind {
    /// The types that engines take as parameters, then the others.
    pub const ALL: &[Self] = &[
        Self::Float,
        Self::Axis,
        Self::Tensor,
        Self::Int,
        Self::Floats,
        Self::String,
        Self::Graph,
        Self::Graphs,
        Self::Ints,
        Self::Strings,
        Self::Tensors,
        Self::SparseTensor,
        Self::SparseTensors,
        Self::Type,
        Self::Types,
    ];
    const RUNNABLE: usize = 6;

    fn number(self) -> i32 {
        match self {
            Self::Float => AttributeProto::FLOAT,
            Self::Floats => AttributeProto::FLOATS,
            Self::Int | Self::Axis => AttributeProto::INT,
            Self::Ints => AttributeProto::INTS,
            Self::String => AttributeProto::STRING,
            Self::Strings => AttributeProto::STRINGS,
            Self::Tensor => AttributeProto::TENSOR,
            Self::Tensors => AttributeProto::TENSORS,
            Self::SparseTensor => AttributeProto::SPARSE_TENSOR,
            Self::SparseTensors => AttributeProto::SPARSE_TENSORS,
            Self::Type => AttributeProto::TYPE_PROTO,
            Self::Types => AttributeProto::TYPE_PROTOS,
            Self::Graph => AttributeProto::GRAPH,
            Self::Graphs => AttributeProto::GRAPHS,
        }
    }
}

/// An attribute that a function has.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: AttributeKind,
    pub default: Option<AttributeProto>,
    /// Whether every call gives it.
    pub required: bool,
    /// Whether the function says that it has it.
    pub declared: bool,
}

impl Parameter {
    /// Whether a reference to it always has a value.
    pub fn certain(&self) -> bool {
        self.required || self.default.is_some()
    }
}

impl Generator {
    fn attribute_kind(&mut self) -> AttributeKind {
        let all = AttributeKind::ALL;
        *self.choices.pick(if self.anything() { all } else { &all[..AttributeKind::RUNNABLE] })
    }

    pub fn parameters(&mut self) -> Vec<Parameter> {
        let names = ["alpha", "p", "axis", "value"];
        let mut all = Vec::new();
        for name in names.into_iter().take(self.choices.below(5)) {
            let kind = self.attribute_kind();
            let mut nowhere = Body::graph(!self.anything());
            // Deep enough that a default is no large graph.
            nowhere.depth = 2;
            let default = self.choices.chance(50).then(|| self.literal(name, kind, &mut nowhere));
            let required = default.is_none() && self.choices.chance(70);
            let declared = default.is_some() || !self.odd(10);
            all.push(Parameter { name, kind, default, required, declared });
        }
        all
    }

    /// An attribute of a node: a literal, or a reference to a parameter of the function. One that
    /// may be absent may refer to a parameter that is not given.
    pub fn attribute(
        &mut self,
        name: &str,
        kind: AttributeKind,
        may_be_absent: bool,
        body: &mut Body,
    ) -> AttributeProto {
        let fits = |p: &&Parameter| p.kind == kind && (may_be_absent || p.certain());
        let fitting: Vec<_> = body.parameters.iter().filter(fits).map(|p| p.name).collect();
        if !fitting.is_empty() && self.choices.chance(70) {
            let referred = *self.choices.pick(&fitting);
            return parameter(name, kind.number(), referred);
        }
        self.literal(name, kind, body)
    }

    /// An attribute of a node that takes any, under any name.
    pub fn any_attribute(&mut self, name: &str, body: &mut Body) -> AttributeProto {
        let parameters = body.parameters.clone();
        let kind = if !parameters.is_empty() && self.choices.chance(60) {
            self.choices.pick(&parameters).kind
        } else {
            self.attribute_kind()
        };
        self.attribute(name, kind, true, body)
    }

    pub fn vector(&mut self, name: &str) -> TensorProto {
        floats(name, self.choices.below(5), 2)
    }

    pub fn sparse(&mut self, name: &str) -> SparseTensorProto {
        let index = self.choices.below(2) as i64;
        SparseTensorProto::new(floats(name, 1, 1), int64s("", &[index]), vec![2])
    }

    fn r#type(&mut self) -> TypeProto {
        let dims = [["N".into(), 1.into()], ["M".into(), (-1).into()]];
        TypeProto::tensor_with(TensorProto::FLOAT, self.choices.pick(&dims).clone())
    }

    fn literal(&mut self, name: &str, kind: AttributeKind, body: &mut Body) -> AttributeProto {
        let number = self.choices.below(3);
        let list = 0..number;
        let mut attribute = AttributeProto::default();
        match kind {
            AttributeKind::Float => AttributeProto::float(name, number as f32 * 0.5),
            // Each is a vector of its own.
            AttributeKind::Floats => AttributeProto::floats(name, [number as f32, 1.5]),
            AttributeKind::Int => AttributeProto::int(name, number as i64),
            AttributeKind::Axis => AttributeProto::int(name, -(number as i64 % 2)),
            AttributeKind::Ints => {
                AttributeProto::ints(name, list.map(|i| i as i64).collect::<Vec<_>>())
            }
            AttributeKind::String => AttributeProto::string(name, ["", "s", "t"][number]),
            AttributeKind::Strings => AttributeProto::strings(name, list.map(|i| [0xff, i as u8])),
            AttributeKind::Tensor => AttributeProto::tensor(name, self.vector("")),
            AttributeKind::Tensors => {
                AttributeProto::tensors(name, list.map(|_| self.vector("w")).collect::<Vec<_>>())
            }
            AttributeKind::SparseTensor => AttributeProto::sparse_tensor(name, self.sparse("")),
            AttributeKind::SparseTensors => {
                let tensors: Vec<_> = list.map(|_| self.sparse("w")).collect();
                AttributeProto::sparse_tensors(name, tensors)
            }
            AttributeKind::Type => {
                attribute.tp = Some(Box::new(self.r#type()));
                typed(attribute, name, kind)
            }
            AttributeKind::Types => {
                attribute.type_protos = list.map(|_| self.r#type()).collect();
                typed(attribute, name, kind)
            }
            AttributeKind::Graph => AttributeProto::graph(name, self.closure(body)),
            AttributeKind::Graphs => {
                AttributeProto::graphs(name, list.map(|_| self.closure(body)).collect::<Vec<_>>())
            }
        }
    }

    /// A graph without inputs, for a branch or an argument.
    fn closure(&mut self, body: &mut Body) -> onnx_container::proto::GraphProto {
        self.subgraph(body, &[], &[Kind::Vector], false)
    }
}

fn typed(mut attribute: AttributeProto, name: &str, kind: AttributeKind) -> AttributeProto {
    (attribute.name, attribute.r#type) = (Some(name.into()), Some(kind.number()));
    attribute
}
