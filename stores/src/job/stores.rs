//! [`Stores`]: how a process reaches the stores of a job.

use onnx_container::Result;

use crate::options::StoreOptions;
use crate::store::Store;
use crate::url::StoreUrl;

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
