//! What the communication thread does: messages leave and arrive, with naps between looks at them.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpipe_sched::{Deliver, Gauge, Parcel};

use crate::error::text;
use crate::messages::{Arriving, Leaving};
use crate::pulse::Pulse;
use crate::session::Calls;

/// How long the thread looks for messages without sleeping after one moved: while a worker waits, whose core is free,
/// and while none does. A message that does not fit into MPI's own buffers takes several looks on both sides, and each
/// nap between them is longer than the transfer.
const EAGER: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(50)];
/// A nap is the time since a message moved, divided by this: it makes no wait much longer, and a worker that computes is
/// seldom disturbed.
const NAPS_OF_A_WAIT: u32 = 4;
const SHORTEST_NAP: Duration = Duration::from_micros(20);
/// While a worker waits, which then waits at most that much longer.
const LONGEST_NAP_WAITED_FOR: Duration = Duration::from_micros(100);
/// While a message leaves: MPI may send the next part of it at a look only.
const LONGEST_NAP_SENDING: Duration = Duration::from_millis(1);
/// While a message can only arrive that nobody needs yet. Each nap costs the core of a worker some 20 µs.
pub const LONGEST_NAP: Duration = Duration::from_millis(4);
/// What the thread and its transport share.
#[derive(Default)]
pub struct Shared {
    pub queue: Mutex<VecDeque<(usize, Parcel)>>,
    pub deliver: Mutex<Option<Arc<Deliver>>>,
    pub waiting: AtomicUsize,
    /// Bytes of messages that are queued, being sent, or arriving.
    pub gauge: OnceLock<Arc<Gauge>>,
    /// No more messages are sent.
    pub is_over: AtomicBool,
    /// The process has said what it has to say: MPI may end it.
    pub is_closed: AtomicBool,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends and receives until the transport is closed.
pub fn communicate(mpi: &mut dyn Calls, shared: &Shared, silence: Duration) -> Result<(), String> {
    // What arrives is kept by MPI until somebody takes it.
    let deliver = loop {
        if let Some(deliver) = lock(&shared.deliver).clone() {
            break deliver;
        }
        if shared.is_over.load(Ordering::Acquire) {
            return mpi.finalize().map_err(|error| error.to_string());
        }
        thread::park_timeout(LONGEST_NAP);
    };
    let mut traffic = Traffic::default();
    let run = AssertUnwindSafe(|| traffic.run(mpi, shared, &*deliver, silence));
    let result = panic::catch_unwind(run)
        .unwrap_or_else(|_| Err("its communication thread panicked".to_owned()));
    if let Err(error) = &result {
        // Calls may be under way in its buffers.
        std::mem::forget(traffic);
        // What panicked may do so again.
        let tell = AssertUnwindSafe(|| deliver(mpi.rank(), Err(error.clone())));
        let _ = panic::catch_unwind(tell);
    }
    result
}

/// Messages under way.
#[derive(Default)]
struct Traffic {
    leaving: Vec<Leaving>,
    /// By rank.
    arriving: Vec<Arriving>,
}

impl Traffic {
    fn run(
        &mut self,
        mpi: &mut dyn Calls,
        shared: &Shared,
        deliver: &Deliver,
        silence: Duration,
    ) -> Result<(), String> {
        let mut pulse = Pulse::new(silence);
        let mut asked_to_end: Option<Instant> = None;
        let own = mpi.rank();
        let gauge = shared.gauge.get().cloned().unwrap_or_default();
        for from in (0..mpi.ranks()).filter(|&rank| rank != own) {
            self.arriving
                .push(Arriving::begin(mpi, from).map_err(text)?);
        }
        let mut moved = Instant::now();
        loop {
            let mut any = false;
            let queued = std::mem::take(&mut *lock(&shared.queue));
            for (to, parcel) in queued {
                any = true;
                self.leaving
                    .push(Leaving::send(mpi, to, parcel).map_err(text)?);
            }
            any |= self.advance(mpi, deliver, &gauge)?;
            let is_over = shared.is_over.load(Ordering::Acquire);
            if is_over && self.leaving.is_empty() && lock(&shared.queue).is_empty() {
                return self.end(mpi, deliver, &gauge, pulse.grace());
            }
            if is_over {
                let since = asked_to_end.get_or_insert_with(Instant::now);
                let grace = pulse.grace();
                if since.elapsed() > grace {
                    return Err("a rank does not take its messages".to_owned());
                }
            }
            pulse.beat(mpi, &mut self.arriving, &mut self.leaving, deliver)?;
            if any {
                moved = Instant::now();
                continue;
            }
            let is_waited_for = shared.waiting.load(Ordering::Relaxed) > 0;
            let (eager, longest) = if is_waited_for {
                (EAGER[0], LONGEST_NAP_WAITED_FOR)
            } else if !self.leaving.is_empty() {
                (EAGER[1], LONGEST_NAP_SENDING)
            } else {
                (Duration::ZERO, LONGEST_NAP)
            };
            let still = moved.elapsed();
            if still < eager {
                thread::yield_now();
                continue;
            }
            thread::park_timeout((still / NAPS_OF_A_WAIT).clamp(SHORTEST_NAP, longest));
        }
    }

    /// Takes what has left and delivers what has arrived; whether anything had arrived.
    fn advance(
        &mut self,
        mpi: &mut dyn Calls,
        deliver: &Deliver,
        gauge: &Gauge,
    ) -> Result<bool, String> {
        let mut arrived = Vec::new();
        let any = self.look(mpi, gauge, &mut arrived);
        // Last, and after a fault too: what is delivered may be the answer to what leaves, and its reader may send the next
        // message at once, which would be counted beside one that is gone.
        for (from, parcel) in arrived {
            deliver(from, Ok(parcel));
        }
        any
    }

    /// Adds what has arrived to `arrived`, and forgets what has left.
    fn look(
        &mut self,
        mpi: &mut dyn Calls,
        gauge: &Gauge,
        arrived: &mut Vec<(usize, Parcel)>,
    ) -> Result<bool, String> {
        let mut any = false;
        for arriving in &mut self.arriving {
            any |= arriving.advance(mpi, arrived, gauge)?;
        }
        let mut failed = None;
        self.leaving
            .retain_mut(|leaving| match leaving.is_over(mpi) {
                Ok(true) => {
                    gauge.remove(leaving.bytes);
                    false
                }
                Ok(false) => true,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            });
        failed.map_or(Ok(any), |error| Err(text(error)))
    }

    /// Waits for the other ranks, takes back the posted receives and ends MPI.
    fn end(
        &mut self,
        mpi: &mut dyn Calls,
        deliver: &Deliver,
        gauge: &Gauge,
        grace: Duration,
    ) -> Result<(), String> {
        let mut barrier = mpi.barrier().map_err(text)?;
        let started = Instant::now();
        while !mpi.test(&mut barrier).map_err(text)? {
            // Others may still send to this rank.
            self.advance(mpi, deliver, gauge)?;
            if started.elapsed() > grace {
                return Err(format!(
                    "other ranks did not end within {} s",
                    grace.as_secs()
                ));
            }
            thread::park_timeout(SHORTEST_NAP);
        }
        for arriving in &mut self.arriving {
            arriving.end(mpi).map_err(text)?;
        }
        mpi.finalize().map_err(text)
    }
}

#[cfg(test)]
mod tests;
