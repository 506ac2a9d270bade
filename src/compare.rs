//! What differs between two models: structure first, then tensors by their content:
//! [`compare`](compare()), [`compare_models`].
//!
//! Weights are read only where nothing else tells: not those that are the same bytes of the same
//! file, nor those with stored digests, nor those whose types or shapes differ. `structure`
//! compares what the messages say, `others` counts what has no name, `tensors` finds which tensors
//! are equal, and `elements` how far two that are not are apart.

mod elements;
mod others;
mod side;
mod structure;
mod tensors;

use std::path::Path;

pub use self::elements::Difference;
pub use self::others::OtherChange;
use self::side::Side;
use self::structure::Changes;
pub use self::structure::{OperatorChange, Property};
pub use self::tensors::{
    ChangedTensor, MovedTensor, OneTensor, RenamedTensor, TensorChanges, TensorForm,
};
use crate::container::Container;
use crate::error::Result;
use crate::load::LoadOptions;

/// How two models are compared.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    load: LoadOptions,
    differences: bool,
    ignores_digests: bool,
}

impl CompareOptions {
    /// Which tensors differ, and not by how much.
    pub fn new() -> Self {
        Self::default()
    }

    /// How [`compare_models`] loads the models. Default [`LoadOptions::new`], which reads all
    /// weights into memory: mapped ones are read only where they have to be.
    #[must_use]
    pub fn load(mut self, options: impl Into<LoadOptions>) -> Self {
        self.load = options.into();
        self
    }

    /// Reads weights whose digests are stored with both models too. Default false: stored digests
    /// are believed, and a weights file that was damaged or replaced since is not seen.
    #[must_use]
    pub fn ignore_stored_digests(mut self, ignore: bool) -> Self {
        self.ignores_digests = ignore;
        self
    }

    /// Also finds how far the elements of tensors are apart that differ. Default false.
    #[must_use]
    pub fn differences(mut self, differences: bool) -> Self {
        self.differences = differences;
        self
    }
}

/// What differs between the models A and B.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Comparison {
    /// Whether they have the same content, wherever it is stored: the same digest.
    pub same: bool,
    /// Versions, metadata, inputs, outputs and functions that differ.
    pub properties: Vec<Property>,
    /// Operators of which the number or the nodes differ: those with most changes first.
    pub operators: Vec<OperatorChange>,
    /// Whether the messages differ in something else: there are `other_changes`.
    pub other: bool,
    /// What this is: types of values between nodes, documentation, and where the other lists say
    /// nothing, the order of nodes and attributes, and fields that none of these lists is about.
    pub other_changes: Vec<OtherChange>,
    /// What differs in the tensors.
    pub tensors: TensorChanges,
}

/// Compares two containers, with the defaults of [`CompareOptions`].
///
/// ```
/// use onnx_container::compare::compare;
/// use onnx_container::proto::{GraphProto, ModelProto};
/// use onnx_container::{Container, Tensor};
///
/// let model = |weights: Vec<f32>| {
///     let mut graph = GraphProto::new("g");
///     graph.initializer.push(Tensor::from(weights).to_proto("w"));
///     Container::new(ModelProto::new(graph))
/// };
/// let found = compare(&model(vec![1.0, 2.0]), &model(vec![1.0, 3.0]))?;
/// assert!(!found.same);
/// assert_eq!(found.tensors.changed[0].name, "w");
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`compare_with`].
pub fn compare(a: &Container, b: &Container) -> Result<Comparison> {
    compare_with(a, b, &CompareOptions::new())
}

/// Compares two containers. Containers that were loaded without weights are compared as far as the
/// digests that are stored with them tell.
///
/// # Errors
/// One error for all tensors that have to be read and cannot be, such as
/// [`ErrorKind::MissingHandle`](crate::ErrorKind::MissingHandle);
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) for models that nest too deep.
pub fn compare_with(a: &Container, b: &Container, options: &CompareOptions) -> Result<Comparison> {
    match options.ignores_digests {
        true => sides(&Side::without_digests(a), &Side::without_digests(b), options),
        false => sides(&Side::of(a), &Side::of(b), options),
    }
}

/// Loads the models at two paths and compares them. Where the digests that are stored with both
/// tell everything, no weights file is opened.
///
/// # Errors
/// Those of [`Container::load`] and [`compare_with`].
pub fn compare_models(
    a: impl AsRef<Path>,
    b: impl AsRef<Path>,
    options: &CompareOptions,
) -> Result<Comparison> {
    let (a, b) = (a.as_ref(), b.as_ref());
    let full = |path: &Path| Container::load(path, options.load.clone());
    if options.ignores_digests {
        return compare_with(&full(a)?, &full(b)?, options);
    }
    let bare = |path: &Path| Container::load(path, options.load.clone().weights(false));
    let stored = |container: &Container| Side::of(container).digests;
    let (digests_a, digests_b) = if options.differences {
        (stored(&bare(a)?), stored(&bare(b)?))
    } else {
        let (bare_a, bare_b) = (bare(a)?, bare(b)?);
        let (digests_a, digests_b) = (stored(&bare_a), stored(&bare_b));
        if !digests_a.is_empty() && !digests_b.is_empty() {
            // Fails where a weight has to be read, which is not there.
            if let Ok(found) = sides(&Side::of(&bare_a), &Side::of(&bare_b), options) {
                return Ok(found);
            }
        }
        (digests_a, digests_b)
    };
    let (a, b) = (full(a)?, full(b)?);
    sides(&Side::with(&a, digests_a), &Side::with(&b, digests_b), options)
}

fn sides(a: &Side<'_>, b: &Side<'_>, options: &CompareOptions) -> Result<Comparison> {
    a.container.check_nesting()?;
    b.container.check_nesting()?;
    let structure = structure::compare(a.container, b.container)?;
    let tensors = tensors::compare(a, b, options.differences)?;
    let Changes { is_same, properties, operators, others: mut other_changes } = structure;
    let has_a_name = !properties.is_empty() || !operators.is_empty() || !tensors.are_none();
    if !is_same && !has_a_name && other_changes.is_empty() {
        other_changes.push(OtherChange::of_fields());
    }
    let (same, other) = (is_same && tensors.are_none(), !other_changes.is_empty());
    Ok(Comparison { same, properties, operators, other, other_changes, tensors })
}
