//! Which kernel a node has: by domain, operator and version, the user's before a built-in one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::kernel::Kernel;
use crate::kernels;
use crate::numeric::profile::Profile;
use crate::program::{FUNCTION_BODY, Node};

/// Kernels by domain and operator, each with the version from which on it applies.
type Kernels = HashMap<String, HashMap<String, Vec<(i64, Arc<dyn Kernel>)>>>;

/// Which kernel an operator has.
///
/// A kernel of the user comes before a built-in one.
#[derive(Debug, Clone)]
pub struct Registry {
    user: Kernels,
    builtin: &'static Kernels,
    profile: Profile,
}

impl Registry {
    /// The built-in kernels of the strict profile.
    pub fn new() -> Self {
        Self::of(Profile::Strict)
    }

    /// The built-in kernels of `profile`.
    ///
    /// ```
    /// # use onnx_container_kernels as onnx_container_machine;
    /// use onnx_container_machine::{Profile, Registry};
    ///
    /// assert_eq!(Registry::of(Profile::Fast).profile().name(), "fast");
    /// ```
    pub fn of(profile: Profile) -> Self {
        let builtin: &Kernels = match profile {
            Profile::Strict => &STRICT,
            Profile::Fast => &FAST,
        };
        Self { user: Kernels::new(), builtin, profile }
    }

    /// How the built-in kernels round.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Registers `kernel` for `op_type` of `domain` from version `since` on. Of several kernels, a
    /// node has the one with the highest version that is not above the version that its model
    /// imports.
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

    /// Whether the kernel of `node` is one of the user.
    #[doc(hidden)]
    pub fn is_users(&self, node: &Node) -> bool {
        find(&self.user, node).is_some()
    }

    /// The kernel of `node`, if there is one. A call of a local function has none but the user's,
    /// also where the function is called as an operator of ONNX.
    pub fn kernel(&self, node: &Node) -> Option<&Arc<dyn Kernel>> {
        let is_call = node.attributes.get(FUNCTION_BODY).is_some();
        find(&self.user, node).or_else(|| find(self.builtin, node).filter(|_| !is_call))
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

/// The built-in kernels of each profile: they are the same for all programs.
static STRICT: LazyLock<Kernels> = LazyLock::new(|| builtin(Profile::Strict));
static FAST: LazyLock<Kernels> = LazyLock::new(|| builtin(Profile::Fast));

fn builtin(profile: Profile) -> Kernels {
    let mut builtin = Kernels::new();
    for kernel in kernels::of(profile) {
        let (op_type, domain, since) = kernel.meaning();
        add(&mut builtin, domain, op_type, since, Arc::new(kernel));
    }
    builtin
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
