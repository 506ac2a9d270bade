//! Loading a model that the command vouches for: by digests that it stores with what it writes, or
//! by a signature.
//!
//! Where digests are stored with the model already, its weights are compared with them first. New
//! ones of weights that were damaged since would say that these are right.

use std::collections::HashSet;
use std::path::Path;

use onnx_container::check::{CheckOptions, Checker, Severity};
use onnx_container::load::VerifyDigests;
use onnx_container::{Container, Error, ErrorKind, LoadOptions};

use crate::args::TargetArgs;
use crate::model::place;
use crate::model::reading::Reading;
use crate::terminal::failure::Failure;

/// Loads `model`. What is written has no digest that was computed of it, unless `vouched`.
pub fn load(model: &Path, reading: Reading, vouched: Vouched) -> Result<Container, Failure> {
    let options = LoadOptions::from(reading);
    match vouched {
        Vouched::No => Ok(place::load(model, options)?),
        Vouched::Compared => {
            let options = options.verify_digests(VerifyDigests::WhereStored);
            place::load(model, options).map_err(refused)
        }
    }
}

/// Whether the content of a model is compared with the digests that are stored with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vouched {
    No,
    Compared,
}

impl Vouched {
    /// What a command does that computes `digests`, unless the user said to `ignore` those that are
    /// there.
    pub fn of(digests: bool, ignore: bool) -> Self {
        if digests && !ignore { Self::Compared } else { Self::No }
    }
}

impl From<&TargetArgs> for Vouched {
    fn from(args: &TargetArgs) -> Self {
        Self::of(args.digests, args.ignore_stored_digests)
    }
}

/// Compares `model` with the digests that are stored with it. Of tensors only those in `used`
/// count: of the others what is written has nothing.
pub fn compare(model: &Path, reading: Reading, used: &HashSet<&str>) -> Result<(), Failure> {
    let options = |load| CheckOptions::from(load).digests(true);
    let mut checker = Checker::new(options(reading.into()));
    let checked = place::check(&mut checker, model, reading, options)?;
    let is_used = |error: &Error| error.tensor().is_none_or(|name| used.contains(name));
    let errors = checked.findings.into_iter().filter(|found| found.severity == Severity::Error);
    let errors = errors.map(|found| found.error);
    let errors = errors.filter(|error| error.kind() == ErrorKind::WrongDigest && is_used(error));
    Error::join(errors).map_or(Ok(()), |error| Err(refused(error)))
}

/// The failure for an `error` of the comparison, with what the user can do about it.
pub fn refused(error: Error) -> Failure {
    if !error.has(ErrorKind::WrongDigest) {
        return error.into();
    }
    let hint = "nothing was written: new digests would vouch for data that was damaged or changed by another tool; \
                --ignore-stored-digests accepts it";
    Failure::Hinted(error, hint.to_owned())
}
