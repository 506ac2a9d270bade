//! The digests of what lies in M, so that bytes are hashed once as long as nothing writes over
//! them.
//!
//! What a step wrote is what later ones read, under that name or as a view. M numbers its contents,
//! so a digest belongs to a range and the number that its content had. Digests of contents that are
//! gone are forgotten from time to time.

use std::collections::HashMap;

use super::TracedWeight;
use super::hasher::{Sha, known};
use crate::error::Result;
use crate::machine::Touched;
use crate::memory::table::Entry;
use crate::memory::{Memory, Span, WEIGHT};

/// As many digests are kept before any are forgotten.
const FEW: usize = 1024;

/// The digests of ranges of M.
#[derive(Debug, Default)]
pub(super) struct KnownDigests {
    digests: HashMap<Key, Sha>,
    /// How many there may be before those of contents that are gone are forgotten.
    most: usize,
}

/// A content: its number, its address and its length.
type Key = (u64, u64, u64);

impl KnownDigests {
    /// Adds the digest of a constant, which never changes.
    pub(super) fn add_weight(&mut self, weight: &TracedWeight) {
        if let Some(offset) = weight.off {
            let key = (WEIGHT, offset, weight.bytes);
            self.digests.entry(key).or_insert_with(|| known(weight.sha.clone()));
        }
    }

    /// The digest of `touched`, or what `make` makes of it.
    pub(super) fn get_or_make(
        &mut self,
        touched: &Touched,
        memory: &Memory,
        make: impl FnOnce() -> Sha,
    ) -> Result<Sha> {
        let Some((key, span)) = key(touched)? else { return Ok(make()) };
        if let Some(sha) = self.digests.get(&key) {
            return Ok(sha.clone());
        }
        let sha = make();
        // What was read and is not there any more was kept, or the bytes are not those of this
        // number.
        if touched.overwritten.is_some() || memory.content(span) == touched.content {
            self.digests.insert(key, sha.clone());
        }
        Ok(sha)
    }

    /// Whether the digest of the content that `span` has now is known.
    pub(super) fn has(&self, span: Span, memory: &Memory) -> bool {
        let content = memory.content(span);
        content.is_some_and(|content| self.digests.contains_key(&(content, span.offset, span.len)))
    }

    /// Forgets the digests of contents that are gone, if there are many. A step that is not
    /// recorded yet may have written over one whose digest its record needs.
    pub(super) fn forget(&mut self, memory: &Memory) {
        if self.digests.len() < self.most.max(FEW) {
            return;
        }
        let is_there = |(content, offset, len): &Key| {
            memory.content(Span { offset: *offset, len: *len }) == Some(*content)
        };
        self.digests.retain(|key, _| is_there(key));
        self.most = 2 * self.digests.len();
    }
}

fn key(touched: &Touched) -> Result<Option<(Key, Span)>> {
    let (Entry::Tensor(slot), Some(content)) = (&touched.entry, touched.content) else {
        return Ok(None);
    };
    let span = slot.span()?;
    Ok(Some(((content, span.offset, span.len), span)))
}
