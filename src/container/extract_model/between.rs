//! Values at which a model can be cut, where the inputs that were given leave a way to another one.
//!
//! The nodes are walked in their order, with the values that depend on that input and that later
//! nodes need: where there is one such value alone, all ways go through it.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::container::lookup::list;
use crate::graph::outer_values::needed_by;
use crate::proto::NodeProto;
use crate::wire::Str;

/// The most values that are looked for where no value does alone.
const MOST: usize = 10;

/// What may be added to the inputs in place of the input `missing`, in words. Of the nodes `all`
/// those are needed whose numbers are `nodes`, up to the values `ends`.
pub(super) fn instead(
    all: &[NodeProto],
    nodes: &BTreeSet<usize>,
    (ends, outputs): (&HashSet<&Str>, &[Str]),
    missing: &Str,
) -> String {
    let (single, smallest) = Walk::new(all, nodes, outputs, missing).cuts(ends);
    if single.is_empty() && smallest.is_empty() {
        return String::new();
    }
    let names = if single.is_empty() { &smallest } else { &single };
    let names = list(names.iter().map(|name| format!("`{name}`")));
    match single.is_empty() {
        true => format!(", or all of {names}, which lie between the two"),
        false => format!(", or a value between the two: {names}"),
    }
}

struct Walk<'w> {
    /// The nodes of the graph.
    all: &'w [NodeProto],
    /// The nodes that are needed, each with the values that it needs.
    nodes: Vec<(usize, Vec<Str>)>,
    /// The last node that needs a value; outputs of the part are needed for ever.
    last_use: HashMap<Str, usize>,
    outputs: HashSet<&'w Str>,
    missing: &'w Str,
    /// The values that depend on the input and are needed by nodes to come.
    live: BTreeSet<Str>,
}

impl<'w> Walk<'w> {
    fn new(
        all: &'w [NodeProto],
        nodes: &BTreeSet<usize>,
        outputs: &'w [Str],
        missing: &'w Str,
    ) -> Self {
        let needs = |number: &usize| Some((*number, needed_by(all.get(*number)?)));
        let nodes: Vec<_> = nodes.iter().filter_map(needs).collect();
        let mut last_use = HashMap::new();
        for (number, needed) in &nodes {
            last_use.extend(needed.iter().map(|name| (name.clone(), *number)));
        }
        last_use.extend(outputs.iter().map(|name| (name.clone(), usize::MAX)));
        let (outputs, live) = (outputs.iter().collect(), BTreeSet::from([missing.clone()]));
        Self { all, nodes, last_use, outputs, missing, live }
    }

    /// The values that cut alone, and else the smallest set that does.
    fn cuts(mut self, ends: &HashSet<&Str>) -> (Vec<Str>, Vec<Str>) {
        let (mut single, mut smallest) = (Vec::new(), Vec::new());
        let mut depends = self.live.clone();
        for (number, needed) in std::mem::take(&mut self.nodes) {
            if !needed.iter().any(|name| depends.contains(name)) {
                continue;
            }
            let results = self.all.get(number).map(|node| node.output.as_slice());
            for name in results.unwrap_or_default().iter().filter(|name| !ends.contains(name)) {
                if self.last_use.contains_key(name) {
                    depends.insert(name.clone());
                    self.live.insert(name.clone());
                }
            }
            for name in &needed {
                if self.last_use.get(name) == Some(&number) {
                    self.live.remove(name);
                }
            }
            if self.live.iter().any(|name| self.outputs.contains(name)) {
                break;
            }
            match self.live.len() {
                _ if self.live.contains(self.missing) => {}
                0 => {}
                1 => single.extend(self.live.iter().cloned()),
                len if len <= MOST && (smallest.is_empty() || len < smallest.len()) => {
                    smallest = self.live.iter().cloned().collect();
                }
                _ => {}
            }
        }
        single.dedup();
        (single, smallest)
    }
}
