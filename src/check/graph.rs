//! Whether the names of a model's graphs fit together.
//!
//! A node's inputs have to be defined before it, each value once, every output by something, and
//! every domain that is used has to be imported. The rules of scopes are the specification's: a
//! subgraph sees what was defined before its node, in all graphs around it, and may hide those names
//! by its own inputs and initializers but not by outputs of nodes; a function sees only its own
//! inputs. What operators do with the values is left to readers. One walk, in linear time; training
//! graphs take no part, as in onnx.checker.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::finding::{Findings, Severity};
use crate::error::{Error, ErrorKind};
use crate::inline::Callable;
use crate::limits::Limits;
use crate::opset::normalized;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    ValueInfoProto,
};
use crate::wire::{Str, has_no_value};

/// What was looked at, and what was found.
#[derive(Debug)]
pub(super) struct GraphReport {
    pub(super) findings: Findings,
    /// The main graph and all subgraphs, those in functions too.
    pub(super) graphs: usize,
    pub(super) nodes: usize,
}

/// Checks the names in the main graph and the functions of `model`.
pub(super) fn check(model: &ModelProto, limits: &Limits) -> GraphReport {
    let mut walk = Walk::new(model.ir_version.unwrap_or_default(), limits);
    walk.imports(&model.opset_import);
    if let Some(graph) = &model.graph {
        walk.graph(graph);
        walk.report_missing();
    }
    // A model with nodes gets an error for each domain that they use.
    if model.opset_import.is_empty() && walk.ir_version >= 3 && walk.report.nodes == 0 {
        let reason = "the model imports no operator set, which readers refuse since IR version 3";
        walk.error(None, || reason);
    }
    let mut known = HashSet::new();
    let mut distinct = true;
    for function in &model.functions {
        if !known.insert((text(&function.domain), text(&function.name), overload(function))) {
            walk.error(None, || "another function has this domain, name and overload");
            distinct = false;
        }
        walk.function(function);
    }
    // Which of two functions with one name is called is not known.
    if let Err(error) = Callable::new(&model.functions)
        && distinct
    {
        walk.report.findings.add(Severity::Error, || error);
    }
    walk.report
}

/// The bytes of a name; no name is the empty one, as in protobuf.
fn text(name: &Option<Str>) -> &[u8] {
    name.as_ref().map_or(b"", Str::as_bytes)
}

fn overload(function: &FunctionProto) -> &[u8] {
    function.overload.as_ref().map_or(b"", |overload| overload.as_bytes())
}

/// The beginning of a name, for messages: a hostile one may have megabytes.
pub(super) fn short(name: &[u8]) -> Cow<'_, str> {
    match name.get(..100) {
        Some(start) => Cow::Owned(format!("{}...", String::from_utf8_lossy(start))),
        None => String::from_utf8_lossy(name),
    }
}

/// The names that can be seen at a point of the walk, each with the innermost graph that defines it.
#[derive(Default)]
struct Names<'m> {
    depths: HashMap<&'m [u8], usize>,
    /// For each graph around the point, what its definitions took the place of.
    hidden: Vec<Vec<(&'m [u8], Option<usize>)>>,
}

impl<'m> Names<'m> {
    fn enter(&mut self) {
        self.hidden.push(Vec::new());
    }

    fn leave(&mut self) {
        for (name, before) in self.hidden.pop().into_iter().flatten().rev() {
            match before {
                Some(depth) => self.depths.insert(name, depth),
                None => self.depths.remove(name),
            };
        }
    }

    /// Defines `name` in the innermost graph.
    fn define(&mut self, name: &'m [u8]) {
        let depth = self.hidden.len();
        let before = self.depths.insert(name, depth);
        if let Some(hidden) = self.hidden.last_mut()
            && before != Some(depth)
        {
            hidden.push((name, before));
        }
    }

    fn is_here(&self, name: &[u8]) -> bool {
        self.depths.get(name) == Some(&self.hidden.len())
    }

    fn is_visible(&self, name: &[u8]) -> bool {
        self.depths.contains_key(name)
    }
}

/// An input that nothing defined before its node.
struct Missing<'m> {
    name: &'m [u8],
    node: &'m NodeProto,
    /// The graphs around the node, joined; none in the main graph.
    within: Option<Rc<str>>,
    /// Whether the value is defined, but after the node.
    late: bool,
}

impl Missing<'_> {
    fn error(&self) -> Error {
        let mut user = described(self.node);
        if let Some(within) = &self.within {
            user = format!("{user} in `{within}`");
        }
        let reason = if self.late {
            format!("input of {user}, which stands before the node that defines it")
        } else {
            format!("input of {user}, which nothing defines")
        };
        Error::new(ErrorKind::InvalidModel, reason).with_tensor(short(self.name))
    }
}

