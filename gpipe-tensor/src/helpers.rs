//! Helper threads of operations.
//!
//! Most operations follow one another within 65 microseconds. A thread that sleeps meanwhile costs its waker a system call for
//! each operation, and wakes up when a short one is done; in a virtual machine, Linux may leave it for milliseconds on the
//! processor of its waker (`placement.rs`). So a helper that has helped looks out for more work for some time before it sleeps,
//! unless others want its processor, or all threads are those of actions: then a worker that wakes up may find no other
//! processor. It does not yield meanwhile: another program would keep the processor for a slice of some
//! milliseconds, and work comes sooner.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fork_join::{self, Job};
use crate::thread_budget::ThreadBudget;

/// How long a helper looks out for more work: all but one of 500 pauses between two operations of a training step are
/// shorter than 131 microseconds (GPTs of 6.5 million parameters, 512 and 1,024 tokens a micro-batch).
const LOOKOUT: Duration = Duration::from_micros(200);

/// Time that lies between two looks at the clock only if others ran on the processor meanwhile.
const ALONE: Duration = Duration::from_micros(50);

/// Looks at a mailbox between two looks at the clock, and spin-loop hints between two of them: some microseconds together.
const LOOKS: usize = 16;
const SPINS: usize = 4;

/// The helper threads of a host.
pub(crate) struct Helpers {
    pool: rayon::ThreadPool,
    shared: Arc<Shared>,
}

/// What the helpers of a host share.
struct Shared {
    mailboxes: Box<[Mailbox]>,
    thread_budget: Arc<ThreadBudget>,
}

impl Helpers {
    /// Starts `count` threads, which help those that have a share of `thread_budget`.
    ///
    /// # Errors
    /// If the system cannot start them.
    pub fn start(
        count: usize,
        thread_budget: Arc<ThreadBudget>,
    ) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|i| format!("gpipe-compute-{i}"))
            .build()?;
        // It starts no more than a number of its own.
        let mailboxes = (0..pool.current_num_threads()).map(|_| Mailbox::default());
        let shared = Arc::new(Shared {
            mailboxes: mailboxes.collect(),
            thread_budget,
        });
        Ok(Self { pool, shared })
    }

    /// The number of the calling thread among the helpers, if it is one.
    pub fn current(&self) -> Option<usize> {
        self.pool.current_thread_index()
    }

    /// Runs `work` on the calling thread and on up to `helpers` others: first those that look out for work, then others,
    /// which wake up. See [`fork_join::run`].
    pub fn run(&self, work: &(dyn Fn() + Sync), helpers: usize) {
        fork_join::run(work, |job| {
            let given = self
                .shared
                .mailboxes
                .iter()
                .filter(|mailbox| mailbox.give(job));
            for _ in given.take(helpers).count()..helpers {
                let (job, shared) = (job.clone(), self.shared.clone());
                self.pool.spawn(move || help(job, &shared));
            }
        });
    }
}

/// Helps with a job, and with those that follow soon.
fn help(job: Arc<Job>, shared: &Shared) {
    let own = rayon::current_thread_index().and_then(|own| shared.mailboxes.get(own));
    let Some(own) = own else {
        return;
    };
    // The mailbox is watched before the owner goes on: its next job comes at once.
    let help = |job: Arc<Job>| job.help(|| own.watch());
    // A helper that wakes up too late would sleep again before it is of use.
    if !help(job) {
        return;
    }
    while let Some(job) = own.wait(&shared.thread_budget) {
        if !help(job) {
            own.watch();
        }
    }
}

/// Where a helper that looks out for work gets it.
#[derive(Default)]
#[repr(align(128))]
struct Mailbox {
    state: AtomicU8,
    job: Mutex<Option<Arc<Job>>>,
}

/// Nobody looks at it.
const UNWATCHED: u8 = 0;
/// Its helper looks at it.
const WATCHED: u8 = 1;
/// A job is being put in.
const CHOSEN: u8 = 2;
/// There is a job.
const FULL: u8 = 3;

