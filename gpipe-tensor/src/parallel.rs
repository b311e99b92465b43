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

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::vec;

use crate::Device;
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
/// each piece needs: `output.chunks_mut(CHUNK).zip(input.chunks(CHUNK))`. Each thread takes items of a part of the list,
/// and then what others have left: see the [module](self) for how results stay independent of that. The number
/// of threads is the device's share of the host's thread budget ([`Device::cpu_slot`]); the loop runs
/// on the CPU, also for a handle to a GPU. `work` may call operations and loops in its turn.
///
/// # Panics
/// If `work` panics on any thread, after the other threads have ended their items.
pub fn for_each<I>(device: &Device, items: I, work: impl Fn(I::Item) + Sync)
where
    I: Iterator,
    I::Item: Send,
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
    I: Iterator,
    I::Item: Send,
{
    // One address for all loops below, which would each hold a copy of the function otherwise.
    let work: &(dyn Fn(I::Item) + Sync) = &work;
    let most_items = items.size_hint().1.unwrap_or(usize::MAX);
    if threads.min(most_items) <= 1 || device.host().helpers().is_none() {
        return alone(items, work);
    }
    let all: Vec<I::Item> = items.collect();
    let parts = threads.min(all.len());
    let sizes = even_parts(all.len(), parts).map(|part| part.len());
    let mut all = all.into_iter();
    let parts = sizes.map(|size| all.by_ref().take(size).collect());
    for_each_in_parts(device, parts.collect(), work);
}

/// Runs `work` once on every item of the parts, each part on a thread of its own as far as possible.
///
/// The first part is the calling thread's, the others are the helpers', each time the same: where loops over the same
/// rows follow one another, a thread finds what it wrote before in the caches of its processor. Many processors
/// have several third-level caches, and wait 200 ns instead of 40 for a line that lies in another one. A thread
/// that has done its part takes items from the ends of the others.
pub(crate) fn for_each_in_parts<T: Send>(
    device: &Device,
    parts: Vec<Vec<T>>,
    work: impl Fn(T) + Sync,
) {
    let others = match device.host().helpers() {
        Some(others) if parts.len() > 1 => others,
        _ => return alone(parts.into_iter().flatten(), work),
    };
    let helpers = parts.len() - 1;
    let queues: Vec<Mutex<vec::IntoIter<T>>> = parts
        .into_iter()
        .map(|part| Mutex::new(part.into_iter()))
        .collect();
    let drain = || {
        #[cfg(all(target_os = "linux", not(miri)))]
        let _computing = placement::begin();
        let own = match device.host().thread_number() {
            0 => 0,
            helper => 1 + (helper - 1) % helpers,
        };
        let lock = |part: usize| queues[part].lock().unwrap_or_else(PoisonError::into_inner);
        let rest = || (1..queues.len()).map(|later| (own + later) % queues.len());
        let take = || {
            let mine = lock(own).next();
            mine.or_else(|| rest().find_map(|part| lock(part).next_back()))
        };
        std::iter::from_fn(take).for_each(&work);
    };
    // The calling thread takes part, so a short list is often done before a helper has woken up.
    others.run(&drain, helpers);
}

/// Runs `work` on every item on the calling thread.
fn alone<T>(items: impl Iterator<Item = T>, work: impl Fn(T)) {
    #[cfg(all(target_os = "linux", not(miri)))]
    let _computing = placement::begin();
    items.for_each(work);
}

/// Cuts `0..total` into parts of the same length or nearly so.
pub(crate) fn even_parts(total: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    (0..parts).map(move |part| total * part / parts..total * (part + 1) / parts)
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
