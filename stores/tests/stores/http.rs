//! As much of HTTP/1.1 as the servers of these tests need. A request is read whole, a handler
//! answers it, and an answer may be wrong in every way that the handler says.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The path without its first slash, decoded.
    pub fn path(&self) -> String {
        let path = self.target.split('?').next().unwrap();
        decoded(path.trim_start_matches('/'))
    }

    /// A value of the query, decoded. One without a value is empty.
    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decoded(value))
    }

    /// The bytes of the object that are asked for.
    pub fn range(&self) -> Option<(usize, usize)> {
        let (start, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().unwrap(), last.parse::<usize>().unwrap() + 1))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How many bytes of the body are sent before the connection ends.
    pub cut_at: Option<usize>,
}

impl Response {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    /// Sets a header, in place of one that is there.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What becomes of a connection.
pub enum Answer {
    Response(Response),
    /// These bytes, and its end.
    Raw(Vec<u8>),
    /// Its end, without an answer.
    Cut,
}

/// Serves on a free port of this machine until the process ends, and returns the port.
pub fn serve(handler: impl Fn(&Request) -> Answer + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let handler = handler.clone();
            // A connection that its client ends is no failure.
            thread::spawn(move || stream.and_then(|stream| talk(&stream, &handler)));
        }
    });
    port
}

fn talk(stream: &TcpStream, handler: &impl Fn(&Request) -> Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        let answer = match handler(&request) {
            Answer::Response(answer) => answer,
            Answer::Raw(bytes) => return (&mut &*stream).write_all(&bytes),
            Answer::Cut => return Ok(()),
        };
        let is_last = answer.cut_at.is_some() || request.header("connection") == Some("close");
        write_response(stream, &answer, request.method == "HEAD", is_last)?;
        if is_last {
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(first) = read_line(reader)? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut headers = Vec::new();
    while let Some(line) = read_line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut request = Request { method, target, headers, body: Vec::new() };
    let len = request.header("content-length").map_or(0, |len| len.parse().unwrap());
    request.body.resize(len, 0);
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = reader.read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end().to_owned()))
}

fn write_response(
    mut stream: &TcpStream,
    answer: &Response,
    head_only: bool,
    is_last: bool,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} As told\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if answer.header("content-length").is_none() {
        head.push_str(&format!("content-length: {}\r\n", answer.body.len()));
    }
    if is_last {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    let sent = answer.cut_at.unwrap_or(answer.body.len()).min(answer.body.len());
    match head_only {
        true => Ok(()),
        false => stream.write_all(&answer.body[..sent]),
    }
}

/// Sends `request` to a server of this machine, and returns all that it answers.
pub fn forward(port: u16, request: &Request) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut head =
        format!("{} {} HTTP/1.1\r\nconnection: close\r\n", request.method, request.target);
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&request.body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Without percents.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(match byte {
            b'%' => digit() * 16 + digit(),
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
