//! The SHA-256 of files and of parts of them, on all cores.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use onnx_container::external_data::Directory;
use onnx_container::{Error, Result, work};
use onnx_container_files::sha256;

/// How bytes were hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Each file at once.
    Files,
    /// Each file in pieces of so many bytes; an empty file has none.
    Shards(u64),
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Shards(_) => "shards",
        }
    }

    pub fn shard_size(self) -> Option<u64> {
        match self {
            Self::Files => None,
            Self::Shards(size) => Some(size),
        }
    }
}

/// A part of a file with its digest, 64 hexadecimal digits.
#[derive(Debug)]
pub struct Hashed {
    pub part: Part,
    pub digest: String,
}

/// The ranges of the shards of `size` bytes of a file that has `len`.
pub fn shards(len: u64, size: u64) -> impl Iterator<Item = Range<u64>> {
    let next = move |start: &u64| start.checked_add(size).filter(|next| *next < len);
    let starts = std::iter::successors((len > 0).then_some(0), next);
    starts.map(move |start| start..start.saturating_add(size).min(len))
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// These bytes.
    Range(Range<u64>),
}

impl Part {
    /// Its first byte.
    pub fn start(&self) -> u64 {
        match self {
            Self::Whole => 0,
            Self::Range(range) => range.start,
        }
    }

    /// Where it ends; for a whole file, which has no such byte, 0.
    pub fn end(&self) -> u64 {
        match self {
            Self::Whole => 0,
            Self::Range(range) => range.end,
        }
    }
}

/// The length in bytes of the file called `name`.
pub fn length(directory: &Directory, name: &str) -> Result<u64> {
    let metadata = directory.open_file(name)?.metadata();
    Ok(metadata.map_err(|error| Error::io(directory.join(name), error))?.len())
}

/// The digests of the files called `names` in `directory`, by `method`; or why a file cannot be
/// read.
pub fn files(directory: &Directory, names: &[&str], method: Method) -> Vec<Result<Vec<Hashed>>> {
    let parts = names.iter().map(|name| parts(directory, name, method));
    let parts: Vec<Result<Vec<Part>>> = parts.collect();
    let jobs: Vec<(&str, &Part)> = names
        .iter()
        .zip(&parts)
        .flat_map(|(name, parts)| parts.iter().flatten().map(move |part| (*name, part)))
        .collect();
    let digests = sha256::each(&jobs, |(name, part)| digest(directory, name, part));
    let mut digests = digests.into_iter();
    let of_file = |parts: Result<Vec<Part>>| {
        let parts = parts?;
        let mine: Vec<_> = digests.by_ref().take(parts.len()).collect();
        let hashed = |(part, digest): (Part, Result<String>)| Ok(Hashed { part, digest: digest? });
        parts.into_iter().zip(mine).map(hashed).collect()
    };
    parts.into_iter().map(of_file).collect()
}

/// The parts of which a file has digests.
fn parts(directory: &Directory, name: &str, method: Method) -> Result<Vec<Part>> {
    let Method::Shards(size) = method else { return Ok(vec![Part::Whole]) };
    Ok(shards(length(directory, name)?, size).map(Part::Range).collect())
}

fn digest(directory: &Directory, name: &str, part: &Part) -> Result<String> {
    work::check()?;
    let file = directory.open_file(name)?;
    let hashed = match part {
        Part::Whole => file.metadata().and_then(|found| {
            work::begin(found.len());
            sha256::of_reader(file)
        }),
        Part::Range(range) => part_of(file, range).and_then(|part| {
            work::begin(range.end.saturating_sub(range.start));
            sha256::of_reader(part)
        }),
    };
    hashed.map_err(|error| Error::io(directory.join(name), error))
}

fn part_of(mut file: File, range: &Range<u64>) -> std::io::Result<impl Read> {
    file.seek(SeekFrom::Start(range.start))?;
    Ok(file.take(range.end.saturating_sub(range.start)))
}

/// Whether `digits` are those of a SHA-256, in small letters.
pub fn is_sha256(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
