//! Weights matched by content: which weights of a checkpoint each tensor of a model is made of.
//!
//! An exporter renames weights, transposes, casts, joins and cuts them: `q_proj.weight` becomes
//! `val_108`. Names do not lead back, but the elements do, as long as there is the checkpoint that
//! the model was exported from. A [`WeightMapping`] says it for each tensor, and with it another
//! checkpoint of the same architecture, a fine-tuned one, is put into the model.
//!
//! `survey` reads everything once and takes fingerprints that do not depend on the order of
//! elements. `sums` and `forms` say which weights, in which form, may be a tensor, and `search`
//! compares them, element by element: what differs in one bit is no match. `composed` reads weights
//! as the tensor that they make up, by `strided` and `convert`.

mod composed;
mod convert;
mod fingerprint;
mod forms;
mod mapping;
mod search;
mod strided;
mod sums;
mod survey;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

pub use self::mapping::{Composition, MatchedTensor, WeightMapping, WeightPart, WeightSlice};

use self::composed::Composed;
use self::convert::is_matched;
use self::search::{Search, SearchedWeights};
use self::sums::Sums;
use self::survey::CountedTensor;
use crate::container::Container;
use crate::container::fill::{FillOptions, Filled};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::traversal::{self, Place};
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;
use crate::util::cancel;
use crate::util::parallel;

/// Which tensors are looked at by [`Container::match_weights`].
///
/// ```
/// use onnx_container::edit::MatchOptions;
///
/// let options = MatchOptions::new().min_elements(256);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchOptions {
    min_elements: u64,
}

impl MatchOptions {
    /// The defaults: tensors of at least 8 elements.
    pub fn new() -> Self {
        Self { min_elements: 8 }
    }

    /// The least number of elements of a tensor that is matched by content. Fewer may be those of a
    /// weight by chance: such a tensor is matched only with a weight of its own name. Default: 8.
    #[must_use]
    pub fn min_elements(mut self, elements: u64) -> Self {
        self.min_elements = elements;
        self
    }
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of one tensor.
enum Outcome {
    Matched(Vec<Composition>),
    Uniform,
    Unmatched,
    Skipped,
}

/// Tensors, and what became of each.
type Outcomes = Vec<(CountedTensor, Outcome)>;

impl Container {
    /// Finds which of `weights`, those of the checkpoint that the model was exported from, each
    /// tensor is made of, by its elements. [`fill_mapped`](Self::fill_mapped) then puts another
    /// checkpoint into the model.
    ///
    /// Looked at are all tensors of floats of whole bytes: initializers, attributes, inside
    /// subgraphs and functions. A tensor may be a weight as it is, reshaped, with up to four axes
    /// in another order, cast to the type of the tensor as [`cast`](Self::cast) rounds; a slice of
    /// such a weight along one axis; or several weights joined along one axis: two of all, three of
    /// one module (of all, where there are at most 128 weights), any number of weights whose names
    /// differ only in numbers, in the order of the numbers. Whatever is found was compared with the
    /// tensor, element by element.
    ///
    /// A tensor that has the name, the dimensions and the elements of a weight is that weight.
    /// Otherwise equal elements may have several sources: [`MatchedTensor::alternatives`] has the
    /// others, and a tensor whose elements are all equal is listed in [`WeightMapping::uniform`]
    /// and not matched. Every tensor without a source is named.
    ///
    /// Everything is read on all cores, in pieces, once for the fingerprints and once to compare;
    /// only a weight that is no slice of memory or of a mapped file is in memory as a whole while
    /// it is compared.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::edit::{FillOptions, MatchOptions};
    /// use onnx_container::{Container, Initializer};
    ///
    /// // The exporter has renamed and transposed `q.weight`.
    /// let old = Array2::from_shape_fn((3, 4), |(i, j)| (4 * i + j) as f32);
    /// let mut graph = GraphProto::new("exported");
    /// graph.initializer.push(TensorProto::external("val_1", TensorProto::FLOAT, [4, 3], "#val_1"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#val_1", old.t().to_owned())?;
    ///
    /// let checkpoint = |values: Array2<f32>| [("q.weight".to_owned(), Initializer::from(values))];
    /// let mapping = container.match_weights(checkpoint(old.clone()), MatchOptions::new())?;
    /// let part = &mapping.get("val_1").unwrap().source.parts[0];
    /// assert_eq!((part.weight.as_str(), part.permutation.as_slice()), ("q.weight", &[1, 0][..]));
    ///
    /// let tuned = old.mapv(|value| value + 100.0);
    /// container.fill_mapped(&mapping, checkpoint(tuned.clone()), FillOptions::new())?;
    /// assert_eq!(container.tensor("val_1")?.view::<f32>()?, tuned.t().into_dyn());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check), as the tensors of the model have to be there, and of
    /// weights that cannot be read; [`ErrorKind::InvalidArgument`] for two weights of one name.
    pub fn match_weights(
        &self,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<MatchOptions>,
    ) -> Result<WeightMapping> {
        self.check()?;
        let options = options.into();
        let weights = items_of(weights)?;
        let (tensors, mut outcomes) = self.to_match()?;
        let seen = survey::of_tensors(&tensors)?;
        let types: BTreeSet<_> = tensors.iter().map(|tensor| tensor.weights.dtype()).collect();
        let of_types = survey::of_weights(&weights, &types)?;
        let by_name = weights.iter().enumerate().map(|(number, item)| (item.name.clone(), number));
        let by_name: HashMap<_, _> = by_name.collect();
        let sums: BTreeMap<DataType, Sums<'_>> =
            of_types.iter().map(|(dtype, of)| (*dtype, Sums::new(&weights, of))).collect();
        let found: Mutex<BTreeMap<usize, Outcome>> = Mutex::default();
        let mut order: Vec<_> = tensors.iter().zip(seen).enumerate().collect();
        order.sort_by_key(|(_, (tensor, _))| std::cmp::Reverse(tensor.count));
        let threads = parallel::cores(order.len());
        parallel::for_each(threads, order.into_iter(), |(number, (tensor, seen))| {
            let dtype = tensor.weights.dtype();
            let (Some(of_type), Some(sums)) = (of_types.get(&dtype), sums.get(&dtype)) else {
                return Err(Error::internal("a type was not looked at"));
            };
            let all = SearchedWeights { items: &weights, by_name: &by_name, of_type, sums };
            let outcome = outcome(&all, tensor, seen, &options);
            let outcome = outcome.map_err(|error| error.with_tensor(tensor.name.as_str()))?;
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(number, outcome);
            Ok(())
        })?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (tensor, outcome) in tensors.into_iter().zip(found.into_values()) {
            outcomes.push((tensor, outcome));
        }
        Ok(mapping(outcomes, &weights, &self.in_order()))
    }

