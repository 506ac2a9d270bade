//! Objects of any length: whole where they are short, in parts of one length where they are long.
//!
//! The bytes come from a source that is read twice: once for the digest that names the object, and
//! once for the object. Both have to be the same, since an object is never written again under the
//! name of its content.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{StreamExt, TryFutureExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, MultipartUpload, ObjectStore, PutMode, PutPayload};
use onnx_container::{Error, ErrorKind, Result, work};
use sha2::{Digest, Sha256};

use crate::again::again;
use crate::errors::from_store;
use crate::object::Object;
use crate::runtime::{cancelled, run_to_end};
use crate::store::Store;
use crate::sums::{Sum, Sums};
use crate::url::path_of;

/// What is read or sent at once.
pub(crate) const PART: u64 = 8 << 20;
/// Stores take 10,000 parts.
const MOST_PARTS: u64 = 9_000;
/// Bytes that are read and not yet sent.
const IN_MEMORY: u64 = 128 << 20;
/// Parts that are read and sent at once, where they are small.
const AT_ONCE: u64 = 8;

/// How long a call waits for the store to forget the parts of an upload.
const AT_MOST: Duration = Duration::from_secs(10);

type Read = dyn Fn(u64, &mut [u8]) -> Result<()> + Send + Sync;

/// The bytes of an object to be.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) len: u64,
    read: Arc<Read>,
}

impl Source {
    /// `len` bytes, of which `read` fills a slice with those from an offset on.
    pub(crate) fn new(
        len: u64,
        read: impl Fn(u64, &mut [u8]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { len, read: Arc::new(read) }
    }

    /// The bytes in order, in parts of `part` bytes, of which `at_once` are read ahead.
    fn parts(&self, part: u64, at_once: usize) -> impl stream::Stream<Item = Result<Vec<u8>>> {
        let count = self.len.div_ceil(part);
        let this = self.clone();
        let read = move |number: u64| {
            let this = this.clone();
            async move {
                let start = number * part;
                let len = usize::try_from(part.min(this.len - start)).map_err(Error::internal)?;
                let read = tokio::task::spawn_blocking(move || {
                    let mut bytes = vec![0; len];
                    (this.read)(start, &mut bytes).map(|()| bytes)
                });
                read.await.map_err(Error::internal)?
            }
        };
        stream::iter((0..count).map(read)).buffered(at_once)
    }

    /// The SHA-256 of the bytes.
    pub(crate) async fn sum(&self) -> Result<Sum> {
        Ok(self.sums(Vec::new()).await?.finish().0)
    }

    /// The SHA-256 of the bytes, and of each of these ranges of them.
    pub(crate) async fn sums(&self, ranges: Vec<Range<u64>>) -> Result<Sums> {
        let mut sums = Sums::new(ranges);
        let mut parts = std::pin::pin!(self.parts(PART, at_once(PART)));
        while let Some(part) = parts.try_next().await? {
            sums.update(&part);
            work::advance(part.len() as u64)?;
        }
        Ok(sums)
    }
}

/// How many parts of this length are in memory at once for reading, and as many for sending.
pub(crate) fn at_once(part: u64) -> usize {
    let count = (IN_MEMORY / 2 / part).clamp(1, AT_ONCE);
    usize::try_from(count).unwrap_or(1)
}

/// The length of the parts of `len` bytes: MiB, as some stores want them equal.
pub(crate) fn part_of(len: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    len.div_ceil(MOST_PARTS).max(PART).next_multiple_of(MIB)
}

/// Writes the object at `key`, whose bytes have to have this digest.
///
/// # Errors
/// [`ErrorKind::Changed`] where the bytes are others by now; nothing is written then.
pub(crate) async fn put(store: &Store, key: &str, source: &Source, sum: &Sum) -> Result<()> {
    let path = path_of(key)?;
    let put = if source.len <= PART {
        unless_cancelled(put_whole(store, &path, source, sum)).await
    } else {
        put_in_parts(store, &path, source, sum).await
    };
    match put {
        Ok(()) => Ok(()),
        Err(Failed::Bytes(error)) => Err(error),
        // The answer may be lost, and the object be there. Its name says what is in it.
        Err(Failed::Store(_)) if is_there(store, key, source.len).await => Ok(()),
        Err(Failed::Store(error)) => Err(from_store(&store.shown(key), error)),
    }
}

/// Why an object was not written.
enum Failed {
    /// The bytes cannot be read, or are others.
    Bytes(Error),
    Store(object_store::Error),
}

impl From<object_store::Error> for Failed {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Bytes(error)
    }
}

