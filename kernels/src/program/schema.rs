//! What a node may have by the schemas of ONNX: attributes, inputs, outputs and their types, for
//! every version.
//!
//! `schema/operators.tsv` is generated from the schemas of onnx, and `schema/contrib.tsv` from
//! those of onnxruntime for its own operators that have kernels. Kernels read what they need and
//! trust that a node has nothing else: an attribute that no kernel reads would be ignored, and one
//! of another version obeyed. Which nodes are held to their schema is left to the machine: a kernel
//! of the user takes what it likes.

mod types;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::OrBug;
use crate::value::Type;
use types::Types;

/// The most type variables that a schema has.
const VARIABLES: usize = 8;

/// What a node has, as it is held to its schema.
#[derive(Debug)]
pub struct Written<'n> {
    /// The domain; that of ONNX is empty.
    pub domain: &'n str,
    /// The operator.
    pub op_type: &'n str,
    /// The version of the domain that the model imports.
    pub version: i64,
    /// The attributes with the letter of their kind in the table.
    pub attributes: Vec<(&'n str, char)>,
    /// For each input, whether it is there.
    pub inputs: Vec<bool>,
    /// How many outputs there are.
    pub outputs: usize,
}

/// What the operator of a node is at the version that its model imports.
#[derive(Debug, Clone, Copy)]
pub enum Meaning {
    /// Not one of ONNX.
    Custom,
    /// What this schema says.
    Schema(&'static Schema),
    /// Not known: the operators of the domain are known up to this version.
    TooNew(i64),
    /// None yet: the operator came with this version.
    NotYet(i64),
    /// None any more: this version deprecated the operator.
    Deprecated(i64),
}

/// One version of an operator.
pub struct Schema {
    since: i64,
    is_deprecated: bool,
    input_count: Count,
    output_count: Count,
    attributes: Vec<AttributeSchema>,
    inputs: Vec<Formal>,
    outputs: Vec<Formal>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("since", &self.since).finish_non_exhaustive()
    }
}

/// The least and the most of something.
#[derive(Debug, Clone, Copy)]
struct Count(usize, usize);

#[derive(Debug)]
struct AttributeSchema {
    name: &'static str,
    kind: char,
    is_required: bool,
}

/// An input or output of a schema.
#[derive(Debug)]
struct Formal {
    name: &'static str,
    /// The type variable; `None` where each has a type of its own.
    variable: Option<usize>,
    types: Types,
    is_optional: bool,
    is_variadic: bool,
}

/// The versions of each operator by domain and name, ascending.
type Operators = HashMap<&'static str, HashMap<&'static str, Vec<Schema>>>;

static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
    let mut operators = Operators::new();
    for table in [include_str!("schema/operators.tsv"), include_str!("schema/contrib.tsv")] {
        let read = read(table, &mut operators);
        debug_assert!(read.is_ok(), "the table of operators: {read:?}");
    }
    operators
});

/// Adds the operators of `table`, whose sets of types have numbers of their own.
fn read(table: &'static str, operators: &mut Operators) -> Result<()> {
    let mut sets = HashMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().or_bug("too few columns");
        let first = next()?;
        if first.starts_with('=') {
            sets.insert(first, Types::new(next()?));
            continue;
        }
        let domain = if first == "ai.onnx" { "" } else { first };
        let (name, since, is_deprecated) =
            (next()?, next()?.parse().or_bug("no version")?, !next()?.is_empty());
        let (input_count, output_count) = (Count::new(next()?)?, Count::new(next()?)?);
        let attributes = items(next()?).map(AttributeSchema::new).collect::<Result<_>>()?;
        let mut variables = Vec::new();
        let mut formals =
            || items(next()?).map(|item| Formal::new(item, &sets, &mut variables)).collect();
        let (inputs, outputs): (Result<_>, Result<_>) = (formals(), formals());
        let (inputs, outputs) = (inputs?, outputs?);
        let schema =
            Schema { since, is_deprecated, input_count, output_count, attributes, inputs, outputs };
        operators.entry(domain).or_default().entry(name).or_default().push(schema);
    }
    Ok(())
}

