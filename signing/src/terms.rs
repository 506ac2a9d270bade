//! What messages call what the caller can do: options and calls have other names in the command and
//! in Python than here.

use std::fmt;
use std::path::Path;

/// An option or a call that a message names.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Term<'a> {
    /// The option that gives the signature another name; with that name, where one is proposed.
    Signature(Option<&'a Path>),
    /// The option that signs in shards of so many bytes.
    ShardSize(u64),
    /// The option that takes files alone as proof.
    RequireFiles,
    /// The option that ignores files which were not signed.
    IgnoreUnsignedFiles,
    /// The call that writes a model anew.
    Save,
}

/// How a caller says a [`Term`] in its messages.
pub type Terms = fn(&Term<'_>) -> String;

/// The names that this crate has.
impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature(None) => f.write_str("`SignOptions::signature`"),
            Self::Signature(Some(path)) => write!(f, "`SignOptions::signature({path:?})`"),
            Self::ShardSize(bytes) => write!(f, "`SignOptions::shard_size({bytes})`"),
            Self::RequireFiles => f.write_str("`VerifyOptions::require_files`"),
            Self::IgnoreUnsignedFiles => f.write_str("`VerifyOptions::ignore_unsigned_files`"),
            Self::Save => f.write_str("`Container::save`"),
        }
    }
}

/// A term as this crate says it.
pub(crate) fn own(term: &Term<'_>) -> String {
    term.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_names_of_this_crate() {
        for (term, text) in [
            (Term::Signature(None), "`SignOptions::signature`"),
            (Term::Signature(Some(Path::new("m/x.sig"))), "`SignOptions::signature(\"m/x.sig\")`"),
            (Term::ShardSize(3000), "`SignOptions::shard_size(3000)`"),
            (Term::RequireFiles, "`VerifyOptions::require_files`"),
            (Term::IgnoreUnsignedFiles, "`VerifyOptions::ignore_unsigned_files`"),
            (Term::Save, "`Container::save`"),
        ] {
            assert_eq!(own(&term), text);
        }
    }
}
