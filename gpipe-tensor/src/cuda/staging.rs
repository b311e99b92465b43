//! Memory of the host that devices copy from and to by themselves.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CU_MEMHOSTALLOC_PORTABLE};

use super::context::{Context, Name};
use super::status::Status;
use super::stream::Event;
use crate::Result;

/// The most bytes that are copied at once: what is longer goes in pieces.
pub(super) const PIECE: usize = 16 << 20;

/// So many pieces may be on their way; the next one waits for the first of them.
const FLYING: usize = 8;

/// Memory of the host that stays where it is.
pub(crate) struct Pinned {
    at: Name<*mut c_void>,
    bytes: usize,
    context: Arc<Context>,
}

impl Pinned {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.bind()?;
        let bytes = bytes.next_power_of_two().max(4096);
        let mut at = std::ptr::null_mut();
        // SAFETY: the context is the thread's; the call writes one address.
        unsafe { sys::cuMemHostAlloc(&mut at, bytes, CU_MEMHOSTALLOC_PORTABLE) }
            .check("cuMemHostAlloc")?;
        Ok(Self {
            at: Name(at),
            bytes,
            context: context.clone(),
        })
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.at.0
    }

    /// Puts bytes there.
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "there is room for as many bytes");
        // SAFETY: there is room, nobody else has the memory, and no copy of it is on its way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.0.cast(), bytes.len()) }
    }

    /// Reads the first bytes, which a copy that is done has written.
    pub fn read(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.bytes, "there are as many bytes");
        // SAFETY: as above; the memory was written by the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.0.cast(), bytes.as_mut_ptr(), bytes.len());
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the memory is freed once, and no copy of it is on its way.
            let _freed = unsafe { sys::cuMemFreeHost(self.at.0) };
        }
    }
}

/// A handle's pinned memory: what is free, and what copies still use.
#[derive(Default)]
pub(super) struct Staging(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    free: Vec<Pinned>,
    flying: VecDeque<(Pinned, Arc<Event>)>,
}

impl Staging {
    /// Memory of at least so many bytes that no copy uses.
    pub fn take(&self, context: &Arc<Context>, bytes: usize) -> Result<Pinned> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, event)) = pieces.flying.front() {
            if !event.is_done()? {
                if pieces.flying.len() < FLYING {
                    break;
                }
                event.synchronize()?;
            }
            let landed = pieces.flying.pop_front();
            pieces.free.extend(landed.map(|(pinned, _)| pinned));
        }
        let fitting = pieces.free.iter().enumerate();
        let fitting = fitting.filter(|(_, pinned)| pinned.bytes >= bytes);
        match fitting.min_by_key(|(_, pinned)| pinned.bytes) {
            Some((place, _)) => Ok(pieces.free.swap_remove(place)),
            None => Pinned::new(context, bytes),
        }
    }

    /// Takes memory back that copies use until `event`.
    pub fn give(&self, pinned: Pinned, event: Arc<Event>) {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.flying.push_back((pinned, event));
    }

    /// Takes memory back that no copy uses.
    pub fn give_free(&self, pinned: Pinned) {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.free.push(pinned);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let pieces = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, event) in &pieces.flying {
            // Whatever is left of a copy must be done before its memory is freed.
            let _done = event.synchronize();
        }
    }
}
