//! The clock of rank 0, estimated on every rank from the times of messages.
//!
//! Every closing message of a call has the time at which it leaves. What passes until it arrives, by two clocks, is
//! its delay and the difference of the clocks; of the messages of both directions the least delays are nearly equal,
//! and half of what is left between them is the offset of the clocks (D. Mills, RFC 5905, section 8, with the least
//! delay of a window as its clock filter, section 10).

use crate::executor::clock::Clock;
use crate::executor::wire::{Reader, Writer};

/// Messages of a window: clocks drift apart, so older ones are forgotten.
const WINDOW: u64 = 256;

/// The least of the last one to two windows.
#[derive(Clone, Copy, Debug)]
struct Least {
    seen: u64,
    before: f64,
    now: f64,
}

impl Least {
    fn take(&mut self, delay: f64) {
        if self.seen.is_multiple_of(WINDOW) {
            (self.before, self.now) = (self.now, f64::INFINITY);
        }
        self.seen += 1;
        self.now = self.now.min(delay);
    }

    fn get(self) -> f64 {
        self.before.min(self.now)
    }
}

/// The clock of a rank beside that of rank 0.
#[derive(Debug)]
pub(crate) struct Offsets {
    clock: Clock,
    /// What passes until messages arrive: from each rank, in seconds by both clocks.
    from: Vec<Least>,
    /// From this rank to rank 0, as that has told.
    to_root: f64,
}

impl Offsets {
    pub fn new(ranks: usize) -> Self {
        let least = Least {
            seen: 0,
            before: f64::INFINITY,
            now: f64::INFINITY,
        };
        Self {
            clock: Clock::start(),
            from: vec![least; ranks],
            to_root: f64::INFINITY,
        }
    }

    /// Seconds since the start of this rank.
    pub fn now(&self) -> f64 {
        self.clock.seconds()
    }

    /// What is to be added to [`now`](Self::now) for the time of rank 0; 0 while nothing is known.
    pub fn to_root(&self) -> f64 {
        let offset = (self.to_root - self.from[0].get()) / 2.0;
        match offset.is_finite() {
            true => offset,
            false => 0.0,
        }
    }

    /// Appends the times to a message.
    pub fn stamp(&self, to: usize, out: &mut Writer) {
        out.float(self.now());
        out.float(self.from[to].get());
    }

    /// Takes the times of a message.
    pub fn take(&mut self, from: usize, message: &mut Reader) -> Result<(), String> {
        let now = self.now();
        self.from[from].take(now - message.float()?);
        let told = message.float()?;
        if from == 0 {
            self.to_root = told;
        }
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// The delay of the slower messages does not count, nor do those of long ago.
    #[test]
    fn the_least_delays_of_a_window_count() {
        let mut least = Offsets::new(1).from[0];
        (0..10).for_each(|at| least.take(f64::from(at)));
        assert_eq!(least.get(), 0.0);
        (0..2 * WINDOW).for_each(|_| least.take(7.0));
        assert_eq!(least.get(), 7.0);
    }
}