async fn put_whole(
    store: &Store,
    path: &Path,
    source: &Source,
    sum: &Sum,
) -> std::result::Result<(), Failed> {
    let mut parts = std::pin::pin!(source.parts(PART, 1));
    let bytes = parts.try_next().await?.unwrap_or_default();
    compare(&Sha256::digest(&bytes).into(), sum)?;
    work::advance(bytes.len() as u64)?;
    let payload = PutPayload::from(bytes);
    // One that is there has readers, whom another tag would stop.
    match store.objects().put_opts(path, payload.clone(), PutMode::Create.into()).await {
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            store.objects().put_opts(path, payload, PutMode::Overwrite.into()).await?;
        }
        put => drop(put?),
    }
    Ok(())
}

async fn put_in_parts(
    store: &Store,
    path: &Path,
    source: &Source,
    sum: &Sum,
) -> std::result::Result<(), Failed> {
    let begin = || store.objects().put_multipart_opts(path, Default::default());
    let mut upload = again(begin).await?;
    // A call that is cancelled leaves no parts behind.
    let sent = unless_cancelled(send_parts(&mut *upload, source, sum)).await;
    let done = match sent {
        Ok(()) => upload.complete().await.map(|_| ()).map_err(Failed::Store),
        failed => failed,
    };
    if done.is_err() {
        give_up(&mut *upload).await;
    }
    done
}

/// Lets the store forget the parts of an upload. What stays is for the rules of the store: the
/// error before this one is what counts.
async fn give_up(upload: &mut dyn MultipartUpload) {
    let _ = tokio::time::timeout(AT_MOST, upload.abort()).await;
}

/// As [`give_up`], also where the work of the calling thread is cancelled.
pub(crate) fn abandon(upload: &mut dyn MultipartUpload) {
    let given_up = run_to_end(async {
        give_up(upload).await;
        Ok(())
    });
    drop(given_up);
}

/// The result of `future`, which is dropped where the work of this thread is cancelled.
async fn unless_cancelled<T>(
    future: impl Future<Output = std::result::Result<T, Failed>>,
) -> std::result::Result<T, Failed> {
    match select(std::pin::pin!(future), std::pin::pin!(cancelled())).await {
        Either::Left((result, _)) => result,
        Either::Right((error, _)) => Err(Failed::Bytes(error)),
    }
}

/// Whether the object is there with all of its bytes.
async fn is_there(store: &Store, key: &str, len: u64) -> bool {
    Object::head(store, key).await.is_ok_and(|object| object.len() == len)
}

async fn send_parts(
    upload: &mut dyn MultipartUpload,
    source: &Source,
    sum: &Sum,
) -> std::result::Result<(), Failed> {
    let part = part_of(source.len);
    let most = at_once(part);
    let mut found = Sha256::new();
    // Parts have numbers in the order of these calls, and are sent at once.
    let sending = source.parts(part, most).map_err(Failed::Bytes).map_ok(|bytes| {
        found.update(&bytes);
        // A call that is cancelled ends by itself.
        let _ = work::advance(bytes.len() as u64);
        upload.put_part(PutPayload::from(bytes)).map_err(Failed::Store)
    });
    sending.try_buffer_unordered(most).try_collect::<()>().await?;
    Ok(compare(&found.finalize().into(), sum)?)
}

/// Refuses bytes of another digest than before.
fn compare(found: &Sum, sum: &Sum) -> Result<()> {
    if found == sum {
        return Ok(());
    }
    let reason = "the weights changed while they were read: nothing was written";
    Err(Error::new(ErrorKind::Changed, reason))
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::runtime::run;

    #[test]
    fn a_short_object_that_is_there_is_not_written_again() {
        let store = Store::new(Arc::new(InMemory::new()), "s3://b");
        for len in [0, 10, 8 << 20] {
            let source = Source::new(len, |_, out| {
                out.fill(7);
                Ok(())
            });
            let key = format!("w{len}");
            let tag = || {
                run(async {
                    let sum = source.sum().await?;
                    put(&store, &key, &source, &sum).await?;
                    let meta = store.objects().head(&path_of(&key)?).await;
                    Ok(meta.map(|meta| (meta.size, meta.e_tag)).unwrap())
                })
                .unwrap()
            };
            let first = tag();
            assert_eq!(first.0, len);
            assert_eq!(tag(), first, "{len}");
        }
    }

    #[test]
    fn parts_are_few_equal_and_not_small() {
        const MIB: u64 = 1 << 20;
        // The length, and that of a part.
        let cases = [
            (0, 8 * MIB),
            (72_000 * MIB, 8 * MIB),
            (72_000 * MIB + 1, 9 * MIB),
            (1 << 40, 117 * MIB),
        ];
        for (len, part) in cases {
            assert_eq!(part_of(len), part, "{len}");
            assert!(len.div_ceil(part) <= 10_000);
            assert!(part * at_once(part) as u64 <= 117 * MIB);
        }
    }
}
