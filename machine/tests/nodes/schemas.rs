//! The schemas of ONNX as the generator of nodes reads them, from the table that the machine has.

use std::collections::HashMap;

use onnx_container::DataType;
use onnx_container_machine::Type;

/// One version of an operator.
#[derive(Debug, Clone)]
pub struct Schema {
    pub domain: &'static str,
    pub name: &'static str,
    pub since: i64,
    pub is_deprecated: bool,
    /// The least and the most inputs.
    pub inputs_range: (usize, usize),
    /// Names, kinds, and whether each is required.
    pub attributes: Vec<(&'static str, char, bool)>,
    pub inputs: Vec<Formal>,
    pub outputs: Vec<Formal>,
}

/// An input or output.
#[derive(Debug, Clone)]
pub struct Formal {
    /// The type variable, or the name where it has none.
    pub variable: &'static str,
    /// Those that a [`Type`] stands for.
    pub types: Vec<Type>,
    /// `?` may be left out, `*` repeats, `~` repeats with any types.
    pub mark: Option<char>,
}

impl Schema {
    /// The operator, its domain in front unless that is ONNX's, and its version.
    pub fn title(&self) -> String {
        let domain = if self.domain.is_empty() { "" } else { "::" };
        format!("{}{domain}{}@{}", self.domain, self.name, self.since)
    }

    /// The formal of input `i`, of which the last may repeat.
    pub fn input(&self, i: usize) -> Option<&Formal> {
        let last = self.inputs.last().filter(|last| matches!(last.mark, Some('*' | '~')));
        self.inputs.get(i).or(last)
    }
}

/// Every version of every operator.
pub fn all() -> Vec<Schema> {
    let (mut sets, mut schemas) = (HashMap::new(), Vec::new());
    for line in include_str!("../../../kernels/src/program/schema/operators.tsv").lines() {
        let columns: Vec<_> = line.split('\t').collect();
        match *columns {
            [set, types] if set.starts_with('=') => {
                sets.insert(set, types.split(' ').filter_map(parse).collect::<Vec<_>>());
            }
            [domain, name, since, deprecated, counts, _, attributes, inputs, outputs] => {
                let (least, most) = counts.split_once("..").unwrap();
                let formals = |column: &'static str| {
                    let items = column.split(' ').filter(|item| !item.is_empty());
                    items.map(|item| formal(item, &sets)).collect()
                };
                let attributes = attributes.split(' ').filter_map(|item| item.split_once(':'));
                schemas.push(Schema {
                    domain: if domain == "ai.onnx" { "" } else { domain },
                    name,
                    since: since.parse().unwrap(),
                    is_deprecated: deprecated == "-",
                    inputs_range: (least.parse().unwrap(), most.parse().unwrap_or(usize::MAX)),
                    attributes: attributes
                        .map(|(name, kind)| {
                            (name, kind.chars().next().unwrap(), kind.ends_with('!'))
                        })
                        .collect(),
                    inputs: formals(inputs),
                    outputs: formals(outputs),
                });
            }
            _ => assert!(line.starts_with('#'), "{line}"),
        }
    }
    schemas
}

fn formal(item: &'static str, sets: &HashMap<&str, Vec<Type>>) -> Formal {
    let (name, types) = item.split_once(':').unwrap();
    let (variable, _) = types.split_once('=').unwrap();
    let types = sets[&types[variable.len()..]].clone();
    let mark = name.chars().last().filter(|mark| "?*~".contains(*mark));
    Formal { variable: if variable.is_empty() { name } else { variable }, types, mark }
}

fn parse(name: &str) -> Option<Type> {
    let inside = |kind: &str| parse(name.strip_prefix(kind)?.strip_suffix(')')?).map(Box::new);
    let element = name.strip_prefix("tensor(").and_then(|rest| rest.strip_suffix(')'));
    let named = |dtype: &&DataType| {
        element.is_some_and(|element| dtype.name().eq_ignore_ascii_case(element))
    };
    let tensor = DataType::ALL.iter().find(named).map(|dtype| Type::Tensor(*dtype));
    let sequence = || inside("seq(").map(Type::Sequence);
    let map = || {
        let (key, value) = name.strip_prefix("map(")?.strip_suffix(')')?.split_once(',')?;
        let key = if key == "string" { DataType::String } else { DataType::Int64 };
        let Some(Type::Tensor(value)) = parse(value) else { return None };
        Some(Type::Map(key, value))
    };
    let optional = || inside("optional(").map(Type::Optional);
    tensor.or_else(sequence).or_else(optional).or_else(map)
}
