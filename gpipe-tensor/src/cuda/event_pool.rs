//! Events that were used and are free again. Making one and destroying it are calls into the driver under its
//! lock, and a micro-batch records several.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUevent;

use super::raw_handle::RawHandle;

/// Free events of a context.
#[derive(Default)]
pub(super) struct EventPool {
    ordering: Mutex<Vec<RawHandle<CUevent>>>,
    timed: Mutex<Vec<RawHandle<CUevent>>>,
}

impl EventPool {
    fn free(&self, timed: bool) -> std::sync::MutexGuard<'_, Vec<RawHandle<CUevent>>> {
        let events = if timed { &self.timed } else { &self.ordering };
        events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free event that records times, or one that only orders.
    pub fn take(&self, timed: bool) -> Option<RawHandle<CUevent>> {
        self.free(timed).pop()
    }

    /// An event that nobody refers to any more.
    pub fn give(&self, event: RawHandle<CUevent>, timed: bool) {
        self.free(timed).push(event);
    }

    /// All free events, to be destroyed.
    pub fn drain(&self) -> Vec<RawHandle<CUevent>> {
        [true, false]
            .into_iter()
            .flat_map(|timed| std::mem::take(&mut *self.free(timed)))
            .collect()
    }
}
