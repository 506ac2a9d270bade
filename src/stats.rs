//! What the elements of tensors are like, in one pass over them: [`Container::stats`].
//!
//! All cores take pieces of a few MiB, and what they find is joined in the order of the pieces, so
//! that the result is the same on every machine. `numbers` adds up floats and long integers,
//! `short` floats of 16 bits, and `integers` short integers; `moments` joins means and deviations,
//! `histogram` makes bins that grow, `codes` counts elements of at most eight bits, `lanes` has the
//! step of sums side by side, and `elements` chooses between them by the type.

mod codes;
mod elements;
mod histogram;
mod integers;
mod lanes;
mod moments;
mod number;
mod numbers;
mod short;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use self::elements::Elements;
pub(crate) use self::elements::wide;
pub use self::histogram::Histogram;
pub use self::number::Number;
use self::numbers::Numbers;
use crate::container::Container;
use crate::container::pieces::Pieces;
use crate::container::tensors::TensorRef;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, Errors, Result};
use crate::files::overlaps;
use crate::tensor::Tensor;
use crate::util::{cancel, parallel};

/// What the elements of a tensor are like: [`Container::stats`].
///
/// Mean, deviation and histogram are of the finite elements. Of complex elements all of this is of
/// their real and imaginary parts; of strings only the number is known, and how many are empty.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TensorStats {
    /// The unique name of the tensor.
    pub name: String,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub shape: Vec<i64>,
    /// The number of elements.
    pub elements: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// The smallest finite element; `None` without any.
    pub min: Option<Number>,
    /// The largest finite element.
    pub max: Option<Number>,
    /// The mean of the finite elements; not finite where sums of them are beyond the range of a
    /// DOUBLE.
    pub mean: Option<f64>,
    /// Their standard deviation, as of all there are: the square root of the mean squared deviation
    /// from the mean. Not finite where elements are farther than about 1e154 from it.
    pub std: Option<f64>,
    /// The elements that are not a number.
    pub nan: u64,
    /// The elements that are infinite.
    pub infinite: u64,
    /// The elements that are zero, of either sign.
    pub zeros: u64,
    /// Whether there are elements, and all are equal. Zeros of both signs are.
    pub all_equal: bool,
    /// How the finite elements are distributed; `None` without any. Of a tensor with more than 2^20
    /// elements, every sixteenth block of 4096 elements (of 4 bits: 8192) is counted, and all
    /// elements of floats of at most 8 bits, of BOOL and of types of 2 bits.
    pub histogram: Option<Histogram>,
}

/// Of a tensor with more elements than this only some blocks of 4096 elements are counted in the
/// histogram: more would change nothing that can be seen in 64 bins, and take the time of all else.
const COUNTED_WHOLE: u64 = 1 << 20;
/// Of so many such blocks one is counted.
const STEP: usize = 16;
/// The length of a piece in bytes: whole elements of every type fill it.
const PIECE: u64 = 3 << 20;

impl Container {
    /// What the elements of the tensors are like that `selects` says yes to: the smallest, the
    /// largest, mean, standard deviation, how many are zero or not finite, a histogram.
    ///
    /// Every byte is read once, on all cores, in the element's own type; tied tensors are read once
    /// together. Mean and deviation are accurate for any number of elements (those of FLOAT16 and
    /// BFLOAT16 to a millionth of the deviation), and the result does not depend on the number of
    /// cores.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto};
    /// use onnx_container::Tensor;
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(Tensor::from(vec![1.0_f32, 3.0, f32::NAN]).to_proto("w"));
    /// let container = Container::new(ModelProto::new(graph));
    /// let stats = container.stats(|_| true)?;
    /// assert_eq!((stats[0].mean, stats[0].std, stats[0].nan), (Some(2.0), Some(1.0), 1));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all tensors that have no elements to read: without an initializer behind their
    /// handle ([`ErrorKind::MissingHandle`](crate::ErrorKind::MissingHandle)), or whose type, shape
    /// and data disagree; and those of sources.
    pub fn stats(&self, selects: impl Fn(&TensorRef<'_>) -> bool) -> Result<Vec<TensorStats>> {
        self.check_nesting()?;
        let index = self.index();
        let tensors: Vec<_> = index.iter().filter(|tensor| selects(tensor)).collect();
        let (mut work, mut errors) = (Work::default(), Errors::default());
        let jobs: Vec<_> = tensors.iter().map(|tensor| work.add(self, tensor)).collect();
        work.run()?;
        let mut stats = Vec::with_capacity(tensors.len());
        for (tensor, job) in tensors.into_iter().zip(jobs) {
            match job.and_then(|job| work.stats(tensor, job)) {
                Ok(found) => stats.push(found),
                Err(error) => errors.push(error.with_tensor(tensor.name())),
            }
        }
        errors.join().map_or(Ok(stats), Err)
    }
}

/// Pieces of tensors, each gone through once.
#[derive(Default)]
struct Work<'c> {
    tensors: Vec<Job<'c>>,
    by_range: HashMap<(overlaps::Range, DataType), usize>,
}

/// The pieces of one tensor.
struct Job<'c> {
    pieces: Pieces<'c>,
    found: Vec<(Range<u64>, OnceLock<Result<Elements>>)>,
}

