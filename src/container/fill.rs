//! [`Container::fill`]: puts weights by name into a model that has only its structure.
//!
//! A pipeline often has the structure of a model in one file and the weights elsewhere: in a
//! checkpoint, in a module in memory. They are matched by name, which easily goes wrong: a prefix
//! differs, a matrix is transposed, a tensor is missing. So every name is accounted for, and
//! weights are accepted only when type and dimensions are the declared ones.

mod options;
mod prefix;
mod slot;
mod slots;
mod ties;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use options::FillOptions;
use options::Rule;
pub use prefix::PrefixRule;

use crate::container::{Container, HandleNames};
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::operands::{ShapeOperands, ShapeUse};
use crate::graph::traversal::{self, Place, Site};
use crate::proto::TensorProto;
use crate::tensor::initializer::Initializer;
use crate::util::cancel;
pub(crate) use slot::same_bytes;
use slots::{Slots, no_slot};

/// A tensor, and another one whose bytes it had.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Sharing {
    /// The tensor, with its scope before the name.
    pub tensor: String,
    /// The other one, which got weights.
    pub with: String,
}

/// What [`Container::fill`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Filled {
    /// The number of weights that were taken; each may stand for several tied tensors.
    pub filled: usize,
    /// Their length in bytes.
    pub bytes: u64,
    /// Weights that match no tensor, in the order in which they were given.
    pub unused: Vec<String>,
    /// External tensors that got no weights and keep those that they have, in graph order.
    pub own: Vec<String>,
    /// External tensors that still have no weights, in graph order; see [`FillOptions::partial`].
    pub missing: Vec<String>,
    /// Inline tensors that got no weights and keep their elements, in graph order.
    ///
    /// These are the initializers and the values of `Constant` nodes that may be weights: operands
    /// that shape inference reads, sparse indices, tensors without elements, and `Constant` values
    /// that have one element, or are integers of one dimension, are not listed.
    pub kept: Vec<String>,
    /// Rules of the options that apply to no weights, such as `ignore "w"`: a name or a prefix may
    /// be misspelled, or another rule takes precedence.
    pub idle_rules: Vec<String>,
    /// Tensors that no weights name and that got those of a tensor on the same bytes, in graph
    /// order; see [`FillOptions::tied`].
    pub tied: Vec<Sharing>,
    /// Tensors that no longer have the bytes of a tensor that got weights: they have weights of
    /// their own, or keep what they had. In graph order.
    pub untied: Vec<Sharing>,
}

impl Container {
    /// Puts weights into the tensors of their names.
    ///
    /// A weight's name is looked up among the tensors by scope and name (`if_node.then_branch/w`),
    /// by name alone, then among the handles. Existing weights are replaced; those of inline
    /// tensors, values of `Constant` nodes included, are replaced inline.
    ///
    /// Tensors of one handle, or of one range of a file that was not loaded, share their bytes.
    /// That can mean that the model ties them, or only that equal bytes were stored once, as
    /// [`SaveOptions::dedup`] does. So a tensor that no weights name follows one that they name
    /// only where both have the same dtype and dims, or the same handle, and [`Filled::tied`] lists
    /// it. All others keep their bytes, and tensors for which different weights are given get
    /// these: [`Filled::untied`]. [`FillOptions::tied`] decides otherwise. A location without
    /// offset and length counts as a placeholder, which ties nothing, when tensors of several
    /// lengths have it or when different weights are given for its tensors.
    ///
    /// [`SaveOptions::dedup`]: crate::SaveOptions::dedup
    ///
    /// `UINT8` weights are accepted as the packed bytes of types that a weights format may not
    /// have: narrower than a byte, 8-bit floats, complex numbers. They have one dimension, or the
    /// declared ones with the last one in bytes.
    ///
    /// ```
    /// use ndarray::Array2;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::edit::FillOptions;
    /// use onnx_container::Container;
    ///
    /// let mut graph = GraphProto::new("structure");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [4, 8], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    ///
    /// let weights = [("model.w".to_owned(), Array2::<f32>::ones((4, 8)).into())];
    /// let filled = container.fill(weights, FillOptions::new().strip_prefix("model."))?;
    /// assert_eq!((filled.filled, filled.bytes), (1, 128));
    /// container.check()?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all of: weights of which none has the name of a tensor
    /// ([`ErrorKind::MissingTensor`], with the [prefix](Self::prefix_rule) that may be the reason),
    /// external tensors without weights ([`ErrorKind::MissingHandle`]), another dtype
    /// ([`ErrorKind::DataType`]), other dims, transposed ones included ([`ErrorKind::Shape`]), one
    /// handle for tensors of several dtypes or lengths (the same two kinds), names that mean
    /// several tensors, renames that match no weights or no tensor, and rules that contradict each
    /// other ([`ErrorKind::InvalidArgument`]), and what [`FillOptions::strict`] and
    /// [`FillOptions::tied`] refuse. The container is then unchanged.
    pub fn fill(
        &mut self,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<FillOptions>,
    ) -> Result<Filled> {
        self.fill_with_spares(weights, [], options)
    }

