//! Builds a plan: gives each weight its place.
//!
//! Bytes are in graph order, so that a reader that walks the graph reads forward, and two saves of
//! one container write the same files. A byte range that several tensors share is placed once, even
//! when one of them refers to only a part of it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::aliases::{Alias, aliases};
use crate::buffer::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::save::gather::equal::Equal;
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::weights::{GatheredWeights, Weight, no_weight};
use crate::save::options::SaveOptions;
use crate::save::options::statistics::{Deduplicated, Statistics};
use crate::save::target::SavedFile;
use crate::save::target::file_names::FileNames;
use crate::tensor::initializer::Initializer;
use crate::util::cancel;

/// Where every weight goes.
pub(crate) struct Plan<'c> {
    /// The weights files that are written.
    pub(crate) files: Vec<PlannedFile<'c>>,
    /// By the number of the weight.
    pub(crate) places: Vec<WeightPlace>,
    /// The numbers of the weights that have the bytes of an equal one.
    deduplicated: Vec<usize>,
}

impl Plan<'_> {
    /// What becomes of the bytes of all tensors that refer to `weights`.
    pub(crate) fn statistics(&self, weights: &GatheredWeights<'_>) -> Statistics {
        let mut statistics = Statistics::default();
        let (mut files, mut kept) = (Vec::new(), Vec::new());
        for tensor in &weights.tensors {
            match self.places.get(tensor.weight).filter(|_| !tensor.inline) {
                Some(WeightPlace::File(file, range)) => files.push((*file, range.clone())),
                Some(WeightPlace::Kept(file, range)) => kept.push((*file, range.clone())),
                Some(WeightPlace::Model) | None => {
                    let len = weights.used.get(tensor.weight).map_or(0, |weight| weight.len);
                    statistics.add_inline(len);
                }
            }
        }
        statistics.add_ranges(files, false);
        statistics.add_ranges(kept, true);
        statistics
    }

    /// What was spared because some of `weights` are `equal`.
    pub(crate) fn deduplicated(
        &self,
        weights: &GatheredWeights<'_>,
        equal: &Equal,
    ) -> Deduplicated {
        let spared: HashSet<_> = self.deduplicated.iter().copied().collect();
        let lengths = spared.iter().filter_map(|number| Some(weights.used.get(*number)?.len));
        let tensors = weights.tensors.iter().filter(|tensor| !tensor.inline);
        let tensors = tensors.filter(|tensor| spared.contains(&tensor.weight)).count();
        let bytes = lengths.fold(0, u64::saturating_add);
        let Equal { lazy, overlapping, .. } = *equal;
        Deduplicated { tensors, bytes, lazy, overlapping }
    }
}

/// Where a weight is in the saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WeightPlace {
    /// In the model file.
    Model,
    /// In these bytes of the planned file of this number.
    File(usize, Range<u64>),
    /// In these bytes of the kept file of this number.
    Kept(usize, Range<u64>),
}

/// One weights file to be written.
#[derive(Debug)]
pub(crate) struct PlannedFile<'c> {
    pub(crate) name: String,
    /// In bytes.
    pub(crate) len: u64,
    /// In the order of their offsets, without overlap; the bytes between them are zero.
    pub(crate) pieces: Vec<Piece<'c>>,
}

