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
    /// The tensor without its names.
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
    /// The range of `tensor`, which no longer has the name of the file then.
    fn taken_from(tensor: &mut TensorSummary) -> Option<Self> {
        let Stored::External { location, offset, length } = &mut tensor.stored else { return None };
        let bytes = length.or(tensor.bytes).unwrap_or_default();
        let file = plain(location);
        location.clear();
        location.shrink_to_fit();
        Some(Self { file, offset: *offset, bytes })
    }
}

/// The unique names of tensors that share one with others.
pub(crate) type Names = HashMap<String, VecDeque<String>>;

/// The `tensors` of a summary, in their order; `names` are those of its container.
pub(crate) fn rows(mut names: Names, tensors: Vec<TensorSummary>) -> Vec<Row> {
    let row = |mut tensor: TensorSummary| {
        let qualified = tensor.qualified_name();
        let unique = names.get_mut(&*qualified).and_then(VecDeque::pop_front);
        let name = unique.unwrap_or_else(|| qualified.into_owned());
        // Names may be long, and are not needed twice.
        (tensor.name, tensor.scope) = (String::new(), String::new());
        let range = Range::taken_from(&mut tensor);
        Row { name, tensor, range, shares: None }
    };
    let mut rows: Vec<_> = tensors.into_iter().map(row).collect();
    let shares = shares(&rows);
    for (row, shares) in rows.iter_mut().zip(shares) {
        row.shares = shares;
    }
    rows
}

/// For each row the number of the first one that has the same range.
fn shares(rows: &[Row]) -> Vec<Option<usize>> {
    let mut firsts: HashMap<&Range, usize> = HashMap::new();
    let mut shares = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        let first = row.range.as_ref().map(|range| *firsts.entry(range).or_insert(number));
        shares.push(first.filter(|first| *first != number));
    }
    shares
}

/// The unique names of the tensors that share a scope and name with others, the largest tensor
/// first, as in a summary.
pub(crate) fn unique_names(container: &Container) -> Names {
    let mut names: HashMap<String, Vec<Unique>> = HashMap::new();
    for tensor in container.index().iter() {
        let qualified = tensor.place().qualified_name(tensor.proto());
        if qualified == tensor.name() {
            continue;
        }
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
