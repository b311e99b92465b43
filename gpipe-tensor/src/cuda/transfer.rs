//! Copies to a device, and from the memory of one handle to that of another.

use std::sync::{Arc, PoisonError};

use super::entry::Pointer;
use super::gpu::{Gpu, through};
use super::memory::{Memory, taken};
use super::staging::PIECE;
use super::stream::Event;
use crate::error::Result;

impl Gpu {
    /// Memory that holds these bytes, for later operations.
    pub fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        if self.is_on_paper() {
            return self.alloc(bytes.len());
        }
        let arriving = Arriving::new(self, bytes.len())?;
        let at = arriving.at;
        for (piece, place) in bytes.chunks(PIECE).zip((0..).step_by(PIECE)) {
            let pinned = self.staging.take(self.context(), piece.len())?;
            let (pinned, event) = through(pinned, &[&self.arrive], |pinned| {
                pinned.write(piece);
                // SAFETY: the memory was allocated with this size on this stream, and the pinned
                // memory is not accessed until the event.
                unsafe { self.arrive.copy_in(at + place, pinned, piece.len()) }?;
                self.arrive.record().map(Arc::new)
            })?;
            self.staging.give(pinned, event.clone());
            if place as usize + piece.len() == bytes.len() {
                self.compute.wait(&event)?;
            }
        }
        Ok(arriving.landed())
    }

    /// A copy of `bytes` bytes at `from` for the operations of `to`, and the event after which the
    /// source may be changed or freed. The bytes are final after `settled`, or else after the operations
    /// so far.
    ///
    /// # Safety
    /// As many bytes begin at `from`, in memory of this handle that lives until the call returns.
    unsafe fn send(
        &self,
        from: Pointer,
        settled: Option<Event>,
        bytes: usize,
        to: &Self,
    ) -> Result<(Memory, Event)> {
        let arriving = Arriving::new(to, bytes)?;
        // SAFETY: the caller vouches for the source, and the destination has as many bytes.
        match unsafe { self.send_to(arriving.at, from, settled, bytes, to) } {
            Ok(sent) => Ok((arriving.landed(), sent)),
            Err(error) => {
                // What was asked for already uses the memory.
                self.leave.give_up();
                to.arrive.give_up();
                Err(error)
            }
        }
    }

    /// [`send`](Self::send) to memory that was allocated on the stream `arrive` of `to`.
    ///
    /// # Safety
    /// As [`send`](Self::send), for both memories.
    unsafe fn send_to(
        &self,
        at: u64,
        from: Pointer,
        settled: Option<Event>,
        bytes: usize,
        to: &Self,
    ) -> Result<Event> {
        self.leave.wait(&self.settled_or_now(settled)?)?;
        let reaches = self.is_beside(to) || self.context().reaches(to.context())?;
        if reaches {
            // The memory must be there before something is written to it.
            self.leave.wait(&to.arrive.record()?)?;
            // SAFETY: this stream waits for events after which the source is written and the destination
            // allocated; both have this size.
            unsafe {
                match self.is_beside(to) {
                    true => self.leave.copy(at, from.0, bytes)?,
                    false => self.leave.copy_to_peer(at, to.context(), from.0, bytes)?,
                }
            }
            let sent = self.leave.record()?;
            to.compute.wait(&sent)?;
            return Ok(sent);
        }
        for place in (0..bytes).step_by(PIECE) {
            let length = PIECE.min(bytes - place);
            let place = place as u64;
            let streams = [&self.leave, &to.arrive];
            let pinned = self
                .staging
                .take_behind(self.context(), length, &self.leave)?;
            let (pinned, done) = through(pinned, &streams, |pinned| {
                // SAFETY: as above; the second copy waits for the first, and the pinned memory is left
                // alone until the second is done.
                unsafe {
                    self.leave.copy_out(pinned, from.0 + place, length)?;
                    to.arrive.wait(&self.leave.record()?)?;
                    to.arrive.copy_in(at + place, pinned, length)?;
                }
                to.arrive.record().map(Arc::new)
            })?;
            self.staging.give(pinned, done);
        }
        to.compute.wait(&to.arrive.record()?)?;
        self.leave.record()
    }
}

impl Memory {
    /// A copy of `bytes` bytes from `offset` on for another handle.
    pub fn copy_for(&self, to: &Gpu, offset: usize, bytes: usize) -> Result<Self> {
        if to.is(&self.gpu) {
            let copy = to.alloc(bytes)?;
            // SAFETY: both memories are of this handle, and have as many bytes there.
            unsafe { to.copy(copy.at(0), self.place(offset, 1, bytes), bytes) }?;
            return Ok(copy);
        }
        let from = self.place(offset, 1, bytes);
        // SAFETY: as many bytes begin there.
        let (copy, event) = unsafe { self.gpu.send(from, None, bytes, to) }?;
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        *copied = Some(event);
        Ok(copy)
    }

    /// Moves it to another handle: by handing over on the same device, else by a copy.
    pub fn hand_to(mut self, to: &Gpu) -> Result<Self> {
        let copied = self.copied.get_mut();
        let is_copied = copied.unwrap_or_else(PoisonError::into_inner).is_some();
        let settled = taken(&self.settled);
        if self.gpu.is_beside(to) && !is_copied {
            self.gpu.precede(settled, to)?;
            if let Some(trace) = &self.gpu.trace {
                trace.loses(self.at);
            }
            if let Some(trace) = &to.trace {
                trace.holds(self.at, self.bytes(), false);
            }
            self.gpu = to.clone();
            return Ok(self);
        }
        let (from, bytes) = (self.place(0, 0, 0), self.bytes());
        // SAFETY: it is all of the memory.
        let (copy, _) = unsafe { self.gpu.send(from, settled, bytes, to) }?;
        let at = std::mem::take(&mut self.at);
        if let Some(trace) = &self.gpu.trace {
            trace.loses(at);
        }
        // SAFETY: nothing else holds the memory, so that only operations before the copy used it, and
        // this stream has waited for those. It is freed once.
        unsafe { self.gpu.leave.free(at)? };
        Ok(copy)
    }
}

/// Memory that a copy is filling; operations do not wait for it yet.
struct Arriving {
    at: u64,
    bytes: usize,
    to: Gpu,
}

impl Arriving {
    fn new(to: &Gpu, bytes: usize) -> Result<Self> {
        Ok(Self {
            at: (to.context().spares).make_room(|| to.arrive.alloc(bytes))?,
            bytes,
            to: to.clone(),
        })
    }

    /// The memory, once later operations wait for the copy.
    fn landed(mut self) -> Memory {
        Memory::new(self.to.clone(), std::mem::take(&mut self.at), self.bytes)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // SAFETY: a copy to it could not be asked for, so that this stream alone knows of it.
        let _freed = unsafe { self.to.arrive.free(self.at) };
    }
}
