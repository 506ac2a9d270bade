//! The bytes of a weights file: those of its tensors at their places, and zeros between them.

use std::ops::Range;

use onnx_container::job::Weights;
use onnx_container::{Error, ErrorKind, Initializer, Result};

use super::description::{FileTensor, PlannedFile};
use crate::put::Source;

/// The weights of a file at their places.
struct Pieces {
    /// Initializers and their offsets, in order.
    pieces: Vec<(u64, Initializer)>,
}

impl Pieces {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        let end = offset.saturating_add(out.len() as u64);
        let end_of = |(start, it): &(u64, Initializer)| start.saturating_add(it.byte_len());
        let first = self.pieces.partition_point(|piece| end_of(piece) <= offset);
        let pieces = self.pieces.iter().skip(first).take_while(|(start, _)| *start < end);
        for (start, initializer) in pieces {
            let (from, to) =
                (offset.max(*start), end.min(start.saturating_add(initializer.byte_len())));
            let place = usize::try_from(from - offset).ok().zip(usize::try_from(to - offset).ok());
            let place = place.and_then(|(start, end)| out.get_mut(start..end));
            let place = place.ok_or_else(|| Error::internal("a weight is outside its file"))?;
            initializer.read_at(from - start, place)?;
        }
        Ok(())
    }
}

/// The bytes of `file`, whose `weights` are all at hand and may be read more than once.
///
/// # Errors
/// One for all weights that are missing, or of another type or shape.
pub(super) fn source_of(file: &PlannedFile, weights: &impl Weights) -> Result<Source> {
    let (mut pieces, mut errors) = (Vec::new(), Vec::new());
    for tensor in &file.tensors {
        let found = weights.weights_of(&tensor.name).and_then(|it| fitting(tensor, it));
        match found {
            Ok(initializer) => pieces.push((tensor.offset, initializer)),
            Err(error) => errors.push(error.with_tensor(tensor.name.as_str())),
        }
    }
    if let Some(error) = Error::join(errors) {
        return Err(error);
    }
    let pieces = Pieces { pieces };
    Ok(Source::new(file.bytes, move |offset, out| pieces.read_at(offset, out)))
}

/// `initializer`, if it has the type and shape of `tensor`.
///
/// # Errors
/// [`ErrorKind::DataType`] and [`ErrorKind::Shape`].
pub(super) fn fitting(tensor: &FileTensor, initializer: Initializer) -> Result<Initializer> {
    let (dtype, dims) = (initializer.dtype(), initializer.dims());
    if dtype != tensor.dtype {
        let reason = format!("the weights are {dtype}, the job has {}", tensor.dtype);
        return Err(Error::new(ErrorKind::DataType, reason));
    }
    if dims != tensor.dims {
        let reason = format!("the weights have the shape {dims:?}, the job {:?}", tensor.dims);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(initializer)
}

/// The ranges of `file` that are hashed: those of its tensors, and those within them.
pub(super) fn ranges_of(file: &PlannedFile) -> Result<Vec<Range<u64>>> {
    let tensors = file.tensors.iter().map(|tensor| Ok((tensor.offset, tensor.byte_len()?)));
    let shared = file.shared.iter().copied().map(Ok);
    let range = |(offset, bytes): (u64, u64)| offset..offset.saturating_add(bytes);
    let ranges = tensors.chain(shared).map(|it| it.map(range));
    ranges.filter(|it| it.as_ref().map_or(true, |range| !range.is_empty())).collect()
}
