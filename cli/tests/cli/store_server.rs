//! A small S3 for tests, which counts what it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support::{Folder, Run};

/// An object: its bytes and its tag.
pub type Object = (Vec<u8>, String);

/// A store with one bucket.
#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Object>,
    /// The folders that a listing has without an object, as SeaweedFS keeps them.
    pub folders: BTreeSet<String>,
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    /// The method and the target of each request.
    asked: Vec<String>,
    /// How many objects were written.
    written: usize,
    /// The key of an object of which nobody may ask.
    pub refused: Option<String>,
    /// Whether conditions of requests are ignored.
    pub lies: bool,
    /// What another writer puts at the place of an object when that was read.
    pub put_after_read: Option<(String, Vec<u8>)>,
}

/// The store, as long as the test runs.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    address: String,
}

impl Server {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { state: Arc::default(), address };
        let serving = server.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = serving.clone();
                std::thread::spawn(move || server.serve(connection));
            }
        });
        server
    }

    /// A store that has `m.onnx` of `folder` with its weights file, in a folder with a hard name.
    pub fn with_model(folder: &Folder) -> Self {
        let server = Self::new();
        for name in ["m.onnx", "m.onnx.data"] {
            server.put(&format!("a é#%/{name}"), std::fs::read(folder.path(name)).unwrap());
        }
        server
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.state().put(key, bytes);
    }

    /// The names of the objects.
    pub fn names(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// What was asked since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// Runs the command with this store.
    pub fn run(&self, folder: &Folder, args: &[&str]) -> Run {
        Run::of(self.command(folder, args).output().unwrap())
    }

    pub fn command(&self, folder: &Folder, args: &[&str]) -> Command {
        let mut command = folder.command(args);
        self.is_known_to(&mut command);
        command
    }

    /// Gives a command the environment in which this store is S3.
    pub fn is_known_to(&self, command: &mut Command) {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("AWS_ENDPOINT_URL", &self.address).env("AWS_SKIP_SIGNATURE", "true");
        command.env("no_proxy", "127.0.0.1");
    }

    /// A store for examples: the model `m.onnx` of `folder` with a version, and a file that no
    /// model needs.
    pub fn of_examples(folder: &Folder, model: &str) -> Self {
        let server = Self::new();
        server.run(folder, &["publish", model, "s3://models/m.onnx"]).done();
        let bytes = server.state().objects["m.onnx"].0.clone();
        server.put("m.version-20261127T181530.123456Z-0123456789abcdef.onnx", bytes);
        server.put("m-0123456789abcdef.onnx.data", vec![0; 1000]);
        server.asked();
        server
    }

    fn serve(&self, connection: TcpStream) {
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let mut connection = connection;
        while let Some(request) = Request::read(&mut reader) {
            let answer = self.state().answer(&request);
            if connection.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_bucket, key)| key);
        let key = decoded(key);
        Some(Self { method, key, query: pairs.map(pair).collect(), headers, body })
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [a, b, after @ ..]) => {
                let digits = String::from_utf8(vec![*a, *b]).unwrap();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status}\r\nLast-Modified: Fri, 02 Jan 1970 00:00:00 GMT\r\n");
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        answer += &format!("Content-Length: {}\r\n", body.len());
    }
    headers.iter().for_each(|(name, value)| answer += &format!("{name}: {value}\r\n"));
    [answer.as_bytes(), b"\r\n", body].concat()
}

