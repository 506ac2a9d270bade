//! How the command opens files: mapped or read, and which links it follows. The only place that
//! promises that nobody changes mapped files.

#![allow(unsafe_code)] // the one promise about mapped files

use onnx_container::check::CheckOptions;
use onnx_container::external_data::PathPolicy;
use onnx_container::job::SourceOptions;
use onnx_container::{Limits, LoadOptions, MmapChoice};

use crate::args::{ReadArgs, TrustArgs};

/// How files are opened.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub map: MmapChoice,
    pub paths: PathPolicy,
    pub limits: Limits,
}

/// As a library reads without a word of the user: nothing is mapped.
pub fn unmapped() -> Reading {
    Reading { map: MmapChoice::never(), paths: PathPolicy::default(), limits: Limits::new() }
}

/// What the user asked for.
pub fn of(args: &ReadArgs) -> Reading {
    mapping(&args.trust, args.no_mmap)
}

/// What the user asked for where the two are apart.
pub fn mapping(args: &TrustArgs, no_mmap: bool) -> Reading {
    Reading { map: map(no_mmap), ..trusting(args) }
}

/// How the source of a job is opened.
pub fn of_source(args: &TrustArgs, no_mmap: bool) -> SourceOptions {
    let Reading { map, paths, limits } = mapping(args, no_mmap);
    SourceOptions::new().paths(paths).limits(limits).mmap(map)
}

/// How to read without mapping.
pub fn trusting(args: &TrustArgs) -> Reading {
    let given = args.limits.iter();
    let limits = given.fold(Limits::new(), |limits, (limit, most)| limits.with(*limit, *most));
    Reading { paths: args.paths.into(), limits, ..unmapped() }
}

/// Files are mapped unless `--no-mmap` was given.
pub fn map(no_mmap: bool) -> MmapChoice {
    if no_mmap {
        return MmapChoice::never();
    }
    // SAFETY: the user sees to it that nobody truncates or rewrites the model's files while the
    // command runs, or gives `--no-mmap`, whose help says so. The command itself replaces files
    // only by renaming others over them, which leaves the maps alone.
    unsafe { MmapChoice::auto() }
}

impl From<Reading> for LoadOptions {
    fn from(reading: Reading) -> Self {
        Self::from(reading.map).paths(reading.paths).limits(reading.limits)
    }
}

impl From<Reading> for CheckOptions {
    fn from(reading: Reading) -> Self {
        LoadOptions::from(reading).into()
    }
}
