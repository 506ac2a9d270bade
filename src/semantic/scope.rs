//! [`Scope`]: a graph or function body at one place where it is used, and what its names stand for there.
//!
//! A body that is called twice has two scopes, with their own inputs and attributes. A subgraph sees the scope
//! around it; a graph that a call passes as an attribute sees the scope of its caller. What a node computes is
//! left to `evaluate`.

use std::collections::HashMap;
use std::rc::Rc;

use super::attributes::graphs;
use super::body::{Body, bytes};
use super::hash::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::opset;
use crate::proto::{AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto};

/// The index of a scope.
pub(super) type ScopeId = usize;

/// The digest of a value; `None` where it is left out.
pub(super) type Value = Option<Digest>;

/// A body in use.
pub(super) struct Scope<'m> {
    pub(super) body: Rc<Body<'m>>,
    pub(super) kind: Kind,
    /// The number of graphs around this one, those of callers included. It tells the inputs of nested graphs apart.
    pub(super) level: usize,
    pub(super) frame: Rc<Frame<'m>>,
    pub(super) nodes: Vec<NodeState>,
}

pub(super) enum Kind {
    /// The main graph.
    Main,
    /// A graph in an attribute of a node, or of a function's default, which sees nothing around it.
    Graph { around: Option<ScopeId> },
    /// The body of a function that `node` of the scope `caller` calls.
    Call {
        caller: ScopeId,
        node: usize,
        /// The inputs, as far as they are known yet.
        inputs: Vec<Option<Value>>,
    },
}

/// How far a node has got.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeState {
    New,
    /// Its inputs are being computed.
    Open,
    /// An operator, with its digest.
    Node(Digest),
    /// A node that stands for a value: a Constant or an Identity.
    Value(Value),
    /// A call, with its index.
    Call(usize),
}

/// What all scopes inside one call have in common.
pub(super) struct Frame<'m> {
    pub(super) function: Option<&'m FunctionProto>,
    imports: Rc<Imports<'m>>,
    references: References<'m>,
}

/// What references to the attributes of a function stand for.
pub(super) enum References<'m> {
    /// There is no function.
    None,
    /// Nothing: a graph that is a default sees no attributes of the call.
    Closed,
    /// The attributes of the call and the defaults of its function, by name.
    Call(Vec<Given<'m>>),
}

/// An attribute with its value, and where the names in its graphs belong.
#[derive(Clone)]
pub(super) struct Given<'m> {
    pub(super) name: &'m [u8],
    pub(super) value: &'m AttributeProto,
    pub(super) closure: Closure<'m>,
}

impl Given<'_> {
    pub(super) fn has_graphs(&self) -> bool {
        graphs(self.value).next().is_some()
    }
}

/// What the names in a graph see.
#[derive(Clone)]
pub(super) struct Closure<'m> {
    pub(super) around: Option<ScopeId>,
    pub(super) frame: Rc<Frame<'m>>,
}

/// The versions of operator sets.
#[derive(Default)]
pub(super) struct Imports<'m>(HashMap<&'m [u8], i64>);

impl<'m> Imports<'m> {
    /// The operator sets `own`; a domain that is not among them has the version of `around`.
    pub(super) fn new(own: &'m [OperatorSetIdProto], around: &'m [OperatorSetIdProto]) -> Self {
        let both = around.iter().chain(own);
        Self(
            both.map(|import| {
                let domain = opset::normalized(bytes(import.domain.as_ref()));
                (domain, import.version.unwrap_or_default())
            })
            .collect(),
        )
    }

    pub(super) fn version(&self, domain: &[u8]) -> Option<i64> {
        self.0.get(domain).copied()
    }
}

impl<'m> Frame<'m> {
    /// What the model's own graphs have in common.
    pub(super) fn of_model(imports: Rc<Imports<'m>>) -> Self {
        Self { function: None, imports, references: References::None }
    }

    /// The frame of a call of `function` with the attributes `given`, which are sorted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when the function has two defaults for one attribute.
    pub(super) fn of_call(
        function: &'m FunctionProto,
        imports: Rc<Imports<'m>>,
        mut given: Vec<Given<'m>>,
    ) -> Result<Self> {
        let (function, references) = (Some(function), References::Closed);
        let closed = Rc::new(Self { function, imports: imports.clone(), references });
        let defaults = function.into_iter().flat_map(|function| &function.attribute_proto);
        let mut defaults: Vec<_> = defaults
            .map(|value| {
                let closure = Closure { around: None, frame: closed.clone() };
                Given { name: bytes(value.name.as_ref()), value, closure }
            })
            .collect();
        defaults.sort_by_key(|default| default.name);
        refuse_twice(&defaults)?;
        // What is given comes first, and the sort keeps it there.
        given.append(&mut defaults);
        given.sort_by_key(|given| given.name);
        given.dedup_by_key(|given| given.name);
        Ok(Self { function, imports, references: References::Call(given) })
    }

    pub(super) fn version(&self, domain: &[u8]) -> Option<i64> {
        self.imports.version(domain)
    }

    /// The attributes of a node in the scope `here`, by name, with references resolved. One that refers to
    /// what the call does not have is left out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] for a reference outside of a function, and for two attributes of one name.
    pub(super) fn attributes(
        self: &Rc<Self>,
        node: &'m NodeProto,
        here: ScopeId,
    ) -> Result<Vec<Given<'m>>> {
        let mut all = Vec::with_capacity(node.attribute.len());
        for value in &node.attribute {
            let name = bytes(value.name.as_ref());
            match bytes(value.ref_attr_name.as_ref()) {
                b"" => {
                    let closure = Closure { around: Some(here), frame: self.clone() };
                    all.push(Given { name, value, closure });
                }
                reference => all.extend(self.referred(reference)?.map(|g| Given { name, ..g })),
            }
        }
        all.sort_by_key(|given| given.name);
        refuse_twice(&all)?;
        Ok(all)
    }

    fn referred(&self, name: &[u8]) -> Result<Option<Given<'m>>> {
        match &self.references {
            References::Call(given) => {
                let place = given.binary_search_by_key(&name, |given| given.name);
                Ok(place.ok().and_then(|place| given.get(place)).cloned())
            }
            References::Closed => Ok(None),
            References::None => {
                let name = String::from_utf8_lossy(name);
                Err(invalid(format!("an attribute outside of a function refers to `{name}`")))
            }
        }
    }
}

/// Fails when two of `sorted` have one name.
fn refuse_twice(sorted: &[Given<'_>]) -> Result<()> {
    let twice = sorted.windows(2).find(|pair| matches!(pair, [a, b] if a.name == b.name));
    let Some([given, _]) = twice else { return Ok(()) };
    let name = String::from_utf8_lossy(given.name);
    Err(invalid(format!("the attribute `{name}` is there twice")))
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}
