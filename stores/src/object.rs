//! [`Object`]: an object as it was when it was first seen, and reads of its ranges.
//!
//! object_store does not compare an answer with the question: it passes on a body that is shorter
//! or longer than its range, a version that changes between two ranges, and bytes that are
//! compressed. So each answer is held to five things: its length, its range, the version and the
//! size of the whole object, and its encoding.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetResult, ObjectMeta, ObjectStoreExt};
use onnx_container::{Alignment, Buffer, BufferMut, Error, ErrorKind, Result, work};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::again::{ATTEMPTS, pause};
use crate::errors::from_store;
use crate::store::Store;
use crate::url::path_of;

/// How many bytes a request reads best.
pub(crate) const PART: usize = 8 << 20;
/// A longer model is read in parts.
const WHOLE: u64 = 64 << 20;
/// Objects that are asked for at once.
pub(crate) const AT_ONCE: usize = 64;
/// Protobuf messages are shorter.
const LONGEST_MODEL: u64 = 1 << 31;

/// What tells an object from another that took its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    pub(crate) e_tag: Option<String>,
    pub(crate) size: u64,
    /// When it was written, in seconds since 1970.
    pub(crate) modified: i64,
    /// The number of a store that numbers its versions, such as Google's.
    pub(crate) number: Option<String>,
}

impl Version {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            e_tag: meta.e_tag.clone(),
            size: meta.size,
            modified: meta.last_modified.timestamp(),
            number: meta.version.clone(),
        }
    }

    /// Whether both are of one object. Times are coarse, and some servers give none, so they count
    /// only where there is no tag.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let same_tag = self.e_tag == other.e_tag;
        let same_time = self.e_tag.is_some() || self.modified == other.modified;
        same_tag && same_time && self.size == other.size
    }

    /// How long ago it was written, by the clocks of this machine and of the store.
    pub(crate) fn age(&self) -> Duration {
        // A store without times tells of none: nothing there counts as old.
        let Some(modified) = u64::try_from(self.modified).ok().filter(|time| *time > 0) else {
            return Duration::ZERO;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_secs(modified))
    }

    /// The tag that a request may be conditional on. A weak one never matches.
    pub(crate) fn strong_tag(&self) -> Option<&str> {
        self.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }

    /// What errors call the version.
    fn shown(&self) -> String {
        match &self.e_tag {
            Some(tag) => format!("{tag} of {} bytes", self.size),
            None => format!("{} bytes without a tag", self.size),
        }
    }
}

/// One object of a store, in one version.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    store: Store,
    key: String,
    path: Path,
    version: Version,
}

/// Why a range was not read, and whether to ask again.
enum Failed {
    Lasting(Error),
    Passing(Error),
}

impl Object {
    /// The object of `key` as it is now, by its head alone.
    pub(crate) async fn head(store: &Store, key: &str) -> Result<Self> {
        let path = path_of(key)?;
        let meta = store.objects().head(&path).await;
        let meta = meta.map_err(|error| from_store(&store.shown(key), error))?;
        Ok(Self { store: store.clone(), key: key.to_owned(), path, version: Version::of(&meta) })
    }

    /// The object as it is now, with its first bytes, at most `len`, by one request.
    pub(crate) async fn open(store: &Store, key: &str, len: u64) -> Result<(Self, Vec<u8>)> {
        let path = path_of(key)?;
        let options = GetOptions::new().with_range(Some(0..len));
        match store.objects().get_opts(&path, options).await {
            Ok(answer) => {
                let version = Version::of(&answer.meta);
                let object = Self { store: store.clone(), key: key.to_owned(), path, version };
                let len = object.version.size.min(len);
                let mut head = vec![0; usize::try_from(len).unwrap_or(0)];
                match object.take(answer, 0..len, &mut head).await {
                    Ok(()) => {}
                    Err(Failed::Lasting(error)) => return Err(error),
                    Err(Failed::Passing(_)) => object.fill(0, &mut head).await?,
                }
                Ok((object, head))
            }
            // A range of an empty object cannot be satisfied.
            Err(error) => match Self::head(store, key).await {
                Ok(object) if object.version.size == 0 => Ok((object, Vec::new())),
                Err(other) if other.kind() == ErrorKind::MissingFile => Err(other),
                _ => Err(from_store(&store.shown(key), error)),
            },
        }
    }

