//! [`Container::load`]: from files, or bytes, to a container.
//!
//! The model is decoded without copying its payloads, and every external tensor becomes a handle on
//! its byte range, which `resolve` finds. The check that model and weights come from the same save
//! is left to `consistent_read`.

mod file_part;
mod options;
mod origins;
mod resolve;
mod small_files;

use std::ops::Range;
use std::path::{Path, PathBuf};

pub use options::{LoadOptions, VerifyDigests};

pub use crate::files::external_data::PathPolicy;
pub use crate::files::file_source::{FileSource, WeightFile};
pub use crate::files::folder_files::FolderFiles;
pub use crate::limits::Limit;

use crate::buffer::{Buffer, MmapChoice};
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::files::consistent_read::{OneSave, read_one_save};
use crate::files::external_data::{self, is_external};
use crate::files::file_format::{failed_download, is_json, is_text, known_format};
use crate::graph::model_size;
use crate::graph::stored_digests::{has_own_digest, remove_digest};
use crate::graph::traversal::{self, Position};
use crate::proto::{ModelProto, TensorProto};
use crate::util::cancel;
use crate::wire::{DecodeOptions, Message};

pub(crate) use origins::Origins;
use resolve::{Resolved, resolve};

/// How the file of the model itself is opened. Windows replaces no file that is mapped, and a model
/// is often saved again under its name while its container is in use: so it is read there.
fn of_model_file(mmap: MmapChoice) -> MmapChoice {
    if cfg!(windows) { MmapChoice::never() } else { mmap }
}

impl Container {
    /// Loads the model at `path` with its weights.
    ///
    /// Every external tensor becomes a handle named after it: `#encoder.w`. Tensors of one byte
    /// range share a handle when dtype and dims agree, and share the bytes in any case.
    ///
    /// ```no_run
    /// use onnx_container::{Container, MmapChoice};
    ///
    /// // SAFETY: nobody writes to or truncates these files while they are mapped.
    /// let container = Container::load("model.onnx", unsafe { MmapChoice::auto() })?;
    /// for (handle, weight) in container.iter() {
    ///     println!("{handle} {} {:?}", weight.dtype(), weight.dims());
    /// }
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// When a [`save`](Self::save) replaces the model during the load, the model is read again, so
    /// that graph and weights come from the same save. A save that was killed while it put files in
    /// place is completed first, or undone where its files are damaged, and
    /// [`warnings`](Self::warnings) says so; see [`recover`](crate::recovery::recover).
    ///
    /// # Errors
    /// One error for all tensors whose file is missing, whose entries, path, range, dtype or dims
    /// are not valid, or whose handle was not supplied; see [`ErrorKind`]. [`ErrorKind::Decode`]
    /// when the file is not a model, [`ErrorKind::InvalidArgument`] when it is not a regular file,
    /// [`ErrorKind::NotDownloaded`] when a failed download left it,
    /// [`ErrorKind::WrongDigest`] with [`LoadOptions::verify_digests`] for what differs and with
    /// [`LoadOptions::expect_digest`] for another model,
    /// [`ErrorKind::Changed`] when it is replaced again and again.
    pub fn load(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<Self> {
        let path = path.as_ref();
        let options = options.into().of_model(path);
        let mmap = of_model_file(options.mmap);
        let loaded = read_one_save(path, mmap, |bytes| Self::from_model(&bytes, &options));
        // An error about a weights file already has that file's path, which is kept.
        let OneSave { value: mut container, warning } =
            loaded.map_err(|error| error.with_path(path))?;
        container.warnings.extend(warning);
        Ok(container)
    }

    /// Loads a model from memory, borrowing from `bytes`. Weights come from
    /// [`LoadOptions::base_dir`] or [`LoadOptions::files_from`], or are supplied by
    /// [`LoadOptions::file`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_bytes(bytes: impl Into<Buffer>, options: impl Into<LoadOptions>) -> Result<Self> {
        Self::from_model(&bytes.into(), &options.into())
    }

