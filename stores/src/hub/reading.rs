//! Bytes of a file at the Hub, from the server that the Hub names.
//!
//! That server knows nothing of the repository: what it sends has to be the range that was asked
//! for, of a file as long as the Hub says. An address that it refuses has expired, so the Hub is
//! asked once for another.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use onnx_container::{Error, ErrorKind, Result};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE};
use reqwest::{Response, StatusCode};

use super::client::unreached;
use super::repository::{Repository, Resolved, text};

/// The answer that has the bytes of a range of a file.
pub(super) async fn read(
    repo: &Repository,
    path: &str,
    file: &Arc<Resolved>,
    range: &Range<u64>,
) -> Result<Response> {
    let part = (*range != (0..file.size)).then_some(range);
    let mut answer = repo.get(&file.place, part).await?;
    if answer.status().is_client_error() && repo.is_signed(&file.place) {
        let file = repo.resolve_again(path, file).await?;
        answer = repo.get(&file.place, part).await?;
    }
    if !answer.status().is_success() {
        return Err(match repo.is_signed(answer.url()) {
            true => failed(format!("the server of the file answers `{}`", answer.status())),
            false => repo.refused(&answer),
        });
    }
    compare(&answer, file.size, range)?;
    Ok(answer)
}

/// Checks that an answer is that of `range` of `size` bytes.
fn compare(answer: &Response, size: u64, range: &Range<u64>) -> Result<()> {
    let (start, end) = (range.start, range.end);
    let headers = answer.headers();
    let (sent, total) = match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let stated = text(headers, &CONTENT_RANGE).and_then(content_range);
            let Some(stated) = stated else {
                return Err(failed("the server of the file does not say which bytes it sends"));
            };
            stated
        }
        _ => {
            let stated = text(headers, &CONTENT_LENGTH).and_then(|len| len.parse().ok());
            let total = stated.unwrap_or(size);
            (0..total, total)
        }
    };
    if total != size {
        let reason = format!(
            "the Hub says that the file has {size} bytes, and its server has one of {total}"
        );
        return Err(failed(reason));
    }
    if sent != *range {
        let reason = format!(
            "the server of the file was asked for bytes {start} to {end} and sends {} to {}",
            sent.start, sent.end
        );
        return Err(failed(reason));
    }
    Ok(())
}

/// The range and the length of `bytes 0-9/100`.
fn content_range(stated: &str) -> Option<(Range<u64>, u64)> {
    let (range, total) = stated.strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((start.parse().ok()?..end, total.parse().ok()?))
}

/// The body of an answer, in pieces.
pub(super) fn pieces(answer: Response) -> BoxStream<'static, Result<Bytes>> {
    try_unfold(answer, |mut answer| async {
        let piece = answer.chunk().await.map_err(unreached)?;
        Ok(piece.map(|piece| (piece, answer)))
    })
    .boxed()
}

fn failed(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_stated() {
        let cases = [
            ("bytes 0-9/100", Some((0..10, 100))),
            ("bytes 90-99/100", Some((90..100, 100))),
            ("bytes 0-9/*", None),
            ("bytes */100", None),
            ("bytes 0-18446744073709551615/1", None),
            ("0-9/100", None),
        ];
        for (stated, range) in cases {
            assert_eq!(content_range(stated), range, "{stated}");
        }
    }
}