    /// A model: all bytes of an object, by one request unless it is very long.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for what is too long for a model.
    pub(crate) async fn whole(store: &Store, key: &str) -> Result<(Self, Buffer)> {
        let path = path_of(key)?;
        let shown = store.shown(key);
        let answer = store.objects().get_opts(&path, GetOptions::new()).await;
        let answer = answer.map_err(|error| from_store(&shown, error))?;
        let version = Version::of(&answer.meta);
        let size = version.size;
        if size >= LONGEST_MODEL {
            let reason = format!("{size} bytes are too many for a model. Is it a weights file?");
            return Err(Error::new(ErrorKind::TooLarge, reason).with_path(shown));
        }
        let object = Self { store: store.clone(), key: key.to_owned(), path, version };
        let len = usize::try_from(size).map_err(Error::internal)?;
        let mut bytes = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
        if size > WHOLE {
            drop(answer);
            object.fill_long(0, &mut bytes).await?;
        } else {
            match object.take(answer, 0..size, &mut bytes).await {
                Ok(()) => {}
                Err(Failed::Lasting(error)) => return Err(error),
                Err(Failed::Passing(_)) => object.fill_long(0, &mut bytes).await?,
            }
        }
        Ok((object, bytes.freeze()))
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// The tag that the store gave it.
    pub(crate) fn e_tag(&self) -> Option<&str> {
        self.version.e_tag.as_deref()
    }

    pub(crate) fn len(&self) -> u64 {
        self.version.size
    }

    /// What errors call the object.
    pub(crate) fn shown(&self) -> String {
        self.store.shown(&self.key)
    }

    /// The SHA-256 of the object in hexadecimal, where its store states it: the Hub does, in the
    /// tag of a large file.
    pub(crate) fn stated_sum(&self) -> Option<&str> {
        let tag = self.version.e_tag.as_deref()?.trim_matches('"');
        let is_sum = tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_sum && self.store.root().starts_with("hf://")).then_some(tag)
    }

    /// Compares all bytes of the object with the digest that its store states, if any.
    ///
    /// # Errors
    /// [`ErrorKind::WrongDigest`] where they differ.
    pub(crate) fn verify(&self, bytes: &[u8]) -> Result<()> {
        let Some(stated) = self.stated_sum() else { return Ok(()) };
        let mut sum = Sha256::new();
        for part in bytes.chunks(PART) {
            work::check()?;
            sum.update(part);
        }
        let found: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found == stated {
            return Ok(());
        }
        let reason = format!(
            "the Hub states the SHA-256 {stated}, and the bytes have {found}: read the file again, \
             and remove it from the cache of the Hub where it is there"
        );
        Err(self.error(ErrorKind::WrongDigest, reason))
    }

    /// Fills `out` from `offset` on, in parts that are read at once.
    pub(crate) async fn fill_long(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let starts =
            (0_u64..).map(|number| offset.saturating_add(number.saturating_mul(PART as u64)));
        let mut reads: Vec<_> = starts.zip(out.chunks_mut(PART)).collect();
        self.fill_many(&mut reads).await
    }

    /// Fills several slices, each from its offset on, as many at once as the store serves best.
    pub(crate) async fn fill_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        // The streams of the store bound how many of them run.
        stream::iter(reads.iter_mut().map(|(offset, out)| self.fill(*offset, out)))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Fills `out` from `offset` on by one request, or a few where bytes do not arrive.
    pub(crate) async fn fill(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let range = offset..offset.saturating_add(out.len() as u64);
        let _stream = self.store.0.streams.stream().await;
        let mut attempt = 1;
        loop {
            match self.fill_once(range.clone(), out).await {
                Ok(()) => return Ok(()),
                Err(Failed::Passing(_)) if attempt < ATTEMPTS => {
                    pause(attempt).await;
                    attempt += 1;
                }
                Err(Failed::Lasting(error) | Failed::Passing(error)) => {
                    return Err(match error.kind() {
                        ErrorKind::Io => error.with_offset(offset),
                        _ => error,
                    });
                }
            }
        }
    }

