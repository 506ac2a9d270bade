//! Real servers on free ports of this machine. A test starts what it needs, once per process. Each
//! ends with this process, however it ends: a shell beside it waits for the end of its input.
//!
//! Programs are looked for beside `ONNX_CONTAINER_PYTHON`, in the environment of `scripts/test.sh`,
//! and on the path.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onnx_container_store::object_store::memory::InMemory;
use onnx_container_store::{Store, StoreOptions, StoreUrl};
use tempfile::TempDir;

use crate::fake_store::{Dialect, FakeStore, options};
use crate::http::{Request, forward};

/// A store that these tests write to: a bucket, and how it is reached.
#[derive(Clone)]
pub struct Place {
    pub name: &'static str,
    /// Without a slash at its end.
    pub root: String,
    pub options: StoreOptions,
    /// A store that no options open.
    pub opened: Option<Store>,
}

impl Place {
    fn new(name: &'static str, root: &str, options: StoreOptions) -> Self {
        Self { name, root: root.to_owned(), options, opened: None }
    }

    pub fn memory() -> Self {
        let store = Store::new(Arc::new(InMemory::new()), "s3://memory");
        Self { opened: Some(store), ..Self::new("memory", "s3://memory", StoreOptions::new()) }
    }

    pub fn fake(dialect: Dialect) -> Self {
        Self::of(&FakeStore::speaking(dialect))
    }

    pub fn of(fake: &FakeStore) -> Self {
        Self::new("the server of these tests", fake.root(), fake.options())
    }

    pub fn url(&self, key: &str) -> StoreUrl {
        StoreUrl::parse(&format!("{}/{key}", self.root)).unwrap()
    }

    pub fn store(&self) -> Store {
        let open = || Store::open(&self.url("m.onnx"), &self.options).unwrap();
        self.opened.clone().unwrap_or_else(open)
    }
}

/// Whether the section is one with every server.
pub fn all_wanted() -> bool {
    std::env::var("ONNX_CONTAINER_STORES").is_ok_and(|stores| stores == "all")
}

/// A server that only that section has.
pub fn extra<T>(name: &str, start: impl FnOnce() -> Option<T>) -> Option<T> {
    if !all_wanted() {
        eprintln!("!!! SKIPPED: {name}, as ONNX_CONTAINER_STORES is not `all`");
        return None;
    }
    start()
}

/// Says that something is missing, which is a failure where everything has to be there.
fn missing(what: &str) {
    let everything = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!everything, "{what} is not here");
    eprintln!("!!! SKIPPED: {what} is not here");
}

fn program(name: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("ONNX_CONTAINER_PYTHON").map(PathBuf::from);
    let beside = beside.and_then(|python| Some(python.parent()?.to_owned()));
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain([environment]).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        missing(name);
    }
    found
}

fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All are taken until the last is, so that they differ.
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Ends the server when its input ends, which it does when this process does. Removes the folder of
/// the server then.
const UNTIL_THE_END: &str = r#"
folder=$1
shift
"$@" >"$folder/said" 2>&1 </dev/null &
server=$!
read -r end
kill -KILL "$server" 2>/dev/null
wait "$server"
rm -rf "$folder"
"#;