    /// The names of all tensors with their numbers in graph order.
    fn in_order(&self) -> HashMap<String, usize> {
        let named = traversal::iter(&self.model).enumerate();
        named.map(|(number, (place, tensor))| (place.qualified_name(tensor), number)).collect()
    }

    /// The tensors that are matched, and those that are not, as they are reported.
    fn to_match(&self) -> Result<(Vec<CountedTensor>, Outcomes)> {
        let (mut tensors, mut skipped) = (Vec::new(), Vec::new());
        for (place, proto) in traversal::iter(&self.model) {
            let Some(item) = self.item(&place, proto)? else { continue };
            match is_matched(item.weights.dtype()) && !place.site.is_sparse() {
                true => tensors.push(item),
                false => skipped.push((item, Outcome::Skipped)),
            }
        }
        Ok((tensors, skipped))
    }

    /// The tensor with its elements; `None` for one that has no bytes.
    fn item(&self, place: &Place<'_>, proto: &TensorProto) -> Result<Option<CountedTensor>> {
        let name = place.qualified_name(proto);
        let of = |error: Error| error.with_tensor(name.as_str());
        let dtype = DataType::try_from(proto.data_type.unwrap_or_default()).map_err(of)?;
        if matches!(dtype, DataType::String | DataType::Undefined) {
            return Ok(None);
        }
        let weights = match is_external(proto) {
            true => self.initializer_of(proto).map_err(of)?.1.clone(),
            false => Tensor::try_from(proto).map_err(of)?.into(),
        };
        // An initializer may have other dimensions than the tensors on its handle.
        let weights = match weights.dims() == proto.dims {
            true => weights,
            false => weights.retyped(dtype, &proto.dims).map_err(of)?,
        };
        CountedTensor::new(name.clone(), weights).map(Some)
    }

