//! Where bodies go, the model's graphs or a function that stays, and which of them may.
//!
//! A body may move where every operator that it uses means the same under the versions imported
//! there; equal version numbers are not needed. This is the rule of onnx.proto's comment on
//! `FunctionProto.opset_import`. A body that may not stays a function, with all that it calls.
//!
//! Nor may it move to a function that stays where a default of it would be lost: there an attribute may refer to one
//! that the caller has or not, and a reference cannot say what holds when nothing is given.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;

use super::calls::Calls;
use super::functions::{Functions, domain_of, each_node, each_node_of, is_reference, name_of};
use crate::opset;
use crate::proto::{FunctionProto, NodeProto, OperatorSetIdProto, Str};

/// The operator sets of a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Imports {
    versions: HashMap<Vec<u8>, i64>,
    /// Domains that the place imports itself.
    own: HashSet<Vec<u8>>,
    /// What it has to import besides.
    pub(super) added: Vec<OperatorSetIdProto>,
}

fn domain(import: &OperatorSetIdProto) -> &[u8] {
    opset::normalized(import.domain.as_ref().map(Str::as_bytes).unwrap_or_default())
}

fn version(import: &OperatorSetIdProto) -> i64 {
    import.version.unwrap_or_default()
}

impl Imports {
    /// Those of a place; what it does not import itself it has from `around`.
    pub(super) fn new(own: &[OperatorSetIdProto], around: &[OperatorSetIdProto]) -> Self {
        let both = around.iter().chain(own);
        let versions = both.map(|import| (domain(import).to_vec(), version(import))).collect();
        let own = own.iter().map(|import| domain(import).to_vec()).collect();
        Self { versions, own, added: Vec::new() }
    }

    pub(super) fn version(&self, domain: &[u8]) -> Option<i64> {
        self.versions.get(domain).copied()
    }

    /// Makes the place import `domain`, at this version if it has none.
    fn import(&mut self, domain: &[u8], version: i64) {
        let version = *self.versions.entry(domain.to_vec()).or_insert(version);
        if self.own.insert(domain.to_vec()) {
            self.added.push(OperatorSetIdProto::new(domain, version));
        }
    }
}

/// The version of `domain` that a function imports.
fn imported(function: &FunctionProto, name: &[u8]) -> Option<i64> {
    function.opset_import.iter().rfind(|import| domain(import) == name).map(version)
}

/// A place that calls are inlined into.
pub(super) struct Context<'m> {
    pub(super) functions: &'m Functions<'m>,
    pub(super) decision: Decision,
}

impl Context<'_> {
    /// The function that `node` calls and whose body takes its place here.
    pub(super) fn callee(&self, node: &NodeProto) -> Option<usize> {
        self.functions.callee(node).filter(|callee| self.decision.inlines(*callee))
    }
}

/// What was decided for a place.
#[derive(Clone)]
pub(super) struct Decision {
    /// The functions whose bodies take the place of calls, in the order in which they are met.
    pub(super) moved: Vec<usize>,
    /// Where each function stands among these.
    places: HashMap<usize, usize, RandomState>,
    /// Functions that are still called from here.
    pub(super) called: Vec<usize>,
    /// Those of them that may not move here, and why.
    pub(super) conflicts: Vec<(usize, String)>,
}

impl Decision {
    pub(super) fn inlines(&self, function: usize) -> bool {
        self.place(function).is_some()
    }

    /// Where the function stands among those that move.
    pub(super) fn place(&self, function: usize) -> Option<usize> {
        self.places.get(&function).copied()
    }

    fn add(&mut self, function: usize) {
        self.places.insert(function, self.moved.len());
        self.moved.push(function);
    }
}

/// Why a function stays that would lose a default.
const LOST: &str = "inlining would drop a default: the caller that stays passes on an attribute that it may \
                    not have";

/// Decides which functions move to a place that calls `roots`, and imports there what they need. Those
/// that would lose a default there stay.
pub(super) fn decide(
    functions: &Functions<'_>,
    calls: &Calls,
    roots: Vec<usize>,
    selected: &[bool],
    lost: &HashSet<usize>,
    imports: &mut Imports,
) -> Decision {
    let (moved, called, conflicts) = (Vec::new(), Vec::new(), Vec::new());
    let mut decision = Decision { moved, places: HashMap::default(), called, conflicts };
    let mut seen: HashSet<usize, RandomState> = HashSet::default();
    let mut next = roots;
    next.reverse();
    while let Some(index) = next.pop() {
        let Some(function) = functions.get(index) else { continue };
        if !seen.insert(index) {
            continue;
        }
        if selected.get(index) != Some(&true) {
            decision.called.push(index);
            continue;
        }
        let fits = || needs(functions, function, imports);
        let kept = lost.contains(&index).then(|| Err(LOST.to_owned()));
        match kept.unwrap_or_else(fits) {
            Ok(needed) => {
                needed.iter().for_each(|(domain, version)| imports.import(domain, *version));
                decision.add(index);
                next.extend(calls.callees(index).iter().rev());
            }
            Err(conflict) => {
                decision.called.push(index);
                decision.conflicts.push((index, conflict));
            }
        }
    }
    for index in &decision.moved {
        import_kept(functions, calls, *index, &decision, imports);
    }
    decision
}

