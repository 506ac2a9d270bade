//! The tensors of a model, each with its unique name and the tensor whose bytes it shares.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use onnx_container::Container;
use onnx_container::summary::{Stored, TensorSummary};
use onnx_container_files::locations::plain;

/// A tensor.
pub(crate) struct Row {
    /// A name that no other tensor has, by which statistics and differences are found.
    pub(crate) name: String,
    pub(crate) tensor: TensorSummary,
    /// The file with its elements, in the one form of its name, and the range there.
    pub(crate) range: Option<Range>,
    /// The number of the tensor before it that has the same range.
    pub(crate) shares: Option<usize>,
}

/// A range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Range {
    fn of(tensor: &TensorSummary) -> Option<Self> {
        let Stored::External { location, offset, length } = &tensor.stored else { return None };
        let bytes = length.or(tensor.bytes).unwrap_or_default();
        Some(Self { file: plain(location), offset: *offset, bytes })
    }
}

/// The `tensors` of the summary of `container`, in their order.
pub(crate) fn rows(container: &Container, tensors: Vec<TensorSummary>) -> Vec<Row> {
    let mut names = unique_names(container);
    let mut firsts: HashMap<Range, usize> = HashMap::new();
    let row = |(number, tensor): (usize, TensorSummary)| {
        let qualified = tensor.qualified_name();
        let unique = names.get_mut(&*qualified).and_then(VecDeque::pop_front);
        let name = unique.unwrap_or_else(|| qualified.clone().into_owned());
        let range = Range::of(&tensor);
        let first = range.clone().map(|range| *firsts.entry(range).or_insert(number));
        let shares = first.filter(|first| *first != number);
        Row { name, tensor, range, shares }
    };
    tensors.into_iter().enumerate().map(row).collect()
}

/// The unique names of the tensors that share a scope and name, the largest tensor first, as in a
/// summary.
fn unique_names(container: &Container) -> HashMap<String, VecDeque<String>> {
    let mut names: HashMap<String, Vec<Unique>> = HashMap::new();
    for tensor in container.index().iter() {
        let qualified = tensor.place().qualified_name(tensor.proto());
        let (bytes, name) = (tensor.byte_len().ok(), tensor.name().to_owned());
        names.entry(qualified).or_default().push(Unique { bytes, name });
    }
    let sorted = |(qualified, mut all): (String, Vec<Unique>)| {
        all.sort_by_key(|unique| Reverse(unique.bytes));
        (qualified, all.into_iter().map(|unique| unique.name).collect())
    };
    names.into_iter().map(sorted).collect()
}

/// The unique name of a tensor, and its length.
struct Unique {
    bytes: Option<u64>,
    name: String,
}
