//! Lookup of tensors by name.
//!
//! A tensor can be named by its own name, by its scope and name as in reports, or by its handle.
//! [`Names`] resolves all three; what an ambiguous name is good for is left to its users. The names
//! of a whole model are collected in `tensors`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::slice;

use foldhash::fast::RandomState;

use crate::files::external_data::is_handle;
use crate::graph::traversal::Place;
use crate::proto::TensorProto;

/// Names of things of type `T`; several tensors may be the same thing. Names are borrowed from the
/// model where possible.
#[derive(Debug)]
pub(crate) struct Names<'m, T> {
    /// By scope and name, which in the main graph is the name alone.
    qualified: Map<'m, T>,
    /// By the name alone, of tensors in other graphs.
    plain: Map<'m, T>,
    /// By the handle without its `#`.
    handles: Map<'m, T>,
}

type Map<'m, T> = HashMap<Cow<'m, str>, Things<T>, RandomState>;

/// The things of one name, sorted. Most names have one thing, which takes no allocation.
#[derive(Debug)]
enum Things<T> {
    One(T),
    Several(Vec<T>),
}

impl<T: Copy + Ord> Things<T> {
    /// Most often `thing` is the greatest so far, so a million things of one name are not compared
    /// with each other.
    fn add(&mut self, thing: T) {
        let Err(at) = self.as_slice().binary_search(&thing) else { return };
        match self {
            Self::One(first) => {
                let mut several = vec![*first];
                several.insert(at, thing);
                *self = Self::Several(several);
            }
            Self::Several(several) => several.insert(at, thing),
        }
    }

    fn as_slice(&self) -> &[T] {
        match self {
            Self::One(thing) => slice::from_ref(thing),
            Self::Several(things) => things,
        }
    }
}

impl<T> Default for Names<'_, T> {
    fn default() -> Self {
        Self { qualified: Map::default(), plain: Map::default(), handles: Map::default() }
    }
}

impl<'m, T: Copy + Ord> Names<'m, T> {
    /// Makes room for the names of `tensors` tensors, of which `handles` are behind handles.
    pub(crate) fn reserve(&mut self, tensors: usize, handles: usize) {
        self.qualified.reserve(tensors);
        self.handles.reserve(handles);
    }

    /// Adds `tensor` at `place` as (one of the tensors of) `thing`, with copies of its names.
    pub(crate) fn add(&mut self, place: &Place<'_>, tensor: &TensorProto, thing: T) {
        let plain = (!place.scope.is_main()).then(|| place.name_of(tensor).into());
        self.add_names(place.qualified_name(tensor).into(), plain, thing);
    }

    /// Adds `qualified` as a name of `thing`, and outside the main graph its `plain` name.
    pub(crate) fn add_names(
        &mut self,
        qualified: Cow<'m, str>,
        plain: Option<Cow<'m, str>>,
        thing: T,
    ) {
        add(&mut self.qualified, qualified, thing);
        if let Some(plain) = plain {
            add(&mut self.plain, plain, thing);
        }
    }

    /// Adds the handle without its `#` as a name of `thing`.
    pub(crate) fn add_handle(&mut self, handle: impl Into<Cow<'m, str>>, thing: T) {
        add(&mut self.handles, handle.into(), thing);
    }

    /// Everything that `name` may mean, sorted: tensors by scope and name, else by the name alone,
    /// else by their handle. A `name` that starts with `#` is a handle, unless a tensor has that
    /// name.
    pub(crate) fn meanings(&self, name: &str) -> &[T] {
        let handle = if is_handle(name) { name.get(1..).unwrap_or_default() } else { name };
        let maps = [(&self.qualified, name), (&self.plain, name), (&self.handles, handle)];
        maps.into_iter().find_map(|(map, name)| map.get(name)).map_or(&[], Things::as_slice)
    }

    /// Resolves `name[1]` and `name[[1]]`: the second one of the things called `name`.
    pub(crate) fn by_number(&self, name: &str) -> Option<&[T]> {
        let inner = name.trim_end_matches(']');
        let depth = name.len() - inner.len();
        let (name, number) = inner.rsplit_once(&"[".repeat(depth)).filter(|_| depth > 0)?;
        let number: usize = number.parse().ok()?;
        self.meanings(name).get(number..)?.get(..1)
    }

    /// A unique name for every thing that shares its scope and name with others.
    pub(crate) fn numbered(&self) -> Vec<(T, String)> {
        let names = self.qualified.iter().map(|(name, things)| (name, things.as_slice()));
        let shared = names.filter(|(_, things)| things.len() > 1);
        let each =
            shared.flat_map(|(name, things)| things.iter().enumerate().map(move |t| (name, t)));
        each.map(|(name, (number, thing))| (*thing, self.with_number(name, number))).collect()
    }

    /// `name[number]`, with as many brackets as are needed for a name that nothing has.
    fn with_number(&self, name: &str, number: usize) -> String {
        let (mut open, mut close) = ("[".to_owned(), "]".to_owned());
        loop {
            let numbered = format!("{name}{open}{number}{close}");
            if self.meanings(&numbered).is_empty() {
                return numbered;
            }
            open.push('[');
            close.push(']');
        }
    }
}

fn add<'m, T: Copy + Ord>(map: &mut Map<'m, T>, name: Cow<'m, str>, thing: T) {
    map.entry(name).and_modify(|things| things.add(thing)).or_insert(Things::One(thing));
}

/// How many names an error lists.
const LISTED: usize = 8;

/// The first [`LISTED`] of `items`, separated by commas.
pub(crate) fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(LISTED);
    let mut text = items.take(LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This would take minutes if each were compared with all before it.
    #[test]
    fn many_things_of_one_name_are_added_in_order_and_once() {
        let (many, mut map) = (300_000, Map::default());
        for thing in (1..many).chain([0, many / 2, many - 1]) {
            add(&mut map, "same".into(), thing);
        }
        assert!(map["same"].as_slice().iter().copied().eq(0..many));
    }
}
