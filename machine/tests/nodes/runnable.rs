//! What a node has and its operator has not is refused before a run, and `check_runnable` says
//! exactly what a run refuses.

use std::collections::BTreeMap;

use onnx_container::DataType;
use onnx_container::proto::AttributeProto;
use onnx_container_machine::{ErrorKind, Result, Type};

use crate::case::{self, Case};
use crate::choices::Choices;
use crate::recipes::{self, Recipe};
use crate::schemas::{self, Formal, Schema};
use crate::{mutate, rounds};

fn valid(recipe: &Recipe, schema: &Schema) -> Option<Case> {
    let float = Type::Tensor(DataType::Float);
    let mut pick = |formal: &Formal| {
        let first = formal.types.first().cloned();
        if formal.types.contains(&float) { Some(float.clone()) } else { first }
    };
    recipe.case(schema, &mut pick)
}

fn check(case: &Case) -> Result<()> {
    case.machine()?.check_runnable()
}

/// An attribute of another kind than `kind`.
fn other_kind(name: &str, kind: char) -> AttributeProto {
    if kind == 'i' { AttributeProto::float(name, 1.0) } else { AttributeProto::int(name, 1) }
}

/// One attribute too many, of another version, twice, of another kind, and inputs and outputs that
/// no operator has. Without the environment variable some of it for the last version of each
/// operator alone.
#[test]
fn what_a_schema_does_not_have_is_refused_by_both() {
    let (schemas, recipes) = (schemas::all(), recipes::all());
    let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for schema in &schemas {
        let attributes = schema.attributes.iter().map(|(name, kind, _)| (*name, *kind));
        names.entry((schema.domain, schema.name)).or_default().extend(attributes);
    }
    let mut wrong = Vec::new();
    let is_wide = std::env::var_os("ONNX_CONTAINER_NODES").is_some();
    let next = schemas.iter().skip(1).map(Some).chain([None]);
    for (schema, next) in schemas.iter().zip(next).filter(|(schema, _)| !schema.is_deprecated) {
        let is_tried = is_wide || next.is_none_or(|next| next.name != schema.name);
        let Some(base) = valid(&recipes::of(&recipes, schema), schema) else { continue };
        let mut variants = vec![("an attribute of no operator", base.clone())];
        variants[0].1.attributes.push(AttributeProto::int("aplha", 1));
        for (name, kind) in &names[&(schema.domain, schema.name)] {
            let mut case = base.clone();
            case.attributes.retain(|one| !mutate::is_called(one, name));
            let own = schema.attributes.iter().find(|(own, ..)| own == name);
            if let Some((_, kind, _)) = own.filter(|_| is_tried) {
                case.attributes.push(other_kind(name, *kind));
                variants.push(("an attribute of another kind", case.clone()));
                case.attributes.push(other_kind(name, *kind));
                variants.push(("an attribute twice", case));
            } else if own.is_none() && !"gx".contains(*kind) {
                case.attributes.extend(mutate::attribute(name, *kind, 1, &mut Choices::new(7)));
                variants.push(("an attribute of another version", case));
            }
        }
        let mut case = base.clone();
        case.outputs = 0;
        // Every output of a recurrent layer may be left out.
        if is_tried && schema.outputs.iter().any(|formal| formal.mark != Some('?')) {
            variants.push(("no output", case));
        }
        let mut case = base.clone();
        case.version = 99;
        variants.push(("an operator set that nobody knows", case));
        for (what, case) in variants {
            let known = [ErrorKind::InvalidModel, ErrorKind::UnsupportedOp];
            for (by, result) in [("check_runnable", check(&case)), ("run", case.run().map(drop))] {
                if !result.as_ref().is_err_and(|error| known.contains(&error.kind())) {
                    wrong.push(format!("{}: {what}: {by}: {result:?}", schema.title()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a run refuses whatever the elements are has one of these kinds.
const BEFORE_VALUES: [ErrorKind; 3] =
    [ErrorKind::InvalidModel, ErrorKind::UnsupportedOp, ErrorKind::Type];

#[test]
fn check_runnable_says_what_a_run_refuses() {
    let (schemas, recipes) = (schemas::all(), recipes::all());
    let (from, rounds) = rounds();
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    for (i, schema) in schemas.iter().enumerate() {
        let recipe = recipes::of(&recipes, schema);
        for round in from..from + rounds {
            let mut choices = Choices::new(round * 2003 + i as u64);
            let Some(case) = mutate::case(schema, &recipe, &mut choices) else { continue };
            let (checked, ran) = (check(&case), case.run());
            let found = match (&checked, &ran) {
                (Ok(()), Err(error)) if BEFORE_VALUES.contains(&error.kind()) => {
                    format!("only a run refuses it: {:?} {error}", error.kind())
                }
                (Err(error), Ok(_)) => format!("only the check refuses it: {error}"),
                _ => continue,
            };
            let shown = format!("{} round {round}: {found}", schema.title());
            wrong.entry(format!("{} {found}", schema.name)).or_insert(shown);
        }
    }
    let shown: Vec<_> = wrong.into_values().collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

/// Models that contradict themselves: the recipe's node with one attribute or input changed.
#[test]
fn contradictions_are_refused_by_both() {
    let (schemas, recipes) = (schemas::all(), recipes::all());
    let ints = |name: &str, values: &[i64]| AttributeProto::ints(name, values.to_vec());
    let attributes = [
        ("Conv", ints("kernel_shape", &[2, 2])),
        ("ConvTranspose", ints("kernel_shape", &[2, 2])),
        ("ConvInteger", ints("kernel_shape", &[2, 2])),
        ("QLinearConv", ints("kernel_shape", &[3])),
        ("DeformConv", ints("kernel_shape", &[2, 2])),
        ("LSTM", AttributeProto::int("hidden_size", 5)),
        ("GRU", AttributeProto::int("hidden_size", 5)),
        ("RNN", AttributeProto::int("hidden_size", 5)),
        ("Split@18", AttributeProto::int("num_outputs", 3)),
        (
            "ConstantOfShape",
            AttributeProto::tensor(
                "value",
                case::tensor_proto(DataType::Float, &[0], &[0.0]).unwrap(),
            ),
        ),
        (
            "ConstantOfShape",
            AttributeProto::tensor(
                "value",
                case::tensor_proto(DataType::String, &[1, 2], &[0.0]).unwrap(),
            ),
        ),
        (
            "ConstantOfShape",
            AttributeProto::tensor(
                "value",
                case::tensor_proto(DataType::Int64, &[0, 3], &[0.0]).unwrap(),
            ),
        ),
        (
            "Resize@13",
            AttributeProto::string("coordinate_transformation_mode", "tf_half_pixel_for_nn"),
        ),
        ("GridSample@16", AttributeProto::string("mode", "best")),
    ];
    let with_attribute = attributes.map(|(op, attribute)| (op, Some(attribute), None));
    type Numbers = &'static [f64];
    // The number of the input, its shape, its elements.
    let inputs: [(&str, usize, &[i64], Numbers); 8] = [
        ("MatMulInteger", 2, &[3], &[0.0]),
        ("MatMulInteger", 2, &[0], &[0.0]),
        ("MatMulInteger", 3, &[3], &[0.0]),
        ("QLinearMatMul", 1, &[3], &[1.0]),
        ("QLinearMatMul", 6, &[3], &[1.0]),
        ("QLinearMatMul", 7, &[0], &[0.0]),
        ("Split@13", 1, &[3], &[1.0, 1.0, 2.0]),
        ("Split@2", 0, &[2, 5], &[0.0]),
    ];
    let with_input = inputs.map(|(op, i, dims, numbers)| (op, None, Some((i, dims, numbers))));
    for (op, attribute, input) in with_attribute.into_iter().chain(with_input) {
        let (name, since) = op.split_once('@').unwrap_or((op, ""));
        let is_it = |schema: &&Schema| {
            schema.name == name && (since.is_empty() || schema.since.to_string() == since)
        };
        for schema in schemas.iter().filter(is_it) {
            let mut case = valid(&recipes::of(&recipes, schema), schema).unwrap();
            case.run().unwrap_or_else(|error| panic!("{op}: {error}"));
            if let Some(attribute) = attribute.clone() {
                let name = attribute.name.clone().unwrap().to_string();
                if name == "num_outputs" {
                    case.inputs.truncate(1);
                }
                case.attributes.retain(|one| !mutate::is_called(one, &name));
                case.attributes.push(attribute);
            }
            if let Some((i, dims, numbers)) = input {
                let old = case.inputs[i].as_mut().unwrap();
                old.value = case::value(&old.value.ty(), dims, numbers).unwrap();
            }
            for input in case.inputs.iter_mut().skip(1).flatten() {
                input.is_constant = true;
            }
            let run = case.run().map(drop);
            assert!(run.is_err(), "{op}: {:?}", case.attributes);
            let check = check(&case);
            assert!(check.is_err(), "{op}: {:?}: {run:?}", case.attributes);
            assert!(run.unwrap_err().kind() != ErrorKind::Internal, "{op}");
        }
    }
}
