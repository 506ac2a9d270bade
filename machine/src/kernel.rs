//! What a kernel is: the function `f_op` of an operator, with what it says before it runs.
//!
//! A kernel of one's own implements [`Kernel`] and is registered by domain, operator and version. The
//! built-in ones are pairs of functions, in lists by family.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::call::{Call, OutSpec, RunCx};
use crate::error::Result;
use crate::kernels;
use crate::program::Node;

/// Whether an output shares the bytes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// Every output has bytes of its own.
    None,
    /// Output 0 is input `i` with another shape. [`Kernel::run`] is not called.
    View(usize),
}

/// The function of an operator.
///
/// ```
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
    /// The type and shape of every output, in order; of optional outputs too that the node leaves out.
    ///
    /// # Errors
    /// When the inputs or attributes are not what the operator takes. Where shapes depend on the elements
    /// of an input that are not known yet, [`Call::input`] fails, and `?` passes that on.
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>>;

    /// Whether output 0 can share the bytes of an input.
    ///
    /// # Errors
    /// When the attributes are not what the operator takes.
    fn alias(&self, _call: &Call<'_>) -> Result<Alias> {
        Ok(Alias::None)
    }

    /// Whether each element of output 0, the only one, depends on the same element of every input alone, where
    /// inputs broadcast. Then [`run`](Self::run) may be given a part of the elements, and the result may lie in
    /// the place of an input that is needed no longer.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// Writes every element of every output that is asked for.
    ///
    /// # Errors
    /// When the elements of an input are not what the operator takes.
    fn run(&self, cx: &mut RunCx<'_>) -> Result<()>;
}

/// A built-in kernel: an operator, and the version of its domain from which on it is meant.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    op_type: &'static str,
    domain: &'static str,
    since: i64,
    infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
    run: fn(&mut RunCx<'_>) -> Result<()>,
    alias: Alias,
}

impl Builtin {
    /// The kernel of `op_type` in ONNX's own domain, for every version of it.
    pub(crate) const fn new(
        op_type: &'static str,
        infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
        run: fn(&mut RunCx<'_>) -> Result<()>,
    ) -> Self {
        Self { op_type, domain: "", since: 1, infer, run, alias: Alias::None }
    }

    /// As [`new`](Self::new), for an operator whose output 0 is its input 0 in the shape of `infer`.
    pub(crate) const fn view(
        op_type: &'static str,
        infer: fn(&Call<'_>) -> Result<Vec<OutSpec>>,
    ) -> Self {
        let run = |_: &mut RunCx<'_>| Ok(());
        Self { op_type, domain: "", since: 1, infer, run, alias: Alias::View(0) }
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
}

impl Kernel for Builtin {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        (self.infer)(call)
    }

    fn alias(&self, _call: &Call<'_>) -> Result<Alias> {
        Ok(self.alias)
    }

    fn is_elementwise(&self) -> bool {
        self.domain.is_empty() && kernels::ELEMENTWISE.binary_search(&self.op_type).is_ok()
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        (self.run)(cx)
    }
}

/// Kernels by operator: for each, by the version from which on they are meant.
type Kernels = HashMap<String, HashMap<String, Vec<(i64, Arc<dyn Kernel>)>>>;

/// Which kernel an operator has.
///
/// A kernel of the user comes before a built-in one.
#[derive(Debug, Clone)]
pub struct Registry {
    user: Kernels,
    builtin: Kernels,
}

impl Registry {
    /// The built-in kernels.
    pub fn new() -> Self {
        let mut builtin = Kernels::new();
        for kernel in kernels::all() {
            add(&mut builtin, kernel.domain, kernel.op_type, kernel.since, Arc::new(*kernel));
        }
        Self { user: Kernels::new(), builtin }
    }

    /// Registers `kernel` for `op_type` of `domain` from version `since` on. Between several, a node has
    /// the one with the highest version that is not above what its model imports.
    pub fn register(
        &mut self,
        domain: &str,
        op_type: &str,
        since: i64,
        kernel: impl Kernel + 'static,
    ) {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        add(&mut self.user, domain, op_type, since, Arc::new(kernel));
    }

    /// The kernel of `node`, if there is one.
    pub fn kernel(&self, node: &Node) -> Option<&Arc<dyn Kernel>> {
        find(&self.user, node).or_else(|| find(&self.builtin, node))
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

fn add(kernels: &mut Kernels, domain: &str, op_type: &str, since: i64, kernel: Arc<dyn Kernel>) {
    let of_domain = kernels.entry(domain.to_owned()).or_default();
    let versions = of_domain.entry(op_type.to_owned()).or_default();
    versions.retain(|(other, _)| *other != since);
    versions.push((since, kernel));
    versions.sort_by_key(|(since, _)| *since);
}

fn find<'k>(kernels: &'k Kernels, node: &Node) -> Option<&'k Arc<dyn Kernel>> {
    let versions = kernels.get(&node.domain)?.get(&node.op_type)?;
    versions.iter().rfind(|(since, _)| *since <= node.version).map(|(_, kernel)| kernel)
}
