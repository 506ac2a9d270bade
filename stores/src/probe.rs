//! What a store can do, by a trial: some servers accept the conditions of a request and ignore
//! them, so that two writers overwrite each other and both are told that they succeeded.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    UpdateVersion,
};
use onnx_container::{Error, ErrorKind, Result};

use crate::again::{ATTEMPTS, again, may_pass, pause};
use crate::errors::from_store;
use crate::runtime::run;
use crate::store::Store;
use crate::url::{StoreUrl, path_of};

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// An object that is to be new is refused where there is one.
    pub create: bool,
    /// A replacement of a version that is no longer there is refused, and of the one that is there
    /// accepted.
    pub replace: bool,
    /// A read of a version that is no longer there is refused. Where it is not, reads compare the
    /// tags of answers.
    pub read_condition: bool,
    /// Objects have tags that change with their bytes.
    pub tags: bool,
    /// Ranges are read as they were asked for.
    pub ranges: bool,
}

impl Abilities {
    /// Whether writers of one model notice each other.
    pub fn publishes(self) -> bool {
        self.create && self.replace
    }
}

/// The start of the name of the object that a trial writes.
pub(crate) const TRIAL: &str = ".onnx-container-probe-";

/// Tries what the store of `url` can do, with a small object beside the one at `url`, which is
/// deleted afterwards.
///
/// # Errors
/// Where nothing can be written there.
pub fn probe(store: &Store, url: &StoreUrl) -> Result<Abilities> {
    url.refuse_read_only()?;
    let folder =
        url.key().rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    run(async {
        let mut attempt = 1;
        loop {
            let key = format!("{folder}{TRIAL}{:016x}", RandomState::new().build_hasher().finish());
            match try_at(store, &path_of(&key)?).await {
                Ok(found) => return Ok(found),
                Err(error) if attempt < ATTEMPTS && may_be_lost(&error) => pause(attempt).await,
                Err(error) => {
                    let error = from_store(&store.shown(&key), error);
                    return Err(error.because("the store cannot be tried"));
                }
            }
            attempt += 1;
        }
    })
}

/// Whether a trial may have failed because of an answer that was lost: the repeated request then
/// meets its own object.
fn may_be_lost(error: &StoreError) -> bool {
    may_pass(error)
        || matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. })
}

async fn try_at(store: &Store, path: &Path) -> object_store::Result<Abilities> {
    let found = trial(&**store.objects(), path).await;
    // It is of no use, whatever the trial has shown. `sweep` removes what stays.
    match again(|| store.objects().delete(path)).await {
        // The answer to the first request was lost.
        Ok(()) | Err(StoreError::NotFound { .. }) => found,
        Err(error) => found.and(Err(error)),
    }
}

impl Store {
    /// Refuses a store that cannot do what a publication at `url` needs, which `replaces` a model
    /// or makes one. The store is tried once, and not at all where it is known.
    pub(crate) fn publishes(&self, url: &StoreUrl, replaces: bool) -> Result<()> {
        if self.0.trusted {
            return Ok(());
        }
        let found = match self.0.abilities.get() {
            Some(found) => *found,
            None => {
                let found = probe(self, url)?;
                *self.0.abilities.get_or_init(|| found)
            }
        };
        let missing = match (found.create, found.replace) {
            (true, true) => return Ok(()),
            (true, false) if !replaces => return Ok(()),
            (true, false) => "cannot replace one version of an object and no other",
            (false, _) => "cannot refuse to overwrite an object",
        };
        let reason = format!(
            "the store {missing}, so that two writers do not notice each other. Publish without \
             conditions where nobody else writes this model"
        );
        Err(Error::new(ErrorKind::Unsupported, reason).with_path(self.root()))
    }
}

/// Whether a request was refused because of its condition.
fn refused<T>(answer: object_store::Result<T>) -> object_store::Result<bool> {
    match answer {
        Ok(_) | Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            Ok(false)
        }
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn trial(store: &dyn ObjectStore, path: &Path) -> object_store::Result<Abilities> {
    let put = |bytes: &'static [u8], mode: PutMode| {
        store.put_opts(path, PutPayload::from_static(bytes), mode.into())
    };
    let first = match put(b"first", PutMode::Create).await {
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            put(b"first", PutMode::Overwrite).await?
        }
        first => first?,
    };
    let create = refused(put(b"other", PutMode::Create).await)?;

    let first = UpdateVersion { e_tag: first.e_tag, version: first.version };
    let mut ranges = false;
    let mut replace = false;
    let mut read_condition = false;
    let mut tags = false;
    if create {
        let options = GetOptions::new().with_range(Some(1..3));
        if let Ok(answer) = store.get_opts(path, options).await {
            ranges =
                answer.range == (1..3) && answer.bytes().await.is_ok_and(|got| &got[..] == b"ir");
        }
        let second = match put(b"second", PutMode::Update(first.clone())).await {
            Ok(second) => Some(second),
            Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => None,
            Err(error) => return Err(error),
        };
        if let Some(second) = second {
            tags = second.e_tag.is_some() && second.e_tag != first.e_tag;
            replace = refused(put(b"third", PutMode::Update(first.clone())).await)?;
        }
        let options = GetOptions::new().with_if_match(first.e_tag);
        read_condition = tags && refused(store.get_opts(path, options).await)?;
    }
    Ok(Abilities { create, replace, read_condition, tags, ranges })
}
