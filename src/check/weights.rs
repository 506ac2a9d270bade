//! The external tensors of a model, held against their files without reading them.
//!
//! Every entry, path and range is looked at, and what onnx refuses of a file that is there: links,
//! hard links, and `..` inside a name. Which bytes of a file are used is left to `ranges`.

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::contents::{ByteSource, first_set, meaningless};
use super::finding::{Checked, Findings, Severity};
use super::other_models::Survey;
use super::ranges::UsedFile;
use crate::container::part::Share;
use crate::container::reader_limits;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, Directory, ExternalData, without_dots};
use crate::files::file_format::{failed_download, known_format};
use crate::files::file_source::{FilesFrom, SharedSource};
use crate::files::model_files::{CutOff, ModelFiles, WeightsFile};
use crate::load::LoadOptions;
use crate::proto::TensorProto;

/// The weights files of a model, as far as its tensors were looked at.
pub(super) struct CheckedWeights<'a> {
    options: &'a LoadOptions,
    /// Whether the contents of the tensor that is looked at are read.
    contents: bool,
    /// Where digests are compared, what is: bytes of its files that no tensor uses are read.
    unused: Option<&'a Share>,
    files: ModelFiles<'a, OpenFile>,
    /// Locations that tensors name whose other entries are wrong: what they use is not known.
    unclear: HashSet<String>,
    findings: Findings,
}

struct OpenFile {
    /// Without `.` components.
    location: String,
    use_of: UsedFile,
    /// What the file is, by its first bytes.
    format: Option<&'static str>,
    cut_off: CutOff,
}

impl<'a> CheckedWeights<'a> {
    /// Nothing is read of the files but their beginnings, except the contents of tensors whose
    /// bytes may have no meaning, and what is `unused` by tensors.
    pub(super) fn new(
        from: Option<&'a FilesFrom>,
        options: &'a LoadOptions,
        unused: Option<&'a Share>,
    ) -> Self {
        Self {
            options,
            contents: false,
            unused,
            files: ModelFiles::new(from, &options.files),
            unclear: HashSet::new(),
            findings: Findings::new(&options.decode.limits),
        }
    }

    /// Checks the entries of the external tensor `name`, and its `contents` where they are asked
    /// for, and notes the bytes that it uses.
    pub(super) fn tensor(&mut self, tensor: &TensorProto, name: &str, contents: bool) {
        self.contents = contents;
        if let Err(error) = self.entries(tensor, name) {
            self.unclear.extend(locations(tensor));
            self.report(Severity::Error, error.with_tensor(name));
        }
    }

    /// Whether a tensor names the file at `location`, rightly or not.
    pub(super) fn names(&self, location: &str) -> bool {
        self.files.has(location) || self.unclear.contains(location)
    }

    /// Reports what concerns whole files, which `checked` counts. Where the model is at a path, the
    /// survey tells what other models use of these. Returns everything that was found.
    pub(super) fn finish(
        mut self,
        place: Option<(&Path, &mut Survey)>,
        checked: &mut Checked,
    ) -> Findings {
        let mut files = self.files.take();
        files.sort_by(|a, b| a.location.cmp(&b.location));
        let with_gaps = self.with_gaps(&mut files);
        let others = place.map(|(path, survey)| survey.others(path, &with_gaps, self.options));
        let mut others = others.unwrap_or_default();
        for (number, file) in files.into_iter().enumerate() {
            let OpenFile { location, mut use_of, format, cut_off } = file;
            checked.files += 1;
            checked.file_bytes = checked.file_bytes.saturating_add(use_of.len);
            if let Some(error) = cut_off.error(&use_of.path, format, use_of.len) {
                self.report(Severity::Error, error);
            }
            let all_known = !self.unclear.contains(&location);
            use_of.overlaps(&mut self.findings);
            if all_known && use_of.has_gaps() {
                let others = others.remove(&location).unwrap_or_else(|| Ok(Default::default()));
                self.findings.extend(use_of.gaps(others));
            }
            if all_known && self.unused.is_some_and(|share| share.has_file(number)) {
                self.check_unused(&location, &use_of);
            }
        }
        self.findings
    }

