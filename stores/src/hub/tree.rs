//! The list of the files of a repository.

use onnx_container::{Error, ErrorKind, Result};
use serde_json::Value;

use super::repository::Repository;

/// Pages of a list, each of a thousand files.
const MOST_PAGES: usize = 10_000;

/// Something in a folder.
#[derive(Debug)]
pub(super) enum Entry {
    Folder(String),
    File { path: String, size: u64, tag: Option<String> },
}

/// What is in a folder, and in those below it where `below`. A folder that is not there is empty.
pub(super) async fn entries(
    repo: &Repository,
    folder: Option<&str>,
    below: bool,
) -> Result<Vec<Entry>> {
    let mut url = repo.folder(folder).await?;
    if below {
        url.set_query(Some("recursive=true"));
    }
    let (mut entries, mut next) = (Vec::new(), Some(url));
    let mut pages = 0;
    while let Some(url) = next.take() {
        pages += 1;
        if pages > MOST_PAGES {
            return Err(Error::new(ErrorKind::TooLarge, "the list of the repository has no end"));
        }
        let page = match repo.page(url).await {
            Err(error) if error.kind() == ErrorKind::MissingFile && folder.is_some() => break,
            page => page?,
        };
        let listed = page.0.as_array().map(Vec::as_slice).unwrap_or_default();
        for value in listed {
            entries.push(entry(value).ok_or_else(no_entry)?);
        }
        next = page.1;
    }
    Ok(entries)
}

fn no_entry() -> Error {
    Error::new(ErrorKind::Io, "the Hub lists something that is neither a file nor a folder")
}

/// An entry of a list. The tag of a large file is its SHA-256, and that of another is git's.
fn entry(value: &Value) -> Option<Entry> {
    let path = value.get("path")?.as_str()?.to_owned();
    if value.get("type")?.as_str()? == "directory" {
        return Some(Entry::Folder(path));
    }
    let large = value.get("lfs").filter(|large| large.is_object());
    let tag = large.unwrap_or(value).get("oid").and_then(Value::as_str).map(str::to_owned);
    Some(Entry::File { path, size: value.get("size")?.as_u64()?, tag })
}
