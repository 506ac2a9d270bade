//! Lines: what operators along one axis read and write, as slices.
//!
//! A tensor is, around an axis, `outer` blocks of `dim` rows of `inner` elements. A line is the
//! `dim` elements with the same place in the other axes. Softmax, TopK and CumSum say what happens
//! to one line, and nothing about where it lies.

/// Calls `f` with each line of `dim` elements of `input`, and the line at the same place in
/// `output`, which has `out_dim` elements. Lines lie `inner` elements apart. Without elements there
/// are no lines.
pub(crate) fn lines<X: Copy, Y: Copy>(
    (input, dim): (&[X], usize),
    (output, out_dim): (&mut [Y], usize),
    inner: usize,
    mut f: impl FnMut(&[X], &mut [Y]),
) {
    each((input, dim), (output, out_dim), inner, &mut f);
}

/// The loop of [`lines`], once for each type.
fn each<X: Copy, Y: Copy>(
    (input, dim): (&[X], usize),
    (output, out_dim): (&mut [Y], usize),
    inner: usize,
    f: &mut dyn FnMut(&[X], &mut [Y]),
) {
    let blocks = dim.saturating_mul(inner).max(1);
    let out_blocks = out_dim.saturating_mul(inner).max(1);
    let (mut line, mut out_line) = (Vec::new(), Vec::new());
    for (x, y) in input.chunks_exact(blocks).zip(output.chunks_exact_mut(out_blocks)) {
        if inner == 1 {
            f(x, y);
            continue;
        }
        for n in 0..inner {
            line.clear();
            line.extend(x.iter().skip(n).step_by(inner).copied());
            out_line.clear();
            out_line.extend(y.iter().skip(n).step_by(inner).copied());
            f(&line, &mut out_line);
            let places = y.iter_mut().skip(n).step_by(inner);
            places.zip(&out_line).for_each(|(y, result)| *y = *result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_axis_are_found() {
        let input: Vec<i32> = (0..12).collect(); // 2 x 3 x 2
        let cases = [
            (1, 2, vec![1, 5, 9, 13, 17, 21]),
            (2, 3, vec![6, 9, 24, 27]),
            (6, 2, vec![6, 8, 10, 12, 14, 16]),
        ];
        for (inner, dim, expected) in cases {
            let mut sums = vec![0; 12 / dim];
            lines((&input, dim), (&mut sums, 1), inner, |x, y| y[0] = x.iter().sum());
            assert_eq!(sums, expected, "{inner}");
        }
        lines::<i32, i32>((&[], 0), (&mut [], 0), 3, |_, _| panic!("there is no line"));
    }
}
