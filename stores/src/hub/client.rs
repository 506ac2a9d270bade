//! [`Client`]: requests to the Hub and to the servers that it sends readers to.
//!
//! What may pass is asked again. A redirect is followed one step at a time, as the token is
//! for the Hub alone, and the Hub's answer has what the last server does not know.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use object_store::RetryConfig;
use onnx_container::{Error, ErrorKind, Result};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, RANGE,
    RETRY_AFTER,
};
use reqwest::{Method, Response, StatusCode, Url};

use super::settings::Settings;

/// The most redirects of one request.
const HOPS: usize = 5;
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Where the Hub says how many requests are left.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What asks the Hub.
pub(super) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    token: Option<HeaderValue>,
    retries: RetryConfig,
    offline: bool,
}

/// Which redirects a request follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// Those within the Hub.
    Hub,
    All,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.endpoint.as_str()).finish()
    }
}

impl Client {
    pub(super) fn new(settings: Settings) -> Self {
        let Settings { endpoint, token, http, retries, offline, .. } = settings;
        Self { http, endpoint, token, retries, offline }
    }

    /// Whether requests say who asks.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn is_offline(&self) -> bool {
        self.offline
    }

    /// The address of these components at the Hub.
    pub(super) fn address<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Result<Url> {
        let mut url = self.endpoint.clone();
        match url.path_segments_mut() {
            Ok(mut path) => path.pop_if_empty().extend(parts),
            Err(()) => return Err(Error::internal("the endpoint of the Hub has no path")),
        };
        Ok(url)
    }

    /// Whether an address is one of the Hub.
    pub(super) fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    /// The answer to a request: the last one, where earlier ones failed or sent it elsewhere.
    pub(super) async fn send(
        &self,
        method: Method,
        mut url: Url,
        range: Option<&Range<u64>>,
        follow: Follow,
    ) -> Result<Response> {
        if self.offline {
            let reason = "HF_HUB_OFFLINE is set, so nothing is asked of the Hub";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        for _ in 0..=HOPS {
            let answer = self.repeated(&method, &url, range).await?;
            match self.next(&answer)? {
                Some(next) if follow == Follow::All || self.is_hub(&next) => url = next,
                _ => return Ok(answer),
            }
        }
        Err(failed("the Hub sends the request from one address to the next, without an end"))
    }

    /// Where an answer sends its reader.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for an address that is none, or that gives up encryption.
    pub(super) fn next(&self, answer: &Response) -> Result<Option<Url>> {
        if !answer.status().is_redirection() {
            return Ok(None);
        }
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        match location.and_then(|location| target(answer.url(), location)) {
            Some(url) => Ok(Some(url)),
            None => Err(failed("the Hub sends the request to no address that can be used")),
        }
    }

    /// The answer to a request, again where the failure may pass.
    async fn repeated(
        &self,
        method: &Method,
        url: &Url,
        range: Option<&Range<u64>>,
    ) -> Result<Response> {
        let (start, backoff) = (Instant::now(), &self.retries.backoff);
        let (mut pause, mut left) = (backoff.init_backoff, self.retries.max_retries);
        loop {
            let answer = self.once(method, url, range).await;
            let wait = match &answer {
                Ok(answer) if !passes(answer.status()) => None,
                Ok(answer) => Some(retry_after(answer.headers(), Utc::now()).unwrap_or(pause)),
                Err(_) => Some(pause),
            };
            match wait {
                Some(wait) if left > 0 && start.elapsed() + wait < self.retries.retry_timeout => {
                    tokio::time::sleep(wait).await;
                }
                _ => return answer.map_err(unreached),
            }
            left -= 1;
            pause = pause.mul_f64(backoff.base).min(backoff.max_backoff);
        }
    }

    async fn once(
        &self,
        method: &Method,
        url: &Url,
        range: Option<&Range<u64>>,
    ) -> reqwest::Result<Response> {
        // Compressed, a file has another length.
        let request =
            self.http.request(method.clone(), url.clone()).header(ACCEPT_ENCODING, "identity");
        let request = match &self.token {
            Some(token) if self.is_hub(url) => request.header(AUTHORIZATION, token),
            _ => request,
        };
        let request = match range {
            Some(range) => {
                let last = range.end.saturating_sub(1);
                request.header(RANGE, format!("bytes={}-{last}", range.start))
            }
            None => request,
        };
        request.send().await
    }
}

