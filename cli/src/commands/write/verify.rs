//! `--verify`: compares the result with the model that was read.
//!
//! Four things are verified: the model file is byte for byte what was encoded; every tensor, loaded
//! back, has the type, shape and bits that it had in the model that was read; both models compute
//! the same, by their semantic digests; and the result passes a check.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use indicatif::ProgressBar;
use onnx_container::check::check_model;
use onnx_container::digest::SemanticDigest;
use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::proto::TensorProto;
use onnx_container::{
    ByteSize, Container, Error, ErrorKind, MmapChoice, Result, Saved, Tensor, traversal,
};
use serde::Serialize;

use crate::model::findings::Findings;
use crate::model::reading::Reading;
use crate::model::save;
use crate::terminal::output::{Output, count};
use crate::terminal::progress;

/// What was verified, and the result.
#[derive(Debug, Serialize)]
pub struct Verified {
    pub ok: bool,
    /// Tensors that are the same bit for bit.
    pub tensors: usize,
    /// Their length in bytes, that of tied tensors once.
    pub bytes: u64,
    /// Whether the result was mapped for that, not read.
    pub mapped: bool,
    /// The digest of what both models compute; `None` where the model that was read has none.
    pub semantic: Option<String>,
    /// Differences.
    pub problems: Vec<String>,
    pub check: Option<Findings>,
}

impl Verified {
    /// Prints the lines of a report.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let (tensors, bytes) = (count(self.tensors, "tensor"), ByteSize(self.bytes));
        let how = if self.mapped { "mapped" } else { "read" };
        out.row("verified", format_args!("{tensors} ({bytes}, {how}) are the same bit for bit"))?;
        if self.semantic.is_some() {
            out.row("verified", "it computes the same: the semantic digests are equal")?;
        }
        for problem in &self.problems {
            out.row("problem", format_args!("{problem}"))?;
        }
        let Some(check) = &self.check else { return Ok(()) };
        out.row("checked", format_args!("{check}"))?;
        let (errors, advice) = check.by_severity();
        for found in errors {
            out.line(format_args!("{:>10}{found}", ""))?;
        }
        if let Some(rest) = check.rest() {
            out.line(format_args!("{:>10}{rest}", ""))?;
        }
        save::short(advice.iter().map(|found| format!("{:>10}{found}", "")), out)
    }
}

/// Compares the model at `path`, where `saved` was written, with `original`: the model that was
/// read, whose `semantic` digest was computed before it was changed.
pub fn verify(
    original: &Container,
    semantic: Option<SemanticDigest>,
    saved: &Saved,
    path: &Path,
    reading: Reading,
) -> Verified {
    let bar = progress::bar("verifying", saved.bytes);
    let mapped = reading.map != MmapChoice::never();
    let (mut comparison, mut problems) = (Comparison::default(), Vec::new());
    problems.extend(same_model(saved, path).err());
    problems.extend(comparison.run(original, path, reading, &bar).err());
    problems.append(&mut comparison.problems);
    let semantic = semantic.and_then(|expected| match same_meaning(&expected, path, reading) {
        Ok(()) => Some(expected.to_string()),
        Err(error) => {
            problems.push(error);
            None
        }
    });
    let check = check_model(path, reading).map(|checked| Findings::of([], &checked));
    let check = check.map_err(|error| problems.push(error)).ok();
    let ok = problems.is_empty() && check.as_ref().is_some_and(|check| check.ok);
    let problems = problems.iter().map(ToString::to_string).collect();
    let Comparison { tensors, bytes, .. } = comparison;
    bar.finish_and_clear();
    Verified { ok, tensors, bytes, mapped, semantic, problems, check }
}

/// Checks that the model at `path` has the digest `expected`.
fn same_meaning(expected: &SemanticDigest, path: &Path, reading: Reading) -> Result<()> {
    let found = Container::load(path, reading)?.semantic_digest()?;
    if found == *expected {
        return Ok(());
    }
    let reason =
        format!("it computes something else: its semantic digest is {found}, not {expected}");
    Err(differs(&reason).with_path(path))
}

