//! Files of raw bytes with many weights each: one packed file, shards of limited length, or as many
//! as are asked for, of about the same length.
//!
//! A shard of limited length ends where the next weight would make it too long. Nothing is split,
//! and what shares the bytes of another weight refers to the shard of that one.

use super::layout::{Layout, Piece, PlannedFile, WeightPlace};
use crate::buffers::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::save::gather::weights::{NO_BYTES, Weight};
use crate::save::options::SaveOptions;
use crate::save::options::weight_files::ShardNames;
use crate::util::byte_size::ByteSize;
use crate::util::shares::shares;

/// The most shards of a model that transformers.js reads.
const TRANSFORMERS_JS_SHARDS: usize = 100;

impl<'c> Layout<'c, '_> {
    /// Places the rest in one file.
    pub(super) fn one_file(&mut self, name: String, options: &SaveOptions) -> Result<()> {
        self.fill(u64::MAX, options)?;
        self.name_files(vec![name]);
        Ok(())
    }

    /// Places the rest in files of at most `max` bytes, where no weight is longer; they have no
    /// names yet.
    pub(super) fn shards(&mut self, max: u64, options: &SaveOptions) -> Result<()> {
        let for_browsers = options.shard_names == ShardNames::TransformersJs;
        if for_browsers {
            self.refuse_longer(max)?;
        }
        self.fill(max, options)?;
        match self.files.len() {
            count if for_browsers && count > TRANSFORMERS_JS_SHARDS => {
                let reason = format!(
                    "the weights need {count} files of at most {}, and transformers.js reads no more than \
                     {TRANSFORMERS_JS_SHARDS}",
                    ByteSize(max),
                );
                Err(Error::new(ErrorKind::TooLarge, reason))
            }
            _ => Ok(()),
        }
    }

    /// One error for all weights of more than `max` bytes.
    fn refuse_longer(&self, max: u64) -> Result<()> {
        let longer = self.rest().filter(|(_, weight)| weight.len > max);
        let errors = longer.map(|(_, weight)| {
            let reason = format!(
                "has {} bytes ({}), and no shard that a browser reads may have more than {max}",
                weight.len,
                ByteSize(weight.len),
            );
            Error::new(ErrorKind::TooLarge, reason).with_tensor(weight.handle.name())
        });
        Error::join(errors).map_or(Ok(()), Err)
    }

    fn fill(&mut self, max: u64, options: &SaveOptions) -> Result<()> {
        let aliases = self.aliases(options);
        let own: Vec<_> = self.rest().filter(|(number, _)| !aliases.contains_key(number)).collect();
        let mut shard = Shard::default();
        for (number, weight) in own {
            if !shard.takes(weight.len, max, options) {
                self.files.push(std::mem::take(&mut shard).end());
            }
            let range = match weight.len {
                0 => NO_BYTES,
                _ => shard.add(weight, options)?,
            };
            self.place(number, WeightPlace::File(self.files.len(), range))?;
        }
        if !self.rest.is_empty() {
            self.files.push(shard.end());
        }
        self.place_aliases(&aliases)
    }

    /// Places the rest in at most `count` files of about the same length; they have no names yet.
    pub(super) fn balanced(&mut self, count: usize, options: &SaveOptions) -> Result<()> {
        let aliases = self.aliases(options);
        let own: Vec<_> = self.rest().filter(|(number, _)| !aliases.contains_key(number)).collect();
        let lengths: Vec<_> = own.iter().map(|(_, weight)| weight.len).collect();
        // Weights without bytes need no file of their own.
        let with_bytes = lengths.iter().filter(|len| **len > 0).count();
        let count = count.min(with_bytes).max(1);
        let mut shards: Vec<_> = (0..count).map(|_| Shard::default()).collect();
        for ((number, weight), share) in own.into_iter().zip(shares(&lengths, count)) {
            let shard = shards.get_mut(share);
            let shard = shard.ok_or_else(|| Error::internal("a weight of no shard"))?;
            let range = match weight.len {
                0 => NO_BYTES,
                _ => shard.add(weight, options)?,
            };
            self.place(number, WeightPlace::File(share, range))?;
        }
        if !self.rest.is_empty() {
            self.files.extend(shards.into_iter().map(Shard::end));
        }
        self.place_aliases(&aliases)
    }

    /// Gives the files these names.
    pub(super) fn name_files(&mut self, names: Vec<String>) {
        for (file, name) in self.files.iter_mut().zip(names) {
            file.name = name;
        }
    }
}

/// A file that is being filled.
#[derive(Default)]
struct Shard<'c> {
    cursor: Cursor,
    pieces: Vec<Piece<'c>>,
}

impl<'c> Shard<'c> {
    /// Whether `len` more bytes leave the file within `max`. An empty file takes any weight.
    fn takes(&self, len: u64, max: u64, options: &SaveOptions) -> bool {
        let start = options.alignment_of(len).align_up(self.cursor.end());
        let end = start.and_then(|start| start.checked_add(len));
        len == 0 || self.pieces.is_empty() || max == u64::MAX || end.is_some_and(|end| end <= max)
    }

    fn add(&mut self, weight: &Weight<'c>, options: &SaveOptions) -> Result<std::ops::Range<u64>> {
        let offset = self.cursor.place(weight.len, options.alignment_of(weight.len))?;
        self.pieces.push(Piece::new(offset, weight.handle, weight.initializer));
        Ok(offset..self.cursor.end())
    }

    fn end(self) -> PlannedFile<'c> {
        PlannedFile { name: String::new(), len: self.cursor.end(), pieces: self.pieces }
    }
}
