//! Which tensor does a name mean?
//!
//! People name tensors as they know them: by the tensor's own name, by its scope and name as listed
//! and reported, or by the handle behind it. [`Names`] answers for all of them, and says so when a
//! name could mean several.

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

impl<T: Copy + PartialEq> Names<T> {
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
        let handle = if is_handle(name) { name.get(1..).unwrap_or_default() } else { name };
        let maps = [(&self.qualified, name), (&self.plain, name), (&self.handles, handle)];
        let found = maps.into_iter().find_map(|(map, name)| map.get(name));
        match found.map(Vec::as_slice) {
            None => Ok(None),
            Some([thing]) => Ok(Some(*thing)),
            Some(things) => {
                let reason = format!("`{name}` is the name of {} tensors", things.len());
                Err(Error::new(ErrorKind::InvalidArgument, reason))
            }
        }
    }
}

fn note<T: PartialEq>(map: &mut HashMap<String, Vec<T>>, name: String, thing: T) {
    let things = map.entry(name).or_default();
    if !things.contains(&thing) {
        things.push(thing);
    }
}
