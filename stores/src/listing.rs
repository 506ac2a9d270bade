//! What is in a folder of a store, by as many requests as the store has pages.
//!
//! A listing that brings nothing new ends with an error: where it comes back to a page, where more
//! than 100 pages list what was listed, and where more than 100,000 in a row are empty, which may
//! take an hour. A listing with new names ends where the server ends it. A client without pages, as
//! a caller's own and that of a web server, lists without these bounds.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasher;

use futures_util::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{DELIMITER, Path};
use object_store::{Error as StoreError, ListResult, ObjectMeta};
use onnx_container::{Error, ErrorKind, Result};

use crate::again::again;
use crate::errors::from_store;
use crate::store::Store;
use crate::url::{Scheme, StoreUrl, path_of};

/// Empty pages in a row. A store looks at a thousand names or more for a page, which is empty where
/// the objects of all of them are deleted: that many are a hundred million names. A bucket with
/// versions keeps the names of all objects that were deleted, and no store says how many pages in
/// a row may be empty, so this is not smaller.
const MOST_EMPTY: usize = 100_000;
/// Pages in a row that list what was listed. On a page of one name that may be right: `a` and `a/`
/// are one name here.
const MOST_REPEATED: usize = 100;

const GOES_BACK: &str =
    "the listing of the store never ends: it is to go on where it has been before";
const STANDS_STILL: &str = "the listing of the store never ends: page after page has nothing new";
const ENDS_EARLY: &str = "the listing of the store ended, and there are objects behind its end: \
                          the server lists in another way, or another program has just put them \
                          there. Call again";

/// The objects in `folder` and in all folders below it.
///
/// # Errors
/// Where the store cannot be listed, or not to an end.
pub(crate) async fn below(store: &Store, folder: &str) -> Result<Vec<ObjectMeta>> {
    let Some(pages) = &store.0.client.pages else {
        let prefix = path_of(folder)?;
        let listed = again(|| store.objects().list(Some(&prefix)).try_collect()).await;
        return listed.map_err(|error| failed(store, folder, error));
    };
    Ok(all_pages(store, &**pages, folder, None).await?.objects)
}

/// The objects and the folders that are in `folder` itself.
///
/// # Errors
/// Those of [`below`].
pub(crate) async fn inside(store: &Store, folder: &str) -> Result<ListResult> {
    let Some(pages) = &store.0.client.pages else {
        let prefix = path_of(folder)?;
        let prefix = (!folder.is_empty()).then_some(&prefix);
        let listed = again(|| store.objects().list_with_delimiter(prefix)).await;
        return listed.map_err(|error| failed(store, folder, error));
    };
    let listed = all_pages(store, &**pages, folder, Some(DELIMITER)).await?;
    let common_prefixes = listed.folders.into_iter().collect();
    Ok(ListResult { common_prefixes, objects: listed.objects, extensions: Default::default() })
}

/// Refuses to take `listed`, what [`below`] has found in `folder`, for all that is there, where the
/// store has more behind it: a server that says in words of its own that there are more pages is
/// not understood, and its first page looks like the end. Azure has one way to say so, and not each
/// server of it lists from a name on.
///
/// # Errors
/// [`ErrorKind::Io`] where there is more, or the store answers from the beginning again; those of
/// [`below`].
pub(crate) async fn check_end(
    store: &Store,
    folder: &StoreUrl,
    listed: &[ObjectMeta],
) -> Result<()> {
    if folder.scheme() == Scheme::Azure {
        return Ok(());
    }
    let folder = folder.key();
    let last = listed.iter().map(|meta| meta.location.as_ref()).max();
    let Some((last, pages)) = last.zip(store.0.client.pages.as_ref()) else { return Ok(()) };
    let prefix = (!folder.is_empty()).then(|| format!("{folder}{DELIMITER}"));
    let page = again(|| {
        let options = PaginatedListOptions { offset: Some(last.to_owned()), ..Default::default() };
        pages.list_paginated(prefix.as_deref(), options)
    });
    let within = path_of(folder)?;
    // Some servers list all that they have.
    let is_here = |meta: &ObjectMeta| meta.location.prefix_matches(&within);
    match page.await {
        Ok(page) if !page.result.objects.iter().any(is_here) => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Io, ENDS_EARLY).with_path(store.shown(folder))),
        Err(error) => Err(failed(store, folder, error)),
    }
}

