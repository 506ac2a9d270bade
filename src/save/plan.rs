//! Which bytes go to which file at which offset. Pure: nothing is read or written.
//!
//! Bytes follow graph order, so that a reader that walks the graph reads forward, and two saves of
//! one container give the same files. A byte range that several tensors share is placed once, also
//! when one of them shows only a part of it.

#[cfg(feature = "safetensors")]
mod safetensors;

#[cfg(feature = "safetensors")]
pub(crate) use safetensors::{ExportStyle, Exports};

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{check_location, fold_case, is_external, is_handle};
use crate::initializer::{Address, Initializer};
use crate::names::UniqueNames;
use crate::placement::Cursor;
use crate::proto::ModelProto;
use crate::save::kept::KeptFiles;
use crate::save::options::{SaveOptions, WeightFiles};
use crate::traversal;

/// Where every external tensor of a model goes.
pub(crate) struct Plan<'c> {
    pub(crate) files: Vec<PlannedFile<'c>>,
    /// The files that stay as they are, instead of `files`.
    pub(crate) kept: Option<KeptFiles>,
    /// By handle. What has no place goes into the model.
    pub(crate) places: HashMap<&'c Handle, Placed>,
}

/// One weights file to be written.
#[derive(Debug)]
pub(crate) struct PlannedFile<'c> {
    pub(crate) name: String,
    /// In bytes.
    pub(crate) len: u64,
    /// In the order of their offsets, without overlap; what lies between is zero.
    pub(crate) pieces: Vec<Piece<'c>>,
}

/// One initializer's bytes in a file.
#[derive(Debug)]
pub(crate) struct Piece<'c> {
    pub(crate) offset: u64,
    /// Owned where it is no tensor of the model: the header of a file.
    pub(crate) initializer: Cow<'c, Initializer>,
    /// The handle that the initializer is behind, for messages.
    handle: Option<&'c Handle>,
}

impl<'c> Piece<'c> {
    pub(crate) fn new(offset: u64, handle: &'c Handle, initializer: &'c Initializer) -> Self {
        Self { offset, initializer: Cow::Borrowed(initializer), handle: Some(handle) }
    }

    /// The offset behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.initializer.byte_len())
    }

    /// `error`, which names the initializer.
    pub(crate) fn name_in(&self, error: Error) -> Error {
        match self.handle {
            Some(handle) => error.with_tensor(handle.as_str()),
            None => error,
        }
    }
}

/// A byte range of the file with this index.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) file: usize,
    pub(crate) range: Range<u64>,
}

/// An initializer in use.
pub(crate) struct Used<'c> {
    pub(crate) handle: &'c Handle,
    pub(crate) initializer: &'c Initializer,
    pub(crate) len: u64,
    /// Where its bytes are, when that can be told.
    address: Option<Address>,
}

/// A model, and the container that has its large initializers.
#[derive(Clone, Copy)]
pub(crate) struct Source<'c, 'm> {
    pub(crate) container: &'c Container,
    pub(crate) model: &'m ModelProto,
}

