//! Einsum: sums of products, with the axes of inputs and output named by letters.
//!
//! See <https://onnx.ai/onnx/operators/onnx__Einsum.html>. Two inputs without axes that only one of
//! them sums are a product of matrices; everything else is a plain loop over all letters. Both add
//! the products in the order of the letters. Nothing is as long as the product of all axes:
//! matrices are made only where they have about as many elements as the inputs.

use std::collections::BTreeMap;

use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, offsets, strides};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("Einsum", infer, |cx| {
    let equation = Equation::new(cx)?;
    // Products of integers have the same bits in any order, and need no speed.
    match equation.as_matrices().filter(|_| !cx.dtype(0).is_ok_and(DataType::is_integer)) {
        Some(matrices) => {
            for_type!(cx.dtype(0)?, floats, T => by_matrices::<T>(cx, &equation, &matrices))
        }
        None => for_type!(cx.dtype(0)?, numbers, T => by_loop::<T>(cx, &equation)),
    }
})];

/// The most products that are computed: a few small inputs can ask for any number.
const MOST_PRODUCTS: usize = 1 << 40;

/// The name of an axis. The axes of an ellipsis are numbered from the last one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An equation, and the inputs that it is about.
#[derive(Debug)]
struct Equation {
    shapes: Vec<Vec<usize>>,
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
    dims: BTreeMap<Label, usize>,
}

