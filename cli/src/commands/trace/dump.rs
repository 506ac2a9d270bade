//! `trace --dump DIR`: every output of every step as a file, written beside its target and renamed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind};
use onnx_container_files::targets::{self, refusals};
use onnx_container_machine::Result as Stepped;
use onnx_container_machine::trace::Dumped;

use crate::files::staged::{self, Staged};
use crate::terminal::failure::Failure;
use crate::terminal::stop;

/// A folder in which the outputs of steps are written.
#[derive(Debug)]
pub struct Dump {
    folder: PathBuf,
}

impl Dump {
    /// Makes the folder, or refuses one where a file must not be replaced that has a name which a
    /// dump may write: how many steps there are is not known. `own` are the files that are read,
    /// `output` is the one that has the trace.
    pub fn new(folder: &Path, output: Option<&Path>, own: &[PathBuf]) -> Result<Self, Failure> {
        staged::refuse_file(folder)?;
        let failed = |error| Error::io(folder, error);
        if folder.exists() {
            let mut paths = Vec::new();
            for entry in fs::read_dir(folder).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                if name.to_str().is_some_and(is_dumped) {
                    paths.push(folder.join(name));
                }
            }
            refusals(paths.iter().map(PathBuf::as_path), own, false)?;
        }
        fs::create_dir_all(folder).map_err(failed)?;
        let is_same = |output: &Path| {
            let [of_output, own] =
                [targets::folder(output), folder].map(|path| path.canonicalize().ok());
            let name = output.file_name().and_then(|name| name.to_str());
            of_output == own && name.is_some_and(is_dumped)
        };
        if let Some(output) = output.filter(|output| is_same(output)) {
            return Err(Failure::Usage(format!(
                "--dump writes a file called `{}` too: give the trace another name",
                output.display()
            )));
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// Writes `value` to the file `name`.
    pub fn write(&self, name: &str, value: &Dumped<'_>) -> Stepped<()> {
        if !stop::goes_on() {
            return Err(stop::cancelled().into());
        }
        let write = |out: &mut dyn Write| {
            value.write(out).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))
        };
        Staged::new(self.folder.join(name), false, write)?.publish(false)?;
        Ok(())
    }
}

/// Whether a dump may write a file of this name: `12_0.pb`.
fn is_dumped(name: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_suffix(".pb").and_then(|stem| stem.split_once('_'));
    numbers.is_some_and(|(step, output)| is_digits(step) && is_digits(output))
}
