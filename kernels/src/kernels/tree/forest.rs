//! Decision trees, from the attributes of the operators that have them.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::Call;
use crate::kernels::scores::{check_len, invalid};
use crate::numeric::{Number, for_type};

/// The mode of a node that does not decide.
const LEAF: &[u8] = b"LEAF";

/// How a node decides: it compares the feature with its own value.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    LessOrEqual(f64),
    Less(f64),
    GreaterOrEqual(f64),
    Greater(f64),
    Equal(f64),
    NotEqual(f64),
    Member(Vec<f64>),
}

impl Test {
    /// The test with this number in TreeEnsemble, or this name in the older operators.
    fn of(mode: &Mode<'_>, split: f64) -> Option<Self> {
        Some(match mode {
            Mode::Number(0) | Mode::Name(b"BRANCH_LEQ") => Self::LessOrEqual(split),
            Mode::Number(1) | Mode::Name(b"BRANCH_LT") => Self::Less(split),
            Mode::Number(2) | Mode::Name(b"BRANCH_GTE") => Self::GreaterOrEqual(split),
            Mode::Number(3) | Mode::Name(b"BRANCH_GT") => Self::Greater(split),
            Mode::Number(4) | Mode::Name(b"BRANCH_EQ") => Self::Equal(split),
            Mode::Number(5) | Mode::Name(b"BRANCH_NEQ") => Self::NotEqual(split),
            Mode::Number(6) => Self::Member(Vec::new()),
            _ => return None,
        })
    }

    fn holds(&self, x: f64) -> bool {
        match self {
            Self::LessOrEqual(split) => x <= *split,
            Self::Less(split) => x < *split,
            Self::GreaterOrEqual(split) => x >= *split,
            Self::Greater(split) => x > *split,
            Self::Equal(split) => x == *split,
            Self::NotEqual(split) => x != *split,
            Self::Member(members) => members.contains(&x),
        }
    }
}

enum Mode<'m> {
    Number(u8),
    Name(&'m [u8]),
}

/// A node that decides, or a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Branch {
    Node(usize),
    Leaf(usize),
}

#[derive(Debug)]
struct Node {
    test: Test,
    feature: usize,
    /// Whether a feature that is not a number passes the test.
    missing_passes: bool,
    passed: Branch,
    failed: Branch,
}

/// Targets with their weights.
type Leaf = Vec<(usize, f64)>;

/// Decision trees.
#[derive(Debug, Default)]
pub(super) struct Forest {
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    roots: Vec<Branch>,
}

fn index(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| invalid("the number of a node, feature or target is negative"))
}

/// The floats of attribute `name`, or of the tensor `name` with `_as_tensor` behind it; none where
/// there are neither.
pub(super) fn floats(call: &Call<'_>, name: &str) -> Result<Vec<f64>> {
    let floats = call.node().attributes.floats_or(name, &[])?;
    let wide = tensor(call, &format!("{name}_as_tensor"))?;
    if !floats.is_empty() && !wide.is_empty() {
        return Err(invalid(format!("`{name}` and `{name}_as_tensor` have elements, and one may")));
    }
    Ok(if wide.is_empty() { floats.iter().map(|x| f64::from(*x)).collect() } else { wide })
}

/// The numbers of the tensor in attribute `name`; none where there is none.
fn tensor(call: &Call<'_>, name: &str) -> Result<Vec<f64>> {
    let Some(tensor) = call.node().attributes.tensor(name)? else { return Ok(Vec::new()) };
    for_type!(tensor.dtype(), numbers, T => {
        Ok(tensor.to_slice::<T>()?.iter().map(|x| x.to_f64()).collect())
    })
    .map_err(|error| invalid(format!("attribute `{name}`: {}", error.reason())))
}

/// The integers of attribute `name`, of which there have to be `len`.
fn ints<'a>(call: &Call<'a>, name: &str, len: usize) -> Result<&'a [i64]> {
    let ints = call.ints_or(name, &[])?;
    check_len(name, ints.len(), Some(len))?;
    Ok(ints)
}

