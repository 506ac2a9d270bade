//! [`Row`]: a row of a table of what operators have from one version on.

/// A row of a table that is sorted by its keys.
pub(super) trait Row: 'static {
    /// The domain, the operator and the version.
    fn key(&self) -> (&'static str, &'static str, i64);
}