    /// As [`fill`](Self::fill), with additional weights that may be left over: other names of some
    /// of `weights`.
    pub(crate) fn fill_with_spares(
        &mut self,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        spares: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<FillOptions>,
    ) -> Result<Filled> {
        let options = options.into();
        options.check()?;
        let mut filling = Filling::new(&options, Slots::of(self)?);
        for (name, initializer) in weights {
            filling.take(name, initializer, false);
        }
        for (name, initializer) in spares {
            filling.take(name, initializer, true);
        }
        filling.tie()?;
        filling.report_kept(self)?;
        // Comparisons that were cancelled found nothing equal.
        cancel::check()?;
        if let Some(error) = filling.nothing_matched(self) {
            return Err(error);
        }
        let (report, slots) = filling.finish()?;
        self.put(slots)?;
        Ok(report)
    }

    /// Puts the weights of the slots into the model and behind its handles.
    fn put(&mut self, mut slots: Slots) -> Result<()> {
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let Self { model, initializers, .. } = self;
        traversal::tensors_mut(model, |place, tensor| {
            let Some(slot) = slots.at_mut(place.position) else { return Ok(()) };
            let Some(given) = &slot.given else { return Ok(()) };
            // What is only declared has no bytes to be inline.
            if slot.inline && !given.is_declared() {
                let bytes = given.as_buffer();
                let bytes = bytes.ok_or_else(|| Error::internal("weights are not in one piece"))?;
                external_data::clear_payload(tensor);
                tensor.raw_data = Some(bytes);
            } else {
                let handle = slot.handle.get_or_insert_with(|| names.name(place, tensor));
                external_data::set_handle(tensor, handle.as_str());
                initializers.insert(handle.clone(), given.clone());
            }
            Ok(())
        })
    }
}

/// Whether the inline `tensor`, which keeps its elements, may be a weight. Shape operands, axes and
/// scalars are made by exporters and are in no checkpoint.
fn may_be_weights(place: &Place<'_>, tensor: &TensorProto, operands: &ShapeOperands) -> bool {
    let Ok((dtype, bytes)) = external_data::layout(tensor) else { return false };
    let row_of_integers = (dtype.is_integer() || dtype == DataType::Bool) && tensor.dims.len() < 2;
    let is_shape = match operands.shape_use(tensor) {
        Some(ShapeUse::Operand | ShapeUse::Derived) => true,
        Some(ShapeUse::Unknown) => row_of_integers,
        None => false,
    };
    let is_place = match place.site {
        Site::Initializer | Site::SparseValues => true,
        _ => place.is_constant() && !row_of_integers && has_several(tensor),
    };
    is_place && bytes > 0 && !is_shape
}

/// Whether `tensor` has more than one element.
fn has_several(tensor: &TensorProto) -> bool {
    element_count(&tensor.dims).is_ok_and(|count| count > 1)
}

