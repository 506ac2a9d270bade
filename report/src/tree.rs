//! The weights by the parts of their names, with blocks that repeat as one: the layers of a model
//! are alike, and a map that shows each of them shows none of them well.
//!
//! Children of one module repeat when their names differ in digits alone, and everything below them
//! is alike: names up to digits, element types and shapes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use onnx_container::summary::module_parts;
use serde::Serialize;

use crate::rows::Row;
use crate::values::{exact, text};

/// A module, or a tensor; the names of the fields are short, because there may be very many.
#[derive(Debug, Clone, Default, Serialize, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its part of the name; of a repeated block the first and the last one.
    #[serde(rename = "n", serialize_with = "text")]
    pub(crate) name: String,
    /// The bytes of everything in it. Tied tensors are counted where the first of them is.
    #[serde(rename = "b", serialize_with = "exact")]
    pub(crate) bytes: u64,
    #[serde(rename = "p", serialize_with = "exact")]
    pub(crate) parameters: u64,
    #[serde(rename = "t")]
    pub(crate) tensors: usize,
    /// How many blocks it stands for.
    #[serde(rename = "x", skip_serializing_if = "is_one")]
    pub(crate) copies: usize,
    /// The tensor, or the first of those that it stands for.
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    pub(crate) tensor: Option<usize>,
    /// The other tensors that it stands for, which may be in other files.
    #[serde(rename = "o", skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<usize>,
    #[serde(rename = "c", skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<Node>,
}

fn is_one(copies: &usize) -> bool {
    *copies == 1
}

/// The tree of `rows`.
pub(crate) fn tree(rows: &[Row]) -> Node {
    let mut root = Builder::default();
    for (number, row) in rows.iter().enumerate() {
        let mut module = &mut root;
        for part in module_parts(&row.name) {
            module = module.children.entry(part).or_default();
        }
        module.tensors.push(number);
    }
    let mut root = Forms { rows, known: HashMap::new() }.node(root, String::new()).node;
    root.sort();
    root
}

#[derive(Default)]
struct Builder<'r> {
    children: BTreeMap<&'r str, Builder<'r>>,
    /// The tensors with exactly this name.
    tensors: Vec<usize>,
}

/// What two blocks have in common that repeat: the type and shape of a tensor, or the names up to
/// digits, the number and the form of what is in it.
#[derive(PartialEq, Eq, Hash)]
enum Form<'r> {
    Tensor(&'r str, &'r [i64]),
    Module(Vec<(String, usize, usize)>),
}

/// The forms that were met, each with a number.
struct Forms<'r> {
    rows: &'r [Row],
    known: HashMap<Form<'r>, usize>,
}

/// A node, and the number of its form.
struct Formed {
    node: Node,
    form: usize,
}

impl<'r> Forms<'r> {
    fn number(&mut self, form: Form<'r>) -> usize {
        let next = self.known.len();
        *self.known.entry(form).or_insert(next)
    }

    fn node(&mut self, builder: Builder<'r>, name: String) -> Formed {
        let Builder { children, tensors } = builder;
        if let ([tensor], true) = (tensors.as_slice(), children.is_empty()) {
            return self.tensor(*tensor, name);
        }
        let mut all: Vec<_> = tensors.iter().map(|it| self.tensor(*it, name.clone())).collect();
        for (part, child) in children {
            all.push(self.node(child, part.to_owned()));
        }
        let all = joined(all);
        let parts = all.iter().map(|(pattern, it)| (pattern.clone(), it.node.copies, it.form));
        let form = Form::Module(parts.collect());
        let children: Vec<_> = all.into_iter().map(|(_, it)| it.node).collect();
        let node = Node {
            name,
            bytes: children.iter().fold(0, |sum, it| it.bytes.saturating_add(sum)),
            parameters: children.iter().fold(0, |sum, it| it.parameters.saturating_add(sum)),
            tensors: children.iter().map(|it| it.tensors).sum(),
            copies: 1,
            tensor: None,
            others: Vec::new(),
            children,
        };
        Formed { node, form: self.number(form) }
    }

