//! Nodes with inputs and attributes of the wrong count, type, rank and value.

use onnx_container::DataType;
use onnx_container::proto::AttributeProto;
use onnx_container_machine::{Type, Value};

use crate::case::{self, Case, Input};
use crate::choices::Choices;
use crate::recipes::Recipe;
use crate::schemas::{Formal, Schema};

/// Words that some string attribute knows.
const WORDS: &[&str] = &[
    "",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "nearest",
    "linear",
    "cubic",
    "bilinear",
    "bicubic",
    "zeros",
    "border",
    "reflection",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "forward",
    "reverse",
    "bidirectional",
    "none",
    "sum",
    "mean",
    "add",
    "mul",
    "max",
    "min",
    "LEFT",
    "RIGHT",
    "DCR",
    "CRD",
    "tanh",
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
    "half_pixel_symmetric",
    "floor",
    "ceil",
    "round_prefer_ceil",
    "stretch",
    "not_larger",
    "not_smaller",
    "ij,jk->ik",
    "ij->ji",
    "i...->...i",
    "ii",
    "ij,ij",
    "TF",
    "IDF",
    "TFIDF",
    "UPPER",
    "LOWER",
    "avg",
    "output_half_pixel",
    "circular",
    "silu",
    "delta",
    "gated_delta",
    "gated",
    "standard",
    "nesterov",
    "L1",
    "L2",
    "MAX",
    "SUM",
    "AVERAGE",
    "SOFTMAX",
    "BRANCH_LEQ",
    "LEAF",
    "Relu",
    "Sigmoid",
    "Affine",
    "up",
    "down",
    "FLOAT",
    "a+(",
    "(a|b)*",
];

/// A node of `schema`: a valid one with some changes.
pub fn case(schema: &Schema, recipe: &Recipe, choices: &mut Choices) -> Option<Case> {
    let wide = choices.chance(50);
    let mut pick = |formal: &Formal| {
        let floats = formal.types.iter().find(|ty| **ty == Type::Tensor(DataType::Float));
        if wide {
            choices.pick(&formal.types).cloned()
        } else {
            floats.or(formal.types.first()).cloned()
        }
    };
    let mut case = recipe.case(schema, &mut pick)?;
    for input in case.inputs.iter_mut().flatten() {
        input.is_constant = choices.chance(60) && input.value.tensor().is_ok();
    }
    if choices.chance(40) {
        add_attributes(&mut case, schema, choices);
    }
    for _ in 0..choices.below(4) {
        change(&mut case, schema, choices);
    }
    Some(case)
}

fn add_attributes(case: &mut Case, schema: &Schema, choices: &mut Choices) {
    for (name, kind, _) in &schema.attributes {
        let is_set = case.attributes.iter().any(|one| is_called(one, name));
        if choices.chance(40) && !is_set {
            case.attributes.extend(attribute(name, *kind, case.inputs.len(), choices));
        }
    }
}

fn change(case: &mut Case, schema: &Schema, choices: &mut Choices) {
    match choices.below(12) {
        0 => drop(case.inputs.pop()),
        1 => {
            let i = choices.below(case.inputs.len().max(1));
            case.inputs.get_mut(i).into_iter().for_each(|input| *input = None);
        }
        2 => {
            let ty = schema.input(case.inputs.len()).and_then(|formal| choices.pick(&formal.types));
            let input = ty.cloned().and_then(|ty| input(&ty, choices));
            case.inputs.push(input);
        }
        3 => case.outputs = choices.below(schema.outputs.len() + 3),
        4 | 5 => {
            let Some((name, kind, _)) = choices.pick(&schema.attributes).copied() else { return };
            case.attributes.retain(|one| !is_called(one, name));
            if choices.chance(85) {
                case.attributes.extend(attribute(name, kind, case.inputs.len(), choices));
            }
        }
        _ => change_input(case, schema, choices),
    }
}

