//! From a model's messages to the blocks of a program.
//!
//! One builder for each graph, with the one around it for the names that it captures. Bytes of
//! constants get their addresses here.

use std::collections::HashMap;

use onnx_container::inline::InlineOptions;
use onnx_container::proto::tensor_shape_proto::DimensionValue;
use onnx_container::proto::type_proto::Value as TypeValue;
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, Str, ValueInfoProto,
};
use onnx_container::{Buffer, Container, DataType, Limits, Tensor};

use super::functions::{Expanded, Functions, check_attributes, twice};
use super::order::topological;
use super::room::Room;
use super::sparse::{self, dense};
use super::text::{domain, imports, text};
use super::{Block, Declared, Dim, FUNCTION_BODY, Node, Program, ValueId};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::memory::Weights;
use crate::memory::table::{Entry, Slot};
use crate::program::schema::{Meaning, Written};
use crate::program::{Attribute, Attributes};
use crate::value::{Type, Value};

/// The program of the model in `container`, as it is written. Calls of the local functions in
/// `keep` (domain and name) stay nodes.
pub(crate) fn program(
    container: &Container,
    keep: &[(String, String)],
    limits: Limits,
) -> Result<Program> {
    let model = container.model();
    model.check_nesting(&limits)?;
    let room = Room::of(model, limits);
    if model.functions.is_empty() {
        return of_model(container, model, Functions::default(), room);
    }
    check_attributes(model)?;
    let mut inlined = model.clone();
    let kept = keep.iter().map(|(domain, name)| {
        onnx_container::inline::FunctionSelector::name(domain.as_str(), name.as_str())
    });
    room.inline(&mut inlined, InlineOptions::new().except(kept))?;
    let functions = Functions::of(&inlined, keep);
    of_model(container, &inlined, functions, room)
}

fn of_model(
    container: &Container,
    model: &ModelProto,
    functions: Functions,
    room: Room,
) -> Result<Program> {
    let graph = model.graph.as_deref();
    let graph =
        graph.ok_or_else(|| Error::new(ErrorKind::InvalidModel, "the model has no graph"))?;
    let mut builder = Builder::new(container, imports(model), room);
    builder.functions = functions;
    let main = builder.block(graph)?;
    if let Some((value, _)) = main.captures.first() {
        return Err(not_computed(main.name(*value)));
    }
    Ok(Program { main, weights: builder.weights, folded: Vec::new() })
}

fn not_computed(name: &str) -> Error {
    Error::new(ErrorKind::InvalidModel, "nothing computes the value").with_value(name)
}

/// The block of `graph`, which stands by itself and whose nodes mean the operators of `imports`.
/// The bytes of its constants are added to `weights`.
pub(crate) fn block_of(
    graph: &GraphProto,
    imports: &HashMap<String, i64>,
    weights: &mut Weights,
) -> Result<Block> {
    let container = Container::new(ModelProto::default());
    let mut builder = Builder::new(&container, imports.clone(), Room::default());
    builder.weights = std::mem::take(weights);
    let block = builder.block(graph);
    *weights = builder.weights;
    let block = block?;
    match block.captures.first() {
        Some((value, _)) => Err(not_computed(block.name(*value))),
        None => Ok(block),
    }
}

/// Makes blocks, one inside the other.
struct Builder<'c> {
    container: &'c Container,
    imports: HashMap<String, i64>,
    functions: Functions,
    weights: Weights,
    room: Room,
    /// How many bytes sparse tensors may still become.
    sparse_left: u64,
    /// The values of each block that is being built, the outermost first.
    scopes: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    names: Vec<String>,
    ids: HashMap<String, ValueId>,
    captures: Vec<(ValueId, ValueId)>,
    constants: Vec<(ValueId, Entry)>,
}

impl Scope {
    fn define(&mut self, name: &str) -> ValueId {
        let id = ValueId::new(self.names.len());
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }
}

impl<'c> Builder<'c> {
    fn new(container: &'c Container, imports: HashMap<String, i64>, room: Room) -> Self {
        let (functions, weights) = (Functions::default(), Weights::default());
        let sparse_left = sparse::LIMIT;
        Self { container, imports, functions, weights, room, sparse_left, scopes: Vec::new() }
    }

