//! [`Form`]: the canonical form of one part of a model, on its way through SHA-256.
//!
//! Two different parts must never have one form. So each form begins with the version of the scheme
//! and the kind of the part, numbers have a fixed width, and text and lists begin with their
//! length. What is in the form of a node, a tensor or a type is written in their files, and in
//! `docs/semantic-digest.md`.

use sha2::{Digest as _, Sha256};

pub(super) use crate::digest::Digest;
use crate::wire::Unknown;

/// The version of the scheme. Another scheme has another text, so that no digest of one equals one
/// of the other.
const SCHEME: &str = "onnx-container/semantic/1/";

/// A form that is being written.
pub(super) struct Form(Sha256);

impl Form {
    /// The form of a part of this kind.
    pub(super) fn new(kind: &str) -> Self {
        let mut form = Self(Sha256::new());
        form.0.update(SCHEME);
        form.0.update(kind);
        form.0.update([0]);
        form
    }

    /// One byte that tells which of several things follows.
    pub(super) fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    /// A number: 64 bits, little-endian.
    pub(super) fn number(&mut self, number: i64) {
        self.0.update(number.to_le_bytes());
    }

    /// The length of what follows, as a number.
    pub(super) fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    /// The bits of a float: 32, little-endian.
    pub(super) fn float(&mut self, bits: u32) {
        self.0.update(bits.to_le_bytes());
    }

    /// Text or bytes, with their length before them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    pub(super) fn digest(&mut self, digest: &Digest) {
        self.0.update(digest.as_bytes());
    }

    /// The digest of a value that may be left out.
    pub(super) fn optional(&mut self, digest: Option<&Digest>) {
        self.tag(u8::from(digest.is_some()));
        digest.into_iter().for_each(|digest| self.digest(digest));
    }

    /// The dimensions of a tensor.
    pub(super) fn dims(&mut self, dims: &[i64]) {
        self.count(dims.len());
        dims.iter().for_each(|dim| self.number(*dim));
    }

    /// Fields of a message that this crate does not know, and so cannot leave out.
    pub(super) fn unknown(&mut self, unknown: &Unknown) {
        self.count(unknown.records().len());
        unknown.records().iter().for_each(|record| self.bytes(record));
    }

    pub(super) fn end(self) -> Digest {
        Digest::of_bytes(self.0)
    }
}
