//! The names of a graph or function body that is being made: which may be used, which given.

use std::collections::BTreeSet;
use std::rc::Rc;

use onnx_container::proto::{NodeProto, TensorProto, ValueInfoProto};

use super::Choices;
use super::values::Parameter;

/// What a value is. Every vector has two elements, so that all operators fit all operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Vector,
    Scalar,
    Bool,
    Count,
    /// Something that nothing takes.
    Other,
}

impl Kind {
    pub fn info(self, name: &(impl AsRef<[u8]> + ?Sized)) -> ValueInfoProto {
        let name = name.as_ref();
        match self {
            Self::Vector => ValueInfoProto::tensor(name, TensorProto::FLOAT, [2]),
            Self::Scalar => ValueInfoProto::tensor(name, TensorProto::FLOAT, []),
            Self::Bool => ValueInfoProto::tensor(name, TensorProto::BOOL, []),
            Self::Count | Self::Other => ValueInfoProto::tensor(name, TensorProto::INT64, []),
        }
    }
}

/// Names of values and nodes, few of them, some as an inliner would make them.
const NAMES: &[&str] = &[
    "a", "b", "x", "y", "t", "t__1", "t__2", "a__1", "a__1_1", "x__1", "x__2", "y__1", "y__2", "c",
    "v 1", "n", "n__1", "b__1", "b__2", "b__3",
];

#[derive(Debug, Clone)]
struct Value {
    name: String,
    kind: Kind,
    may_be_absent: bool,
    computed: bool,
}

#[derive(Debug)]
pub struct Body {
    pub nodes: Vec<NodeProto>,
    /// Nodes, with those of functions that are called and those of subgraphs.
    pub size: usize,
    /// The number of graphs around.
    pub depth: usize,
    pub parameters: Rc<[Parameter]>,
    /// Names that this graph may not give for what graphs inside do: they use them or, where they
    /// are to be `separate`, give them.
    used: BTreeSet<String>,
    values: Vec<Value>,
    own: BTreeSet<String>,
    outer: BTreeSet<String>,
    /// Whether names of outer graphs may be given again, as function bodies do.
    shadowing: bool,
    /// Whether a name of a graph inside may not be given again later; the format allows it,
    /// onnxruntime does not.
    separate: bool,
}

impl Body {
    pub fn graph(separate: bool) -> Self {
        Self::function([].into(), false, separate)
    }

    pub fn function(parameters: Rc<[Parameter]>, shadowing: bool, separate: bool) -> Self {
        let [used, own, outer] = [const { BTreeSet::new() }; 3];
        let (nodes, values) = (Vec::new(), Vec::new());
        Self { nodes, size: 0, depth: 0, parameters, used, values, own, outer, shadowing, separate }
    }

    /// The body of a graph inside, which sees what is defined by now.
    pub fn inside(&self) -> Self {
        let mut body = Self::function(self.parameters.clone(), self.shadowing, self.separate);
        body.depth = self.depth + 1;
        body.values = self.values.clone();
        body.outer = self.outer.union(&self.own).cloned().collect();
        body
    }

    /// Takes note of what a graph inside has used, when it is done.
    pub fn leave(&mut self, inner: &Self) {
        self.size += inner.size;
        self.used.extend(inner.used.iter().cloned());
        if self.separate {
            self.used.extend(inner.own.iter().cloned());
        }
    }

    fn may_define(&self, name: &str) -> bool {
        let shadows = !self.shadowing && self.outer.contains(name);
        !self.own.contains(name) && !self.used.contains(name) && !shadows
    }

    fn add(&mut self, choices: &mut Choices, value: Value) -> String {
        let picked = (0..4).map(|_| *choices.pick(NAMES)).find(|name| self.may_define(name));
        let name = picked.map_or_else(
            || (0..).map(|i| format!("v{i}")).find(|name| self.may_define(name)).unwrap(),
            str::to_owned,
        );
        self.values.retain(|value| value.name != name);
        self.own.insert(name.clone());
        self.values.push(Value { name: name.clone(), ..value });
        name
    }

    fn new_value(kind: Kind) -> Value {
        Value { name: String::new(), kind, may_be_absent: false, computed: false }
    }

    /// A new name for a value that is there from the start.
    pub fn define(&mut self, choices: &mut Choices, kind: Kind) -> String {
        self.add(choices, Self::new_value(kind))
    }

    pub fn define_formal(&mut self, choices: &mut Choices, kind: Kind, absent: bool) -> String {
        self.add(choices, Value { may_be_absent: absent, ..Self::new_value(kind) })
    }

    /// A new name for the output of a node.
    pub fn compute(&mut self, choices: &mut Choices, kind: Kind) -> String {
        self.add(choices, Value { computed: true, ..Self::new_value(kind) })
    }

    /// The name of a node: any, and the same twice if it comes so.
    pub fn node_name(choices: &mut Choices) -> String {
        (*choices.pick(NAMES)).to_owned()
    }

    /// A value of this kind to use, if there is one.
    pub fn take(&mut self, choices: &mut Choices, kind: Kind, absent: bool) -> Option<String> {
        let fits = |v: &&Value| v.kind == kind && (absent || !v.may_be_absent);
        // The last ones come first, so that what is computed is used.
        let names: Vec<_> = self.values.iter().rev().filter(fits).map(|v| &v.name).collect();
        let name = if names.is_empty() { return None } else { (*choices.pick(&names)).clone() };
        if !self.own.contains(&name) {
            self.used.insert(name.clone());
        }
        Some(name)
    }

    fn own_values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().filter(|v| self.own.contains(&v.name) && !v.may_be_absent)
    }

    /// The values of this kind that are defined here.
    pub fn own(&self, kind: Kind) -> Vec<String> {
        self.own_values().filter(|v| v.kind == kind).map(|v| v.name.clone()).collect()
    }

    /// The values of this kind that nodes of this very graph compute.
    pub fn computed(&self, kind: Kind) -> Vec<String> {
        self.all_computed().filter(|(_, k)| *k == kind).map(|(name, _)| name).collect()
    }

    pub fn all_computed(&self) -> impl Iterator<Item = (String, Kind)> {
        let known = |v: &&Value| v.computed && v.kind != Kind::Other;
        self.own_values().filter(known).map(|v| (v.name.clone(), v.kind))
    }

    /// The inputs of a function that a call may leave out.
    pub fn may_be_absent(&self) -> Vec<String> {
        self.values.iter().filter(|v| v.may_be_absent).map(|v| v.name.clone()).collect()
    }

    /// Every name that surely stands for a value here.
    pub fn names(&self) -> Vec<String> {
        self.own_values().map(|v| v.name.clone()).collect()
    }
}
