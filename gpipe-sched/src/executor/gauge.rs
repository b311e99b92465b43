//! Bytes of messages that a process holds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are held now, and the most that were since the last look. Only the bodies of messages count: their heads are
/// small.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    most: AtomicU64,
}

impl Gauge {
    /// Counts the bytes of a message ([`Parcel::bytes`](crate::Parcel::bytes)).
    pub fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    /// Counts them no more.
    pub fn remove(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most since the last look.
    pub fn take_most(&self) -> u64 {
        let now = self.now.load(Ordering::Relaxed);
        self.most.swap(now, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_that_since_the_last_look() {
        let gauge = Gauge::default();
        gauge.add(5);
        gauge.add(10);
        gauge.remove(5);
        assert_eq!(gauge.take_most(), 15);
        assert_eq!(gauge.take_most(), 10);
        gauge.remove(10);
        assert_eq!([gauge.take_most(), gauge.take_most()], [10, 0]);
    }
}
