//! Reads small weights files together: many into one piece of memory, on all cores.
//!
//! A model may have a file for each of tens of thousands of tensors. Read one after the other, each
//! into memory of its own, they take half as much memory again for padding and bookkeeping. This
//! runs ahead of `resolve`, which judges tensors and files: what cannot be read here, for whatever
//! reason, is left to it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::options::LoadOptions;
use crate::buffer::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::buffers::Cursor;
use crate::buffers::FileInMemory;
use crate::buffers::copy_into;
use crate::error::{Error, Result};
use crate::files::external_data::{self, Directory, Entries, is_external, is_handle, without_dots};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};
use crate::util::parallel;

/// The longest file in bytes that shares its memory.
const SMALL: u64 = 64 << 10;

/// The most bytes of memory that files share: as long as one of them is in use, all of it is. Long
/// enough for huge pages.
const SHARED: u64 = 4 << 20;

/// A file, and how many bytes of it the tensors of the model need.
struct Wanted {
    location: String,
    /// The location without `.` components.
    name: String,
    needed: u64,
}

/// The small weights files of `model` by their locations without `.` components. Files are not read
/// where some may be mapped, or where there is only one.
pub(super) fn read_small_files(
    model: &ModelProto,
    options: &LoadOptions,
    directory: &Directory,
) -> HashMap<String, Buffer> {
    let alignment = options.decode.buffers.alignment_or_dense().max(Alignment::DEVICE);
    if options.mmap.maps() || alignment > Alignment::PAGE {
        return HashMap::new();
    }
    let mut wanted = wanted_files(model, options);
    wanted.retain(|file| file.needed <= SMALL);
    if wanted.len() < 2 {
        return HashMap::new();
    }
    let groups = groups(wanted, alignment);
    let found = Mutex::new(HashMap::new());
    let read = |group| {
        let files = read_group(group, directory, alignment)?;
        found.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
        Ok(())
    };
    let threads = if groups.len() < 2 { 1 } else { parallel::cores(8) };
    // An error ends the reading ahead; what is left is read by `resolve`.
    let _: Result<()> = parallel::for_each(threads, groups.into_iter(), read);
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The files that the external tensors name, in graph order.
fn wanted_files(model: &ModelProto, options: &LoadOptions) -> Vec<Wanted> {
    let mut files: Vec<Wanted> = Vec::new();
    let mut numbers = HashMap::new();
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let Some((location, needed)) = location_and_end(tensor) else { continue };
        if let Some(last) = files.last_mut()
            && last.location == location
        {
            last.needed = last.needed.max(needed);
            continue;
        }
        let name = without_dots(location);
        if is_handle(location) || options.files.contains_key(&name) {
            continue;
        }
        let number = *numbers.entry(name.clone()).or_insert(files.len());
        match files.get_mut(number) {
            Some(file) => file.needed = file.needed.max(needed),
            None => files.push(Wanted { location: location.to_owned(), name, needed }),
        }
    }
    files
}

/// The location of a tensor and where its bytes end there.
fn location_and_end(tensor: &TensorProto) -> Option<(&str, u64)> {
    let (location, entries) = Entries::of(tensor).ok()?;
    let (_, len) = external_data::layout(tensor).ok()?;
    Some((location, entries.range(len).ok()?.end))
}

/// Files that share memory, each with its place there.
#[derive(Default)]
struct Group {
    files: Vec<(Wanted, u64)>,
    cursor: Cursor,
}

fn groups(files: Vec<Wanted>, alignment: Alignment) -> Vec<Group> {
    let mut groups = vec![Group::default()];
    for file in files {
        let is_full = |group: &Group| group.cursor.end().saturating_add(file.needed) > SHARED;
        if groups.last().is_none_or(is_full) {
            groups.push(Group::default());
        }
        if let Some(group) = groups.last_mut()
            && let Ok(start) = group.cursor.place(file.needed, alignment)
        {
            group.files.push((file, start));
        }
    }
    groups
}

/// The files of `group` that can be read and are not longer than what is needed of them.
fn read_group(
    group: Group,
    directory: &Directory,
    alignment: Alignment,
) -> Result<Vec<(String, Buffer)>> {
    let len = usize::try_from(group.cursor.end()).unwrap_or(usize::MAX);
    let mut memory = BufferMut::zeroed(len, alignment)?;
    let (mut names, mut files) = (Vec::new(), Vec::new());
    for (file, start) in group.files {
        if let Some(read) = read_file(&file, start, directory, &mut memory) {
            names.push(file.name);
            files.push(read);
        }
    }
    let bytes = memory.freeze_files(files);
    if bytes.len() != names.len() {
        return Err(Error::internal("a file was read beyond its memory"));
    }
    Ok(names.into_iter().zip(bytes).collect())
}

/// Reads `file` to the byte `start` of `memory`.
fn read_file(
    file: &Wanted,
    start: u64,
    directory: &Directory,
    memory: &mut BufferMut,
) -> Option<FileInMemory> {
    let (open, metadata) = directory.open_known(&file.location).ok()?;
    let len = Some(metadata.len()).filter(|len| *len <= file.needed)?;
    let start = usize::try_from(start).ok()?;
    let range = start..start.checked_add(usize::try_from(len).ok()?)?;
    let identity = copy_into(&open, &metadata, memory.get_mut(range.clone())?).ok()?;
    Some(FileInMemory { range, path: directory.join(&file.location), identity })
}