/// What a reported name is the name of.
#[derive(PartialEq, Eq, Hash)]
enum Of {
    Domain,
    Value,
}

struct Walk<'m> {
    names: Names<'m>,
    /// The graphs around the point: nodes with their attributes, and functions.
    path: Vec<String>,
    /// The path joined, where a name of the present graph was missing.
    joined: Option<Rc<str>>,
    /// The imported domains of the model or of the function that is walked.
    domains: HashSet<&'m [u8]>,
    /// Values and domains that were reported: once for each function, and for the main graph.
    reported: HashSet<(Of, &'m [u8])>,
    missing: Vec<Missing<'m>>,
    ir_version: i64,
    report: GraphReport,
}

impl<'m> Walk<'m> {
    fn new(ir_version: i64, limits: &Limits) -> Self {
        let findings = Findings::new(limits);
        Self {
            names: Names::default(),
            path: Vec::new(),
            joined: None,
            domains: HashSet::new(),
            reported: HashSet::new(),
            missing: Vec::new(),
            ir_version,
            report: GraphReport { findings, graphs: 0, nodes: 0 },
        }
    }

    fn enter(&mut self, name: String) {
        self.path.push(name);
        self.joined = None;
    }

    fn leave(&mut self) {
        self.path.pop();
        self.joined = None;
    }

    /// The graphs around the point.
    fn within(&mut self) -> Option<Rc<str>> {
        if self.path.is_empty() {
            return None;
        }
        Some(Rc::clone(self.joined.get_or_insert_with(|| self.path.join("/").into())))
    }

    fn find<R: Into<String>>(
        &mut self,
        severity: Severity,
        value: Option<&[u8]>,
        reason: impl FnOnce() -> R,
    ) {
        let path = &self.path;
        self.report.findings.add(severity, || {
            let mut reason = reason().into();
            if !path.is_empty() {
                reason = format!("in `{}`: {reason}", path.join("/"));
            }
            let error = Error::new(ErrorKind::InvalidModel, reason);
            match value {
                Some(value) => error.with_tensor(short(value)),
                None => error,
            }
        });
    }

    fn error<R: Into<String>>(&mut self, value: Option<&[u8]>, reason: impl FnOnce() -> R) {
        self.find(Severity::Error, value, reason);
    }

    /// Takes the operator sets of a model or function.
    fn imports(&mut self, imports: &'m [OperatorSetIdProto]) {
        let domains = imports.iter().map(|import| normalized(text(&import.domain)));
        self.domains = domains.collect();
        self.reported.clear();
    }

    fn function(&mut self, function: &'m FunctionProto) {
        let name = format!("{}::{}", short(text(&function.domain)), short(text(&function.name)));
        self.enter(name);
        self.imports(&function.opset_import);
        self.names.enter();
        for input in &function.input {
            self.input(input.as_bytes(), "two inputs of the function have this name");
        }
        self.nodes(&function.node);
        for output in &function.output {
            self.output(output.as_bytes());
        }
        self.names.leave();
        self.report_missing();
        self.leave();
    }

    fn graph(&mut self, graph: &'m GraphProto) {
        self.report.graphs += 1;
        self.names.enter();
        let outer = std::mem::take(&mut self.missing);
        if text(&graph.name).is_empty() {
            let reason = "a graph has no name, which onnx.checker refuses";
            self.find(Severity::Advice, None, || reason);
        }
        for input in &graph.input {
            self.input(value_name(input), "two inputs have this name");
        }
        self.initializers(graph);
        self.nodes(&graph.node);
        self.node_names(&graph.node);
        for output in &graph.output {
            self.output(value_name(output));
        }
        for missing in &mut self.missing {
            missing.late |= self.names.is_here(missing.name);
        }
        let inner = std::mem::replace(&mut self.missing, outer);
        self.missing.extend(inner);
        self.names.leave();
    }

    fn input(&mut self, name: &'m [u8], twice: &str) {
        if !name.is_empty() && self.names.is_here(name) {
            self.error(Some(name), || twice);
        }
        self.names.define(name);
    }

    fn initializers(&mut self, graph: &'m GraphProto) {
        let mut own = HashSet::new();
        let dense = graph.initializer.iter().map(|tensor| text(&tensor.name));
        let sparse = graph.sparse_initializer.iter();
        let sparse =
            sparse.map(|sparse| sparse.values.as_ref().map_or(&b""[..], |v| text(&v.name)));
        for name in dense.chain(sparse) {
            if name.is_empty() {
                self.error(None, || "an initializer has no name");
                continue;
            }
            if !own.insert(name) {
                self.error(Some(name), || "two initializers have this name");
            }
            if self.ir_version < 4 && !self.names.is_here(name) {
                let reason = "an initializer that is no input, which IR versions below 4 ask for";
                self.find(Severity::Advice, Some(name), || reason);
            }
            self.names.define(name);
        }
    }

