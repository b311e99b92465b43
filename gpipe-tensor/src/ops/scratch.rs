//! Temporary buffers of operations.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

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
pub(super) struct Spare(Mutex<Vec<Scratch>>);

impl Spare {
    /// Buffers of `floats` floats.
    pub(super) fn new(device: &Device, items: usize, floats: usize) -> Result<Self> {
        // The share of an action may grow before the items begin.
        let threads = device.host().threads().min(items);
        let all: Result<_> = (0..threads)
            .map(|_| Scratch::take(device, floats))
            .collect();
        Ok(Self(Mutex::new(all?)))
    }

    /// Runs `work` with one of the buffers.
    pub(super) fn lend(&self, work: impl FnOnce(&mut [f32])) {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().pop();
        let mut scratch = taken.expect("no more items are in work than there are threads");
        work(&mut scratch);
        lock().push(scratch);
    }
}
