//! [`Part`]: one of the equal parts of a model that several processes read, each its own.
//!
//! The division follows from the model alone, so no process tells another what to read. Tensors on
//! one range of one file, or on one handle, are in one part. What is read of them is left to
//! `digest`, `check` and `stats`.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use foldhash::fast::RandomState;

use crate::container::Container;
use crate::container::tensors::TensorRef;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{ExternalData, is_external, without_dots};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};
use crate::util::shares::shares;

/// One of several parts of a model, of about the same length in bytes: `3/64` is the fourth of 64.
/// Numbers begin at 0.
///
/// `Container::partial_digest`, [`CheckOptions::part`](crate::check::CheckOptions::part) and
/// [`Container::stats`] read the tensors of one part. Each tensor is in one part; where there are
/// more parts than tensors, some are empty. All processes have to read the model from the same
/// files: the same model in other files may be divided in another way.
///
/// ```
/// use onnx_container::Part;
///
/// let part: Part = "3/64".parse()?;
/// assert_eq!(part, Part::new(3, 64)?);
/// assert_eq!((part.number(), part.of()), (3, 64));
/// assert!("64/64".parse::<Part>().is_err());
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// The part `number` of `of`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where there is no such part.
    pub fn new(number: usize, of: usize) -> Result<Self> {
        if number < of {
            return Ok(Self { number, of });
        }
        let reason = match of.checked_sub(1) {
            Some(last) => format!("there is no part {number}/{of}: the last one is {last}/{of}"),
            None => format!("there is no part {number}/0: a model has at least one part"),
        };
        Err(Error::new(ErrorKind::InvalidArgument, reason))
    }

    /// The number of the part; the first is 0.
    pub fn number(self) -> usize {
        self.number
    }

    /// How many parts there are.
    pub fn of(self) -> usize {
        self.of
    }

    /// What tells whether a tensor of `container` is in the part, for [`Container::stats`].
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto};
    /// use onnx_container::{Container, Part, Tensor};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["a", "b"] {
    ///     graph.initializer.push(Tensor::from(vec![1.0_f32, 3.0]).to_proto(name));
    /// }
    /// let container = Container::new(ModelProto::new(graph));
    /// let stats = container.stats(Part::new(1, 2)?.selects(&container))?;
    /// assert_eq!(stats[0].name, "b");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn selects(self, container: &Container) -> impl Fn(&TensorRef<'_>) -> bool + use<> {
        let share = self.share(&container.model);
        move |tensor| share.has(tensor.position().index())
    }

    /// What of `model` the part has.
    pub(crate) fn share(self, model: &ModelProto) -> Share {
        let numbers = self.numbers(model).into_iter();
        let tensors = numbers.map(|number| number == self.number).collect();
        Share { part: Some(self), tensors: Some(tensors) }
    }

    /// For each tensor of `model`, in graph order, the number of its part.
    pub(crate) fn numbers(self, model: &ModelProto) -> Vec<usize> {
        let (mut units, mut lengths) = (Vec::new(), Vec::new());
        let mut known = HashMap::with_hasher(RandomState::default());
        for (_, tensor) in traversal::iter(model) {
            let new = lengths.len();
            let unit = range(tensor).map_or(new, |range| *known.entry(range).or_insert(new));
            let len = byte_len(tensor);
            match lengths.get_mut(unit) {
                Some(longest) => *longest = len.max(*longest),
                None => lengths.push(len),
            }
            units.push(unit);
        }
        // More shares than there is work would be empty, and take memory.
        let shares = shares(&lengths, self.of.min(lengths.len()));
        units.iter().map(|unit| shares.get(*unit).copied().unwrap_or_default()).collect()
    }
}

/// The name and the first byte of what an external tensor is in.
fn range(tensor: &TensorProto) -> Option<(String, u64)> {
    let entry = is_external(tensor).then(|| ExternalData::parse(tensor).ok()).flatten()?;
    Some((without_dots(&entry.location), entry.offset))
}