/// Whether a missing feature passes, for each of `len` nodes.
fn missing(call: &Call<'_>, len: usize) -> Result<Vec<bool>> {
    let passes = match call.ints_or(MISSING, &[])? {
        [] => return Ok(vec![false; len]),
        _ => ints(call, MISSING, len)?,
    };
    Ok(passes.iter().map(|x| *x != 0).collect())
}

const MISSING: &str = "nodes_missing_value_tracks_true";

/// Nothing here needs how often a node was reached; if it is there, it is there for every node.
fn check_hitrates(found: usize, nodes: usize) -> Result<()> {
    if found == 0 { Ok(()) } else { check_len("nodes_hitrates", found, Some(nodes)) }
}

impl Forest {
    pub(super) fn trees(&self) -> usize {
        self.roots.len()
    }

    /// The targets of all leaves with their weights.
    pub(super) fn weights(&self) -> impl Iterator<Item = &(usize, f64)> {
        self.leaves.iter().flatten()
    }

    /// The trees of TreeEnsemble.
    pub(super) fn of_ensemble(call: &Call<'_>) -> Result<Self> {
        let modes = tensor(call, "nodes_modes")?;
        let (len, splits) = (modes.len(), tensor(call, "nodes_splits")?);
        check_len("nodes_splits", splits.len(), Some(len))?;
        let nodes_of = |name| ints(call, name, len);
        let (features, missing) = (nodes_of("nodes_featureids")?, missing(call, len)?);
        let (passed, to_leaf) = (nodes_of("nodes_truenodeids")?, nodes_of("nodes_trueleafs")?);
        let (failed, failed_leaf) =
            (nodes_of("nodes_falsenodeids")?, nodes_of("nodes_falseleafs")?);
        check_hitrates(tensor(call, "nodes_hitrates")?.len(), len)?;
        let branch = |id: &i64, leaf: &i64| {
            index(*id).map(if *leaf == 0 { Branch::Node } else { Branch::Leaf })
        };
        let members = tensor(call, "membership_values")?;
        let mut sets = members.split(|x| x.is_nan());
        let mut forest = Self::default();
        for (i, (mode, split)) in modes.iter().zip(splits).enumerate() {
            let test = Test::of(&Mode::Number(u8::from_f64(*mode)), split);
            let test = match test.ok_or_else(|| invalid("the mode of a node is not known"))? {
                Test::Member(_) => {
                    let set = sets.next().ok_or_else(|| invalid("a node has no set of members"))?;
                    Test::Member(set.to_vec())
                }
                test => test,
            };
            forest.nodes.push(Node {
                test,
                feature: index(*features.at(i)?)?,
                missing_passes: *missing.at(i)?,
                passed: branch(passed.at(i)?, to_leaf.at(i)?)?,
                failed: branch(failed.at(i)?, failed_leaf.at(i)?)?,
            });
        }
        if sets.any(|set| !set.is_empty()) {
            return Err(invalid("`membership_values` has more sets than nodes that ask for one"));
        }
        let weights = tensor(call, "leaf_weights")?;
        for (target, weight) in ints(call, "leaf_targetids", weights.len())?.iter().zip(weights) {
            forest.leaves.push(vec![(index(*target)?, weight)]);
        }
        let roots = call.ints_or("tree_roots", &[])?;
        forest.roots =
            roots.iter().map(|root| index(*root).map(Branch::Node)).collect::<Result<_>>()?;
        Ok(forest)
    }

