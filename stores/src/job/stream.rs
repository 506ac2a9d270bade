//! Sending a weights file whose weights exist once: as they come, in the order of the file.
//!
//! What is in the file is known when all of it was sent, so that its name is one that no other has
//! and not one of its content. Two writers of a part send two files. The receipt says which one
//! counts, and a sweep removes the other.

use futures_util::FutureExt;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use onnx_container::job::Weights;
use onnx_container::{Error, Initializer, Result, work};
use tokio::task::JoinSet;

use super::bytes::{fitting, ranges_of};
use super::description::PlannedFile;
use super::receipt::StoredFile;
use crate::again::again;
use crate::errors::from_store;
use crate::names::unique_name;
use crate::put::{PART, abandon, at_once, part_of};
use crate::runtime::run;
use crate::store::Store;
use crate::sums::Sums;
use crate::url::StoreUrl;

/// The most bytes of a weight that are read at once.
const LONGEST: usize = 64 << 20;

/// Sends `file` of the model at `model`, and returns what was sent.
pub(super) fn send(
    store: &Store,
    model: &StoreUrl,
    file: &PlannedFile,
    weights: &impl Weights,
) -> Result<StoredFile> {
    let name = unique_name(&file.name);
    let mut upload = Upload::new(store, model.beside(&name)?, file)?;
    work::begin(file.bytes);
    match fill(&mut upload, file, weights).and_then(|()| upload.complete()) {
        Ok(()) => Ok(StoredFile::of(name, file.bytes, upload.sums)),
        Err(error) => {
            upload.abandon();
            Err(error)
        }
    }
}

/// Sends the weights of `file` at their places.
fn fill(upload: &mut Upload, file: &PlannedFile, weights: &impl Weights) -> Result<()> {
    for tensor in &file.tensors {
        let mut put = || {
            let initializer = fitting(tensor, weights.weights_of(&tensor.name)?)?;
            upload.pad(tensor.offset)?;
            upload.put_all(&initializer)
        };
        put().map_err(|error| error.with_tensor(tensor.name.as_str()))?;
    }
    upload.pad(file.bytes)
}

/// An object that is being sent in parts.
struct Upload {
    url: StoreUrl,
    store: Store,
    /// `None` for an object of one part.
    parts: Option<Box<dyn MultipartUpload>>,
    sending: JoinSet<object_store::Result<()>>,
    at_once: usize,
    /// How long a part is, except the last.
    part: usize,
    /// Bytes that are not sent yet.
    rest: Vec<u8>,
    sums: Sums,
    at: u64,
}

impl Upload {
    fn new(store: &Store, url: StoreUrl, file: &PlannedFile) -> Result<Self> {
        let path = url.path()?;
        let begin = || store.objects().put_multipart_opts(&path, Default::default());
        let parts = match file.bytes > PART {
            true => Some(run(async {
                again(begin).await.map_err(|error| from_store(&url.to_string(), error))
            })?),
            false => None,
        };
        let part = part_of(file.bytes);
        Ok(Self {
            url,
            store: store.clone(),
            parts,
            sending: JoinSet::new(),
            at_once: at_once(part),
            part: usize::try_from(part).map_err(Error::internal)?,
            rest: Vec::new(),
            sums: Sums::new(ranges_of(file)?),
            at: 0,
        })
    }

    /// Sends zeros up to `offset`.
    fn pad(&mut self, offset: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.at < offset {
            let left = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
            let zeros = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
            self.put(zeros)?;
        }
        Ok(())
    }

    /// Sends the bytes of a weight.
    fn put_all(&mut self, initializer: &Initializer) -> Result<()> {
        let whole = match initializer.as_buffer() {
            None if initializer.is_lazy() => Some(initializer.to_buffer()?),
            found => found,
        };
        if let Some(bytes) = whole {
            return bytes.chunks(self.part).try_for_each(|part| self.put(part));
        }
        let (len, mut from) = (initializer.byte_len(), 0_u64);
        let most = initializer.preferred_read().clamp(1 << 20, LONGEST);
        let mut chunk = vec![0; most.min(usize::try_from(len).unwrap_or(most))];
        while from < len {
            let left = usize::try_from(len - from).unwrap_or(usize::MAX).min(chunk.len());
            let part = chunk.get_mut(..left).unwrap_or_default();
            initializer.read_at(from, part)?;
            self.put(part)?;
            from = from.saturating_add(left as u64);
        }
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.sums.update(bytes);
        self.at = self.at.saturating_add(bytes.len() as u64);
        work::advance(bytes.len() as u64)?;
        if self.parts.is_none() {
            self.rest.extend_from_slice(bytes);
            return Ok(());
        }
        while !bytes.is_empty() {
            let room = self.part.saturating_sub(self.rest.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == self.part {
                self.send_part()?;
            }
        }
        Ok(())
    }

    /// Begins to send the bytes that are not sent yet, and waits where many parts are on their way.
    fn send_part(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.rest);
        let Some(parts) = &mut self.parts else {
            return Err(Error::internal("a part of an object that has one"));
        };
        let sent = parts.put_part(PutPayload::from(bytes));
        let (sending, at_once, url) = (&mut self.sending, self.at_once, &self.url);
        run(async {
            sending.spawn(sent);
            while sending.len() >= at_once {
                wait(sending, url).await?;
            }
            // What failed meanwhile ends the call before more is read.
            while let Some(ended) = sending.try_join_next() {
                ended.map_err(Error::internal)?.map_err(|it| from_store(&url.to_string(), it))?;
            }
            Ok(())
        })
    }

    /// Waits until all is sent, and makes an object of it.
    fn complete(&mut self) -> Result<()> {
        let shown = self.url.to_string();
        if self.parts.is_none() {
            let (path, bytes) =
                (self.url.path()?, PutPayload::from(std::mem::take(&mut self.rest)));
            let put = || self.store.objects().put(&path, bytes.clone());
            return run(async {
                again(put).await.map(|_| ()).map_err(|error| from_store(&shown, error))
            });
        }
        if !self.rest.is_empty() {
            self.send_part()?;
        }
        let (sending, url) = (&mut self.sending, &self.url);
        run(async {
            while !sending.is_empty() {
                wait(sending, url).await?;
            }
            Ok(())
        })?;
        let Some(parts) = &mut self.parts else { return Ok(()) };
        run(parts.complete().map(|done| done.map(|_| ()).map_err(|e| from_store(&shown, e))))
    }

    /// Gives up the parts that were sent.
    fn abandon(&mut self) {
        self.sending.abort_all();
        if let Some(parts) = &mut self.parts {
            abandon(&mut **parts);
        }
    }
}

/// Waits for one part.
async fn wait(sending: &mut JoinSet<object_store::Result<()>>, url: &StoreUrl) -> Result<()> {
    match sending.join_next().await {
        None => Ok(()),
        Some(ended) => {
            ended.map_err(Error::internal)?.map_err(|error| from_store(&url.to_string(), error))
        }
    }
}
