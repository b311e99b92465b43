//! Computing threads on processors of their own.
//!
//! Linux wakes a thread on an idle processor if it finds one. In a virtual machine it often finds none: it
//! takes an idle virtual processor for one that was preempted by its host (`available_idle_cpu` in
//! `kernel/sched`), and leaves the thread on the processor of the one that woke it, to share it until
//! the next balancing, up to 16 ms later. So a thread that begins to compute where another one computes
//! moves to a processor where none does, and one that sleeps is sent to such a processor before it is woken: on that of its
//! waker it would not even begin. Such a thread keeps the processors that it was allowed then: those of another
//! `taskset` or a larger container are not used before the next start.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Those of the machine, for the threads of this process.
static PROCESSORS: Processors = Processors::new();

thread_local! {
    /// Whether this thread is counted.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Counts the calling thread as one that computes until the result is dropped. Before, moves it to another
/// processor if a thread of this process computes on this one.
pub(crate) fn begin() -> Computing {
    PROCESSORS.begin()
}

/// A thread that is about to sleep.
pub(crate) struct Sleeper(Pid);

impl Sleeper {
    /// The calling thread.
    pub fn this_thread() -> Self {
        Self(gettid())
    }

    /// Keeps the thread to processors on which no thread computes, if it may run on such a one. `stays` says that the calling
    /// thread goes on to compute where it is.
    pub fn send(self, stays: bool) -> Option<Sent> {
        let allowed = sched_getaffinity(Some(self.0)).ok()?;
        let mut free = PROCESSORS.free(&allowed);
        let here = sched_getcpu();
        if stays && here < CpuSet::MAX_CPU {
            free.unset(here);
        }
        let is_sent = free.count() > 0 && sched_setaffinity(Some(self.0), &free).is_ok();
        is_sent.then_some(Sent {
            thread: self.0,
            allowed,
        })
    }
}

/// A thread that is kept to some processors until this is dropped.
pub(crate) struct Sent {
    thread: Pid,
    allowed: CpuSet,
}

impl Drop for Sent {
    fn drop(&mut self) {
        // A thread that has ended needs no processor.
        let _ = sched_setaffinity(Some(self.thread), &self.allowed);
    }
}

/// The number of computing threads on each processor.
struct Processors([Count; CpuSet::MAX_CPU]);

/// A count in cache lines of its own: others change theirs as often.
#[repr(align(128))]
struct Count(AtomicUsize);

impl Processors {
    const fn new() -> Self {
        Self([const { Count(AtomicUsize::new(0)) }; CpuSet::MAX_CPU])
    }

    fn begin(&'static self) -> Computing {
        // A loop inside of a loop is counted with it.
        if IS_COUNTED.replace(true) {
            return Computing(None);
        }
        if self.here().load(Ordering::Relaxed) > 0 {
            self.leave();
        }
        // The system may have moved the thread elsewhere, which is as well.
        let here = self.here();
        here.fetch_add(1, Ordering::Relaxed);
        Computing(Some(here))
    }

    /// The count of the calling thread's processor.
    fn here(&self) -> &AtomicUsize {
        &self.0[sched_getcpu() % CpuSet::MAX_CPU].0
    }

    /// The processors on which no thread computes, of these.
    fn free(&self, allowed: &CpuSet) -> CpuSet {
        let mut free = CpuSet::new();
        for (processor, count) in self.0.iter().enumerate() {
            if allowed.is_set(processor) && count.0.load(Ordering::Relaxed) == 0 {
                free.set(processor);
            }
        }
        free
    }

    /// Moves the calling thread to a processor on which no thread computes, if it may run on such a one.
    fn leave(&self) {
        let Ok(allowed) = sched_getaffinity(None) else {
            return;
        };
        let free = self.free(&allowed);
        // The system moves a thread at once from where it may not run; the second call allows all again.
        // Where a sandbox forbids the calls, the thread stays.
        if free.count() > 0 && sched_setaffinity(None, &free).is_ok() {
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

/// The count of a thread that computes; none inside of another loop, which counts it.
pub(crate) struct Computing(Option<&'static AtomicUsize>);

impl Drop for Computing {
    fn drop(&mut self) {
        if let Some(processor) = self.0 {
            processor.fetch_sub(1, Ordering::Relaxed);
            IS_COUNTED.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// The number of threads on each of `processors`.
    fn counts(of: &Processors, processors: [usize; 2]) -> [usize; 2] {
        processors.map(|processor| of.0[processor].0.load(Ordering::Relaxed))
    }

    #[test]
    fn a_thread_leaves_a_processor_where_another_one_computes() {
        static PROCESSORS: Processors = Processors::new();
        let allowed = sched_getaffinity(None).unwrap();
        let mut each = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let (Some(first), Some(second)) = (each.next(), each.next()) else {
            return eprintln!("skipped: one processor");
        };
        let only = |processor| {
            let mut set = CpuSet::new();
            set.set(processor);
            sched_setaffinity(None, &set).unwrap();
            set
        };
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let other = thread::spawn(move || {
            only(first);
            let _computing = PROCESSORS.begin();
            begun.send(()).unwrap();
            ends.recv().unwrap();
        });
        has_begun.recv().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let set = only(first);
                // There is no other for it.
                drop(PROCESSORS.begin());
                assert_eq!(sched_getaffinity(None).unwrap(), set);
                let mut both = set;
                both.set(second);
                let moves = |_: &usize| {
                    only(first);
                    sched_setaffinity(None, &both).unwrap();
                    let _computing = PROCESSORS.begin();
                    drop(PROCESSORS.begin());
                    assert_eq!(sched_getaffinity(None).unwrap(), both);
                    counts(&PROCESSORS, [first, second]) == [1, 1]
                };
                // A busy system may move the thread too, back or away.
                assert!((0..20).filter(moves).count() > 10);
                assert_eq!(counts(&PROCESSORS, [first, second]), [1, 0]);
            });
        });
        end.send(()).unwrap();
        other.join().unwrap();
        assert_eq!(counts(&PROCESSORS, [first, second]), [0, 0]);
    }

    #[test]
    fn a_thread_that_sleeps_is_sent_elsewhere_and_released() {
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let sleeping = thread::spawn(move || {
            tell.send(Sleeper::this_thread()).unwrap();
            // An error, once the test has ended.
            let _ = ends.recv();
        });
        let sleeper = told.recv().unwrap().0;
        let allowed = sched_getaffinity(Some(sleeper)).unwrap();
        if allowed.count() < 2 {
            return eprintln!("skipped: one processor");
        }
        // Other tests compute meanwhile, at times on all processors.
        let mut sent = (0..100_000).filter_map(|_| {
            thread::yield_now();
            let here = sched_getcpu();
            let sent = Sleeper(sleeper).send(true)?;
            // The system may have moved this thread in between.
            (here == sched_getcpu()).then_some((here, sent))
        });
        let (here, sent) = sent.next().expect("a free processor");
        let kept_to = sched_getaffinity(Some(sleeper)).unwrap();
        assert!(kept_to.count() > 0 && !kept_to.is_set(here));
        drop(sent);
        assert_eq!(sched_getaffinity(Some(sleeper)).unwrap(), allowed);
        drop(end);
        sleeping.join().unwrap();
    }
}
