//! Every type that a schema has for an input is taken, except those in a list here, each with its
//! reason.

use std::collections::BTreeMap;

use onnx_container_machine::Type;

use crate::recipes::{self, Recipe};
use crate::schemas::{self, Formal, Schema};

/// Operators that have no kernel, or whose attributes decide what types they take.
const LEFT_OUT: &[(&str, &str)] = &[
    ("Constant", "no input; it is no node of a program"),
    ("Gradient", "needs the graph around it"),
    ("LabelEncoder", "keys and values are attributes and have the types of the input and output"),
    ("OneHotEncoder", "categories are attributes and have the type of the input"),
];

/// Types of an input that the schema has and the kernel has not: operator, variable, type, why.
const REFUSED: &[(&str, &str, &str, &str)] =
    &[("Col2Im", "T", "tensor(STRING)", "elements that overlap are added, strings cannot be")];

/// With the environment variable every version is tried, without it the last that has the type.
#[test]
fn operators_take_the_types_of_their_schemas() {
    let (schemas, recipes) = (schemas::all(), recipes::all());
    let is_wide = std::env::var_os("ONNX_CONTAINER_NODES").is_some();
    let mut wrong = BTreeMap::new();
    let mut tried = 0;
    for (schema, variable, ty) in chosen(&schemas, is_wide) {
        let recipe = recipes::of(&recipes, schema);
        let Some(ran) = runs(&recipe, schema, variable, &ty) else { continue };
        tried += 1;
        let shown = ty.to_string();
        let is_listed = |(op, of, listed, _): &(&str, &str, &str, &str)| {
            *op == schema.name && *of == variable && *listed == shown
        };
        if ran.is_ok() == REFUSED.iter().any(is_listed) {
            let what = ran.err().map_or_else(|| "runs".to_owned(), |error| error.to_string());
            let key = format!("{} {variable}: {what}", schema.title());
            wrong.entry(key).or_insert_with(Vec::new).push(shown);
        }
    }
    let shown: Vec<_> = wrong.iter().map(|(what, types)| format!("{what}: {types:?}")).collect();
    assert!(wrong.is_empty(), "{}", shown.join("\n"));
    assert!(tried > 1500, "{tried}");
}

/// What is tried: versions of operators, variables and types.
fn chosen(schemas: &[Schema], is_wide: bool) -> Vec<(&Schema, &'static str, Type)> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for schema in schemas.iter().filter(|schema| !schema.is_deprecated) {
        if LEFT_OUT.iter().any(|(name, _)| *name == schema.name) {
            continue;
        }
        for formal in &schema.inputs {
            for ty in &formal.types {
                let key = (schema.domain, schema.name, formal.variable, ty.to_string());
                all.entry(key).or_default().push((schema, formal.variable, ty.clone()));
            }
        }
    }
    let ends = |versions: Vec<_>| {
        let last = versions.len() - 1;
        let is_end = move |i: usize| is_wide || i == last;
        versions.into_iter().enumerate().filter(move |(i, _)| is_end(*i)).map(|(_, one)| one)
    };
    all.into_values().flat_map(ends).collect()
}

/// Whether a valid node runs whose inputs of `variable` are of type `ty`, and the others of any
/// that go with it.
fn runs(
    recipe: &Recipe,
    schema: &Schema,
    variable: &str,
    ty: &Type,
) -> Option<onnx_container_machine::Result<()>> {
    let sequence = Type::Sequence(Box::new(ty.clone()));
    let mut pick = |formal: &Formal| {
        let goes_with = match (ty, formal.variable) {
            _ if formal.variable == variable => Some(ty),
            (Type::Sequence(element), "T") => Some(&**element),
            (_, "S") if variable == "T" => Some(&sequence),
            _ => None,
        };
        let goes_with = goes_with.filter(|ty| formal.types.contains(ty)).cloned();
        goes_with.or_else(|| usual(&formal.types))
    };
    Some(recipe.case(schema, &mut pick)?.run().map(drop))
}

/// The type that most nodes have.
fn usual(types: &[Type]) -> Option<Type> {
    let names = ["FLOAT", "INT64", "INT32", "UINT8", "BOOL", "STRING"];
    let named = |name: &&str| {
        let shown = format!("tensor({name})");
        types.iter().find(|ty| ty.to_string() == shown).cloned()
    };
    let sequence = || types.iter().find(|ty| ty.to_string() == "seq(tensor(FLOAT))").cloned();
    names.iter().find_map(named).or_else(sequence).or_else(|| types.first().cloned())
}
