//! A GPU's memory that belongs to a handle.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUdeviceptr;

use super::entry::Pointer;
use super::gpu::Gpu;
use super::stream::Event;
use crate::Result;

/// Memory that the operations of one handle use. Dropping it, on any thread, frees it after the operations
/// launched so far and after all copies of it.
pub(crate) struct Memory {
    pub(super) at: CUdeviceptr,
    bytes: usize,
    pub(super) gpu: Gpu,
    /// The end of the last copy to another handle, since the memory was last changed.
    pub(super) copied: Mutex<Option<Event>>,
    /// The event after which its contents are final, unless an operation has used it since: a copy need not
    /// wait for later operations of the handle.
    pub(super) settled: Mutex<Option<Event>>,
}

impl Gpu {
    /// Uninitialized memory for later operations.
    pub fn alloc(&self, bytes: usize) -> Result<Memory> {
        let at = self.compute.alloc(bytes)?;
        Ok(Memory::new(self.clone(), at, bytes))
    }
}

impl Memory {
    /// `bytes` bytes at an address from the pool of the handle's device, which the handle's compute stream
    /// may use from now on.
    pub(super) fn new(gpu: Gpu, at: CUdeviceptr, bytes: usize) -> Self {
        if let (Some(trace), 1..) = (&gpu.trace, bytes) {
            trace.holds(at, bytes, true);
        }
        Self {
            at,
            bytes,
            gpu,
            copied: Mutex::default(),
            settled: Mutex::default(),
        }
    }

    /// The handle that it belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address `offset` bytes into it, where `count` items of `size` bytes begin.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub(super) fn place(&self, offset: usize, count: usize, size: usize) -> Pointer {
        let end = (count.checked_mul(size)).and_then(|bytes| bytes.checked_add(offset));
        let fits = end.is_some_and(|end| end <= self.bytes);
        assert!(
            fits,
            "{count} times {size} bytes from {offset} on in {}",
            self.bytes
        );
        Pointer(self.at + offset as u64)
    }

    /// The address `offset` bytes into it, to be read.
    pub fn at(&self, offset: usize) -> Pointer {
        drop(taken(&self.settled));
        self.place(offset, 0, 0)
    }

    /// `count` values from `offset` on after the operations so far; waits for them.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub fn read<T, const BYTES: usize>(
        &self,
        offset: usize,
        count: usize,
        value: fn([u8; BYTES]) -> T,
    ) -> Result<Vec<T>> {
        let from = self.place(offset, count, BYTES);
        drop(taken(&self.settled));
        let mut bytes = vec![0; BYTES * count];
        // SAFETY: as many bytes of this memory begin there.
        unsafe { self.gpu.download(from, &mut bytes) }?;
        Ok(bytes.as_chunks().0.iter().copied().map(value).collect())
    }

    /// The address `offset` bytes into it, to be written: orders later operations after the copies of it.
    pub fn written_at(&mut self, offset: usize) -> Result<Pointer> {
        if let Some(event) = taken(&self.copied) {
            self.gpu.compute.wait(&event)?;
        }
        Ok(self.at(offset))
    }

    /// Records that its contents are final after the operations so far, before it moves to another handle.
    pub fn settle(&mut self) -> Result<()> {
        self.settled = Mutex::new(Some(self.gpu.compute.record()?));
        Ok(())
    }
}

/// Takes the recorded event, if any.
pub(super) fn taken(event: &Mutex<Option<Event>>) -> Option<Event> {
    event.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Drop for Memory {
    fn drop(&mut self) {
        let copied = taken(&self.copied);
        let at = std::mem::take(&mut self.at);
        if let Some(trace) = &self.gpu.trace {
            trace.loses(at);
        }
        let (compute, leave) = (&self.gpu.compute, &self.gpu.leave);
        // A destructor cannot report an error; the next call on the streams does.
        let _freed = match copied {
            // SAFETY: only earlier work of this stream uses the memory, and it is freed once.
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
