//! [`check_model`] and [`Checker`]: every fault of a model and its weights files, without loading
//! the weights.
//!
//! A loader stops where it cannot go on. Somebody who is about to ship a model wants the whole
//! list: what no reader accepts, what some readers refuse, and what is merely wasteful. The names
//! in the graphs are left to `graph`, which keeps those that are seen in `scopes` and asks
//! `attributes`, `calls`, `functions` and `sparse` of each of these, in words of `described`; the
//! types of values to `types`, those that bodies declare to `bodies`, the files to `weights`, what
//! other models use of them to `other_models`, the bytes in them to `contents`, the comparison with
//! stored digests to `digests`.

pub(crate) mod ambiguity;
mod attributes;
mod bodies;
mod calls;
mod contents;
mod described;
mod digests;
mod finding;
mod functions;
mod graph;
mod missing;
mod other_models;
mod ranges;
mod scopes;
mod sparse;
mod types;
mod weights;

use std::path::Path;

pub use self::ambiguity::refuse_ambiguous;
pub use self::finding::{Checked, Finding, Severity};

use self::contents::{ByteSource, meaningless};
use self::finding::Findings;
use self::other_models::Survey;
use self::weights::{CheckedWeights, may_be_meaningless};
use crate::buffer::Buffer;
use crate::buffer::MmapChoice;
use crate::container::part::{Part, Share};
use crate::container::reader_limits::{self, MAX_PROTOBUF, Refusals};
use crate::error::{Error, ErrorKind, Result};
use crate::files::consistent_read::{OneSave, read_one_save};
use crate::files::external_data::{directory_of, is_external};
use crate::files::file_source::FilesFrom;
use crate::files::recovery::{interrupted_saves, staging_prefix};
use crate::graph::traversal::{self, Place};
use crate::limits::Limits;
use crate::load::{LoadOptions, decode_model};
use crate::proto::{Message, ModelProto, TensorProto};
use crate::save::ModelFolder;
use crate::tensor::Tensor;
use crate::util::cancel;
use crate::util::retry::retried;
use crate::wire::has_no_value;

/// How a model is checked: how its files are opened, and which weights are read. A
/// [`LoadOptions`] and a [`MmapChoice`] convert.
///
/// Of the options of a load all count except [`verify_digests`](LoadOptions::verify_digests), which
/// is [`digests`](Self::digests) here, and [`expect_digest`](LoadOptions::expect_digest), which is
/// refused. Without [`weights`](LoadOptions::weights) no data file is
/// touched, and only the entries of external tensors are looked at.
///
/// ```
/// use onnx_container::check::CheckOptions;
/// use onnx_container::LoadOptions;
///
/// let load = LoadOptions::new().base_dir("/data/weights").weights(false);
/// let options = CheckOptions::from(load).contents(true);
/// ```
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    load: LoadOptions,
    contents: bool,
    digests: bool,
    part: Option<Part>,
}

impl CheckOptions {
    /// The defaults: those of a load, and no weights are read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the bytes of BOOL tensors and of types narrower than a byte are read, to find a BOOL
    /// that is neither 0 nor 1 and bits that are set after the last element. Default false.
    #[must_use]
    pub fn contents(mut self, contents: bool) -> Self {
        self.contents = contents;
        self
    }

    /// Whether the model and its tensors are compared with the digests that are stored with them,
    /// see [`SaveOptions::digests`](crate::SaveOptions::digests). Every byte of the weights is
    /// read, on all cores. That there are no digests is an error too, unless some files have a
    /// `checksum`, or are links to blobs in a cache of Hugging Face, which are named by their
    /// SHA-256: these are compared in any case. Default false.
    #[must_use]
    pub fn digests(mut self, digests: bool) -> Self {
        self.digests = digests;
        self
    }

    /// Of which part [`contents`](Self::contents) and [`digests`](Self::digests) read elements. All
    /// else is checked whatever the part, so where the checks of all parts find nothing, neither
    /// does the check of the model. Of other tensors the stored digests count, and so the model
    /// itself is compared with its digest too; a tensor without a stored digest is read by every
    /// part. Of files with a checksum each is read by one part. Default: all of the model.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.part = Some(part);
        self
    }
}

impl From<LoadOptions> for CheckOptions {
    fn from(load: LoadOptions) -> Self {
        Self { load, ..Self::default() }
    }
}

impl From<MmapChoice> for CheckOptions {
    fn from(mmap: MmapChoice) -> Self {
        LoadOptions::from(mmap).into()
    }
}