/// The names of pairs of slots.
fn sharing(slots: &Slots, pairs: &[(usize, usize)]) -> Result<Vec<Sharing>> {
    let name = |number| slots.get(number).map(|slot| slot.tensor.clone()).ok_or_else(no_slot);
    let pair =
        |(one, with): &(usize, usize)| Ok(Sharing { tensor: name(*one)?, with: name(*with)? });
    pairs.iter().map(pair).collect()
}

/// The state of a fill.
struct Filling<'o> {
    options: &'o FillOptions,
    slots: Slots,
    report: Filled,
    /// Renames that have matched no weights so far.
    renames: HashSet<&'o str>,
    /// Other rules that have applied to no weights so far.
    idle: BTreeSet<Rule<'o>>,
    /// Whether weights were named that do not fit.
    has_refused: bool,
    errors: Errors,
}

impl<'o> Filling<'o> {
    fn new(options: &'o FillOptions, slots: Slots) -> Self {
        let renames = options.renames.keys().map(String::as_str).collect();
        let (report, errors) = (Filled::default(), Errors::default());
        let idle = options.rules();
        Self { options, slots, report, renames, idle, has_refused: false, errors }
    }

    /// Puts one weight into the slots that its name matches, or records why not.
    fn take(&mut self, name: String, initializer: Initializer, spare: bool) {
        self.renames.remove(name.as_str());
        if let Some(rule) = self.options.rule_of(&name) {
            self.idle.remove(&rule);
        }
        if self.options.ignored.contains(&name) {
            return;
        }
        let bytes = initializer.byte_len();
        let (tensors, named) = match self.options.tensors(&name) {
            Ok(found) => found,
            Err(error) => return self.wrong(&name, error),
        };
        let (mut asked_for, mut filled) = (spare, false);
        for tensor in &tensors {
            match self.slots.find(tensor) {
                Ok(slots) if slots.is_empty() && !named => continue,
                Ok(slots) if slots.is_empty() => {
                    let reason = format!("renamed to `{tensor}`, which the model does not have");
                    self.wrong(&name, Error::new(ErrorKind::InvalidArgument, reason));
                }
                Ok(slots) => {
                    for slot in slots {
                        filled |= self.give(slot, &name, initializer.clone(), spare);
                    }
                }
                Err(error) => self.wrong(&name, error),
            }
            asked_for = true;
        }
        if filled {
            self.report.filled += 1;
            self.report.bytes = self.report.bytes.saturating_add(bytes);
        }
        drop(tensors);
        if !asked_for {
            self.report.unused.push(name);
        }
    }

    /// Puts the weights called `name` into the slot `number`; returns whether it accepted them and
    /// had none before.
    fn give(&mut self, number: usize, name: &str, initializer: Initializer, spare: bool) -> bool {
        let fit = self.slots.fit(number, initializer);
        let Some(slot) = self.slots.get_mut(number) else { return false };
        match (fit, &slot.given) {
            // A checkpoint may list tied weights under each of their names.
            (Ok(initializer), Some(given)) if same_bytes(given, &initializer) => {}
            (_, Some(_)) => {
                let error = slot.given_twice(name);
                self.errors.push(error);
            }
            (Ok(initializer), None) => {
                slot.given = Some(initializer);
                name.clone_into(&mut slot.given_as);
                return true;
            }
            (Err(error), None) => {
                // So that the tensor is not reported as missing as well.
                slot.refused = true;
                let error = match spare {
                    true => error
                        .because(&format!("weights `{name}`, which the metadata tie to others")),
                    // A name that is also the tensor's is not repeated.
                    false if name == slot.tensor => error,
                    false => error.because(&format!("weights `{name}`")),
                };
                self.errors.push(error.with_tensor(slot.tensor.as_str()));
                self.has_refused = true;
            }
        }
        false
    }

