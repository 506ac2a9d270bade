//! Numeric profiles: how exactly a run rounds.

/// How numbers are computed where there is more than one way.
///
/// docs/machine.md of the repository states both in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Profile {
    /// `strict-1`: the same bits on every processor, in every build.
    #[default]
    Strict,
    /// `fast`: as fast as the processor can, within the rounding that is usual for inference. The
    /// same bits on one processor; others may round otherwise.
    Fast,
}

impl Profile {
    /// Its name in traces. That of the strict profile has a version, because its bits
    /// never change.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict-1",
            Self::Fast => "fast",
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
