//! Models in stores: URLs where commands read models, and the commands that write to stores. The
//! store is a small S3 of this file, which counts what it is asked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::support::{Folder, Run, tensors, weight};

/// An object: its bytes and its tag.
type Object = (Vec<u8>, String);

/// A store with one bucket.
#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    /// The method and the target of each request.
    asked: Vec<String>,
    /// How many objects were written.
    written: usize,
    /// Whether conditions of requests are ignored.
    lies: bool,
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

    /// A store that has the model of [`folder`] as `m.onnx`, in a folder with a hard name.
    fn with_model(folder: &Folder) -> Self {
        let server = Self::new();
        for name in ["m.onnx", "m.onnx.data"] {
            server.put(&format!("a é#%/{name}"), fs::read(folder.path(name)).unwrap());
        }
        server
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.state().put(key, bytes);
    }

    /// The names of the objects.
    fn names(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// What was asked since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// Runs the command with this store.
    pub fn run(&self, folder: &Folder, args: &[&str]) -> Run {
        Run::of(self.command(folder, args).output().unwrap())
    }

    fn command(&self, folder: &Folder, args: &[&str]) -> Command {
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
        server.put("m.version-20261127T181530Z-0123456789abcdef.onnx", bytes);
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
        self.asked.push(format!("{method} {key}"));
        let header = |name: &str| headers.get(name).map(String::as_str);
        let found = self.objects.get(key);
        let none = || answer("404 Not Found", &[], b"");
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
            ("POST", None) if query.contains_key("delete") => {
                let body = String::from_utf8(body.clone()).unwrap();
                let mut deleted = "<DeleteResult>".to_owned();
                for part in body.split("<Key>").skip(1) {
                    let key = part.split("</Key>").next().unwrap();
                    self.objects.remove(&key.replace("&amp;", "&"));
                    deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
                }
                deleted += "</DeleteResult>";
                answer("200 OK", &[], deleted.as_bytes())
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
        let below = self.objects.iter().filter(|(key, _)| {
            key.strip_prefix(prefix).is_some_and(|rest| !is_flat || !rest.contains('/'))
        });
        let mut body = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for (key, (bytes, tag)) in below {
            body += &format!(
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>1970-01-02T00:00:00.000Z</LastModified></Contents>",
                escaped(key),
                bytes.len(),
                tag.replace('"', "&quot;")
            );
        }
        answer("200 OK", &[], (body + "</ListBucketResult>").as_bytes())
    }
}

const URL: &str = "s3://b/a é#%/m.onnx";

/// `m.onnx`, which computes y = x + w of FLOAT [300], and its weights file.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("inline.onnx", &sum(0.0));
    folder.run(&["pack", "inline.onnx", "m.onnx"]).done();
    folder
}

fn sum(first: f32) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(weight("w", &[300], first));
    graph.input.push(ValueInfoProto::tensor("x", 1, [300]));
    graph.output.push(ValueInfoProto::tensor("y", 1, [300]));
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    model
}

#[test]
fn commands_say_of_a_url_what_they_say_of_a_path() {
    let folder = folder();
    folder.save("changed.onnx", &sum(7.0));
    folder.run(&["pack", "changed.onnx", "other.onnx"]).done();
    let server = Server::with_model(&folder);
    let reading = [
        "check m.onnx",
        "check m.onnx --digests --finite --json",
        "files m.onnx",
        "files m.onnx --json",
        "digest m.onnx",
        "digest m.onnx --files",
        "digest m.onnx --semantic",
        "stats m.onnx",
        "inspect m.onnx --tree",
        "diff m.onnx other.onnx --stats",
        "diff other.onnx m.onnx --json",
        "diff m.onnx m.onnx --semantic",
        "extract m.onnx w -o -",
        #[cfg(feature = "machine")]
        "plan m.onnx",
        #[cfg(feature = "machine")]
        "run m.onnx --seed 1",
        #[cfg(feature = "machine")]
        "trace m.onnx --seed 1",
        #[cfg(feature = "machine")]
        "trace diff m.onnx inline.onnx --seed 1",
        #[cfg(feature = "machine")]
        "verify m.onnx inline.onnx",
    ];
    for line in reading {
        let by_path: Vec<_> = line.split(' ').collect();
        let by_url: Vec<_> =
            by_path.iter().map(|arg| if *arg == "m.onnx" { URL } else { arg }).collect();
        let (path, url) = (folder.run(&by_path), server.run(&folder, &by_url));
        assert_eq!((url.code(), url.stderr()), (path.code(), path.stderr()), "{line}: {url:?}");
        let said = String::from_utf8_lossy(url.bytes()).replace("s3://b/a é#%/", "");
        let expected = String::from_utf8_lossy(path.bytes()).into_owned();
        // Rows are as wide as paths, and a run tells its time.
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_timed = line.starts_with("run ");
        assert!(is_timed || plain(&said) == plain(&expected), "{line}: {said}\n{expected}");
    }
}

