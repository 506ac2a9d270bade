//! Whether the names of a model's graphs fit together.
//!
//! A node's inputs have to be defined before it, each value once, every output by something, and
//! every domain that is used has to be imported. The rules of scopes are the specification's: a
//! subgraph sees what was defined before its node, in all graphs around it, and may hide those
//! names by its own inputs and initializers but not by outputs of nodes; a function sees only its
//! own inputs. What operators do with the values is left to readers. One walk, in linear time;
//! training graphs take no part, as in onnx.checker.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::attributes::Fault;
use super::described::{described, domain_name, overload, short, text, value_name};
use super::finding::{Findings, Severity};
use super::missing::Missing;
use super::scopes::Names;
use super::{attributes, calls, functions, sparse, types};
use crate::error::{Error, ErrorKind};
use crate::graph::inline::{Callable, is_reference};
use crate::graph::opset::{has_operator, normalized, same_operator};
use crate::limits::Limits;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    ValueInfoProto,
};
use crate::wire::Str;

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
    let callable = Callable::new(&model.functions);
    let mut walk = Walk::new(model.ir_version.unwrap_or_default(), callable.as_ref().ok(), limits);
    walk.imports(&model.opset_import);
    walk.of_model = walk.sets.clone();
    if let Some(graph) = &model.graph {
        walk.graph(graph);
        walk.report_missing();
    }
    // A model with nodes gets an error for each domain that they use.
    if model.opset_import.is_empty() && walk.ir_version >= 3 && walk.report.nodes == 0 {
        let reason = "the model imports no operator set, which readers refuse since IR version 3";
        walk.error(None, || reason);
    }
    walk.metadata(model);
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
    if let Err(error) = &callable
        && distinct
    {
        let error = error.clone();
        walk.report.findings.add(Severity::Error, || error);
    }
    walk.report
}

/// What a reported name is the name of.
#[derive(PartialEq, Eq, Hash)]
enum Of {
    Domain,
    Value,
}

struct Walk<'m> {
    names: Names<'m>,
    /// The functions that nodes call, where they are well formed.
    callable: Option<&'m Callable<'m>>,
    /// The graphs around the point: nodes with their attributes, and functions.
    path: Vec<String>,
    /// The path joined, where a name of the present graph was missing.
    joined: Option<Rc<str>>,
    /// The imported domains of the model or of the function that is walked, with their versions.
    sets: HashMap<&'m [u8], i64>,
    /// Those of the model.
    of_model: HashMap<&'m [u8], i64>,
    /// Whether the walk is in a function.
    in_function: bool,
    /// The first node of the function whose operator means something else in the model.
    other: Option<&'m NodeProto>,
    /// Values and domains that were reported: once for each function, and for the main graph.
    reported: HashSet<(Of, &'m [u8])>,
    missing: Vec<Missing<'m>>,
    ir_version: i64,
    report: GraphReport,
}