/// Checks the model at `path` with its weights files.
///
/// Looked at are the names in all graphs and functions (inputs that nothing defines, values that
/// are defined twice, outputs, imported operator sets), whether the graph's inputs and outputs
/// declare a type and a shape, every tensor's dtype, dims and byte length, every external entry,
/// path and range, overlaps and gaps in the weights files, files that nothing refers to, strings
/// that are not UTF-8, what of the file single readers take for something else
/// ([`refuse_ambiguous`]), and what single readers are known to refuse:
/// attributes without a name or type or with two values, element types and versions that there are
/// not, indices of sparse tensors, numbers of inputs and outputs that do not fit an operator, a
/// function or the branches of an If, and element types that the body of an If, Loop or Scan
/// declares and its node or the next turn does not have. What operators do with their inputs is
/// not: types, shapes and required attributes are left to onnx.checker. The bytes of external
/// weights are read only by [`CheckOptions::contents`] and [`CheckOptions::digests`].
///
/// ```no_run
/// use onnx_container::check::check_model;
/// use onnx_container::MmapChoice;
///
/// let checked = check_model("model.onnx", MmapChoice::never())?;
/// for finding in &checked.findings {
///     println!("{:?}: {}", finding.severity, finding.error);
/// }
/// println!("looked at {checked}: {}", if checked.is_ok() { "ok" } else { "not ok" });
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// When the model file itself cannot be read or decoded. [`ErrorKind::InvalidArgument`] with
/// [`LoadOptions::expect_digest`].
pub fn check_model(path: impl AsRef<Path>, options: impl Into<CheckOptions>) -> Result<Checked> {
    Checker::new(options).check(path)
}

/// As [`check_model`], for a model in memory, with the weights files that the options give:
/// [`LoadOptions::files_from`], [`LoadOptions::base_dir`], [`LoadOptions::file`]. Nothing is looked
/// for beside them. Findings that concern the model itself name [`LoadOptions::model_path`], or
/// `model` without one.
///
/// ```
/// use onnx_container::check::check_bytes;
/// use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
/// use onnx_container::{ErrorKind, LoadOptions};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [3], "w.bin"));
/// let model = ModelProto::new(graph).encode_to_vec()?;
///
/// let checked = check_bytes(model, LoadOptions::new().file("w.bin", vec![0; 2]))?;
/// assert!(checked.findings.iter().any(|found| found.error.kind() == ErrorKind::OutOfBounds));
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// As [`check_model`].
pub fn check_bytes(bytes: impl Into<Buffer>, options: impl Into<CheckOptions>) -> Result<Checked> {
    let options = options.into();
    refuse_expected(&options)?;
    let path = options.load.model_path.clone().unwrap_or_else(|| "model".into());
    check_read(&path, &bytes.into(), &options, None).map_err(|error| error.with_path(path))
}

/// Refuses a digest to expect.
fn refuse_expected(options: &CheckOptions) -> Result<()> {
    if options.load.expected.is_none() {
        return Ok(());
    }
    let reason = "a check compares no expected digest: a load does";
    Err(Error::new(ErrorKind::InvalidArgument, reason))
}

/// Checks several models with the same options. What the models around them use of weights files
/// is found out once, so models that share weights are checked faster than by [`check_model`] for
/// each.
///
/// A model that another program replaces in the meantime may be taken for what it was before, where
/// it is asked which bytes of its files it uses.
///
/// ```no_run
/// use onnx_container::check::{CheckOptions, Checker};
///
/// let mut checker = Checker::new(CheckOptions::new());
/// for path in ["encoder.onnx", "decoder.onnx"] {
///     println!("{path}: {}", checker.check(path)?);
/// }
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug)]
pub struct Checker {
    options: CheckOptions,
    survey: Survey,
}

impl Checker {
    /// One that has not looked at any model.
    pub fn new(options: impl Into<CheckOptions>) -> Self {
        Self { options: options.into(), survey: Survey::default() }
    }

    /// As [`check_model`], with the options of this checker.
    ///
    /// # Errors
    /// As [`check_model`].
    pub fn check(&mut self, path: impl AsRef<Path>) -> Result<Checked> {
        let (path, options) = (path.as_ref(), &self.options);
        refuse_expected(options)?;
        let mut of_path = options.clone();
        of_path.load = of_path.load.of_model(path);
        let checked = read_one_save(path, options.load.mmap, |bytes| {
            check_read(path, &bytes, &of_path, Some(&mut self.survey))
        });
        let OneSave { value: mut checked, warning } =
            checked.map_err(|error| with_leftover(error.with_path(path), path))?;
        checked.findings.extend(warning.map(|error| Finding { severity: Severity::Advice, error }));
        Ok(checked)
    }
}

