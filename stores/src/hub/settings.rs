//! [`Settings`]: where the Hub and its cache are, and who asks. They come from the options of a
//! store and from the environment, which has the names that the Hub's own tools read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object_store::{ClientConfigKey, RetryConfig};
use onnx_container::{Error, ErrorKind, Result};
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Proxy, Url};

use crate::clients::{CLIENT, retries};
use crate::options::StoreOptions;

const NAMES: [&str; 5] = ["hf_endpoint", "hf_token", "hf_home", "hf_hub_cache", "hf_hub_offline"];
const ENDPOINT: &str = "https://huggingface.co";

/// What the options and the environment say. It has a secret, and so is not shown.
pub(super) struct Settings {
    pub(super) endpoint: Url,
    /// The value of the header that says who asks.
    pub(super) token: Option<HeaderValue>,
    /// The folder of the cache, which need not be there.
    pub(super) cache: Option<PathBuf>,
    /// Whether nothing may be requested.
    pub(super) offline: bool,
    pub(super) http: reqwest::Client,
    pub(super) retries: RetryConfig,
}

impl Settings {
    /// The settings of a store that errors call `root`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an option that the Hub does not have, and for a value
    /// that its option does not take.
    pub(super) fn of(options: &StoreOptions, root: &str) -> Result<Self> {
        let set = &options.set;
        let home = home(set);
        let cache = value(set, "hf_hub_cache").map(PathBuf::from);
        Ok(Self {
            endpoint: endpoint(set)?,
            token: token(set, home.as_deref())?,
            cache: cache.or_else(|| home.map(|home| home.join("hub"))),
            offline: value(set, "hf_hub_offline").is_some_and(|value| is_true(&value)),
            http: client(set, root)?,
            retries: retries(options),
        })
    }
}

/// The value of an option, else of the variable of its name. An empty one is none.
fn value(set: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let value = match set.get(name) {
        Some(value) => value.clone(),
        None => std::env::var(name.to_ascii_uppercase()).ok()?,
    };
    (!value.is_empty()).then_some(value)
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// The folder of what the Hub's tools keep.
fn home(set: &BTreeMap<String, String>) -> Option<PathBuf> {
    if let Some(home) = value(set, "hf_home") {
        return Some(home.into());
    }
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let caches = caches.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(caches.join("huggingface"))
}

fn endpoint(set: &BTreeMap<String, String>) -> Result<Url> {
    let stated = value(set, "hf_endpoint").unwrap_or_else(|| ENDPOINT.to_owned());
    match Url::parse(&stated) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && is_bare(&url) => Ok(url),
        _ => Err(invalid("HF_ENDPOINT is no address of a server, such as https://huggingface.co")),
    }
}

/// Whether an address has nothing that may be secret.
fn is_bare(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none() && url.query().is_none()
}

fn token(set: &BTreeMap<String, String>, home: Option<&Path>) -> Result<Option<HeaderValue>> {
    let in_file = || std::fs::read_to_string(home?.join("token")).ok();
    let stated = match set.contains_key("hf_token") {
        true => value(set, "hf_token"),
        false => value(set, "hf_token").or_else(in_file),
    };
    let Some(token) = stated.as_deref().map(str::trim).filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    let Ok(mut header) = HeaderValue::from_str(&format!("Bearer {token}")) else {
        return Err(invalid("HF_TOKEN has letters that no token has"));
    };
    header.set_sensitive(true);
    Ok(Some(header))
}

/// A client that follows no redirects: they say where a file is, and for how long.
fn client(set: &BTreeMap<String, String>, root: &str) -> Result<reqwest::Client> {
    let agent = concat!("onnx-container/", env!("CARGO_PKG_VERSION"));
    let mut builder =
        reqwest::Client::builder().redirect(Policy::none()).http1_only().user_agent(agent);
    for (key, value) in CLIENT {
        builder = configured(builder, key, value, root)?;
    }
    for (name, value) in set.iter().filter(|(name, _)| !NAMES.contains(&name.as_str())) {
        let key = name.parse().map_err(|_| unknown(name, root))?;
        builder = configured(builder, key, value, root)?;
    }
    builder.build().map_err(|error| invalid(format!("no client can be made: {error}")))
}

fn configured(
    builder: ClientBuilder,
    key: ClientConfigKey,
    value: &str,
    root: &str,
) -> Result<ClientBuilder> {
    Ok(match key {
        ClientConfigKey::Timeout => builder.timeout(duration(&key, value)?),
        ClientConfigKey::ConnectTimeout => builder.connect_timeout(duration(&key, value)?),
        ClientConfigKey::ReadTimeout => builder.read_timeout(duration(&key, value)?),
        ClientConfigKey::PoolIdleTimeout => builder.pool_idle_timeout(duration(&key, value)?),
        ClientConfigKey::ProxyUrl => {
            let proxy = Proxy::all(value);
            builder.proxy(proxy.map_err(|_| invalid("`proxy_url` is no address of a proxy"))?)
        }
        // An endpoint without encryption is one that was stated so.
        ClientConfigKey::AllowHttp => builder,
        key => return Err(unknown(key.as_ref(), root)),
    })
}

fn duration(key: &ClientConfigKey, value: &str) -> Result<Duration> {
    let no_time = |_| invalid(format!("`{}` takes a time such as `30 seconds`", key.as_ref()));
    humantime::parse_duration(value).map_err(no_time)
}

fn unknown(name: &str, root: &str) -> Error {
    invalid(format!("`{root}` has no option `{name}`"))
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, reason)
}
