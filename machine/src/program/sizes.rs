//! The sizes that a caller gives for dimensions that a model leaves open, by the name of the dimension, or by
//! its place: `image[0]` is the first one of the input `image`.

use std::collections::{BTreeSet, HashMap};

use super::{Block, Declared, Dim, Program};
use crate::error::{Error, ErrorKind, Result};

impl Program {
    /// Checks that every one of `sizes` is for a dimension of an input, by the dimension's name or as
    /// `image[0]`.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] for a name that stands for no dimension, with those that do.
    pub fn check_sizes(&self, sizes: &HashMap<String, usize>) -> Result<()> {
        let known = open_dimensions(&self.main);
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
}

/// What sizes can be given for: names of dimensions, and places of those without one.
fn open_dimensions(main: &Block) -> BTreeSet<String> {
    let of_input = |input: &Declared| -> Vec<String> {
        let dims = input.dims.iter().flatten().enumerate();
        let open = dims.flat_map(|(axis, dim)| match dim {
            Dim::Fixed(_) => Vec::new(),
            Dim::Symbol(name) => vec![name.clone()],
            Dim::Unknown => vec![place(main.name(input.value), axis)],
        });
        open.collect()
    };
    main.inputs.iter().flat_map(of_input).collect()
}

fn place(input: &str, axis: usize) -> String {
    format!("{input}[{axis}]")
}

impl Declared {
    /// The shape of this input, which is called `name`, with these `sizes`.
    pub(crate) fn shape(&self, name: &str, sizes: &HashMap<String, usize>) -> Result<Vec<usize>> {
        let refused = |reason: String| Error::new(ErrorKind::Input, reason);
        let dims = self.dims.as_ref();
        let dims =
            dims.ok_or_else(|| refused("the graph does not declare its shape".to_owned()))?;
        let size = |(axis, dim): (usize, &Dim)| {
            match dim {
            Dim::Fixed(size) => Ok(*size),
            Dim::Symbol(symbol) => sizes.get(symbol).copied().ok_or_else(|| {
                refused(format!(
                    "its dimension {axis}, `{symbol}`, has no size: give one, as in `--dim {symbol}=1`"
                ))
            }),
            Dim::Unknown => {
                let place = place(name, axis);
                sizes.get(&place).copied().ok_or_else(|| {
                    refused(format!(
                        "its dimension {axis} has neither a size nor a name: give a size by its place, as in \
                         `--dim {place}=1`"
                    ))
                })
            }
        }
        };
        dims.iter().enumerate().map(size).collect()
    }
}
