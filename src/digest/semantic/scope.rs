//! [`Scope`]: a graph or function body at one place where it is used, and what its names stand for
//! there.
//!
//! A body that is called twice has two scopes, with their own inputs and attributes. A subgraph
//! sees the scope around it; a graph that a call passes as an attribute sees the scope of its
//! caller. What a node computes is left to `evaluate`.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::attributes::{graphs, has_value};
use super::body::{Body, bytes};
use super::hash::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset;
use crate::proto::{AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto};

/// The index of a scope.
pub(super) type ScopeId = usize;

/// The digest of a value; `None` where it is left out.
pub(super) type Value = Option<Digest>;

/// A body in use.
pub(super) struct Scope<'m> {
    pub(super) body: Rc<Body<'m>>,
    pub(super) kind: ScopeKind,
    /// The number of graphs around this one, those of callers included. It tells the inputs of
    /// nested graphs apart.
    pub(super) level: usize,
    pub(super) frame: Rc<Frame<'m>>,
    pub(super) nodes: Vec<NodeState>,
}

pub(super) enum ScopeKind {
    /// The main graph.
    Main,
    /// A graph in an attribute of a node, or of a function's default, which sees nothing around it.
    Graph { around: Option<Around> },
    /// The body of a function that `node` of the scope `caller` calls.
    Call {
        caller: ScopeId,
        node: usize,
        /// The inputs, as far as they are known yet.
        inputs: Vec<Option<Value>>,
    },
}

/// The node whose attribute has a graph, which sees what is before that node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    pub(super) scope: ScopeId,
    pub(super) node: usize,
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
    /// The attributes of the call and the defaults of its function, each by name.
    Call { given: Vec<Given<'m>>, defaults: Rc<[Given<'m>]> },
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
    pub(super) around: Option<Around>,
    pub(super) frame: Rc<Frame<'m>>,
}

/// The versions of operator sets.
#[derive(Default)]
pub(super) struct Imports<'m> {
    /// The version of each domain; `None` where there are several.
    own: HashMap<&'m [u8], Option<i64>, RandomState>,
    /// Those of the model, for domains that are not among them.
    around: Option<Rc<Self>>,
}

impl<'m> Imports<'m> {
    /// The operator sets `own`; a domain that is not among them has the version of `around`.
    pub(super) fn new(own: &'m [OperatorSetIdProto], around: Option<&Rc<Self>>) -> Self {
        let mut imports = Self { own: HashMap::default(), around: around.cloned() };
        for import in own {
            let domain = opset::normalized(bytes(import.domain.as_ref()));
            let version = Some(import.version.unwrap_or_default());
            let known = imports.own.entry(domain).or_insert(version);
            if *known != version {
                *known = None;
            }
        }
        imports
    }

    /// The version of `domain`, if it is imported.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when several are: some readers take the first and some the last.
    pub(super) fn version(&self, domain: &[u8]) -> Result<Option<i64>> {
        match (self.own.get(domain), &self.around) {
            (Some(Some(version)), _) => Ok(Some(*version)),
            (Some(None), _) => {
                let domain = String::from_utf8_lossy(domain);
                Err(invalid(format!("two versions of the operator set `{domain}` are imported")))
            }
            (None, Some(around)) => around.version(domain),
            (None, None) => Ok(None),
        }
    }
}

/// What all calls of a function have in common.
pub(super) struct Callee<'m> {
    function: &'m FunctionProto,
    pub(super) body: Rc<Body<'m>>,
    imports: Rc<Imports<'m>>,
    /// The attributes that a call may leave out, by name.
    defaults: Rc<[Given<'m>]>,
}

impl<'m> Callee<'m> {
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when the function has two defaults for one attribute, or two
    /// values of one name.
    pub(super) fn new(function: &'m FunctionProto, around: &Rc<Imports<'m>>) -> Result<Self> {
        let imports = Rc::new(Imports::new(&function.opset_import, Some(around)));
        let references = References::Closed;
        let frame =
            Rc::new(Frame { function: Some(function), imports: imports.clone(), references });
        let given = function.attribute_proto.iter().map(|value| {
            let closure = Closure { around: None, frame: frame.clone() };
            Given { name: bytes(value.name.as_ref()), value, closure }
        });
        let mut defaults: Vec<_> = given.collect();
        defaults.sort_by_key(|default| default.name);
        refuse_twice(&defaults)?;
        let body = Rc::new(Body::of_function(function)?);
        Ok(Self { function, body, imports, defaults: defaults.into() })
    }
}

impl<'m> Frame<'m> {
    /// What the model's own graphs have in common.
    pub(super) fn of_model(imports: Rc<Imports<'m>>) -> Self {
        Self { function: None, imports, references: References::None }
    }

    /// The frame of a call with the attributes `given`, which are sorted.
    pub(super) fn of_call(callee: &Callee<'m>, given: Vec<Given<'m>>) -> Self {
        let references = References::Call { given, defaults: callee.defaults.clone() };
        Self { function: Some(callee.function), imports: callee.imports.clone(), references }
    }

    /// The version of `domain` that is imported, if any.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when there are several.
    pub(super) fn version(&self, domain: &[u8]) -> Result<Option<i64>> {
        self.imports.version(domain)
    }

    /// The attributes of `node`, which is the one at `here`, by name, with references resolved. One
    /// that refers to what the call does not have is left out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] for a reference outside of a function or with a value of its
    /// own, and for two attributes of one name.
    pub(super) fn attributes(
        self: &Rc<Self>,
        node: &'m NodeProto,
        here: Around,
    ) -> Result<Vec<Given<'m>>> {
        let mut all = Vec::with_capacity(node.attribute.len());
        for value in &node.attribute {
            let name = bytes(value.name.as_ref());
            match bytes(value.ref_attr_name.as_ref()) {
                b"" => {
                    let closure = Closure { around: Some(here), frame: self.clone() };
                    all.push(Given { name, value, closure });
                }
                _ if has_value(value) => {
                    let name = String::from_utf8_lossy(name);
                    return Err(invalid(format!(
                        "the attribute `{name}` is a reference and a value"
                    )));
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
            References::Call { given, defaults } => {
                Ok(find(given, name).or_else(|| find(defaults, name)).cloned())
            }
            References::Closed => Ok(None),
            References::None => {
                let name = String::from_utf8_lossy(name);
                Err(invalid(format!("an attribute outside of a function refers to `{name}`")))
            }
        }
    }
}

fn find<'g, 'm>(sorted: &'g [Given<'m>], name: &[u8]) -> Option<&'g Given<'m>> {
    let place = sorted.binary_search_by_key(&name, |given| given.name);
    place.ok().and_then(|place| sorted.get(place))
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
