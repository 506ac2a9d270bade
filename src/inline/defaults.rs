//! Defaults that a function which stays would lose.
//!
//! In such a function an attribute may refer to one that its own call gives or not. Where a body
//! takes its place, the reference stays, and cannot say what holds when nothing is given. So
//! a function that has a default for it is not inlined there.

use std::collections::{HashMap, HashSet};

use super::body::{is_reference, name_of};
use super::calls::{Functions, each_node};
use crate::proto::{FunctionProto, NodeProto, Str};

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
