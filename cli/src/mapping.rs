//! Whether the command maps files: the only place that promises that nobody changes them.

#![allow(unsafe_code)] // the one promise about mapped files

use onnx_container::MmapChoice;

use crate::args::MapArgs;

/// Files are mapped unless `--no-mmap` was given.
pub fn choice(args: &MapArgs) -> MmapChoice {
    if args.no_mmap {
        return MmapChoice::never();
    }
    // SAFETY: whoever runs the command has nobody truncate or rewrite the model's files while it
    // runs, or gives `--no-mmap`, whose help says so. The command itself replaces files only by
    // renaming others over them, which leaves the maps alone.
    unsafe { MmapChoice::auto() }
}