impl Mailbox {
    /// Puts a job in if its helper looks out for one; whether it did.
    fn give(&self, job: &Arc<Job>) -> bool {
        let is_chosen =
            self.state.load(Ordering::Relaxed) == WATCHED && self.moves(WATCHED, CHOSEN);
        if is_chosen {
            *self.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.clone());
            self.state.store(FULL, Ordering::Release);
        }
        is_chosen
    }

    /// Its helper looks for jobs from now on, and calls [`wait`](Self::wait) next.
    fn watch(&self) {
        self.state.store(WATCHED, Ordering::Release);
    }

    /// The next job for its helper, which watches; none if there was none for some time, or others want the processor.
    fn wait(&self, thread_budget: &ThreadBudget) -> Option<Arc<Job>> {
        let start = Instant::now();
        let mut last = start;
        loop {
            for _ in 0..LOOKS {
                if self.state.load(Ordering::Acquire) == FULL {
                    return self.take();
                }
                (0..SPINS).for_each(|_| std::hint::spin_loop());
            }
            let now = Instant::now();
            if thread_budget.is_full() || now - start > LOOKOUT || now - last > ALONE {
                break;
            }
            last = now;
        }
        if self.moves(WATCHED, UNWATCHED) {
            return None;
        }
        while self.state.load(Ordering::Acquire) != FULL {
            std::hint::spin_loop();
        }
        self.take()
    }

    fn take(&self) -> Option<Arc<Job>> {
        self.state.store(UNWATCHED, Ordering::Relaxed);
        self.job
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.state
            .compare_exchange(from, to, success, failure)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// What `act` does with a job whose work counts its calls, and the calls, of which one is the owner's.
    fn with_job<T>(act: impl FnOnce(&Arc<Job>) -> T) -> (T, usize) {
        let calls = AtomicUsize::new(0);
        let mut outcome = None;
        let work = || {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        fork_join::run(&work, |job| outcome = Some(act(job)));
        (outcome.expect("it was called"), calls.into_inner())
    }

    #[test]
    fn a_mailbox_is_for_helpers_that_look_out() {
        let (mailbox, budget) = (Mailbox::default(), ThreadBudget::new(2));
        assert_eq!(with_job(|job| mailbox.give(job)), (false, 1));
        // The helper may be late, or the system busy, and look away before there is a job.
        let mut rounds = 0..1000;
        let got = rounds.find_map(|_| {
            thread::scope(|scope| {
                let helper = scope.spawn(|| {
                    mailbox.watch();
                    mailbox.wait(&budget).map(|job| job.help(|| {}))
                });
                let given = with_job(|job| {
                    while mailbox.state.load(Ordering::Acquire) == UNWATCHED
                        && !helper.is_finished()
                    {}
                    let given = mailbox.give(job);
                    // Not given twice.
                    assert!(!mailbox.give(job));
                    given
                });
                let helped = helper.join().expect("nothing panics");
                assert_eq!(given.0, helped.is_some());
                assert_eq!(given.1, 1 + usize::from(helped == Some(true)));
                helped
            })
        });
        assert!(got.is_some());
        mailbox.watch();
        assert!(mailbox.wait(&budget).is_none());
        assert_eq!(with_job(|job| mailbox.give(job)), (false, 1));
    }

    #[test]
    fn helpers_join_soon_after_one_another_and_after_they_slept() {
        let helpers = Helpers::start(3, Arc::new(ThreadBudget::new(4))).expect("threads");
        for round in 0..if cfg!(miri) { 10 } else { 3000 } {
            if round % 500 == 0 {
                thread::sleep(2 * LOOKOUT);
            }
            // What the work borrows is gone after each round.
            let left = Mutex::new(vec![round; 6]);
            let sum = AtomicUsize::new(0);
            let work = || {
                let own = helpers.current();
                assert!(own.is_none_or(|own| own < 3));
                while let Some(x) = left.lock().expect("nobody panics").pop() {
                    sum.fetch_add(x, Ordering::Relaxed);
                }
            };
            helpers.run(&work, round % 4);
            assert_eq!(sum.into_inner(), 6 * round);
        }
    }
}
