//! One step of a recurrent layer: from the state and the products of an input with W to the next
//! state.

use super::function::Function;
use super::part_if;
use super::weights::Weights;
use crate::error::Result;
use crate::numeric::Real;

/// A step of one direction.
pub(super) trait Cell<R: Real> {
    /// Adds products of the states of all entries of the batch, `h`, to their gates.
    fn add_recurrent(&self, h: &[R], gates: &mut [R]) -> Result<()>;

    /// Replaces the state of one entry by the next one.
    fn step(&self, gates: &mut [R], h: &mut [R], c: &mut [R]) -> Result<()>;
}

/// The sum of the two halves of a bias, of W and of R; nothing where there is none.
fn sum_of_halves<R: Real>(bias: &[R]) -> Vec<R> {
    let (of_w, of_r) = bias.split_at(bias.len() / 2);
    of_w.iter().zip(of_r).map(|(a, b)| *a + *b).collect()
}

/// Adds a term to each element, for as many terms as there are.
fn add<R: Real>(elements: &mut [R], terms: &[R]) {
    elements.iter_mut().zip(terms).for_each(|(x, term)| *x += *term);
}

/// H = f(X W + H R + B)
pub(super) struct Rnn<R> {
    recurrent: Weights<R>,
    bias: Vec<R>,
    f: Function,
}

impl<R: Real> Rnn<R> {
    pub(super) fn new(recurrent: Weights<R>, bias: &[R], [f]: [Function; 1]) -> Self {
        Self { recurrent, bias: sum_of_halves(bias), f }
    }
}

impl<R: Real> Cell<R> for Rnn<R> {
    fn add_recurrent(&self, h: &[R], gates: &mut [R]) -> Result<()> {
        self.recurrent.add_product(h, gates)
    }

    fn step(&self, gates: &mut [R], h: &mut [R], _: &mut [R]) -> Result<()> {
        add(gates, &self.bias);
        h.iter_mut().zip(gates).for_each(|(h, x)| *h = self.f.of(*x));
        Ok(())
    }
}

/// The gates are z, r and h: H = (1 - z) h + z H, where r decides how much of H enters h.
pub(super) struct Gru<R> {
    /// The weights of z and r, and those of h.
    of_zr: Weights<R>,
    of_h: Weights<R>,
    bias: Vec<R>,
    /// The bias of h that belongs to R.
    bias_of_h: Vec<R>,
    f: Function,
    g: Function,
    /// Whether r is applied to the product of H and R, and not to H.
    after: bool,
}

impl<R: Real> Gru<R> {
    pub(super) fn new(
        recurrent: Weights<R>,
        bias: &[R],
        [f, g]: [Function; 2],
        after: bool,
        hidden: usize,
    ) -> Result<Self> {
        let (of_zr, of_h) = recurrent.split(2 * hidden)?;
        let (mut sum, bias_of_h) = (sum_of_halves(bias), part_if(bias, 5, hidden)?.to_vec());
        if after {
            let of_w = part_if(bias, 2, hidden)?.iter();
            sum.iter_mut().skip(2 * hidden).zip(of_w).for_each(|(sum, w)| *sum = *w);
        }
        Ok(Self { of_zr, of_h, bias: sum, bias_of_h, f, g, after })
    }
}

impl<R: Real> Cell<R> for Gru<R> {
    fn add_recurrent(&self, _: &[R], _: &mut [R]) -> Result<()> {
        Ok(()) // its matrices are multiplied one after the other
    }

    fn step(&self, gates: &mut [R], h: &mut [R], _: &mut [R]) -> Result<()> {
        let (zr, new) = gates.split_at_mut(2 * h.len());
        let (bias, bias_of_new) = self.bias.split_at(zr.len().min(self.bias.len()));
        self.of_zr.add_product(h, zr)?;
        add(zr, bias);
        self.f.apply(zr);
        let (z, r) = zr.split_at(h.len());
        if self.after {
            let mut from_h = vec![R::ZERO; h.len()];
            self.of_h.add_product(h, &mut from_h)?;
            add(&mut from_h, &self.bias_of_h);
            new.iter_mut().zip(r.iter().zip(&from_h)).for_each(|(new, (r, h))| *new += *r * *h);
        } else {
            let reset: Vec<R> = r.iter().zip(&*h).map(|(r, h)| *r * *h).collect();
            self.of_h.add_product(&reset, new)?;
        }
        add(new, bias_of_new);
        self.g.apply(new);
        for (h, (z, new)) in h.iter_mut().zip(z.iter().zip(new)) {
            *h = (R::ONE - *z) * *new + *z * *h;
        }
        Ok(())
    }
}

/// The gates are i, o, f and c: C = f C + i c, and H = o h(C).
pub(super) struct Lstm<R> {
    recurrent: Weights<R>,
    bias: Vec<R>,
    functions: [Function; 3],
    /// The weights of C in i, o and f.
    peepholes: Vec<R>,
    /// Whether f is 1 - i.
    coupled: bool,
}

impl<R: Real> Lstm<R> {
    pub(super) fn new(
        recurrent: Weights<R>,
        bias: &[R],
        [f, g, h]: [Function; 3],
        peepholes: &[R],
        coupled: bool,
    ) -> Self {
        // Attribute `clip` bounds the gates and not C, as in ONNX Runtime, for which models are
        // made.
        let functions = [f, g, h.unclipped()];
        let (bias, peepholes) = (sum_of_halves(bias), peepholes.to_vec());
        Self { recurrent, bias, functions, peepholes, coupled }
    }

    /// Adds to a gate what it sees of the state C.
    fn peep(&self, which: usize, gate: &mut [R], c: &[R]) -> Result<()> {
        let weights = part_if(&self.peepholes, which, c.len())?;
        gate.iter_mut().zip(weights.iter().zip(c)).for_each(|(gate, (p, c))| *gate += *p * *c);
        Ok(())
    }
}

impl<R: Real> Cell<R> for Lstm<R> {
    fn add_recurrent(&self, h: &[R], gates: &mut [R]) -> Result<()> {
        self.recurrent.add_product(h, gates)
    }

    fn step(&self, gates: &mut [R], h: &mut [R], c: &mut [R]) -> Result<()> {
        add(gates, &self.bias);
        let [of_gates, of_new, of_c] = &self.functions;
        let hidden = h.len();
        let (input, rest) = gates.split_at_mut(hidden);
        let (output, rest) = rest.split_at_mut(hidden);
        let (forget, new) = rest.split_at_mut(hidden);
        self.peep(0, input, c)?;
        of_gates.apply(input);
        if self.coupled {
            forget.iter_mut().zip(&*input).for_each(|(forget, input)| *forget = R::ONE - *input);
        } else {
            self.peep(2, forget, c)?;
            of_gates.apply(forget);
        }
        of_new.apply(new);
        let kept = forget.iter().zip(input.iter().zip(&*new));
        c.iter_mut().zip(kept).for_each(|(c, (forget, (input, new)))| {
            *c = *forget * *c + *input * *new;
        });
        self.peep(1, output, c)?;
        of_gates.apply(output);
        let outputs = output.iter().zip(&*c);
        h.iter_mut().zip(outputs).for_each(|(h, (output, c))| *h = *output * of_c.of(*c));
        Ok(())
    }
}
