//! Reads a model with all of its weights from a store into memory, and prints how long it took:
//! `fetch_model URL`. With `--sockets`, the bytes of a file of a web server over eight plain
//! connections into one buffer, which is what the machine can do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use onnx_container::{LoadOptions, Result};
use onnx_container_store::{StoreOptions, fetch};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = Instant::now();
    let bytes = match arguments[..] {
        ["--sockets", address, path] => sockets(address, path)?,
        [url] => {
            let container = fetch(url, &StoreOptions::new(), LoadOptions::new())?;
            container.iter().map(|(_, weight)| weight.byte_len()).sum()
        }
        _ => {
            eprintln!("usage: fetch_model URL, fetch_model --sockets HOST:PORT PATH");
            std::process::exit(2);
        }
    };
    println!("{bytes} bytes in {:.3} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Reads the file at `path` by eight ranges at once.
fn sockets(address: &str, path: &str) -> Result<u64> {
    const COUNT: usize = 8;
    let len = content_length(address, path)?;
    let mut bytes = vec![0; len];
    let part = len.div_ceil(COUNT).max(1);
    std::thread::scope(|scope| {
        let parts = bytes.chunks_mut(part).enumerate();
        let reads: Vec<_> = parts
            .map(|(number, out)| scope.spawn(move || range(address, path, number * part, out)))
            .collect();
        reads.into_iter().try_for_each(|read| match read.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(bytes.len() as u64)
}

fn content_length(address: &str, path: &str) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "HEAD {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut head = String::new();
    stream.read_to_string(&mut head)?;
    let mut lengths = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Ok(lengths.next().unwrap_or(0))
}

/// Fills `out` from byte `start` of the file on.
fn range(address: &str, path: &str, start: usize, out: &mut [u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let end = start + out.len() - 1;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nRange: bytes={start}-{end}\r\n\
         Connection: close\r\n\r\n"
    )?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.read_exact(out)?;
    Ok(())
}
