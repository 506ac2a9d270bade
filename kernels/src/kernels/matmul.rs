//! Products of matrices: [MatMul](https://onnx.ai/onnx/operators/onnx__MatMul.html).

use bytemuck::{cast_slice, cast_slice_mut};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast, broadcast_strides, count, offsets};
use crate::numeric::gemm::product;
use crate::numeric::profile::Profile;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("MatMul", infer, |cx| matmul(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] =
    &[Builtin::new("MatMul", infer, |cx| matmul(cx, Profile::Fast))];

/// The sizes of a product of stacks of matrices, as NumPy's matmul defines them.
pub(super) struct Sizes {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    /// The dimensions in front of the matrices, of each input and of the output.
    stacks: [Vec<usize>; 3],
    pub(super) output: Vec<usize>,
}

impl Sizes {
    /// The sizes of the product of two tensors of these shapes.
    pub(super) fn of(a: &[usize], b: &[usize]) -> Result<Self> {
        // A vector is a matrix of one row or column, which the output does not have.
        let (rows, columns) = (a.len() > 1, b.len() > 1);
        let a_matrix = if rows { a.to_vec() } else { [&[1], a].concat() };
        let b_matrix = if columns { b.to_vec() } else { [b, &[1]].concat() };
        let (Some((stack_a, [m, k])), Some((stack_b, [l, n]))) =
            (a_matrix.split_last_chunk(), b_matrix.split_last_chunk())
        else {
            return Err(Error::new(ErrorKind::Shape, "a scalar cannot be multiplied as a matrix"));
        };
        if k != l {
            let reason = format!("the shapes {a:?} and {b:?} have no product: {k} is not {l}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let stack = broadcast(&[stack_a.to_vec(), stack_b.to_vec()])?;
        let mut output = stack.clone();
        output.extend(Some(*m).filter(|_| rows).into_iter().chain(Some(*n).filter(|_| columns)));
        let stacks = [stack_a.to_vec(), stack_b.to_vec(), stack];
        Ok(Self { m: *m, k: *k, n: *n, stacks, output })
    }

    /// Every product of the stacks, of `a` and `b` to `c`.
    pub(super) fn products<T: Number>(
        &self,
        profile: Profile,
        a: &[T],
        b: &[T],
        c: &mut [T],
    ) -> Result<()> {
        let [k, n] = [self.k, self.n];
        self.each(a, b, c, |a, b, c| product(profile, a, b, c, [k, n]))
    }

    /// Calls `f` with the two factors of every product of the stacks `a` and `b`, and with the part
    /// of `c` that it belongs to.
    pub(super) fn each<T: Number>(
        &self,
        a: &[T],
        b: &[T],
        c: &mut [T],
        f: impl Fn(&[T], &[T], &mut [T]) -> Result<()>,
    ) -> Result<()> {
        let Self { m, k, n, stacks: [of_a, of_b, stack], .. } = self;
        let (step_a, step_b) = (broadcast_strides(of_a, stack), broadcast_strides(of_b, stack));
        let places = offsets(stack, &step_a).zip(offsets(stack, &step_b));
        let matrices = c.chunks_exact_mut((m * n).max(1)).zip(places);
        for (c, (i, j)) in matrices.take(count(stack)) {
            let a = a.part(i * m * k..(i + 1) * m * k)?;
            let b = b.part(j * k * n..(j + 1) * k * n)?;
            f(a, b, c)?;
        }
        Ok(())
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let sizes = Sizes::of(&call.shape(0)?, &call.shape(1)?)?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, sizes.output)])
}

fn matmul(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let sizes = Sizes::of(&cx.shape(0)?, &cx.shape(1)?)?;
    for_type!(cx.dtype(0)?, products, T as C => {
        let (a, b) = (cast_slice(cx.input::<T>(0)?), cast_slice(cx.input::<T>(1)?));
        sizes.products::<C>(profile, a, b, cast_slice_mut(cx.output::<T>(0)?))
    })
}
