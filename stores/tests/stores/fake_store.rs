//! [`FakeStore`]: as much of S3 and of the XML API of Google Cloud Storage as a publication and a
//! load ask for, in memory, that fails as it is told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use onnx_container_store::{Store, StoreOptions, StoreUrl};
use sha2::{Digest, Sha256};

use crate::http::{Answer, Request, Response, serve};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Head,
    /// A read without a range.
    Whole,
    Range,
    List,
    /// A put without a condition.
    Put,
    /// A put of what is to be new.
    Create,
    /// A put in the place of one version.
    Update,
    Begin,
    Part,
    Complete,
    Abort,
    Delete,
}

/// How a client speaks to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    #[default]
    S3,
    /// Objects have generations beside tags, and one that is not there cannot be deleted.
    Gcs,
}

pub const DIALECTS: [Dialect; 2] = [Dialect::S3, Dialect::Gcs];

/// What is asked of the object that a put replaces.
enum Condition<'a> {
    IsNone,
    HasTag(&'a str),
    HasGeneration(&'a str),
}

fn condition_of(request: &Request) -> Option<Condition<'_>> {
    let generation = request.header("x-goog-if-generation-match").map(|number| match number {
        "0" => Condition::IsNone,
        number => Condition::HasGeneration(number),
    });
    let is_new = request.header("if-none-match").map(|_| Condition::IsNone);
    is_new.or(generation).or(request.header("if-match").map(Condition::HasTag))
}

pub fn kind_of(request: &Request) -> Kind {
    let has = |name| request.query(name).is_some();
    let is_weights = !request.path().ends_with(".onnx") && !request.path().contains("probe");
    match request.method.as_str() {
        "HEAD" => Kind::Head,
        "GET" if has("list-type") => Kind::List,
        "GET" if request.range().is_some() => Kind::Range,
        "GET" => Kind::Whole,
        "PUT" if has("partNumber") => Kind::Part,
        "PUT" => match condition_of(request) {
            Some(Condition::IsNone) if !is_weights => Kind::Create,
            None | Some(Condition::IsNone) => Kind::Put,
            Some(_) => Kind::Update,
        },
        "POST" if has("uploads") => Kind::Begin,
        "POST" if has("uploadId") => Kind::Complete,
        "DELETE" if has("uploadId") => Kind::Abort,
        "DELETE" => Kind::Delete,
        other => panic!("no request of these tests: {other} {}", request.target),
    }
}

#[derive(Clone)]
pub struct Stored {
    pub bytes: Arc<Vec<u8>>,
    pub tag: String,
    /// Of Google: another number each time the object is written.
    generation: String,
    pub modified: SystemTime,
}

type Parts = BTreeMap<u32, Vec<u8>>;
/// Makes of a request and the answer to it the answer that is sent.
type Fault = dyn FnMut(&Request, Answered) -> Answer + Send;
/// Answers the request when it is called. One that is not answered has no effect.
pub type Answered<'a> = Box<dyn FnOnce() -> Response + 'a>;

#[derive(Default)]
struct Inner {
    dialect: Dialect,
    /// By bucket and key, with a slash between.
    objects: Mutex<BTreeMap<String, Stored>>,
    /// Uploads that have begun and not ended, by their numbers: the name of the object, and parts.
    uploads: Mutex<HashMap<String, (String, Parts)>>,
    uploads_begun: AtomicUsize,
    log: Mutex<Vec<(Kind, String)>>,
    fault: Mutex<Option<Box<Fault>>>,
    ignores_create: bool,
    ignores_match: bool,
}

#[derive(Clone)]
pub struct FakeStore {
    inner: Arc<Inner>,
    pub port: u16,
}

impl FakeStore {
    pub fn new() -> Self {
        Self::speaking(Dialect::S3)
    }

    pub fn speaking(dialect: Dialect) -> Self {
        Self::ignoring(dialect, false, false)
    }

    /// One that accepts and ignores the condition that an object is new, or is a certain version.
    pub fn ignoring(dialect: Dialect, create: bool, matches: bool) -> Self {
        let (ignores_create, ignores_match) = (create, matches);
        let inner = Inner { dialect, ignores_create, ignores_match, ..Inner::default() };
        let inner = Arc::new(inner);
        let served = Arc::clone(&inner);
        let port = serve(move |request| served.answer(request));
        Self { inner, port }
    }

