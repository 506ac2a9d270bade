//! One error type for kernels and the machine: what went wrong, and at which node of which program.
//!
//! A program of a large model has thousands of nodes, many of them inside loops and branches. So an
//! [`Error`] has a [kind](ErrorKind) for programs and a context for people: the step path
//! (`17/Loop[3]/4`), the node's name and its operator. The context is added where it is known, by
//! the machine; a kernel gives the kind and the reason alone.

use std::fmt;

use onnx_container_proto::internal::error::{Joined, Several, write_listed};

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the step, node and operator where they are known.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// use onnx_container_machine::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Shape, "[2, 3] and [4] do not broadcast")
///     .at_node("encoder/add", "Add")
///     .at_step("17");
/// assert_eq!(error.to_string(), "step 17: node `encoder/add` (Add): [2, 3] and [4] do not broadcast");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    reason: String,
    step: Option<String>,
    node: Option<String>,
    op: Option<String>,
    value: Option<String>,
    related: Vec<Error>,
    source: Option<onnx_container_proto::Error>,
}

/// The class of an [`Error`], for programs that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model breaks a rule of ONNX: a value without a producer, a cycle, an attribute of the
    /// wrong type.
    InvalidModel,
    /// No kernel, function or function body is known for an operator.
    UnsupportedOp,
    /// The operator is known, but this element type, attribute value or version of it is not
    /// supported.
    Unsupported,
    /// An input is missing, is not one of the model's, or an operator lacks one.
    Input,
    /// A value has another element type than is declared or possible.
    Type,
    /// A value has another shape than is declared or possible.
    Shape,
    /// An element of an input is not valid: an axis or index out of range, a negative length.
    Value,
    /// The memory that a run needs is more than its budget allows.
    OutOfMemory,
    /// A run took more steps than its budget allows.
    OutOfSteps,
    /// There is no value of the name that was asked for, or it is not in memory at this step.
    NoValue,
    /// Blocks of memory cannot be planned, or a file of them has a wrong line.
    Plan,
    /// A trace cannot be written, or a file of one has a wrong line.
    Trace,
    /// The container failed: reading weights, decoding or inlining a model. The source is its
    /// error.
    Container,
    /// A shape depends on the elements of this input, which are not known before the step runs.
    NeedsValue(usize),
    /// A bug of this crate: something that its own code rules out has happened.
    Internal,
}

impl Error {
    /// An error of `kind` with a `reason`: one clause, lower case, no full stop.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self(Box::new(Inner {
            kind,
            reason,
            step: None,
            node: None,
            op: None,
            value: None,
            related: Vec::new(),
            source: None,
        }))
    }

    /// What only a bug of this crate can cause, with `what` was found.
    #[doc(hidden)]
    pub fn internal(what: impl fmt::Display) -> Self {
        let reason = format!("internal error, please report it: {what}");
        Self::new(ErrorKind::Internal, reason)
    }

    /// Joins `errors` into one: `None` when there are none, the error itself when it is alone,
    /// otherwise an error of the first one's kind that lists them in [`related`](Self::related): of
    /// more than 1,000, the first ones.
    pub fn join(errors: Vec<Self>) -> Option<Self> {
        errors.into_iter().collect::<Errors>().join()
    }

    /// Names the node and its operator, unless a node further inside is named already.
    #[must_use]
    pub fn at_node(mut self, node: impl Into<String>, op: impl Into<String>) -> Self {
        if self.0.op.is_none() {
            (self.0.node, self.0.op) = (Some(node.into()), Some(op.into()));
        }
        self
    }

    /// States the path of the step, such as `17/Loop[3]/4`, unless one is stated already.
    #[must_use]
    pub fn at_step(mut self, path: impl Into<String>) -> Self {
        self.0.step.get_or_insert_with(|| path.into());
        self
    }

    /// Names the value concerned, unless a more precise name is there already.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> Self {
        self.0.value.get_or_insert_with(|| value.into());
        self
    }

    /// The container's error behind this one, where there is one. The reason has its text.
    pub fn container_error(&self) -> Option<&onnx_container_proto::Error> {
        self.0.source.as_ref()
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The reason alone, without its context.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The path of the step, such as `17/Loop[3]/4`.
    pub fn step(&self) -> Option<&str> {
        self.0.step.as_deref()
    }

    /// The name of the node.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The operator of the node, with its domain unless that is the default one.
    pub fn op(&self) -> Option<&str> {
        self.0.op.as_deref()
    }

    /// The value concerned.
    pub fn value(&self) -> Option<&str> {
        self.0.value.as_deref()
    }

    /// Every error of a joined one; empty when this error stands for itself.
    pub fn related(&self) -> &[Error] {
        &self.0.related
    }
}

/// Errors that are joined to one.
pub type Errors = Joined<Error>;

impl Several for Error {
    type Kind = ErrorKind;

    fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    fn joined(kind: ErrorKind, reason: String, errors: Vec<Self>) -> Self {
        let mut joined = Self::new(kind, reason);
        joined.0.related = errors;
        joined
    }
}

impl fmt::Debug for Error {
    /// The kind and the message: what `fn main() -> Result` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = &self.0.step {
            write!(f, "step {step}: ")?;
        }
        match (&self.0.op, self.0.node.as_deref()) {
            (Some(op), None | Some("")) => write!(f, "{op}: ")?,
            (Some(op), Some(node)) => write!(f, "node `{node}` ({op}): ")?,
            (None, _) => {}
        }
        if let Some(value) = &self.0.value {
            write!(f, "value `{value}`: ")?;
        }
        f.write_str(&self.0.reason)?;
        write_listed(&self.0.related, f)
    }
}

impl std::error::Error for Error {
    /// What is behind the [`container_error`](Self::container_error), whose own text is that of
    /// this error, so that each cause is printed once.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref()?.source()
    }
}

impl From<onnx_container_proto::Error> for Error {
    fn from(source: onnx_container_proto::Error) -> Self {
        let mut error = Self::new(ErrorKind::Container, source.to_string());
        error.0.source = Some(source);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_printed_once() {
        use std::error::Error as _;
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "no such key");
        let error = Error::from(onnx_container_proto::Error::io("w.bin", missing));
        let causes = std::iter::successors(error.source(), |error| (**error).source());
        let printed = [error.to_string()].into_iter().chain(causes.map(ToString::to_string));
        let printed = printed.collect::<Vec<_>>().join(": ");
        assert_eq!(printed.matches("no such key").count(), 1, "{printed}");
        assert!(error.container_error().unwrap().io_error().is_some());
    }
}
