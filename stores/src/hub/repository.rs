//! [`Repository`]: the files of a repository at one commit.
//!
//! The first request finds the commit of the revision. What the Hub knows of a file is asked once:
//! its size, its tag, which is the SHA-256 of a large file, and the address where its bytes are,
//! which is signed for a while. When it is refused, the Hub is asked again.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use onnx_container::{Error, ErrorKind, Result};
use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, LINK};
use reqwest::{Method, Response, Url};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::cache::{Cache, Cached};
use super::client::{Client, Follow, unreached};
use super::refused::{Asked, refused};

const REPO_COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
const LINKED_TAG: HeaderName = HeaderName::from_static("x-linked-etag");

/// No answer of the Hub is longer: a page of its list has a thousand files.
const LONGEST: usize = 64 << 20;

/// A repository at one commit, which is found by the first request.
#[derive(Debug)]
pub(super) struct Repository {
    client: Client,
    /// `owner/name`.
    name: String,
    revision: String,
    cache: Option<Cache>,
    commit: OnceCell<String>,
    files: Mutex<HashMap<String, Arc<Slot>>>,
}

/// A file that was asked for.
type Slot = tokio::sync::Mutex<Option<Found>>;

/// Where a file is.
#[derive(Debug, Clone)]
pub(super) enum Found {
    OnDisk(Cached),
    AtHub(Arc<Resolved>),
}

/// What the Hub says of a file.
pub(super) struct Resolved {
    pub(super) size: u64,
    pub(super) tag: Option<String>,
    /// Where its bytes are. It may be signed, and so is not shown.
    pub(super) place: Url,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("size", &self.size).field("tag", &self.tag).finish()
    }
}

impl Found {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::OnDisk(file) => file.size,
            Self::AtHub(file) => file.size,
        }
    }

    /// The tag that the Hub gave the file, without quotes.
    pub(super) fn tag(&self) -> Option<&str> {
        match self {
            Self::OnDisk(file) => file.tag.as_deref(),
            Self::AtHub(file) => file.tag.as_deref(),
        }
    }
}

impl Repository {
    pub(super) fn new(
        client: Client,
        name: String,
        revision: String,
        cache: Option<Cache>,
    ) -> Self {
        let (commit, files) = (OnceCell::new(), Mutex::default());
        Self { client, name, revision, cache, commit, files }
    }

    /// The commit that all files are of.
    pub(super) async fn commit(&self) -> Result<&str> {
        let commit = self.commit.get_or_try_init(|| self.find_commit()).await?;
        Ok(commit)
    }

    async fn find_commit(&self) -> Result<String> {
        if is_commit(&self.revision) {
            return Ok(self.revision.clone());
        }
        let commit = match self.client.is_offline() {
            true => self.cache.as_ref().and_then(|cache| cache.commit(&self.revision)),
            false => self.ask_commit().await?,
        };
        commit.filter(|commit| is_commit(commit)).ok_or_else(|| match self.client.is_offline() {
            true => self.not_cached(&format!("revision `{}`", self.revision)),
            false => Error::new(ErrorKind::Io, "the Hub does not say which commit it has"),
        })
    }

    async fn ask_commit(&self) -> Result<Option<String>> {
        let parts = ["api", "models"].into_iter().chain(self.name.split('/'));
        let url = self.client.address(parts.chain(["revision", &self.revision]))?;
        let answer = self.client.send(Method::GET, url, None, Follow::Hub).await?;
        let said = self.json(answer, Asked::Revision(&self.revision)).await?;
        Ok(said.get("sha").and_then(Value::as_str).map(str::to_owned))
    }

    async fn json(&self, answer: Response, asked: Asked<'_>) -> Result<Value> {
        if !answer.status().is_success() {
            return Err(refused(&answer, &self.name, asked, self.client.has_token()));
        }
        let bytes = bounded(answer).await?;
        let no_json =
            |_| Error::new(ErrorKind::Io, "the Hub answers with something that is no JSON");
        serde_json::from_slice(&bytes).map_err(no_json)
    }

    fn not_cached(&self, what: &str) -> Error {
        let reason = format!(
            "HF_HUB_OFFLINE is set, and the cache of the Hub has no {what} of `{}`: fetch it \
             before with `hf download`",
            self.name
        );
        Error::new(ErrorKind::MissingFile, reason)
    }

    /// Where the file at `path` is.
    pub(super) async fn find(&self, path: &str) -> Result<Found> {
        let slot = self.slot(path);
        let mut found = slot.lock().await;
        match &*found {
            Some(found) => Ok(found.clone()),
            None => Ok(found.insert(self.look(path).await?).clone()),
        }
    }

