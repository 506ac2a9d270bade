//! Changes of a model that leave it a model.

use onnx_container::proto::tensor_shape_proto::{Dimension, DimensionValue};
use onnx_container::proto::type_proto::Value as TypeValue;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, Str, TensorProto, ValueInfoProto,
};
use onnx_container::traversal::{self, BodyMut};
use onnx_container::{Buffer, DataType};

use crate::Choices;

/// `model` with one to four changes.
pub fn change(mut model: ModelProto, choices: &mut Choices) -> ModelProto {
    for _ in 0..=choices.below(4) {
        // Some choices find nothing to change.
        let _ = (0..20).find_map(|_| change_once(&mut model, choices));
    }
    model
}

/// The nodes of `one` and then those of `two`, which read inputs of both where names are the same.
pub fn join(mut one: ModelProto, mut two: ModelProto) -> ModelProto {
    if let (Some(graph), Some(more)) = (one.graph.as_deref_mut(), two.graph.take()) {
        let taken: Vec<Str> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
        let rename = |name: &mut Str| {
            if taken.contains(name) && !name.is_empty() {
                *name = format!("{name}_2").into();
            }
        };
        for mut node in more.node {
            node.output.iter_mut().for_each(rename);
            graph.node.push(node);
        }
        let known: Vec<_> = graph.input.iter().filter_map(|input| input.name.clone()).collect();
        let is_new = |name: &Option<Str>| name.as_ref().is_some_and(|name| !known.contains(name));
        graph.input.extend(more.input.into_iter().filter(|input| is_new(&input.name)));
        graph.initializer.extend(more.initializer.into_iter().filter(|w| is_new(&w.name)));
        for mut output in more.output {
            output.name.iter_mut().for_each(rename);
            graph.output.push(output);
        }
    }
    one.functions.append(&mut two.functions);
    one
}

fn change_once(model: &mut ModelProto, choices: &mut Choices) -> Option<()> {
    if choices.chance(5) {
        let import = choices.pick_mut(&mut model.opset_import)?;
        import.version = Some(1 + choices.below(27) as i64);
        return Some(());
    }
    let mut bodies = 0;
    let count = traversal::graphs(model, |_, _| {
        bodies += 1;
        Ok(())
    });
    count.ok()?;
    let (chosen, mut number, mut done) = (choices.below(bodies.max(1)), 0, None);
    let visited = traversal::graphs_mut(model, |_, body| {
        if number == chosen {
            done = change_body(body, choices);
        }
        number += 1;
        Ok(())
    });
    visited.ok()?;
    done
}

fn change_body(body: BodyMut<'_>, choices: &mut Choices) -> Option<()> {
    match body {
        BodyMut::Graph(graph) if choices.chance(40) => change_graph(graph, choices),
        body => change_nodes(body.nodes(), choices),
    }
}

fn change_graph(graph: &mut GraphProto, choices: &mut Choices) -> Option<()> {
    match choices.below(6) {
        0 => change_tensor(choices.pick_mut(&mut graph.initializer)?, choices),
        1 => change_info(choices.pick_mut(&mut graph.input)?, choices),
        2 => {
            let names: Vec<_> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
            let output = choices.pick_mut(&mut graph.output)?;
            output.name = Some(choices.pick(&names)?.clone());
            Some(())
        }
        3 => {
            let names: Vec<_> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
            let name = choices.pick(&names)?.clone();
            let mut output = ValueInfoProto::default();
            output.name = Some(name);
            graph.output.push(output);
            Some(())
        }
        _ => {
            let input = choices.pick(&graph.input)?;
            let tensor = tensor_of(input, choices)?;
            graph.initializer.retain(|other| other.name != tensor.name);
            graph.initializer.push(tensor);
            Some(())
        }
    }
}

/// A constant in the place of `input`: such a node is folded, or knows its shapes ahead.
fn tensor_of(input: &ValueInfoProto, choices: &mut Choices) -> Option<TensorProto> {
    let Some(TypeValue::TensorType(tensor)) = &input.r#type.as_ref()?.value else { return None };
    let size = |dim: &Dimension| match dim.value {
        Some(DimensionValue::DimValue(size)) => size,
        _ => 2,
    };
    let dims: Vec<i64> = tensor.shape.as_ref()?.dim.iter().map(size).collect();
    let dtype = DataType::try_from(tensor.elem_type?).ok()?;
    let len = dtype.byte_len(&dims).ok().filter(|len| *len < 4096)?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        match dtype {
            DataType::Float => bytes.extend(choices.float().to_le_bytes()),
            DataType::Bool => bytes.push(u8::from(choices.chance(50))),
            _ => bytes.extend(choices.size().to_le_bytes()),
        }
    }
    bytes.truncate(len as usize);
    let name = input.name.clone()?;
    Some(TensorProto::new(name, dtype, dims).with_raw_data(bytes))
}

