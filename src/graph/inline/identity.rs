//! ONNX's operator Identity: which values it can pass through where calls are replaced.
//!
//! A body that passes a value through to an output needs a node that gives the value its second
//! name. That node is an Identity. Older operator sets do not have it for every type, and a local
//! function of the same name may hide it. What is done instead is left to `copy`.

use super::context::Context;
use crate::error::{Error, ErrorKind};
use crate::proto::NodeProto;

/// Which values ONNX's Identity can pass through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// Values of the types that Identity accepts in this version of the operators; none for 0.
    Since(i64),
    /// Values of every type.
    Every,
}

impl Identity {
    /// The Identity of a place with this version of the ONNX operators.
    pub(super) fn of(context: &Context<'_>, opset: Option<i64>) -> Self {
        // If a function of this name is kept, the node would call it.
        let mut node = NodeProto::default();
        node.op_type = Some("Identity".into());
        let function = context.functions.callee(&node);
        let version = opset.unwrap_or_default();
        match function {
            Some(function) if !context.decision.inlines(function) => Self::Since(0),
            // The function is removed, so the node would be ONNX's operator. Aliases are preferred
            // to it, because in the source model the name means the function.
            Some(_) => Self::Since(version),
            None if version >= 16 => Self::Every,
            None => Self::Since(version),
        }
    }

    pub(super) fn has(self, since: i64) -> bool {
        matches!(self, Self::Every) || matches!(self, Self::Since(version) if version >= since)
    }
}

/// The error of an output that needs an Identity in a place that has none.
pub(super) fn no_identity() -> Error {
    let reason = "a function passes a value through to an output, which needs ONNX's Identity: the model \
                  does not import it, has a function of that name, or its version lacks the value's type";
    Error::new(ErrorKind::Unsupported, reason)
}