#[test]
fn what_is_written_from_a_url_is_what_is_written_from_a_path() {
    let folder = folder();
    let server = Server::with_model(&folder);
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    folder.run(&["strip", "m.onnx", "bare.onnx"]).done();
    folder.run(&["extract", "m.onnx", "w", "-o", "w.npy"]).done();
    for line in [
        "pack m.onnx out/o.onnx --verify",
        "pack m.onnx out/",
        "split m.onnx out/o.onnx",
        "embed m.onnx out/o.onnx --verify",
        "inline m.onnx out/o.onnx",
        "cast m.onnx out/o.onnx --to float16",
        "edit m.onnx out/o.onnx --set-metadata a=b",
        "strip m.onnx out/o.onnx",
        "attach bare.onnx m.onnx out/o.onnx",
        "replace m.onnx w w.npy -o out/o.onnx",
        "import-safetensors m.onnx w.safetensors out/o.onnx",
        "export-safetensors m.onnx out/o.safetensors",
        "extract m.onnx w -o out/",
        "extract-model m.onnx out/o.onnx --outputs y",
        "merge m.onnx m.onnx out/o.onnx --connect y=x --prefix-b b/",
    ] {
        let written = [("m.onnx", None), (URL, Some(&server))].map(|(model, server)| {
            fs::create_dir(folder.path("out")).unwrap();
            let args: Vec<_> =
                line.split(' ').map(|arg| if arg == "m.onnx" { model } else { arg }).collect();
            match server {
                Some(server) => server.run(&folder, &args).done(),
                None => folder.run(&args).done(),
            };
            let written = folder.contents_of("out");
            fs::remove_dir_all(folder.path("out")).unwrap();
            written
        });
        assert!(written[0] == written[1] && !written[0].is_empty(), "{line}");
    }
}

#[test]
fn few_requests_are_made() {
    let folder = folder();
    let server = Server::with_model(&folder);
    let (model, data) = ("GET a é#%/m.onnx", "GET a é#%/m.onnx.data");
    // The command, and what is asked.
    let cases: [(&str, &[&str]); 4] = [
        ("inspect", &[model]),
        ("check", &[model, data]),
        ("files", &[model, data]),
        ("stats", &[model, data, data]),
    ];
    for (command, asked) in cases {
        server.run(&folder, &[command, URL]).done();
        assert_eq!(server.asked(), asked, "{command}");
    }
    let inspected = server.run(&folder, &["inspect", URL, "--json"]).done().json();
    assert_eq!(inspected["files"][0]["state"], "unknown");
    assert_eq!(inspected["files"][0]["path"], "s3://b/a é#%/m.onnx.data");
    assert_eq!(inspected["file_totals"]["unknown"], 1);
}

