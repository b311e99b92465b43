//! Loops over a device's share of the host's threads.
//!
//! [`for_each`] runs a function on every item of a list, on as many threads as an operation of this device
//! may use now. Operations of this crate use it, and layers with CPU code of their own can too.
//!
//! For results with the same bits on any number of threads, two rules hold:
//!
//! - Cut work into items by shapes alone, never by the number of threads: items of about [`CHUNK`] elements
//!   ([`rows_per_chunk`] where whole rows belong together).
//! - Let each item write elements of its own, in an order of its own. Which thread runs which item, and
//!   when, is left to chance. Combine partial results afterwards, in the order of the items.
//!
//! ```
//! use gpipe_tensor::parallel::{self, CHUNK};
//! use gpipe_tensor::{DeviceId, Host, Tensor};
//!
//! /// Squares all elements, in place.
//! fn square(x: &mut Tensor) -> gpipe_tensor::Result<()> {
//!     let device = x.device().clone();
//!     parallel::for_each(&device, x.f32s_mut()?.chunks_mut(CHUNK), |chunk| {
//!         chunk.iter_mut().for_each(|x| *x *= *x);
//!     });
//!     Ok(())
//! }
//!
//! /// The sum of all elements: of each chunk by itself, then of the chunks in order.
//! fn sum(x: &Tensor) -> gpipe_tensor::Result<f64> {
//!     let mut sums = vec![0.0; x.elements().div_ceil(CHUNK)];
//!     let items = x.f32s()?.chunks(CHUNK).zip(&mut sums);
//!     parallel::for_each(x.device(), items, |(chunk, sum)| {
//!         *sum = chunk.iter().map(|&x| f64::from(x)).sum();
//!     });
//!     Ok(sums.iter().sum())
//! }
//!
//! let device = Host::new(2)?.device(DeviceId::Cpu)?;
//! let mut x = Tensor::from_f32(&device, [50_000], vec![2.0; 50_000])?;
//! square(&mut x)?;
//! assert_eq!(sum(&x)?, 200_000.0);
//! # Ok::<(), gpipe_tensor::Error>(())
//! ```

use std::sync::{Mutex, PoisonError};

use crate::Device;
use crate::fork_join;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::placement;

/// Elements in one item of an element-wise loop: 64 KiB of floats, so that input and output stay in the
/// second-level cache.
pub const CHUNK: usize = 16 * 1024;

/// Whole rows of `width` elements in one item: about [`CHUNK`] elements, at least one row.
pub fn rows_per_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1)
}

/// Multiplications below which waking other threads costs more time than it saves.
const WORTH_SHARING: usize = 1 << 20;

/// The number of threads for an operation of this many multiplications, of those that `device` has now.
pub(crate) fn threads_for(device: &Device, multiplications: usize) -> usize {
    match multiplications > WORTH_SHARING {
        true => device.share(),
        false => 1,
    }
}

/// The number of threads for an operation on this many elements, of those that `device` has now: at most
/// one for each [`CHUNK`].
pub(crate) fn threads_over(device: &Device, elements: usize) -> usize {
    device.share().min(elements.div_ceil(CHUNK))
}

/// Runs `work` once on every item, on as many threads as an operation of `device` may use now; returns when
/// all items are done.
///
/// The calling thread takes part. The items are usually disjoint pieces of the output, zipped with what
/// each piece needs: `output.chunks_mut(CHUNK).zip(input.chunks(CHUNK))`. Threads take items in order, but
/// items run at the same time: see the [module](self) for how results stay independent of that. The number
/// of threads is the device's share of the host's thread budget ([`Device::cpu_slot`]); the loop runs
/// on the CPU, also for a handle to a GPU. `work` may call operations and loops in its turn.
///
/// # Panics
/// If `work` panics on any thread, after the other threads have ended their items.
pub fn for_each<I>(device: &Device, items: I, work: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    for_each_on(device.share(), device, items, work);
}

/// As [`for_each`], on at most `threads` threads: see [`threads_for`] and [`threads_over`].
pub(crate) fn for_each_on<I>(
    threads: usize,
    device: &Device,
    items: I,
    work: impl Fn(I::Item) + Sync,
) where
    I: Iterator + Send,
{
    let most_items = items.size_hint().1.unwrap_or(usize::MAX);
    let threads = threads.min(most_items);
    let pool = match device.host().pool() {
        Some(pool) if threads > 1 => pool,
        _ => {
            #[cfg(all(target_os = "linux", not(miri)))]
            let _computing = placement::begin();
            return items.for_each(work);
        }
    };
    let queue = Mutex::new(items);
    let drain = || {
        #[cfg(all(target_os = "linux", not(miri)))]
        let _computing = placement::begin();
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
            for_each(&device, hits.chunks_mut(7), |chunk| {
                calls.fetch_add(1, Ordering::Relaxed);
                chunk.iter_mut().for_each(|hit| *hit += 1);
            });
            assert_eq!(calls.into_inner(), 143);
            assert!(hits.iter().all(|&hit| hit == 1));
        }
    }

    #[test]
    fn a_loop_inside_of_a_loop_ends() {
        let device = device_with(3);
        let calls = AtomicUsize::new(0);
        for_each(&device, 0..20, |_| {
            for_each(&device, 0..10, |_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(calls.into_inner(), 200);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let device = device_with(3);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for_each(&device, 0..100, |i| assert_ne!(i, 50, "planted"));
        }));
        assert!(outcome.is_err());
        let sum = AtomicUsize::new(0);
        for_each(&device, 0..100, |i| {
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
