//! `sign` and `verify-signature`: signatures in the format of OpenSSF Model Signing (OMS) v1.0.
//!
//! A signature file is a `bundle` of one statement and its ECDSA signature. There are two
//! statements: `manifest` lists the files of a folder with their digests, in the format of OMS, and
//! `content` is the digest of what the model contains, which is ours. `form` is what both have in
//! common, read strictly as `object` says, and `statement` tells them apart. `places` has the names
//! of signature files. `keys` has the keys, `regular` reads their files and signatures, `tree` has
//! the files of a folder, and `hashing` what their bytes say. `sign` makes signature files, of a
//! `size` that can be read, and `pair` puts them in place, where they replace none of `others`.
//! `verify` finds what differs, `covered` files that hold nothing but weights, `verdict` and
//! `reason` have what follows, and `told` says it; docs/signing.md has what each means.

mod bundle;
mod content;
mod covered;
mod form;
mod hashing;
mod keys;
mod manifest;
mod object;
mod others;
mod pair;
mod places;
mod reason;
mod regular;
mod sign;
mod size;
mod statement;
mod told;
mod tree;
mod verdict;
mod verify;

pub use pair::remove_abandoned;
pub use sign::run as sign;
pub use verify::run as verify;
