//! A handle's pinned memory: pieces that are free, and pieces that copies still use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use super::pinned::Pinned;
use super::stream::{Event, Stream};
use crate::error::Result;

/// Bytes of one piece: longer copies are split.
pub(super) const PIECE: usize = 16 << 20;

/// Pieces in flight at most; the next one waits for one of them.
const FLYING: usize = 8;

/// A handle's pinned memory: free pieces, and pieces that copies still use.
#[derive(Default)]
pub(super) struct Staging(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    free: Vec<Pinned>,
    flying: VecDeque<(Pinned, Arc<Event>)>,
}

impl Pieces {
    /// Frees the first pieces in flight that copies are done with.
    fn land(&mut self) -> Result<()> {
        while let Some((_, event)) = self.flying.front() {
            if !event.is_done()? {
                break;
            }
            let landed = self.flying.pop_front();
            self.free.extend(landed.map(|(pinned, _)| pinned));
        }
        Ok(())
    }

    /// The shortest free piece of at least `bytes`.
    fn fitting(&mut self, bytes: usize) -> Option<Pinned> {
        let fitting = self.free.iter().enumerate();
        let fitting = fitting.filter(|(_, pinned)| pinned.bytes >= bytes);
        let (place, _) = fitting.min_by_key(|(_, pinned)| pinned.bytes)?;
        Some(self.free.swap_remove(place))
    }
}

impl Staging {
    /// Free memory of at least `bytes`.
    pub fn take(&self, context: &Arc<Context>, bytes: usize) -> Result<Pinned> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.land()?;
        while pieces.flying.len() >= FLYING {
            if let Some((_, event)) = pieces.flying.front() {
                event.synchronize()?;
            }
            let landed = pieces.flying.pop_front();
            pieces.free.extend(landed.map(|(pinned, _)| pinned));
        }
        match pieces.fitting(bytes) {
            Some(pinned) => Ok(pinned),
            None => Pinned::new(context, bytes),
        }
    }

    /// Memory of at least `bytes` that work of `stream` from now on may use: where as many pieces as may be are in
    /// flight, the stream, not the host, waits for the first that is long enough.
    pub fn take_behind(
        &self,
        context: &Arc<Context>,
        bytes: usize,
        stream: &Stream,
    ) -> Result<Pinned> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.land()?;
        if let Some(pinned) = pieces.fitting(bytes) {
            return Ok(pinned);
        }
        let long_enough = |(pinned, _): &(Pinned, _)| pinned.bytes >= bytes;
        match pieces.flying.iter().position(long_enough) {
            Some(place) if pieces.flying.len() >= FLYING => {
                stream.wait(&pieces.flying[place].1)?;
                if let Some((pinned, _)) = pieces.flying.remove(place) {
                    return Ok(pinned);
                }
            }
            _ => {}
        }
        Pinned::new(context, bytes)
    }

    /// Returns memory that copies use until `event`.
    pub fn give(&self, pinned: Pinned, event: Arc<Event>) {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.flying.push_back((pinned, event));
    }

    /// Returns memory that no copy uses.
    pub fn give_free(&self, pinned: Pinned) {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.free.push(pinned);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let pieces = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (pinned, event) in pieces.flying.drain(..) {
            // Whatever is left of a copy must be done before its memory is freed.
            if event.synchronize().is_err() {
                std::mem::forget(pinned);
            }
        }
    }
}
