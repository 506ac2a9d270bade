//! Publishing an earlier version of a model again.

use futures_util::{StreamExt, TryStreamExt, stream};
use onnx_container::{Error, ErrorKind, Result};

use crate::names::is_version_of;
use crate::object::{AT_ONCE, Object};
use crate::publish::Publication;
use crate::publishing::{PublishOptions, Published, PublishedFile};
use crate::remote::RemoteModel;
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// Publishes a version of a model again that [`PublishOptions::keep`] left beside it. No weights
/// are sent, and the version stays.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for what is no version of the model; [`ErrorKind::MissingFile`]
/// where a weights file of the version is gone; those of [`publish`](crate::publish()).
pub fn rollback(
    store: &Store,
    url: &StoreUrl,
    version: &StoreUrl,
    options: &PublishOptions,
) -> Result<Published> {
    let beside = url.beside(version.name())?;
    if beside != *version || !is_version_of(version.name(), url.name()) {
        let reason = format!("`{version}` is no version of `{url}`");
        return Err(Error::new(ErrorKind::InvalidArgument, reason));
    }
    // First, so that a publication from here on is noticed.
    let publication = Publication::new(store, url, options)?;
    let model = RemoteModel::open_in(store, version)?;
    let files: Vec<String> = model.locations()?.into_iter().collect();
    let lengths = lengths(store, url, &files)?;
    let mut e_tag = None;
    let mut warnings = Vec::new();
    if !options.dry_run {
        e_tag = publication.replace(model.bytes())?;
        // Another publication may have let the version go, and a sweep its files, before this one.
        warnings.extend(self::lengths(store, url, &files).err());
    }
    let files = files.into_iter().zip(lengths);
    let files = files.map(|(name, bytes)| PublishedFile { name, bytes, sha256: None, sent: false });
    Ok(Published {
        url: url.clone(),
        e_tag,
        model_bytes: model.bytes().len() as u64,
        files: files.collect(),
        version: Some(version.clone()),
        removed: Vec::new(),
        warnings,
    })
}

/// The lengths of weights files beside the model at `url`.
fn lengths(store: &Store, url: &StoreUrl, files: &[String]) -> Result<Vec<u64>> {
    run(async {
        let asked = files
            .iter()
            .map(|name| async { Ok(Object::head(store, url.beside(name)?.key()).await?.len()) });
        stream::iter(asked).buffered(AT_ONCE).try_collect().await
    })
}