/// The operator sets, with their versions, that the place needs for a function's body; or the
/// operator that means something else there.
fn needs<'m>(
    functions: &Functions<'_>,
    function: &'m FunctionProto,
    imports: &Imports,
) -> Result<BTreeMap<&'m [u8], i64>, String> {
    let own = function.opset_import.iter().map(|import| (domain(import), version(import)));
    let own: HashMap<_, _> = own.collect();
    let mut needed = BTreeMap::new();
    let mut conflict = None;
    each_node_of(function, &mut |node| {
        if conflict.is_some() || functions.callee(node).is_some() {
            return;
        }
        let domain = domain_of(node);
        let (here, there) = (own.get(domain).copied(), imports.version(domain));
        if let (Some(here), Some(there)) = (here, there) {
            let op_type = node.op_type.as_ref().map(Str::as_bytes).unwrap_or_default();
            if !opset::same_operator(domain, op_type, here, there) {
                conflict = Some(explain(node, here, there));
            }
        }
        needed.extend(there.or(here).map(|version| (domain, version)));
    });
    // An output that no node computes needs an Identity.
    if let (Some(version), None) = (own.get(&b""[..]), imports.version(b"")) {
        needed.insert(b"", *version);
    }
    conflict.map_or(Ok(needed), Err)
}

fn explain(node: &NodeProto, here: i64, there: i64) -> String {
    let op_type = node.op_type.clone().unwrap_or_default();
    let domain = String::from_utf8_lossy(domain_of(node));
    let domain = if domain.is_empty() { "ai.onnx" } else { &domain };
    format!("`{op_type}` of {domain} {here} is not, or may not be, that of {there}")
}

/// Imports the domains of functions that stay and are called by the body of `index`.
fn import_kept(
    functions: &Functions<'_>,
    calls: &Calls,
    index: usize,
    decision: &Decision,
    imports: &mut Imports,
) {
    let kept = calls.callees(index).iter().filter(|callee| !decision.inlines(**callee));
    for callee in kept.filter_map(|callee| functions.get(*callee)) {
        let name = opset::normalized(callee.domain.as_ref().map(Str::as_bytes).unwrap_or_default());
        let own = functions.get(index).and_then(|function| imported(function, name));
        imports.import(name, own.unwrap_or(1));
    }
}

/// Names of attributes that may not be given.
type Open<'m> = HashSet<&'m [u8]>;

/// The functions whose default would be lost in the body of `function`, which stays.
pub(super) fn lost<'m>(functions: &Functions<'m>, function: &'m FunctionProto) -> HashSet<usize> {
    let mut lost = HashSet::new();
    let mut open: HashMap<usize, Open<'m>> = HashMap::new();
    let own = defaults(function);
    let mut next = Vec::new();
    follow(functions, &function.node, |name| !own.contains(name), &mut |callee, name| {
        next.push((callee, name));
    });
    while let Some((callee, name)) = next.pop() {
        let Some(function) = functions.get(callee) else { continue };
        if defaults(function).contains(name) {
            lost.insert(callee);
        } else if open.entry(callee).or_default().insert(name) {
            follow(functions, &function.node, |own| own == name, &mut |callee, name| {
                next.push((callee, name));
            });
        }
    }
    lost
}

fn defaults(function: &FunctionProto) -> Open<'_> {
    function.attribute_proto.iter().map(name_of).collect()
}

/// Calls `visit` with each function, and its attribute, that gets what `is_open` from `nodes`.
fn follow<'m>(
    functions: &Functions<'_>,
    nodes: &'m [NodeProto],
    is_open: impl Fn(&[u8]) -> bool,
    visit: &mut dyn FnMut(usize, &'m [u8]),
) {
    each_node(nodes, &mut |node| {
        let mut references = node.attribute.iter().filter(|attribute| is_reference(attribute));
        let Some(first) = references.next() else { return };
        let Some(callee) = functions.callee(node) else { return };
        for attribute in std::iter::once(first).chain(references) {
            let given = attribute.ref_attr_name.as_ref().map(Str::as_bytes).unwrap_or_default();
            if is_open(given) {
                visit(callee, name_of(attribute));
            }
        }
    });
}