    fn block(&mut self, graph: &GraphProto) -> Result<Block> {
        self.room.graph()?;
        self.scopes.push(Scope::default());
        let inputs: Vec<_> =
            graph.input.iter().map(|input| self.declared(input)).collect::<Result<_>>()?;
        for tensor in &graph.initializer {
            let name = text(tensor.name.as_ref());
            let tensor = self.container.resolve(tensor).map_err(Error::from);
            self.initializer(&name, tensor).map_err(|error| error.with_value(name.as_str()))?;
        }
        for sparse in &graph.sparse_initializer {
            let values = sparse.values.as_deref();
            let name = text(values.and_then(|values| values.name.as_ref()));
            let tensor = dense(self.container, sparse, &mut self.sparse_left);
            self.initializer(&name, tensor).map_err(|error| error.with_value(name.as_str()))?;
        }
        let mut nodes = Vec::with_capacity(graph.node.len());
        for i in topological(&graph.node)? {
            let proto = graph.node.at(i)?;
            let at = |error: Error| error.at_node(text(proto.name.as_ref()), op(proto));
            nodes.extend(self.node(proto).map_err(at)?);
        }
        let outputs: Vec<_> =
            graph.output.iter().map(|output| self.output(output)).collect::<Result<_>>()?;
        let scope = self.scopes.pop().ok_or_else(|| Error::internal("a block without a scope"))?;
        let mut block = Block::new(scope.names.into(), nodes, inputs, outputs);
        (block.constants, block.captures) = (scope.constants, scope.captures);
        block.dead_after = dead_after(&block.nodes, &block.outputs);
        Ok(block)
    }