    /// The locations of the files that have bytes which no tensor of this model uses.
    fn with_gaps(&self, files: &mut [OpenFile]) -> Vec<String> {
        let known = files.iter_mut().filter(|file| !self.unclear.contains(&file.location));
        let with_gaps = known.filter_map(|file| {
            file.use_of.sort();
            file.use_of.has_gaps().then(|| file.location.clone())
        });
        with_gaps.collect()
    }

    /// Reports where bytes are set that no tensor of this model uses: its digests do not cover
    /// them, whatever other models say of them.
    fn check_unused(&mut self, location: &str, file: &UsedFile) {
        let find = |range: &Range<u64>| self.read(location, |source| first_set(source, range));
        let found = file.unused().iter().find_map(|range| find(range).transpose());
        let Some(found) = found else { return };
        let error = found.map_or_else(
            |error| error,
            |at| {
                let reason = "bytes that no tensor of this model uses are not zero, and its digests do \
                              not cover them";
                Error::new(ErrorKind::InvalidModel, reason).with_offset(at)
            },
        );
        self.report(Severity::Advice, error.with_path(&file.path));
    }

    fn report(&mut self, severity: Severity, error: Error) {
        self.findings.add(severity, || error);
    }

    fn advise(&mut self, kind: ErrorKind, reason: String, name: &str) {
        self.report(Severity::Advice, Error::new(kind, reason).with_tensor(name));
    }

    fn entries(&mut self, tensor: &TensorProto, name: &str) -> Result<()> {
        let data = ExternalData::parse(tensor)?;
        self.unknown_keys(&data, name);
        let (dtype, len) = external_data::layout(tensor)?;
        let range = data.range(len)?;
        if !self.options.weights {
            return Ok(());
        }
        let Some(file) = self.file(&data.location)? else { return Ok(()) };
        if !file.take(&range, name) {
            return Ok(());
        }
        if len > 0 && data.length.is_none() && file.use_of.len > range.end {
            let reason = format!(
                "its external data have no length, and the file is longer: onnx reads all {} bytes from the offset on, \
                 and fails",
                file.use_of.len.saturating_sub(range.start)
            );
            self.advise(ErrorKind::InvalidModel, reason, name);
        }
        self.bytes((dtype, len), tensor, &data, &range, name)
    }

    /// Looks at the bytes of a tensor that are in its file.
    fn bytes(
        &mut self,
        (dtype, len): (DataType, u64),
        tensor: &TensorProto,
        data: &ExternalData,
        range: &Range<u64>,
        name: &str,
    ) -> Result<()> {
        let Some(file) = self.file(&data.location)? else { return Ok(()) };
        if let Some(format) = file.format.filter(|_| range.start == 0 && len > 0) {
            let reason = format!("its data begin as {format} does: is this the right file?");
            self.advise(ErrorKind::InvalidModel, reason, name);
        }
        if self.contents && may_be_meaningless(dtype) {
            self.contents(dtype, tensor, &data.location, range, name)?;
        }
        Ok(())
    }

    /// Reports the first key that the specification does not name. Who asks for digests must not be
    /// told that all is well.
    fn unknown_keys(&mut self, data: &ExternalData, name: &str) {
        let Some(key) = data.unknown_keys.first() else { return };
        let severity = if self.unused.is_some() { Severity::Error } else { Severity::Advice };
        let mut reason = external_data::about_unknown_key(key);
        if data.unknown_keys.len() > 1 {
            reason += &format!(" (and {} more such keys)", data.unknown_keys.len() - 1);
        }
        let error = Error::new(ErrorKind::Unsupported, reason);
        self.report(severity, error.with_tensor(name));
    }

    fn contents(
        &mut self,
        dtype: DataType,
        tensor: &TensorProto,
        location: &str,
        range: &Range<u64>,
        name: &str,
    ) -> Result<()> {
        let found =
            self.read(location, |source| meaningless(dtype, &tensor.dims, source, range))?;
        if let Some(error) = found {
            let path = self.files.path(location);
            self.report(Severity::Advice, error.with_tensor(name).with_path(path));
        }
        Ok(())
    }

