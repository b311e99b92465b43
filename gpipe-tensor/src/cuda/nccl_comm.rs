//! One end of an NCCL communicator of two processes.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::entry::Pointer;
use super::gpu::Gpu;
use super::nccl::{Nccl, RawComm, UNIQUE_ID_BYTES};
use super::raw_handle::RawHandle;
use crate::{Error, Result};

/// One end of a communicator of two. Any thread may end it while others use it.
pub(crate) struct Comm {
    nccl: Nccl,
    /// `None` once it is ended.
    raw: Mutex<Option<RawHandle<RawComm>>>,
    rank: c_int,
    is_over: AtomicBool,
}

impl Comm {
    /// Begins the end `rank`, 0 or 1, on the device of `gpu`; the other end does the same with the same name.
    pub fn begin(nccl: &Nccl, gpu: &Gpu, id: &[u8; UNIQUE_ID_BYTES], rank: c_int) -> Result<Self> {
        gpu.context().bind()?;
        let raw = nccl.begin(id, rank)?;
        Ok(Self {
            nccl: *nccl,
            raw: Mutex::new(Some(RawHandle(raw))),
            rank,
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether all calls so far are made.
    pub fn is_settled(&self) -> Result<bool> {
        let raw = self.lock();
        let raw = raw.as_ref().ok_or_else(over)?;
        // SAFETY: it is not ended while the lock is held.
        unsafe { self.nccl.is_settled(raw.0) }
    }

    /// An error that NCCL found; none if another thread makes a call, which will find it.
    pub fn check(&self) -> Result<()> {
        let raw = match self.raw.try_lock() {
            Ok(raw) => raw,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        match raw.as_ref() {
            // SAFETY: as above.
            Some(raw) => unsafe { self.nccl.is_settled(raw.0) }.map(drop),
            None => Ok(()),
        }
    }

    /// Sends bytes after the operations of `gpu` so far; what follows is ordered after it. With `waits`, the call is
    /// made when this returns; without, once [`is_settled`](Self::is_settled) says so.
    ///
    /// # Safety
    /// As many bytes begin there, in memory of `gpu`, which is the handle that the communicator was begun with or one
    /// beside it.
    pub unsafe fn send(&self, gpu: &Gpu, from: Pointer, bytes: usize, waits: bool) -> Result<()> {
        let raw = self.lock();
        let comm = raw.as_ref().ok_or_else(over)?.0;
        gpu.context().bind()?;
        let (peer, stream) = (1 - self.rank, gpu.compute.raw()?);
        // SAFETY: the caller vouches for the memory; it is freed behind the operations of the handle.
        unsafe { self.nccl.send(comm, peer, (from.0, bytes), stream) }?;
        self.settle(comm, waits)
    }

    /// Receives bytes after the operations of `gpu` so far, as [`send`](Self::send) sends.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    pub unsafe fn receive(&self, gpu: &Gpu, to: Pointer, bytes: usize, waits: bool) -> Result<()> {
        let raw = self.lock();
        let comm = raw.as_ref().ok_or_else(over)?.0;
        gpu.context().bind()?;
        let (peer, stream) = (1 - self.rank, gpu.compute.raw()?);
        // SAFETY: as in `send`.
        unsafe { self.nccl.receive(comm, peer, (to.0, bytes), stream) }?;
        self.settle(comm, waits)
    }

    /// Waits until a call is made, unless the communicator is to end. The caller holds the lock.
    fn settle(&self, comm: RawComm, waits: bool) -> Result<()> {
        // SAFETY: it is not ended while the lock is held.
        while waits && !unsafe { self.nccl.is_settled(comm) }? {
            if self.is_over.load(Ordering::Acquire) {
                return Err(over());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Ends it: whatever a GPU waits for from the other end, it waits no more, and what it would have received is
    /// undefined.
    pub fn abort(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(raw) = self.lock().take() {
            // SAFETY: it is ended once, and nothing uses it: the lock was held.
            unsafe { self.nccl.abort(raw.0) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<RawHandle<RawComm>>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.abort();
    }
}

fn over() -> Error {
    Error::Cuda {
        call: "nccl",
        message: "the channel was ended".to_owned(),
    }
}
