//! A server that answers as the Hub is documented to do, and one that has the bytes of large
//! files, which the Hub signs addresses of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// The repository that the Hub has.
pub const REPO: &str = "o/r";
/// Longer files are large ones, whose bytes the other server has.
const SMALL: usize = 16;

pub type Files = BTreeMap<String, Vec<u8>>;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The Hub answers with this status and error code.
    Refused(u16, &'static str),
    /// The first request to the Hub is answered with this status.
    Once(u16),
    /// The first request is answered with 429, and the next one too if it comes within a second.
    Wait,
    /// The first connection to the Hub is cut.
    Cut,
    /// The signed addresses so far have expired, and those of later requests if they all are.
    Expired { all: bool },
    /// The other server has a file that is longer.
    Longer,
    /// It sends the whole file for a range.
    Whole,
    /// It sends the range beside the one that it was asked for.
    Beside,
    /// It does not say which range it sends.
    Unsaid,
    /// Half of a body.
    Half,
    /// A body that is called compressed.
    Gzip,
    /// A byte is another one.
    Flipped,
    /// It sends the reader on to a third address.
    Redirected,
    /// The Hub has another file at the same commit when it is asked for the second time.
    OtherFile,
    /// The Hub answers for another commit.
    OtherCommit,
}

#[derive(Default)]
struct State {
    commits: BTreeMap<String, Files>,
    branches: BTreeMap<String, String>,
    faults: Vec<Fault>,
    /// The time of an answer that told to wait.
    told: Option<Instant>,
    /// The number of the last signature, and of the last that has expired.
    signed: usize,
    expired: usize,
    log: Vec<Request>,
}

/// A request that was received.
#[derive(Debug, Clone)]
pub struct Request {
    /// `hub` or `files`, the method, and the path without what a signature is.
    pub line: String,
    pub token: Option<String>,
    range: Option<(usize, usize)>,
    query: String,
    method: String,
    path: String,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// Both servers. They end with the process.
#[derive(Clone)]
pub struct Stub {
    pub endpoint: String,
    files: String,
    state: Arc<Mutex<State>>,
}

/// The commit of a number.
pub fn commit(number: u8) -> String {
    format!("{number:040x}")
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

impl Stub {
    /// Servers whose branch `main` is at commit 1, which has these files.
    pub fn new(files: Files) -> Self {
        let (hub, other) = (listener(), listener());
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let (endpoint, files_at) = (address(&hub), address(&other));
        let stub = Self { endpoint, files: files_at, state: Arc::default() };
        stub.commit(1, files);
        stub.branch("main", 1);
        let (of_hub, of_files) = (stub.clone(), stub.clone());
        serve(hub, move |line, stream| of_hub.received("hub", line, stream));
        serve(other, move |line, stream| of_files.received("files", line, stream));
        stub
    }

    pub fn commit(&self, number: u8, files: Files) {
        self.state.lock().unwrap().commits.insert(commit(number), files);
    }

    pub fn branch(&self, name: &str, number: u8) {
        self.state.lock().unwrap().branches.insert(name.to_owned(), commit(number));
    }

    pub fn fault(&self, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.expired = state.signed;
        state.faults.push(fault);
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// Those as text.
    pub fn lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.line).collect()
    }

    /// Answers a request. None cuts the connection.
    fn received(&self, server: &str, head: &[String], stream: &mut TcpStream) -> Option<()> {
        let request = parse(server, head);
        let mut state = self.state.lock().unwrap();
        state.log.push(request.clone());
        let answer = match server {
            "hub" => self.hub(&mut state, &request)?,
            _ => self.file(&mut state, &request),
        };
        drop(state);
        let mut text = format!("HTTP/1.1 {} x\r\n", answer.status);
        for (name, value) in &answer.headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
            write!(text, "Content-Length: {}\r\n", answer.body.len()).unwrap();
        }
        stream.write_all(format!("{text}\r\n").as_bytes()).ok()?;
        if request.method != "HEAD" {
            stream.write_all(&answer.body).ok()?;
        }
        // A body that is shorter than it was announced ends with the connection.
        let announced = answer.headers.iter().find(|(name, _)| *name == "Content-Length");
        let short = announced.is_some_and(|(_, len)| *len != answer.body.len().to_string());
        (request.method == "HEAD" || !short).then_some(())
    }