fn items(column: &'static str) -> impl Iterator<Item = &'static str> {
    column.split(' ').filter(|item| !item.is_empty())
}

impl Count {
    fn new(range: &str) -> Result<Self> {
        let (least, most) = range.split_once("..").or_bug("no range")?;
        let number = |text: &str| text.parse().or_bug("no number");
        Ok(Self(number(least)?, if most.is_empty() { usize::MAX } else { number(most)? }))
    }

    fn check(self, found: usize, what: &str) -> Result<()> {
        let Self(least, most) = self;
        if (least..=most).contains(&found) {
            return Ok(());
        }
        let takes = match (least, most) {
            (least, usize::MAX) => format!("{least} or more"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let reason = format!("the node has {found} {what}, the operator {takes}");
        Err(Error::new(ErrorKind::InvalidModel, reason))
    }
}

impl AttributeSchema {
    fn new(item: &'static str) -> Result<Self> {
        let (name, kind) = item.split_once(':').or_bug("an attribute without a kind")?;
        let is_required = kind.ends_with('!');
        let kind = kind.chars().next().or_bug("an attribute without a kind")?;
        Ok(Self { name, kind, is_required })
    }
}

impl Formal {
    fn new(
        item: &'static str,
        sets: &HashMap<&str, Types>,
        variables: &mut Vec<&'static str>,
    ) -> Result<Self> {
        let (name, types) = item.split_once(':').or_bug("a value without types")?;
        let (variable, set) = types.split_at(types.find('=').or_bug("a value without types")?);
        let known = variables.iter().position(|other| *other == variable);
        let variable = (!variable.is_empty() && !name.ends_with('~')).then(|| {
            known.unwrap_or_else(|| {
                variables.push(variable);
                variables.len() - 1
            })
        });
        let is_variadic = name.ends_with(['*', '~']);
        let types = sets.get(set).copied().or_bug("an unknown set of types")?;
        let is_optional = name.ends_with('?');
        let name = name.trim_end_matches(['?', '*', '~']);
        Ok(Self { name, variable, types, is_optional, is_variadic })
    }
}

impl Meaning {
    /// What `op_type` of `domain`, of which the model imports `version`, means.
    pub(crate) fn of(domain: &str, op_type: &str, version: i64) -> Self {
        let Some(operators) = OPERATORS.get(domain) else { return Self::Custom };
        let Some(versions) = operators.get(op_type) else { return Self::Custom };
        let newest = newest(domain);
        if version > newest {
            return Self::TooNew(newest);
        }
        // An operator that was deprecated from its first version on has no other meaning than that
        // one.
        let is_first =
            |schema: &Schema| versions.first().is_some_and(|first| first.since == schema.since);
        match versions.iter().rfind(|schema| schema.since <= version) {
            Some(schema) if schema.is_deprecated && !is_first(schema) => {
                Self::Deprecated(schema.since)
            }
            Some(schema) => Self::Schema(schema),
            None => Self::NotYet(versions.first().map_or(0, |first| first.since)),
        }
    }

    /// Whether the operator is known and takes what is `written`.
    ///
    /// # Errors
    /// What the node has that the operator has not, or the other way round.
    pub fn check(self, written: &Written<'_>) -> Result<()> {
        let version = written.version;
        let (kind, reason) = match self {
            Self::Custom => return Ok(()),
            Self::Schema(schema) => return schema.check(written),
            Self::TooNew(newest) => (
                ErrorKind::UnsupportedOp,
                format!(
                    "the model imports version {version} of `{}`, the newest that is known is {newest}",
                    shown_domain(written.domain)
                ),
            ),
            Self::NotYet(since) => (
                ErrorKind::InvalidModel,
                format!(
                    "there is no such operator at version {version}: it came with version {since}"
                ),
            ),
            Self::Deprecated(since) => (
                ErrorKind::InvalidModel,
                format!(
                    "there is no such operator at version {version}: version {since} deprecated it"
                ),
            ),
        };
        Err(Error::new(kind, reason))
    }
}

fn shown_domain(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// The newest version of `domain` that has operators here.
fn newest(domain: &str) -> i64 {
    static NEWEST: LazyLock<HashMap<&str, i64>> = LazyLock::new(|| {
        let newest = |operators: &HashMap<_, Vec<Schema>>| {
            operators.values().flatten().map(|schema| schema.since).fold(0, i64::max)
        };
        OPERATORS.iter().map(|(domain, operators)| (*domain, newest(operators))).collect()
    });
    NEWEST.get(domain).map_or(0, |newest| *newest)
}

impl Schema {
    fn check(&self, written: &Written<'_>) -> Result<()> {
        let refused = |kind, reason: String| Err(Error::new(kind, reason));
        for (name, letter) in &written.attributes {
            let Some(schema) = self.attributes.iter().find(|schema| schema.name == *name) else {
                let (version, other) = (written.version, other_version(written, name, self.since));
                let reason =
                    format!("the operator has no attribute `{name}` at version {version}{other}");
                return refused(ErrorKind::InvalidModel, reason);
            };
            if schema.kind != *letter {
                let reason =
                    format!("attribute `{name}` is {}, not {}", kind(*letter), kind(schema.kind));
                return refused(ErrorKind::InvalidModel, reason);
            }
        }
        let has = |name: &str| written.attributes.iter().any(|(other, _)| *other == name);
        if let Some(missing) =
            self.attributes.iter().find(|schema| schema.is_required && !has(schema.name))
        {
            return refused(
                ErrorKind::InvalidModel,
                format!("attribute `{}` is missing", missing.name),
            );
        }
        self.input_count.check(written.inputs.len(), "inputs")?;
        self.output_count.check(written.outputs, "outputs")?;
        let absent = |(i, has): (usize, &bool)| {
            self.input(i)
                .filter(|formal| !has && !formal.is_optional)
                .map(|formal| (i, formal.name))
        };
        match written.inputs.iter().enumerate().find_map(absent) {
            Some((i, name)) => {
                refused(ErrorKind::Input, format!("input {i} (`{name}`) is missing"))
            }
            None => Ok(()),
        }
    }

    /// What input `i` may be.
    fn input(&self, i: usize) -> Option<&Formal> {
        at(&self.inputs, i)
    }

    /// Whether inputs may have these types, of which `types` knows some.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] for the first that may not.
    pub(crate) fn check_types(
        &self,
        count: usize,
        types: impl Fn(usize) -> Option<Type>,
    ) -> Result<()> {
        self.bind(count, types).map(|_| ())
    }

    /// The type of each type variable, and the input that told it, as far as inputs of these types
    /// tell.
    fn bind(&self, count: usize, types: impl Fn(usize) -> Option<Type>) -> Result<Bound> {
        let mut bound = Bound::default();
        for i in 0..count {
            let (Some(ty), Some(formal)) = (types(i), self.input(i)) else { continue };
            // In a loop that carries an optional, the element itself stands for an optional that
            // has one.
            let optional = || Type::Optional(Box::new(ty.clone()));
            if !formal.types.contains(&ty) && !formal.types.contains(&optional()) {
                let reason = format!(
                    "the operator does not take {} as input {i} (`{}`)",
                    shown(&ty),
                    formal.name
                );
                return Err(Error::new(ErrorKind::Type, reason));
            }
            let Some(slot) = formal.variable.and_then(|variable| bound.get_mut(variable)) else {
                continue;
            };
            match slot {
                Some((first, other)) if *other != ty => {
                    let (ty, other) = (shown(&ty), shown(other));
                    let reason = format!(
                        "input {i} is {ty}, input {first} {other}: they have to be of one type"
                    );
                    return Err(Error::new(ErrorKind::Type, reason));
                }
                _ => *slot = Some((i, ty)),
            }
        }
        Ok(bound)
    }

    /// The types of `outputs` outputs when inputs have these types, as far as these and what
    /// attributes state tell.
    ///
    /// # Errors
    /// As [`check_types`](Self::check_types).
    pub(crate) fn output_types(
        &self,
        (inputs, outputs): (usize, usize),
        types: impl Fn(usize) -> Option<Type>,
        stated: Option<DataType>,
    ) -> Result<Vec<Option<Type>>> {
        let bound = self.bind(inputs, &types)?;
        let is_open = |formal: &&Formal| {
            let is_bound = |variable| bound.get(variable).is_some_and(Option::is_some);
            !formal.variable.is_some_and(is_bound) && formal.types.only().is_none()
        };
        let takes = |formal: &Formal, dtype| {
            !formal.types.has_tensors() || formal.types.contains(&Type::Tensor(dtype))
        };
        for formal in self.outputs.iter().filter(is_open) {
            if let Some(dtype) = stated.filter(|dtype| !takes(formal, *dtype)) {
                let reason = format!("the operator does not give elements of type {dtype}");
                return Err(Error::new(ErrorKind::Type, reason));
            }
        }
        let of = |j: usize| {
            let formal = at(&self.outputs, j)?;
            let variable = formal.variable.and_then(|variable| bound.get(variable)?.as_ref());
            let variable = variable.map(|(_, ty)| ty.clone());
            let stated = stated.map(Type::Tensor).filter(|ty| formal.types.contains(ty));
            variable
                .or_else(|| formal.types.only())
                .or(stated)
                .or_else(|| derived(types(0), formal))
        };
        Ok((0..outputs).map(of).collect())
    }
}

/// The types of type variables, with the number of the input that has each.
type Bound = [Option<(usize, Type)>; VARIABLES];

/// The formal of number `i`, of which the last may repeat.
fn at(formals: &[Formal], i: usize) -> Option<&Formal> {
    formals.get(i).or_else(|| formals.last().filter(|last| last.is_variadic))
}

/// The type of an output that holds input 0, or is what that holds: of a sequence and its elements.
/// `None` where the output may as well be of the type of the input.
fn derived(input: Option<Type>, formal: &Formal) -> Option<Type> {
    let ty = input.filter(|ty| !formal.types.contains(ty))?;
    let inner = match &ty {
        Type::Sequence(element) | Type::Optional(element) => Some((**element).clone()),
        Type::Tensor(_) | Type::Map(..) => None,
    };
    let outer = [Type::Sequence(Box::new(ty.clone())), Type::Optional(Box::new(ty.clone()))];
    let mut fitting = outer.into_iter().chain(inner).filter(|ty| formal.types.contains(ty));
    fitting.next().filter(|_| fitting.next().is_none())
}

/// In which other version the operator has an attribute.
fn other_version(written: &Written<'_>, name: &str, since: i64) -> String {
    let versions =
        OPERATORS.get(written.domain).and_then(|operators| operators.get(written.op_type));
    let has = |schema: &&Schema| schema.attributes.iter().any(|schema| schema.name == name);
    let with: Vec<_> =
        versions.into_iter().flatten().filter(has).map(|schema| schema.since).collect();
    let earlier = with.iter().rfind(|other| **other < since);
    match (earlier, with.iter().find(|other| **other > since)) {
        (Some(earlier), _) => format!(": it was one at version {earlier}"),
        (None, Some(later)) => format!(": it came with version {later}"),
        (None, None) => String::new(),
    }
}

fn shown(ty: &Type) -> String {
    match ty {
        Type::Tensor(dtype) => format!("elements of type {dtype}"),
        ty => ty.to_string(),
    }
}

/// What the letter of the table for a kind of attribute stands for.
pub(crate) fn kind(letter: char) -> &'static str {
    match letter {
        'f' => "a float",
        'i' => "an integer",
        's' => "a string",
        't' => "a tensor",
        'x' => "a sparse tensor",
        'g' => "a graph",
        'p' => "a type",
        'F' => "floats",
        'I' => "integers",
        'S' => "strings",
        'T' => "tensors",
        _ => "graphs",
    }
}
