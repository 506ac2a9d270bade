//! x
use crate::options::StoreOptions;
use crate::url::StoreUrl;
use object_store::ObjectStore;
use onnx_container::Result;
use std::sync::Arc;
pub(crate) fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
    let _ = (url, options);
    todo!()
}
