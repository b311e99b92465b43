//! Measurement of layer times under the conditions of a pipeline: each worker runs its share of the
//! layers of every kind, in parallel with the other workers, and with as many micro-batches in flight as
//! under 1F1B. A layer measured alone would find its parameters and buffers in caches.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gpipe_tensor::{Device, DeviceId};

use super::bench::{Bench, Seconds};
use super::clock::Clock;
use super::empty;
use super::kinds::Kinds;
use super::measurements::{Passes, Profile, Size};
use super::operations::Operations;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::precision;

/// Measures every kind of layer for these micro-batch sizes, with each number of threads that an action
/// can have while others run.
///
/// # Errors
/// [`Error::Input`] if the layers or the precision cannot be used; [`Error::Run`] if a pass fails.
pub fn measure(
    config: &TrainConfig,
    kinds: &Kinds,
    sizes: &[usize],
    profile: &mut Profile,
) -> Result<()> {
    let threads = profile.threads;
    profile.action_seconds = empty::action_seconds(threads.clamp(1, 8))?;
    let shares: BTreeSet<usize> = (1..=threads)
        .flat_map(|busy| [threads / busy, threads.div_ceil(busy)])
        .collect();
    for &samples in sizes {
        let mut of_kind = vec![Vec::new(); kinds.list.len()];
        for &share in &shares {
            let times = together(config, kinds, samples, share, threads / share)?;
            for (list, seconds) in of_kind.iter_mut().zip(times) {
                list.push(Passes::of(share, seconds));
            }
        }
        for (kind, times) in kinds.list.iter().zip(of_kind) {
            profile.put(&kind.key, Size { samples, times });
        }
    }
    Ok(())
}

/// The times of every kind on `share` threads per worker, the mean of `others` parallel workers.
fn together(
    config: &TrainConfig,
    kinds: &Kinds,
    samples: usize,
    share: usize,
    others: usize,
) -> Result<Vec<Seconds>> {
    let done = AtomicUsize::new(0);
    let all: Vec<Vec<Seconds>> = thread::scope(|scope| {
        let run = |worker: usize| {
            let done = &done;
            let work = move || {
                let place = (worker, others);
                let times = on_host(config, share)
                    .and_then(|on| Bench::new(config, kinds, samples, on, place))
                    .and_then(|bench| bench.expected(done, others));
                // A failed worker must not keep the others waiting.
                done.fetch_add(others, Ordering::Relaxed);
                times
            };
            thread::Builder::new()
                .spawn_scoped(scope, work)
                .map_err(|error| {
                    done.fetch_add(others, Ordering::Relaxed);
                    Error::run(format!(
                        "cannot start a thread: {error}: raise the limit of threads (ulimit -u, or pids of \
                         the container)"
                    ))
                })
        };
        let running: Vec<_> = (0..others).map(run).collect();
        let joined = running.into_iter().map(|run| match run?.join() {
            Ok(times) => times,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<_>>()
    })?;
    let mean = |kind: usize, pass: usize| {
        all.iter().map(|times| times[kind][pass]).sum::<f64>() / all.len() as f64
    };
    let kinds = 0..kinds.list.len();
    Ok(kinds
        .map(|kind| std::array::from_fn(|pass| mean(kind, pass)))
        .collect())
}

/// A processor with as many threads, and the clock of its host.
fn on_host(config: &TrainConfig, threads: usize) -> Result<(Device, Clock)> {
    let host = precision::host(config, threads, *config.run.dtype).map_err(Error::input)?;
    let device = host.device(DeviceId::Cpu).map_err(Error::run)?;
    let clock = Clock::Host(Operations::of(&device));
    Ok((device, clock))
}
