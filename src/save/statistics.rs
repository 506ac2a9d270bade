//! What a save did, in numbers.

/// What was spared by storing equal weights once: [`SaveOptions::dedup`](crate::SaveOptions::dedup).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Deduplicated {
    /// The number of tensors of the model that now share the bytes of another one. Tensors that already shared
    /// theirs in memory do not count.
    pub tensors: usize,
    /// The number of bytes that were not written for them, without padding.
    pub bytes: u64,
    /// The number of [lazy](crate::Initializer::lazy) weights, which were not compared.
    pub lazy: usize,
}