    /// The trees of TreeEnsembleRegressor or TreeEnsembleClassifier, the weights of whose leaves
    /// are in attributes that begin with `prefix`: nodes are named by their tree and a number in
    /// it, and the first one of a tree is its root.
    pub(super) fn of_leaves(call: &Call<'_>, prefix: &str) -> Result<Self> {
        let modes = call.node().attributes.strings_or("nodes_modes", &[])?;
        let (len, splits) = (modes.len(), floats(call, "nodes_values")?);
        check_len("nodes_values", splits.len(), Some(len))?;
        let nodes_of = |name| ints(call, name, len);
        let (trees, ids) = (nodes_of("nodes_treeids")?, nodes_of("nodes_nodeids")?);
        let (passed, failed) = (nodes_of("nodes_truenodeids")?, nodes_of("nodes_falsenodeids")?);
        let (features, missing) = (nodes_of("nodes_featureids")?, missing(call, len)?);
        check_hitrates(floats(call, "nodes_hitrates")?.len(), len)?;
        let mut forest = Self::default();
        let branches = forest.name_nodes(trees, ids, modes)?;
        let find = |tree: i64, id: i64| {
            branches
                .get(&(tree, id))
                .copied()
                .ok_or_else(|| invalid(format!("tree {tree} has no node {id}")))
        };
        for (i, (mode, split)) in modes.iter().zip(&splits).enumerate() {
            if mode.as_slice() == LEAF {
                continue;
            }
            let (test, tree) = (Test::of(&Mode::Name(mode), *split), *trees.at(i)?);
            forest.nodes.push(Node {
                test: test.ok_or_else(|| invalid("the mode of a node is not known"))?,
                feature: index(*features.at(i)?)?,
                missing_passes: *missing.at(i)?,
                passed: find(tree, *passed.at(i)?)?,
                failed: find(tree, *failed.at(i)?)?,
            });
        }
        let weights = floats(call, &format!("{prefix}_weights"))?;
        let of_leaf = |name: &str| ints(call, &format!("{prefix}_{name}"), weights.len());
        let (trees, ids) = (of_leaf("treeids")?, of_leaf("nodeids")?);
        let leaves = trees.iter().zip(ids).zip(of_leaf("ids")?.iter().zip(&weights));
        for ((tree, id), (target, weight)) in leaves {
            let Branch::Leaf(leaf) = find(*tree, *id)? else {
                let reason = format!("node {id} of tree {tree} has a weight and is no leaf");
                return Err(invalid(reason));
            };
            let target = (index(*target)?, *weight);
            forest.leaves.at_mut(leaf)?.push(target);
        }
        Ok(forest)
    }

    /// Gives each node its place among the nodes that decide or the leaves, and each tree its root.
    fn name_nodes(
        &mut self,
        trees: &[i64],
        ids: &[i64],
        modes: &[Vec<u8>],
    ) -> Result<HashMap<(i64, i64), Branch>> {
        let (mut branches, mut seen) = (HashMap::with_capacity(modes.len()), HashSet::new());
        let (mut inner, mut last) = (0, None);
        for ((tree, id), mode) in trees.iter().zip(ids).zip(modes) {
            let branch = if mode.as_slice() == LEAF {
                self.leaves.push(Leaf::new());
                Branch::Leaf(self.leaves.len() - 1)
            } else {
                inner += 1;
                Branch::Node(inner - 1)
            };
            if last != Some(*tree) {
                // onnxruntime takes each part of such a tree for a tree.
                if !seen.insert(*tree) {
                    let reason = format!("the nodes of tree {tree} are not one after the other");
                    return Err(invalid(reason));
                }
                self.roots.push(branch);
                last = Some(*tree);
            }
            if branches.insert((*tree, *id), branch).is_some() {
                return Err(invalid(format!("tree {tree} has two nodes {id}")));
            }
        }
        Ok(branches)
    }

