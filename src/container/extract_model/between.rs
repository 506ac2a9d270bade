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

/// The nodes that the outputs of a part need, up to the values that were given.
pub(super) struct Cuts<'w> {
    /// The nodes of the graph.
    all: &'w [NodeProto],
    /// The nodes that are needed, each with the values that it needs.
    nodes: Vec<(usize, Vec<Str>)>,
    /// The last node that needs a value; outputs of the part are needed for ever.
    last_use: HashMap<Str, usize>,
    /// The inputs that were given.
    ends: &'w HashSet<&'w Str>,
    outputs: HashSet<&'w Str>,
}

/// Values that can be given in place of a missing input.
#[derive(Default)]
struct Found {
    /// Those that do alone.
    single: Vec<Str>,
    /// The smallest set that does.
    smallest: Vec<Str>,
}

impl<'w> Cuts<'w> {
    /// Of the nodes `all` those are needed whose numbers are `nodes`, up to the values `ends`.
    pub(super) fn new(
        all: &'w [NodeProto],
        nodes: &BTreeSet<usize>,
        (ends, outputs): (&'w HashSet<&'w Str>, &'w [Str]),
    ) -> Self {
        let needs = |number: &usize| Some((*number, needed_by(all.get(*number)?)));
        let nodes: Vec<_> = nodes.iter().filter_map(needs).collect();
        let mut last_use = HashMap::new();
        for (number, needed) in &nodes {
            last_use.extend(needed.iter().map(|name| (name.clone(), *number)));
        }
        last_use.extend(outputs.iter().map(|name| (name.clone(), usize::MAX)));
        Self { all, nodes, last_use, ends, outputs: outputs.iter().collect() }
    }

    /// What may be added to the inputs in place of the input `missing`, in words.
    pub(super) fn instead(&self, missing: &Str) -> String {
        let Found { single, smallest } = self.find(missing);
        if !single.is_empty() {
            let one = |name: &Str| format!("`{name}`{}", self.without(std::slice::from_ref(name)));
            return format!(", or a value between the two: {}", list(single.iter().map(one)));
        }
        if smallest.is_empty() {
            return String::new();
        }
        let names = list(smallest.iter().map(|name| format!("`{name}`")));
        format!(", or all of {names}{}, which lie between the two", self.without(&smallest))
    }

    /// Which of the inputs that were given are not needed once the values `added` are inputs too.
    fn without(&self, added: &[Str]) -> String {
        let mut needed: HashSet<_> = self.outputs.iter().copied().collect();
        let is_end = |name: &Str| self.ends.contains(name) || added.contains(name);
        for (number, needs) in self.nodes.iter().rev() {
            if self.results(*number).iter().any(|name| !is_end(name) && needed.contains(name)) {
                needed.extend(needs);
            }
        }
        let useless: BTreeSet<_> = self.ends.iter().filter(|end| !needed.contains(*end)).collect();
        match useless.is_empty() {
            true => String::new(),
            false => format!(" without {}", list(useless.iter().map(|name| format!("`{name}`")))),
        }
    }

    fn results(&self, number: usize) -> &'w [Str] {
        self.all.get(number).map(|node| node.output.as_slice()).unwrap_or_default()
    }

    /// The values that cut alone, and else the smallest set that does.
    fn find(&self, missing: &Str) -> Found {
        let mut found = Found::default();
        // The values that depend on the input, and those of them that are needed by nodes to come.
        let mut live = BTreeSet::from([missing]);
        let mut depends: HashSet<_> = live.iter().copied().collect();
        for (number, needed) in &self.nodes {
            if !needed.iter().any(|name| depends.contains(name)) {
                continue;
            }
            for name in self.results(*number).iter().filter(|name| !self.ends.contains(name)) {
                if self.last_use.contains_key(name) {
                    depends.insert(name);
                    live.insert(name);
                }
            }
            for name in needed.iter().filter(|name| self.last_use.get(*name) == Some(number)) {
                live.remove(name);
            }
            if live.iter().any(|name| self.outputs.contains(name)) {
                break;
            }
            found.add(&live, missing);
        }
        found.single.dedup();
        found
    }
}

impl Found {
    /// All ways lead through the values `live`.
    fn add(&mut self, live: &BTreeSet<&Str>, missing: &Str) {
        let all = || live.iter().copied().cloned();
        match live.len() {
            _ if live.contains(missing) => {}
            0 => {}
            1 => self.single.extend(all()),
            len if len <= MOST && (self.smallest.is_empty() || len < self.smallest.len()) => {
                self.smallest = all().collect();
            }
            _ => {}
        }
    }
}