    fn wrong(&mut self, name: &str, error: Error) {
        self.has_refused = true;
        self.errors.push(error.because(&format!("weights `{name}`")));
    }

    /// Gives the weights of a slot to the slots that are tied to it.
    fn tie(&mut self) -> Result<()> {
        let ties::Outcome { tied, untied, errors } =
            ties::resolve(&mut self.slots, self.options.tied);
        self.errors.extend(errors);
        self.report.tied = sharing(&self.slots, &tied)?;
        self.report.untied = sharing(&self.slots, &untied)?;
        Ok(())
    }

    /// Records the inline tensors that keep their elements. With `strict` and without `partial`,
    /// those of several elements are errors; a single element may be a constant of the graph
    /// itself.
    fn report_kept(&mut self, container: &Container) -> Result<()> {
        let operands = ShapeOperands::of(&container.model);
        let refuse = self.options.strict && !self.options.partial;
        self.report.own = self.slots.own().map(str::to_owned).collect();
        traversal::tensors(&container.model, |place, tensor| {
            let unanswered = self.slots.at(place.position).is_some_and(|slot| !slot.answered());
            if !is_external(tensor) && unanswered && may_be_weights(place, tensor, &operands) {
                let name = place.qualified_name(tensor);
                if refuse && has_several(tensor) {
                    let reason = "no weights of this name were given: it is inline and would keep \
                                  its elements";
                    let error = Error::new(ErrorKind::MissingTensor, reason);
                    self.errors.push(error.with_tensor(name.as_str()));
                }
                self.report.kept.push(name);
            }
            Ok(())
        })
    }

    /// An error for each tensor without weights.
    fn missing(&self) -> Vec<Error> {
        let untied = self.report.untied.iter().map(|it| (it.tensor.as_str(), it.with.as_str()));
        let untied: HashMap<_, _> = untied.collect();
        let missing = self.report.missing.iter().map(|tensor| {
            let mut reason = "no weights of this name were given".to_owned();
            if let Some(with) = untied.get(tensor.as_str()) {
                reason += &format!(", and it does not follow `{with}`, which has the same bytes");
            }
            Error::new(ErrorKind::MissingHandle, reason).with_tensor(tensor.as_str())
        });
        missing.collect()
    }

    /// The error when no weights have the name of a tensor, unless that is allowed or others say
    /// why.
    fn nothing_matched(&self, container: &Container) -> Option<Error> {
        let Filled { filled, unused, .. } = &self.report;
        if *filled > 0 || self.options.allow_no_match || self.has_refused {
            return None;
        }
        let reason = match unused.as_slice() {
            [] => "no weights were given".to_owned(),
            _ => {
                let rule = container.prefix_rule(unused).map(|rule| rule.to_string());
                let rule = rule.unwrap_or_else(|| {
                    "rename, strip_prefix and replace_prefix change the names of weights".to_owned()
                });
                format!("no tensor of the model has the name of any of the weights: {rule}")
            }
        };
        Some(Error::new(ErrorKind::MissingTensor, reason))
    }

    fn finish(mut self) -> Result<(Filled, Slots)> {
        self.report.missing = self.slots.missing().map(str::to_owned).collect();
        self.report.idle_rules = self.idle.iter().map(ToString::to_string).collect();
        if !self.options.partial {
            let errors = self.missing();
            self.errors.extend(errors);
        }
        let mut renames: Vec<_> = self.renames.drain().collect();
        renames.sort_unstable();
        self.errors.extend(renames.into_iter().map(|name| {
            let reason = format!("there are no weights `{name}` to rename");
            Error::new(ErrorKind::InvalidArgument, reason)
        }));
        if self.options.strict {
            self.errors.extend(self.report.unused.iter().map(|name| {
                let reason =
                    format!("weights `{name}`: no tensor has this name: ignore or rename them");
                Error::new(ErrorKind::InvalidArgument, reason)
            }));
        }
        match self.errors.join() {
            Some(error) => Err(error),
            None => Ok((self.report, self.slots)),
        }
    }
}