impl PlannedFile<'_> {
    /// The same file, which borrows nothing. No byte of a weight is copied.
    pub(crate) fn into_owned(self) -> PlannedFile<'static> {
        let pieces = self.pieces.into_iter().map(Piece::into_owned).collect();
        PlannedFile { name: self.name, len: self.len, pieces }
    }

    /// Fills `out` with the bytes from `offset` on: those of the pieces, and zeros between them.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let reason = format!("{} bytes are not within the {} of the file", out.len(), self.len);
            let error = Error::new(ErrorKind::OutOfBounds, reason).with_offset(offset);
            return Err(error.with_path(&self.name));
        };
        out.fill(0);
        let first = self.pieces.partition_point(|piece| piece.end() <= offset);
        let pieces = self.pieces.iter().skip(first).take_while(|piece| piece.offset < end);
        for piece in pieces {
            cancel::check()?;
            let (from, to) = (offset.max(piece.offset), end.min(piece.end()));
            let place = usize::try_from(from - offset).ok().zip(usize::try_from(to - offset).ok());
            let place = place.and_then(|(start, end)| out.get_mut(start..end));
            let outside = || Error::internal(format!("a weight is outside `{}`", self.name));
            let read = piece.initializer.read_at(from - piece.offset, place.ok_or_else(outside)?);
            read.map_err(|error| piece.name_in(error))?;
        }
        Ok(())
    }

    pub(crate) fn to_saved(&self) -> SavedFile {
        SavedFile::new(self.name.as_str(), self.len)
    }

    /// What is written to the file.
    pub(crate) fn initializers(&self) -> impl Iterator<Item = &Initializer> {
        self.pieces.iter().map(|piece| &*piece.initializer)
    }

    /// The bytes of the file: the initializer's own buffer where the file has only one piece.
    pub(crate) fn assemble(&self) -> Result<Buffer> {
        cancel::check()?;
        if let [piece] = self.pieces.as_slice() {
            return piece.initializer.to_buffer().map_err(|error| piece.name_in(error));
        }
        let mut bytes = BufferMut::zeroed(in_memory(self.len)?, Alignment::PAGE)?;
        for piece in &self.pieces {
            let range = usize::try_from(piece.offset).ok().zip(usize::try_from(piece.end()).ok());
            let place = range.and_then(|(start, end)| bytes.get_mut(start..end));
            let outside = || Error::internal(format!("a weight is outside `{}`", self.name));
            let read = piece.initializer.read_into(place.ok_or_else(outside)?);
            read.map_err(|error| piece.name_in(error))?;
        }
        Ok(bytes.freeze())
    }
}

/// One initializer's bytes in a file.
#[derive(Debug)]
pub(crate) struct Piece<'c> {
    pub(crate) offset: u64,
    /// Owned if it is the header of a file, which is not a tensor of the model.
    pub(crate) initializer: Cow<'c, Initializer>,
    /// The handle of the initializer.
    pub(crate) handle: Option<Cow<'c, Handle>>,
}

impl<'c> Piece<'c> {
    pub(crate) fn new(offset: u64, handle: &'c Handle, initializer: &'c Initializer) -> Self {
        Self {
            offset,
            initializer: Cow::Borrowed(initializer),
            handle: Some(Cow::Borrowed(handle)),
        }
    }

    /// The same piece, which borrows nothing.
    fn into_owned(self) -> Piece<'static> {
        let initializer = Cow::Owned(self.initializer.into_owned());
        let handle = self.handle.map(|handle| Cow::Owned(handle.into_owned()));
        Piece { offset: self.offset, initializer, handle }
    }

    /// The offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.initializer.byte_len())
    }

    /// `error` with the name of the initializer.
    pub(crate) fn name_in(&self, error: Error) -> Error {
        match &self.handle {
            Some(handle) => error.with_tensor(handle.name()),
            None => error,
        }
    }
}

/// A plan that is being made.
pub(super) struct Layout<'c, 'a> {
    weights: &'a [Weight<'c>],
    pub(super) equal: &'a Equal,
    /// The weights that have the bytes of an equal one.
    deduplicated: Vec<usize>,
    /// The numbers of the weights that have no place yet.
    pub(super) rest: Vec<usize>,
    pub(super) files: Vec<PlannedFile<'c>>,
    places: Vec<Option<WeightPlace>>,
}