    fn scope(&mut self) -> Result<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| Error::internal("a value outside of all blocks"))
    }

    fn initializer(&mut self, name: &str, tensor: Result<Tensor>) -> Result<()> {
        self.room.value(name)?;
        let entry = constant(&mut self.weights, tensor?)?;
        let scope = self.scope()?;
        let known = scope.ids.get(name).copied();
        let value = known.unwrap_or_else(|| scope.define(name));
        scope.constants.push((value, entry));
        Ok(())
    }

    /// The node of `proto`; `None` for a Constant, which becomes a constant.
    fn node(&mut self, proto: &NodeProto) -> Result<Option<Node>> {
        self.room.node(proto)?;
        let (domain, op_type) = (domain(proto.domain.as_ref()), text(proto.op_type.as_ref()));
        let attributes = self.attributes(&proto.attribute)?;
        let version = self.imports.get(&domain).copied().ok_or_else(|| {
            let reason = format!("the model imports no version of domain `{domain}`");
            Error::new(ErrorKind::InvalidModel, reason)
        })?;
        let mut node = Node::new(domain, op_type, version);
        node.attributes = attributes;
        if node.attributes.get(FUNCTION_BODY).is_some() {
            let reason = format!("no operator has an attribute `{FUNCTION_BODY}`");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        if node.domain.is_empty() && node.op_type == "Constant" {
            check_constant(proto, node.meaning, version)?;
            let tensor = constant_of(&node.attributes)?;
            let entry = constant(&mut self.weights, tensor)?;
            let name = text(proto.output.first());
            let scope = self.scope()?;
            let value = scope.define(&name);
            scope.constants.push((value, entry));
            return Ok(None);
        }
        if let Some(body) = self.functions.expand(proto, &self.imports, &self.room)? {
            let graph = self.function_body(&body)?;
            node.attributes.set(FUNCTION_BODY, Attribute::Graph(graph.into()));
            node.meaning = Meaning::Custom;
        }
        node.inputs = proto.input.iter().map(|input| self.used(input)).collect::<Result<_>>()?;
        let scope = self.scope()?;
        let mut output = |name: &Str| (!name.is_empty()).then(|| scope.define(&name.to_string()));
        node.outputs = proto.output.iter().map(&mut output).collect();
        node.name = text(proto.name.as_ref());
        Ok(Some(node))
    }

    /// The block of a call, whose nodes mean the operators of its own versions.
    fn function_body(&mut self, body: &Expanded) -> Result<Block> {
        let around = std::mem::replace(&mut self.imports, body.imports.clone());
        let block = self.block(&body.graph);
        self.imports = around;
        block
    }

    /// The value that a node uses by this name; `None` for an input that is left out.
    fn used(&mut self, name: &Str) -> Result<Option<ValueId>> {
        if name.is_empty() {
            return Ok(None);
        }
        let name = name.to_string();
        let innermost = self.scopes.len().saturating_sub(1);
        self.resolve(innermost, &name)?.map(Some).ok_or_else(|| not_computed(&name))
    }

    /// The value called `name` in the block at `depth`, which captures it if it is one of an outer
    /// block.
    fn resolve(&mut self, depth: usize, name: &str) -> Result<Option<ValueId>> {
        let known = self.scopes.get(depth).and_then(|scope| scope.ids.get(name)).copied();
        let (None, Some(around)) = (known, depth.checked_sub(1)) else { return Ok(known) };
        let Some(outer) = self.resolve(around, name)? else { return Ok(None) };
        self.room.value(name)?;
        let Some(scope) = self.scopes.get_mut(depth) else { return Ok(None) };
        let inner = scope.define(name);
        scope.captures.push((outer, inner));
        Ok(Some(inner))
    }

    fn declared(&mut self, proto: &ValueInfoProto) -> Result<Declared> {
        let name = text(proto.name.as_ref());
        self.room.value(&name)?;
        let value = self.scope()?.define(&name);
        declaration(proto, value)
    }

    fn output(&mut self, proto: &ValueInfoProto) -> Result<Declared> {
        let value = match &proto.name {
            Some(name) => self.used(name)?,
            None => None,
        };
        declaration(proto, value.ok_or_else(|| not_computed(""))?)
    }

    fn attributes(&mut self, protos: &[AttributeProto]) -> Result<Attributes> {
        let mut attributes = Attributes::default();
        for proto in protos {
            let name = text(proto.name.as_ref());
            let refused = |reason: String| Err(Error::new(ErrorKind::InvalidModel, reason));
            if attributes.get(&name).is_some() {
                return Err(twice(&name));
            }
            if proto.ref_attr_name.as_ref().is_some_and(|name| !name.is_empty()) {
                return refused(format!(
                    "attribute `{name}` refers to one of a function, and this node is in none"
                ));
            }
            attributes.set(&name, self.attribute(proto)?);
        }
        Ok(attributes)
    }

    fn attribute(&mut self, proto: &AttributeProto) -> Result<Attribute> {
        let bytes = |buffer: &Buffer| buffer.to_vec();
        let missing = || {
            let name = text(proto.name.as_ref());
            Error::new(ErrorKind::InvalidModel, format!("attribute `{name}` has no value"))
        };
        // A number that is not written is 0, and a string is empty.
        Ok(match kind_of(proto) {
            AttributeProto::FLOAT => Attribute::Float(proto.f.unwrap_or_default()),
            AttributeProto::INT => Attribute::Int(proto.i.unwrap_or_default()),
            AttributeProto::STRING => {
                Attribute::String(proto.s.as_ref().map(bytes).unwrap_or_default())
            }
            AttributeProto::TENSOR => {
                let tensor = proto.t.as_deref().ok_or_else(missing)?;
                Attribute::Tensor(self.container.resolve(tensor)?)
            }
            AttributeProto::SPARSE_TENSOR => {
                let tensor = proto.sparse_tensor.as_deref().ok_or_else(missing)?;
                Attribute::Tensor(dense(self.container, tensor, &mut self.sparse_left)?)
            }
            AttributeProto::GRAPH => {
                let graph = proto.g.as_deref().ok_or_else(missing)?;
                Attribute::Graph(self.block(graph)?.into())
            }
            AttributeProto::FLOATS => Attribute::Floats(proto.floats.to_vec()),
            AttributeProto::INTS => Attribute::Ints(proto.ints.to_vec()),
            AttributeProto::STRINGS => {
                Attribute::Strings(proto.strings.iter().map(bytes).collect())
            }
            AttributeProto::TENSORS => {
                let tensors = proto.tensors.iter().map(|tensor| self.container.resolve(tensor));
                Attribute::Tensors(tensors.collect::<Result<_, _>>()?)
            }
            AttributeProto::GRAPHS => {
                let blocks = proto.graphs.iter().map(|graph| Ok(self.block(graph)?.into()));
                Attribute::Graphs(blocks.collect::<Result<_>>()?)
            }
            AttributeProto::TYPE_PROTO => {
                Attribute::Type(Type::from_proto(proto.tp.as_deref().ok_or_else(missing)?)?)
            }
            _ => {
                let name = text(proto.name.as_ref());
                let reason = format!("the kind of attribute `{name}` is not supported");
                return Err(Error::new(ErrorKind::Unsupported, reason));
            }
        })
    }
}

