//! Temporary buffers of operations.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, TryLockError};

use crate::floats::Floats;
use crate::{Device, Host, Result};

/// A buffer of the host's pool with unspecified contents. No handle counts it, since the number of buffers
/// of an operation depends on its threads.
pub(super) struct Scratch {
    floats: Floats,
    host: Host,
}

impl Scratch {
    /// A buffer of `n` floats.
    pub(super) fn take(device: &Device, n: usize) -> Result<Self> {
        let host = device.host().clone();
        let floats = host.take(n)?;
        Ok(Self { floats, host })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.host.give(std::mem::take(&mut self.floats));
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats
    }
}

/// Scratch buffers, one for each item that can be processed at once.
pub(super) struct Spare {
    buffers: Vec<Mutex<Scratch>>,
    host: Host,
}

impl Spare {
    /// Buffers of `floats` floats.
    pub(super) fn new(device: &Device, items: usize, floats: usize) -> Result<Self> {
        let host = device.host().clone();
        // The share of an action may grow before the items begin.
        let threads = host.threads().min(items);
        let buffers: Result<_> = (0..threads)
            .map(|_| Scratch::take(device, floats).map(Mutex::new))
            .collect();
        Ok(Self {
            buffers: buffers?,
            host,
        })
    }

    /// Runs `work` with one of the buffers: that of the calling thread unless another one has it, since its processor's
    /// cache may hold it.
    pub(super) fn lend(&self, work: impl FnOnce(&mut [f32])) {
        let own = self.host.thread_number();
        // No more items are in work than there are buffers, so one of them is free, or will be in a moment.
        let mut in_turn = (own..own + self.buffers.len()).cycle();
        let mut free =
            in_turn.find_map(|i| match self.buffers[i % self.buffers.len()].try_lock() {
                Ok(free) => Some(free),
                Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            });
        work(free.as_mut().expect("there is a buffer for an item"));
    }
}

impl Drop for Spare {
    /// Frees the last buffer first, so that the next operation takes them for the same threads.
    fn drop(&mut self) {
        while self.buffers.pop().is_some() {}
    }
}
