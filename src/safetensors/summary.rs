//! What is in safetensors files, as the summary of a model without a graph. Only their headers are
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use super::{Index, is_padding, what_else};
use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::consistent_read::read_one_save;
use crate::files::external_data::Directory;
use crate::files::file_format::failed_download;
use crate::files::safetensors_header::{Header, PADDING};
use crate::load::LoadOptions;
use crate::summary::{Entry, Summary, TensorSummary};

/// What is in a `.safetensors` file, or in all shards of a `.safetensors.index.json`: the tensors,
/// each with its file and place there, and the metadata. Padding entries are left out, and what a
/// model has besides is empty.
///
/// Only the headers are read. Of the options, those of files and paths apply.
///
/// ```no_run
/// use onnx_container::{LoadOptions, safetensors};
///
/// let summary = safetensors::inspect("model.safetensors.index.json", LoadOptions::new())?;
/// println!("{} parameters in {} tensors", summary.parameters, summary.totals.tensors);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// As [`load`](super::load).
pub fn inspect(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Summary> {
    let (path, options) = (path.as_ref(), options.into());
    let is_index = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let found = if is_index { of_shards(path, &options) } else { of_one(path) };
    let Found { tensors, metadata } = found.map_err(|error| error.with_path(path))?;
    let metadata = metadata.into_iter().map(|(key, value)| Entry::new(key, value)).collect();
    Ok(Summary { metadata, ..Summary::default() }.with_tensors(tensors))
}

/// What the headers of some files say.
#[derive(Default)]
struct Found {
    tensors: Vec<TensorSummary>,
    metadata: BTreeMap<String, String>,
}

fn of_one(path: &Path) -> Result<Found> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut found = Found::default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    found.add(&file, &name)?;
    Ok(found)
}

fn of_shards(path: &Path, options: &LoadOptions) -> Result<Found> {
    let index = read_one_save(path, options.mmap, |bytes| match failed_download(&bytes) {
        Some(what) => Err(Error::new(ErrorKind::NotDownloaded, what)),
        None => Index::parse(&bytes),
    })?;
    let index = index.value;
    let directory = Directory::of_model(path, options.paths)?;
    let (mut found, mut errors) = (Found::default(), Errors::default());
    let shards: BTreeSet<_> = index.weight_map.0.values().collect();
    for shard in shards {
        let opened = directory.open_file(shard);
        if let Err(error) = opened.and_then(|file| found.add(&file, shard)) {
            errors.push(error.with_path(directory.join(shard)));
        }
    }
    errors.extend(missing(&index.weight_map.0, &found.tensors));
    super::add_new(&mut found.metadata, Index::texts(index.metadata));
    errors.join().map_or(Ok(found), Err)
}

/// An error for tensors of the index that no shard has, as an error in each shard is another one.
fn missing(places: &BTreeMap<String, String>, tensors: &[TensorSummary]) -> Option<Error> {
    let there: BTreeSet<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let lacking = places.keys().find(|name| !there.contains(name.as_str()))?;
    let reason = "the index has it, and none of the shards";
    Some(Error::new(ErrorKind::InvalidModel, reason).with_tensor(lacking))
}

impl Found {
    /// Adds the tensors of `file`, which is at `location`.
    fn add(&mut self, file: &File, location: &str) -> Result<()> {
        let read = Header::read_from(file);
        let (header, start) = read.map_err(|error| in_words(file, error))?;
        let Header { metadata, entries } = header;
        let padding = metadata.get(PADDING).filter(|prefix| !prefix.is_empty());
        let entries = entries
            .into_iter()
            .filter(|entry| !padding.is_some_and(|prefix| is_padding(entry, prefix)));
        self.tensors.extend(entries.map(|entry| {
            let offset = entry.range.start.saturating_add(start as u64);
            let place = (location.to_owned(), offset);
            TensorSummary::of_entry(entry.name, entry.dtype, entry.dims, place)
        }));
        super::add_new(&mut self.metadata, metadata);
        Ok(())
    }
}

/// The most bytes of a file that tell what else it is.
const HEAD: usize = 1 << 16;

/// `error`, or what the file is where it is something else.
fn in_words(file: &File, error: Error) -> Error {
    let len = file.metadata().map_or(0, |data| data.len());
    let mut head = vec![0; usize::try_from(len).map_or(HEAD, |len| len.min(HEAD))];
    if crate::buffers::read_at(file, &mut head, 0).is_err() {
        return error;
    }
    let head = Buffer::from(head);
    if let Some(what) = failed_download(&head) {
        return Error::new(ErrorKind::NotDownloaded, what);
    }
    what_else(&head).map_or(error, |what| Error::new(ErrorKind::Decode, what))
}
