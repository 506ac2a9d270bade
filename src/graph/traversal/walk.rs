//! The walk from tensor to tensor, as iterators over a shared and over a mutable model.
//!
//! One macro writes both, so that the two cannot drift apart. A walk keeps the items that remain on
//! a stack of its own: it can be stopped at any tensor, and its depth is not bounded by the
//! thread's stack.

use std::iter::{Chain, Enumerate, FusedIterator};
use std::slice::{Iter, IterMut};
use std::{fmt, mem, option};

use super::place::{Owner, Place, Position, Scope, Site};
use crate::proto::attribute_proto::AttributeMore;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto,
    TensorProto, TrainingInfoProto,
};

/// An optional single message, followed by a list.
type List<I> = Chain<option::IntoIter<<I as Iterator>::Item>, I>;

fn list<I: Iterator>(one: Option<I::Item>, more: I) -> List<I> {
    one.into_iter().chain(more)
}

/// Generates the iterator `$Walk`; `$Items` is the iterator over a slice.
macro_rules! walk {
    ($doc:literal, $Walk:ident, $Level:ident, $Items:ident, $iter:ident, $as_deref:ident
     $(, $mut:ident)?) => {
        #[doc = $doc]
        pub struct $Walk<'m> {
            /// The stack of items that remain; the last one is next.
            levels: Vec<$Level<'m>>,
            /// The graph of the next tensor.
            scope: Scope,
            next: usize,
        }

        /// The rest of one list.
        enum $Level<'m> {
            Functions($Items<'m, FunctionProto>),
            Training(Enumerate<$Items<'m, TrainingInfoProto>>),
            Graphs(Scope, List<$Items<'m, GraphProto>>),
            Nodes($Items<'m, NodeProto>),
            Attributes(Owner<'m>, $Items<'m, AttributeProto>),
            Sparse(Place<'m>, List<$Items<'m, SparseTensorProto>>),
            Tensors(Place<'m>, List<$Items<'m, TensorProto>>),
            /// The end of a graph, with the scope to return to.
            Leave(Scope),
        }

        impl<'m> $Walk<'m> {
            pub(super) fn new(model: &'m $($mut)? ModelProto) -> Self {
                let ModelProto { graph, functions, training_info, .. } = model;
                let mut walk = Self { levels: Vec::new(), scope: Scope::default(), next: 0 };
                if let Some(infos) = training_info.$as_deref() {
                    walk.levels.push($Level::Training(infos.$iter().enumerate()));
                }
                walk.levels.push($Level::Functions(functions.$iter()));
                if let Some(main) = graph.$as_deref() {
                    walk.graph(main, Scope::default());
                }
                walk
            }

            fn enter(&mut self, scope: Scope) {
                let outer = mem::replace(&mut self.scope, scope);
                self.levels.push($Level::Leave(outer));
            }

            fn graph(&mut self, graph: &'m $($mut)? GraphProto, scope: Scope) {
                let GraphProto { initializer, sparse_initializer, node, .. } = graph;
                self.enter(scope);
                self.levels.push($Level::Nodes(node.$iter()));
                if let Some(tensors) = sparse_initializer.$as_deref() {
                    let place = Place::at(Site::SparseValues);
                    self.levels.push($Level::Sparse(place, list(None, tensors.$iter())));
                }
                let place = Place::at(Site::Initializer);
                self.levels.push($Level::Tensors(place, list(None, initializer.$iter())));
            }

            fn function(&mut self, function: &'m $($mut)? FunctionProto) {
                self.enter(Scope::function(function));
                let FunctionProto { node, attribute_proto, .. } = function;
                self.levels.push($Level::Attributes(Owner::FUNCTION, attribute_proto.$iter()));
                self.levels.push($Level::Nodes(node.$iter()));
            }

            fn training(&mut self, index: usize, info: &'m $($mut)? TrainingInfoProto) {
                let TrainingInfoProto { initialization, algorithm, .. } = info;
                for (part, graph) in
                    [("algorithm", algorithm), ("initialization", initialization)]
                {
                    let graph = list(graph.$as_deref(), $Items::default());
                    self.levels.push($Level::Graphs(Scope::training(index, part), graph));
                }
            }

            fn node(&mut self, node: &'m $($mut)? NodeProto) {
                let NodeProto { name, op_type, output, attribute, .. } = node;
                if !attribute.is_empty() {
                    let owner = Owner {
                        name: name.as_ref(),
                        op_type: op_type.as_ref(),
                        output: output.first(),
                        site: Site::Attribute,
                    };
                    self.levels.push($Level::Attributes(owner, attribute.$iter()));
                }
            }

            fn attribute(
                &mut self,
                owner: Owner<'m>,
                attribute: &'m $($mut)? AttributeProto,
            ) {
                let AttributeProto { name, t, g, more, .. } = attribute;
                let name = name.as_ref();
                // Rare fields that are not set are not allocated.
                let (tensors, sparse, graphs) = match more.$as_deref() {
                    Some(more) => {
                        let AttributeMore {
                            tensors, sparse_tensor, sparse_tensors, graphs, ..
                        } = more;
                        let sparse = list(sparse_tensor.$as_deref(), sparse_tensors.$iter());
                        (tensors.$iter(), Some(sparse), graphs.$iter())
                    }
                    None => ($Items::default(), None, $Items::default()),
                };
                if g.is_some() || graphs.len() > 0 {
                    let scope = self.scope.subgraph(&owner, name);
                    self.levels.push($Level::Graphs(scope, list(g.$as_deref(), graphs)));
                }
                if let Some(sparse) = sparse {
                    let site = Site::SparseAttributeValues;
                    let place = Place { site, ..owner.place(name) };
                    self.levels.push($Level::Sparse(place, sparse));
                }
                if t.is_some() || tensors.len() > 0 {
                    let tensors = list(t.$as_deref(), tensors);
                    self.levels.push($Level::Tensors(owner.place(name), tensors));
                }
            }

            fn sparse(
                &mut self,
                place: Place<'m>,
                tensor: &'m $($mut)? SparseTensorProto,
            ) {
                let SparseTensorProto { values, indices, .. } = tensor;
                let site = match place.site {
                    Site::SparseValues => Site::SparseIndices,
                    _ => Site::SparseAttributeIndices,
                };
                let name = values.as_ref().and_then(|values| values.name.clone());
                let of_indices = Place { site, values: name, ..place.clone() };
                let indices = list(indices.$as_deref(), $Items::default());
                self.levels.push($Level::Tensors(of_indices, indices));
                let values = list(values.$as_deref(), $Items::default());
                self.levels.push($Level::Tensors(place, values));
            }
        }

        impl<'m> Iterator for $Walk<'m> {
            type Item = (Place<'m>, &'m $($mut)? TensorProto);

            fn next(&mut self) -> Option<Self::Item> {
                loop {
                    match self.levels.last_mut()? {
                        $Level::Tensors(place, tensors) => {
                            if let Some(tensor) = tensors.next() {
                                let position = Position(self.next);
                                self.next += 1;
                                let (scope, place) = (self.scope.clone(), place.clone());
                                return Some((Place { position, scope, ..place }, tensor));
                            }
                        }
                        $Level::Sparse(place, tensors) => {
                            if let Some(tensor) = tensors.next() {
                                let place = place.clone();
                                self.sparse(place, tensor);
                                continue;
                            }
                        }
                        $Level::Attributes(owner, attributes) => {
                            if let Some(attribute) = attributes.next() {
                                let owner = *owner;
                                self.attribute(owner, attribute);
                                continue;
                            }
                        }
                        $Level::Nodes(nodes) => {
                            if let Some(node) = nodes.next() {
                                self.node(node);
                                continue;
                            }
                        }
                        $Level::Graphs(scope, graphs) => {
                            if let Some(graph) = graphs.next() {
                                let scope = scope.clone();
                                self.graph(graph, scope);
                                continue;
                            }
                        }
                        $Level::Functions(functions) => {
                            if let Some(function) = functions.next() {
                                self.function(function);
                                continue;
                            }
                        }
                        $Level::Training(infos) => {
                            if let Some((index, info)) = infos.next() {
                                self.training(index, info);
                                continue;
                            }
                        }
                        $Level::Leave(outer) => self.scope = mem::take(outer),
                    }
                    self.levels.pop();
                }
            }
        }

        impl FusedIterator for $Walk<'_> {}

        impl fmt::Debug for $Walk<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { scope, next, .. } = self;
                f.debug_struct(stringify!($Walk))
                    .field("scope", scope)
                    .field("next", next)
                    .finish_non_exhaustive()
            }
        }
    };
}

walk!(
    "The tensors of a model with their places; made by [`iter`](super::iter).",
    Tensors,
    Level,
    Iter,
    iter,
    as_deref
);
walk!(
    "The tensors of a model, to change, with their places; made by [`iter_mut`](super::iter_mut).",
    TensorsMut,
    LevelMut,
    IterMut,
    iter_mut,
    as_deref_mut,
    mut
);
