//! Renaming against the oracle, over random models: whatever the value, the model computes the
//! same.

use std::collections::BTreeSet;

use onnx_container::proto::{Message, ModelProto};
use onnx_container::traversal::{self, Body};
use onnx_container::{Container, ErrorKind};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::dump::dump;
use crate::flow::{flow_known_as, known_flow};
use crate::random_models::{Choices, Flavour, random_model};

/// A name that no random model has.
const FRESH: &str = "a fresh name";

/// A value: the name in its graph, the name with its scope, and whether the graph is the main
/// graph.
struct Value {
    name: String,
    qualified: String,
    is_main: bool,
}

/// Every value that a graph or function of `model` defines, as often as it does.
fn values(model: &ModelProto) -> Vec<Value> {
    let mut values = Vec::new();
    traversal::graphs(model, |scope, body| {
        let mut names: BTreeSet<String> =
            body.nodes().iter().flat_map(|node| &node.output).map(ToString::to_string).collect();
        match body {
            Body::Graph(graph) => {
                let inputs = graph.input.iter().filter_map(|input| input.name.as_ref());
                let constants = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
                names.extend(inputs.chain(constants).map(ToString::to_string));
            }
            Body::Function(function) => {
                names.extend(function.input.iter().map(ToString::to_string));
            }
        }
        names.remove("");
        values.extend(names.into_iter().map(|name| Value {
            qualified: scope.qualify(&name),
            name,
            is_main: scope.is_main(),
        }));
        Ok(())
    })
    .unwrap();
    values
}

/// Renames `value` to `to`: the model computes the same, or an error of `refusals` leaves it
/// unchanged. Returns whether it was renamed.
fn renamed(
    before: &ModelProto,
    value: &Value,
    to: &str,
    refusals: &[ErrorKind],
) -> Result<bool, TestCaseError> {
    let mut container = Container::new(before.clone());
    let outcome = container.rename(&value.qualified, to);
    let after = container.model();
    let models = || {
        let (before, after) = (dump(before), dump(after));
        format!("`{}` to `{to}`: {before}became\n{after}", value.qualified)
    };
    let count = match outcome {
        Err(error) => {
            prop_assert!(refusals.contains(&error.kind()), "{error}\n{}", models());
            prop_assert!(after == before, "{error} changed the model\n{}", models());
            return Ok(false);
        }
        Ok(count) => count,
    };
    prop_assert!(count > 0 && (after != before || to == value.name), "{}", models());
    // Inputs, initializers and outputs of the main graph are known by their names.
    let known_as = value.is_main.then_some((to, value.name.as_str()));
    let flow = flow_known_as(after, known_as);
    prop_assert!(flow.is_ok(), "{flow:?}\n{}", models());
    let differences = known_flow(before).differences(&flow.unwrap());
    prop_assert!(differences.is_empty(), "{differences:#?}\n{}", models());
    Ok(true)
}

/// To a fresh name: only what has no unique scope, or is in a training graph, is refused. Back
/// gives the first model, unless another graph inside or around has a value of that name.
fn there_and_back(before: &ModelProto, value: &Value) -> Result<bool, TestCaseError> {
    let refusals = [ErrorKind::InvalidArgument, ErrorKind::Unsupported];
    if !renamed(before, value, FRESH, &refusals)? {
        return Ok(false);
    }
    let mut container = Container::new(before.clone());
    container.rename(&value.qualified, FRESH).unwrap();
    let scope = value.qualified.strip_suffix(&value.name).unwrap();
    match container.rename(&format!("{scope}{FRESH}"), &value.name) {
        Err(error) => prop_assert_eq!(error.kind(), ErrorKind::AlreadyExists),
        Ok(_) => {
            let bytes = [before, container.model()].map(|model| model.encode_to_vec().unwrap());
            let same = bytes[0] == bytes[1];
            prop_assert!(same, "`{}` and back\n{}", value.qualified, dump(container.model()));
        }
    }
    Ok(true)
}

/// To a name that the model has somewhere.
fn to_another(before: &ModelProto, value: &Value, to: &str) -> Result<bool, TestCaseError> {
    let taken = ErrorKind::AlreadyExists;
    let refusals = [ErrorKind::InvalidArgument, ErrorKind::Unsupported, taken];
    renamed(before, value, to, &refusals)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_renamed_model_computes_the_same(
        numbers in prop::collection::vec(any::<u16>(), 0..2500),
        (from, to) in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let model = random_model(Choices::new(numbers), Flavour::Anything);
        let values = values(&model);
        there_and_back(&model, from.get(&values))?;
        to_another(&model, from.get(&values), &to.get(&values).name)?;
    }
}

/// Most values can be renamed, and some of the other names are free: the property is not empty.
#[test]
fn most_values_of_seeded_models_can_be_renamed() {
    let (mut fresh, mut others, mut all) = (0, 0, 0);
    for seed in 0..10 {
        let model = random_model(Choices::seeded(seed), Flavour::Anything);
        let values = values(&model);
        for (number, value) in values.iter().enumerate().step_by(3) {
            let other = &values[(number * 7 + 1) % values.len()].name;
            all += 1;
            fresh += usize::from(there_and_back(&model, value).unwrap());
            others += usize::from(to_another(&model, value, other).unwrap());
        }
    }
    assert!(fresh * 10 > all * 5 && others * 50 > all, "{fresh} and {others} of {all}");
}