impl<'c, 'a> Layout<'c, 'a> {
    /// Starts with the places of the weights that are kept, and of those that are inline in all
    /// tensors.
    pub(super) fn new(
        weights: &'a GatheredWeights<'c>,
        kept: &KeptFiles,
        equal: &'a Equal,
    ) -> Result<Self> {
        let stays = |number: usize| {
            kept.ranges
                .get(number)
                .cloned()
                .flatten()
                .map(|(file, range)| WeightPlace::Kept(file, range))
        };
        let external = weights.are_external()?;
        let places = external.iter().enumerate().map(|(number, external)| match external {
            true => stays(number),
            false => Some(WeightPlace::Model),
        });
        let (places, files) = (places.collect(), Vec::new());
        let (weights, rest, deduplicated) = (&weights.used, Vec::new(), Vec::new());
        let mut layout = Self { weights, equal, deduplicated, rest, files, places };
        layout.find_rest();
        Ok(layout)
    }

    fn find_rest(&mut self) {
        let places = self.places.iter().enumerate();
        self.rest = places.filter(|(_, place)| place.is_none()).map(|(number, _)| number).collect();
    }

    /// The weights without a place, and their numbers.
    pub(super) fn rest(&self) -> impl Iterator<Item = (usize, &'a Weight<'c>)> + use<'c, 'a, '_> {
        self.rest.iter().filter_map(|number| Some((*number, self.weights.get(*number)?)))
    }

    pub(super) fn place(&mut self, number: usize, place: WeightPlace) -> Result<()> {
        match self.places.get_mut(number) {
            Some(slot @ None) => *slot = Some(place),
            Some(_) => return Err(Error::internal("a weight has two places")),
            None => return Err(no_weight()),
        }
        Ok(())
    }

    /// Puts the weights for which `small` holds into the model.
    pub(super) fn in_model(&mut self, small: impl Fn(&Weight<'_>) -> bool) -> Result<()> {
        let picked: Vec<_> = self.rest().filter(|(_, weight)| small(weight)).collect();
        for (number, _) in picked {
            self.place(number, WeightPlace::Model)?;
        }
        self.find_rest();
        Ok(())
    }

    pub(super) fn file_per_tensor(
        &mut self,
        model_name: &str,
        options: &SaveOptions,
    ) -> Result<()> {
        let mut names = FileNames::new(model_name);
        let aliases = self.aliases(options);
        let own: Vec<_> = self.rest().filter(|(number, _)| !aliases.contains_key(number)).collect();
        for (number, weight) in own {
            self.place(number, WeightPlace::File(self.files.len(), 0..weight.len))?;
            let (name, len) = (names.name(weight.handle), weight.len);
            let pieces = vec![Piece::new(0, weight.handle, weight.initializer)];
            self.files.push(PlannedFile { name, len, pieces });
        }
        self.place_aliases(&aliases)
    }

    /// The weights whose bytes are inside those of others, or equal to them.
    pub(super) fn aliases(&mut self, options: &SaveOptions) -> HashMap<usize, Alias> {
        let (aliases, deduplicated) = aliases(self.rest(), self.equal, options);
        self.deduplicated = deduplicated;
        aliases
    }

    /// Places the weights whose bytes are inside those of others.
    pub(super) fn place_aliases(&mut self, aliases: &HashMap<usize, Alias>) -> Result<()> {
        let all: Vec<_> = self.rest().filter(|(n, _)| aliases.contains_key(n)).collect();
        for (number, weight) in all {
            let missing = || Error::internal("the bytes that a weight shares have no place");
            let alias = aliases.get(&number).ok_or_else(missing)?;
            let Some(Some(WeightPlace::File(file, range))) = self.places.get(alias.of) else {
                return Err(missing());
            };
            let (file, start) = (*file, range.start.saturating_add(alias.delta));
            self.place(number, WeightPlace::File(file, start..start.saturating_add(weight.len)))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Plan<'c>> {
        let places: Option<Vec<_>> = self.places.into_iter().collect();
        let places = places.ok_or_else(|| Error::internal("a weight has no place"))?;
        Ok(Plan { files: self.files, places, deduplicated: self.deduplicated })
    }
}