impl<'m> Walk<'m> {
    fn new(ir_version: i64, callable: Option<&'m Callable<'m>>, limits: &Limits) -> Self {
        let findings = Findings::new(limits);
        Self {
            names: Names::default(),
            callable,
            path: Vec::new(),
            joined: None,
            sets: HashMap::new(),
            of_model: HashMap::new(),
            in_function: false,
            other: None,
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

    /// Reports keys of the model's metadata that are there twice.
    fn metadata(&mut self, model: &'m ModelProto) {
        let mut known = HashSet::new();
        for key in model.metadata_props.iter().map(|entry| text(&entry.key)) {
            if !known.insert(key) {
                self.find(Severity::Advice, None, || {
                    let key = short(key);
                    format!("two entries of `metadata_props` have the key `{key}`, which onnx.checker refuses")
                });
            }
        }
    }

    /// Takes the operator sets of a model or function.
    fn imports(&mut self, imports: &'m [OperatorSetIdProto]) {
        self.sets.clear();
        self.reported.clear();
        for import in imports {
            let domain = normalized(text(&import.domain));
            let version = import.version.unwrap_or_default();
            if domain.is_empty() && version < 1 {
                let reason = "and the operators of ONNX begin with version 1: readers refuse it";
                self.error(None, || match import.version {
                    Some(version) => format!("operator set {version} is imported, {reason}"),
                    None => format!("an operator set without a version is imported, {reason}"),
                });
            }
            if let Some(before) = self.sets.insert(domain, version) {
                self.find(Severity::Advice, None, || {
                    let name = domain_name(domain);
                    format!("domain `{name}` is imported twice, with versions {before} and {version}: readers differ on which counts")
                });
            }
        }
    }

    /// Reports what is wrong with something that `what` describes.
    fn fault(&mut self, what: impl FnOnce() -> String, fault: Option<Fault>) {
        if let Some((severity, reason)) = fault {
            self.find(severity, None, || format!("{} {reason}", what()));
        }
    }

    fn function(&mut self, function: &'m FunctionProto) {
        let name = format!("{}::{}", short(text(&function.domain)), short(text(&function.name)));
        self.enter(name);
        for fault in functions::faults(function) {
            self.fault(|| "the function".to_owned(), Some(fault));
        }
        self.imports(&function.opset_import);
        self.names.enter();
        for input in &function.input {
            self.input(input.as_bytes(), "two inputs of the function have this name");
        }
        for default in &function.attribute_proto {
            let what = || format!("the default of attribute `{}`", short(text(&default.name)));
            self.fault(what, attributes::fault(default, true));
        }
        self.types(&function.value_info);
        self.in_function = true;
        self.nodes(&function.node);
        if let Some(node) = self.other.take() {
            self.find(Severity::Advice, None, || {
                let user = described(node);
                format!("{user} is another operator in the model's version of its domain, which onnx.checker refuses")
            });
        }
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
        for values in [&graph.input, &graph.output, &graph.value_info] {
            self.types(values);
        }
        self.initializers(graph);
        self.initialized(graph);
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

    /// Reports element types that there are not.
    fn types(&mut self, values: &'m [ValueInfoProto]) {
        for value in values {
            if let Some(number) = types::unknown_element(value.r#type.as_deref()) {
                self.error(Some(value_name(value)), || {
                    format!("has the element type {number}, which ONNX does not have; onnxruntime refuses it")
                });
            }
            if let Some(key) = types::unusual_key(value.r#type.as_deref()) {
                self.error(Some(value_name(value)), || {
                    format!("is a map with keys of {key}, and keys are integers or strings")
                });
            }
        }
    }

    /// Notes the first operator of a function that means something else in the model's version of
    /// its domain.
    fn compare_sets(&mut self, node: &'m NodeProto, domain: &[u8]) {
        let versions = self.sets.get(domain).zip(self.of_model.get(domain));
        let versions = versions.filter(|(own, of_model)| **own > 0 && **of_model > 0);
        if let Some((own, of_model)) = versions.filter(|_| self.in_function && self.other.is_none())
            && !same_operator(domain, text(&node.op_type), *own, *of_model)
        {
            self.other = Some(node);
        }
    }

    fn input(&mut self, name: &'m [u8], twice: &str) {
        if name.is_empty() {
            self.error(None, || "an input has no name");
        } else if self.names.is_here(name) {
            self.error(Some(name), || twice);
        }
        self.names.define(name);
    }

    fn initializers(&mut self, graph: &'m GraphProto) {
        let mut own = HashSet::new();
        let dense = graph.initializer.iter().map(|tensor| text(&tensor.name));
        let sparse = graph.sparse_initializer.iter();
        for tensor in &graph.sparse_initializer {
            let name = || {
                let name = tensor.values.as_ref().map_or(&b""[..], |values| text(&values.name));
                format!("initializer `{}`:", short(name))
            };
            self.fault(name, sparse::fault(tensor));
        }
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
                let reason =
                    "the initializer is not a graph input, as IR versions before 4 require";
                self.find(Severity::Advice, Some(name), || reason);
            }
            self.names.define(name);
        }
    }

    /// Reports initializers that are not what the inputs of their names declare.
    fn initialized(&mut self, graph: &'m GraphProto) {
        if graph.initializer.is_empty() {
            return;
        }
        let types = |input: &'m ValueInfoProto| (value_name(input), input.r#type.as_deref());
        let declared: HashMap<_, _> = graph.input.iter().map(types).collect();
        for initializer in &graph.initializer {
            let name = text(&initializer.name);
            let declared = declared.get(name).copied().flatten();
            if let Some(what) = types::unlike(initializer, declared) {
                self.error(Some(name), || {
                    format!("an initializer of another {what} than the input of this name, which onnxruntime refuses")
                });
            }
        }
    }

    fn nodes(&mut self, nodes: &'m [NodeProto]) {
        for node in nodes {
            self.report.nodes += 1;
            self.operator(node);
            for input in &node.input {
                self.used(input.as_bytes(), node);
            }
            self.attributes(node);
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
        let version = self.sets.get(domain).copied().or((self.ir_version < 3).then_some(1));
        if version.is_none() && self.reported.insert((Of::Domain, domain)) {
            self.error(None, || {
                let (name, user) = (domain_name(domain), described(node));
                format!("no operator set is imported for domain `{name}` of {user}")
            });
        }
        self.compare_sets(node, domain);
        let name = text(&node.op_type);
        let callee = self.callable.and_then(|callable| callable.callee(node));
        let fault = match callee {
            // Readers take it for a call of the operator.
            Some(_) if has_operator(domain, name) => None,
            Some(_) if domain.is_empty() => {
                let reason =
                    "calls a function in the domain of ONNX, where readers look for operators only";
                Some((Severity::Error, reason.to_owned()))
            }
            Some((_, function)) => calls::of_call(node, function),
            None => calls::of_operator(node, domain, version.unwrap_or_default()),
        };
        self.fault(|| described(node), fault);
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

    /// Checks that all readers take the attributes for the same.
    fn attributes(&mut self, node: &'m NodeProto) {
        let mut known = HashSet::new();
        for attribute in &node.attribute {
            let name = text(&attribute.name);
            let what = || format!("attribute `{}` of {}", short(name), described(node));
            self.fault(what, attributes::fault(attribute, false));
            if !self.in_function && is_reference(attribute) {
                let reason = "refers to a function's attribute, but the node is in no function: readers take the default";
                self.fault(what, Some((Severity::Advice, reason.to_owned())));
            }
            if node.attribute.len() > 1 && !known.insert(name) {
                let twice =
                    "occurs twice: readers refuse it, or differ on which one counts".to_owned();
                self.fault(what, Some((Severity::Error, twice)));
            }
            let one = attribute.sparse_tensor.as_deref().into_iter();
            for tensor in one.chain(&attribute.sparse_tensors) {
                self.fault(|| format!("{}:", what()), sparse::fault(tensor));
            }
            self.subgraphs(node, attribute);
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
        if name.is_empty() {
            self.error(None, || "an output has no name, which readers refuse");
        }
        if name.is_empty() || self.names.is_here(name) {
            return;
        }
        let reason = if self.names.is_visible(name) {
            "an outer graph defines this output: it has to pass through an Identity here"
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
