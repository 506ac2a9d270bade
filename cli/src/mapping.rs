//! Whether the command maps files: the only place that promises that nobody changes them.

#![allow(unsafe_code)] // the one promise about mapped files

use onnx_container::MmapChoice;

use crate::args::MapArgs;

/// Files are mapped unless `--no-mmap` was given.
pub fn choice(args: &MapArgs) -> MmapChoice {
    if args.no_mmap {
        return MmapChoice::never();
    }
    // SAFETY: the user sees to it that nobody truncates or rewrites the model's files while the
    // command runs, or gives `--no-mmap`, whose help says so. The command itself replaces files
    // only by renaming others over them, which leaves the maps alone.
    unsafe { MmapChoice::auto() }
}