async fn all_pages(
    store: &Store,
    pages: &dyn PaginatedListStore,
    folder: &str,
    delimiter: Option<&'static str>,
) -> Result<Listed> {
    let prefix = (!folder.is_empty()).then(|| format!("{folder}{DELIMITER}"));
    let mut listed = Listed::default();
    let mut token = None;
    loop {
        let page = again(|| {
            let delimiter = delimiter.map(Cow::Borrowed);
            let page_token = token.clone();
            let options = PaginatedListOptions { delimiter, page_token, ..Default::default() };
            pages.list_paginated(prefix.as_deref(), options)
        });
        let page = page.await.map_err(|error| failed(store, folder, error))?;
        listed.add(page.result);
        token = page.page_token.filter(|token| !token.is_empty());
        let Some(token) = &token else { return Ok(listed) };
        if let Err(reason) = listed.goes_on(token) {
            return Err(Error::new(ErrorKind::Io, reason).with_path(store.shown(folder)));
        }
    }
}

/// What a listing has brought so far.
#[derive(Default)]
struct Listed {
    objects: Vec<ObjectMeta>,
    folders: BTreeSet<Path>,
    /// Hashes of all names, and of where the listing was to go on.
    names: HashSet<u64>,
    places: HashSet<u64>,
    hasher: RandomState,
    /// Pages in a row without a name, and with none that is new.
    empty: usize,
    repeated: usize,
}

impl Listed {
    fn add(&mut self, page: ListResult) {
        let objects = page.objects.iter().map(|meta| (false, &meta.location));
        let folders = page.common_prefixes.iter().map(|folder| (true, folder));
        let (mut is_empty, mut is_new) = (true, false);
        for name in objects.chain(folders) {
            is_empty = false;
            is_new |= self.names.insert(self.hasher.hash_one(name));
        }
        self.empty = if is_empty { self.empty.saturating_add(1) } else { 0 };
        self.repeated = match (is_new, is_empty) {
            (true, _) => 0,
            (_, true) => self.repeated,
            _ => self.repeated.saturating_add(1),
        };
        self.objects.extend(page.objects);
        self.folders.extend(page.common_prefixes);
    }

    /// Refuses to go on at `token` where that leads to no end.
    fn goes_on(&mut self, token: &str) -> std::result::Result<(), &'static str> {
        if !self.places.insert(self.hasher.hash_one(token)) {
            return Err(GOES_BACK);
        }
        match self.empty > MOST_EMPTY || self.repeated > MOST_REPEATED {
            true => Err(STANDS_STILL),
            false => Ok(()),
        }
    }
}

/// The error of a listing. One object whose name is no path of object_store makes its page
/// unreadable.
fn failed(store: &Store, folder: &str, error: StoreError) -> Error {
    let shown = store.shown(folder);
    match error {
        StoreError::InvalidPath { source } => {
            let reason = format!(
                "there is an object here that no URL names, so that the store cannot be listed: \
                 {source}. Rename it, or name a folder without it"
            );
            Error::new(ErrorKind::Unsupported, reason).with_path(shown)
        }
        error => from_store(&shown, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str]) -> ListResult {
        let folders = names.iter().map(|name| Path::from(*name)).collect();
        ListResult { common_prefixes: folders, objects: Vec::new(), extensions: Default::default() }
    }

    /// How many pages are asked for, of which `name` makes the names.
    fn pages_of(
        names: impl Fn(usize) -> Vec<String>,
        token: impl Fn(usize) -> usize,
        most: usize,
    ) -> usize {
        let mut listed = Listed::default();
        let goes_on = |number: &usize| {
            let names = names(*number);
            listed.add(page(&names.iter().map(String::as_str).collect::<Vec<_>>()));
            listed.goes_on(&token(*number).to_string()).is_ok()
        };
        (0..most).take_while(goes_on).count()
    }

    #[test]
    fn a_listing_that_brings_nothing_new_ends() {
        const MANY: usize = 3 * MOST_EMPTY;
        let none = |_| Vec::new();
        let same = |_| vec!["a".to_owned()];
        let new = |number: usize| vec![number.to_string()];
        let rare = |number: usize| match number % MOST_EMPTY {
            0 => new(number),
            _ => Vec::new(),
        };
        let each = |number: usize| number;
        assert_eq!(pages_of(none, each, MANY), MOST_EMPTY);
        assert_eq!(pages_of(same, each, MANY), 1 + MOST_REPEATED);
        assert_eq!(pages_of(rare, each, MANY), MANY);
        assert_eq!(pages_of(new, each, 1000), 1000);
        assert_eq!(pages_of(new, |number| number % 7, 1000), 7);
    }
}