/// Checks that the file at `path` is the encoded model, byte for byte.
fn same_model(saved: &Saved, path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut same = Same { file, chunk: Vec::new() };
    saved.encode_model(&mut same).map_err(|e| e.with_path(path))?;
    let rest = same.file.read(&mut [0]).map_err(|e| Error::io(path, e))?;
    if rest == 0 {
        return Ok(());
    }
    Err(differs("the file is longer than the model that was written").with_path(path))
}

/// A writer that compares what is written to it with the file.
struct Same {
    file: File,
    chunk: Vec<u8>,
}

impl Write for Same {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..bytes.len().min(1 << 20)).unwrap_or_default();
        self.chunk.resize(bytes.len(), 0);
        self.file.read_exact(&mut self.chunk)?;
        if self.chunk == bytes {
            return Ok(bytes.len());
        }
        Err(io::Error::other("the file is not what was written"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Comparison {
    tensors: usize,
    bytes: u64,
    problems: Vec<Error>,
    /// The handles of external tensors that were counted; tied tensors have one handle.
    handles: HashSet<String>,
}

impl Comparison {
    /// Compares the tensors of both models, in graph order.
    fn run(
        &mut self,
        original: &Container,
        path: &Path,
        reading: Reading,
        bar: &ProgressBar,
    ) -> Result<()> {
        let written = Container::load(path, reading)?;
        let mut expected = messages(original)?.into_iter();
        traversal::tensors(written.model(), |place, proto| {
            let name = place.qualified_name(proto);
            let same = match expected.next() {
                Some(expected) => compare(original, &expected, &written, proto),
                None => Err(differs("was not in the model that was read")),
            };
            match same {
                Ok(bytes) => self.count(proto, bytes, bar),
                Err(error) => self.problems.push(error.with_tensor(name)),
            }
            Ok(())
        })?;
        let missing = expected.map(|proto| differs("is missing").with_tensor(name_of(&proto)));
        self.problems.extend(missing);
        Ok(())
    }

    fn count(&mut self, proto: &TensorProto, bytes: u64, bar: &ProgressBar) {
        self.tensors += 1;
        let handle = is_external(proto).then(|| ExternalData::parse(proto).ok()).flatten();
        if handle.is_none_or(|data| self.handles.insert(data.location)) {
            self.bytes = self.bytes.saturating_add(bytes);
            bar.inc(bytes);
        }
    }
}

/// The messages of all tensors in graph order; their data are shared, not copied.
fn messages(container: &Container) -> Result<Vec<TensorProto>> {
    let mut messages = Vec::new();
    traversal::tensors(container.model(), |_, tensor| {
        messages.push(tensor.clone());
        Ok(())
    })?;
    Ok(messages)
}

/// The length in bytes of two tensors that are the same.
fn compare(
    original: &Container,
    expected: &TensorProto,
    written: &Container,
    found: &TensorProto,
) -> Result<u64> {
    if expected.name != found.name {
        return Err(differs(&format!("was called `{}`", name_of(expected))));
    }
    // Equal messages that are no valid tensors count as the same: the check reports them.
    if !is_external(found) && expected == found {
        return Ok(inline_len(found));
    }
    let (expected, found) = (original.resolve(expected)?, written.resolve(found)?);
    if (expected.dtype(), expected.dims()) != (found.dtype(), found.dims()) {
        let (dtype, dims) = (expected.dtype(), expected.dims());
        return Err(differs(&format!(
            "was {dtype} {dims:?}, is {} {:?}",
            found.dtype(),
            found.dims()
        )));
    }
    if expected.as_bytes() != found.as_bytes() || expected.strings() != found.strings() {
        return Err(differs("its data differ"));
    }
    Ok(len(&found))
}

fn len(tensor: &Tensor) -> u64 {
    u64::try_from(tensor.byte_len()).unwrap_or(u64::MAX)
}

/// The length in bytes of an inline tensor's data; 0 when it is not valid.
fn inline_len(proto: &TensorProto) -> u64 {
    let raw = proto.raw_data.as_ref().and_then(|raw| u64::try_from(raw.len()).ok());
    raw.unwrap_or_else(|| Tensor::try_from(proto).map_or(0, |tensor| len(&tensor)))
}

fn differs(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}

fn name_of(proto: &TensorProto) -> String {
    proto.name.as_ref().map(ToString::to_string).unwrap_or_default()
}
