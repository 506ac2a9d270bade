//! [`Stores`]: how a process reaches the stores of a job.

use onnx_container::Result;

use crate::options::StoreOptions;
use crate::store::Store;
use crate::url::{StoreUrl, is_url};

/// How the stores of a job are reached, by each process for itself: a job has no credentials.
/// [`StoreOptions`] and a [`Store`] that is open convert.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    options: StoreOptions,
    open: Vec<Store>,
}

impl Stores {
    /// By the environment alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// By a store that is open, where a URL is of its [root](Store::root), and otherwise as before.
    #[must_use]
    pub fn open(mut self, store: Store) -> Self {
        self.open.push(store);
        self
    }

    /// The URL of the object that a job calls by the name of a store and a key: in a store that is
    /// open where it is there, whatever part of the URL that store has as its root.
    pub(super) fn named(&self, root: &str, key: &str) -> Result<StoreUrl> {
        self.in_open(&format!("{root}/{key}")).unwrap_or_else(|| {
            if !is_url(root) {
                return StoreUrl::named(root, key);
            }
            let place = StoreUrl::parse(root)?;
            match place.key() {
                "" => StoreUrl::named(place.root(), key),
                folder => StoreUrl::named(place.root(), &format!("{folder}/{key}")),
            }
        })
    }

    /// The URL that `text` is, if it is no path.
    pub(super) fn url(&self, text: &str) -> Result<Option<StoreUrl>> {
        let parsed = || is_url(text).then(|| StoreUrl::parse(text));
        self.in_open(text).or_else(parsed).transpose()
    }

    /// The URL `text` in a store that is open.
    fn in_open(&self, text: &str) -> Option<Result<StoreUrl>> {
        self.open.iter().find_map(|store| {
            let key = text.strip_prefix(store.root())?.strip_prefix('/')?;
            Some(StoreUrl::of(store.root(), key))
        })
    }

    /// The store of `url`.
    pub(crate) fn of(&self, url: &StoreUrl) -> Result<Store> {
        let open = self.open.iter().find(|store| store.root() == url.root());
        open.map_or_else(|| Store::open(url, &self.options), |store| Ok(store.clone()))
    }
}

impl From<StoreOptions> for Stores {
    fn from(options: StoreOptions) -> Self {
        Self { options, open: Vec::new() }
    }
}

impl From<&StoreOptions> for Stores {
    fn from(options: &StoreOptions) -> Self {
        options.clone().into()
    }
}

impl From<Store> for Stores {
    fn from(store: Store) -> Self {
        Self::new().open(store)
    }
}

impl From<&Store> for Stores {
    fn from(store: &Store) -> Self {
        store.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    fn open(root: &str) -> Stores {
        Store::new(Arc::new(InMemory::new()), root).into()
    }

    #[test]
    fn an_object_is_in_the_store_that_is_open_and_has_its_url() {
        // The store that is open, the root and the key of the object, and those in what is reached.
        let cases = [
            ("s3://b", "s3://b", "a/m.onnx", ("s3://b", "a/m.onnx")),
            ("s3://b/a", "s3://b", "a/m.onnx", ("s3://b/a", "m.onnx")),
            ("s3://b/a", "s3://b/a", "m.onnx", ("s3://b/a", "m.onnx")),
            ("s3://b", "s3://b/a", "m.onnx", ("s3://b", "a/m.onnx")),
            ("memory:/", "memory:/", "m.onnx", ("memory:/", "m.onnx")),
            ("s3://b/a", "s3://b", "ab/m.onnx", ("s3://b", "ab/m.onnx")),
            ("memory:/", "s3://b/a", "m.onnx", ("s3://b", "a/m.onnx")),
        ];
        for (opened, root, key, (found_root, found_key)) in cases {
            let url = open(opened).named(root, key).unwrap();
            assert_eq!((url.root(), url.key()), (found_root, found_key), "{opened} {root} {key}");
            let given = open(opened).url(&format!("{root}/{key}")).unwrap().unwrap();
            assert_eq!(
                (given.root(), given.key()),
                (found_root, found_key),
                "{opened} {root} {key}"
            );
        }
    }

    #[test]
    fn a_path_is_no_url_and_a_store_without_one_has_to_be_given() {
        for path in ["m.onnx", "/memory:/m.onnx", "memory://m.onnx"] {
            assert!(open("s3://b").url(path).unwrap().is_none(), "{path}");
        }
        let url = Stores::new().named("memory:/", "m.onnx").unwrap();
        let error = Stores::new().of(&url).unwrap_err().to_string();
        assert!(error.contains("give that store"), "{error}");
    }
}
