//! [`check_model`]: every fault of a model and its weights files, without loading the weights.
//!
//! A load reports only what prevents it. Before a model is shipped, the whole list is wanted: what no
//! reader accepts, what some readers refuse, and what only wastes space.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::directory_of;
use crate::external_data::{self, Directory, ExternalData, is_external, is_handle, without_dots};
use crate::externalize::{ExternalizeOptions, KeepReason};
use crate::load::decode_model;
use crate::mmap::MmapChoice;
use crate::operands::{ShapeOperands, ShapeUse};
use crate::proto::{IR_VERSION, Message, ModelProto, TensorProto};
use crate::save::{Folder, default_data_name, staging_prefix, weight_prefix};
use crate::tensor::Tensor;
use crate::traversal::{self, Place};
use crate::wire::DecodeOptions;

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; mainstream readers load the model.
    Advice,
    /// Readers refuse the model, or would read wrong data.
    Error,
}

/// One thing that [`check_model`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The fault, with the tensor, file and byte concerned.
    pub error: Error,
}

/// The largest message that protobuf readers take, in bytes.
pub const MAX_PROTOBUF: u64 = 0x7FFF_FFFF;

/// Checks the model at `path` with its weights files and returns all findings, errors first.
///
/// It checks every tensor's dtype, dims and byte length, every entry, path and range, overlaps and gaps
/// in the weights files, files that nothing refers to, strings that are not UTF-8, and what some
/// readers are known to refuse. The bytes of external weights are not read.
///
/// ```no_run
/// use onnx_container::{MmapChoice, Severity, check_model};
///
/// let findings = check_model("model.onnx", MmapChoice::never())?;
/// for finding in &findings {
///     println!("{:?}: {}", finding.severity, finding.error);
/// }
/// let sound = findings.iter().all(|finding| finding.severity < Severity::Error);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// When the model file itself cannot be read or decoded.
pub fn check_model(path: impl AsRef<Path>, mmap: MmapChoice) -> Result<Vec<Finding>> {
    let path = path.as_ref();
    let bytes = mmap.buffer(path)?;
    let model = decode_model(&bytes, &DecodeOptions::new()).map_err(|e| e.with_path(path))?;
    let mut checker = Checker::new(path, &model)?;
    checker.model(&model, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    traversal::tensors(&model, |place, tensor| {
        checker.tensor(place, tensor);
        Ok(())
    })?;
    checker.ranges();
    checker.orphans();
    let mut findings = checker.findings;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(findings)
}

/// A weights file and the byte ranges of it that tensors use.
struct WeightsFile {
    path: PathBuf,
    len: u64,
    used: Vec<Range<u64>>,
}

struct Checker {
    path: PathBuf,
    directory: Directory,
    operands: ShapeOperands,
    /// By location; `None` for files that cannot be opened.
    files: BTreeMap<String, Option<WeightsFile>>,
    findings: Vec<Finding>,
}

impl Checker {
    fn new(path: &Path, model: &ModelProto) -> Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            directory: Directory::open(directory_of(path))?,
            operands: ShapeOperands::of(model),
            files: BTreeMap::new(),
            findings: Vec::new(),
        })
    }

    fn report(&mut self, severity: Severity, error: Error) {
        self.findings.push(Finding { severity, error });
    }

    fn model(&mut self, model: &ModelProto, len: u64) {
        let mut add = |severity, kind, reason: String| {
            self.report(severity, Error::new(kind, reason).with_path(self.path.clone()));
        };
        if len > MAX_PROTOBUF {
            let reason = format!("{len} bytes: protobuf readers refuse more than {MAX_PROTOBUF}");
            add(Severity::Error, ErrorKind::TooLarge, reason);
        }
        if model.graph.is_none() {
            add(Severity::Error, ErrorKind::InvalidModel, "the model has no graph".into());
        }
        match model.ir_version {
            None => add(Severity::Error, ErrorKind::InvalidModel, "no ir_version".into()),
            Some(version) if version > IR_VERSION => {
                let reason = format!("ir_version {version} is newer than {IR_VERSION}");
                add(Severity::Advice, ErrorKind::Unsupported, reason);
            }
            Some(_) => {}
        }
        if let Some(reason) = not_text(model) {
            add(Severity::Advice, ErrorKind::InvalidModel, reason);
        }
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) {
        let name = place.qualified_name(tensor);
        if !is_external(tensor) {
            if let Err(error) = Tensor::try_from(tensor) {
                self.report(Severity::Error, error.with_tensor(name));
            }
            return;
        }
        if let Err(error) = self.external(tensor, &name) {
            self.report(Severity::Error, error.with_tensor(name.clone()));
        }
        if let Some((severity, reason)) = self.refused(place, tensor) {
            let error = Error::new(ErrorKind::Unsupported, reason).with_tensor(name);
            self.report(severity, error);
        }
    }

    /// Checks the entries of an external tensor and records the range that it uses.
    fn external(&mut self, tensor: &TensorProto, name: &str) -> Result<()> {
        let data = ExternalData::parse(tensor)?;
        if !data.unknown_keys.is_empty() {
            let keys = data.unknown_keys.join(", ");
            let reason = format!("unknown external data keys, which onnxruntime refuses: {keys}");
            let error = Error::new(ErrorKind::InvalidModel, reason).with_tensor(name);
            self.report(Severity::Advice, error);
        }
        let (_, len) = external_data::layout(tensor)?;
        let range = data.range(len)?;
        let Some(file) = self.file(&data.location)? else { return Ok(()) };
        file.used.push(range.start.min(file.len)..range.end.min(file.len));
        if range.end > file.len {
            let reason = format!("data end at byte {}, the file has {}", range.end, file.len);
            let error = Error::new(ErrorKind::OutOfBounds, reason);
            return Err(error.with_path(&file.path).with_offset(range.start));
        }
        Ok(())
    }

    /// The file at `location`; `None` when it was reported before.
    fn file(&mut self, location: &str) -> Result<Option<&mut WeightsFile>> {
        let key = without_dots(location);
        if !self.files.contains_key(&key) {
            self.files.insert(key.clone(), None);
            let opened = self.open(location)?;
            self.files.insert(key.clone(), Some(opened));
        }
        Ok(self.files.get_mut(&key).and_then(Option::as_mut))
    }

    fn open(&self, location: &str) -> Result<WeightsFile> {
        if is_handle(location) {
            let reason = format!("unresolved handle `{location}`: it names memory, not a file");
            return Err(Error::new(ErrorKind::MissingHandle, reason));
        }
        let path = self.directory.join(location);
        let file = self.directory.open_file(location)?;
        let len = file.metadata().map_err(|e| Error::io(&path, e))?.len();
        let head = head(&file, &path)?;
        if let Some(what) = crate::file_format::failed_download(&head) {
            return Err(Error::new(ErrorKind::InvalidModel, what).with_path(path));
        }
        Ok(WeightsFile { path, len, used: safetensors_header(&head, len).into_iter().collect() })
    }

    /// Why some reader refuses an external tensor at this place. The rule is that of `externalize`,
    /// which keeps such a tensor inline.
    fn refused(&self, place: &Place<'_>, tensor: &TensorProto) -> Option<(Severity, &'static str)> {
        let dtype = DataType::try_from(tensor.data_type.unwrap_or(0)).ok()?;
        let bytes = dtype.byte_len(&tensor.dims).ok()?;
        let reason = ExternalizeOptions::new().reason_to_keep(
            place,
            tensor,
            &self.operands,
            dtype,
            bytes,
        )?;
        let required = self.operands.shape_use(tensor) == Some(ShapeUse::Operand);
        Some(match reason {
            KeepReason::SparseIndices => {
                (Severity::Error, "external sparse indices, which onnx.checker refuses")
            }
            KeepReason::ShapeOperand if required => {
                (Severity::Error, "an external shape operand, which onnxruntime refuses")
            }
            KeepReason::ShapeOperand => (
                Severity::Advice,
                "an external tensor that shape inference reads: onnxruntime may refuse it",
            ),
            KeepReason::SmallInteger => (
                Severity::Advice,
                "a few external integers, which onnxruntime may merge with shape operands",
            ),
            KeepReason::FunctionBody => (
                Severity::Advice,
                "external inside a function: onnx_ir looks in the current directory",
            ),
            KeepReason::Empty | KeepReason::Strings => return None,
        })
    }

    /// Reports overlaps, and bytes that no tensor uses.
    fn ranges(&mut self) {
        let mut found = Vec::new();
        for file in self.files.values_mut().flatten() {
            file.used.retain(|range| !range.is_empty());
            file.used.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
            file.used.dedup();
            found.extend(overlaps(file));
            found.extend(gaps(file));
        }
        self.findings.extend(found);
    }

    /// Reports weights files and staging folders of this model that nothing refers to.
    fn orphans(&mut self) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let candidates = siblings(self.directory.path(), &name);
        let mut orphans: Vec<_> =
            candidates.into_iter().filter(|file| !self.files.contains_key(file)).collect();
        if orphans.is_empty() {
            return;
        }
        // When the folder cannot be read, it is not known which files are unused, and none is
        // reported.
        let Ok(users) = Folder::new(self.directory.path(), &name).users(&orphans) else { return };
        orphans.retain(|file| !users.contains_key(file));
        for orphan in orphans {
            let saving = orphan.starts_with(&staging_prefix(&name));
            let reason = if saving {
                "left by a save that was interrupted: delete it, or take the old or new files from it"
            } else {
                "no model of this folder refers to it"
            };
            let error = Error::new(ErrorKind::InvalidModel, reason);
            self.report(Severity::Advice, error.with_path(self.directory.join(&orphan)));
        }
    }
}

