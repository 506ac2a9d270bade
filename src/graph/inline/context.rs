//! Decides which bodies may move to a place: the model's graphs, or a function that is kept.
//!
//! A body may move where every operator that it uses means the same under the versions imported
//! there; the version numbers need not be equal. This is the rule of onnx.proto's comment on
//! `FunctionProto.opset_import`. A body that may not move stays a function, with all that it calls.
//!
//! A body may also not move into a kept function that passes on an attribute of its own for which
//! the body has a default. The kept function's callers may leave that attribute out, and a
//! reference to it has no place for the default.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;

use super::calls::Calls;
use super::functions::{Functions, domain_of, each_node, each_node_of, is_reference, name_of};
use crate::graph::opset;
use crate::proto::{FunctionProto, NodeProto, OperatorSetIdProto, Str};

/// The operator sets of a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Imports {
    versions: HashMap<Vec<u8>, i64>,
    /// The domains that the place imports itself.
    own: HashSet<Vec<u8>>,
    /// The operator sets that it has to import in addition.
    pub(super) added: Vec<OperatorSetIdProto>,
}

fn domain(import: &OperatorSetIdProto) -> &[u8] {
    opset::normalized(import.domain.as_ref().map(Str::as_bytes).unwrap_or_default())
}

fn version(import: &OperatorSetIdProto) -> i64 {
    import.version.unwrap_or_default()
}

impl Imports {
    /// The operator sets `own` of a place; the version of any other domain is that in `around`.
    pub(super) fn new(own: &[OperatorSetIdProto], around: &[OperatorSetIdProto]) -> Self {
        let both = around.iter().chain(own);
        let versions = both.map(|import| (domain(import).to_vec(), version(import))).collect();
        let own = own.iter().map(|import| domain(import).to_vec()).collect();
        Self { versions, own, added: Vec::new() }
    }

    pub(super) fn version(&self, domain: &[u8]) -> Option<i64> {
        self.versions.get(domain).copied()
    }

    /// Makes the place import `domain`, at `version` if the place has no version of it.
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
    /// The function that `node` calls, if its body replaces the node here.
    pub(super) fn callee(&self, node: &NodeProto) -> Option<usize> {
        self.functions.callee(node).filter(|callee| self.decision.inlines(*callee))
    }
}

/// What was decided for a place.
#[derive(Clone)]
pub(super) struct Decision {
    /// The functions whose bodies replace calls, in the order in which the calls are met.
    pub(super) moved: Vec<usize>,
    /// The index of each of these functions in `moved`.
    places: HashMap<usize, usize, RandomState>,
    /// The functions that are still called from here.
    pub(super) called: Vec<usize>,
    /// Those of them that may not move here, with the reason.
    pub(super) conflicts: Vec<(usize, String)>,
}

impl Decision {
    pub(super) fn inlines(&self, function: usize) -> bool {
        self.place(function).is_some()
    }

    /// The index of the function among those that move.
    pub(super) fn place(&self, function: usize) -> Option<usize> {
        self.places.get(&function).copied()
    }

    fn add(&mut self, function: usize) {
        self.places.insert(function, self.moved.len());
        self.moved.push(function);
    }
}

/// The reason for keeping a function that would lose a default.
const LOST: &str = "inlining would drop a default: the calling function stays, and the attribute that it passes on \
                    may be absent";

/// Decides which functions move to a place that calls `roots`, and adds the operator sets that they
/// need to its `imports`. The functions in `lost` would lose a default there and are kept.
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

/// The operator sets, with their versions, that the place needs for a function's body.
///
/// # Errors
/// The conflict, when an operator means something else there.
fn needs<'m>(
    functions: &Functions<'_>,
    function: &'m FunctionProto,
    imports: &Imports,
) -> Result<BTreeMap<&'m [u8], i64>, String> {
    let own: HashMap<_, _> =
        function.opset_import.iter().map(|import| (domain(import), version(import))).collect();
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
    let domain = match domain_of(node) {
        b"" => "ai.onnx".into(),
        custom => String::from_utf8_lossy(custom),
    };
    format!("`{op_type}` of {domain} {here} differs, or may differ, from that of {there}")
}

/// Imports the domains of the kept functions that the body of `index` calls.
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

/// Names of attributes that a caller may leave out.
type Open<'m> = HashSet<&'m [u8]>;

/// The functions whose default would be lost in the body of `function`, which is kept.
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

/// Calls `visit` with each function that `nodes` call, and each of its attributes that refers to an
/// attribute for which `is_open` holds.
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
