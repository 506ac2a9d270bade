//! The bodies of all functions that move to a place, each resolved once, and found by function.
//!
//! Graphs that are pasted into bodies are resolved here too: those that the place's own calls pass,
//! and the defaults of functions. How a body's names are resolved is left to `body`.

use std::collections::HashMap;
use std::ptr;

use super::body::{Body, Local};
use super::context::{Context, Decision};
use super::functions::{each_node, graphs, invalid};
use crate::error::Result;
use crate::proto::{GraphProto, NodeProto};

/// Every body that is copied to a place.
pub(super) struct Bodies<'m> {
    decision: &'m Decision,
    /// The bodies of functions, in the order of the decision.
    functions: Vec<Body<'m>>,
    /// Graphs outside of bodies that are pasted into bodies, by the address of the graph: arguments
    /// of the place's own calls, and defaults of functions.
    arguments: HashMap<usize, Body<'m>>,
}

impl<'m> Bodies<'m> {
    /// The bodies of the functions that move to the place, whose own nodes are `written`.
    ///
    /// # Errors
    /// As [`Body::of_function`]; also for a default graph that uses a name from outside.
    pub(super) fn new(
        context: &'m Context<'m>,
        written: impl Iterator<Item = &'m [NodeProto]>,
    ) -> Result<Self> {
        let (functions, arguments) = (Vec::new(), HashMap::new());
        let mut bodies = Self { decision: &context.decision, functions, arguments };
        for index in &context.decision.moved {
            let Some(function) = context.functions.get(*index) else { continue };
            bodies.functions.push(Body::of_function(function, context)?);
            for graph in function.attribute_proto.iter().flat_map(graphs) {
                let body = Body::of_argument(graph, context)?;
                if let Some(name) = body.inputs.first() {
                    let reason = format!("has a default graph that uses `{name}` from outside");
                    return Err(invalid(function, &reason));
                }
                bodies.arguments.insert(ptr::from_ref(graph).addr(), body);
            }
        }
        for nodes in written {
            bodies.arguments_of(nodes, context)?;
        }
        Ok(bodies)
    }

    fn arguments_of(&mut self, nodes: &'m [NodeProto], context: &Context<'m>) -> Result<()> {
        let mut passed = Vec::new();
        each_node(nodes, &mut |node| {
            let mut graphs = node.attribute.iter().flat_map(graphs).peekable();
            if graphs.peek().is_some() && context.callee(node).is_some() {
                passed.extend(graphs);
            }
        });
        for graph in passed {
            let body = Body::of_argument(graph, context)?;
            self.arguments.insert(ptr::from_ref(graph).addr(), body);
        }
        Ok(())
    }

    pub(super) fn function(&self, index: usize) -> Option<&Body<'m>> {
        self.functions.get(self.decision.place(index)?)
    }

    /// The resolved `graph`, which a call of the place passes, or which is a function's default.
    pub(super) fn argument(&self, graph: &GraphProto) -> Option<&Body<'m>> {
        self.arguments.get(&ptr::from_ref(graph).addr())
    }

    /// Whether all calls of a function take equally many numbers and second attempts. Of two names
    /// with one base, the second needs another attempt unless the first is that of an output, which
    /// may have the caller's name.
    pub(super) fn are_uniform(&self) -> bool {
        let uniform = |body: &Body<'_>| {
            let outputs = body.computed;
            let repeats_output = |(i, local): (usize, &Local<'_>)| {
                local.earlier.is_some_and(|earlier| earlier < outputs || i < outputs)
            };
            body.arguments.is_empty() && !body.locals.iter().enumerate().any(repeats_output)
        };
        self.arguments.is_empty() && self.functions.iter().all(uniform)
    }
}