    /// What `read` makes of the bytes at `location`.
    fn read<R>(
        &self,
        location: &str,
        read: impl FnOnce(&ByteSource<'_>) -> Result<R>,
    ) -> Result<R> {
        match self.files.find(location)? {
            WeightsFile::Given(bytes) => read(&ByteSource::Memory(bytes)),
            WeightsFile::Beneath(directory) => {
                let file = directory.open_file(location)?;
                read(&ByteSource::File(&file, &directory.join(location)))
            }
            WeightsFile::From(source) => read(&ByteSource::Source(&source.open(location)?)),
        }
    }

    /// The file at `location`; `None` when it was reported before.
    fn file(&mut self, location: &str) -> Result<Option<&mut OpenFile>> {
        let Self { files, findings, .. } = self;
        let number = files.number(location, |files| {
            let path = files.path(location);
            match files.find(location)? {
                WeightsFile::Given(bytes) => {
                    let len = u64::try_from(bytes.len()).map_err(Error::internal)?;
                    Ok(OpenFile::new(location, path, bytes, len))
                }
                WeightsFile::Beneath(directory) => {
                    OpenFile::open(location, path, directory, findings)
                }
                WeightsFile::From(source) => OpenFile::open_from(source, location),
            }
        })?;
        number.map(|number| files.get_mut(number)).transpose()
    }
}

impl OpenFile {
    /// The file at `location`; `findings` gets what readers refuse of it.
    fn open(
        location: &str,
        path: PathBuf,
        directory: &Directory,
        findings: &mut Findings,
    ) -> Result<Self> {
        let (file, metadata) = directory.open_known(location)?;
        let mut head = Vec::new();
        file.take(512).read_to_end(&mut head).map_err(|e| Error::io(&path, e))?;
        refuse_failed_download(&head, &path)?;
        let refused = reader_limits::of_file(location, directory.path(), &metadata);
        for reason in refused {
            let error = || Error::new(ErrorKind::UnsafePath, reason).with_path(&path);
            findings.add(Severity::Advice, error);
        }
        Ok(Self::new(location, path, &head, metadata.len()))
    }

    /// The file that `source` opens at `location`.
    fn open_from(source: &SharedSource, location: &str) -> Result<Self> {
        let file = source.open(location)?;
        let (path, head) = (file.path(), file.head()?);
        refuse_failed_download(&head, &path)?;
        Ok(Self::new(location, path, &head, file.len()))
    }

    fn new(location: &str, path: PathBuf, head: &[u8], len: u64) -> Self {
        let used = safetensors_header(head, len).into_iter().collect();
        let (use_of, format) = (UsedFile { path, len, used }, known_format(head));
        Self { location: without_dots(location), use_of, format, cut_off: CutOff::default() }
    }

    /// Notes that a tensor uses the bytes `range`; whether they lie in the file.
    fn take(&mut self, range: &Range<u64>, name: &str) -> bool {
        let UsedFile { len, used, .. } = &mut self.use_of;
        used.push(range.start.min(*len)..range.end.min(*len));
        if range.end <= *len {
            return true;
        }
        self.cut_off.add(range, || name.into());
        false
    }
}

/// Refuses what a failed download left at `path`, which begins with `head`.
fn refuse_failed_download(head: &[u8], path: &Path) -> Result<()> {
    let what = failed_download(head);
    what.map_or(Ok(()), |what| Err(Error::new(ErrorKind::NotDownloaded, what).with_path(path)))
}

/// Whether bytes of this type can be without a meaning.
pub(super) fn may_be_meaningless(dtype: DataType) -> bool {
    dtype == DataType::Bool || dtype.bit_width().is_some_and(|bits| bits < 8)
}

/// The locations that the entries of `tensor` name, whatever else is wrong with them.
fn locations(tensor: &TensorProto) -> impl Iterator<Item = String> {
    let named = tensor.external_data.iter();
    let named = named.filter(|entry| entry.key.as_ref().is_some_and(|key| *key == "location"));
    named.filter_map(|entry| Some(without_dots(entry.value.as_ref()?.to_str().ok()?)))
}

/// The bytes before the data, where a file of `len` bytes begins as a safetensors file does.
fn safetensors_header(head: &[u8], len: u64) -> Option<Range<u64>> {
    let (length, json) = head.split_first_chunk()?;
    let end = u64::from_le_bytes(*length).checked_add(8).filter(|end| *end <= len)?;
    json.starts_with(b"{").then_some(0..end)
}
