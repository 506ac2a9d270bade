//! Random numbers: RandomUniform, RandomNormal, RandomUniformLike, RandomNormalLike, Bernoulli,
//! Multinomial.
//!
//! Operator `RandomNormal` is specified at
//! <https://onnx.ai/onnx/operators/onnx__RandomNormal.html>, and the others likewise. The generator
//! is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), which
//! has no state: draw `i` of a node is a function of a key and of `i` alone. The key is the bits of
//! attribute `seed`; without one it is the number of the node's first output, so two nodes differ
//! and every run draws the same. A draw is two 64-bit words; the upper 53 bits of each are a number
//! in [0, 1).

use onnx_container_proto::DataType;

use super::pattern::{out_type, out_type_or};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::OrBug;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::size;
use crate::numeric::{Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("RandomUniform", shape_infer, uniform),
    Builtin::new("RandomNormal", shape_infer, normal),
    Builtin::new("RandomUniformLike", like_infer, uniform),
    Builtin::new("RandomNormalLike", like_infer, normal),
    Builtin::new("Bernoulli", like_infer, bernoulli),
    Builtin::new("Multinomial", multinomial_infer, multinomial),
];

/// The generator of one node.
#[derive(Debug, Clone, Copy)]
struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The generator of the node of `call`.
    fn of(call: &Call<'_>) -> Result<Self> {
        let seed = call.node().attributes.float("seed")?;
        let first = call.node().outputs.iter().flatten().next();
        let number = first.map_or(0, |output| output.index());
        Ok(Self {
            key: match seed {
                Some(seed) => [seed.to_bits(), 0],
                // More outputs than that are not in memory.
                None => [u32::try_from(number).unwrap_or(u32::MAX), 1],
            },
        })
    }

    /// The block with number `counter`.
    fn block(self, counter: u64) -> [u32; 4] {
        let ([mut k0, mut k1], [low, high]) = (self.key, halves(counter));
        let mut block = [low, high, 0, 0];
        for _ in 0..10 {
            let [c0, c1, c2, c3] = block;
            let ([low0, high0], [low1, high1]) =
                (halves(u64::from(c0) * 0xd251_1f53), halves(u64::from(c2) * 0xcd9e_8d57));
            block = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
            (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
        }
        block
    }

    /// Draw `i`: two numbers in [0, 1).
    fn draw(self, i: usize) -> [f64; 2] {
        let [a, b, c, d] = self.block(i as u64);
        [unit(a, b), unit(c, d)]
    }
}

/// The low and the high half.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// The upper 53 bits of a word as a number in [0, 1).
fn unit(low: u32, high: u32) -> f64 {
    let bits = ((u64::from(high) << 32) | u64::from(low)) >> 11;
    f64::from_i128(i128::from(bits)) / 9_007_199_254_740_992.0 // 2^53
}

fn shape_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let shape = call.ints_or("shape", &[])?;
    let shape = shape.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    Ok(vec![OutSpec::tensor(out_type_or(call, DataType::Float)?, shape)])
}

fn like_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let dtype = out_type(call)?.map_or_else(|| call.dtype(0), Ok)?;
    Ok(vec![OutSpec::tensor(dtype, call.shape(0)?)])
}

/// Fills the output with `f` of each draw, rounded once.
fn fill(cx: &mut RunCx<'_>, f: impl Fn([f64; 2]) -> f64) -> Result<()> {
    let philox = Philox::of(cx)?;
    for_type!(cx.out_dtype(0)?, floats, T => {
        let output = cx.output::<T>(0)?.iter_mut().enumerate();
        output.for_each(|(i, element)| *element = <T as Number>::from_f64(f(philox.draw(i))));
        Ok(())
    })
}

fn uniform(cx: &mut RunCx<'_>) -> Result<()> {
    let (low, high) = (f64::from(cx.float_or("low", 0.0)?), f64::from(cx.float_or("high", 1.0)?));
    fill(cx, |[u, _]| low + (high - low) * u)
}