    fn hub(&self, state: &mut State, request: &Request) -> Option<Answer> {
        let faults = state.faults.clone();
        let mut once = |fault| state.faults.retain(|other| *other != fault);
        for fault in faults {
            match fault {
                Fault::Refused(status, code) => return Some(refused(status, code)),
                Fault::Once(status) => {
                    once(fault);
                    return Some(refused(status, ""));
                }
                Fault::Cut => {
                    once(fault);
                    return None;
                }
                Fault::Wait => {
                    let early = |told: Instant| told.elapsed() < Duration::from_secs(1);
                    if state.told.is_none_or(early) {
                        state.told.get_or_insert_with(Instant::now);
                        let mut answer = refused(429, "");
                        answer.headers.push(("Retry-After", "1".into()));
                        return Some(answer);
                    }
                }
                _ => {}
            }
        }
        let (_, path) = request.path.split_at(1);
        let parts: Vec<_> = path.split('/').collect();
        Some(match parts[..] {
            ["api", "models", "o", "r", "revision", revision] => revision_of(state, revision),
            ["api", "models", "o", "r", "tree", commit, ref folder @ ..] => {
                self.tree(state, commit, &folder.join("/"), &request.query)
            }
            ["api", "resolve-cache", "models", "o", "r", commit, file] => {
                let bytes = decoded(file);
                let bytes = state.commits.get(commit).and_then(|files| files.get(&bytes));
                let bytes = bytes.cloned().unwrap_or_default();
                let mut answer = ranged(&bytes, request.range);
                answer.headers.push(("ETag", "W/\"git\"".into()));
                answer.headers.push(("X-Repo-Commit", commit.into()));
                answer
            }
            ["o", "r", "resolve", commit, ref file @ ..] => {
                self.resolved(state, commit, &file.join("/"))
            }
            _ => refused(404, "RepoNotFound"),
        })
    }

    /// A large file is at a signed address of the other server, a small one at the Hub's cache.
    fn resolved(&self, state: &mut State, commit: &str, file: &str) -> Answer {
        let Some(files) = state.commits.get(commit) else {
            return refused(404, "RevisionNotFound");
        };
        let Some(bytes) = files.get(&decoded(file)) else { return refused(404, "EntryNotFound") };
        let served = match state.faults.contains(&Fault::OtherCommit) {
            true => "0".repeat(40),
            false => commit.to_owned(),
        };
        let mut headers = vec![("X-Repo-Commit", served)];
        if bytes.len() <= SMALL {
            let name = file.replace('/', "%2F");
            let cache = format!("/api/resolve-cache/models/{REPO}/{commit}/{name}");
            headers.push(("Location", cache));
            return Answer { status: 307, headers, body: b"redirected".into() };
        }
        let other = state.faults.contains(&Fault::OtherFile) && state.signed > 1;
        let sum = if other { "f".repeat(64) } else { sha256(bytes) };
        headers.push(("X-Linked-Size", bytes.len().to_string()));
        headers.push(("X-Linked-Etag", format!("\"{sum}\"")));
        state.signed += 1;
        if state.faults.contains(&Fault::Expired { all: true }) {
            state.expired = state.signed;
        }
        let place = format!("{}/{}?signature={}", self.files, sha256(bytes), state.signed);
        headers.push(("Location", place));
        Answer { status: 302, headers, body: b"redirected".into() }
    }