    fn slot(&self, path: &str) -> Arc<Slot> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(path.to_owned()).or_default().clone()
    }

    async fn look(&self, path: &str) -> Result<Found> {
        let commit = self.commit().await?;
        if let Some(file) = self.cache.as_ref().and_then(|cache| cache.file(commit, path)) {
            return Ok(Found::OnDisk(file));
        }
        if self.client.is_offline() {
            return Err(self.not_cached(&format!("such file at commit {commit}")));
        }
        Ok(Found::AtHub(Arc::new(self.resolve(path).await?)))
    }

    /// What the Hub says of a file now.
    async fn resolve(&self, path: &str) -> Result<Resolved> {
        let commit = self.commit().await?;
        let parts = self.name.split('/').chain(["resolve", commit]).chain(path.split('/'));
        let url = self.client.address(parts)?;
        let answer = self.client.send(Method::HEAD, url, None, Follow::Hub).await?;
        let place = self.client.next(&answer)?;
        if place.is_none() && !answer.status().is_success() {
            let asked = Asked::Commit(commit);
            return Err(refused(&answer, &self.name, asked, self.client.has_token()));
        }
        let headers = answer.headers();
        if text(headers, &REPO_COMMIT).is_some_and(|served| served != commit) {
            let reason = format!("the Hub was asked for commit {commit}, and has another");
            return Err(Error::new(ErrorKind::Io, reason));
        }
        let length = || text(headers, &CONTENT_LENGTH).filter(|_| place.is_none());
        let size = text(headers, &LINKED_SIZE).or_else(length).and_then(|size| size.parse().ok());
        let Some(size) = size else {
            return Err(Error::new(ErrorKind::Io, "the Hub does not say how long the file is"));
        };
        let own_tag = || text(headers, &ETAG).filter(|_| place.is_none());
        let tag = text(headers, &LINKED_TAG).or_else(own_tag).map(bare_tag);
        Ok(Resolved { size, tag, place: place.unwrap_or_else(|| answer.url().clone()) })
    }

    /// What the Hub says of a file, for a reader to whom `stale` was refused.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it is another file by now: a commit does not change.
    pub(super) async fn resolve_again(
        &self,
        path: &str,
        stale: &Arc<Resolved>,
    ) -> Result<Arc<Resolved>> {
        let slot = self.slot(path);
        let mut found = slot.lock().await;
        match &*found {
            // Another reader has asked.
            Some(Found::AtHub(newer)) if !Arc::ptr_eq(newer, stale) => Ok(newer.clone()),
            _ => {
                let newer = Arc::new(self.resolve(path).await?);
                if (newer.size, &newer.tag) != (stale.size, &stale.tag) {
                    let reason = "the Hub says that the file is another one than before";
                    return Err(Error::new(ErrorKind::Io, reason));
                }
                *found = Some(Found::AtHub(newer.clone()));
                Ok(newer)
            }
        }
    }

    /// The answer to a request for a range of what is at `place`, or for all of it.
    pub(super) async fn get(&self, place: &Url, range: Option<&Range<u64>>) -> Result<Response> {
        self.client.send(Method::GET, place.clone(), range, Follow::All).await
    }

    /// A page of what the Hub says of its files, and the address of the next one.
    pub(super) async fn page(&self, url: Url) -> Result<(Value, Option<Url>)> {
        let commit = self.commit().await?;
        let answer = self.client.send(Method::GET, url, None, Follow::Hub).await?;
        let next = text(answer.headers(), &LINK).and_then(next_page);
        let next = next.and_then(|next| answer.url().join(next).ok());
        let page = self.json(answer, Asked::Commit(commit)).await?;
        Ok((page, next.filter(|next| self.client.is_hub(next))))
    }

    /// The address of a folder of the commit in the list of its files.
    pub(super) async fn folder(&self, path: Option<&str>) -> Result<Url> {
        let parts = ["api", "models"].into_iter().chain(self.name.split('/'));
        let parts = parts.chain(["tree", self.commit().await?]);
        self.client.address(parts.chain(path.into_iter().flat_map(|path| path.split('/'))))
    }

    /// The error of an answer that is none.
    pub(super) fn refused(&self, answer: &Response) -> Error {
        let commit = self.commit.get().map_or(self.revision.as_str(), String::as_str);
        refused(answer, &self.name, Asked::Commit(commit), self.client.has_token())
    }

    /// Whether what is at `place` is read with an address that the Hub signed.
    pub(super) fn is_signed(&self, place: &Url) -> bool {
        !self.client.is_hub(place)
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A tag without what a header has around it.
fn bare_tag(tag: &str) -> String {
    tag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// The next page of `<address>; rel="next", ...`.
fn next_page(links: &str) -> Option<&str> {
    let mut links = links.split('<').filter_map(|link| link.split_once('>'));
    links.find(|(_, about)| about.contains("rel=\"next\"")).map(|(address, _)| address)
}

/// The body of an answer that is not a file.
async fn bounded(mut answer: Response) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreached)? {
        if bytes.len().saturating_add(chunk.len()) > LONGEST {
            return Err(Error::new(ErrorKind::TooLarge, "the answer of the Hub has no end"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_the_next_page() {
        let cases = [
            ("<https://h/x?cursor=a,b>; rel=\"next\"", Some("https://h/x?cursor=a,b")),
            ("<https://h/1>; rel=\"first\", <https://h/2>; rel=\"next\"", Some("https://h/2")),
            ("<https://h/1>; rel=\"first\"", None),
            ("", None),
        ];
        for (links, next) in cases {
            assert_eq!(next_page(links), next, "{links}");
        }
    }

    #[test]
    fn tags_are_without_quotes() {
        for (tag, bare) in [("\"a\"", "a"), ("W/\"a\"", "a"), ("a", "a")] {
            assert_eq!(bare_tag(tag), bare);
        }
    }
}
