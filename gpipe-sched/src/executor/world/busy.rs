//! Work of a rank that others do not cut off when they end, such as a checkpoint that is being written.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::{BUSY, World};
use crate::executor::wire::Writer;

/// What a rank does that others do not cut off, until it is dropped: [`World::busy`].
pub struct Busy(Arc<World>);

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Busy")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change_work(|count| count - 1);
    }
}

impl World {
    /// Says to the other ranks that this one is busy: where they [end](Self::close) before it, because the run failed, they
    /// wait. A launcher ends all ranks with the first that fails.
    #[must_use]
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.change_work(|count| count + 1);
        Busy(self.clone())
    }

    /// Waits for all ranks to come to their end; first for those that are [busy](Self::busy), as long as they are heard.
    ///
    /// # Errors
    /// If they do not.
    pub fn close(&self) -> Result<(), String> {
        let mut state = self.lock();
        while state.busy.contains(&true) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.transport.close()
    }

    fn change_work(&self, change: impl Fn(usize) -> usize) {
        // The lock keeps the order of the messages.
        let mut count = self.own_work.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, now) = (*count, change(*count));
        *count = now;
        if (before == 0) != (now == 0) {
            let mut out = Writer::default();
            out.bits(BUSY);
            out.bits(u64::from(now > 0));
            self.send_all(&out.finish());
        }
    }

    /// A rank is not understood any more: its messages do not arrive, or not whole. Where this is the own one, none are.
    pub(super) fn unheard(&self, from: usize) {
        let own = self.rank();
        let mut state = self.lock();
        for (rank, busy) in state.busy.iter_mut().enumerate() {
            *busy &= rank != from && from != own;
        }
    }
}