#[test]
fn where_files_are_needed_a_url_is_refused() {
    let folder = folder();
    let before = folder.contents();
    let files = "this command works on files";
    // The arguments, and what is said.
    for (line, said) in [
        ("mv s3://b/m.onnx n.onnx", files),
        ("mv m.onnx s3://b/m.onnx", files),
        ("cp m.onnx gs://b/m.onnx", files),
        ("rm s3://b/m.onnx", files),
        ("share m.onnx s3://b/m.onnx", files),
        ("sign s3://b/m.onnx --key k", files),
        ("verify-signature s3://b/m.onnx --key k", files),
        ("report s3://b/m.onnx -o r.html", files),
        ("recover s3://b/m.onnx", "has to be a file"),
        ("scan s3://b/", "has to be a file"),
        ("job rewrite s3://b/m.onnx n.onnx -o j", "a job reads IN from a folder"),
        ("pack m.onnx s3://b/n.onnx", "`publish IN URL` writes a model to a store"),
        ("embed m.onnx https://h/n.onnx", "`publish IN URL`"),
        ("export-safetensors m.onnx s3://b/w.safetensors", "has to be a file"),
        ("extract m.onnx w -o s3://b/w.npy", "has to be a file"),
        ("import-safetensors m.onnx s3://b/w.safetensors n.onnx", "has to be a file"),
        ("publish m.onnx n.onnx", "no URL of a store"),
        ("check https://me:secret@h/m.onnx", "a user or a password"),
        ("check https://h/m.onnx?sig=secret --json", "`?` or `#`"),
        ("inspect s3://key:secret@b/m.onnx", "a user or a password"),
        ("inspect m.onnx --store-option aws_secret_access_key=secret", "AWS_SECRET_ACCESS_KEY in"),
    ] {
        let run = folder.run(&line.split(' ').collect::<Vec<_>>()).misused(&[said]);
        let all = run.stdout() + &run.stderr();
        assert!(!line.contains("=secret") || line.contains("option") || !all.contains("secret"));
        assert!(!all.contains(":secret"), "{all}");
    }
    assert!(folder.contents() == before);
}

#[test]
fn what_a_store_does_not_have_is_said() {
    let (folder, server) = (folder(), Server::new());
    server.put("x.onnx", fs::read(folder.path("m.onnx")).unwrap());
    let none = "`s3://b/m.onnx`: there is no such object";
    for (line, code, said) in [
        ("inspect s3://b/m.onnx", 1, none),
        ("check s3://b/m.onnx", 2, none),
        ("pack s3://b/m.onnx o.onnx", 1, none),
        ("check s3://b/x.onnx", 1, "`s3://b/m.onnx.data`: there is no such object"),
        ("inspect s3://b", 1, "name a model in it"),
        ("inspect s3://b/w.safetensors", 1, "is a safetensors file in a store"),
        ("inspect s3://b/m.onnx --store-option nonsense=1", 1, "has no option `nonsense`"),
    ] {
        let run = server.run(&folder, &line.split(' ').collect::<Vec<_>>());
        let all = run.stdout() + &run.stderr();
        assert!(run.code() == code && all.contains(said), "{line}: {run:?}");
    }
}

#[test]
fn a_model_is_published_and_rolled_back() {
    let (folder, server) = (folder(), Server::new());
    let url = "s3://b/r/m.onnx";
    let publish = |args: &[&str]| server.run(&folder, &[&["publish"], args].concat());

    publish(&["m.onnx", url, "--dry-run"]).done().says(&["publishes", "sends"]);
    assert!(server.names().is_empty());
    let first = publish(&["m.onnx", url, "--keep", "2", "--json"]).done().json();
    assert_eq!((&first["files"][0]["sent"], &first["dry_run"]), (&true.into(), &false.into()));
    assert_eq!(server.names().len(), 3, "{:?}", server.names());
    server.run(&folder, &["pack", url, "back.onnx"]).done();
    assert_eq!(tensors(&folder.path("back.onnx")), tensors(&folder.path("m.onnx")));

    publish(&["m.onnx", url]).done().says(&["kept      1 weights file, there already"]);
    publish(&["m.onnx", url, "--create"]).failed(&["there is a model already"]);
    publish(&["m.onnx", url, "--expect", "\"0\""]).failed(&["not the one that was loaded"]);
    folder.save("other.onnx", &sum(7.0));
    let tag = server.state().objects["r/m.onnx"].1.clone();
    publish(&["other.onnx", url, "--keep", "2", "--expect", &tag]).done();

    let versions = server.run(&folder, &["versions", url, "--json"]).done().json();
    let versions: Vec<_> = versions["versions"].as_array().unwrap().clone();
    assert_eq!(versions.len(), 2);
    let of_first = first["version"].as_str().unwrap();
    assert!(versions.iter().any(|version| version == of_first), "{versions:?}");
    let other = folder.run(&["digest", "other.onnx"]).stdout();
    let now = || server.run(&folder, &["digest", url]).done().stdout()[..71].to_owned();
    assert_eq!(now(), other[..71]);
    server.run(&folder, &["rollback", url, of_first]).done().says(&["published", "there already"]);
    assert_eq!(now(), folder.run(&["digest", "m.onnx"]).stdout()[..71]);
    server.run(&folder, &["rollback", url, "s3://b/r/x.onnx"]).failed(&["no version"]);
}

