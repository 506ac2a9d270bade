//! [`Missing`]: an input of a node that has no definition before it.

use std::rc::Rc;

use super::described::{described, short};
use crate::error::{Error, ErrorKind};
use crate::proto::NodeProto;

/// An input that nothing defined before its node.
pub(super) struct Missing<'m> {
    pub(super) name: &'m [u8],
    pub(super) node: &'m NodeProto,
    /// The graphs around the node, joined; none in the main graph.
    pub(super) within: Option<Rc<str>>,
    /// Whether the value is defined, but after the node.
    pub(super) late: bool,
}

impl Missing<'_> {
    /// The fault, for a report.
    pub(super) fn error(&self) -> Error {
        let mut user = described(self.node);
        if let Some(within) = &self.within {
            user = format!("{user} in `{within}`");
        }
        let reason = if self.late {
            format!("input of {user}, which stands before the node that defines it")
        } else {
            format!("input of {user}, which nothing defines")
        };
        Error::new(ErrorKind::InvalidModel, reason).with_tensor(short(self.name))
    }
}
