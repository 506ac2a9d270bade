//! The SHA-1 of every weights file of a save, for the `checksum` entries of its tensors.
//!
//! The model has them, and its length and message are known before anything is written: so they are
//! made of the plan.

use crate::digest::Whole;
use crate::error::{Error, Result};
use crate::save::gather::kept::KeptFiles;
use crate::save::options::SaveOptions;
use crate::save::plan::{Plan, PlannedFile};
use crate::tensor::initializer::Initializer;
use crate::util::parallel;
use crate::wire::Str;
use std::sync::OnceLock;

/// How much is read at a time of a weight that is not in memory.
const CHUNK: usize = 1 << 20;

/// The checksums of the files of a save, each 40 hexadecimal digits; none where they are not
/// wanted.
#[derive(Default)]
pub(crate) struct Checksums {
    /// Those of the files that are written, in the order of the plan.
    pub(crate) written: Vec<Str>,
    /// Those of the files that are kept.
    pub(crate) kept: Vec<Str>,
}

impl Checksums {
    /// Those of all files, where `options` ask for them.
    ///
    /// # Errors
    /// Those of the sources of the weights, and why a kept file cannot be read.
    pub(crate) fn wanted(plan: &Plan<'_>, kept: &KeptFiles, options: &SaveOptions) -> Result<Self> {
        if options.checksums { Self::new(plan, kept) } else { Ok(Self::default()) }
    }

    /// Those of all files of `plan` and `kept`, which are read for that, each by one thread.
    fn new(plan: &Plan<'_>, kept: &KeptFiles) -> Result<Self> {
        let made: Vec<_> = plan.files.iter().map(|file| (file, OnceLock::new())).collect();
        let make = |(file, made): &(&PlannedFile<'_>, OnceLock<Str>)| {
            let checksum = checksum(file)?;
            made.get_or_init(|| checksum);
            Ok::<_, Error>(())
        };
        parallel::for_each(parallel::cores(made.len()), made.iter(), make)?;
        let missing = || Error::internal("a file without a checksum");
        let written = made.into_iter().map(|(_, made)| made.into_inner().ok_or_else(missing));
        let kept = kept.open_all().map(|opened| {
            let (kept, file) = opened?;
            let mut whole = Whole::new(true, false);
            whole.read(file).map_err(|error| Error::io(&kept.location, error))?;
            Ok(digits(whole))
        });
        Ok(Self { written: written.collect::<Result<_>>()?, kept: kept.collect::<Result<_>>()? })
    }
}

fn digits(whole: Whole) -> Str {
    whole.finish().0.unwrap_or_default().into()
}

fn checksum(file: &PlannedFile<'_>) -> Result<Str> {
    let (mut whole, mut end) = (Whole::new(true, false), 0);
    for piece in &file.pieces {
        whole.zeros(piece.offset.saturating_sub(end))?;
        add(&mut whole, &piece.initializer).map_err(|error| piece.name_in(error))?;
        end = piece.end();
    }
    whole.zeros(file.len.saturating_sub(end))?;
    Ok(digits(whole))
}

fn add(whole: &mut Whole, initializer: &Initializer) -> Result<()> {
    if let Some(bytes) = initializer.as_buffer() {
        return whole.update(&bytes);
    }
    if initializer.is_lazy() {
        return whole.update(&initializer.to_buffer()?);
    }
    let (len, mut offset) = (initializer.byte_len(), 0);
    let mut chunk = vec![0; CHUNK];
    while offset < len {
        let rest = usize::try_from(len - offset).unwrap_or(usize::MAX);
        let part = chunk.get_mut(..rest.min(CHUNK)).unwrap_or_default();
        initializer.read_at(offset, part)?;
        whole.update(part)?;
        offset += part.len() as u64;
    }
    Ok(())
}