impl Equation {
    fn new(call: &Call<'_>) -> Result<Self> {
        let text: String =
            call.str_or("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let terms: Vec<_> = left.split(',').collect();
        if terms.len() != call.input_count() {
            let reason = format!("{} terms for {} inputs", terms.len(), call.input_count());
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        let shapes = (0..terms.len()).map(|i| call.shape(i)).collect::<Result<Vec<_>>>()?;
        let named = terms.iter().zip(&shapes).map(|(term, shape)| {
            let letters = term.replace("...", "").chars().count();
            labels(term, shape.len().checked_sub(letters).ok_or_else(|| unfit(term, shape))?)
        });
        let inputs = named.collect::<Result<Vec<_>>>()?;
        let dims = dims(&inputs, &shapes)?;
        let ellipsis = dims.keys().filter(|label| matches!(label, Label::Ellipsis(_))).count();
        let output = match right {
            Some(term) => labels(term, ellipsis)?,
            None => implicit(&inputs, &dims),
        };
        let equation = Self { shapes, inputs, output, dims };
        equation.check()?;
        Ok(equation)
    }

    fn check(&self) -> Result<()> {
        let known = |(i, label): (usize, &Label)| {
            self.dims.contains_key(label) && !self.output.iter().take(i).any(|l| l == label)
        };
        if !self.output.iter().enumerate().all(known) {
            let reason = format!("the output {:?} of axes {:?}", self.output, self.dims);
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        let axes: Vec<_> = self.dims.values().copied().collect();
        let products = count(&axes);
        if products > MOST_PRODUCTS {
            let reason = format!(
                "the equation asks for {products} products of elements, and at most {MOST_PRODUCTS} are computed"
            );
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        Ok(())
    }

    /// The lengths of the axes `labels`.
    fn shape(&self, labels: &[Label]) -> Vec<usize> {
        labels.iter().filter_map(|label| self.dims.get(label).copied()).collect()
    }

    /// How far apart the neighbours in each of the axes `labels` are in input `i`: 0 where it has
    /// no such axis, or repeats it; with more than one such axis, the diagonal.
    fn strides(&self, i: usize, labels: &[Label]) -> Result<Vec<usize>> {
        let (shape, own) = (self.shapes.at(i)?, self.inputs.at(i)?);
        let stride = |label: &Label| {
            let places = own.iter().zip(shape).zip(strides(shape));
            let same = places.filter(|((other, dim), _)| *other == label && **dim != 1);
            same.fold(0, |sum: usize, (_, stride)| sum.saturating_add(stride))
        };
        Ok(labels.iter().map(stride).collect())
    }

    fn summed(&self) -> Vec<Label> {
        self.dims.keys().filter(|label| !self.output.contains(label)).copied().collect()
    }

    /// Two inputs as matrices, where all that is summed is an axis of both.
    fn as_matrices(&self) -> Option<Matrices> {
        let [first, second] = self.inputs.as_slice() else { return None };
        let summed = self.summed();
        let of = |in_first: bool, in_second: bool| {
            let is_such =
                |l: &&Label| first.contains(l) == in_first && second.contains(l) == in_second;
            self.output.iter().filter(is_such).copied().collect()
        };
        let in_both = summed.iter().all(|label| first.contains(label) && second.contains(label));
        let labels = [of(true, true), of(true, false), of(false, true), summed];
        let matrices = Matrices { labels };
        let fit = [0, 1].into_iter().all(|i| {
            let own = self.shapes.get(i).map_or(0, |shape| count(shape));
            count(&self.shape(&matrices.input(i))) <= own
        });
        (in_both && fit).then_some(matrices)
    }
}

/// The axes of a product of matrices: of the batch, of rows, of columns, and those that are summed.
#[derive(Debug)]
struct Matrices {
    labels: [Vec<Label>; 4],
}

impl Matrices {
    /// The axes of input `i`, 0 or 1, in the order of its matrices.
    fn input(&self, i: usize) -> Vec<Label> {
        let [batch, rows, columns, summed] = &self.labels;
        match i {
            0 => [batch.as_slice(), rows, summed].concat(),
            _ => [batch.as_slice(), summed, columns].concat(),
        }
    }
}

/// The labels of a term, with as many for its ellipsis.
fn labels(term: &str, ellipsis: usize) -> Result<Vec<Label>> {
    let (before, rest, dots) = match term.split_once("...") {
        Some((before, behind)) => (before, behind, ellipsis),
        None => (term, "", 0),
    };
    let letters = |text: &str| text.chars().map(Label::Letter).collect::<Vec<_>>();
    if !before.chars().chain(rest.chars()).all(|c| c.is_ascii_alphabetic()) {
        let reason = format!("the term `{term}` of the equation");
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    let dots: Vec<_> = (0..dots).rev().map(Label::Ellipsis).collect();
    Ok([letters(before), dots, letters(rest)].concat())
}

/// The length of each axis. Axes of one element are repeated.
fn dims(inputs: &[Vec<Label>], shapes: &[Vec<usize>]) -> Result<BTreeMap<Label, usize>> {
    let mut dims = BTreeMap::new();
    for (labels, shape) in inputs.iter().zip(shapes) {
        if labels.len() != shape.len() {
            return Err(unfit(&format!("{labels:?}"), shape));
        }
        for (label, size) in labels.iter().zip(shape) {
            let dim = dims.entry(*label).or_insert(1);
            match (*dim, *size) {
                (1, size) => *dim = size,
                (dim, size) if size == 1 || size == dim => {}
                _ => return Err(unfit(&format!("{labels:?}"), shape)),
            }
        }
    }
    Ok(dims)
}

fn unfit(term: &str, shape: &[usize]) -> Error {
    Error::new(ErrorKind::Shape, format!("the term {term} of the equation for the shape {shape:?}"))
}

/// The output of an equation without one: the ellipsis, and the letters that stand once, in order.
fn implicit(inputs: &[Vec<Label>], dims: &BTreeMap<Label, usize>) -> Vec<Label> {
    let times = |label: &Label| inputs.iter().flatten().filter(|other| *other == label).count();
    let ellipsis = dims.keys().rev().filter(|label| matches!(label, Label::Ellipsis(_)));
    let letters = dims.keys().filter(|l| matches!(l, Label::Letter(_)) && times(l) == 1);
    ellipsis.chain(letters).copied().collect()
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let equation = Equation::new(call)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, equation.shape(&equation.output))])
}

/// For each element of the output, the sum over all other axes of the product of the inputs'
/// elements.
fn by_loop<T: Number>(cx: &mut RunCx<'_>, equation: &Equation) -> Result<()> {
    let inputs = (0..cx.input_count()).map(|i| cx.input::<T>(i)).collect::<Result<Vec<_>>>()?;
    let summed = equation.summed();
    let (shape, inner) = (equation.shape(&equation.output), equation.shape(&summed));
    let all = |labels: &[Label]| -> Result<Vec<_>> {
        (0..inputs.len()).map(|i| equation.strides(i, labels)).collect()
    };
    let (outer_strides, inner_strides) = (all(&equation.output)?, all(&summed)?);
    let mut starts: Vec<_> = outer_strides.iter().map(|by| offsets(&shape, by)).collect();
    for y in cx.output::<T>(0)? {
        let walks =
            inner_strides.iter().map(|by| offsets(&inner, by)).zip(&mut starts).zip(&inputs);
        let factors = walks.map(|((walk, start), input)| {
            let start = start.next().or_bug("fewer places than elements of the output")?;
            Ok(walk.map(move |at| input.debug_at(start + at, T::ZERO).to_sum()))
        });
        let mut factors = factors.collect::<Result<Vec<_>>>()?;
        let mut sum = T::Sum::ZERO;
        for _ in 0..count(&inner) {
            let factors = factors.iter_mut().filter_map(Iterator::next);
            sum = sum.add(factors.fold(T::Sum::ONE, |product, factor| product.mul(factor)));
        }
        *y = T::from_sum(sum);
    }
    Ok(())
}

/// One product of matrices for each element of the batch axes.
fn by_matrices<T: Number>(
    cx: &mut RunCx<'_>,
    equation: &Equation,
    matrices: &Matrices,
) -> Result<()> {
    let [batch, rows, columns, summed] = &matrices.labels;
    if cx.out_shape(0)?.contains(&0) {
        return Ok(());
    }
    let gather = |i: usize| -> Result<Vec<T::Sum>> {
        let (input, labels) = (cx.input::<T>(i)?, matrices.input(i));
        let (shape, by) = (equation.shape(&labels), equation.strides(i, &labels)?);
        offsets(&shape, &by).map(|at| Ok(input.at(at)?.to_sum())).collect()
    };
    let size = |labels: &[Label]| count(&equation.shape(labels));
    let (m, n, k) = (size(rows), size(columns), size(summed));
    let (left, right) = (gather(0)?, gather(1)?);
    let mut products = vec![T::Sum::ZERO; size(batch) * m * n];
    let each = products.chunks_exact_mut((m * n).max(1)).enumerate();
    for (b, product) in each {
        let left = left.part(b * m * k..(b + 1) * m * k)?;
        let right = right.part(b * k * n..(b + 1) * k * n)?;
        gemm(Profile::Strict, Matrix::new(left, m, k)?, &Matrix::new(right, k, n)?, product)?;
    }
    let order = [batch.as_slice(), rows, columns].concat();
    let (shape, output) = (equation.shape(&order), cx.output::<T>(0)?);
    let own = strides(&equation.shape(&equation.output));
    let stride = |label: &Label| {
        let place = equation.output.iter().zip(&own).find(|(other, _)| *other == label);
        place.map_or(0, |(_, stride)| *stride)
    };
    let by: Vec<_> = order.iter().map(stride).collect();
    for (product, at) in products.into_iter().zip(offsets(&shape, &by)) {
        *output.at_mut(at)? = T::from_sum(product);
    }
    Ok(())
}