    /// Whether every node asks for one of so many features and leads to one that there is, and
    /// every leaf belongs to one of so many targets.
    pub(super) fn check(&self, features: usize, targets: usize) -> Result<()> {
        let is_there = |branch: &Branch| match *branch {
            Branch::Node(node) => node < self.nodes.len(),
            Branch::Leaf(leaf) => leaf < self.leaves.len(),
        };
        let branches = self.nodes.iter().flat_map(|node| [&node.passed, &node.failed]);
        match branches.chain(&self.roots).find(|branch| !is_there(branch)) {
            Some(Branch::Node(node)) => return Err(invalid(format!("there is no node {node}"))),
            Some(Branch::Leaf(leaf)) => return Err(invalid(format!("there is no leaf {leaf}"))),
            None => {}
        }
        if let Some((target, _)) = self.weights().find(|(target, _)| *target >= targets) {
            return Err(invalid(format!("a leaf belongs to target {target} of {targets}")));
        }
        if let Some(node) = self.nodes.iter().find(|node| node.feature >= features) {
            let reason = format!("a node asks for feature {} of {features}", node.feature);
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        if self.has_cycle()? { Err(invalid("a tree has a cycle")) } else { Ok(()) }
    }

    /// Whether a path of nodes comes back to where it was: then some nodes are always left to which
    /// others lead.
    fn has_cycle(&self) -> Result<bool> {
        let mut leading = vec![0_usize; self.nodes.len()];
        let next = |node: &Node| {
            [node.passed, node.failed].into_iter().filter_map(|branch| match branch {
                Branch::Node(node) => Some(node),
                Branch::Leaf(_) => None,
            })
        };
        for node in self.nodes.iter().flat_map(next) {
            *leading.at_mut(node)? += 1;
        }
        let mut free: Vec<usize> =
            (0..).zip(&leading).filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
        let mut seen = 0;
        while let Some(node) = free.pop() {
            seen += 1;
            for node in next(self.nodes.at(node)?) {
                let count = leading.at_mut(node)?;
                *count -= 1;
                if *count == 0 {
                    free.push(node);
                }
            }
        }
        Ok(seen < self.nodes.len())
    }

    /// The leaf of every tree for a row of features.
    pub(super) fn leaves<'f>(&'f self, row: &'f [f64]) -> impl Iterator<Item = Result<&'f Leaf>> {
        self.roots.iter().map(|root| self.leaf(*root, row))
    }

    fn leaf(&self, root: Branch, row: &[f64]) -> Result<&Leaf> {
        let mut branch = root;
        // A path is no longer than there are nodes.
        for _ in 0..=self.nodes.len() {
            let node = match branch {
                Branch::Leaf(leaf) => {
                    return self.leaves.get(leaf).ok_or_else(|| invalid("there is no such leaf"));
                }
                Branch::Node(node) => self.nodes.get(node),
            };
            let node = node.ok_or_else(|| invalid("there is no such node"))?;
            let x = *row.get(node.feature).ok_or_else(|| {
                let reason = format!("a node asks for feature {} of {}", node.feature, row.len());
                Error::new(ErrorKind::Shape, reason)
            })?;
            let passes = node.test.holds(x) || (x.is_nan() && node.missing_passes);
            branch = if passes { node.passed } else { node.failed };
        }
        Err(invalid("a tree has a cycle"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(passed: Branch, failed: Branch) -> Node {
        Node { test: Test::Less(0.0), feature: 0, missing_passes: true, passed, failed }
    }

    #[test]
    fn a_wrong_tree_is_an_error() {
        let leaf = Branch::Leaf(0);
        let cases = [
            (node(leaf, Branch::Node(0)), "cycle"),
            (node(leaf, Branch::Node(7)), "no such node"),
            (node(leaf, Branch::Leaf(1)), "no such leaf"),
            (Node { feature: 3, ..node(leaf, leaf) }, "feature 3 of 1"),
        ];
        for (node, expected) in cases {
            let leaves = vec![vec![(0, 1.0)]];
            let forest = Forest { nodes: vec![node], leaves, roots: vec![Branch::Node(0)] };
            let error = forest.leaves(&[1.0]).next().unwrap().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(forest.check(1, 1).is_err(), "{expected}");
        }
    }

    #[test]
    fn what_is_not_a_number_passes_where_the_node_says_so() {
        let leaves = vec![vec![(0, 1.0)], vec![(0, 2.0)]];
        let nodes = vec![node(Branch::Leaf(0), Branch::Leaf(1))];
        let forest = Forest { nodes, leaves, roots: vec![Branch::Node(0)] };
        for (x, weight) in [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, 2.0)] {
            let row = [x];
            let leaf = forest.leaves(&row).next().unwrap().unwrap();
            assert_eq!(leaf.as_slice(), [(0, weight)], "{x}");
        }
    }
}