impl<'c> Plan<'c> {
    /// Plans the files of `used`, all that `source` uses, beside a model file called `model_name`.
    pub(crate) fn new(
        #[cfg_attr(not(feature = "safetensors"), allow(unused_variables))] source: Source<'c, '_>,
        used: &[Used<'c>],
        model_name: &str,
        options: &SaveOptions,
    ) -> Result<Self> {
        let mut plan = Self { files: Vec::new(), kept: None, places: HashMap::new() };
        match options.weight_files {
            WeightFiles::Embedded => {}
            WeightFiles::One => plan.one_file(used, data_name(model_name, options)?, options)?,
            WeightFiles::PerTensor => plan.file_per_tensor(used, model_name, options),
            #[cfg(feature = "safetensors")]
            WeightFiles::Safetensors => {
                let name = data_name(model_name, options)?;
                plan.safetensors_file(source, used, name, options)?;
            }
            WeightFiles::AsLoaded => {
                let reason = "there are no files here that weights could stay in";
                return Err(Error::new(ErrorKind::CannotKeep, reason));
            }
        }
        Ok(plan)
    }

    /// The location and the range in it of the initializer behind `handle`.
    pub(crate) fn place(&self, handle: &Handle) -> Option<(&str, &Range<u64>)> {
        let Placed { file, range } = self.places.get(handle)?;
        let location = match &self.kept {
            Some(kept) => &kept.files.get(*file)?.location,
            None => &self.files.get(*file)?.name,
        };
        Some((location, range))
    }

    fn one_file(&mut self, used: &[Used<'c>], name: String, options: &SaveOptions) -> Result<()> {
        let mut cursor = Cursor::default();
        let mut file = PlannedFile { name, len: 0, pieces: Vec::new() };
        let hosts = hosts(used, options);
        for (i, tensor) in used.iter().enumerate() {
            let offset = if hosts.contains_key(&i) {
                continue;
            } else if tensor.len == 0 {
                cursor.end()
            } else {
                cursor.place(tensor.len, options.alignment_of(tensor.len))?
            };
            file.pieces.push(Piece::new(offset, tensor.handle, tensor.initializer));
            let range = offset..offset.saturating_add(tensor.len);
            self.places.insert(tensor.handle, Placed { file: 0, range });
        }
        file.len = cursor.end();
        if !used.is_empty() {
            self.files.push(file);
        }
        self.guests(used, &hosts);
        Ok(())
    }

    fn file_per_tensor(&mut self, used: &[Used<'c>], model_name: &str, options: &SaveOptions) {
        let mut names = FileNames::new(model_name);
        let hosts = hosts(used, options);
        let placed = used.iter().enumerate().filter(|(i, _)| !hosts.contains_key(i));
        for (_, tensor) in placed {
            let place = Placed { file: self.files.len(), range: 0..tensor.len };
            self.places.insert(tensor.handle, place);
            let pieces = vec![Piece::new(0, tensor.handle, tensor.initializer)];
            self.files.push(PlannedFile {
                name: names.name(tensor.handle),
                len: tensor.len,
                pieces,
            });
        }
        self.guests(used, &hosts);
    }

    /// Places the tensors that lie inside others.
    fn guests(&mut self, used: &[Used<'c>], hosts: &HashMap<usize, Guest>) {
        for (i, tensor) in used.iter().enumerate() {
            let Some(guest) = hosts.get(&i) else { continue };
            let host = used.get(guest.host).and_then(|host| self.places.get(host.handle));
            let Some(Placed { file, range }) = host.cloned() else { continue };
            let start = range.start.saturating_add(guest.delta);
            let range = start..start.saturating_add(tensor.len);
            self.places.insert(tensor.handle, Placed { file, range });
        }
    }
}

impl<'c> Source<'c, '_> {
    /// The initializers that tensors refer to, in graph order, each handle once.
    pub(crate) fn used(self) -> Result<Vec<Used<'c>>> {
        let mut seen = HashSet::new();
        let mut used = Vec::new();
        traversal::tensors(self.model, |_, tensor| {
            if is_external(tensor) {
                let (handle, initializer) = self.container.initializer_of(tensor)?;
                if seen.insert(handle) {
                    used.push(Used::new(handle, initializer));
                }
            }
            Ok(())
        })?;
        Ok(used)
    }

    /// Large initializers that are none of `used`.
    pub(crate) fn unused(self, used: &[Used<'_>]) -> Vec<Handle> {
        let names: HashSet<&Handle> = used.iter().map(|used| used.handle).collect();
        let all = self.container.iter().map(|(handle, _)| handle);
        all.filter(|handle| !names.contains(handle)).cloned().collect()
    }
}

impl<'c> Used<'c> {
    fn new(handle: &'c Handle, initializer: &'c Initializer) -> Self {
        let (len, address) = (initializer.byte_len(), initializer.address());
        Self { handle, initializer, len, address }
    }
}

/// A tensor whose bytes are (part of) another's.
struct Guest {
    host: usize,
    /// Bytes from the host's start.
    delta: u64,
}

/// For every tensor whose bytes lie inside another's, that other one. A part whose place inside
/// would break its alignment is written again instead.
fn hosts(used: &[Used<'_>], options: &SaveOptions) -> HashMap<usize, Guest> {
    let mut by_address: BTreeMap<(Address, std::cmp::Reverse<u64>), usize> = BTreeMap::new();
    let mut hosts = HashMap::new();
    for (i, tensor) in used.iter().enumerate() {
        let Some(address) = tensor.address else { continue };
        let key = (address, std::cmp::Reverse(tensor.len));
        if let Some(host) = by_address.get(&key) {
            hosts.insert(i, Guest { host: *host, delta: 0 });
        } else {
            by_address.insert(key, i);
        }
    }
    // In the order of their addresses, the longer first: a host precedes its guests.
    let mut last: Option<(Address, u64, usize)> = None;
    for ((address, len), i) in by_address {
        let inside = last.and_then(|(start, host_len, host)| {
            let delta = address.bytes_after(start)?;
            (delta.saturating_add(len.0) <= host_len).then_some(Guest { host, delta })
        });
        match inside {
            Some(guest) if options.alignment_of(len.0).is_aligned(guest.delta) => {
                hosts.insert(i, guest);
            }
            Some(_) => {}
            None => last = Some((address, len.0, i)),
        }
    }
    flatten(&mut hosts);
    hosts
}

/// Makes guests of guests the guests of the first host.
fn flatten(hosts: &mut HashMap<usize, Guest>) {
    let outer: Vec<_> = hosts
        .iter()
        .filter_map(|(guest, inner)| {
            let outer = hosts.get(&inner.host)?;
            Some((
                *guest,
                Guest { host: outer.host, delta: outer.delta.saturating_add(inner.delta) },
            ))
        })
        .collect();
    hosts.extend(outer);
}

/// The name of the packed file, seen to be a plain file name other than the model's.
pub(crate) fn data_name(model_name: &str, options: &SaveOptions) -> Result<String> {
    let name = options.data_name.clone().unwrap_or_else(|| match options.weight_files {
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors => safetensors::default_name(model_name),
        _ => default_data_name(model_name),
    });
    let reason = if name.contains(['/', '\\']) {
        "the data file lies beside the model: its name has no directory"
    } else if fold_case(&name) == fold_case(model_name) {
        "the data file cannot have the model's name"
    } else if is_handle(&name) {
        "a data file's name does not start with `#`, which marks handles"
    } else if name.len() > MAX_NAME {
        "the data file's name is longer than 255 bytes"
    } else {
        check_location(&name)?;
        return Ok(name);
    };
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(name))
}

/// `<model file>.data`, cleaned where a model may be called so and a location not: `#m`, `C:m`.
pub(crate) fn default_data_name(model_name: &str) -> String {
    location_name(model_name, ".data")
}

fn location_name(base: &str, suffix: &str) -> String {
    let name = without_dot_dot(&with_suffix(base, suffix));
    let plain = !is_handle(&name) && !name.contains('\\') && check_location(&name).is_ok();
    if plain { name } else { clean(&name) }
}

/// onnx's loader refuses a location that contains `..` anywhere.
fn without_dot_dot(name: &str) -> String {
    name.replace("..", "__")
}

/// The longest file name, in bytes, that common file systems hold.
const MAX_NAME: usize = 255;

/// How the names of a model's files for single tensors begin: `<stem>-`.
pub(crate) fn weight_prefix(model_name: &str) -> String {
    let stem = model_name.strip_suffix(".onnx").unwrap_or(model_name);
    without_dot_dot(&format!("{}-", clean(stem)))
}

/// Makes file names for handles: `<stem>-<clean handle>.weight`, each unique also where case is
/// ignored, at most 255 bytes long.
struct FileNames {
    prefix: String,
    names: UniqueNames,
}

impl FileNames {
    fn new(model_name: &str) -> Self {
        let mut names = UniqueNames::of_files(MAX_NAME);
        names.take(model_name);
        Self { prefix: weight_prefix(model_name), names }
    }

    fn name(&mut self, handle: &Handle) -> String {
        let base = self.prefix.clone() + &clean(handle.name());
        self.names.name(&without_dot_dot(&base), ".weight")
    }
}

/// Replaces what some file system or shell does not take in a name by `_`.
fn clean(name: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    name.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// `base` and `suffix`; of a long `base` as much as file systems hold.
fn with_suffix(base: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len()).min(base.len());
    let end = (0..=room).rev().find(|end| base.is_char_boundary(*end));
    format!("{}{suffix}", base.get(..end.unwrap_or(0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_clean_unique_and_short() {
        let mut names = FileNames::new("m.onnx");
        let long = format!("#{}", "ä".repeat(300));
        let cases = [
            ("#w", "m-w.weight"),
            ("#W", "m-W_2.weight"),
            ("#w/x", "m-w_x.weight"),
            ("#w:x", "m-w_x_2.weight"),
            ("#a..b", "m-a__b.weight"),
            ("#con.", "m-con.weight"),
            ("#../../etc/passwd", "m-______etc_passwd.weight"),
            // One file where case is ignored, though neither is the other's lower case.
            ("#ς", "m-ς.weight"),
            ("#Σ", "m-Σ_2.weight"),
            ("#straße", "m-straße.weight"),
            ("#STRASSE", "m-STRASSE_2.weight"),
        ];
        for (handle, name) in cases {
            assert_eq!(names.name(&handle.parse().unwrap()), name);
        }
        let mut given = HashSet::new();
        for _ in 0..3 {
            let name = names.name(&long.parse().unwrap());
            assert!(name.len() <= MAX_NAME && name.ends_with(".weight"), "{name}");
            assert!(given.insert(name));
        }
    }
}
