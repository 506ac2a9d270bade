//! What object_store asks once, asked again where that does no harm: it repeats no request that
//! changes something when the connection ended before the answer was there.

use std::time::Duration;

use object_store::Error as StoreError;

/// How often something is asked for.
pub(crate) const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// The result of `ask`, again where it fails for reasons that may pass.
pub(crate) async fn again<T, F>(mut ask: impl FnMut() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    let mut attempt = 1;
    loop {
        match ask().await {
            Err(error) if attempt < ATTEMPTS && may_pass(&error) => pause(attempt).await,
            result => return result,
        }
        attempt += 1;
    }
}

/// Waits after an attempt that failed.
pub(crate) async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * attempt).await;
}

/// Whether the same request may succeed: no answer came, or one that says nothing of the object.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. })
}
