//! Which tensor does a name mean?
//!
//! People name tensors as they know them: by the tensor's own name, by its scope and name as listed
//! and reported, or by the handle behind it. [`Names`] answers for all of them, and says so when a
//! name could mean several. The names of a whole model are put together in `tensors`.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::external_data::is_handle;
use crate::proto::TensorProto;
use crate::traversal::Place;

/// Names of things called `T`, which may be one thing for several tensors.
#[derive(Debug)]
pub(crate) struct Names<T> {
    /// By scope and name, which for the main graph is the name.
    qualified: HashMap<String, Vec<T>>,
    /// By the name alone, of tensors in other graphs.
    plain: HashMap<String, Vec<T>>,
    /// By the handle without its `#`.
    handles: HashMap<String, Vec<T>>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self {
            qualified: HashMap::default(),
            plain: HashMap::default(),
            handles: HashMap::default(),
        }
    }
}

impl<T: Copy + Ord> Names<T> {
    /// Adds `tensor` at `place` as (one of the tensors of) `thing`.
    pub(crate) fn add(&mut self, place: &Place<'_>, tensor: &TensorProto, thing: T) {
        self.add_qualified(place, tensor, place.qualified_name(tensor), thing);
    }

    /// As [`add`](Self::add), for who has the name with its scope.
    pub(crate) fn add_qualified(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        qualified: String,
        thing: T,
    ) {
        note(&mut self.qualified, qualified, thing);
        if !place.scope.is_main() {
            note(&mut self.plain, place.name_of(tensor), thing);
        }
    }

    /// Adds the handle without its `#` as a name of `thing`.
    pub(crate) fn add_handle(&mut self, handle: &str, thing: T) {
        note(&mut self.handles, handle.to_owned(), thing);
    }

    /// What `name` means: a tensor by scope and name, else by its name alone, else by its handle. A
    /// `name` that starts with `#` is a handle, unless a tensor is called so.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it means several things.
    pub(crate) fn find(&self, name: &str) -> Result<Option<T>> {
        match self.meanings(name) {
            [] => Ok(None),
            [thing] => Ok(Some(*thing)),
            things => {
                let reason = format!("`{name}` is the name of {} tensors", things.len());
                Err(Error::new(ErrorKind::InvalidArgument, reason))
            }
        }
    }

    /// Everything that `name` may mean, sorted.
    pub(crate) fn meanings(&self, name: &str) -> &[T] {
        let handle = if is_handle(name) { name.get(1..).unwrap_or_default() } else { name };
        let maps = [(&self.qualified, name), (&self.plain, name), (&self.handles, handle)];
        maps.into_iter().find_map(|(map, name)| map.get(name)).map_or(&[], Vec::as_slice)
    }

    /// What `name[1]` means: the second one of the things called `name`; so does `name[[1]]`.
    pub(crate) fn by_number(&self, name: &str) -> Option<&[T]> {
        let inner = name.trim_end_matches(']');
        let depth = name.len() - inner.len();
        let (name, number) = inner.rsplit_once(&"[".repeat(depth)).filter(|_| depth > 0)?;
        let number: usize = number.parse().ok()?;
        self.meanings(name).get(number..)?.get(..1)
    }

    /// For every thing that shares its scope and name with others, a name that means it alone.
    pub(crate) fn numbered(&self) -> Vec<(T, String)> {
        let shared = self.qualified.iter().filter(|(_, things)| things.len() > 1);
        let each =
            shared.flat_map(|(name, things)| things.iter().enumerate().map(move |t| (name, t)));
        each.map(|(name, (number, thing))| (*thing, self.with_number(name, number))).collect()
    }

    /// `name[number]`, with as many brackets as make it a name that nothing has.
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

/// Most often `thing` is the greatest so far: a million of one name are not compared with each other.
fn note<T: Ord>(map: &mut HashMap<String, Vec<T>>, name: String, thing: T) {
    let things = map.entry(name).or_default();
    if let Err(at) = things.binary_search(&thing) {
        things.insert(at, thing);
    }
}

/// How many names an error lists.
const LISTED: usize = 8;

/// `items` with commas, up to [`LISTED`] of them.
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

    /// If each were compared with all before it, this would take minutes.
    #[test]
    fn many_things_of_one_name_are_noted_in_order_and_once() {
        let (many, mut map) = (300_000, HashMap::new());
        for thing in (0..many).chain([0, many / 2, many - 1]) {
            note(&mut map, "same".to_owned(), thing);
        }
        assert!(map["same"].iter().copied().eq(0..many));
    }
}
