//! Memory for operations: of the arena within an action, of the driver's pool elsewhere.

use std::sync::atomic::Ordering;

use cudarc::driver::sys::CUdeviceptr;

use super::{Compute, Record};
#[cfg(feature = "emulated")]
use crate::cuda::asked::Asked;
use crate::error::{Error, Result};

/// Where the memory of a buffer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Home {
    /// The driver's pool.
    Pool,
    /// A range of the arena.
    Arena,
    /// The driver's pool, as the arena had no room.
    Beside,
}

impl Compute {
    /// Allocates memory of the pool for later operations, as [`Stream::alloc`]; arenas of the device that nobody uses make
    /// room for it.
    pub fn alloc(&self, bytes: usize) -> Result<CUdeviceptr> {
        self.context().spares.make_room(|| {
            // Nothing else is asked of the stream while it is captured.
            let mut held = self.lock();
            match (self.stream.alloc(bytes), &mut held) {
                (Err(Error::OutOfMemory { .. }), Some(record)) if !record.freed.is_empty() => {
                    self.catch_up(record)?;
                    self.stream.alloc(bytes)
                }
                (other, _) => other,
            }
        })
    }

    /// Frees the arena if nobody uses it, for others whom memory is short for; whether it did.
    pub(in crate::cuda) fn give_arena_back(&self) -> Result<bool> {
        match &mut self.lock() {
            Some(record) if record.arena.is_idle() && record.arena.bytes() > 0 => {
                record.pause.begin(self.context().spares.shortages());
                self.put_arena(record, None)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether there is an arena. Takes no lock.
    pub(in crate::cuda) fn has_arena(&self) -> bool {
        self.has_arena.load(Ordering::Relaxed)
    }

    /// Whether memory ran out since the last step began, of which arenas or graphs have some that the next step does
    /// without.
    pub fn is_short(&self) -> bool {
        let shortages = self.context().spares.shortages();
        self.lock()
            .is_some_and(|record| record.pause.is_new(shortages))
    }

    /// Frees memory of the pool after the operations so far.
    ///
    /// # Safety
    /// As [`Stream::free`].
    pub unsafe fn free(&self, at: CUdeviceptr) -> Result<()> {
        match &mut self.lock() {
            Some(record) if at != 0 && !record.asked.is_empty() => {
                record.freed.push(at);
                Ok(())
            }
            // SAFETY: the caller vouches for it.
            _ => unsafe { self.stream.free(at) },
        }
    }

    /// Uninitialized memory for later operations, and where it is from: of the arena within an action.
    pub(in crate::cuda) fn take(&self, bytes: usize) -> Result<(CUdeviceptr, Home)> {
        if bytes == 0 || !self.is_in_action() {
            return Ok((self.alloc(bytes)?, Home::Pool));
        }
        if let Some(at) = self.take_range(bytes) {
            return Ok((at, Home::Arena));
        }
        match self.alloc(bytes) {
            Ok(at) => Ok((at, Home::Beside)),
            Err(error) => {
                self.forget_beside(bytes);
                Err(error)
            }
        }
    }

    /// A range of the arena. If there is no room, the caller has memory elsewhere, which counts as beside the arena.
    pub(in crate::cuda) fn take_range(&self, bytes: usize) -> Option<CUdeviceptr> {
        let mut held = self.lock();
        let record = held.as_mut()?;
        let at = match record.pause.is_now() {
            true => None,
            false => record.arena.take(bytes),
        };
        match at {
            None => record.arena.lies_beside(bytes),
            #[cfg(feature = "emulated")]
            Some(at) => {
                let is_taken = true;
                record.asked.push(Asked::Range {
                    at,
                    bytes,
                    is_taken,
                });
            }
            #[cfg(not(feature = "emulated"))]
            Some(_) => {}
        }
        at
    }

    /// Gives back memory of [`take`](Self::take), for operations after those so far.
    ///
    /// # Safety
    /// Only earlier operations of this handle, or work that this stream waits for, use it; and it is given back only once.
    pub(in crate::cuda) unsafe fn give(
        &self,
        at: CUdeviceptr,
        bytes: usize,
        home: Home,
    ) -> Result<()> {
        match (home, &mut self.lock()) {
            (Home::Arena, Some(record)) => {
                let was_taken = record.arena.give(at);
                debug_assert!(was_taken, "it is a range of the arena");
                #[cfg(feature = "emulated")]
                {
                    record.asked.push(Asked::Range {
                        at,
                        bytes,
                        is_taken: false,
                    });
                    if !record.puts_together() {
                        return self.catch_up(record);
                    }
                }
                return Ok(());
            }
            (Home::Beside, Some(record)) => record.arena.left_beside(bytes),
            _ => {}
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.free(at) }
    }

    /// Counts memory no more that the arena had no room for.
    pub(in crate::cuda) fn forget_beside(&self, bytes: usize) {
        if let Some(record) = &mut self.lock() {
            record.arena.left_beside(bytes);
        }
    }

    /// Puts a piece of this size, or none, in the place of the arena's, which nobody uses. Without memory for it there is none
    /// for some steps.
    pub(super) fn put_arena(&self, record: &mut Record, bytes: Option<u64>) -> Result<()> {
        // Operations that used ranges of the piece before come before its end, and graphs name addresses in it.
        self.catch_up(record)?;
        record.replays.clear();
        if let Some(before) = record.arena.replace(None) {
            // SAFETY: nobody has a range of it: only earlier operations use it, and it is freed once.
            unsafe { self.stream.free(before) }?;
            self.has_arena.store(false, Ordering::Relaxed);
        }
        let Some(bytes) = bytes else { return Ok(()) };
        // The pool keeps what actions had of it so far, in pieces that need not make one of this size.
        self.context().trim()?;
        match self.stream.alloc(bytes as usize) {
            Ok(at) => {
                record.arena.replace(Some((at, bytes)));
                self.has_arena.store(true, Ordering::Relaxed);
            }
            Err(Error::OutOfMemory { .. }) => {
                record.pause.begin(self.context().spares.shortages());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