    /// The URL of its bucket, without a slash at its end.
    pub fn root(&self) -> &'static str {
        match self.inner.dialect {
            Dialect::S3 => "s3://models",
            Dialect::Gcs => "gs://models",
        }
    }

    pub fn url(&self, key: &str) -> StoreUrl {
        StoreUrl::parse(&format!("{}/{key}", self.root())).unwrap()
    }

    /// How the store is reached: each request is made once.
    pub fn options(&self) -> StoreOptions {
        self.options_through(self.port)
    }

    /// How the store is reached through a server that stands before it.
    pub fn options_through(&self, port: u16) -> StoreOptions {
        match self.inner.dialect {
            Dialect::S3 => options(port),
            Dialect::Gcs => {
                let account = account(port);
                StoreOptions::new().set("google_service_account_key", account).max_retries(0)
            }
        }
    }

    /// A service account of Google with which the store is reached.
    pub fn account(&self) -> String {
        account(self.port)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.url("m.onnx"), &self.options()).unwrap()
    }

    /// From now on every request goes through `fault`.
    pub fn fail(&self, fault: impl FnMut(&Request, Answered) -> Answer + Send + 'static) {
        *self.inner.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub fn work(&self) {
        *self.inner.fault.lock().unwrap() = None;
    }

    /// What was asked for since the last call.
    pub fn log(&self) -> Vec<(Kind, String)> {
        std::mem::take(&mut self.inner.log.lock().unwrap())
    }

    /// The objects of the bucket `models`.
    pub fn objects(&self) -> BTreeMap<String, Stored> {
        let objects = self.inner.objects.lock().unwrap();
        let key = |(name, stored): (&String, &Stored)| {
            Some((name.strip_prefix("models/")?.to_owned(), stored.clone()))
        };
        objects.iter().filter_map(key).collect()
    }

    /// How many uploads have begun and not ended.
    pub fn uploads(&self) -> usize {
        self.inner.uploads.lock().unwrap().len()
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.objects().into_keys().collect()
    }

    /// Has these objects alone.
    pub fn restore(&self, objects: &BTreeMap<String, Stored>) {
        let named = objects.iter().map(|(key, stored)| (format!("models/{key}"), stored.clone()));
        *self.inner.objects.lock().unwrap() = named.collect();
    }

    /// Makes all objects older.
    pub fn age(&self, by: Duration) {
        // Not before 1971: a time that is no time counts as none.
        let first = SystemTime::UNIX_EPOCH + Duration::from_secs(365 * 24 * 3600);
        for stored in self.inner.objects.lock().unwrap().values_mut() {
            stored.modified = stored.modified.checked_sub(by).unwrap_or(first).max(first);
        }
    }
}

/// How a server of S3 on this machine is reached: without a signature, each request made once.
pub fn options(port: u16) -> StoreOptions {
    StoreOptions::new()
        .set("aws_endpoint_url", format!("http://127.0.0.1:{port}"))
        .set("aws_region", "us-east-1")
        .set("aws_skip_signature", "true")
        .max_retries(0)
}

/// An account as emulators of Google have it.
fn account(port: u16) -> String {
    format!(
        r#"{{"gcs_base_url": "http://127.0.0.1:{port}", "disable_oauth": true,
            "client_email": "", "private_key": "", "private_key_id": ""}}"#
    )
}

impl Inner {
    fn answer(&self, request: &Request) -> Answer {
        let key = request.path();
        let key = key.strip_prefix("models/").unwrap_or(&key).to_owned();
        self.log.lock().unwrap().push((kind_of(request), key));
        let answered = || self.respond(request);
        match &mut *self.fault.lock().unwrap() {
            Some(fault) => fault(request, Box::new(answered)),
            None => Answer::Response(answered()),
        }
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.objects.lock().unwrap()
    }

