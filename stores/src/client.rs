//! [`Client`]: how one store is spoken to.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

/// The client of a store.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Its listings page by page, where it has pages.
    pub(crate) pages: Option<Arc<dyn PaginatedListStore>>,
    /// Whether it is known to honour conditions.
    pub(crate) is_known: bool,
}

impl Client {
    /// One of which nothing is known.
    pub(crate) fn of(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, pages: None, is_known: false }
    }

    /// One that lists in pages.
    #[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
    pub(crate) fn paged<T: ObjectStore + PaginatedListStore>(store: T, is_known: bool) -> Self {
        let store = Arc::new(store);
        let (objects, pages): (Arc<dyn ObjectStore>, Arc<dyn PaginatedListStore>) =
            (store.clone(), store);
        Self { objects, pages: Some(pages), is_known }
    }
}
