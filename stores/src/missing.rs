//! Which weights files of a publication have to be sent.
//!
//! A file whose name says that it has the bytes is not sent again, unless a sweep may be about to
//! delete it: one that is old and that the model does not name. The bytes are then sent under a
//! name of their own, so that the publication and the sweep have no object in common.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use onnx_container::save::Prepared;
use onnx_container::{ErrorKind, Result};

use crate::names::{is_unique_name_of, unique_name};
use crate::object::{AT_ONCE, Object};
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// How old a file is that a sweep removes, unless it is said: a week.
pub(crate) const DEFAULT_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How a weights file is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Missing,
    There,
    /// It has another length, or a sweep may be about to delete it.
    Unusable,
}

/// Which weights files of a model at `url` have to be sent, in order. `kept` are those that the
/// model names which is there.
pub(crate) fn missing(
    store: &Store,
    url: &StoreUrl,
    prepared: &mut Prepared,
    kept: &BTreeSet<String>,
) -> Result<Vec<bool>> {
    for (number, file) in prepared.files().into_iter().enumerate() {
        if let Some(again) = kept.iter().find(|kept| is_unique_name_of(kept, &file.name)) {
            prepared.rename(number, again)?;
        }
    }
    let planned = prepared.files();
    let found: Vec<Found> = run(async {
        let asked = planned.iter().map(|file| find(store, url, &file.name, file.bytes, kept));
        stream::iter(asked).buffered(AT_ONCE).try_collect().await
    })?;
    for (number, (file, found)) in planned.iter().zip(&found).enumerate() {
        if *found == Found::Unusable {
            prepared.rename(number, unique_name(&file.name))?;
        }
    }
    Ok(found.into_iter().map(|found| found != Found::There).collect())
}

/// The name under which a weights file that is called by its content is there or is to be sent,
/// and whether it is to be sent.
pub(crate) async fn name_of(
    store: &Store,
    url: &StoreUrl,
    name: String,
    bytes: u64,
) -> Result<(String, bool)> {
    Ok(match find(store, url, &name, bytes, &BTreeSet::new()).await? {
        Found::There => (name, false),
        Found::Missing => (name, true),
        Found::Unusable => (unique_name(&name), true),
    })
}

async fn find(
    store: &Store,
    url: &StoreUrl,
    name: &str,
    bytes: u64,
    kept: &BTreeSet<String>,
) -> Result<Found> {
    match Object::head(store, url.beside(name)?.key()).await {
        // Somebody else's, or damaged: it is left as it is.
        Ok(object) if object.len() != bytes => Ok(Found::Unusable),
        Ok(object) if kept.contains(name) || object.version().age() < DEFAULT_AGE / 2 => {
            Ok(Found::There)
        }
        Ok(_) => Ok(Found::Unusable),
        Err(error) if error.kind() == ErrorKind::MissingFile => Ok(Found::Missing),
        Err(error) => Err(error),
    }
}