    fn from_model(bytes: &Buffer, options: &LoadOptions) -> Result<Self> {
        let verify = options.verify_digests;
        let compares = verify != VerifyDigests::Never || options.expected.is_some();
        if compares && (!options.weights || options.decode.outline) {
            let reason = "digests are verified only where model and weights are loaded";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        cancel::check()?;
        let model = decode_model(bytes, &options.decode)?;
        let origins = Origins::to_verify(&model, options, Some(bytes));
        let mut container = Self::new(model);
        container.limits = options.decode.limits;
        container.had_digests = has_own_digest(&container.model);
        if options.weights {
            container.load_weights(options)?;
        }
        if let Some(origins) = origins {
            origins.verify_loaded(&container)?;
            let not_covered = origins.not_covered().filter(|_| verify == VerifyDigests::Always);
            container.warnings.extend(not_covered);
        }
        container.expect_digest(options)?;
        Ok(container)
    }

    /// Refuses a model of another digest than that which is expected.
    fn expect_digest(&self, options: &LoadOptions) -> Result<()> {
        let Some(expected) = &options.expected else { return Ok(()) };
        let found = self.digest()?;
        if found == *expected {
            return Ok(());
        }
        let reason =
            format!("the model is not the expected one: its digest is {found}, not {expected}");
        Err(Error::new(ErrorKind::WrongDigest, reason))
    }

    /// Loads the weights of a container that was loaded without them, from `directory` (often not
    /// the one that the model came from).
    ///
    /// Handles that already have an initializer keep it.
    ///
    /// ```no_run
    /// use onnx_container::{Container, LoadOptions, MmapChoice};
    ///
    /// let mut container = Container::load("model.onnx", LoadOptions::new().weights(false))?;
    /// // ... look at the structure, decide, fetch the weights ...
    /// container.attach("/data/weights", MmapChoice::never())?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`ErrorKind::InvalidArgument`] where no tensor of the model is
    /// without weights; the container is then unchanged.
    pub fn attach(
        &mut self,
        directory: impl Into<PathBuf>,
        options: impl Into<LoadOptions>,
    ) -> Result<()> {
        let options = options.into().base_dir(directory);
        let lacks =
            |tensor: &TensorProto| is_external(tensor) && self.initializer_of(tensor).is_err();
        if !traversal::iter(&self.model).any(|(_, tensor)| lacks(tensor)) {
            let reason = "there are no weights to attach: each tensor of the model has its own";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let origins = Origins::to_verify(&self.model, &options, None);
        if origins.is_none() && options.expected.is_none() {
            return self.load_weights(&options);
        }
        let mut attached = self.clone();
        attached.load_weights(&options)?;
        if let Some(origins) = origins {
            origins.verify_loaded(&attached)?;
        }
        attached.expect_digest(&options)?;
        *self = attached;
        Ok(())
    }

    /// The files that [`load`](Self::load) and [`attach`](Self::attach) took weights from, mapped
    /// or not, in the order of their first use. The files of a model at a relative path have
    /// relative paths.
    ///
    /// A part of a model ([`extract_model`](Self::extract_model)) has those that its weights are
    /// from, or all where a weight is a copy or was inserted; a [merged](Self::merge) model has
    /// those of the first model, then the others of the second. Other edits leave the list as it
    /// is.
    pub fn weights_files(&self) -> &[PathBuf] {
        &self.weights_files
    }

    /// Turns every external entry into a handle and its initializer.
    fn load_weights(&mut self, options: &LoadOptions) -> Result<()> {
        let Resolved { handles, texts, found, files, warnings } = resolve(self, options)?;
        if self.initializers.is_empty() {
            self.initializers = found;
        } else {
            self.initializers.extend(found);
        }
        self.warnings.extend(warnings);
        self.weights_files.extend(files);
        self.set_handles(handles, Buffer::from(texts.into_bytes()))
    }

    /// Makes the tensors at these positions, which are in graph order, refer to the handles in
    /// these ranges of `texts`, which all of them share.
    fn set_handles(&mut self, handles: Vec<(Position, Range<usize>)>, texts: Buffer) -> Result<()> {
        let mut handles = handles.into_iter().peekable();
        let mut had_digests = false;
        traversal::tensors_mut(&mut self.model, |place, tensor| {
            // Also where another program has removed that of the model.
            had_digests |= remove_digest(tensor);
            if let Some((_, range)) = handles.next_if(|(position, _)| *position == place.position) {
                let text = texts.slice(range);
                let text = text.ok_or_else(|| Error::internal("a handle without its text"))?;
                external_data::move_to_handle(tensor, text.into());
            }
            Ok(())
        })?;
        self.had_digests |= had_digests;
        match handles.len() {
            0 => Ok(()),
            left => Err(Error::internal(format!("{left} tensors were not met again"))),
        }
    }
}

/// Decodes a model. When it fails and the bytes are recognized as something else, the error names
/// that.
pub(crate) fn decode_model(bytes: &Buffer, options: &DecodeOptions) -> Result<ModelProto> {
    if let Some(what) = failed_download(bytes) {
        return Err(Error::new(ErrorKind::NotDownloaded, what));
    }
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::Decode, "the file is empty"));
    }
    let decoded = ModelProto::decode_with(bytes, options);
    let model = decoded.map_err(|error| match error.kind() {
        ErrorKind::Decode => not_a_model(bytes, error),
        _ => error,
    })?;
    model_size::within(&options.limits, &model)?;
    Ok(model)
}