    /// Puts another checkpoint into the model: each tensor of `mapping` gets what `weights` have in
    /// the places that it was made of. Weights of another float type are rounded to the type of the
    /// tensor.
    ///
    /// Nothing is copied now: a save reads permuted and cast weights in pieces. Of the options,
    /// [`FillOptions::partial`], [`FillOptions::strict`] and [`FillOptions::tied`] apply; names are
    /// those of the mapping. [`Filled::kept`] lists all tensors that the mapping has no weights for
    /// and that keep their elements, and [`Filled::unused`] the weights that it does not name.
    ///
    /// # Errors
    /// One error for all of: tensors that the model does not have, or not in this type and shape,
    /// and weights that are missing ([`ErrorKind::MissingTensor`]), are of other dimensions
    /// ([`ErrorKind::Shape`]) or of a type that is not cast ([`ErrorKind::DataType`]); tensors with
    /// [alternatives](MatchedTensor::alternatives) that are no longer equal in these weights, so
    /// that it is not known which is meant ([`ErrorKind::InvalidArgument`]: take the others out of
    /// the mapping); with [`FillOptions::strict`], floats that are not matched, and weights that
    /// are left over. Those of [`fill`](Self::fill). The container is then unchanged.
    pub fn fill_mapped(
        &mut self,
        mapping: &WeightMapping,
        weights: impl IntoIterator<Item = (String, Initializer)>,
        options: impl Into<FillOptions>,
    ) -> Result<Filled> {
        let options = options.into();
        let weights = items_of(weights)?;
        let weights: BTreeMap<_, _> =
            weights.iter().map(|item| (item.name.as_str(), &item.weights)).collect();
        let mut errors = Errors::default();
        let forms = self.forms();
        let mut given = Vec::with_capacity(mapping.matched.len());
        for matched in &mapping.matched {
            match made(matched, &weights, &forms) {
                Ok(made) => given.push((matched.tensor.clone(), made)),
                Err(error) => errors.push(error.with_tensor(matched.tensor.as_str())),
            }
        }
        let used = mapping.matched.iter().flat_map(|matched| matched.source.weights());
        let used: HashSet<_> = used.collect();
        let left = weights.keys().filter(|name| !used.contains(**name));
        let left: Vec<_> = left.map(|name| (*name).to_owned()).collect();
        cancel::check()?;
        if options.is_strict() {
            errors.extend(not_matched(mapping, &left));
        }
        if let Some(error) = errors.join() {
            return Err(error);
        }
        let mut filled = self.fill(given, options.without_names())?;
        let missing: HashSet<_> = filled.missing.iter().cloned().collect();
        let kept = mapping
            .uniform
            .iter()
            .chain(&mapping.unmatched)
            .filter(|name| forms.contains_key(name.as_str()) && !missing.contains(*name));
        filled.kept = kept.cloned().collect();
        let kept: HashSet<_> = filled.kept.iter().collect();
        filled.own.retain(|name| !kept.contains(name));
        filled.unused = left;
        Ok(filled)
    }