    async fn fill_once(
        &self,
        range: Range<u64>,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let start = Instant::now();
        let options = GetOptions::new()
            .with_range(Some(range.clone()))
            .with_if_match(self.version.strong_tag());
        let answer = match self.store.objects().get_opts(&self.path, options).await {
            Ok(answer) => answer,
            Err(object_store::Error::Precondition { .. }) => {
                return Err(Failed::Lasting(self.replaced().await));
            }
            Err(error) => return Err(Failed::Lasting(from_store(&self.shown(), error))),
        };
        let wait = start.elapsed();
        let len = out.len();
        self.take(answer, range, out).await?;
        if len == PART {
            self.store.0.streams.measured(wait, start.elapsed());
        }
        Ok(())
    }

    /// Fills `out` with the body of an answer, which has to be `range` of this version.
    async fn take(
        &self,
        answer: GetResult,
        range: Range<u64>,
        out: &mut [u8],
    ) -> std::result::Result<(), Failed> {
        let lasting = |kind, reason: String| Failed::Lasting(self.error(kind, reason));
        let found = Version::of(&answer.meta);
        if !found.is(&self.version) {
            return Err(Failed::Lasting(self.changed(&found)));
        }
        if let Some(encoding) = answer.attributes.get(&Attribute::ContentEncoding)
            && encoding.as_ref() != "identity"
            && !encoding.is_empty()
        {
            let encoding = encoding.as_ref();
            let reason =
                format!("it is stored as `{encoding}`: ranges of it are no ranges of its bytes");
            return Err(lasting(ErrorKind::Unsupported, reason));
        }
        if answer.range != range {
            let reason = format!(
                "the store was asked for bytes {} to {} and sends {} to {}",
                range.start, range.end, answer.range.start, answer.range.end
            );
            return Err(lasting(ErrorKind::Io, reason));
        }
        let wanted = out.len();
        let (mut body, mut filled) = (answer.into_stream(), 0);
        while let Some(chunk) = body.next().await {
            let passing = |error| Failed::Passing(from_store(&self.shown(), error));
            let chunk = chunk.map_err(passing)?;
            let Some(place) = out.get_mut(filled..filled + chunk.len()) else {
                let reason = format!("the store sends more than the {wanted} bytes of its range");
                return Err(lasting(ErrorKind::Io, reason));
            };
            place.copy_from_slice(&chunk);
            filled += chunk.len();
        }
        if filled < wanted {
            let reason = format!("the store sends {filled} bytes of {wanted}");
            return Err(Failed::Passing(self.error(ErrorKind::Io, reason)));
        }
        Ok(())
    }

    fn error(&self, kind: ErrorKind, reason: String) -> Error {
        Error::new(kind, reason).with_path(self.shown())
    }

    /// The error of an object that another took the place of.
    fn changed(&self, found: &Version) -> Error {
        let reason = format!(
            "the object was replaced while it was read: it was {}, and is {}",
            self.version.shown(),
            found.shown()
        );
        self.error(ErrorKind::Changed, reason)
    }

    /// The same, where the store refused the old version, and so did not say which one it has.
    async fn replaced(&self) -> Error {
        match Self::head(&self.store, &self.key).await {
            Ok(now) if now.version.is(&self.version) => {
                let reason = "the store says that the object was replaced, and has the same";
                self.error(ErrorKind::Changed, reason.to_owned())
            }
            Ok(now) => self.changed(&now.version),
            Err(_) => {
                let reason = format!("the object was replaced: it was {}", self.version.shown());
                self.error(ErrorKind::Changed, reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_time_is_young() {
        // When it was written, and whether it is older than a day.
        for (modified, is_old) in [(0, false), (-1, false), (i64::MAX, false), (1, true)] {
            let version = Version { e_tag: None, size: 0, modified, number: None };
            assert_eq!(version.age() > Duration::from_secs(86_400), is_old, "{modified}");
        }
    }
}