/// Gives one input another shape, type or other elements.
fn change_input(case: &mut Case, schema: &Schema, choices: &mut Choices) {
    let i = choices.below(case.inputs.len().max(1));
    let formal = schema.input(i);
    let Some(Some(old)) = case.inputs.get_mut(i) else { return };
    let other = formal.and_then(|formal| choices.pick(&formal.types)).cloned();
    let ty = if choices.chance(15) { other.unwrap_or(old.value.ty()) } else { old.value.ty() };
    let mut dims = match &old.value {
        Value::Tensor(tensor) => tensor.dims().to_vec(),
        _ => vec![2],
    };
    match choices.below(8) {
        0 => dims.clear(),
        1 => dims = vec![choices.below(4) as i64],
        2 => dims.push(choices.below(3) as i64),
        3 => drop(dims.pop()),
        4 => dims.insert(0, 1),
        5 | 6 => {
            let size = choices.size().clamp(0, 70_000);
            choices.pick_mut(&mut dims).into_iter().for_each(|dim| *dim = size);
        }
        _ => {}
    }
    let numbers = numbers(choices);
    if let Some(value) = case::value(&ty, &dims, &numbers) {
        old.value = value;
    }
}

fn input(ty: &Type, choices: &mut Choices) -> Option<Input> {
    let dims = dims(choices);
    let value = case::value(ty, &dims, &numbers(choices))?;
    Some(Input { is_constant: choices.chance(60) && value.tensor().is_ok(), value })
}

fn dims(choices: &mut Choices) -> Vec<i64> {
    (0..choices.below(4)).map(|_| choices.below(4) as i64).collect()
}

fn numbers(choices: &mut Choices) -> Vec<f64> {
    let is_wild = choices.chance(30);
    let number = |choices: &mut Choices| match is_wild {
        true => choices.integer(0) as f64,
        false => choices.below(5) as f64 - 1.0,
    };
    (0..1 + choices.below(8)).map(|_| number(choices)).collect()
}

/// An attribute of this kind with any value; seldom one of another kind.
pub fn attribute(
    name: &str,
    kind: char,
    inputs: usize,
    choices: &mut Choices,
) -> Option<AttributeProto> {
    let kinds = ['i', 'f', 's', 't', 'I', 'F', 'S'];
    let kind = if choices.chance(3) { kinds[choices.below(kinds.len())] } else { kind };
    let small = |choices: &mut Choices| {
        if choices.chance(85) { choices.below(5) as i64 - 1 } else { choices.integer(1) }
    };
    let count = choices.below(5);
    let word = |choices: &mut Choices| WORDS[choices.below(WORDS.len())];
    Some(match kind {
        'i' => AttributeProto::int(name, small(choices)),
        'f' => AttributeProto::float(name, choices.float()),
        's' => AttributeProto::string(name, word(choices)),
        'I' => AttributeProto::ints(name, (0..count).map(|_| small(choices)).collect::<Vec<_>>()),
        'F' => {
            AttributeProto::floats(name, (0..count).map(|_| choices.float()).collect::<Vec<_>>())
        }
        'S' => AttributeProto::strings(name, (0..count).map(|_| word(choices)).collect::<Vec<_>>()),
        't' => {
            let dtype = *choices.pick(&DataType::ALL[1..])?;
            let dims = dims(choices);
            AttributeProto::tensor(name, case::tensor_proto(dtype, &dims, &numbers(choices))?)
        }
        'g' => {
            let kind = ["constant", "identity", "loop"][choices.below(3)];
            let inputs = if choices.chance(80) { inputs } else { choices.below(4) };
            AttributeProto::graph(name, case::graph(kind, inputs))
        }
        _ => return None,
    })
}

/// Whether the attribute has this name.
pub fn is_called(attribute: &AttributeProto, name: &str) -> bool {
    attribute.name.as_ref().is_some_and(|other| other.as_bytes() == name.as_bytes())
}