/// The length of the elements by type and dimensions, and so wherever they are; 0 where there is
/// none: reading the tensor then says why.
fn byte_len(tensor: &TensorProto) -> u64 {
    match DataType::try_from(tensor.data_type.unwrap_or_default()) {
        Ok(DataType::String) => tensor.string_data.iter().map(|text| text.len() as u64).sum(),
        Ok(dtype) => dtype.byte_len(&tensor.dims).unwrap_or_default(),
        Err(_) => 0,
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other text than two numbers with a slash between, of
    /// which the first is smaller.
    fn from_str(text: &str) -> Result<Self> {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| Some(text).filter(is_number)?.parse().ok();
        let parts = text.split_once('/').and_then(|(part, of)| number(part).zip(number(of)));
        let (part, of) = parts.ok_or_else(|| {
            let reason = format!(
                "not a part of a model: {text:?}; the parts of 64 are 0/64, 1/64 and so on to 63/64"
            );
            Error::new(ErrorKind::InvalidArgument, reason)
        })?;
        Self::new(part, of)
    }
}

#[cfg(feature = "serde")]
crate::util::as_text::serialize_as_text!(Part);

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Part {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What of a model one process reads: all of it, or a part.
#[derive(Debug, Clone, Default)]
pub(crate) struct Share {
    part: Option<Part>,
    /// For each tensor, in graph order, whether it is read; `None` where all are.
    tensors: Option<Vec<bool>>,
}

impl Share {
    /// All of the model.
    pub(crate) const ALL: Self = Self { part: None, tensors: None };

    /// Whether the tensor at this position in graph order is read.
    pub(crate) fn has(&self, position: usize) -> bool {
        let all = self.tensors.as_ref();
        all.is_none_or(|tensors| tensors.get(position).copied().unwrap_or_default())
    }

    /// Whether the file of this number, in any order that all processes have, is read as a whole.
    pub(crate) fn has_file(&self, number: usize) -> bool {
        self.part.is_none_or(|part| number % part.of == part.number)
    }

    /// This, and of the other tensors those at positions that are `needed`.
    pub(crate) fn with(&self, needed: impl Fn(usize) -> bool) -> Self {
        let tensors = self.tensors.as_ref().map(|tensors| {
            let tensors = tensors.iter().enumerate();
            tensors.map(|(position, is_read)| *is_read || needed(position)).collect()
        });
        Self { part: self.part, tensors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::GraphProto;

    #[test]
    fn texts_are_parts_or_refused() {
        for (text, expected) in [
            ("0/1", Ok((0, 1))),
            ("3/64", Ok((3, 64))),
            ("003/064", Ok((3, 64))),
            ("64/64", Err("the last one is 63/64")),
            ("0/0", Err("at least one part")),
            ("3", Err("not a part")),
            ("", Err("not a part")),
            ("/", Err("not a part")),
            ("1/", Err("not a part")),
            ("+1/2", Err("not a part")),
            ("-1/2", Err("not a part")),
            ("1/2/3", Err("not a part")),
            (" 1/2", Err("not a part")),
            ("1/99999999999999999999", Err("not a part")),
        ] {
            let found: Result<Part> = text.parse();
            match expected {
                Ok(of) => {
                    let found = found.unwrap();
                    assert_eq!((found.number(), found.of()), of, "{text}");
                    assert_eq!(found.to_string().parse::<Part>().unwrap(), found);
                }
                Err(reason) => {
                    let error = found.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    assert!(error.to_string().contains(reason), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn tensors_are_divided_by_their_lengths_and_tied_ones_are_together() {
        let inline = |len| TensorProto::new("", TensorProto::UINT8, [len]);
        let external =
            |location: &str, len| TensorProto::external("", TensorProto::UINT8, [len], location);
        let mut at = external("f", 9);
        at.external_data.push(crate::proto::StringStringEntryProto::new("offset", "4"));
        let mut texts = TensorProto::new("", TensorProto::STRING, [1]);
        *texts.string_data = vec![crate::Buffer::from(vec![b'a'; 20])];
        let endless = TensorProto::new("", TensorProto::FLOAT, [i64::MAX, i64::MAX]);
        // The tensors, how many parts there are, and the part of each tensor.
        let cases: [(Vec<TensorProto>, usize, &[usize]); 9] = [
            (vec![], 3, &[]),
            (vec![inline(1), inline(9), inline(5), inline(5)], 1, &[0, 0, 0, 0]),
            (vec![inline(1), inline(9), inline(5), inline(5)], 2, &[0, 0, 1, 1]),
            (vec![inline(4), inline(4)], usize::MAX, &[0, 1]),
            (vec![external("#w", 9), inline(8), external("#w", 9)], 2, &[0, 1, 0]),
            // One range by two names, with two lengths; another range of the file.
            (vec![external("f", 9), external("./f", 3), at], 2, &[0, 0, 1]),
            // Width, not number of elements.
            (
                vec![
                    TensorProto::new("", TensorProto::INT4, [12]),
                    TensorProto::new("", TensorProto::DOUBLE, [1]),
                ],
                2,
                &[1, 0],
            ),
            (vec![inline(10), texts, inline(10)], 2, &[1, 0, 1]),
            // What has no length takes part.
            (vec![endless, TensorProto::default(), inline(1)], 3, &[1, 2, 0]),
        ];
        for (tensors, of, expected) in cases {
            let mut graph = GraphProto::new("g");
            graph.initializer = tensors;
            let model = ModelProto::new(graph);
            assert_eq!(Part::new(0, of).unwrap().numbers(&model), expected, "{model:?}");
        }
    }
}