    /// The type and dimensions of each tensor.
    fn forms(&self) -> HashMap<String, (DataType, Vec<i64>)> {
        let forms = traversal::iter(&self.model).filter_map(|(place, tensor)| {
            let (dtype, _) = external_data::layout(tensor).ok()?;
            Some((place.qualified_name(tensor), (dtype, tensor.dims.clone())))
        });
        forms.collect()
    }
}

/// The weights by name, sorted.
fn items_of(
    weights: impl IntoIterator<Item = (String, Initializer)>,
) -> Result<Vec<CountedTensor>> {
    let mut items = Vec::new();
    for (name, weights) in weights {
        items.push(CountedTensor::new(name, weights)?);
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    let twice = items.iter().zip(items.iter().skip(1)).find(|(one, two)| one.name == two.name);
    match twice {
        Some((one, _)) => {
            let reason = format!("two weights are called `{}`", one.name);
            Err(Error::new(ErrorKind::InvalidArgument, reason))
        }
        None => Ok(items),
    }
}

/// Searches for what one tensor is made of.
fn outcome(
    weights: &SearchedWeights<'_>,
    tensor: &CountedTensor,
    seen: fingerprint::Seen,
    options: &MatchOptions,
) -> Result<Outcome> {
    let mut search = Search::new(weights, tensor)?;
    let plain = tensor.name.rsplit('/').next().unwrap_or_default();
    if let Some(own) = search.of_own_name(&[&tensor.name, plain])? {
        return Ok(Outcome::Matched(vec![own]));
    }
    if tensor.count < options.min_elements {
        return Ok(Outcome::Skipped);
    }
    if seen.is_uniform() {
        return Ok(Outcome::Uniform);
    }
    let found = search.run(seen.fingerprint)?;
    Ok(if found.is_empty() { Outcome::Unmatched } else { Outcome::Matched(found) })
}

/// All outcomes as a mapping, in the order of `numbers`.
fn mapping(
    mut outcomes: Outcomes,
    weights: &[CountedTensor],
    numbers: &HashMap<String, usize>,
) -> WeightMapping {
    outcomes.sort_by_key(|(item, _)| numbers.get(&item.name).copied());
    let mut mapping = WeightMapping::default();
    for (item, outcome) in outcomes {
        match outcome {
            Outcome::Uniform => mapping.uniform.push(item.name),
            Outcome::Unmatched => mapping.unmatched.push(item.name),
            Outcome::Skipped => mapping.skipped.push(item.name),
            Outcome::Matched(found) => {
                let mut found = found.into_iter();
                let Some(source) = found.next() else { continue };
                let (dtype, dims) = (item.weights.dtype(), item.weights.dims().to_vec());
                let alternatives = found.collect();
                let tensor = item.name;
                mapping.matched.push(MatchedTensor { tensor, dtype, dims, source, alternatives });
            }
        }
    }
    let used = mapping.matched.iter().flat_map(|matched| {
        matched.alternatives.iter().chain([&matched.source]).flat_map(Composition::weights)
    });
    let used: HashSet<_> = used.collect();
    let unused = weights.iter().filter(|item| !used.contains(item.name.as_str()));
    mapping.unused = unused.map(|item| item.name.clone()).collect();
    mapping
}

/// What `weights` have for one tensor of a mapping, after checking that the model has this tensor.
fn made(
    matched: &MatchedTensor,
    weights: &BTreeMap<&str, &Initializer>,
    forms: &HashMap<String, (DataType, Vec<i64>)>,
) -> Result<Initializer> {
    match forms.get(&matched.tensor) {
        None => {
            let reason = "the mapping has this tensor, the model does not: it is of another model";
            return Err(Error::new(ErrorKind::MissingTensor, reason));
        }
        Some((dtype, dims)) if (*dtype, dims) != (matched.dtype, &matched.dims) => {
            let reason = format!(
                "it was matched as {} {:?}, and is {dtype} {dims:?}: the mapping is of another model",
                matched.dtype, matched.dims
            );
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Some(_) => {}
    }
    let of = |composition: &Composition| {
        Composed::new(composition, (matched.dtype, &matched.dims), |name| {
            let found = weights.get(name).copied();
            found.ok_or_else(|| {
                let reason = format!("there are no weights `{name}`, which it is made of");
                Error::new(ErrorKind::MissingTensor, reason)
            })
        })
    };
    let made = of(&matched.source)?.initializer()?;
    for other in &matched.alternatives {
        if !crate::container::fill::same_bytes(&made, &of(other)?.initializer()?) {
            let names = |of: &Composition| of.weights().collect::<Vec<_>>().join("`, `");
            let reason = format!(
                "it matched both `{}` and `{}`, which differ in these weights: keep only one of \
                 them in the mapping",
                names(&matched.source),
                names(other)
            );
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
    }
    Ok(made)
}

/// What a strict fill refuses: tensors without weights, and weights without a tensor.
fn not_matched(mapping: &WeightMapping, left: &[String]) -> Vec<Error> {
    let tensors = mapping.uniform.iter().chain(&mapping.unmatched).map(|name| {
        let reason = "the mapping has no weights for it: it would keep its elements";
        Error::new(ErrorKind::MissingTensor, reason).with_tensor(name.as_str())
    });
    let weights = left.iter().map(|name| {
        let reason = format!("weights `{name}`: the mapping has no tensor that they belong to");
        Error::new(ErrorKind::InvalidArgument, reason)
    });
    tensors.chain(weights).collect()
}
