//! `sign` and `verify-signature`; `signing` has what they do.

use std::path::Path;

use crate::args::{SignArgs, VerifySignatureArgs};
use crate::commands::Execute;
use crate::signing;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for SignArgs {
    fn name(&self) -> &'static str {
        "sign"
    }

    fn json(&self) -> bool {
        self.out.json
    }

    fn models(&self) -> Vec<&Path> {
        one_model(&self.model)
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        signing::sign(self, out)
    }
}

impl Execute for VerifySignatureArgs {
    fn name(&self) -> &'static str {
        "verify-signature"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        one_model(&self.model)
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        signing::verify(self, out)
    }
}

/// The model at `path`, unless it is a folder. A model that is not there may be one that an
/// interrupted save moved away.
fn one_model(path: &Path) -> Vec<&Path> {
    if path.is_dir() { Vec::new() } else { vec![path] }
}
