//! Memory of a device that handles keep for later and can do without.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{Error, Result};

/// A handle that keeps memory.
pub(super) trait Spare: Send + Sync {
    /// Frees it if nobody uses it, in the order of the handle's stream; whether it did.
    fn give_back(&self) -> Result<bool>;

    /// Whether it keeps any.
    fn is_kept(&self) -> bool;
}

/// The handles to a device that keep memory, and how often that was missed elsewhere.
#[derive(Default)]
pub(super) struct Spares {
    handles: Mutex<Vec<Weak<dyn Spare>>>,
    shortages: AtomicU64,
}

impl Spares {
    /// Adds a handle.
    pub fn add(&self, handle: Weak<dyn Spare>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(handle);
    }

    /// Asks for memory, once more without what handles keep and nobody uses. The caller holds the lock of no handle.
    pub fn make_room<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let first = ask();
        if !is_short(&first) {
            return first;
        }
        let mut is_more_free = false;
        for handle in self.alive() {
            is_more_free |= handle.give_back()?;
        }
        let outcome = if is_more_free { ask() } else { first };
        if is_short(&outcome) && self.alive().iter().any(|handle| handle.is_kept()) {
            self.count();
        }
        outcome
    }

    /// Counts a shortage of memory that handles have.
    pub fn count(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    /// How often memory ran out that handles kept.
    pub fn shortages(&self) -> u64 {
        self.shortages.load(Ordering::Relaxed)
    }

    fn alive(&self) -> Vec<Arc<dyn Spare>> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().filter_map(Weak::upgrade).collect()
    }
}

fn is_short<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::OutOfMemory { .. }))
}

/// Steps after which a handle keeps memory again that was missed elsewhere: twice as many each time.
#[derive(Default)]
pub(super) struct Pause {
    step: u64,
    /// Steps of the last pause, and the step that ends it.
    steps: u64,
    end: u64,
    /// Shortages of the device that it knows of.
    known: u64,
}

/// A handle that kept memory for as many times the last pause starts over with a short one.
const LONG: u64 = 16;

impl Pause {
    /// Begins a step; `shortages` are those of the device so far.
    pub fn begin_step(&mut self, shortages: u64) {
        if self.is_new(shortages) {
            self.begin(shortages);
        }
        self.step += 1;
    }

    /// Begins a pause.
    pub fn begin(&mut self, shortages: u64) {
        self.known = shortages;
        let has_kept = self.step.saturating_sub(self.end);
        self.steps = match has_kept > LONG * self.steps {
            true => 1,
            false => self.steps.saturating_mul(2).max(1),
        };
        self.end = self.step.saturating_add(self.steps).saturating_add(1);
    }

    /// Whether the device ran out of memory since the last step began.
    pub fn is_new(&self, shortages: u64) -> bool {
        shortages > self.known
    }

    /// Whether the handle keeps no memory for now.
    pub fn is_now(&self) -> bool {
        self.step < self.end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Kept {
        is_kept: AtomicBool,
        is_used: bool,
    }

    impl Spare for Kept {
        fn give_back(&self) -> Result<bool> {
            Ok(!self.is_used && self.is_kept.swap(false, Ordering::Relaxed))
        }

        fn is_kept(&self) -> bool {
            self.is_kept.load(Ordering::Relaxed)
        }
    }

    fn kept(is_used: bool) -> Arc<Kept> {
        Arc::new(Kept {
            is_kept: AtomicBool::new(true),
            is_used,
        })
    }

    #[test]
    fn what_nobody_uses_makes_room() {
        let spares = Spares::default();
        let (idle, used) = (kept(false), kept(true));
        for handle in [&idle, &used] {
            let handle: Weak<Kept> = Arc::downgrade(handle);
            spares.add(handle);
        }
        let ask = |needed: &[&Arc<Kept>]| {
            spares.make_room(|| match needed.iter().any(|kept| kept.is_kept()) {
                true => Err(Error::OutOfMemory { bytes: 1 }),
                false => Ok(()),
            })
        };
        assert!(ask(&[]).is_ok() && idle.is_kept());
        assert!(ask(&[&idle]).is_ok() && !idle.is_kept() && used.is_kept());
        assert_eq!(spares.shortages(), 0);
        assert!(ask(&[&used]).is_err());
        assert_eq!(spares.shortages(), 1);
        // Nobody's arena is in the way of this one.
        drop(used);
        let full = || Err::<(), _>(Error::OutOfMemory { bytes: 1 });
        assert!(spares.make_room(full).is_err());
        assert_eq!(spares.shortages(), 1);
    }

    #[test]
    fn pauses_grow_until_one_was_enough() {
        let mut pause = Pause::default();
        let mut shortages = 0;
        let mut lengths = Vec::new();
        for kept in [1, 1, 1, 200, 1] {
            for _ in 0..kept {
                pause.begin_step(shortages);
                assert!(!pause.is_now());
            }
            shortages += 1;
            assert!(pause.is_new(shortages));
            let mut length = 0;
            loop {
                pause.begin_step(shortages);
                assert!(!pause.is_new(shortages));
                if !pause.is_now() {
                    break;
                }
                length += 1;
            }
            lengths.push(length);
        }
        assert_eq!(lengths, [1, 2, 4, 1, 2]);
    }
}