/// The most likely reason why `bytes` are not a model, of which the decoder says `error`: of a file
/// of another format that would only mislead.
fn not_a_model(bytes: &[u8], error: Error) -> Error {
    let other =
        |format: &str| Error::new(ErrorKind::Decode, format!("{format}, not an ONNX model"));
    match (known_format(bytes), needed(bytes)) {
        (Some(format), _) => other(format),
        (None, Some(needed)) => {
            error.because(&format!("cut off: {} bytes, at least {needed} needed", bytes.len()))
        }
        (None, None) if is_json(bytes) => other("a JSON file"),
        (None, None) if is_text(bytes) => other("a text file"),
        (None, None) => error.because("not an ONNX model, or cut off or damaged"),
    }
}

/// The least length in bytes of the model that `bytes` is the beginning of, when all outermost
/// fields are fields of a model and the last one ends beyond `bytes`. The graph, which is most of a
/// model, is one field.
fn needed(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let field = ModelProto::FIELDS.iter().find(|field| u64::from(field.number) == tag >> 3)?;
        let value = usize::try_from(varint(bytes, &mut at)?).ok()?;
        match (tag & 7, field.kind) {
            (0, "int64") => {}
            (2, kind) if kind != "int64" => at = at.checked_add(value)?,
            _ => return None,
        }
    }
    Some(at).filter(|end| *end > bytes.len())
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_model_says_how_long_it_has_to_be() {
        let cases: [(&[u8], Option<usize>); 11] = [
            (b"", None),
            (b"\x08\x08", None),
            (b"\x3a\x05\x01", Some(7)),
            (b"\x08\x08\x3a\x80\x01", Some(133)),
            (b"\x3a\x01\x01", None),
            (b"\x3a\x01\x01\x3a\x02\x01", Some(7)),
            // A length that is cut off, a graph that is a number, a version that is text, and
            // fields of no model.
            (b"\x3a\x80", None),
            (b"\x38\x05\x01", None),
            (b"\x0a\x05\x01", None),
            (b"\x9a\x06\x05\x01", None),
            (b"\x3d\x05\x01", None),
        ];
        for (bytes, least) in cases {
            assert_eq!(needed(bytes), least, "{bytes:?}");
        }
    }
}