/// Starts a server in a folder of its own and waits until it is at `port`.
fn start(folder: TempDir, port: u16, program: &Path, arguments: &[String]) {
    let folder = folder.keep();
    let mut shell = Command::new("sh");
    shell.args(["-c", UNTIL_THE_END, "sh"]).arg(&folder).arg(program).args(arguments);
    // The shell tells there that it has ended the server.
    shell.stderr(Stdio::null());
    let shell = shell.current_dir(&folder).stdin(Stdio::piped()).spawn().unwrap();
    // Its input stays open until this process ends.
    std::mem::forget(shell);
    wait_until(&folder, || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

fn wait_until(folder: &Path, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > Duration::from_secs(120) {
            let said = std::fs::read_to_string(folder.join("said")).unwrap_or_default();
            panic!("the server did not start: {said}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Makes the bucket `models` of a server of S3, as soon as the server is ready.
fn make_bucket(port: u16) {
    let host = ("host".to_owned(), format!("127.0.0.1:{port}"));
    let empty = ("content-length".to_owned(), "0".to_owned());
    let headers = vec![host, empty];
    let (method, target) = ("PUT".to_owned(), "/models".to_owned());
    let request = Request { method, target, headers, body: Vec::new() };
    let is_made =
        || forward(port, &request).is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"));
    wait_until(Path::new(""), is_made);
}

/// The port of moto's S3.
pub fn moto() -> Option<u16> {
    static STARTED: OnceLock<Option<u16>> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let moto = program("moto_server")?;
        let [port] = free_ports();
        let folder = tempfile::tempdir().unwrap();
        start(folder, port, &moto, &strings(&["-H", "127.0.0.1", "-p", &port.to_string()]));
        make_bucket(port);
        Some(port)
    })
}

/// The port of SeaweedFS's S3.
pub fn seaweedfs() -> Option<u16> {
    static STARTED: OnceLock<Option<u16>> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let weed = program("weed")?;
        let folder = tempfile::tempdir().unwrap();
        let names = ["master", "volume", "filer", "s3"];
        let plain: [u16; 4] = free_ports();
        let grpc: [u16; 4] = free_ports();
        let ports = names.iter().zip(plain).map(|(name, port)| format!("-{name}.port={port}"));
        let of_grpc =
            names.iter().zip(grpc).map(|(name, port)| format!("-{name}.port.grpc={port}"));
        let mut arguments = strings(&["server", "-ip=127.0.0.1", "-s3", "-filer", "-volume.max=8"]);
        arguments.extend(strings(&["-s3.port.iceberg=0", "-s3.port.lance=0"]));
        arguments.push("-master.telemetry=false".to_owned());
        arguments.push(format!("-dir={}", folder.path().display()));
        arguments.extend(ports.chain(of_grpc));
        start(folder, plain[3], &weed, &arguments);
        make_bucket(plain[3]);
        Some(plain[3])
    })
}

/// The servers that are tested by default.
pub fn default_places() -> Vec<Place> {
    // To moto who does not sign is a stranger, and any signature is good.
    let signed = |port| {
        let options = options(port).set("aws_skip_signature", "false");
        options.set("aws_access_key_id", "any").set("aws_secret_access_key", "any")
    };
    let moto = moto().map(|port| Place::new("moto", "s3://models", signed(port)));
    // SeaweedFS answers a GET of an object that is being replaced with 500 now and then.
    let retried = |port| options(port).max_retries(10);
    let seaweedfs = seaweedfs().map(|port| Place::new("SeaweedFS", "s3://models", retried(port)));
    moto.into_iter().chain(seaweedfs).collect()
}

/// Azure's emulator, with a container.
pub fn azurite() -> Option<Place> {
    let azurite = program("azurite-blob")?;
    let python = program("python3")?;
    let [port] = free_ports();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--silent", "--skipApiVersionCheck", "--blobPort", &port.to_string()];
    start(folder, port, &azurite, &strings(&arguments));
    let mut script = Command::new(python);
    script.args(["-", &port.to_string(), EMULATORS_KEY]).stdin(Stdio::piped());
    let mut script = script.spawn().unwrap();
    script.stdin.take().unwrap().write_all(MAKE_CONTAINER.as_bytes()).unwrap();
    assert!(script.wait().unwrap().success());
    let options = StoreOptions::new()
        .set("azure_storage_account_name", "devstoreaccount1")
        .set("azure_storage_account_key", EMULATORS_KEY)
        .set("azure_endpoint", format!("http://127.0.0.1:{port}/devstoreaccount1"))
        .max_retries(0);
    Some(Place::new("azurite", "az://models", options))
}

/// The key of the account of every emulator.
const EMULATORS_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const MAKE_CONTAINER: &str = r#"
import base64, email.utils, hashlib, hmac, sys, urllib.request
key = sys.argv[2]
date = email.utils.formatdate(usegmt=True)
signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
signed += "/devstoreaccount1/devstoreaccount1/models\nrestype:container"
mac = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Length": "0",
           "Authorization": "SharedKey devstoreaccount1:" + base64.b64encode(mac).decode()}
url = f"http://127.0.0.1:{sys.argv[1]}/devstoreaccount1/models?restype=container"
urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers))
"#;

/// A web server, and the folder that it serves.
pub fn nginx() -> Option<(u16, PathBuf)> {
    let nginx = program("nginx")?;
    let [port] = free_ports();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let served = path.join("served");
    std::fs::create_dir(&served).unwrap();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log stderr;\nevents {{}}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n\
         fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ listen 127.0.0.1:{port}; root {0}/served; }} }}\n",
        path.display()
    );
    std::fs::write(path.join("nginx.conf"), configuration).unwrap();
    let file = path.join("nginx.conf").display().to_string();
    start(folder, port, &nginx, &strings(&["-c", &file]));
    Some((port, served))
}

/// A server of S3 that ignores conditions and ranges.
pub fn rclone() -> Option<Place> {
    let arguments =
        |port| strings(&["serve", "s3", "--addr", &format!("127.0.0.1:{port}"), "served"]);
    liar("rclone", arguments).map(|port| Place::new("rclone", "s3://models", options(port)))
}

/// A server of S3 that checks signatures, serves ranges, and ignores conditions.
pub fn nanio() -> Option<Place> {
    const USERS: &str = "[[users]]\naccess_key = \"user\"\nsecret_key = \"a secret of the user\"\n";
    let users = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(users.path(), USERS).unwrap();
    let file = users.path().display().to_string();
    let arguments = |port: u16| {
        let at = ["--host", "127.0.0.1", "--port", &port.to_string(), "--data-dir", "served"];
        [strings(&["serve", "--options", &file]), strings(&at)].concat()
    };
    let port = liar("nanio", arguments)?;
    let options = options(port).set("aws_skip_signature", "false");
    let options = options.set("aws_access_key_id", "user");
    let options = options.set("aws_secret_access_key", "a secret of the user");
    Some(Place::new("nanio", "s3://models", options))
}

/// A server of S3 that refuses to overwrite, serves ranges, and ignores which version is replaced
/// or read.
pub fn localbucket() -> Option<Place> {
    let arguments = |port: u16| strings(&["--port", &port.to_string(), "served"]);
    liar("localbucket", arguments)
        .map(|port| Place::new("localbucket", "s3://models", options(port)))
}

/// The port of a server whose buckets are the folders of its folder `served`.
fn liar(name: &str, arguments: impl Fn(u16) -> Vec<String>) -> Option<u16> {
    let program = program(name)?;
    let [port] = free_ports();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("served/models")).unwrap();
    start(folder, port, &program, &arguments(port));
    Some(port)
}
