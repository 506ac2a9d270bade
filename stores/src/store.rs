//! [`Store`]: one bucket, container, server or repository.
//!
//! A store of one URL and one set of options is opened once per process as long as it is in use,
//! so that its connections, and what is known of it, are shared. Not so one of the Hub: it stays at
//! the commit that a branch had, and the next one is at that which the branch has then.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use object_store::ObjectStore;
use onnx_container::{Error, ErrorKind, Result};

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
    pub(crate) objects: Arc<dyn ObjectStore>,
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

type Opened = HashMap<(String, StoreOptions), Weak<Inner>>;

impl Store {
    /// Any store of object_store: with credentials, caches or limits of its own. `root` is what
    /// errors call it, such as `s3://bucket`.
    pub fn new(objects: Arc<dyn ObjectStore>, root: impl Into<String>) -> Self {
        Self::made(objects, root.into(), false)
    }

    fn made(objects: Arc<dyn ObjectStore>, root: String, trusted: bool) -> Self {
        let (streams, abilities) = (Streams::new(), OnceLock::new());
        Self(Arc::new(Inner { objects, root, streams, trusted, abilities }))
    }

    /// The store of `url`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that the store does not have or that are not
    /// complete, [`ErrorKind::Unsupported`] where this build is without this kind of store.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Self> {
        if url.scheme() == Scheme::Hub {
            // It stays at the commit that it finds first, so another one has to look again.
            return Ok(Self::made(build(url, options)?.0, url.root().to_owned(), false));
        }
        static OPENED: OnceLock<Mutex<Opened>> = OnceLock::new();
        let opened = OPENED.get_or_init(Mutex::default);
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (url.root().to_owned(), options.clone());
        if let Some(store) = opened.get(&key).and_then(Weak::upgrade) {
            return Ok(Self(store));
        }
        let (objects, known) = build(url, options)?;
        let trusted = known || options.trust_conditions;
        let store = Self::made(objects, url.root().to_owned(), trusted);
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
        &self.0.objects
    }

    /// What errors call the object of this key.
    pub(crate) fn shown(&self, key: &str) -> String {
        format!("{}/{key}", self.0.root)
    }
}

