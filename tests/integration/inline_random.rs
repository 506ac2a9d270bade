//! Inlining against the oracle, over random models: whatever the model, the result computes the
//! same.

use std::collections::BTreeSet;
use std::{env, fs};

use onnx_container::inline::{FunctionId, FunctionSelector, InlineOptions, inline_functions};
use onnx_container::proto::{Message, ModelProto};
use onnx_container::{Container, ErrorKind};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::drivers::run_driver_with;
use crate::dump::dump;
use crate::flow::{Id, id_of_function, id_of_node, inlining_faults, known_flow, nodes_of_function};
use crate::random_models::{Choices, Flavour, random_model};
use crate::support::few_or;

type Outcome = Result<(), TestCaseError>;

fn flavour(runnable: bool) -> Flavour {
    if runnable { Flavour::Runnable } else { Flavour::Anything }
}

/// Both models, for the message of a failing test.
fn both(before: &ModelProto, after: &ModelProto) -> String {
    format!("{}became\n{}", dump(before), dump(after))
}

fn bytes(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec().unwrap()
}

/// The same by the library's digest, which knows nothing of this oracle. It covers the main graph.
fn same_digest(before: &ModelProto, after: &ModelProto) -> Outcome {
    let [a, b] = [before, after].map(|model| Container::new(model.clone()));
    let difference = a
        .semantic_difference(&b)
        .map_err(|e| TestCaseError::fail(format!("{e}\n{}", both(before, after))))?;
    prop_assert!(difference.is_none(), "{}\n{}", difference.unwrap(), both(before, after));
    Ok(())
}

fn same_meaning(before: &ModelProto, after: &ModelProto) -> Outcome {
    same_digest(before, after)?;
    let faults = inlining_faults(before, after);
    prop_assert!(faults.is_empty(), "{faults:#?}\n{}", both(before, after));
    let differences = known_flow(before).differences(&known_flow(after));
    prop_assert!(differences.is_empty(), "{differences:#?}\n{}", both(before, after));
    Ok(())
}

/// The same meaning, whatever is said of symbolic dimensions: what was inlined into the argument of
/// a function that stays is there once, and in that function as often as it uses the argument.
fn same_but_dimensions(before: &ModelProto, after: &ModelProto) -> Outcome {
    same_digest(before, after)?;
    let faults = inlining_faults(before, after);
    prop_assert!(faults.is_empty(), "{faults:#?}\n{}", both(before, after));
    let mut differences = known_flow(before).differences(&known_flow(after));
    differences.retain(|difference| !difference.starts_with("symbolic dimension"));
    prop_assert!(differences.is_empty(), "{differences:#?}\n{}", both(before, after));
    Ok(())
}

fn inlined(before: &ModelProto, options: InlineOptions) -> Result<ModelProto, TestCaseError> {
    let mut after = before.clone();
    let outcome = inline_functions(&mut after, options);
    prop_assert!(outcome.is_ok(), "{outcome:?}\n{}", dump(before));
    Ok(after)
}

fn computes_the_same(before: &ModelProto) -> Outcome {
    let after = inlined(before, InlineOptions::new())?;
    prop_assert!(after.functions.is_empty(), "functions stay\n{}", dump(before));
    same_meaning(before, &after)?;
    let again = inlined(&after, InlineOptions::new())?;
    prop_assert_eq!(&again, &after, "inlining again changes the model\n{}", dump(before));
    let twin = ModelProto::decode(&bytes(before).into()).unwrap();
    let twin = inlined(&twin, InlineOptions::new())?;
    prop_assert!(bytes(&twin) == bytes(&after), "not the same twice\n{}", dump(before));
    Ok(())
}

/// Some of the functions, as a selection; functions of a domain and name that differ only in their
/// overload are told apart.
fn selection(model: &ModelProto, choices: &mut Choices) -> (Vec<FunctionSelector>, BTreeSet<Id>) {
    let ids = model.functions.iter().map(id_of_function);
    let chosen: BTreeSet<Id> = ids.filter(|_| choices.chance(50)).collect();
    let selector = |(domain, name, overload): &Id| {
        let part = |part: &onnx_container::proto::Str| part.to_string();
        FunctionSelector::overload(part(domain), part(name), part(overload))
    };
    (chosen.iter().map(selector).collect(), chosen)
}