/// The address that a redirect names, unless it gives up encryption.
fn target(from: &Url, location: &str) -> Option<Url> {
    let url = from.join(location).ok()?;
    let schemes = (from.scheme(), url.scheme());
    matches!(schemes, (_, "https") | ("http", "http")).then_some(url)
}

/// Whether a failure may pass.
fn passes(status: StatusCode) -> bool {
    let for_now = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    status.is_server_error() || for_now.contains(&status)
}

/// How long a server wants its client to wait, within bounds.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let stated = text(RETRY_AFTER).and_then(|stated| match stated.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let until = DateTime::parse_from_rfc2822(stated).ok()?;
            Some(until.signed_duration_since(now).to_std().unwrap_or_default())
        }
    });
    let wait = stated.or_else(|| until_reset(text(RATE_LIMIT)?))?;
    Some(wait.min(LONGEST_WAIT))
}

/// When requests are allowed again, of `"api";r=0;t=55`: none are left, and 55 seconds.
fn until_reset(limit: &str) -> Option<Duration> {
    let mut fields = limit.split(';').map(str::trim);
    fields.find(|field| *field == "r=0")?;
    let seconds = fields.find_map(|field| field.strip_prefix("t="))?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

/// What keeps a server from being reached, without its address, which may be signed.
pub(super) fn unreached(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    failed(format!("the Hub is not reached: {said}"))
}

fn failed(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_keep_encryption() {
        // Where the answer is from, what it says, and where it leads.
        let cases = [
            ("https://h/a/b", "/c?d", Some("https://h/c?d")),
            ("https://h/a", "https://files/x?signature=1", Some("https://files/x?signature=1")),
            ("https://h/a", "http://files/x", None),
            ("http://h/a", "http://files/x", Some("http://files/x")),
            ("http://h/a", "https://files/x", Some("https://files/x")),
            ("http://h/a", "file:///etc/passwd", None),
            ("https://h/a", "https://", None),
        ];
        for (from, location, to) in cases {
            let found = target(&Url::parse(from).unwrap(), location);
            assert_eq!(found.as_ref().map(Url::as_str), to, "{from} {location}");
        }
    }

    #[test]
    fn servers_say_how_long_to_wait() {
        let now = DateTime::parse_from_rfc2822("Fri, 27 Nov 2026 18:00:00 GMT").unwrap().to_utc();
        // The header, what it says, and seconds.
        let cases = [
            (RATE_LIMIT, "\"api\";r=0;t=55", Some(55)),
            (RATE_LIMIT, "\"api\"; r=0; t=300", Some(60)),
            (RATE_LIMIT, "\"api\";r=7;t=55", None),
            (RATE_LIMIT, "7", None),
            (RETRY_AFTER, "7", Some(7)),
            (RETRY_AFTER, "0", Some(0)),
            (RETRY_AFTER, "3600", Some(60)),
            (RETRY_AFTER, "Fri, 27 Nov 2026 18:00:09 GMT", Some(9)),
            (RETRY_AFTER, "Fri, 27 Nov 2026 17:00:00 GMT", Some(0)),
            (RETRY_AFTER, "soon", None),
            (RETRY_AFTER, "-1", None),
        ];
        for (header, said, seconds) in cases {
            let headers = HeaderMap::from_iter([(header, HeaderValue::from_static(said))]);
            let wait = retry_after(&headers, now);
            assert_eq!(wait, seconds.map(Duration::from_secs), "{said}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
