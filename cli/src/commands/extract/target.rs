//! Where tensors are written: one file, a directory, or standard output.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use crate::args::{ExtractArgs, OutArgs};
use crate::terminal::failure::Failure;

/// What `-o` names.
#[derive(Debug)]
pub enum ExtractTarget {
    Stdout,
    File(PathBuf),
    Directory(PathBuf),
}

impl ExtractTarget {
    /// The target that `args` name, after checking that it can take what they ask for.
    pub fn of(args: &ExtractArgs, several: bool) -> Result<Self, Failure> {
        let path = &args.output;
        let refused = |reason: &str| Err(Failure::Usage(reason.to_owned()));
        if path.as_os_str() == "-" {
            let OutArgs { json, no_clobber, no_sync, .. } = args.out;
            return match (several, json, no_clobber || no_sync) {
                (true, ..) => refused(
                    "only one tensor can be written to standard output; for several use -o DIR/",
                ),
                (_, true, _) => {
                    refused("standard output can be the tensor or the --json report, not both")
                }
                (.., true) => refused("--no-clobber and --no-sync are for files, not for -o -"),
                _ if stdout().is_terminal() => refused(
                    "a tensor is not written to a terminal: redirect standard output, or use -o FILE",
                ),
                _ => Ok(Self::Stdout),
            };
        }
        let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if slash || path.is_dir() {
            return Ok(Self::Directory(path.clone()));
        }
        Ok(Self::File(path.clone()))
    }
}