fn normal(cx: &mut RunCx<'_>) -> Result<()> {
    let (mean, scale) = (cx.float_or("mean", 0.0)?, cx.float_or("scale", 1.0)?);
    fill(cx, |draw| f64::from(mean) + f64::from(scale) * box_muller(draw))
}

/// The transform of Box and Muller: a draw as a number of the standard normal distribution.
fn box_muller<R: Real>([u, v]: [R; 2]) -> R {
    let radius = (R::of(-2.0) * (R::of(1.0) - u).ln()).sqrt();
    radius * (R::of(std::f64::consts::TAU) * v).cos()
}

/// 1 with the probability that the input has, else 0.
fn bernoulli(cx: &mut RunCx<'_>) -> Result<()> {
    let philox = Philox::of(cx)?;
    let ones: Vec<bool> = for_type!(cx.dtype(0)?, floats, T => {
        let chances = cx.input::<T>(0)?.iter().enumerate();
        Ok(chances.map(|(i, p)| philox.draw(i)[0] < Number::to_f64(*p)).collect())
    })?;
    if cx.out_dtype(0)? == DataType::Bool {
        cx.output::<bool>(0)?.copy_from_slice(&ones);
        return Ok(());
    }
    for_type!(cx.out_dtype(0)?, numbers, T => {
        let output = cx.output::<T>(0)?.iter_mut().zip(ones);
        output.for_each(|(element, one)| *element = if one { T::ONE } else { T::ZERO });
        Ok(())
    })
}

fn multinomial_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let [batches, _] = *call.shape(0)? else {
        return Err(Error::new(ErrorKind::Shape, "the input does not have two dimensions"));
    };
    let samples = size(call.int_or("sample_size", 1)?)?;
    let dtype = out_type_or(call, DataType::Int32)?;
    Ok(vec![OutSpec::tensor(dtype, [batches, samples])])
}

/// The input has logarithms of chances, one row for each batch; every sample is a class of it.
fn multinomial(cx: &mut RunCx<'_>) -> Result<()> {
    let philox = Philox::of(cx)?;
    let (&[_, classes], &[_, samples]) = (&*cx.shape(0)?, cx.out_shape(0)?) else {
        return Err(Error::internal("no matrix"));
    };
    let logits: Vec<f64> = for_type!(cx.dtype(0)?, floats, T => {
        Ok(cx.input::<T>(0)?.iter().map(|x| Number::to_f64(*x)).collect())
    })?;
    if classes == 0 && !cx.out_shape(0)?.contains(&0) {
        return Err(Error::new(ErrorKind::Shape, "there are no classes to draw from"));
    }
    let rows = logits.chunks_exact(classes.max(1)).map(cumulative);
    let drawn = rows.enumerate().flat_map(|(batch, sums)| {
        (0..samples).map(move |sample| {
            let total = sums.last().or_bug("no chances")?;
            let at = philox.draw(batch * samples + sample)[0] * total;
            Ok(sums.partition_point(|sum| *sum <= at).min(classes.saturating_sub(1)))
        })
    });
    let drawn = drawn.collect::<Result<Vec<_>>>()?;
    for_type!(cx.out_dtype(0)?, integers, T => {
        let output = cx.output::<T>(0)?.iter_mut().zip(drawn);
        output.for_each(|(element, class)| *element = T::from_i128(class as i128));
        Ok(())
    })
}

/// The sums of the chances up to each class, relative to the highest one.
fn cumulative<R: Real>(logits: &[R]) -> Vec<R> {
    let highest = logits.iter().fold(R::LOWEST, |a, b| if *b > a { *b } else { a });
    let mut sum = R::ZERO;
    let chances = logits.iter().map(|logit| (*logit - highest).exp());
    chances
        .map(|chance| {
            sum += chance;
            sum
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123 for Philox 4x32-10.
    #[test]
    fn the_generator_is_philox() {
        assert_eq!(
            Philox { key: [0, 0] }.block(0),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
    }
}
