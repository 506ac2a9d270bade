//! [`StoreOptions`]: how stores are reached.

use std::collections::BTreeMap;
use std::fmt;

/// How a store is reached. What is not set comes from the environment: `AWS_*`, `AZURE_*`,
/// `GOOGLE_*`, `HF_*`, as the tools of the stores read it.
///
/// ```
/// use onnx_container_store::StoreOptions;
///
/// let options = StoreOptions::new()
///     .set("aws_endpoint_url", "http://localhost:8333")
///     .set("aws_region", "us-east-1");
/// // Values may be secret, so they are not shown.
/// assert_eq!(format!("{options:?}"), "StoreOptions { set: [\"aws_endpoint_url\", \"aws_region\"], \
///     max_retries: 10, trust_conditions: false }");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoreOptions {
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) max_retries: usize,
    pub(crate) trust_conditions: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { set: BTreeMap::new(), max_retries: 10, trust_conditions: false }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("set", &self.set.keys().collect::<Vec<_>>())
            .field("max_retries", &self.max_retries)
            .field("trust_conditions", &self.trust_conditions)
            .finish()
    }
}

impl StoreOptions {
    /// The environment alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a value by its name, in place of that of the environment: the names of object_store's
    /// configuration, such as `aws_access_key_id`, `aws_endpoint_url`, `aws_skip_signature`,
    /// `azure_storage_account_name`, `google_service_account`, and for every store `allow_http`,
    /// `connect_timeout`, `read_timeout`, `proxy_url`. The Hub has `hf_endpoint`, `hf_token`,
    /// `hf_home`, `hf_hub_cache` and `hf_hub_offline`, of which an empty value is none. A name that
    /// the store does not have is an error when the store is opened.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.insert(name.into().to_ascii_lowercase(), value.into());
        self
    }

    /// How often a request is repeated that failed for reasons that may pass, within three
    /// minutes. Default 10.
    #[must_use]
    pub fn max_retries(mut self, retries: usize) -> Self {
        self.max_retries = retries;
        self
    }

    /// Whether the store is believed to honour conditions of requests, so that a publication does
    /// not try it first. Default false: S3, Google Cloud Storage and Azure are believed, other
    /// endpoints are tried once per process.
    #[must_use]
    pub fn trust_conditions(mut self, trust: bool) -> Self {
        self.trust_conditions = trust;
        self
    }
}
