//! Valid nodes of every version of every operator, from `recipes.txt`.

use std::collections::HashMap;

use onnx_container::DataType;
use onnx_container::proto::AttributeProto;
use onnx_container_machine::Type;

use crate::case::{self, Case, Input};
use crate::schemas::{Formal, Schema};

/// How a valid node of an operator is made.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The inputs; `None` for as many of 2x3 as the operator needs.
    inputs: Option<Vec<&'static str>>,
    attributes: Vec<(&'static str, &'static str)>,
    outputs: Option<usize>,
}

/// The recipes by `name` and `name@version`.
pub fn all() -> HashMap<String, Recipe> {
    let mut recipes = HashMap::new();
    for line in include_str!("recipes.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('|').map(str::trim);
        let key = columns.next().unwrap();
        let mut words = || columns.next().unwrap_or_default().split_whitespace();
        let inputs = Some(words().collect());
        let attributes = words().filter_map(|word| word.split_once('=')).collect();
        let outputs = words().next().map(|count| count.parse().unwrap());
        let recipe = Recipe { inputs, attributes, outputs };
        let (name, versions) = key.split_once('@').unwrap_or((key, ""));
        for version in versions.split(',') {
            let key =
                if version.is_empty() { name.to_owned() } else { format!("{name}@{version}") };
            assert!(recipes.insert(key, recipe.clone()).is_none(), "{line}");
        }
    }
    recipes
}

/// The recipe of `schema`.
pub fn of(recipes: &HashMap<String, Recipe>, schema: &Schema) -> Recipe {
    let keys = [format!("{}@{}", schema.name, schema.since), schema.name.to_owned()];
    let found = keys.iter().find_map(|key| recipes.get(key).cloned());
    found.unwrap_or(Recipe { inputs: None, attributes: Vec::new(), outputs: None })
}

impl Recipe {
    /// The node of `schema`, whose inputs have the types that `pick` takes for each variable.
    /// `None` where nothing here makes values of one.
    pub fn case(
        &self,
        schema: &Schema,
        pick: &mut dyn FnMut(&Formal) -> Option<Type>,
    ) -> Option<Case> {
        let mut case = Case::new(schema);
        let (least, most) = schema.inputs_range;
        let variadic = usize::from(schema.inputs.iter().any(|formal| formal.mark == Some('*')));
        let default = vec!["2x3"; least.max(schema.inputs.len().min(least + variadic))];
        let mut inputs = self.inputs.clone().unwrap_or(default);
        while inputs.len() < least {
            inputs.push("2x3");
        }
        inputs.truncate(most);
        let mut bound: HashMap<&str, Type> = HashMap::new();
        for (i, input) in inputs.iter().enumerate() {
            let Some(formal) = schema.input(i) else { break };
            if *input == "-" {
                case.inputs.push(None);
                continue;
            }
            let ty = match bound.get(formal.variable) {
                Some(ty) => ty.clone(),
                None => pick(formal)?,
            };
            bound.insert(formal.variable, ty.clone());
            let (dims, numbers) = shape(input);
            let value = case::value(&ty, &dims, &numbers)?;
            case.inputs.push(Some(Input { value, is_constant: false }));
        }
        for (name, kind, is_required) in &schema.attributes {
            let written = self.attributes.iter().find(|(other, _)| other == name);
            match written {
                Some((_, value)) => case.attributes.push(attribute(name, *kind, value, &case)?),
                None if *is_required => {
                    case.attributes.push(attribute(name, *kind, "1", &case)?);
                }
                None => {}
            }
        }
        let single = schema.outputs.iter().filter(|formal| formal.mark != Some('?')).count();
        case.outputs = self.outputs.unwrap_or(single.max(1));
        Some(case)
    }
}

/// The dims and numbers of an input.
fn shape(input: &str) -> (Vec<i64>, Vec<f64>) {
    let numbers = |list: &str| list.split(',').map(|number| number.parse().unwrap()).collect();
    let dims = |dims: &str| -> Vec<i64> {
        dims.split('x').filter(|dim| *dim != "s").map(|dim| dim.parse().unwrap()).collect()
    };
    if let Some(list) = input.strip_prefix('=') {
        let numbers: Vec<_> = numbers(list);
        return (vec![i64::try_from(numbers.len()).unwrap()], numbers);
    }
    if let Some(number) = input.strip_prefix('#') {
        return (Vec::new(), numbers(number));
    }
    let (shape, list) = input.split_once(':').unwrap_or((input, "0"));
    (dims(shape), numbers(list))
}

/// An attribute of this kind from what the recipe says.
fn attribute(name: &str, kind: char, value: &str, case: &Case) -> Option<AttributeProto> {
    let list = || value.split(',');
    Some(match kind {
        'i' if value == "same" => {
            let Type::Tensor(dtype) = case.inputs.first()?.as_ref()?.value.ty() else {
                return None;
            };
            AttributeProto::int(name, i64::from(dtype.number()))
        }
        'i' => AttributeProto::int(name, value.parse().ok()?),
        'f' => AttributeProto::float(name, value.parse().ok()?),
        's' => AttributeProto::string(name, value),
        'I' => {
            AttributeProto::ints(name, list().map(|one| one.parse().unwrap()).collect::<Vec<_>>())
        }
        'F' => {
            AttributeProto::floats(name, list().map(|one| one.parse().unwrap()).collect::<Vec<_>>())
        }
        'S' => AttributeProto::strings(name, list().collect::<Vec<_>>()),
        't' => {
            let (dims, numbers) = shape(&format!("={}", value.trim_start_matches('=')));
            let dtype = if name == "nodes_modes" { DataType::Uint8 } else { DataType::Float };
            AttributeProto::tensor(name, case::tensor_proto(dtype, &dims, &numbers)?)
        }
        'g' => AttributeProto::graph(name, case::graph(value, case.inputs.len())),
        _ => return None,
    })
}