    /// A page of one entry of a folder.
    fn tree(&self, state: &State, commit: &str, folder: &str, query: &str) -> Answer {
        let folder = decoded(folder);
        let prefix = if folder.is_empty() { folder } else { folder + "/" };
        let recursive = query.contains("recursive=true");
        let mut entries = BTreeMap::new();
        for (path, bytes) in &state.commits[commit] {
            let Some(rest) = path.strip_prefix(&prefix) else { continue };
            for (at, _) in rest.match_indices('/') {
                let path = format!("{prefix}{}", &rest[..at]);
                let entry = format!(r#"{{"type":"directory","oid":"1","size":0,"path":"{path}"}}"#);
                if recursive || !rest[..at].contains('/') {
                    entries.insert(path, entry);
                }
            }
            if recursive || !rest.contains('/') {
                let (len, sum) = (bytes.len(), sha256(bytes));
                let large = format!(r#","lfs":{{"oid":"{sum}","size":{len},"pointerSize":130}}"#);
                let large = if len > SMALL { large.as_str() } else { "" };
                let entry =
                    format!(r#"{{"type":"file","oid":"git","size":{len},"path":"{path}"{large}}}"#);
                entries.insert(path.clone(), entry);
            }
        }
        let page: usize = query.rsplit("cursor=").next().unwrap().parse().unwrap_or(0);
        let Some(entry) = entries.values().nth(page) else { return refused(404, "EntryNotFound") };
        let mut headers = Vec::new();
        if page + 1 < entries.len() {
            let query = query.split("&cursor").next().unwrap();
            let next = format!("{}/api/models/{REPO}/tree/{commit}/{prefix}", self.endpoint);
            let next = next.trim_end_matches('/');
            headers.push(("Link", format!("<{next}?{query}&cursor={}>; rel=\"next\"", page + 1)));
        }
        Answer { status: 200, headers, body: format!("[{entry}]").into() }
    }

    /// The bytes of a large file, whose name is their digest.
    fn file(&self, state: &mut State, request: &Request) -> Answer {
        let has = |fault| state.faults.contains(&fault);
        let signature = request.query.trim_end_matches('&').strip_prefix("signature=");
        let signature = signature.and_then(|text| text.parse().ok());
        let expires = has(Fault::Expired { all: false }) || has(Fault::Expired { all: true });
        match signature {
            Some(number) if !expires || state.expired < number => {}
            _ => return Answer { status: 403, headers: Vec::new(), body: b"expired".into() },
        }
        let files = state.commits.values().flat_map(Files::values);
        let mut found = files.filter(|bytes| sha256(bytes) == request.path[1..]);
        let Some(mut bytes) = found.next().cloned() else { return refused(404, "") };
        if has(Fault::Redirected) && !request.query.ends_with('&') {
            let place = format!("{}{}?{}&", self.files, request.path, request.query);
            return Answer { status: 302, headers: vec![("Location", place)], body: Vec::new() };
        }
        if has(Fault::Longer) {
            bytes.push(0);
        }
        if has(Fault::Flipped) {
            *bytes.last_mut().unwrap() ^= 1;
        }
        let range = request.range.filter(|_| !has(Fault::Whole));
        let range = range.map(|(start, end)| match has(Fault::Beside) {
            true => (start + 1, (end + 1).min(bytes.len())),
            false => (start, end),
        });
        let mut answer = ranged(&bytes, range);
        if has(Fault::Unsaid) {
            answer.headers.retain(|(name, _)| *name != "Content-Range");
        }
        if has(Fault::Half) {
            answer.headers.push(("Content-Length", answer.body.len().to_string()));
            answer.body.truncate(answer.body.len() / 2);
        }
        if has(Fault::Gzip) {
            answer.headers.push(("Content-Encoding", "gzip".into()));
        }
        answer.headers.push(("ETag", "\"of another server\"".into()));
        answer
    }
}

fn revision_of(state: &State, revision: &str) -> Answer {
    match state.branches.get(&decoded(revision)) {
        Some(commit) => {
            let body = format!(r#"{{"id":"{REPO}","sha":"{commit}","siblings":[]}}"#);
            Answer { status: 200, headers: Vec::new(), body: body.into() }
        }
        None => refused(404, "RevisionNotFound"),
    }
}

fn refused(status: u16, code: &str) -> Answer {
    let headers = vec![("X-Error-Code", code.to_owned())];
    Answer { status, headers, body: b"<html>no</html>".into() }
}

fn ranged(bytes: &[u8], range: Option<(usize, usize)>) -> Answer {
    let Some((start, end)) = range else {
        return Answer { status: 200, headers: Vec::new(), body: bytes.into() };
    };
    let end = end.min(bytes.len());
    let stated = format!("bytes {start}-{}/{}", end - 1, bytes.len());
    let headers = vec![("Content-Range", stated)];
    Answer { status: 206, headers, body: bytes[start..end].into() }
}

fn listener() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).unwrap()
}

/// Answers the requests of each connection in a thread of its own.
fn serve(
    listener: TcpListener,
    answer: impl Fn(&[String], &mut TcpStream) -> Option<()> + Clone + Send + 'static,
) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || connection(stream, answer));
        }
    });
}

fn connection(
    mut stream: TcpStream,
    answer: impl Fn(&[String], &mut TcpStream) -> Option<()>,
) -> Option<()> {
    let reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = Vec::new();
    for line in reader.lines() {
        match line.ok()?.as_str() {
            "" => answer(&std::mem::take(&mut head), &mut stream)?,
            line => head.push(line.to_owned()),
        }
    }
    Some(())
}

fn parse(server: &str, head: &[String]) -> Request {
    let mut first = head[0].split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        let mut fields = head[1..].iter().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let range = header("range").and_then(|range| {
        let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
    });
    Request {
        line: format!("{server} {method} {path}"),
        token: header("authorization").map(str::to_owned),
        range,
        query: query.to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
    }
}

/// Text without percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}
