//! The pool of freed buffers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::thread::{self, ThreadId};

use crate::Result;
use crate::floats::Floats;

/// Buffers shorter than this are left to the allocator.
const POOLED_ELEMENTS: usize = 1024;

/// Most recently freed buffers of a length among which one freed by the calling thread is preferred; older
/// ones are in no cache any more.
const NEAR: usize = 64;

/// Free buffers by exact length. Training needs the same lengths in every step, so from the second step on
/// all of them are in the pool.
///
/// The free elements are bounded by twice the peak of elements in use, so that changing sizes cannot
/// accumulate buffers; beyond that the least recently used are returned to the system.
#[derive(Default)]
pub(crate) struct Pool {
    /// Free buffers of each length, most recently freed last.
    free: HashMap<usize, VecDeque<Freed>>,
    /// The lengths of free buffers, by the time when they were freed.
    ages: BTreeMap<u64, usize>,
    /// Elements that are free, in use, and the peak of those in use.
    idle: usize,
    in_use: usize,
    most_in_use: usize,
    /// Number of buffers freed so far.
    time: u64,
}

/// A free buffer.
struct Freed {
    /// When it was freed.
    time: u64,
    by: ThreadId,
    buffer: Floats,
}

impl Pool {
    /// A buffer of `n` floats, and whether they are zeros; otherwise its contents are unspecified.
    pub(crate) fn take(&mut self, n: usize) -> Result<(Floats, bool)> {
        let taken = match self.reuse(n) {
            Some(Freed { buffer, .. }) => {
                self.idle -= n;
                (buffer, false)
            }
            None => {
                let fresh = Floats::zeros(n).or_else(|_| {
                    self.clear();
                    Floats::zeros(n)
                })?;
                (fresh, true)
            }
        };
        if n >= POOLED_ELEMENTS {
            self.in_use += n;
            self.most_in_use = self.most_in_use.max(self.in_use);
        }
        Ok(taken)
    }

    /// Prefers the buffer that the calling thread freed last, which is likely still in its processor's cache.
    /// A buffer of another thread may be in another processor's cache, from which each line would be
    /// fetched: otherwise takes the least recently freed one.
    fn reuse(&mut self, n: usize) -> Option<Freed> {
        let list = self.free.get_mut(&n)?;
        let asking = thread::current().id();
        let mut near = list.iter().rev().take(NEAR);
        let freed = match near.position(|freed| freed.by == asking) {
            Some(back) => list.remove(list.len() - 1 - back)?,
            None => list.pop_front()?,
        };
        self.ages.remove(&freed.time);
        Some(freed)
    }

    /// Returns a buffer to the pool.
    pub(crate) fn give(&mut self, buffer: Floats) {
        let n = buffer.len();
        if n < POOLED_ELEMENTS {
            return;
        }
        // A buffer may come from the pool of another host, whose worker sent it.
        self.in_use = self.in_use.saturating_sub(n);
        self.idle += n;
        self.time += 1;
        let freed = Freed {
            time: self.time,
            by: thread::current().id(),
            buffer,
        };
        self.free.entry(n).or_default().push_back(freed);
        self.ages.insert(self.time, n);
        while self.idle > 2 * self.most_in_use {
            self.drop_longest_unused();
        }
    }

    /// Returns all free buffers to the system, when it has no memory left.
    fn clear(&mut self) {
        self.free.clear();
        self.ages.clear();
        self.idle = 0;
    }

    fn drop_longest_unused(&mut self) {
        let Some((_, n)) = self.ages.pop_first() else {
            return;
        };
        if let Some(buffers) = self.free.get_mut(&n) {
            buffers.pop_front();
            self.idle -= n;
            if buffers.is_empty() {
                self.free.remove(&n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = POOLED_ELEMENTS;

    fn take(pool: &mut Pool, n: usize) -> Floats {
        pool.take(n).unwrap().0
    }

    #[test]
    fn a_freed_buffer_is_the_next_one_of_its_length() {
        let mut pool = Pool::default();
        let buffer = take(&mut pool, N);
        let place = buffer.as_ptr();
        pool.give(buffer);
        let (other, zeros) = pool.take(N + 1).unwrap();
        assert!(zeros);
        let (same, zeros) = pool.take(N).unwrap();
        assert!(!zeros);
        assert_eq!(same.as_ptr(), place);
        pool.give(other);
        pool.give(same);
        assert_eq!((pool.idle, pool.in_use), (2 * N + 1, 0));
    }

    #[test]
    fn a_thread_gets_its_own_buffers_before_those_of_others() {
        let mut pool = Pool::default();
        let [first, second, third] = [0; 3].map(|_| take(&mut pool, N));
        let places = [&first, &second, &third].map(|buffer| buffer.as_ptr());
        pool.give(first);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                pool.give(second);
                pool.give(third);
            });
            other.join().unwrap();
        });
        let taken = [0; 3].map(|_| take(&mut pool, N));
        assert_eq!(taken.each_ref().map(|buffer| buffer.as_ptr()), places);
    }

    #[test]
    fn short_buffers_are_left_to_the_allocator() {
        let mut pool = Pool::default();
        let buffer = take(&mut pool, N - 1);
        pool.give(buffer);
        assert_eq!((pool.idle, pool.most_in_use), (0, 0));
    }

    #[test]
    fn steps_that_repeat_reuse_every_buffer() {
        let mut pool = Pool::default();
        // A forward pass that keeps its buffers, a backward pass that frees them one by one and
        // needs one of another length each time.
        let step = |pool: &mut Pool| -> usize {
            let mut fresh = 0;
            let mut kept = Vec::new();
            for layer in 0..8 {
                let (buffer, zeros) = pool.take(N * (1 + layer % 3)).unwrap();
                fresh += usize::from(zeros);
                kept.push(buffer);
            }
            for (layer, buffer) in kept.into_iter().enumerate() {
                let (gradient, zeros) = pool.take(N * (5 + layer % 3)).unwrap();
                fresh += usize::from(zeros);
                pool.give(buffer);
                pool.give(gradient);
            }
            fresh
        };
        assert!(step(&mut pool) > 0);
        for _ in 0..3 {
            assert_eq!(step(&mut pool), 0);
        }
    }

    #[test]
    fn ever_new_lengths_do_not_pile_up() {
        let mut pool = Pool::default();
        for n in N..N + 500 {
            let buffer = take(&mut pool, n);
            pool.give(buffer);
            assert!(pool.idle <= 2 * pool.most_in_use);
        }
        // The last two are still there, the first are gone.
        assert!(!pool.take(N + 499).unwrap().1);
        assert!(pool.take(N).unwrap().1);
    }
}