/// The kind of an attribute. Files from before the field `type` tell it by the field that is set.
fn kind_of(proto: &AttributeProto) -> i32 {
    let fields = [
        (proto.f.is_some(), AttributeProto::FLOAT),
        (proto.i.is_some(), AttributeProto::INT),
        (proto.s.is_some(), AttributeProto::STRING),
        (proto.t.is_some(), AttributeProto::TENSOR),
        (proto.g.is_some(), AttributeProto::GRAPH),
        (!proto.floats.is_empty(), AttributeProto::FLOATS),
        (!proto.ints.is_empty(), AttributeProto::INTS),
        (!proto.strings.is_empty(), AttributeProto::STRINGS),
    ];
    match proto.r#type {
        Some(kind) if kind != AttributeProto::UNDEFINED => kind,
        _ => fields.iter().find(|(set, _)| *set).map_or(0, |(_, kind)| *kind),
    }
}

/// The entry of a constant; its bytes get an address.
fn constant(weights: &mut Weights, tensor: Tensor) -> Result<Entry> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    let Some(bytes) = tensor.buffer() else {
        return Ok(Entry::Outside(Value::Tensor(tensor)));
    };
    let bits = dtype.bit_width().or_bug("bytes of elements without a width")?;
    let bytes_each = usize::from(bits).div_ceil(8);
    let offset = weights.add(bytes.clone(), bytes_each.next_power_of_two().min(8))?;
    Ok(Entry::Tensor(Slot::new(offset, dtype, shape)))
}

