//! The attributes of a node, parsed: constant parameters of its operator.
//!
//! An attribute has one kind of value, and a kernel asks for the kind that its operator defines.
//! Graphs are blocks of the program already. Defaults are the operator's and are left to its
//! kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use onnx_container_proto::Tensor;

use super::Block;
use crate::error::{Error, ErrorKind, Result};
use crate::program::schema;
use crate::value::Type;

/// The value of an attribute.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// A byte string, usually UTF-8.
    String(Vec<u8>),
    /// A tensor.
    Tensor(Tensor),
    /// A graph, such as the branch of an If.
    Graph(Arc<Block>),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Byte strings.
    Strings(Vec<Vec<u8>>),
    /// Tensors.
    Tensors(Vec<Tensor>),
    /// Graphs.
    Graphs(Vec<Arc<Block>>),
    /// A type.
    Type(Type),
}

impl Attribute {
    /// The letter for its kind in the table of schemas.
    pub(crate) fn letter(&self) -> char {
        match self {
            Self::Int(_) => 'i',
            Self::Float(_) => 'f',
            Self::String(_) => 's',
            Self::Tensor(_) => 't',
            Self::Graph(_) => 'g',
            Self::Ints(_) => 'I',
            Self::Floats(_) => 'F',
            Self::Strings(_) => 'S',
            Self::Tensors(_) => 'T',
            Self::Graphs(_) => 'G',
            Self::Type(_) => 'p',
        }
    }

    fn kind(&self) -> &'static str {
        schema::kind(self.letter())
    }
}

/// The attributes of one node by name. Each getter is `None` for an attribute that is not there.
///
/// # Errors
/// Every getter fails with [`ErrorKind::InvalidModel`] where the attribute has a value of another
/// kind.
#[derive(Debug, Clone, Default)]
pub struct Attributes(BTreeMap<String, Attribute>);

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty, $expected:literal: $pattern:pat => $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<Option<$type>> {
            match self.0.get(name) {
                None => Ok(None),
                Some($pattern) => Ok(Some($value)),
                Some(other) => {
                    let reason =
                        format!("attribute `{name}` is {}, not {}", other.kind(), $expected);
                    Err(Error::new(ErrorKind::InvalidModel, reason))
                }
            }
        }
    )*};
}

/// Getters of attributes that have a default.
macro_rules! defaults {
    ($($name_or:ident: $name:ident -> $type:ty;)*) => {$(
        /// As the getter without `_or`; the operator's default where the attribute is not there.
        #[allow(clippy::needless_lifetimes, reason = "a default that is a slice has the lifetime")]
        #[doc(hidden)]
        pub fn $name_or<'a>(&'a self, name: &str, default: $type) -> Result<$type> {
            Ok(self.$name(name)?.unwrap_or(default))
        }
    )*};
}

impl Attributes {
    getters! {
        /// An integer.
        int -> i64, "an integer": Attribute::Int(value) => *value;
        /// A float.
        float -> f32, "a float": Attribute::Float(value) => *value;
        /// A byte string.
        bytes -> &[u8], "a string": Attribute::String(value) => value;
        /// A tensor.
        tensor -> &Tensor, "a tensor": Attribute::Tensor(value) => value;
        /// A graph.
        graph -> &Arc<Block>, "a graph": Attribute::Graph(value) => value;
        /// Integers.
        ints -> &[i64], "integers": Attribute::Ints(value) => value;
        /// Floats.
        floats -> &[f32], "floats": Attribute::Floats(value) => value;
        /// Byte strings.
        strings -> &[Vec<u8>], "strings": Attribute::Strings(value) => value;
        /// A type.
        ty -> &Type, "a type": Attribute::Type(value) => value;
    }

    defaults! {
        int_or: int -> i64;
        float_or: float -> f32;
        bytes_or: bytes -> &'a [u8];
        ints_or: ints -> &'a [i64];
        floats_or: floats -> &'a [f32];
        strings_or: strings -> &'a [Vec<u8>];
    }

    /// The attribute of any kind.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// Every attribute, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, attribute)| (name.as_str(), attribute))
    }

    /// Every graph among the attributes, with its attribute's name.
    pub fn graphs(&self) -> impl Iterator<Item = (&str, &Arc<Block>)> {
        self.0.iter().flat_map(|(name, attribute)| {
            let graphs = match attribute {
                Attribute::Graph(block) => std::slice::from_ref(block),
                Attribute::Graphs(blocks) => blocks,
                _ => &[],
            };
            graphs.iter().map(move |block| (name.as_str(), block))
        })
    }

    /// Every graph that nothing else holds, to change it.
    #[doc(hidden)]
    pub fn graphs_mut(&mut self) -> impl Iterator<Item = (&str, &mut Block)> {
        self.0.iter_mut().flat_map(|(name, attribute)| {
            let graphs = match attribute {
                Attribute::Graph(block) => std::slice::from_mut(block),
                Attribute::Graphs(blocks) => blocks.as_mut_slice(),
                _ => &mut [],
            };
            graphs.iter_mut().filter_map(move |block| Some((name.as_str(), Arc::get_mut(block)?)))
        })
    }

    /// Sets an attribute.
    #[doc(hidden)]
    pub fn set(&mut self, name: &str, attribute: Attribute) {
        self.0.insert(name.to_owned(), attribute);
    }
}

impl FromIterator<(String, Attribute)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (String, Attribute)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}
