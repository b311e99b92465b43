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
        self.most.fetch_max(now, Ordering::Release);
    }

    /// Counts them no more.
    pub fn remove(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most since the last look.
    pub fn take_most(&self) -> u64 {
        // What is added from here on is of the next look. `Acquire`: what the returned maximum counts is in `now`.
        let most = self.most.swap(0, Ordering::Acquire);
        let now = self.now.load(Ordering::Relaxed);
        self.most.fetch_max(now, Ordering::Release);
        most
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

    /// What is added beside a look and stays is seen by that look or the next, and by all after it.
    #[test]
    fn no_look_loses_what_is_added_beside_it() {
        const ROUNDS: u64 = 1_000;
        let (gauge, begun, added) = <(Gauge, AtomicU64, AtomicU64)>::default();
        let is_at = |at: &AtomicU64, round| at.load(Ordering::Acquire) >= round;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while !is_at(&begun, round) {
                        std::thread::yield_now();
                    }
                    gauge.add(1);
                    added.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                begun.store(round, Ordering::Release);
                let (mut seen, mut lost) = (0, false);
                let mut look = || {
                    let most = gauge.take_most();
                    lost |= most < seen;
                    seen = most;
                };
                while !is_at(&added, round) {
                    look();
                }
                look();
                if lost || seen != 1 {
                    // The other thread ends.
                    begun.store(u64::MAX, Ordering::Release);
                    panic!("round {round}: a look said less than was held");
                }
                gauge.remove(1);
                gauge.take_most();
            }
        });
    }
}
