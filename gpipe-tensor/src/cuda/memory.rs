//! A GPU's memory that belongs to a handle.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUdeviceptr;

use super::compute::Home;
use super::entry::Pointer;
use super::gpu::Gpu;
use super::stream::Event;
use crate::Result;

/// Memory that the operations of one handle use. Dropping it, on any thread, frees it after the operations
/// launched so far and after all copies of it.
pub(crate) struct Memory {
    pub(super) at: CUdeviceptr,
    bytes: usize,
    home: Home,
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
        let (at, home) = self.compute.take(bytes)?;
        let mut memory = Memory::new(self.clone(), at, bytes);
        memory.home = home;
        Ok(memory)
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
            home: Home::Pool,
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

    /// Records that its contents are final after the operations so far, before it moves to another handle: in memory of
    /// the pool, for what is given back to an arena at any time of another handle's would change its addresses.
    pub fn settle(&mut self) -> Result<()> {
        self.leave_arena()?;
        self.settled = Mutex::new(Some(self.gpu.compute.record()?));
        Ok(())
    }
}

impl Memory {
    /// Moves it from an arena to memory of the pool, by a copy behind the operations so far.
    pub fn leave_arena(&mut self) -> Result<()> {
        let home = std::mem::replace(&mut self.home, Home::Pool);
        let compute = &self.gpu.compute;
        match home {
            Home::Pool => Ok(()),
            // From here on its place is not one that the arena should have had.
            Home::Beside => {
                compute.forget_beside(self.bytes);
                Ok(())
            }
            Home::Arena => {
                let to = match compute.alloc(self.bytes) {
                    Ok(to) => to,
                    Err(error) => {
                        self.home = home;
                        return Err(error);
                    }
                };
                let from = std::mem::replace(&mut self.at, to);
                if let Some(event) = taken(&self.copied) {
                    compute.wait(&event)?;
                }
                // SAFETY: both have as many bytes; copies of the range to elsewhere are waited for above, so that this
                // stream alone uses it, and it is given back once.
                unsafe {
                    let copied = compute.copy_alone(to, from, self.bytes);
                    copied.and(compute.give(from, self.bytes, home))
                }
            }
        }
    }

    /// Moves it to an arena if an action of its handle is under way, so that its operations have the same addresses
    /// whenever actions come in the same order.
    pub fn enter_arena(mut self) -> Result<Self> {
        let compute = &self.gpu.compute;
        if self.home != Home::Pool || self.bytes == 0 || !compute.is_in_action() {
            return Ok(self);
        }
        let Some(at) = compute.take_range(self.bytes) else {
            // The next arena has room for it.
            self.home = Home::Beside;
            return Ok(self);
        };
        let mut moved = Self::new(self.gpu.clone(), at, self.bytes);
        moved.home = Home::Arena;
        // SAFETY: both have as many bytes and are the same handle's; this one is freed behind the copy.
        unsafe { compute.copy_alone(at, self.at, self.bytes) }?;
        Ok(moved)
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
            None => unsafe { compute.give(at, self.bytes, self.home) },
            Some(event) if self.home == Home::Arena => {
                // The next user of the range is this stream.
                let waited = compute.wait(&event);
                // SAFETY: as above, and this stream waits for the copies.
                waited.and_then(|()| unsafe { compute.give(at, self.bytes, self.home) })
            }
            // Copies are work of the other stream, which kernels need not wait for.
            Some(_) => {
                if self.home == Home::Beside {
                    compute.forget_beside(self.bytes);
                }
                let used = compute.record();
                used.and_then(|used| leave.wait(&used))
                    // SAFETY: as above, and this stream waits for that one.
                    .and_then(|()| unsafe { leave.free(at) })
            }
        };
    }
}