    fn tensor(&mut self, number: usize, name: String) -> Formed {
        let row = self.rows.get(number);
        let counted = row.filter(|row| row.shares.is_none()).map(|row| &row.tensor);
        let node = Node {
            name,
            bytes: counted.and_then(|it| it.bytes).unwrap_or_default(),
            parameters: counted.and_then(|it| it.elements).unwrap_or_default(),
            tensors: 1,
            copies: 1,
            tensor: Some(number),
            others: Vec::new(),
            children: Vec::new(),
        };
        let (dtype, shape) = row
            .map_or(("", &[][..]), |row| (row.tensor.dtype.as_str(), row.tensor.shape.as_slice()));
        Formed { node, form: self.number(Form::Tensor(dtype, shape)) }
    }
}

/// The nodes with those that repeat as one, each with its name up to digits. They are in the order
/// of these names and of their forms, which is the same in two blocks of one form.
fn joined(mut nodes: Vec<Formed>) -> Vec<(String, Formed)> {
    nodes.sort_unstable_by(order);
    let mut joined: Vec<(String, Formed)> = Vec::new();
    let mut last = String::new();
    for next in nodes {
        match joined.last_mut() {
            Some((_, one)) if one.form == next.form && alike(&one.node.name, &next.node.name) => {
                last.clone_from(&next.node.name);
                one.node.copies += 1;
                one.node.add(next.node);
            }
            one => {
                if let Some((_, one)) = one {
                    one.node.name_until(&last);
                }
                joined.push((pattern(&next.node.name).collect(), next));
            }
        }
    }
    if let Some((_, one)) = joined.last_mut() {
        one.node.name_until(&last);
    }
    joined
}

/// The order in which nodes that repeat are beside each other, by their numbers.
fn order(a: &Formed, b: &Formed) -> Ordering {
    let ([a_name, b_name], by_form) = ([&a.node.name, &b.node.name], a.form.cmp(&b.form));
    let by_number = || natural(a_name).cmp(natural(b_name)).then_with(|| a_name.cmp(b_name));
    let by_pattern = pattern(a_name).cmp(pattern(b_name));
    by_pattern.then(by_form).then_with(by_number).then_with(|| a.node.tensor.cmp(&b.node.tensor))
}

/// Whether two names differ in digits alone.
fn alike(a: &str, b: &str) -> bool {
    pattern(a).eq(pattern(b))
}

impl Node {
    /// Names a block that repeats by the first and the `last` one.
    fn name_until(&mut self, last: &str) {
        if self.copies > 1 {
            self.name = format!("{} … {last}", self.name);
        }
    }

    /// Adds what is counted in `other`, which has the same form.
    fn add(&mut self, other: Node) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.parameters = self.parameters.saturating_add(other.parameters);
        self.tensors += other.tensors;
        self.others.extend(other.tensor);
        self.others.extend(other.others);
        for (child, added) in self.children.iter_mut().zip(other.children) {
            child.add(added);
        }
    }

    /// Puts the children in the order of their bytes, the most first.
    fn sort(&mut self) {
        self.children.sort_by_key(|child| std::cmp::Reverse(child.bytes));
        self.children.iter_mut().for_each(Self::sort);
    }
}

/// `name` with a `#` for each row of digits.
fn pattern(name: &str) -> impl Iterator<Item = char> {
    let mut before = None;
    name.chars().filter_map(move |c| {
        let shown = if c.is_ascii_digit() { '#' } else { c };
        let is_more = c.is_ascii_digit() && before.replace(shown) == Some('#');
        before = Some(shown);
        (!is_more).then_some(shown)
    })
}

