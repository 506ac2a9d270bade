//! How many requests a store serves at once.
//!
//! On a fast line eight streams are enough, and more are slower. Where an answer takes long to
//! begin, the line is idle meanwhile, so that more streams are needed: by Little's law as many as
//! fit into one request, which is its wait and its transfer, for each that transfers. The number
//! follows what was measured.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Streams that transfer at once.
const FEWEST: usize = 8;
const MOST: usize = 64;
/// The share of a new measurement in the average.
const SHARE: f64 = 0.2;

/// The streams of one store.
pub(crate) struct Streams {
    permits: Semaphore,
    measured: Mutex<Measured>,
}

struct Measured {
    /// Seconds until an answer begins.
    wait: f64,
    /// Seconds that its bytes take.
    transfer: f64,
    /// How many permits there are.
    count: usize,
}

impl Streams {
    pub(crate) fn new() -> Self {
        let measured = Measured { wait: 0.0, transfer: 0.0, count: FEWEST };
        Self { permits: Semaphore::new(FEWEST), measured: Mutex::new(measured) }
    }

    /// Waits for a stream. The error cannot occur: the semaphore is never closed.
    pub(crate) async fn stream(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Notes how long a request for a whole part took: until its answer began, and in all.
    pub(crate) fn measured(&self, wait: Duration, all: Duration) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (wait, transfer) = (wait.as_secs_f64(), all.saturating_sub(wait).as_secs_f64());
        measured.wait += SHARE * (wait - measured.wait);
        measured.transfer += SHARE * (transfer - measured.transfer);
        let wanted = wanted(measured.wait, measured.transfer);
        // One step at a time, so that no single measurement decides.
        if wanted > measured.count {
            measured.count += 1;
            self.permits.add_permits(1);
        } else if wanted < measured.count && self.permits.forget_permits(1) == 1 {
            measured.count -= 1;
        }
    }
}

/// How many streams keep a line busy, of which each waits and then transfers.
fn wanted(wait: f64, transfer: f64) -> usize {
    let fewest = FEWEST as f64;
    (FEWEST..MOST)
        .find(|count| *count as f64 * transfer >= fewest * (wait + transfer))
        .unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_want_more_streams() {
        // Wait, transfer, and how many.
        let cases = [
            (0.0, 0.0, 8),
            (0.0, 1.0, 8),
            (1.0, 1.0, 16),
            (2.0, 1.0, 24),
            (9.0, 0.1, 64),
            (1.0, 0.0, 64),
        ];
        for (wait, transfer, count) in cases {
            assert_eq!(wanted(wait, transfer), count, "{wait} {transfer}");
        }
    }

    #[test]
    fn the_number_follows_what_was_measured() {
        let streams = Streams::new();
        let millis = Duration::from_millis;
        assert_eq!(streams.permits.available_permits(), 8);
        (0..100).for_each(|_| streams.measured(millis(50), millis(51)));
        assert_eq!(streams.permits.available_permits(), 64);
        (0..200).for_each(|_| streams.measured(millis(0), millis(10)));
        assert_eq!(streams.permits.available_permits(), 8);
    }
}