    fn nodes(&mut self, nodes: &'m [NodeProto]) {
        for node in nodes {
            self.report.nodes += 1;
            self.operator(node);
            for input in &node.input {
                self.used(input.as_bytes(), node);
            }
            for attribute in &node.attribute {
                self.kind(node, attribute);
                self.subgraphs(node, attribute);
            }
            for output in &node.output {
                self.defined(output.as_bytes(), node);
            }
        }
    }

    /// Node names are for people, except that onnxruntime takes each only once in a graph.
    fn node_names(&mut self, nodes: &'m [NodeProto]) {
        let mut known = HashSet::new();
        for name in nodes.iter().map(|node| text(&node.name)).filter(|name| !name.is_empty()) {
            if !known.insert(name) {
                self.find(Severity::Advice, None, || {
                    format!("two nodes have the name `{}`, which onnxruntime refuses", short(name))
                });
            }
        }
    }

    /// Checks that the node has an operator, of a domain that is imported.
    fn operator(&mut self, node: &'m NodeProto) {
        if text(&node.op_type).is_empty() {
            self.error(None, || format!("{} has no op_type", described(node)));
        }
        let domain = normalized(text(&node.domain));
        // Before IR version 3 there were no imports.
        let imported = self.ir_version < 3 || self.domains.contains(domain);
        if !imported && self.reported.insert((Of::Domain, domain)) {
            self.error(None, || {
                let name = if domain.is_empty() { "ai.onnx".into() } else { short(domain) };
                let user = described(node);
                format!("no operator set is imported for domain `{name}` of {user}")
            });
        }
    }

    fn used(&mut self, name: &'m [u8], node: &'m NodeProto) {
        if name.is_empty()
            || self.names.is_visible(name)
            || !self.reported.insert((Of::Value, name))
        {
            return;
        }
        let within = self.within();
        self.missing.push(Missing { name, node, within, late: false });
    }

    /// Checks that all readers take the attribute for one of the same type.
    fn kind(&mut self, node: &NodeProto, attribute: &AttributeProto) {
        if has_no_value::<AttributeProto>(&attribute.unknown) {
            self.error(None, || {
                let (name, user) = (short(text(&attribute.name)), described(node));
                format!("attribute `{name}` of {user} has a type that ONNX does not have: readers disagree on its value")
            });
        }
    }

    fn subgraphs(&mut self, node: &'m NodeProto, attribute: &'m AttributeProto) {
        for graph in attribute.g.iter().map(|graph| &**graph).chain(&attribute.graphs) {
            let names = [text(&node.name), node.output.first().map_or(b"", Str::as_bytes)];
            let own = names.into_iter().find(|name| !name.is_empty());
            let own = short(own.unwrap_or_else(|| text(&node.op_type)));
            self.enter(format!("{own}.{}", short(text(&attribute.name))));
            self.graph(graph);
            self.leave();
        }
    }

    fn defined(&mut self, name: &'m [u8], node: &NodeProto) {
        if name.is_empty() {
            return;
        }
        if self.names.is_visible(name) {
            self.error(Some(name), || {
                format!("{} defines this value, which is defined already", described(node))
            });
        }
        self.names.define(name);
    }

    fn output(&mut self, name: &'m [u8]) {
        if name.is_empty() || self.names.is_here(name) {
            return;
        }
        let reason = if self.names.is_visible(name) {
            "an output that a graph outside defines: an Identity has to stand between"
        } else {
            "an output that nothing defines"
        };
        self.error(Some(name), || reason);
    }

    /// Reports the inputs that no graph up to the outermost one defines.
    fn report_missing(&mut self) {
        for missing in std::mem::take(&mut self.missing) {
            self.report.findings.add(Severity::Error, || missing.error());
        }
    }
}

fn value_name(value: &ValueInfoProto) -> &[u8] {
    text(&value.name)
}

/// A node for messages: by its name, or its first output, with the operator.
fn described(node: &NodeProto) -> String {
    let operator = short(text(&node.op_type));
    let output = node.output.first().map_or(&b""[..], Str::as_bytes);
    match (text(&node.name), output) {
        (b"", b"") => format!("a node ({operator})"),
        (b"", output) => format!("the node of `{}` ({operator})", short(output)),
        (name, _) => format!("node `{}` ({operator})", short(name)),
    }
}
