//! Floats that an operation needs while it runs.

use std::ops::{Deref, DerefMut};

use crate::pool::Floats;
use crate::{Device, Host, Result};

/// A buffer of the host's pool with unspecified contents. It is in no handle's count: how many an
/// operation takes depends on its threads.
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
