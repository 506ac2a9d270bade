//! [`Limits`]: how much a model may hold.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// What [`Limits`] limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// How many levels deep messages may nest, where they are read and where they are written; a
    /// subgraph takes three. Every level costs stack, about 1 KiB. Default 100, as in the official
    /// parser of protobuf.
    Nesting,
    /// How many bytes of memory the messages of a model may take. Payloads, which are slices of the
    /// input, do not count. Default: 8 MiB and ten times the length of the input, which only inputs
    /// of empty or very small messages exceed.
    Memory,
    /// The nodes of all graphs and functions. Default 10 million.
    Nodes,
    /// The tensors, wherever they are. Default 10 million.
    Tensors,
    /// The attributes of all nodes and functions. Default 100 million.
    Attributes,
    /// The local functions. Default 1 million.
    Functions,
    /// How deep functions may call each other. Default 1,000.
    CallDepth,
    /// The length in bytes of a name: of a value, node, operator, domain, graph, function,
    /// attribute. Default 1 MiB.
    NameBytes,
    /// The dimensions of one tensor or of the shape of a value. Default 1,024.
    Dims,
    /// The tensors that share the bytes of another one in a weights file. Default 1 million.
    Ties,
    /// How many findings of a severity a check keeps. The others are no error: they are counted.
    /// Default 10,000.
    Findings,
    /// How many bytes of memory the program of a model may take where `onnx-container-machine`
    /// plans or runs it: its nodes, values and attributes after inlining, and their plan; neither
    /// the weights nor what a run computes. Default: 36 MiB and ten times the length of the
    /// model's messages.
    Program,
    /// How many bytes of memory functions may take, as often as they are called: what calls give to
    /// them included. Default where calls are inlined: 1 GiB and 32 times the length of the model's
    /// messages (for a program, half of its limit); where they are digested by what they
    /// compute: 16 MiB and five times that length.
    Calls,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Nesting,
        Self::Memory,
        Self::Nodes,
        Self::Tensors,
        Self::Attributes,
        Self::Functions,
        Self::CallDepth,
        Self::NameBytes,
        Self::Dims,
        Self::Ties,
        Self::Findings,
        Self::Program,
        Self::Calls,
    ];

    /// The name, as in the errors: `call-depth`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nesting => "nesting",
            Self::Memory => "memory",
            Self::Nodes => "nodes",
            Self::Tensors => "tensors",
            Self::Attributes => "attributes",
            Self::Functions => "functions",
            Self::CallDepth => "call-depth",
            Self::NameBytes => "name-bytes",
            Self::Dims => "dims",
            Self::Ties => "ties",
            Self::Findings => "findings",
            Self::Program => "program",
            Self::Calls => "calls",
        }
    }

    /// Whether it is a number of bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::NameBytes | Self::Program | Self::Calls)
    }

    /// The default; `None` where it depends on the length of the input.
    fn default(self) -> Option<u64> {
        match self {
            Self::Nesting => Some(100),
            Self::Memory | Self::Program | Self::Calls => None,
            Self::Nodes | Self::Tensors => Some(10_000_000),
            Self::Attributes => Some(100_000_000),
            Self::Functions | Self::Ties => Some(1_000_000),
            Self::CallDepth => Some(1_000),
            Self::NameBytes => Some(1 << 20),
            Self::Dims => Some(1_024),
            Self::Findings => Some(10_000),
        }
    }

    /// What there are more than `most` of.
    fn exceeded(self, most: u64) -> String {
        match self {
            Self::Nesting => format!("messages nest more than {most} levels deep"),
            Self::Memory => format!(
                "its messages take more than {most} bytes of memory, because most of them are empty or very small"
            ),
            Self::Nodes => format!("more than {most} nodes"),
            Self::Tensors => format!("more than {most} tensors"),
            Self::Attributes => format!("more than {most} attributes"),
            Self::Functions => format!("more than {most} functions"),
            Self::CallDepth => format!("functions call each other more than {most} levels deep"),
            Self::NameBytes => format!("a name of more than {most} bytes"),
            Self::Dims => format!("a shape of more than {most} dimensions"),
            Self::Ties => format!("more than {most} tensors that share the bytes of others"),
            Self::Findings => format!("more than {most} findings"),
            Self::Program => format!("its program takes more than {most} bytes of memory"),
            Self::Calls => format!(
                "its functions, as often as they are called, take more than {most} bytes of memory"
            ),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Limit {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let reason = format!("unknown limit `{name}`; the limits are {names}");
            Error::new(ErrorKind::InvalidArgument, reason)
        })
    }
}