fn change_info(info: &mut ValueInfoProto, choices: &mut Choices) -> Option<()> {
    let Some(TypeValue::TensorType(tensor)) = &mut info.r#type.as_mut()?.value else { return None };
    if choices.chance(30) {
        tensor.elem_type = Some(choices.below(DataType::ALL.len()) as i32);
        return Some(());
    }
    let dims = &mut tensor.shape.as_mut()?.dim;
    match choices.below(4) {
        0 => dims.push(choices.size().into()),
        1 => drop(dims.pop()?),
        _ => *choices.pick_mut(dims)? = choices.size().into(),
    }
    Some(())
}

fn change_tensor(tensor: &mut TensorProto, choices: &mut Choices) -> Option<()> {
    match choices.below(6) {
        0 => tensor.dims.push(1),
        1 => *choices.pick_mut(&mut tensor.dims)? = choices.size(),
        2 => tensor.data_type = Some(choices.below(DataType::ALL.len()) as i32),
        _ => {
            let mut bytes = tensor.raw_data.as_ref()?.to_vec();
            let width = [1, 4, 8][choices.below(3)];
            let at = choices.below(bytes.len().max(1)) / width * width;
            let value = match width {
                4 if choices.chance(50) => choices.float().to_bits().into(),
                _ => choices.integer(0),
            };
            let target = bytes.get_mut(at..at + width)?;
            target.copy_from_slice(&value.to_le_bytes()[..width]);
            tensor.raw_data = Some(bytes.into());
        }
    }
    Some(())
}

fn change_nodes(nodes: &mut Vec<NodeProto>, choices: &mut Choices) -> Option<()> {
    let names: Vec<_> =
        nodes.iter().flat_map(|node| node.input.iter().chain(&node.output)).cloned().collect();
    let ops: Vec<_> = nodes.iter().filter_map(|node| node.op_type.clone()).collect();
    if choices.chance(10) {
        let mut node = choices.pick(nodes)?.clone();
        node.output.iter_mut().filter(|name| !name.is_empty()).for_each(|name| {
            *name = format!("{name}_").into();
        });
        nodes.push(node);
        return Some(());
    }
    let node = choices.pick_mut(nodes)?;
    match choices.below(10) {
        0 => node.op_type = choices.pick(&ops).cloned(),
        1 => *choices.pick_mut(&mut node.input)? = choices.pick(&names)?.clone(),
        2 => *choices.pick_mut(&mut node.input)? = "".into(),
        3 => drop(node.input.pop()?),
        4 => node.input.push(choices.pick(&names)?.clone()),
        5 => {
            let at = choices.below(node.attribute.len().max(1));
            drop((at < node.attribute.len()).then(|| node.attribute.remove(at))?);
        }
        _ => change_attribute(choices.pick_mut(&mut node.attribute)?, choices)?,
    }
    Some(())
}

fn change_attribute(attribute: &mut AttributeProto, choices: &mut Choices) -> Option<()> {
    match attribute.r#type? {
        AttributeProto::INT => attribute.i = Some(choices.integer(attribute.i.unwrap_or(0))),
        AttributeProto::FLOAT => attribute.f = Some(choices.float()),
        AttributeProto::STRING => {
            let mut text = attribute.s.as_deref().unwrap_or_default().to_vec();
            match choices.below(3) {
                0 => drop(text.pop()),
                1 => text.push(b" ,->.(*[\\a1ij\xff"[choices.below(13)]),
                _ => *choices.pick_mut(&mut text)? = b" ,->.(*[\\a1ij\xff"[choices.below(13)],
            }
            attribute.s = Some(Buffer::from(text));
        }
        AttributeProto::INTS => match choices.below(5) {
            0 => attribute.ints.push(choices.size()),
            1 => drop(attribute.ints.pop()?),
            _ => {
                let number = choices.pick_mut(&mut attribute.ints)?;
                *number = choices.integer(*number);
            }
        },
        AttributeProto::FLOATS => match choices.below(3) {
            0 => attribute.floats.push(choices.float()),
            1 => drop(attribute.floats.pop()?),
            _ => *choices.pick_mut(&mut attribute.floats)? = choices.float(),
        },
        AttributeProto::STRINGS => drop(attribute.strings.pop()?),
        AttributeProto::TENSOR => change_tensor(attribute.t.as_mut()?, choices)?,
        _ => return None,
    }
    Some(())
}
