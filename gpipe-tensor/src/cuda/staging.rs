//! A handle's pinned memory: pieces that are free, and pieces that copies still use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use super::pinned::Pinned;
use super::stream::Event;
use crate::error::Result;

/// Bytes of one piece: longer copies are split.
pub(super) const PIECE: usize = 16 << 20;

/// Pieces in flight at most; the next one waits for the first of them.
const FLYING: usize = 8;

/// A handle's pinned memory: free pieces, and pieces that copies still use.
#[derive(Default)]
pub(super) struct Staging(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    free: Vec<Pinned>,
    flying: VecDeque<(Pinned, Arc<Event>)>,
}

impl Staging {
    /// Free memory of at least `bytes`.
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