/// The tensor of a [Constant](https://onnx.ai/onnx/operators/onnx__Constant.html) with these
/// attributes.
fn constant_of(attributes: &Attributes) -> Result<Tensor> {
    let one_dim = |len: usize| Ok::<_, Error>(vec![i64::try_from(len).map_err(Error::internal)?]);
    let bytes = |bytes: &[u8]| Buffer::from(bytes.to_vec());
    let tensor = match attributes.iter().next() {
        Some(("value" | "sparse_value", Attribute::Tensor(tensor))) => return Ok(tensor.clone()),
        Some(("value_float", Attribute::Float(value))) => {
            Tensor::new(DataType::Float, [], bytes(&value.to_le_bytes()))
        }
        Some(("value_int", Attribute::Int(value))) => {
            Tensor::new(DataType::Int64, [], bytes(&value.to_le_bytes()))
        }
        Some(("value_floats", Attribute::Floats(values))) => {
            let dims = one_dim(values.len())?;
            Tensor::new(DataType::Float, dims, bytes(bytemuck::cast_slice(values)))
        }
        Some(("value_ints", Attribute::Ints(values))) => {
            let dims = one_dim(values.len())?;
            Tensor::new(DataType::Int64, dims, bytes(bytemuck::cast_slice(values)))
        }
        Some(("value_string", Attribute::String(value))) => {
            Tensor::from_strings([], vec![bytes(value)])
        }
        Some(("value_strings", Attribute::Strings(values))) => {
            let strings = values.iter().map(|value| bytes(value)).collect();
            Tensor::from_strings(one_dim(values.len())?, strings)
        }
        Some((name, _)) => {
            let reason = format!("a Constant with attribute `{name}` is not supported");
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        None => return Err(Error::new(ErrorKind::InvalidModel, "a Constant without a value")),
    };
    Ok(tensor?)
}

/// Whether a Constant, whose operator has this `meaning`, has one attribute that it may have.
fn check_constant(proto: &NodeProto, meaning: Meaning, version: i64) -> Result<()> {
    let names: Vec<_> = proto.attribute.iter().map(|one| text(one.name.as_ref())).collect();
    let letters = proto.attribute.iter().map(|one| letter(kind_of(one)));
    meaning.check(&Written {
        domain: "",
        op_type: "Constant",
        version,
        attributes: names.iter().map(String::as_str).zip(letters).collect(),
        inputs: vec![true; proto.input.len()],
        outputs: proto.output.len(),
    })?;
    if names.len() > 1 {
        let reason = format!("a Constant has one value, not {}: {}", names.len(), names.join(", "));
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    Ok(())
}

/// The letter for a kind of attribute in the table of schemas.
fn letter(kind: i32) -> char {
    match kind {
        AttributeProto::FLOAT => 'f',
        AttributeProto::INT => 'i',
        AttributeProto::STRING => 's',
        AttributeProto::TENSOR => 't',
        AttributeProto::SPARSE_TENSOR => 'x',
        AttributeProto::FLOATS => 'F',
        AttributeProto::INTS => 'I',
        AttributeProto::STRINGS => 'S',
        AttributeProto::TENSORS => 'T',
        AttributeProto::TYPE_PROTO => 'p',
        AttributeProto::GRAPH => 'g',
        _ => 'G',
    }
}

fn op(proto: &NodeProto) -> String {
    let (domain, op_type) = (domain(proto.domain.as_ref()), text(proto.op_type.as_ref()));
    if domain.is_empty() { op_type } else { format!("{domain}::{op_type}") }
}

fn declaration(proto: &ValueInfoProto, value: ValueId) -> Result<Declared> {
    let Some(ty) = proto.r#type.as_deref().filter(|ty| ty.value.is_some()) else {
        return Ok(Declared::new(value, None, None));
    };
    let named = |error: Error| error.with_value(text(proto.name.as_ref()));
    let shape = match &ty.value {
        Some(TypeValue::TensorType(tensor)) => tensor.shape.as_deref(),
        _ => None,
    };
    let dims = shape.map(|shape| {
        shape.dim.iter().map(|dim| match &dim.value {
            Some(DimensionValue::DimValue(size)) => {
                usize::try_from(*size).map_or(Dim::Unknown, Dim::Fixed)
            }
            // Exporters call every dimension `?` that they have no name for, whatever its size.
            Some(DimensionValue::DimParam(name)) if !name.is_empty() && *name != "?" => {
                Dim::Symbol(name.to_string())
            }
            _ => Dim::Unknown,
        })
    });
    let undefined = matches!(&ty.value, Some(TypeValue::TensorType(tensor)) if matches!(tensor.elem_type, None | Some(0)));
    let known = if undefined { None } else { Some(Type::from_proto(ty).map_err(named)?) };
    Ok(Declared::new(value, known, dims.map(Iterator::collect)))
}

/// For each node, the values that no later one uses and that are no outputs.
pub(crate) fn dead_after(nodes: &[Node], outputs: &[Declared]) -> Vec<Vec<ValueId>> {
    let mut seen: std::collections::HashSet<ValueId> =
        outputs.iter().map(|output| output.value).collect();
    let mut dead: Vec<_> = nodes
        .iter()
        .rev()
        .map(|node| {
            let captured = node.attributes.graphs().flat_map(|(_, block)| &block.captures);
            let used = node.inputs.iter().flatten().copied();
            let used = used.chain(captured.map(|(outer, _)| *outer));
            let unread = node.outputs.iter().flatten().copied();
            used.chain(unread).filter(|value| seen.insert(*value)).collect()
        })
        .collect();
    dead.reverse();
    dead
}