impl<'c> Work<'c> {
    /// The number of the job for `tensor`; `None` for one of strings.
    fn add(&mut self, container: &'c Container, tensor: &TensorRef<'c>) -> Result<Option<usize>> {
        if tensor.dtype()? == DataType::String {
            return Ok(None);
        }
        let pieces = Pieces::of(container, tensor.proto())?;
        let new = self.tensors.len();
        let key = pieces.range().map(|range| (range, pieces.dtype()));
        let job = key.map_or(new, |key| *self.by_range.entry(key).or_insert(new));
        if job == new {
            self.tensors.push(Job { pieces, found: Vec::new() });
        }
        Ok(Some(job))
    }

    /// Goes through all pieces.
    fn run(&mut self) -> Result<()> {
        let ranges = self.by_range.keys().map(|(range, _)| *range).collect();
        if let Some(error) = overlaps::refused(ranges, "read") {
            return Err(error);
        }
        // Now their number is in proportion to the bytes that there are.
        for job in &mut self.tensors {
            job.found = job.pieces.ranges(PIECE).map(|range| (range, OnceLock::new())).collect();
        }
        let bytes = self.tensors.iter().map(|job| job.pieces.len());
        cancel::begin(bytes.fold(0, u64::saturating_add));
        let pieces = self.tensors.iter().flat_map(|job| job.found.iter().map(move |of| (job, of)));
        parallel::for_each(parallel::cores(usize::MAX), pieces, |(job, (range, found))| {
            let step = if job.pieces.elements() > COUNTED_WHOLE { STEP } else { 1 };
            let elements = job.pieces.piece(range).and_then(|piece| elements_of(&piece, step));
            // An error is one of its tensor.
            found.get_or_init(|| elements);
            cancel::advance(range.end.saturating_sub(range.start))
        })
    }

    /// What was found of `tensor`.
    fn stats(&self, tensor: &TensorRef<'_>, job: Option<usize>) -> Result<TensorStats> {
        let mut stats = TensorStats::bare(tensor)?;
        let Some(job) = job else {
            stats.add_strings(tensor)?;
            return Ok(stats);
        };
        let missing = || Error::internal("a piece that nobody went through");
        let job = self.tensors.get(job).ok_or_else(missing)?;
        let mut all: Option<Elements> = None;
        for (_, found) in &job.found {
            let found = found.get().ok_or_else(missing)?.as_ref().map_err(Error::clone)?;
            match &mut all {
                Some(all) => all.merge(found)?,
                None => all = Some(found.clone()),
            }
        }
        if let Some(all) = all {
            let (numbers, exact) = all.finish(stats.dtype)?;
            stats.add(&numbers, exact);
        }
        Ok(stats)
    }
}

/// What is known of `piece`, which is longer than others where it was made at once: it is cut as
/// they are, so that the same numbers are added in the same order.
fn elements_of(piece: &Tensor, step: usize) -> Result<Elements> {
    let cut = piece.buffer().map(|bytes| Pieces::of_tensor(piece, bytes));
    let cut = cut.filter(|pieces| pieces.len() > PIECE);
    let Some(pieces) = cut else { return Elements::of(piece, step) };
    let mut all: Option<Elements> = None;
    for range in pieces.ranges(PIECE) {
        let part = Elements::of(&pieces.piece(&range)?, step)?;
        match &mut all {
            Some(all) => all.merge(&part)?,
            None => all = Some(part),
        }
    }
    all.map_or_else(|| Elements::of(piece, step), Ok)
}

impl TensorStats {
    /// Those of a tensor without elements.
    fn bare(tensor: &TensorRef<'_>) -> Result<Self> {
        Ok(Self {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype()?,
            shape: tensor.dims().to_vec(),
            elements: element_count(tensor.dims())?,
            bytes: tensor.byte_len()?,
            min: None,
            max: None,
            mean: None,
            std: None,
            nan: 0,
            infinite: 0,
            zeros: 0,
            all_equal: false,
            histogram: None,
        })
    }

    fn add(&mut self, numbers: &Numbers, exact: Option<(Number, Number)>) {
        let of = |number| Number::of(number, self.dtype);
        let range = exact.or(numbers.range.map(|(min, max)| (of(min), of(max))));
        (self.min, self.max) = range.unzip();
        if numbers.moments.count > 0 {
            self.mean = Some(numbers.moments.mean);
            self.std = Some(numbers.moments.deviation());
        }
        let Numbers { positive_infinities, negative_infinities, .. } = numbers;
        self.nan = numbers.nan;
        self.infinite = positive_infinities + negative_infinities;
        self.zeros = numbers.zeros;
        let kinds = [numbers.moments.count, *positive_infinities, *negative_infinities, self.nan];
        let is_one_kind = kinds.into_iter().filter(|count| *count > 0).count() == 1;
        self.all_equal = is_one_kind && self.nan == 0 && self.min == self.max;
        self.histogram = numbers.bins.finish();
    }

    fn add_strings(&mut self, tensor: &TensorRef<'_>) -> Result<()> {
        let tensor = tensor.tensor()?;
        let strings = tensor.strings().unwrap_or_default();
        self.zeros = strings.iter().filter(|string| string.is_empty()).count() as u64;
        let mut pairs = strings.iter().zip(strings.iter().skip(1));
        self.all_equal = !strings.is_empty() && pairs.all(|(a, b)| a == b);
        Ok(())
    }
}
