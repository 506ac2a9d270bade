//! [`Store`]: one bucket, container, server or repository.
//!
//! A store of one URL and one set of options is opened once per process as long as it is in use,
//! so that its connections, and what is known of it, are shared. Not so one of the Hub: it stays at
//! the commit that a branch had, and the next one is at that which the branch has then.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use object_store::ObjectStore;
use onnx_container::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::client::Client;
#[cfg(feature = "https")]
use crate::clients;
use crate::options::StoreOptions;
use crate::probe::Abilities;
use crate::streams::Streams;
use crate::url::{Scheme, StoreUrl};

/// A store that is open: its connections, and what is known of it. Clones share them.
///
/// ```
/// use std::sync::Arc;
/// use onnx_container_store::Store;
/// use object_store::memory::InMemory;
///
/// let store = Store::new(Arc::new(InMemory::new()), "s3://in-memory");
/// assert_eq!(store.root(), "s3://in-memory");
/// ```
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) root: String,
    pub(crate) streams: Streams,
    /// Whether conditions are honoured without being tried.
    pub(crate) trusted: bool,
    /// What a trial has shown.
    pub(crate) abilities: OnceLock<Abilities>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.root).finish()
    }
}

/// Stores by their URL and the digest of what else they depend on.
type Opened = HashMap<(String, [u8; 32]), Weak<Inner>>;

impl Store {
    /// Any store of object_store: with credentials, caches or limits of its own. `root` is what
    /// errors call it, such as `s3://bucket`.
    ///
    /// It is listed by its own `list`, which has to end: only a store that [`open`](Self::open)
    /// opens by its URL is listed page by page, where a listing that brings nothing new is an
    /// error.
    pub fn new(objects: Arc<dyn ObjectStore>, root: impl Into<String>) -> Self {
        Self::made(Client::of(objects), root.into(), false)
    }

    fn made(client: Client, root: String, trusted: bool) -> Self {
        let (streams, abilities) = (Streams::new(), OnceLock::new());
        Self(Arc::new(Inner { client, root, streams, trusted, abilities }))
    }

    /// The store of `url`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that the store does not have or that are not
    /// complete, [`ErrorKind::Unsupported`] where this build is without this kind of store.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Self> {
        if url.scheme() == Scheme::Hub {
            // It stays at the commit that it finds first, so another one has to look again.
            return Ok(Self::made(build(url, options)?, url.root().to_owned(), false));
        }
        static OPENED: OnceLock<Mutex<Opened>> = OnceLock::new();
        let opened = OPENED.get_or_init(Mutex::default);
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (url.root().to_owned(), settings(options));
        if let Some(store) = opened.get(&key).and_then(Weak::upgrade) {
            return Ok(Self(store));
        }
        let client = build(url, options)?;
        let trusted = client.is_known || options.trust_conditions;
        let store = Self::made(client, url.root().to_owned(), trusted);
        opened.retain(|_, store| store.strong_count() > 0);
        opened.insert(key, Arc::downgrade(&store.0));
        Ok(store)
    }

    /// What errors call the store: `s3://bucket`.
    pub fn root(&self) -> &str {
        &self.0.root
    }

    /// The store of object_store.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.client.objects
    }

    /// What errors call the object of this key.
    pub(crate) fn shown(&self, key: &str) -> String {
        format!("{}/{key}", self.0.root)
    }
}

/// A digest of the options and of the environment, which may hold secrets and may change.
fn settings(options: &StoreOptions) -> [u8; 32] {
    const PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];
    let is_of_stores = |name: &OsString| {
        PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
    };
    let mut variables: Vec<_> =
        std::env::vars_os().filter(|(name, _)| is_of_stores(name)).collect();
    variables.sort();
    let StoreOptions { set, max_retries, trust_conditions } = options;
    let all = format!("{set:?} {max_retries} {trust_conditions} {variables:?}");
    Sha256::digest(all).into()
}

/// The client of a store.
#[cfg_attr(not(feature = "https"), expect(unused_variables, reason = "no store is compiled in"))]
fn build(url: &StoreUrl, options: &StoreOptions) -> Result<Client> {
    #[cfg(feature = "https")]
    clients::use_ring();
    match url.scheme() {
        #[cfg(feature = "aws")]
        Scheme::S3 => clients::s3(url, options),
        #[cfg(feature = "gcp")]
        Scheme::Gcs => clients::gcs(url, options),
        #[cfg(feature = "azure")]
        Scheme::Azure => clients::azure(url, options),
        #[cfg(feature = "http")]
        Scheme::Http => clients::http(url, options),
        #[cfg(feature = "http")]
        Scheme::Hub => crate::hub::open(url, options).map(Client::of),
        Scheme::Other => {
            let reason = format!("no URL reaches `{}`: give that store", url.root());
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
        #[allow(unreachable_patterns, reason = "which are left depends on the features")]
        _ => {
            let reason = format!("this build cannot reach `{}`", url.root());
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_other_options_are_others() {
        let plain = StoreOptions::new;
        let options = [
            plain(),
            plain().max_retries(1),
            plain().trust_conditions(true),
            plain().set("aws_region", "eu"),
            plain().set("aws_region", "us"),
        ];
        for (number, a) in options.iter().enumerate() {
            for (other, b) in options.iter().enumerate() {
                assert_eq!(settings(a) == settings(b), number == other, "{a:?} {b:?}");
            }
        }
    }
}