#[test]
fn a_model_goes_from_store_to_store_in_parts() {
    let (folder, server) = (Folder::new(), Server::new());
    let mut model = sum(0.0);
    // Three parts.
    model.graph.as_mut().unwrap().initializer.push(weight("large", &[5, 1 << 20], 1.0));
    folder.save("inline.onnx", &model);
    server.run(&folder, &["publish", "inline.onnx", "s3://b/x/m.onnx"]).done();
    server.run(&folder, &["publish", "s3://b/x/m.onnx", "s3://b/y/m.onnx"]).done();
    server.run(&folder, &["pack", "s3://b/y/m.onnx", "m.onnx"]).done();
    assert_eq!(tensors(&folder.path("m.onnx")), tensors(&folder.path("inline.onnx")));
    let data = |name: &str| {
        let state = server.state();
        let mut found = state.objects.iter().filter(|(key, _)| key.starts_with(name));
        found.find(|(key, _)| key.ends_with(".data")).unwrap().1.0.clone()
    };
    assert!(data("x/") == data("y/"));
}

#[test]
fn a_sweep_removes_what_no_model_names() {
    let (folder, server) = (folder(), Server::new());
    let sweep = |args: &[&str]| server.run(&folder, &[&["sweep", "s3://b/r/"], args].concat());
    folder.save("other.onnx", &sum(7.0));
    for model in ["m.onnx", "other.onnx"] {
        server.run(&folder, &["publish", model, "s3://b/r/m.onnx"]).done();
    }
    server.put("r/notes.txt", b"stays".to_vec());
    let before = server.names();
    sweep(&[]).done().says(&["unneeded  1 file", "--delete"]);
    sweep(&["--older-than", "99999d", "--delete"]).done().says(&["to sweep", "young"]);
    assert_eq!(server.names(), before);
    let swept = sweep(&["--delete", "--json"]).done().json();
    assert_eq!((&swept["models"], &swept["deleted"]), (&1.into(), &true.into()));
    assert_eq!(server.names().len(), before.len() - 1);
    sweep(&[]).done().says(&["nothing"]);
    server.run(&folder, &["check", "s3://b/r/m.onnx"]).done();
}

#[test]
fn a_store_that_ignores_conditions_is_found() {
    let (folder, server) = (folder(), Server::new());
    let url = "s3://b/m.onnx";
    let probe = |args: &[&str]| server.run(&folder, &[&["stores", "probe", url], args].concat());
    probe(&[]).done().says(&["yes       refuses a new object where there is one", "works"]);
    assert!(server.names().is_empty());
    server.state().lies = true;
    let found = probe(&["--json"]);
    assert_eq!((found.code(), &found.json()["publishes"]), (1, &false.into()));
    let publish =
        |args: &[&str]| server.run(&folder, &[&["publish", "m.onnx", url], args].concat());
    publish(&[]).failed(&["two writers do not notice each other", "--unconditional"]);
    assert!(server.names().is_empty(), "{:?}", server.names());
    publish(&["--unconditional"]).done();
    server.run(&folder, &["check", url]).done();
}
