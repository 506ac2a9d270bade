//! What a kernel is: the function `f_op` of an operator, with what it says before it runs.
//!
//! A kernel of one's own implements [`Kernel`]; the built-in ones are pairs of functions. Which
//! node has which kernel is left to the registry.

pub(crate) mod ahead;
pub(crate) mod arrange;
pub(crate) mod bodies;
pub(crate) mod call;
pub(crate) mod in_place;
pub(crate) mod narrow;
pub(crate) mod run_cx;

use std::fmt::Debug;

use crate::error::Result;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;

/// Whether an output shares the bytes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alias {
    /// Every output has bytes of its own.
    None,
    /// Output 0 is input `i` with another shape. [`Kernel::run`] is not called.
    View(usize),
}

/// The function of an operator.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// use onnx_container_machine::{Call, Kernel, OutSpec, Result, RunCx};
///
/// /// y = x * x, of FLOAT.
/// #[derive(Debug)]
/// struct Square;
///
/// impl Kernel for Square {
///     fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
///         Ok(vec![OutSpec::tensor(call.dtype(0)?, call.shape(0)?)])
///     }
///
///     fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
///         let (x, y) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
///         Ok(())
///     }
/// }
/// ```
pub trait Kernel: Debug + Send + Sync {
    /// The type and shape of every output, in order; of optional outputs too that the node leaves
    /// out.
    ///
    /// # Errors
    /// When the inputs or attributes are not what the operator takes. Where shapes depend on the
    /// elements of an input that are not known yet, [`Call::input`] fails, and `?` passes that on.
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>>;

    /// Whether output 0 can share the bytes of an input.
    ///
    /// # Errors
    /// When the attributes are not what the operator takes.
    fn alias(&self, _call: &Call<'_>) -> Result<Alias> {
        Ok(Alias::None)
    }

    /// Whether each element of output 0, the only output, depends only on the element at the same
    /// place of each input, after broadcasting. Then [`run`](Self::run) may be given a part of the
    /// elements, and the result may be written over an input that nothing else needs.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// Whether outputs may have a NaN with any bits, which the machine then replaces by the one NaN
    /// of its type: 0x7fc00000 of FLOAT, and likewise. Processors differ in the NaN that arithmetic
    /// gives. `false`, as it is unless a kernel says otherwise, leaves outputs as they were
    /// written.
    fn leaves_nans(&self) -> bool {
        false
    }

    /// Writes every element of every output that is asked for.
    ///
    /// # Errors
    /// When the elements of an input are not what the operator takes.
    fn run(&self, cx: &mut RunCx<'_>) -> Result<()>;
}

/// A built-in kernel with its operator, and the version of the domain from which on it applies.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    op_type: &'static str,
    domain: &'static str,
    since: i64,
    infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
    run: fn(&mut RunCx<'_>) -> Result<()>,
    alias: Alias,
    is_elementwise: bool,
    leaves_nans: bool,
}

impl Builtin {
    /// The kernel of `op_type` in ONNX's own domain, for every version of it.
    pub(crate) const fn new(
        op_type: &'static str,
        infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
        run: fn(&mut RunCx<'_>) -> Result<()>,
    ) -> Self {
        Self {
            op_type,
            domain: "",
            since: 1,
            infer,
            run,
            alias: Alias::None,
            is_elementwise: false,
            leaves_nans: true,
        }
    }

    /// As [`new`](Self::new), for an operator of onnxruntime.
    pub(crate) const fn of_onnxruntime(
        op_type: &'static str,
        infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
        run: fn(&mut RunCx<'_>) -> Result<()>,
    ) -> Self {
        Self { domain: "com.microsoft", ..Self::new(op_type, infer, run) }
    }

    /// As [`new`](Self::new), for an operator whose output 0 is its input 0 in the shape of
    /// `infer`.
    pub(crate) const fn view(
        op_type: &'static str,
        infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
    ) -> Self {
        let run = |_: &mut RunCx<'_>| Ok(());
        Self { alias: Alias::View(0), ..Self::new(op_type, infer, run) }
    }

    /// For versions from `since` on; an earlier one is another entry.
    #[allow(dead_code, reason = "families that need it use it")]
    pub(crate) const fn since(self, since: i64) -> Self {
        Self { since, ..self }
    }

    /// In another domain.
    #[allow(dead_code, reason = "families that need it use it")]
    pub(crate) const fn domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    /// Marks the kernel as [elementwise](Kernel::is_elementwise).
    pub(crate) const fn elementwise(self) -> Self {
        Self { is_elementwise: true, ..self }
    }

    /// Marks the kernel as one that only moves elements, or writes the one NaN itself.
    pub(crate) const fn without_nans(self) -> Self {
        Self { leaves_nans: false, ..self }
    }

    /// The operator, its domain, and the version from which on the kernel applies.
    pub(crate) const fn meaning(&self) -> (&'static str, &'static str, i64) {
        (self.op_type, self.domain, self.since)
    }
}

impl Kernel for Builtin {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        (self.infer)(call)
    }

    fn alias(&self, _call: &Call<'_>) -> Result<Alias> {
        Ok(self.alias)
    }

    fn is_elementwise(&self) -> bool {
        self.is_elementwise
    }

    fn leaves_nans(&self) -> bool {
        self.leaves_nans
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        (self.run)(cx)
    }
}
