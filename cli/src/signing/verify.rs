//! `verify-signature MODEL`: whether a model is the one that was signed.

use onnx_container::Error;
use onnx_container_signing::{PublicKey, VerifyOptions, verdict};

use crate::args::VerifySignatureArgs;
use crate::model::reading;
use crate::signing::json::Judged;
use crate::signing::{terms, told};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

/// Judges the model and prints the verdict.
pub fn run(args: &VerifySignatureArgs, out: &mut Output) -> Result<Outcome, Failure> {
    // That there is no model is said before what is wrong with the key.
    args.model.metadata().map_err(|error| Error::io(&args.model, error))?;
    let verdict = verdict(&args.model, &options(args, PublicKey::read(&args.key)?))?;
    if args.json {
        out.json(&Judged::from(&verdict))?;
    } else {
        told::print(&verdict, out)?;
    }
    Ok(Outcome::of(verdict.is_verified()))
}

fn options(args: &VerifySignatureArgs, key: PublicKey) -> VerifyOptions {
    let reading = reading::of(&args.read);
    let options = VerifyOptions::new(key)
        .ignore_unsigned_files(args.ignore_unsigned_files)
        .all_files(args.all_files)
        .require_files(args.require_files)
        .mmap(reading.map)
        .paths(reading.paths)
        .limits(reading.limits)
        .terms(terms::of_command);
    args.signature.iter().fold(options, |options, path| options.signature(path))
}