/// Checks the model that was read as `bytes`. With a `survey` it is at `path`, and what is around
/// it counts.
fn check_read(
    path: &Path,
    bytes: &Buffer,
    options: &CheckOptions,
    survey: Option<&mut Survey>,
) -> Result<Checked> {
    let load = &options.load;
    let model = decode_model(bytes, &options.load.decode)?;
    let mut checked = Checked { contents: options.contents, ..Checked::default() };
    let mut findings = Findings::new(&options.load.decode.limits);
    check_message(&model, bytes.len(), path, &mut findings);
    check_readings(bytes, path, &options.load.decode.limits, &mut findings)?;
    check_graphs(&model, options, &mut checked, &mut findings)?;
    let from = load.files_place()?;
    let share = options.part.map_or(Share::ALL, |part| part.share(&model));
    let unused = options.digests.then_some(&share);
    let mut weights = CheckedWeights::new(from.as_ref(), load, unused);
    let reads = |place: &Place<'_>| options.contents && share.has(place.position.index());
    check_tensors(&model, reads, &mut weights, (&mut checked, &mut findings))?;
    // What a source opens is in no folder that could be looked through.
    let is_in_source = matches!(from, Some(FilesFrom::Source(_)));
    let place = survey.filter(|_| !is_in_source).map(|survey| (path, survey));
    if load.weights && place.is_some() {
        findings.extend(orphans(path, &weights));
    }
    findings.append(weights.finish(place, &mut checked));
    if options.digests {
        checked.compared =
            Some(digests::check(path, (&model, bytes, &share), load, &mut findings)?);
    }
    // What was cancelled on the way is no finding.
    cancel::check()?;
    Ok(checked.with(findings))
}

/// Checks what is said about the model as a whole.
fn check_message(model: &ModelProto, len: usize, path: &Path, findings: &mut Findings) {
    let mut add = |severity, kind, reason: String| {
        findings.add(severity, || Error::new(kind, reason).with_path(path));
    };
    if u64::try_from(len).map_or(true, |len| len > MAX_PROTOBUF) {
        let reason = format!("{len} bytes: protobuf readers refuse more than {MAX_PROTOBUF}");
        add(Severity::Error, ErrorKind::TooLarge, reason);
    }
    if model.graph.is_none() {
        add(Severity::Error, ErrorKind::InvalidModel, "the model has no graph".into());
    }
    for reason in reader_limits::of_model(model) {
        // A model without a version is no model; everything else is what one reader knows.
        match model.ir_version {
            None => add(Severity::Error, ErrorKind::InvalidModel, reason),
            Some(_) => add(Severity::Advice, ErrorKind::Unsupported, reason),
        }
    }
    if let Some(reason) = not_text(model) {
        add(Severity::Advice, ErrorKind::InvalidModel, reason);
    }
}

/// Checks that all readers take the file for this model.
fn check_readings(
    bytes: &Buffer,
    path: &Path,
    limits: &Limits,
    findings: &mut Findings,
) -> Result<()> {
    for found in ambiguity::ambiguities(bytes, limits)? {
        let severity = if found.is_certain() { Severity::Error } else { Severity::Advice };
        findings.add(severity, || found.error().with_path(path));
    }
    Ok(())
}

fn check_graphs(
    model: &ModelProto,
    options: &CheckOptions,
    checked: &mut Checked,
    findings: &mut Findings,
) -> Result<()> {
    let report = graph::check(model, &options.load.decode.limits);
    checked.graphs = report.graphs;
    checked.nodes = report.nodes;
    checked.functions = model.functions.len();
    findings.append(report.findings);
    findings.extend(model.graph.iter().flat_map(|graph| types::check(graph)));
    findings.extend(bodies::check(model)?);
    Ok(())
}