/// A key that puts `layer_9` before `layer_10`.
fn natural(name: &str) -> impl Iterator<Item = (&str, usize, &str)> {
    let mut rest = name;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, after) = after.split_at(digits);
        rest = after;
        let number = digits.trim_start_matches('0');
        Some((text, number.len(), number))
    })
}

#[cfg(test)]
mod tests {
    use onnx_container::Container;
    use onnx_container::proto::{GraphProto, ModelProto, TensorProto};

    use super::*;
    use crate::rows::{rows, unique_names};

    /// The tree of tensors of these names and lengths, as text.
    fn drawn(tensors: &[(&str, i64)]) -> String {
        let mut graph = GraphProto::new("g");
        for (name, len) in tensors {
            let tensor =
                TensorProto::external(*name, TensorProto::INT8, [*len], format!("{name}.bin"));
            graph.initializer.push(tensor);
        }
        let container = Container::new(ModelProto::new(graph));
        let summary = container.summary().unwrap();
        fn of(node: &Node) -> String {
            let copies = if node.copies > 1 { format!("x{}", node.copies) } else { String::new() };
            let children: Vec<_> = node.children.iter().map(of).collect();
            let children = if children.is_empty() {
                String::new()
            } else {
                format!("({})", children.join(" "))
            };
            format!("{}{copies}={}{children}", node.name, node.bytes)
        }
        of(&tree(&rows(unique_names(&container), summary.tensors)))
    }

    #[test]
    fn blocks_that_repeat_are_one() {
        for (tensors, expected) in [
            (&[][..], "=0"),
            (&[("w", 3)], "=3(w=3)"),
            (&[("l.0.w", 3), ("l.1.w", 3)], "=6(l=6(0 … 1x2=6(w=6)))"),
            // Another shape, and another tensor in it.
            (&[("l.0.w", 3), ("l.1.w", 4)], "=7(l=7(1=4(w=4) 0=3(w=3)))"),
            (&[("l.0.w", 3), ("l.1.w", 3), ("l.1.b", 1)], "=7(l=7(1=4(w=3 b=1) 0=3(w=3)))"),
            // In the order of their numbers.
            (&[("m_9", 1), ("m_10", 1), ("m_8", 1)], "=3(m_8 … m_10x3=3)"),
            // Blocks in blocks.
            (
                &[("a.0.b.0", 1), ("a.0.b.1", 1), ("a.1.b.0", 1), ("a.1.b.1", 1)],
                "=4(a=4(0 … 1x2=4(b=4(0 … 1x2=4))))",
            ),
            // A tensor that is a module too.
            (&[("a", 2), ("a.b", 3)], "=5(a=5(b=3 a=2))"),
            (&[("a", 2), ("b", 2)], "=4(a=2 b=2)"),
        ] {
            assert_eq!(drawn(tensors), expected, "{tensors:?}");
        }
    }

    #[test]
    fn a_block_knows_every_tensor_that_it_stands_for() {
        let mut graph = GraphProto::new("g");
        for name in ["l.0.a.0", "l.1.a.0", "l.0.a.1", "l.1.a.1"] {
            let tensor = TensorProto::external(name, TensorProto::INT8, [4], name);
            graph.initializer.push(tensor);
        }
        let container = Container::new(ModelProto::new(graph));
        let summary = container.summary().unwrap();
        let mut node = &tree(&rows(unique_names(&container), summary.tensors));
        while let [child] = &node.children[..] {
            node = child;
        }
        let mut all: Vec<_> = node.tensor.iter().chain(&node.others).copied().collect();
        all.sort_unstable();
        assert_eq!((all, node.tensors, node.bytes), (vec![0, 1, 2, 3], 4, 16));
    }

    #[test]
    fn digits_are_told_from_names() {
        for (name, expected) in [("l12", "l#"), ("1.2", "#.#"), ("a", "a"), ("", "")] {
            assert_eq!(pattern(name).collect::<String>(), expected);
        }
    }
}
