//! A headless Chromium that is driven by its DevTools protocol, over the pipes of the process: no
//! port is opened, and no other program is needed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Names of the program, where the environment names none.
const PROGRAMS: [&str; 3] = ["chromium", "google-chrome", "chromium-browser"];
const LONGEST: Duration = Duration::from_secs(60);

pub struct Browser {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last: u64,
    events: Vec<Value>,
    /// Its profile, which goes with it.
    _profile: TempDir,
}

impl Browser {
    /// Starts the program that `CHROMIUM` names, or the first one that is there.
    pub fn start() -> Result<Self, String> {
        let named = std::env::var("CHROMIUM").ok();
        let programs = named.iter().map(String::as_str).chain(PROGRAMS);
        let is_there = |program: &&str| {
            let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
            version.is_ok_and(|output| output.status.success())
        };
        let program = programs.into_iter().find(is_there).ok_or("there is no Chromium")?;
        let profile = tempfile::tempdir().map_err(|error| error.to_string())?;
        // The protocol is on descriptors 3 and 4: the shell makes them of its input and output.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--remote-debugging-pipe"])
            .args(["--window-size=1300,900", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let from = BufReader::new(from.ok_or("no output")?);
        Ok(Self { process, to, from, last: 0, events: Vec::new(), _profile: profile })
    }

    /// Calls a method of the protocol and returns its result.
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes()).unwrap();
        to.flush().unwrap();
        loop {
            let message = self.read();
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "Chromium has ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Opens a page, whose scripts may still run.
    pub fn open(&mut self, url: &str) -> Tab<'_> {
        self.events.clear();
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", attach);
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let mut tab = Tab { browser: self, session };
        for domain in ["Page", "Network", "Runtime", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call("Page.navigate", json!({ "url": url }));
        tab
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.to.take();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A page that is open.
pub struct Tab<'b> {
    browser: &'b mut Browser,
    session: String,
}

impl Tab<'_> {
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// The value of an expression.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": format!("{{{expression}}}"), "returnByValue": true });
        let found = self.call("Runtime.evaluate", params);
        assert!(found.get("exceptionDetails").is_none(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    pub fn text(&mut self, expression: &str) -> String {
        let found = self.evaluate(expression);
        found.as_str().unwrap_or_else(|| panic!("{expression} is {found}")).to_owned()
    }

    pub fn number(&mut self, expression: &str) -> f64 {
        let found = self.evaluate(expression);
        found.as_f64().unwrap_or_else(|| panic!("{expression} is {found}"))
    }

    /// Waits until the expression is true. Meanwhile it may fail.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        let safe = format!("try {{ ({expression}) === true }} catch {{ false }}");
        while self.evaluate(&safe) != true {
            assert!(start.elapsed() < LONGEST, "{expression} is not true");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Presses a key and lets it go.
    pub fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            "/" => 191,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Writes a text where the focus is.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Gives the window another size.
    pub fn window(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Draws for this medium, light or dark.
    pub fn media(&mut self, media: &str, scheme: &str) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": scheme }));
    }

    /// The length of the page as a PDF file, in characters of base64.
    pub fn pdf_len(&mut self) -> usize {
        let found = self.call("Page.printToPDF", json!({}));
        found["data"].as_str().unwrap().len()
    }

    /// Every address that was asked for.
    pub fn requests(&mut self) -> Vec<String> {
        let is_request = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let requests = self.browser.events.iter().filter(is_request);
        let url = |event: &Value| event["params"]["request"]["url"].as_str().map(str::to_owned);
        requests.filter_map(url).collect()
    }

    /// What the browser complained of: exceptions, errors, violations of the policy.
    pub fn troubles(&mut self) -> Vec<String> {
        let is_trouble = |event: &&Value| {
            let level = &event["params"]["entry"]["level"];
            event["method"] == "Runtime.exceptionThrown" || level == "error" || level == "warning"
        };
        self.browser.events.iter().filter(is_trouble).map(Value::to_string).collect()
    }
}