fn check_tensors(
    model: &ModelProto,
    reads_contents: impl Fn(&Place<'_>) -> bool,
    weights: &mut CheckedWeights<'_>,
    (checked, findings): (&mut Checked, &mut Findings),
) -> Result<()> {
    let refusals = Refusals::of(model);
    traversal::tensors(model, |place, tensor| {
        let name = place.qualified_name(tensor);
        checked.tensors += 1;
        findings.extend(place_of_elements(tensor, &name));
        if !is_external(tensor) {
            findings.extend(inline(tensor, name, reads_contents(place)));
            return Ok(());
        }
        checked.external += 1;
        weights.tensor(tensor, &name, reads_contents(place));
        findings.extend(refused(&refusals, place, tensor, name));
        Ok(())
    })
}

/// What is said about where the elements of `tensor` are and does not count.
fn place_of_elements(tensor: &TensorProto, name: &str) -> Option<Finding> {
    let (severity, reason) = if has_no_value::<TensorProto>(&tensor.unknown) {
        let reason =
            "a data_location that ONNX does not have: readers disagree on where its elements are";
        (Severity::Error, reason)
    } else if !is_external(tensor) && !tensor.external_data.is_empty() {
        (Severity::Advice, "it has external_data and is not external: readers ignore the entries")
    } else {
        return None;
    };
    let error = Error::new(ErrorKind::InvalidModel, reason).with_tensor(name);
    Some(Finding { severity, error })
}

fn inline(tensor: &TensorProto, name: String, contents: bool) -> Option<Finding> {
    let checked = Tensor::try_from(tensor).and_then(|decoded| {
        let raw = tensor.raw_data.as_ref().filter(|_| contents);
        match raw.filter(|_| may_be_meaningless(decoded.dtype())) {
            Some(raw) => {
                let len = u64::try_from(raw.len()).map_err(Error::internal)?;
                meaningless(decoded.dtype(), &tensor.dims, &ByteSource::Memory(raw), &(0..len))
            }
            None => Ok(None),
        }
    });
    let (severity, error) = match checked {
        Ok(advice) => (Severity::Advice, advice?),
        Err(error) => (Severity::Error, error),
    };
    Some(Finding { severity, error: error.with_tensor(name) })
}

fn refused(
    refusals: &Refusals,
    place: &Place<'_>,
    tensor: &TensorProto,
    name: String,
) -> Option<Finding> {
    let refusal = refusals.of_external(place, tensor)?;
    let severity = if refusal.certain { Severity::Error } else { Severity::Advice };
    let error = Error::new(ErrorKind::Unsupported, refusal.reason).with_tensor(name);
    Some(Finding { severity, error })
}

/// Weights files beside the model that no model refers to, and staging folders of this one.
fn orphans(path: &Path, weights: &CheckedWeights<'_>) -> Vec<Finding> {
    let directory = directory_of(path);
    let name = file_name(path);
    let mut orphans = siblings(&directory, &name);
    orphans.retain(|file| !weights.names(file) && *file != name);
    if orphans.is_empty() {
        return Vec::new();
    }
    match ModelFolder::new(&directory, &name).users(&orphans) {
        Ok(users) => orphans.retain(|file| !users.contains_key(file)),
        // Of a folder that cannot be looked through it is not said which files nobody needs.
        Err(_) => orphans.retain(|file| file.starts_with(&staging_prefix(&name))),
    }
    // Others belong to a save that is running, or to one that has not been completed.
    let unneeded = interrupted_saves(path);
    let is_unneeded = |file: &str| unneeded.iter().any(|folder| folder.ends_with(file));
    orphans.retain(|file| !file.starts_with(&staging_prefix(&name)) || is_unneeded(file));
    let finding = |orphan: String| {
        let (kind, reason) = if orphan.starts_with(&staging_prefix(&name)) {
            let reason = "left by a save that was interrupted before it changed anything: the next save of the model removes it";
            (ErrorKind::Changed, reason)
        } else {
            (ErrorKind::Unneeded, "no model of this folder refers to it")
        };
        let error = Error::new(kind, reason).with_path(directory.join(orphan));
        Finding { severity: Severity::Advice, error }
    };
    orphans.into_iter().map(finding).collect()
}

/// `error` about the model at `path`; where that is missing, with what an interrupted save left of
/// it.
fn with_leftover(error: Error, path: &Path) -> Error {
    if error.kind() != ErrorKind::MissingFile || error.path() != Some(path) {
        return error;
    }
    match interrupted_saves(path).first() {
        Some(folder) => {
            let reason = format!(
                "no such file; a save that was interrupted before it changed anything left the folder \
                 `{}` beside it, which the next save of the model removes",
                folder.display()
            );
            Error::new(ErrorKind::MissingFile, reason).with_path(path)
        }
        None => error,
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Which strings are not UTF-8: most readers take them, and fail when they are asked for the text.
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

/// How the names of weights files end.
const WEIGHTS: [&str; 6] = [".data", "_data", ".bin", ".weight", ".weights", ".safetensors"];

/// Whether `name` is one that writers of models give to weights: with one of these ends, or with
/// `_data_` and a number, as transformers.js numbers shards.
fn is_of_weights(name: &str) -> bool {
    let numbered = name.rsplit_once("_data_").map(|(_, number)| number);
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let name = name.to_lowercase();
    !name.starts_with('.')
        && (WEIGHTS.iter().any(|end| name.ends_with(end)) || numbered.is_some_and(is_number))
}

/// Weights files beside the model `name`, by their names, and its staging folders.
fn siblings(directory: &Path, name: &str) -> Vec<String> {
    let staging = staging_prefix(name);
    let entries = retried(|| std::fs::read_dir(directory)).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_file = || entry.path().is_file();
        (name.starts_with(&staging) || is_of_weights(&name) && is_file()).then_some(name)
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}