impl State {
    fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        self.written += 1;
        let tag = format!("\"{}\"", self.written);
        self.objects.insert(key.to_owned(), (bytes, tag.clone()));
        tag
    }

    fn answer(&mut self, request: &Request) -> Vec<u8> {
        let Request { method, key, query, headers, body } = request;
        if method == "GET"
            && let Some((_, bytes)) = self.put_after_read.take_if(|(read, _)| read == key)
        {
            let old = self.answer(request);
            self.put(key, bytes);
            return old;
        }
        self.asked.push(format!("{method} {key}"));
        let header = |name: &str| headers.get(name).map(String::as_str);
        let found = self.objects.get(key);
        let none = || answer("404 Not Found", &[], b"");
        if self.refused.as_ref() == Some(key) {
            return answer("403 Forbidden", &[], b"");
        }
        match (method.as_str(), query.get("uploadId")) {
            ("GET", _) if query.contains_key("list-type") => self.list(query),
            ("GET" | "HEAD", _) => {
                let Some((bytes, tag)) = found else { return none() };
                if !self.lies && header("if-match").is_some_and(|wanted| wanted != tag) {
                    return answer("412 Precondition Failed", &[], b"");
                }
                if method == "HEAD" {
                    let len = bytes.len().to_string();
                    return answer("200 OK", &[("ETag", tag), ("Content-Length", &len)], b"");
                }
                let Some(range) = header("range").and_then(|it| it.strip_prefix("bytes=")) else {
                    return answer("200 OK", &[("ETag", tag)], bytes);
                };
                let (start, end) = range.split_once('-').unwrap();
                let (start, len): (usize, _) = (start.parse().unwrap(), bytes.len());
                let end = end.parse::<usize>().unwrap().min(len.saturating_sub(1));
                if start >= len {
                    return answer("416 Range Not Satisfiable", &[], b"");
                }
                let range = format!("bytes {start}-{end}/{len}");
                let headers = [("ETag", tag.as_str()), ("Content-Range", &range)];
                answer("206 Partial Content", &headers, &bytes[start..=end])
            }
            ("PUT", Some(upload)) => {
                let part = query["partNumber"].parse().unwrap();
                self.uploads.get_mut(upload).unwrap().insert(part, body.clone());
                answer("200 OK", &[("ETag", "\"part\"")], b"")
            }
            ("PUT", None) => {
                let is_there = header("if-none-match").is_some() && found.is_some();
                let is_other = header("if-match")
                    .is_some_and(|wanted| found.is_none_or(|(_, tag)| tag != wanted));
                if !self.lies && (is_there || is_other) {
                    return answer("412 Precondition Failed", &[], b"");
                }
                let tag = self.put(key, body.clone());
                answer("200 OK", &[("ETag", &tag)], b"")
            }
            ("POST", Some(upload)) => {
                let parts = self.uploads.remove(upload).unwrap();
                let tag = self.put(key, parts.into_values().flatten().collect());
                let tag = tag.replace('"', "&quot;");
                let body = format!(
                    "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                );
                answer("200 OK", &[], body.as_bytes())
            }
            ("POST", None) if query.contains_key("uploads") => {
                let upload = format!("upload-{}", self.uploads.len());
                self.uploads.insert(upload.clone(), BTreeMap::new());
                let body = format!(
                    "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                );
                answer("200 OK", &[], body.as_bytes())
            }
            ("DELETE", _) => {
                self.objects.remove(key);
                answer("204 No Content", &[], b"")
            }
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Vec<u8> {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let is_flat = query.contains_key("delimiter");
        let mut body = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        let kept = self.folders.iter().filter(|it| is_flat && it.starts_with(prefix));
        let mut folders: BTreeSet<_> = kept.cloned().collect();
        for (key, (bytes, tag)) in &self.objects {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            if query.get("start-after").is_some_and(|after| key <= after) {
                continue;
            }
            if is_flat && let Some((folder, _)) = rest.split_once('/') {
                folders.insert(format!("{prefix}{folder}/"));
                continue;
            }
            body += &format!(
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>1970-01-02T00:00:00.000Z</LastModified></Contents>",
                escaped(key),
                bytes.len(),
                tag.replace('"', "&quot;")
            );
        }
        for folder in folders {
            let folder = escaped(&folder);
            body += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
        }
        answer("200 OK", &[], (body + "</ListBucketResult>").as_bytes())
    }
}
