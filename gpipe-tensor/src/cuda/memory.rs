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
    at: CUdeviceptr,
    gpu: Gpu,
    /// The end of the last copy to another handle, since the memory was last changed.
    copied: Mutex<Option<Event>>,
    /// Where its contents are whole, if no operation has looked at it since: what comes from there need
    /// not wait for what the handle was asked for later.
    settled: Mutex<Option<Event>>,
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
    fn place(&self, offset: usize) -> Pointer {
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

    /// A copy of so many bytes from `offset` on for another handle.
    pub fn copy_for(&self, to: &Gpu, offset: usize, bytes: usize) -> Result<Self> {
        if to.is(&self.gpu) {
            let copy = to.alloc(bytes)?;
            to.copy(copy.at(0), self.place(offset), bytes)?;
            return Ok(copy);
        }
        let (copy, event) = self.gpu.send(self.place(offset), None, bytes, to)?;
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        *copied = Some(event);
        Ok(copy)
    }

    /// All of so many bytes for another handle, and gone from this one: handed over where both are on
    /// one device, else copied.
    pub fn hand_to(mut self, to: &Gpu, bytes: usize) -> Result<Self> {
        let copied = self.copied.get_mut();
        let is_copied = copied.unwrap_or_else(PoisonError::into_inner).is_some();
        let settled = taken(&self.settled);
        if self.gpu.is_beside(to) && !is_copied {
            self.gpu.precede(settled, to)?;
            self.gpu = to.clone();
            return Ok(self);
        }
        let (copy, _) = self.gpu.send(self.place(0), settled, bytes, to)?;
        let at = std::mem::take(&mut self.at);
        // SAFETY: nothing else holds the memory, so that the operations which used it are those
        // before the copy, for which this stream has waited: none has since it was settled. Nobody
        // frees it again.
        unsafe { self.gpu.leave.free(at)? };
        Ok(copy)
    }
}

/// The event that was noted, which is none any more.
fn taken(event: &Mutex<Option<Event>>) -> Option<Event> {
    event.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Drop for Memory {
    fn drop(&mut self) {
        let copied = taken(&self.copied);
        let at = std::mem::take(&mut self.at);
        let (compute, leave) = (&self.gpu.compute, &self.gpu.leave);
        // Who would be told of an error has gone; what comes next on the streams says it again.
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
