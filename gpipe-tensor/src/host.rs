//! What the workers of one process share: the thread budget and the pool of free buffers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::pool::{Floats, Pool};
use crate::{Device, DeviceId, Error, Result};

/// The processor's threads and the buffers that were freed and wait for their next use.
///
/// Buffers change hands at every stage boundary, so the pool is one for all workers: what the
/// receiver frees, the sender takes for its next output.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    threads: usize,
    /// Threads for work inside an operation; absent where there is only one.
    pool: Option<rayon::ThreadPool>,
    busy: Mutex<usize>,
    freed: Condvar,
    buffers: Mutex<Pool>,
}

impl Host {
    /// A host whose operations use at most `threads` threads in all.
    ///
    /// # Errors
    /// [`Error::Argument`] for zero threads, or if the system does not give them.
    pub fn new(threads: usize) -> Result<Self> {
        let fail = |message: String| Error::Argument {
            op: "threads",
            message,
        };
        if threads == 0 {
            return Err(fail("0 threads cannot compute: use 1 or more".into()));
        }
        let pool = match threads {
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|i| format!("gpipe-compute-{i}"))
                    .build()
                    .map_err(|e| fail(format!("cannot start {threads} threads: {e}")))?,
            ),
        };
        Ok(Self(Arc::new(Shared {
            threads,
            pool,
            busy: Mutex::new(0),
            freed: Condvar::new(),
            buffers: Mutex::default(),
        })))
    }

    /// A new handle to the device `id`, for one worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a device that this build or machine does not have.
    pub fn device(&self, id: DeviceId) -> Result<Device> {
        match id {
            DeviceId::Cpu => Ok(Device::new(id, self.clone())),
            DeviceId::Cuda(_) => Err(Error::Unavailable {
                device: id,
                reason: "this build has no CUDA support; use --devices cpu".into(),
            }),
        }
    }

    /// The thread budget.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// The pool for work inside an operation, if there is more than one thread.
    pub(crate) fn pool(&self) -> Option<&rayon::ThreadPool> {
        self.0.pool.as_ref()
    }

    /// Waits until fewer actions run than there are threads, then joins them.
    pub(crate) fn begin(&self) -> Busy {
        let mut busy = lock(&self.0.busy);
        while *busy >= self.0.threads {
            busy = self
                .0
                .freed
                .wait(busy)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *busy += 1;
        Busy {
            host: self.clone(),
            share: self.0.threads / *busy,
        }
    }

    /// A buffer of `n` floats with unspecified contents.
    pub(crate) fn take(&self, n: usize) -> Result<Floats> {
        match lock(&self.0.buffers).take(n) {
            Some(used) => Ok(used),
            None => self.take_fresh(n),
        }
    }

    /// A buffer of `n` zeros.
    pub(crate) fn take_zeros(&self, n: usize) -> Result<Floats> {
        match lock(&self.0.buffers).take(n) {
            Some(mut used) => {
                used.fill(0.0);
                Ok(used)
            }
            None => self.take_fresh(n),
        }
    }

    /// Zeros from the system, which may have to be given what lies unused first.
    fn take_fresh(&self, n: usize) -> Result<Floats> {
        Floats::zeros(n).or_else(|_| {
            lock(&self.0.buffers).clear();
            Floats::zeros(n)
        })
    }

    /// Keeps a freed buffer for its next use.
    pub(crate) fn give(&self, buffer: Floats) {
        lock(&self.0.buffers).give(buffer);
    }
}

/// A poisoned lock only says that another worker panicked: its data are still consistent, since
/// nothing in here can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to compute, and a share of the threads; given back on drop.
#[must_use]
pub struct Busy {
    host: Host,
    share: usize,
}

impl Busy {
    /// How many threads this action may use.
    pub fn share(&self) -> usize {
        self.share
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.host.0.busy) -= 1;
        self.host.0.freed.notify_one();
    }
}
