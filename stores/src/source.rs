//! [`RemoteFiles`]: the weights files of a model in a store, for
//! [`LoadOptions::files_from`](onnx_container::LoadOptions::files_from).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, stream};
use onnx_container::load::{FileSource, WeightFile};
use onnx_container::{Buffer, Result};

use crate::object::{AT_ONCE, Object, PART};
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// A load looks at the first bytes of each file: this many at most.
const HEAD: u64 = 512;

/// Opens the weights files of one model in a store. At the first call all of them are opened, many
/// at once and each by one request. Later reads are of the object that it was then, or an error.
#[derive(Debug)]
pub(crate) struct RemoteFiles {
    store: Store,
    model: StoreUrl,
    locations: Vec<String>,
    opened: OnceLock<HashMap<String, Result<Arc<RemoteFile>>>>,
}

/// One weights file.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    pub(crate) object: Object,
    head: Vec<u8>,
    /// All bytes, where they were fetched.
    fetched: OnceLock<Buffer>,
}

impl RemoteFiles {
    /// The files of the model at `model`, a URL of `store`, at these locations.
    pub(crate) fn new(store: Store, model: StoreUrl, locations: Vec<String>) -> Self {
        Self { store, model, locations, opened: OnceLock::new() }
    }

    /// The file of a location.
    pub(crate) fn file(&self, location: &str) -> Result<Arc<RemoteFile>> {
        // Two threads may both open the files: the first to end is kept.
        if self.opened.get().is_none() {
            let opened = self.open_all()?;
            let _ = self.opened.set(opened);
        }
        match self.opened.get().and_then(|opened| opened.get(location)) {
            Some(opened) => opened.clone(),
            None => Ok(Arc::new(run(self.open_one(location))?)),
        }
    }

    fn open_all(&self) -> Result<HashMap<String, Result<Arc<RemoteFile>>>> {
        run(async {
            let files = stream::iter(&self.locations).map(|location| async {
                (location.clone(), self.open_one(location).await.map(Arc::new))
            });
            Ok(files.buffer_unordered(AT_ONCE).collect().await)
        })
    }

    async fn open_one(&self, location: &str) -> Result<RemoteFile> {
        let url = self.model.beside(location)?;
        let (object, head) = Object::open(&self.store, url.key(), HEAD).await?;
        Ok(RemoteFile { object, head, fetched: OnceLock::new() })
    }
}

impl RemoteFile {
    /// Keeps all bytes of the file, which are then not read again.
    pub(crate) fn keep(&self, bytes: Buffer) {
        let _ = self.fetched.set(bytes);
    }
}

impl FileSource for RemoteFiles {
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        Ok(self.file(location)?)
    }
}

impl WeightFile for RemoteFile {
    fn len(&self) -> u64 {
        self.object.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).ok();
        let known = start.and_then(|start| self.head.get(start..start.checked_add(out.len())?));
        match known {
            Some(known) => out.copy_from_slice(known),
            None => run(self.object.fill_long(offset, out))?,
        }
        Ok(())
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        run(self.object.fill_many(reads))
    }

    fn preferred_read(&self) -> usize {
        PART
    }

    fn as_buffer(&self) -> Option<Buffer> {
        self.fetched.get().cloned()
    }

    fn describe(&self) -> PathBuf {
        self.object.shown().into()
    }
}