/// How much an untrusted model may hold before it is refused with [`ErrorKind::TooLarge`] (of
/// nesting, where a model is read, it is [`ErrorKind::Decode`]), by an error that names the
/// [`Limit`].
///
/// The defaults are far above what real models have. What is read takes memory and time in
/// proportion to its length below any limit; these are for callers who want less, or have more.
///
/// ```
/// # mod onnx_container {
/// #     pub use onnx_container_proto::*;
/// #     pub mod load {
/// #         pub use onnx_container_proto::Limit;
/// #     }
/// # }
/// use onnx_container::Limits;
/// use onnx_container::load::Limit;
/// use onnx_container::proto::DecodeOptions;
///
/// let limits = Limits::new().with(Limit::Nodes, 100_000).with(Limit::Nesting, 200);
/// let options = DecodeOptions::new().limits(limits);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    given: [Option<u64>; Limit::ALL.len()],
}

impl Limits {
    /// The defaults, see [`Limit`].
    pub fn new() -> Self {
        Self::default()
    }

    /// With another value for one limit: nothing may exceed it.
    #[must_use]
    pub fn with(mut self, limit: Limit, most: u64) -> Self {
        if let Some(given) = self.given.get_mut(limit as usize) {
            *given = Some(most);
        }
        self
    }

    /// The value of a limit; `None` for the defaults of [`Limit::Memory`], [`Limit::Program`] and
    /// [`Limit::Calls`], which depend on the length of the input.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        self.given.get(limit as usize).copied().flatten().or_else(|| limit.default())
    }

    /// Compares a number with a limit.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when it is exceeded ([`ErrorKind::Decode`] for [`Limit::Nesting`]).
    pub fn allow(&self, limit: Limit, number: u64) -> Result<()> {
        match self.get(limit) {
            Some(most) if number > most => Err(exceeded(limit, most)),
            _ => Ok(()),
        }
    }
}

/// Adds up what one limit allows.
#[derive(Debug)]
pub struct Counter {
    limit: Limit,
    most: u64,
    taken: u64,
}

impl Counter {
    /// Nothing is taken yet of what `limits` say, or else of the `default`.
    pub fn new(limits: &Limits, limit: Limit, default: u64) -> Self {
        Self { limit, most: limits.get(limit).unwrap_or(default), taken: 0 }
    }

    /// # Errors
    /// [`ErrorKind::TooLarge`] when more was taken than the limit allows.
    pub fn take(&mut self, number: u64) -> Result<()> {
        self.taken = self.taken.saturating_add(number);
        if self.taken > self.most { Err(exceeded(self.limit, self.most)) } else { Ok(()) }
    }
}

/// The error that there is more than `most` of something in what is read.
pub fn exceeded(limit: Limit, most: u64) -> Error {
    let kind = if limit == Limit::Nesting { ErrorKind::Decode } else { ErrorKind::TooLarge };
    Error::new(kind, reason(limit, most))
}

/// The error that there is more than `most` of something in a model that was made in memory.
pub fn exceeded_in_memory(limit: Limit, most: u64) -> Error {
    Error::new(ErrorKind::TooLarge, reason(limit, most))
}

fn reason(limit: Limit, most: u64) -> String {
    format!("{}: the limit `{limit}` can be raised", limit.exceeded(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_a_place_and_a_name_of_its_own() {
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
            assert_eq!(limit.name().parse::<Limit>().unwrap(), limit);
            let limits = Limits::new().with(limit, 7);
            assert_eq!(limits.get(limit), Some(7));
            assert!(limits.allow(limit, 7).is_ok());
            let error = limits.allow(limit, 8).unwrap_err().to_string();
            assert!(error.contains(&format!("the limit `{limit}`")), "{error}");
            let others = Limit::ALL.into_iter().filter(|other| *other != limit);
            others.for_each(|other| assert_eq!(limits.get(other), Limits::new().get(other)));
        }
        let error = "node".parse::<Limit>().unwrap_err().to_string();
        assert!(error.contains("nodes, tensors"), "{error}");
    }
}