/// The client of a store, and whether it is one that is known to honour conditions.
#[cfg_attr(not(feature = "https"), expect(unused_variables, reason = "no store is compiled in"))]
fn build(url: &StoreUrl, options: &StoreOptions) -> Result<(Arc<dyn ObjectStore>, bool)> {
    #[cfg(feature = "https")]
    builders::use_ring();
    match url.scheme() {
        #[cfg(feature = "aws")]
        Scheme::S3 => builders::s3(url, options),
        #[cfg(feature = "gcp")]
        Scheme::Gcs => builders::gcs(url, options),
        #[cfg(feature = "azure")]
        Scheme::Azure => builders::azure(url, options),
        #[cfg(feature = "http")]
        Scheme::Http => builders::http(url, options),
        #[cfg(feature = "http")]
        Scheme::Hub => crate::hub::open(url, options).map(|store| (store, false)),
        #[allow(unreachable_patterns, reason = "which are left depends on the features")]
        _ => {
            let reason = format!("this build cannot reach `{}`", url.root());
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
    }
}

#[cfg(feature = "https")]
pub(crate) mod builders {
    use std::collections::BTreeMap;

    use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};

    use super::*;
    use crate::errors::from_store;

    /// Times and pools of every client, by the names of object_store's configuration. A part of
    /// 64 MiB may take minutes, so what is bounded is how long nothing arrives.
    pub(crate) const CLIENT: [(ClientConfigKey, &str); 4] = [
        (ClientConfigKey::Timeout, "1 day"),
        (ClientConfigKey::ConnectTimeout, "10 seconds"),
        (ClientConfigKey::ReadTimeout, "60 seconds"),
        (ClientConfigKey::PoolIdleTimeout, "30 seconds"),
    ];

    /// Makes ring the provider of TLS of this process, where it has none.
    pub(crate) fn use_ring() {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // It fails where another thread was first, whose provider is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
    }

    pub(crate) fn retries(options: &StoreOptions) -> RetryConfig {
        let max_retries = options.max_retries;
        RetryConfig { backoff: BackoffConfig::default(), max_retries, ..RetryConfig::default() }
    }

    /// The values that were set, by the keys of a store.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a name that the store does not have.
    pub(crate) fn keys<K: std::str::FromStr>(
        set: &BTreeMap<String, String>,
        root: &str,
    ) -> Result<Vec<(K, String)>> {
        let key = |(name, value): (&String, &String)| match name.parse() {
            Ok(key) => Ok((key, value.clone())),
            Err(_) => {
                let reason = format!("`{root}` has no option `{name}`");
                Err(Error::new(ErrorKind::InvalidArgument, reason))
            }
        };
        set.iter().map(key).collect()
    }

    /// What keeps a client from being made.
    pub(crate) fn not_made(url: &StoreUrl, error: object_store::Error) -> Error {
        let error = from_store(url.root(), error);
        Error::new(ErrorKind::InvalidArgument, error.reason()).with_path(url.root())
    }

    /// A builder with the environment, then what was set. A macro, as the builders have no trait.
    #[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
    macro_rules! configured {
        ($builder:expr, $key:ty, $prefix:literal, $url:expr, $options:expr) => {{
            let mut builder = $builder.with_url($url.root()).with_retry(retries($options));
            for (key, value) in CLIENT {
                let variable = format!("{}{}", $prefix, key.as_ref().to_ascii_uppercase());
                if std::env::var_os(variable).is_none() {
                    builder = builder.with_config(<$key>::Client(key), value);
                }
            }
            for (key, value) in keys::<$key>(&$options.set, $url.root())? {
                builder = builder.with_config(key, value);
            }
            builder
        }};
    }

    /// Whether an address is one without encryption, which whoever states it means.
    #[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
    fn is_plain(endpoint: Option<&String>) -> bool {
        endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
    }

    #[cfg(feature = "aws")]
    pub(super) fn s3(
        url: &StoreUrl,
        options: &StoreOptions,
    ) -> Result<(Arc<dyn ObjectStore>, bool)> {
        use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};
        let mut builder = configured!(AmazonS3Builder::from_env(), Key, "AWS_", url, options);
        let profile = crate::profile::Profile::of_environment();
        let lacks = |builder: &AmazonS3Builder, key: Key| builder.get_config_value(&key).is_none();
        if lacks(&builder, Key::AccessKeyId) && lacks(&builder, Key::WebIdentityTokenFile) {
            for (key, value) in profile.credentials {
                builder = builder.with_config(key, value);
            }
        }
        for (key, value) in profile.place {
            if lacks(&builder, key) {
                builder = builder.with_config(key, value);
            }
        }
        let of_s3 = builder.get_config_value(&Key::S3Endpoint);
        let endpoint = of_s3.or_else(|| builder.get_config_value(&Key::Endpoint));
        if is_plain(endpoint.as_ref()) {
            builder = builder.with_allow_http(true);
        }
        let is_amazon = endpoint.is_none_or(|address| address.contains(".amazonaws.com"));
        let store = builder.build().map_err(|error| not_made(url, error))?;
        Ok((Arc::new(store), is_amazon))
    }

    #[cfg(feature = "gcp")]
    pub(super) fn gcs(
        url: &StoreUrl,
        options: &StoreOptions,
    ) -> Result<(Arc<dyn ObjectStore>, bool)> {
        use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Key};
        let mut builder =
            configured!(GoogleCloudStorageBuilder::from_env(), Key, "GOOGLE_", url, options);
        let address = builder.get_config_value(&Key::BaseUrl);
        if is_plain(address.as_ref()) {
            builder = builder.with_config(Key::Client(ClientConfigKey::AllowHttp), "true");
        }
        let is_google = address.is_none_or(|address| address.contains(".googleapis.com"));
        let store = builder.build().map_err(|error| not_made(url, error))?;
        Ok((Arc::new(store), is_google))
    }

    #[cfg(feature = "azure")]
    pub(super) fn azure(
        url: &StoreUrl,
        options: &StoreOptions,
    ) -> Result<(Arc<dyn ObjectStore>, bool)> {
        use object_store::azure::{AzureConfigKey as Key, MicrosoftAzureBuilder};
        let mut builder =
            configured!(MicrosoftAzureBuilder::from_env(), Key, "AZURE_", url, options);
        let address = builder.get_config_value(&Key::Endpoint);
        let emulated = builder.get_config_value(&Key::UseEmulator);
        let emulated = emulated.is_some_and(|value| value == "true" || value == "1");
        if is_plain(address.as_ref()) || emulated {
            builder = builder.with_allow_http(true);
        }
        let is_azure = address.is_none_or(|address| address.contains(".core.windows.net"));
        let store = builder.build().map_err(|error| not_made(url, error))?;
        Ok((Arc::new(store), is_azure && !emulated))
    }

    #[cfg(feature = "http")]
    pub(super) fn http(
        url: &StoreUrl,
        options: &StoreOptions,
    ) -> Result<(Arc<dyn ObjectStore>, bool)> {
        use object_store::http::HttpBuilder;
        let mut builder = HttpBuilder::new().with_url(url.root()).with_retry(retries(options));
        for (key, value) in CLIENT {
            builder = builder.with_config(key, value);
        }
        // Addresses without encryption are part of the web.
        builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
        for (key, value) in keys::<ClientConfigKey>(&options.set, url.root())? {
            builder = builder.with_config(key, value);
        }
        let store = builder.build().map_err(|error| not_made(url, error))?;
        Ok((Arc::new(store), false))
    }
}