    fn respond(&self, request: &Request) -> Response {
        let name = request.path();
        let upload = request.query("uploadId").unwrap_or_default();
        match kind_of(request) {
            Kind::Head | Kind::Whole | Kind::Range => self.read(request, &name),
            Kind::List => self.list(request, &name),
            Kind::Put | Kind::Create | Kind::Update => self.put_if(request, &name),
            Kind::Begin => {
                let id = self.uploads_begun.fetch_add(1, Ordering::Relaxed).to_string();
                self.uploads.lock().unwrap().insert(id.clone(), (name, Parts::new()));
                xml(format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId>\
                     </InitiateMultipartUploadResult>"
                ))
            }
            Kind::Part => {
                let number = request.query("partNumber").unwrap().parse().unwrap();
                let tag = tag_of(&request.body);
                match self.uploads.lock().unwrap().get_mut(&upload) {
                    Some((_, parts)) => parts.insert(number, request.body.clone()),
                    None => return failed(404, "NoSuchUpload"),
                };
                Response::new(200, "").with("etag", tag)
            }
            Kind::Complete => {
                let Some((name, parts)) = self.uploads.lock().unwrap().remove(&upload) else {
                    return failed(404, "NoSuchUpload");
                };
                let stored = stored(parts.into_values().collect::<Vec<_>>().concat());
                let (tag, generation) = (stored.tag.clone(), stored.generation.clone());
                self.objects().insert(name, stored);
                let body = format!(
                    "<CompleteMultipartUploadResult><ETag>{tag}</ETag>\
                     </CompleteMultipartUploadResult>"
                );
                xml(body).with("x-goog-generation", generation)
            }
            Kind::Abort => {
                self.uploads.lock().unwrap().remove(&upload);
                Response::new(204, "")
            }
            Kind::Delete => match (self.objects().remove(&name), self.dialect) {
                (None, Dialect::Gcs) => failed(404, "NoSuchKey"),
                _ => Response::new(204, ""),
            },
        }
    }

    fn read(&self, request: &Request, name: &str) -> Response {
        let Some(stored) = self.objects().get(name).cloned() else {
            return failed(404, "NoSuchKey");
        };
        if request.header("if-match").is_some_and(|tag| tag != stored.tag) && !self.ignores_match {
            return failed(412, "PreconditionFailed");
        }
        let modified = chrono::DateTime::<chrono::Utc>::from(stored.modified);
        let len = stored.bytes.len();
        let answer = match request.range() {
            None => Response::new(200, stored.bytes.to_vec()),
            Some((start, _)) if start >= len => return failed(416, "InvalidRange"),
            Some((start, end)) => {
                let end = end.min(len);
                Response::new(206, &stored.bytes[start..end])
                    .with("content-range", format!("bytes {start}-{}/{len}", end - 1))
            }
        };
        let answer = answer.with("etag", stored.tag).with("x-goog-generation", stored.generation);
        answer.with("last-modified", modified.to_rfc2822())
    }

    fn put_if(&self, request: &Request, name: &str) -> Response {
        // The lock is held until the object is there, or two requests would both be the first.
        let mut objects = self.objects();
        let found = objects.get(name);
        let refused = match condition_of(request) {
            Some(Condition::IsNone) => !self.ignores_create && found.is_some(),
            Some(Condition::HasTag(tag)) => {
                !self.ignores_match && found.is_none_or(|found| found.tag != tag)
            }
            Some(Condition::HasGeneration(number)) => {
                !self.ignores_match && found.is_none_or(|found| found.generation != number)
            }
            None => false,
        };
        if refused {
            return failed(412, "PreconditionFailed");
        }
        let stored = stored(request.body.clone());
        let answer = Response::new(200, "").with("etag", stored.tag.clone());
        let answer = answer.with("x-goog-generation", stored.generation.clone());
        objects.insert(name.to_owned(), stored);
        answer
    }

    fn list(&self, request: &Request, bucket: &str) -> Response {
        let prefix = request.query("prefix").unwrap_or_default();
        let delimiter = request.query("delimiter");
        let after = request.query("start-after").unwrap_or_default();
        let start = format!("{}/", bucket.trim_end_matches('/'));
        let (mut listed, mut folders) = (String::new(), BTreeSet::new());
        for (name, stored) in &*self.objects() {
            let Some(key) = name.strip_prefix(&start) else { continue };
            let Some(rest) = key.strip_prefix(&prefix) else { continue };
            if key <= after.as_str() {
                continue;
            }
            let below = delimiter.as_ref().and_then(|delimiter| rest.split_once(delimiter));
            if let Some((folder, _)) = below {
                folders.insert(format!("{prefix}{folder}/"));
                continue;
            }
            let modified = chrono::DateTime::<chrono::Utc>::from(stored.modified).to_rfc3339();
            listed.push_str(&format!(
                "<Contents><Key>{}</Key><Size>{}</Size><LastModified>{modified}</LastModified>\
                 <ETag>{}</ETag></Contents>",
                escaped(key),
                stored.bytes.len(),
                escaped(&stored.tag)
            ));
        }
        for folder in folders {
            let folder = escaped(&folder);
            listed.push_str(&format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"));
        }
        xml(format!("<ListBucketResult>{listed}</ListBucketResult>"))
    }
}

fn stored(bytes: Vec<u8>) -> Stored {
    static WRITTEN: AtomicU64 = AtomicU64::new(1);
    let (tag, number) = (tag_of(&bytes), WRITTEN.fetch_add(1, Ordering::Relaxed));
    let generation = format!("{}", 1_790_000_000_000_000 + number);
    Stored { bytes: Arc::new(bytes), tag, generation, modified: SystemTime::now() }
}

fn tag_of(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    format!("\"{:02x}{:02x}{:02x}{:02x}\"", sum[0], sum[1], sum[2], sum[3])
}

pub fn failed(status: u16, code: &str) -> Response {
    let body = format!("<Error><Code>{code}</Code></Error>");
    Response::new(status, body).with("content-type", "application/xml")
}

fn xml(body: String) -> Response {
    Response::new(200, body).with("content-type", "application/xml")
}

const ESCAPES: [(&str, &str); 5] =
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&apos;")];

fn escaped(text: &str) -> String {
    ESCAPES.iter().fold(text.to_owned(), |text, (plain, entity)| text.replace(plain, entity))
}
