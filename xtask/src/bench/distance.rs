//! How far the processors of the machine lie from each other.
//!
//! A hypervisor moves virtual processors now and then, for seconds or minutes, to cores that share no third-level cache. Each
//! core is as fast as before, and the system shows nothing, but lines go from one to the other in 200 ns instead of
//! 40, and a step on two threads takes up to a fourth longer. So what is measured before such a move says nothing of what
//! comes after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// How often something is measured until the processors stayed where they were.
const ATTEMPTS: usize = 5;
/// Of the smaller distance: by less, two of them are the same but for noise.
const ALIKE: f64 = 1.7;

/// Nanoseconds in which a cache line goes from the first processor to the one that is farthest from it; none if
/// there is no other, or where threads cannot be bound to processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance(Option<f64>);

impl Distance {
    /// As it is now.
    pub fn now() -> Self {
        let processors = bound::processors();
        let (first, others) = match processors.split_first() {
            Some((first, others)) => (*first, others),
            None => return Self(None),
        };
        let all = others.iter().map(|other| between(first, *other));
        Self(all.reduce(f64::max))
    }

    /// Whether the processors lie where they lay.
    pub fn is_like(self, other: Self) -> bool {
        match (self.0, other.0) {
            (Some(one), Some(other)) => one.max(other) <= ALIKE * one.min(other),
            _ => true,
        }
    }
}

impl std::fmt::Display for Distance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(nanoseconds) => write!(f, "{nanoseconds:.0} ns apart"),
            None => f.write_str("not known to be apart"),
        }
    }
}

/// Measures until the processors lay at the end where they lay at the beginning, five times at most; and where that is.
pub fn measure<T>(run: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(T, Distance)> {
    measure_by(Distance::now, run)
}

fn measure_by<T>(
    mut now: impl FnMut() -> Distance,
    mut run: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Distance)> {
    let mut before = now();
    for attempt in 2.. {
        let result = run()?;
        let after = now();
        if before.is_like(after) || attempt > ATTEMPTS {
            return Ok((result, after));
        }
        eprintln!(
            "the hypervisor moved the processors: {before}, now {after}; attempt {attempt} of {ATTEMPTS}"
        );
        before = after;
    }
    unreachable!("the last attempt returns")
}

/// Nanoseconds in which a cache line goes from one processor to the other, the least of several tries.
fn between(one: usize, other: usize) -> f64 {
    const TRIES: usize = 5;
    const TURNS: usize = 4000;
    let try_once = || {
        // The line with the number moves with each turn. The first ones, until both threads are there, do not count.
        let number = AtomicUsize::new(0);
        let count = |processor: usize, first: usize| {
            bound::bind(processor);
            let mut start = Instant::now();
            for turn in (first..2 * TURNS).step_by(2) {
                while number.load(Ordering::Acquire) != turn {
                    std::hint::spin_loop();
                }
                number.store(turn + 1, Ordering::Release);
                if turn < TURNS {
                    start = Instant::now();
                }
            }
            start.elapsed().as_secs_f64() * 1e9 / TURNS as f64
        };
        thread::scope(|scope| {
            scope.spawn(|| count(other, 1));
            let counting = scope.spawn(|| count(one, 0));
            counting.join().unwrap_or(f64::INFINITY)
        })
    };
    let tries = (0..TRIES).map(|_| try_once());
    tries.fold(f64::INFINITY, f64::min)
}

#[cfg(target_os = "linux")]
mod bound {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Those on which this thread may run.
    pub fn processors() -> Vec<usize> {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let all = 0..CpuSet::MAX_CPU;
        all.filter(|&processor| allowed.is_set(processor)).collect()
    }

    /// Lets the calling thread run on this processor alone, if it may.
    pub fn bind(processor: usize) {
        let mut only = CpuSet::new();
        only.set(processor);
        let _ = sched_setaffinity(None, &only);
    }
}

#[cfg(not(target_os = "linux"))]
mod bound {
    pub fn processors() -> Vec<usize> {
        Vec::new()
    }

    pub fn bind(_: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_time_to_another_processor() {
        match Distance::now() {
            Distance(None) => assert!(bound::processors().len() < 2),
            Distance(Some(nanoseconds)) => {
                assert!(
                    nanoseconds > 0.0 && nanoseconds.is_finite(),
                    "{nanoseconds}"
                );
            }
        }
    }

    #[test]
    fn what_was_measured_while_processors_moved_is_measured_again() {
        let runs = |distances: &[f64]| {
            let mut distances = distances.iter().map(|&ns| Distance(Some(ns)));
            let mut runs = 0;
            let now = || distances.next().unwrap();
            let (last, after) = measure_by(now, || {
                runs += 1;
                Ok(runs)
            })
            .unwrap();
            (last, after.0)
        };
        assert_eq!(runs(&[40.0, 45.0]), (1, Some(45.0)));
        assert_eq!(runs(&[40.0, 200.0, 210.0]), (2, Some(210.0)));
        let moving = [40.0, 200.0, 40.0, 200.0, 40.0, 200.0];
        assert_eq!(runs(&moving), (5, Some(200.0)));
        assert!(Distance(None).is_like(Distance(Some(40.0))));
        assert!(
            measure_by(
                || Distance(None),
                || anyhow::bail!("no run") as anyhow::Result<()>
            )
            .is_err()
        );
    }
}
