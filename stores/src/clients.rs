//! The clients of object_store, one for each kind of store: with the environment, what
//! [`StoreOptions`] set, and our times and retries.

use std::collections::BTreeMap;
#[cfg(feature = "http")]
use std::sync::Arc;

use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
use onnx_container::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::errors::from_store;
use crate::options::StoreOptions;
use crate::url::StoreUrl;

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

/// Whether an address is one without encryption: the user who states it means that.
#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
fn is_plain(endpoint: Option<&String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Refuses an endpoint that is no web address, with which no request can be made.
#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
fn check_endpoint(url: &StoreUrl, endpoint: Option<&str>) -> Result<()> {
    let is_address = |address: &str| {
        let parsed = reqwest::Url::parse(address);
        parsed.is_ok_and(|parsed| matches!(parsed.scheme(), "http" | "https") && parsed.has_host())
    };
    match endpoint {
        Some(address) if !is_address(address) => {
            let shown = crate::url::without_secrets(address);
            let reason = format!(
                "the endpoint of the store is `{shown}`: write an address such as \
                 `http://localhost:8333`"
            );
            Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(url.root()))
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "aws")]
pub(crate) fn s3(url: &StoreUrl, options: &StoreOptions) -> Result<Client> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};
    // Objects are deleted one by one here, and not every server has the request for many.
    let builder = AmazonS3Builder::from_env().with_disable_bulk_delete(true);
    let mut builder = configured!(builder, Key, "AWS_", url, options);
    let profile = crate::profile::Profile::of_environment();
    let named = profile.named.clone().filter(|_| profile.credentials.is_empty());
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
    let unsigned = builder.get_config_value(&Key::SkipSignature);
    let asks_nobody = unsigned.is_none_or(|value| value != "true")
        && [Key::AccessKeyId, Key::WebIdentityTokenFile, Key::ContainerCredentialsRelativeUri]
            .into_iter()
            .all(|key| lacks(&builder, key));
    if let Some(name) = named.filter(|_| asks_nobody) {
        let reason = format!(
            "the profile `{name}` has no keys in the files of `aws configure`. `aws configure \
             export-credentials --profile {name} --format env` prints those of a single sign-on or \
             of a role"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(url.root()));
    }
    let of_s3 = builder.get_config_value(&Key::S3Endpoint);
    let endpoint = of_s3.or_else(|| builder.get_config_value(&Key::Endpoint));
    if is_plain(endpoint.as_ref()) {
        builder = builder.with_allow_http(true);
    }
    check_endpoint(url, endpoint.as_deref())?;
    let is_amazon = endpoint.is_none_or(|address| address.contains(".amazonaws.com"));
    let store = builder.build().map_err(|error| not_made(url, error))?;
    Ok(Client::paged(store, is_amazon))
}

#[cfg(feature = "gcp")]
pub(crate) fn gcs(url: &StoreUrl, options: &StoreOptions) -> Result<Client> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Key};
    let mut builder =
        configured!(GoogleCloudStorageBuilder::from_env(), Key, "GOOGLE_", url, options);
    let set = |key: Key| builder.get_config_value(&key);
    let address = set(Key::BaseUrl)
        .or_else(|| address_of_account(set(Key::ServiceAccountKey), set(Key::ServiceAccount)));
    if is_plain(address.as_ref()) {
        builder = builder.with_config(Key::Client(ClientConfigKey::AllowHttp), "true");
    }
    check_endpoint(url, address.as_deref())?;
    let is_google = address.is_none_or(|address| address.contains(".googleapis.com"));
    let store = builder.build().map_err(|error| not_made(url, error))?;
    Ok(Client::paged(store, is_google))
}

/// The address that a service account names in its key or in its file: those for emulators do.
#[cfg(feature = "gcp")]
fn address_of_account(key: Option<String>, file: Option<String>) -> Option<String> {
    // What cannot be read is an error where the client is made.
    let text = key.or_else(|| std::fs::read_to_string(file?).ok())?;
    let account: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(account.get("gcs_base_url")?.as_str()?.to_owned())
}

#[cfg(feature = "azure")]
pub(crate) fn azure(url: &StoreUrl, options: &StoreOptions) -> Result<Client> {
    use object_store::azure::{AzureConfigKey as Key, MicrosoftAzureBuilder};
    let mut builder = configured!(MicrosoftAzureBuilder::from_env(), Key, "AZURE_", url, options);
    let address = builder.get_config_value(&Key::Endpoint);
    let emulated = builder.get_config_value(&Key::UseEmulator);
    let emulated = emulated.is_some_and(|value| value == "true" || value == "1");
    if is_plain(address.as_ref()) || emulated {
        builder = builder.with_allow_http(true);
    }
    check_endpoint(url, address.as_deref())?;
    let is_azure = address.is_none_or(|address| address.contains(".core.windows.net"));
    let store = builder.build().map_err(|error| not_made(url, error))?;
    Ok(Client::paged(store, is_azure && !emulated))
}

#[cfg(feature = "http")]
pub(crate) fn http(url: &StoreUrl, options: &StoreOptions) -> Result<Client> {
    use object_store::http::HttpBuilder;
    let mut builder = HttpBuilder::new().with_url(url.root()).with_retry(retries(options));
    for (key, value) in CLIENT {
        builder = builder.with_config(key, value);
    }
    // An address with encryption leads to none without.
    let is_plain = url.root().starts_with("http://");
    builder = builder.with_config(ClientConfigKey::AllowHttp, is_plain.to_string());
    for (key, value) in keys::<ClientConfigKey>(&options.set, url.root())? {
        builder = builder.with_config(key, value);
    }
    let store = builder.build().map_err(|error| not_made(url, error))?;
    Ok(Client::of(Arc::new(store)))
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address() {
        use_ring();
        let url = StoreUrl::parse("s3://b/m.onnx").unwrap();
        let good = ["http://localhost:8333", "https://s3.eu.example/x"];
        for endpoint in good {
            let options = StoreOptions::new().set("aws_endpoint_url", endpoint);
            assert!(s3(&url, &options).is_ok(), "{endpoint}");
        }
        for endpoint in ["localhost:8333", "127.0.0.1:1", "", "http://local host", "ftp://h"] {
            let options = StoreOptions::new().set("aws_endpoint_url", endpoint);
            let error = s3(&url, &options).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{endpoint}: {error}");
        }
    }
}
