//! Where bodies go, the model's graphs or a function that stays, and which of them may.
//!
//! A body may move where every operator that it uses means the same under the versions imported
//! there; equal version numbers are not needed. This is the rule of onnx.proto's comment on
//! `FunctionProto.opset_import`. A body that may not stays a function, with all that it calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;

use super::calls::{Calls, Functions, domain_of, each_node_of};
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
    /// Of each function, where it stands among these, from 1 on; 0 for the others.
    places: Vec<u32>,
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
        let place = usize::try_from(*self.places.get(function)?).ok()?;
        place.checked_sub(1)
    }

    fn add(&mut self, function: usize) {
        self.moved.push(function);
        let place = u32::try_from(self.moved.len()).unwrap_or(u32::MAX);
        self.places.get_mut(function).map(|found| *found = place).unwrap_or_default();
    }
}

/// Why a function stays that would lose a default.
const LOST: &str = "the default of an attribute would be lost where a function that stays gives it an \
                    attribute that it may not have itself";

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
    let mut decision = Decision { moved, places: vec![0; selected.len()], called, conflicts };
    let mut seen = vec![false; selected.len()];
    let mut next = roots;
    next.reverse();
    while let Some(index) = next.pop() {
        let Some(function) = functions.get(index) else { continue };
        let first = seen.get_mut(index).is_some_and(|seen| !mem::replace(seen, true));
        if !first {
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
