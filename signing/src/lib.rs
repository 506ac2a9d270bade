//! Signs ONNX models and verifies their signatures, in the format of OpenSSF Model Signing (OMS)
//! v1.0, by keys for P-256, P-384 and P-521.
//!
//! [`sign`] writes two signatures beside a model. That on files lists them with their SHA-256, as
//! other tools of OMS do, which verify it too. That on content has the digest of what the model
//! contains, and holds after the model was packed, split or embedded. [`verify`] says whether a
//! model is the one that was signed: by its files, or by its content while all else that was signed
//! is unchanged.
//!
//! ```
//! use onnx_container::{Container, WeightFiles};
//! use onnx_container_signing::{PrivateKey, SignOptions, VerifyOptions, sign, verify};
//! # use onnx_container::proto::{GraphProto, ModelProto};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.onnx");
//! # Container::new(ModelProto::new(GraphProto::new("g"))).save(&path, WeightFiles::Packed)?;
//! # use p256::pkcs8::{EncodePrivateKey, LineEnding};
//! # let pem = p256::SecretKey::from_slice(&[7; 32])?.to_pkcs8_pem(LineEnding::LF)?;
//!
//! let key = PrivateKey::from_pem(&pem)?; // or PrivateKey::read("key.pem")
//! let public_key = key.public_key(); // or PublicKey::read("key.pub")
//! let signed = sign(&path, &SignOptions::new(key))?;
//! assert_eq!(signed.files, ["model.onnx"]);
//!
//! let verified = verify(&path, &VerifyOptions::new(public_key))?; // an error for another model
//! assert!(verified.files.is_some_and(|files| files.as_signed));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`verify`] fails for a model that is not the signed one; [`verdict`] tells in every case what
//! was found, file by file. Errors are those of [`onnx_container`], with tensor, path and reason.
//! [`Cancel`](onnx_container::Cancel) ends the reading of files and reports how far it is.
//!
//! `docs/signing.md` says what is signed, when a model is verified, what a killed signing leaves,
//! and what a signature does not say.

mod bundle;
mod content;
mod covered;
mod form;
mod hashing;
mod keys;
mod manifest;
mod needed;
mod object;
mod options;
mod others;
mod pair;
mod places;
mod reason;
mod regular;
mod sign;
mod signed;
mod size;
mod statement;
mod terms;
mod tree;
mod verdict;
mod verify;

pub use keys::{PrivateKey, PublicKey};
pub use options::{ShardForm, SignOptions, VerifyOptions};
pub use others::{says_content, signatures_of};
pub use pair::remove_abandoned;
pub use sign::sign;
pub use signed::{Signed, SignedContent, Warning};
pub use terms::{Term, Terms};
pub use verdict::{ContentVerdict, FilesVerdict, Problem, ProblemKind, Verdict};
pub use verify::{verdict, verify};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the example of the page on signatures.
#[cfg(doctest)]
#[doc = include_str!("../../docs/signing.md")]
struct SigningPage;
