//! Memory of a device that belongs to a handle.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUdeviceptr;

use super::entry::Pointer;
use super::gpu::Gpu;
use super::stream::Event;
use crate::Result;

/// Memory that the operations of one handle use. It is freed after those of them that were asked for
/// before it was dropped, and after the copies of it, whichever thread drops it.
pub(crate) struct Memory {
    pub(super) at: CUdeviceptr,
    pub(super) gpu: Gpu,
    /// The end of the last copy to another handle, since the memory was last changed.
    pub(super) copied: Mutex<Option<Event>>,
    /// Where its contents are whole, if no operation has looked at it since: what comes from there need
    /// not wait for what the handle was asked for later.
    pub(super) settled: Mutex<Option<Event>>,
}

impl Gpu {
    /// Memory for the operations from now on, with unspecified contents.
    pub fn alloc(&self, bytes: usize) -> Result<Memory> {
        let at = self.compute.alloc(bytes)?;
        Ok(Memory::new(self.clone(), at))
    }
}

impl Memory {
    /// Memory at an address that came from the pool of the handle's device, and that the handle's
    /// compute stream may use from now on.
    pub(super) fn new(gpu: Gpu, at: CUdeviceptr) -> Self {
        Self {
            at,
            gpu,
            copied: Mutex::default(),
            settled: Mutex::default(),
        }
    }

    /// Whose it is.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Where `offset` bytes into it are.
    pub(super) fn place(&self, offset: usize) -> Pointer {
        Pointer(self.at + offset as u64)
    }

    /// Where `offset` bytes into it are, to be read.
    pub fn at(&self, offset: usize) -> Pointer {
        drop(taken(&self.settled));
        self.place(offset)
    }

    /// The same, to be written: after the copies of what was there.
    pub fn written_at(&mut self, offset: usize) -> Result<Pointer> {
        if let Some(event) = taken(&self.copied) {
            self.gpu.compute.wait(&event)?;
        }
        Ok(self.at(offset))
    }

    /// Notes that its contents are those after the operations so far: it is on its way elsewhere.
    pub fn settle(&mut self) -> Result<()> {
        self.settled = Mutex::new(Some(self.gpu.compute.record()?));
        Ok(())
    }
}

/// The event that was noted, which is none any more.
pub(super) fn taken(event: &Mutex<Option<Event>>) -> Option<Event> {
    event.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Drop for Memory {
    fn drop(&mut self) {
        let copied = taken(&self.copied);
        let at = std::mem::take(&mut self.at);
        let (compute, leave) = (&self.gpu.compute, &self.gpu.leave);
        // A destructor cannot report an error; the next call on the streams does.
        let _freed = match copied {
            // SAFETY: what uses the memory is work of this stream so far; nobody frees it again.
            None => unsafe { compute.free(at) },
            // Copies are work of the other stream, which kernels need not wait for.
            Some(_) => compute
                .record()
                .and_then(|used| leave.wait(&used))
                // SAFETY: as above, and this stream waits for that one.
                .and_then(|()| unsafe { leave.free(at) }),
        };
    }
}
