//! [`Hub`]: a repository of the Hugging Face Hub as a store that is only read.
//!
//! A store stays at the commit that its revision had at its first request, so that the graph and
//! the weights of a load are of one save. The tag of a large file is its SHA-256, which the Hub
//! knows beforehand. What the cache on disk of the Hub's own tools has of that commit is read from
//! there.
//!
//! Tests ask a server that answers as the Hub is documented to do. They do not reach the real one.

mod cache;
mod client;
mod reading;
mod refused;
mod repository;
mod settings;
mod tree;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, CopyOptions, Error as StoreError, GetOptions, GetResult,
    GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use onnx_container::{Error, ErrorKind, Result};
use reqwest::header::CONTENT_ENCODING;

use crate::options::StoreOptions;
use crate::url::StoreUrl;
use cache::Cache;
use client::Client;
use repository::{Found, Repository, text};
use settings::Settings;
use tree::Entry;

const REVISION: &str = "main";

/// A repository of the Hub.
#[derive(Debug)]
struct Hub {
    root: String,
    repo: Arc<Repository>,
}

/// The repository of `url`. Nothing is asked yet.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for what is no name of a repository or of a revision, and for
/// options that the Hub does not have; [`ErrorKind::Unsupported`] for repositories of no models.
pub(crate) fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
    let root = url.root();
    let (name, revision) = parts(root)?;
    let settings = Settings::of(options, root)?;
    let cache = settings.cache.as_deref().map(|folder| Cache::new(folder, &name));
    let repo = Repository::new(Client::new(settings), name, revision, cache);
    Ok(Arc::new(Hub { root: root.to_owned(), repo: Arc::new(repo) }))
}

/// The repository and the revision of `hf://owner/name[@revision]`.
fn parts(root: &str) -> Result<(String, String)> {
    let invalid = |reason| Error::new(ErrorKind::InvalidArgument, reason);
    let stated = root.strip_prefix("hf://").unwrap_or(root);
    let (name, revision) = stated.split_once('@').unwrap_or((stated, REVISION));
    let of_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = |part: &str| !matches!(part, "." | "..") && part.chars().all(of_names);
    if !name.split('/').all(is_name) {
        return Err(invalid(format!("the Hub has no repository with a name like `{name}`")));
    }
    if let Some(("datasets" | "spaces" | "buckets" | "kernels", _)) = name.split_once('/') {
        let reason = format!("`{root}` is no repository of models: only those are read");
        return Err(Error::new(ErrorKind::Unsupported, reason));
    }
    match Path::from_url_path(revision) {
        Ok(revision) if !revision.as_ref().is_empty() => Ok((name.to_owned(), revision.into())),
        _ => Err(invalid(format!("no repository has a revision `{revision}`"))),
    }
}

/// What the Hub says, as a store says it. Its text goes to the user as it is.
fn in_store(error: Error, path: &str) -> StoreError {
    let kind = error.kind();
    let source = Box::new(error);
    match kind {
        ErrorKind::MissingFile => StoreError::NotFound { path: path.to_owned(), source },
        ErrorKind::Unsupported => StoreError::NotSupported { source },
        _ => StoreError::Generic { store: "Hub", source },
    }
}

/// The error of everything that writes.
fn only_read() -> StoreError {
    let reason = "a repository of the Hub is only read: save the model into a folder, and upload \
                  that with `hf upload`";
    in_store(Error::new(ErrorKind::Unsupported, reason), "")
}

impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

#[async_trait]
impl ObjectStore for Hub {
    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let path = location.as_ref();
        let fail = |error| in_store(error, path);
        let found = self.repo.find(path).await.map_err(fail)?;
        let commit = self.repo.commit().await.map_err(fail)?;
        let meta = meta(location.clone(), found.size(), found.tag(), commit);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|error| fail(Error::new(ErrorKind::Io, error.to_string())))?,
            None => 0..meta.size,
        };
        let mut attributes = Attributes::new();
        let pieces = match &found {
            _ if options.head || range.is_empty() => stream::empty().boxed(),
            Found::OnDisk(file) => file.read(range.clone()).await.map_err(fail)?,
            Found::AtHub(file) => {
                let answer = reading::read(&self.repo, path, file, &range).await.map_err(fail)?;
                if let Some(encoding) = text(answer.headers(), &CONTENT_ENCODING) {
                    attributes.insert(Attribute::ContentEncoding, encoding.to_owned().into());
                }
                reading::pieces(answer)
            }
        };
        let path = path.to_owned();
        let pieces = pieces.map_err(move |error| in_store(error, &path)).boxed();
        let payload = GetResultPayload::Stream(pieces);
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let (repo, folder) = (self.repo.clone(), prefix.map(Path::to_string));
        let listed = async move {
            let listed = list(&repo, folder.as_deref(), true).await?;
            Ok::<_, StoreError>(stream::iter(listed.objects).map(Ok))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        list(&self.repo, prefix.map(Path::as_ref), false).await
    }

    async fn put_opts(
        &self,
        _: &Path,
        _: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        Err(only_read())
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(only_read())
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        locations.map(|_| Err(only_read())).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        Err(only_read())
    }
}

/// What a store says of a file. A commit has a time, and its files have none.
fn meta(location: Path, size: u64, tag: Option<&str>, commit: &str) -> ObjectMeta {
    let (e_tag, version) = (tag.map(|tag| format!("\"{tag}\"")), Some(commit.to_owned()));
    ObjectMeta { location, last_modified: DateTime::<Utc>::UNIX_EPOCH, size, e_tag, version }
}

async fn list(
    repo: &Repository,
    folder: Option<&str>,
    below: bool,
) -> object_store::Result<ListResult> {
    let fail = |error| in_store(error, folder.unwrap_or_default());
    let folder = folder.filter(|folder| !folder.is_empty());
    let commit = repo.commit().await.map_err(fail)?;
    let (mut common_prefixes, mut objects) = (Vec::new(), Vec::new());
    for entry in tree::entries(repo, folder, below).await.map_err(fail)? {
        match entry {
            Entry::Folder(path) => common_prefixes.push(Path::parse(path)?),
            Entry::File { path, size, tag } => {
                objects.push(meta(Path::parse(path)?, size, tag.as_deref(), commit));
            }
        }
    }
    Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_a_repository_and_a_revision() {
        // The root, and the repository and the revision, or what is said.
        let cases = [
            ("hf://o/r", Ok(("o/r", "main"))),
            ("hf://o/r.x_y-1@v1", Ok(("o/r.x_y-1", "v1"))),
            ("hf://o/r@refs%2Fpr%2F1", Ok(("o/r", "refs/pr/1"))),
            ("hf://o/r@", Err("no repository has a revision")),
            ("hf://o/r@..%2F..%2Fx", Err("no repository has a revision")),
            ("hf://../r", Err("no repository with a name like")),
            ("hf://o/r?x", Err("no repository with a name like")),
            ("hf://datasets/o", Err("is no repository of models")),
        ];
        for (root, expected) in cases {
            let found = parts(root);
            let found = found.as_ref().map(|(name, revision)| (name.as_str(), revision.as_str()));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{root}"),
                (Err(error), Err(said)) => assert!(error.to_string().contains(said), "{error}"),
                (found, expected) => panic!("{root}: {found:?}, not {expected:?}"),
            }
        }
    }
}