/// Inlines all functions but those of `unselected`, which have to stay; so may others, with a
/// reason.
fn goes(before: &ModelProto, options: InlineOptions, unselected: &BTreeSet<Id>) -> Outcome {
    let mut after = before.clone();
    let inlined = match inline_functions(&mut after, options) {
        // An attribute of the inlined call may be absent, and only the calls of the caller know.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            prop_assert!(bytes(&after) == bytes(before), "{error} changed\n{}", dump(before));
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(format!("{error}\n{}", dump(before)))),
        Ok(inlined) => inlined,
    };
    let reported = |id: &Id| {
        let id = [&id.0, &id.1, &id.2].map(ToString::to_string);
        let of = |id: &FunctionId| [id.domain.clone(), id.name.clone(), id.overload.clone()];
        inlined.kept.iter().any(|kept| of(&kept.function) == id)
    };
    let left: BTreeSet<Id> = after.functions.iter().map(id_of_function).collect();
    let called: BTreeSet<Id> =
        after.functions.iter().flat_map(nodes_of_function).map(id_of_node).collect();
    let unexplained: Vec<_> = left
        .iter()
        .filter(|id| !unselected.contains(id) && !reported(id) && !called.contains(id))
        .collect();
    let message = || format!("{unexplained:?}: {:?}\n{}", inlined.kept, both(before, &after));
    prop_assert!(unexplained.is_empty() && unselected.is_subset(&left), "{}", message());
    same_but_dimensions(before, &after)?;
    // What stayed can still be inlined, and then all is as if it had been at once.
    same_but_dimensions(before, &self::inlined(&after, InlineOptions::new())?)
}

fn selected_functions_go(before: &ModelProto, choices: &mut Choices) -> Outcome {
    let (selectors, chosen) = selection(before, choices);
    let all: BTreeSet<Id> = before.functions.iter().map(id_of_function).collect();
    // Nothing selected is everything.
    if !chosen.is_empty() {
        let others = all.difference(&chosen).cloned().collect();
        goes(before, InlineOptions::new().only(selectors.clone()), &others)?;
    }
    goes(before, InlineOptions::new().except(selectors), &chosen)
}

/// A limit of `max_nodes` that is too low leaves the model as it was, and any other gives the same.
fn an_error_changes_nothing(before: &ModelProto, limit: u64) -> Outcome {
    let unlimited = inlined(before, InlineOptions::new())?;
    let mut model = before.clone();
    match inline_functions(&mut model, InlineOptions::new().max_nodes(limit)) {
        Ok(_) => prop_assert_eq!(model, unlimited, "limit {}: {}", limit, dump(before)),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::TooLarge);
            prop_assert!(bytes(&model) == bytes(before), "changed\n{}", both(before, &model));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(few_or(50, 200) as u32))]

    #[test]
    fn any_model_computes_the_same(
        numbers in prop::collection::vec(any::<u16>(), 0..2500),
        runnable in any::<bool>(),
    ) {
        computes_the_same(&random_model(Choices::new(numbers), flavour(runnable)))?;
    }

    #[test]
    fn any_selection_computes_the_same(
        numbers in prop::collection::vec(any::<u16>(), 0..2500),
        chosen in prop::collection::vec(any::<u16>(), 8),
    ) {
        let model = random_model(Choices::new(numbers), Flavour::Anything);
        selected_functions_go(&model, &mut Choices::new(chosen))?;
    }

    #[test]
    fn a_refused_model_is_left_alone(
        numbers in prop::collection::vec(any::<u16>(), 0..2500),
        limit in 0..200_u64,
    ) {
        an_error_changes_nothing(&random_model(Choices::new(numbers), Flavour::Anything), limit)?;
    }
}

/// More models than a usual run has time for; `INLINE_SEEDS` says how many, from which seed.
#[test]
#[ignore = "takes minutes; INLINE_SEEDS=from..to sets the range"]
fn many_models_compute_the_same() {
    let range = env::var("INLINE_SEEDS").unwrap_or_else(|_| "0..3000".into());
    let (from, to) = range.split_once("..").unwrap();
    let range = from.parse::<u64>().unwrap()..to.parse().unwrap();
    let count = range.end - range.start;
    let mut failed = Vec::new();
    for seed in range {
        let model = random_model(Choices::seeded(seed), flavour(seed % 4 == 0));
        for (what, outcome) in [
            ("meaning", computes_the_same(&model)),
            ("selection", selected_functions_go(&model, &mut Choices::seeded(!seed))),
            ("error", an_error_changes_nothing(&model, seed % 200)),
        ] {
            if let Err(error) = outcome {
                eprintln!("seed {seed}, {what}: {error}");
                failed.push(seed);
            }
        }
    }
    assert_eq!(failed, Vec::<u64>::new(), "of {count}");
}

/// Engines and the official checker on the same models: they have to find the same numbers.
#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn engines_compute_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..400 {
        let before = random_model(Choices::seeded(seed), flavour(seed % 8 != 7));
        let after = inlined(&before, InlineOptions::new()).unwrap();
        fs::write(folder.path().join(format!("{seed}.onnx")), bytes(&before)).unwrap();
        fs::write(folder.path().join(format!("{seed}.inlined.onnx")), bytes(&after)).unwrap();
    }
    run_driver_with("inline_random.py", &[folder.path().to_str().unwrap()]);
}
