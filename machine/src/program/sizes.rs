//! The sizes that a caller gives for dimensions that a model leaves open, by the name of the
//! dimension, or by its place: `image[0]` is the first one of the input `image`.

use std::collections::{BTreeSet, HashMap};

use super::{Declared, Dim, Program};
use crate::error::{Error, ErrorKind, Result};

impl Program {
    /// Checks that every one of `sizes` is for a dimension of an input, by the dimension's name or
    /// as `image[0]`.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] for a name that stands for no dimension, with those that do.
    pub fn check_sizes(&self, sizes: &HashMap<String, usize>) -> Result<()> {
        let known = self.open_dimensions();
        let Some(name) = sizes.keys().filter(|name| !known.contains(*name)).min() else {
            return Ok(());
        };
        let known = match known.len() {
            0 => "none is open".to_owned(),
            _ => format!("open are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
        };
        let reason = format!("no input has an open dimension `{name}`; {known}");
        Err(Error::new(ErrorKind::Input, reason))
    }

    /// What sizes can be given for: the names of open dimensions of inputs, and for those without a
    /// name their places, as `image[0]`.
    pub fn open_dimensions(&self) -> BTreeSet<String> {
        let of_input = |input: &Declared| -> Vec<String> {
            let dims = input.dims.iter().flatten().enumerate();
            let open = dims.flat_map(|(axis, dim)| match dim {
                Dim::Fixed(_) => None,
                Dim::Symbol(name) => Some(name.clone()),
                Dim::Unknown => Some(place(self.main.name(input.value), axis)),
            });
            open.collect()
        };
        self.main.inputs.iter().flat_map(of_input).collect()
    }
}

fn place(input: &str, axis: usize) -> String {
    format!("{input}[{axis}]")
}

/// The shape of `input`, which is called `name`, with these `sizes`. The error names every
/// dimension that has no size.
pub(crate) fn shape_of(
    input: &Declared,
    name: &str,
    sizes: &HashMap<String, usize>,
) -> Result<Vec<usize>> {
    let refused = |reason: String| Error::new(ErrorKind::Input, reason);
    let dims = input.dims.as_ref();
    let dims = dims.ok_or_else(|| refused("the graph does not declare its shape".to_owned()))?;
    let size = |(axis, dim): (usize, &Dim)| {
        let given = |of: String| sizes.get(&of).copied().ok_or(of);
        match dim {
            Dim::Fixed(size) => Ok(*size),
            Dim::Symbol(symbol) => given(symbol.clone()),
            Dim::Unknown => given(place(name, axis)),
        }
    };
    let found: Vec<_> = dims.iter().enumerate().map(size).collect();
    let missing: BTreeSet<_> = found.iter().filter_map(|size| size.as_ref().err()).collect();
    if missing.is_empty() {
        return Ok(found.into_iter().flatten().collect());
    }
    let named: Vec<_> = missing.iter().map(|of| format!("`{of}`")).collect();
    let options: Vec<_> = missing.iter().map(|of| format!("--dim {of}=1")).collect();
    let (named, options) = (named.join(", "), options.join(" "));
    Err(refused(match missing.len() {
        1 => format!("its dimension {named} has no size: give one, as in `{options}`"),
        _ => format!("its dimensions {named} have no sizes: give them, as in `{options}`"),
    }))
}
