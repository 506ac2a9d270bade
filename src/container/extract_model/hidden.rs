//! Inputs of a part that a subgraph hides.

use std::collections::{BTreeSet, HashSet};

use crate::error::{Error, ErrorKind, Result};
use crate::graph::value_names::{Names, Role};
use crate::proto::GraphProto;
use crate::wire::Str;

/// Refuses inputs that a subgraph of the part defines too: one may do so where the value outside is
/// computed later, and an input is there from the start.
pub(super) fn refuse_hidden_inputs(graph: &GraphProto, inputs: HashSet<&Str>) -> Result<()> {
    let mut hidden = BTreeSet::new();
    let mut visit = |role: Role, name: &Str| {
        if role == Role::Definition && inputs.contains(name) {
            hidden.insert(name.clone());
        }
    };
    let attributes = graph.node.iter().flat_map(|node| &node.attribute);
    for inner in attributes.flat_map(|it| it.g.as_deref().into_iter().chain(&it.graphs)) {
        Names { visit: &mut visit, skip: &|_| false }.graph(inner);
    }
    let error = |name: &Str| {
        let reason = "a subgraph of the part defines a value of this name too, which the input \
                      would hide: rename the value first";
        Error::new(ErrorKind::InvalidArgument, reason).with_tensor(name.to_string_lossy())
    };
    Error::join(hidden.iter().map(error)).map_or(Ok(()), Err)
}
