//! Which tensor does a name mean?
//!
//! People name tensors as they know them: by the tensor's own name, by its scope and name as listed
//! and reported, or by the handle behind it. [`Names`] answers for all of them, and says so when a
//! name could mean several. [`Index`] is the names of a whole model, for those who ask for one tensor:
//! it says which names there are when the one asked for is not among them.

use std::collections::HashMap;

use crate::container::Handle;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{ExternalData, is_external, is_handle};
use crate::proto::{ModelProto, TensorProto};
use crate::suggest::did_you_mean;
use crate::traversal::{self, Place};

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
        note(&mut self.qualified, place.qualified_name(tensor), thing);
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
    fn meanings(&self, name: &str) -> &[T] {
        let handle = if is_handle(name) { name.get(1..).unwrap_or_default() } else { name };
        let maps = [(&self.qualified, name), (&self.plain, name), (&self.handles, handle)];
        maps.into_iter().find_map(|(map, name)| map.get(name)).map_or(&[], Vec::as_slice)
    }
}

/// Most often `thing` is the greatest so far: a million of one name are not compared with each other.
fn note<T: Ord>(map: &mut HashMap<String, Vec<T>>, name: String, thing: T) {
    let things = map.entry(name).or_default();
    if let Err(at) = things.binary_search(&thing) {
        things.insert(at, thing);
    }
}

/// Every tensor of a model by its number: its place in graph order.
#[derive(Debug, Default)]
pub(crate) struct Index {
    names: Names<usize>,
    tensors: Vec<Listed>,
}

/// A tensor as it is listed.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Scope and name.
    pub(crate) name: String,
    /// Type and dimensions, for people.
    what: String,
    pub(crate) handle: Option<Handle>,
}

/// How many names an error lists.
const LISTED: usize = 8;

impl Index {
    pub(crate) fn of(model: &ModelProto) -> Result<Self> {
        let mut index = Self::default();
        traversal::tensors(model, |place, tensor| {
            index.add(place, tensor);
            Ok(())
        })?;
        Ok(index)
    }

    fn add(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        let number = self.tensors.len();
        self.names.add(place, tensor, number);
        let entry = is_external(tensor).then(|| ExternalData::parse(tensor).ok()).flatten();
        let handle = entry.and_then(|entry| entry.location.parse::<Handle>().ok());
        if let Some(handle) = &handle {
            self.names.add_handle(handle.name(), number);
        }
        let dtype = DataType::try_from(tensor.data_type.unwrap_or_default());
        let dtype = dtype.map_or("of an unknown type", DataType::name);
        let what = format!("{dtype} {:?}", tensor.dims);
        self.tensors.push(Listed { name: place.qualified_name(tensor), what, handle });
    }

    /// The tensors, by number.
    pub(crate) fn tensors(&self) -> &[Listed] {
        &self.tensors
    }

    /// The tensors that `name` means: one, or all that name one handle. `name[1]` is the second one
    /// of those that are called `name`, where no tensor is called `name[1]`.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is no such tensor, with names that are near;
    /// [`ErrorKind::InvalidArgument`] when the name means several.
    pub(crate) fn find(&self, name: &str) -> Result<&[usize]> {
        match self.names.meanings(name) {
            [] => self.numbered(name).ok_or_else(|| self.unknown(name)),
            one @ [_] => Ok(one),
            several if self.one_handle(several) => Ok(several),
            several => Err(self.ambiguous(name, several)),
        }
    }

    fn one_handle(&self, numbers: &[usize]) -> bool {
        let mut handles =
            numbers.iter().map(|n| self.tensors.get(*n).and_then(|t| t.handle.as_ref()));
        let first = handles.next().flatten();
        first.is_some() && handles.all(|handle| handle == first)
    }

    fn numbered(&self, name: &str) -> Option<&[usize]> {
        let (name, number) = name.strip_suffix(']')?.rsplit_once('[')?;
        let number: usize = number.parse().ok()?;
        self.names.meanings(name).get(number..)?.get(..1)
    }

    /// Names every tensor that `name` may mean in a way that means it alone.
    fn ambiguous(&self, name: &str, numbers: &[usize]) -> Error {
        let tensors: Vec<_> = numbers.iter().filter_map(|n| self.tensors.get(*n)).collect();
        let each = tensors.into_iter().enumerate().map(|(i, tensor)| {
            let Listed { name: qualified, what, .. } = tensor;
            let alone = self.names.meanings(qualified).len() == 1;
            let alone = if alone { qualified.clone() } else { format!("{name}[{i}]") };
            format!("`{alone}` ({what})")
        });
        let reason = format!("{} tensors are called so: {}", numbers.len(), list(each));
        Error::new(ErrorKind::InvalidArgument, reason).with_tensor(name)
    }

    fn unknown(&self, name: &str) -> Error {
        let names = self.tensors.iter().map(|tensor| tensor.name.as_str());
        let hint = did_you_mean(name, names)
            .unwrap_or_else(|| format!("the model has {} others", self.tensors.len()));
        let reason = format!("no such tensor; {hint}");
        Error::new(ErrorKind::MissingTensor, reason).with_tensor(name)
    }
}

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
