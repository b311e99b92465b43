//! Work inside an operation, spread over the threads that the operation may use.
//!
//! How work is cut into items is the caller's choice and a function of shapes only; which thread
//! runs which item is left to chance, so items must not share what they write.

use std::sync::{Mutex, PoisonError};

use crate::Device;
use crate::fork_join;

/// Elements that one item of an element-wise operation covers (64 KiB of floats: input and output
/// stay in the second-level cache).
pub(crate) const CHUNK: usize = 16 * 1024;

/// Whole rows of `width` elements that one item covers: about [`CHUNK`] elements, at least one row.
pub(crate) fn rows_per_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1)
}

/// Multiplications below which waking other threads costs more than they bring.
const WORTH_SHARING: usize = 1 << 20;

/// How many threads an operation of so many multiplications should use of those that `device` has now.
pub(crate) fn threads_for(device: &Device, multiplications: usize) -> usize {
    match multiplications > WORTH_SHARING {
        true => device.share(),
        false => 1,
    }
}

/// How many threads an operation on so many elements should use of those that `device` has now: one
/// for each [`CHUNK`] at most.
pub(crate) fn threads_over(device: &Device, elements: usize) -> usize {
    device.share().min(elements.div_ceil(CHUNK))
}

/// Runs `work` on every item, on as many threads as `device` may use now.
///
/// An iterator over disjoint pieces of the output, zipped with what each piece needs, is the usual
/// list of items: `output.chunks_mut(CHUNK).zip(input.chunks(CHUNK))`.
pub(crate) fn each<I>(device: &Device, items: I, work: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    each_on(device.share(), device, items, work);
}

/// As [`each`], on at most `threads` threads: see [`threads_for`] and [`threads_over`].
pub(crate) fn each_on<I>(threads: usize, device: &Device, items: I, work: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    let most_items = items.size_hint().1.unwrap_or(usize::MAX);
    let threads = threads.min(most_items);
    let pool = match device.host().pool() {
        Some(pool) if threads > 1 => pool,
        _ => return items.for_each(work),
    };
    let queue = Mutex::new(items);
    let drain = || {
        loop {
            let item = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            match item {
                Some(item) => work(item),
                None => break,
            }
        }
    };
    // The calling thread takes part, so a short list is often done before a helper has woken up.
    fork_join::run(&drain, threads - 1, |helper| pool.spawn(helper));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::device_with;

    #[test]
    fn every_item_runs_once() {
        for threads in [1, 2, 3, 8] {
            let device = device_with(threads);
            let mut hits = vec![0u8; 1000];
            let calls = AtomicUsize::new(0);
            each(&device, hits.chunks_mut(7), |chunk| {
                calls.fetch_add(1, Ordering::Relaxed);
                chunk.iter_mut().for_each(|hit| *hit += 1);
            });
            assert_eq!(calls.into_inner(), 143);
            assert!(hits.iter().all(|&hit| hit == 1));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let device = device_with(3);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            each(&device, 0..100, |i| assert_ne!(i, 50, "planted"));
        }));
        assert!(outcome.is_err());
        let sum = AtomicUsize::new(0);
        each(&device, 0..100, |i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 4950);
    }

    #[test]
    fn a_chunk_has_at_least_one_row() {
        assert_eq!(rows_per_chunk(0), CHUNK);
        assert_eq!(rows_per_chunk(1024), 16);
        assert_eq!(rows_per_chunk(CHUNK + 1), 1);
    }
}