/// Which strings are not UTF-8: most readers accept them, and fail when the text is read.
fn not_text(model: &ModelProto) -> Option<String> {
    let (mut count, mut first) = (0_u64, None);
    model.strings(&mut |string| {
        if string.to_str().is_err() {
            count += 1;
            first.get_or_insert_with(|| string.to_string_lossy().into_owned());
        }
    });
    first.map(|first| match count {
        1 => format!("a string is not UTF-8: `{first}`"),
        _ => format!("{count} strings are not UTF-8, the first is `{first}`"),
    })
}

/// The first bytes of `file`.
fn head(file: &File, path: &Path) -> Result<Buffer> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head).map_err(|e| Error::io(path, e))?;
    Ok(head.into())
}

/// The bytes before the data, where a file of `len` bytes begins as a safetensors file does.
fn safetensors_header(head: &[u8], len: u64) -> Option<Range<u64>> {
    let (length, json) = head.split_first_chunk()?;
    let end = u64::from_le_bytes(*length).checked_add(8).filter(|end| *end <= len)?;
    json.starts_with(b"{").then_some(0..end)
}

/// Files and staging folders beside the model `name` that look like its own.
fn siblings(directory: &Path, name: &str) -> Vec<String> {
    let (weight, staging) = (weight_prefix(name), staging_prefix(name));
    let data = [default_data_name(name), format!("{name}_data"), format!("{name}.weight")];
    let own = |file: &String| {
        let weight = file.starts_with(&weight) && file.ends_with(".weight");
        data.contains(file) || weight || file.starts_with(&staging)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<_> = names.filter(own).collect();
    found.sort();
    found
}

/// Reports ranges that share some bytes. A range inside another is how views of a tensor are stored;
/// partly overlapping ranges are a sign of a broken file.
fn overlaps(file: &WeightsFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut last: Option<&Range<u64>> = None;
    for range in &file.used {
        match last {
            Some(before) if range.start < before.end => {
                let inside = range.end <= before.end;
                let severity = if inside { Severity::Advice } else { Severity::Error };
                let how = if inside { "inside" } else { "across the end of" };
                let reason =
                    format!("bytes {range:?} lie {how} those of another tensor, {before:?}");
                let error = Error::new(ErrorKind::InvalidModel, reason).with_path(&file.path);
                found.push(Finding { severity, error });
                if !inside {
                    last = Some(range);
                }
            }
            _ => last = Some(range),
        }
    }
    found
}

/// Bytes that no tensor uses and that are not padding before an aligned offset.
fn gaps(file: &WeightsFile) -> Option<Finding> {
    let mut end = 0_u64;
    let mut unused = 0_u64;
    let file_end = file.len..file.len;
    for range in file.used.iter().chain([&file_end]) {
        let gap = range.start.saturating_sub(end);
        let last = range.is_empty();
        if gap > 0 && (last || !is_padding(gap, range.start)) {
            unused = unused.saturating_add(gap);
        }
        end = end.max(range.end);
    }
    let reason = format!("{unused} of {} bytes are used by no tensor of this model", file.len);
    let error = Error::new(ErrorKind::InvalidModel, reason).with_path(&file.path);
    (unused > 0).then_some(Finding { severity: Severity::Advice, error })
}

/// Whether a gap of `gap` bytes before `start` can be the padding that aligns `start`, to at most 2 MiB
/// (a huge page).
fn is_padding(gap: u64, start: u64) -> bool {
    let alignment = gap.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    alignment <= 2 << 20 && start.is_multiple_of(alignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: u64, used: &[Range<u64>]) -> WeightsFile {
        WeightsFile { path: "w".into(), len, used: used.to_vec() }
    }

    #[test]
    fn padding_is_not_a_gap() {
        assert!(gaps(&file(300, &[0..10, 256..300])).is_none());
        let finding = gaps(&file(400, &[0..10, 250..300])).unwrap();
        assert!(finding.error.reason().starts_with("340 of 400 bytes"), "{}", finding.error);
    }

    #[test]
    fn crossing_ranges_are_errors_and_nested_ones_advice() {
        let severities = |used: &[Range<u64>]| -> Vec<_> {
            overlaps(&file(100, used)).iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(&[0..10, 10..20]), []);
        assert_eq!(severities(&[0..10, 2..4, 4..10]), [Severity::Advice, Severity::Advice]);
        assert_eq!(severities(&[0..10, 8..12, 11..13]), [Severity::Error, Severity::Error]);
    }
}
