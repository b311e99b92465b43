//! Messages from one rank to another, which takes them by a label.

use std::sync::PoisonError;

use super::{Label, POSTED, World};
use crate::executor::failure::PipelineError;
use crate::executor::transport::Parcel;
use crate::executor::wire::Writer;

impl World {
    /// Sends a message to another rank, which [takes](Self::take_posted) it by its label. Never waits. A second message of a
    /// label whose first one was not taken ends the run.
    ///
    /// # Errors
    /// [`PipelineError::NoPeer`] for a rank that is not another one of the run.
    pub fn post(&self, to: usize, label: Label, parcel: Parcel) -> Result<(), PipelineError> {
        self.check_peer(to)?;
        let mut out = Writer::default();
        out.bits(POSTED);
        out.bits(label.call);
        out.number(label.place);
        out.number(label.part);
        out.append(parcel);
        self.send(to, out.finish());
        Ok(())
    }

    /// Takes a message that a rank posts, as soon as it is there.
    ///
    /// # Errors
    /// [`PipelineError::NoPeer`] for a rank that is not another one of the run. If a rank fails before, or the call in which
    /// this waits, unless the message is [of no call](Label::OF_NO_CALL).
    pub fn take_posted(&self, from: usize, label: Label) -> Result<Parcel, PipelineError> {
        self.check_peer(from)?;
        let is_of_call = label.call != Label::OF_NO_CALL;
        let mut state = self.lock();
        let (mut waits, newest) = (false, state.calls);
        let result = loop {
            if let Some(parcel) = state.posted.remove(&(from, label)) {
                self.gauge.remove(parcel.bytes());
                break Ok(parcel);
            }
            if let Some((rank, message)) = state.failed.clone() {
                break Err((rank, message));
            }
            // A call that failed is over: nobody posts for it any more.
            let said = state.rounds.values().flat_map(|round| round.iter());
            let fault = said.enumerate().find_map(|(place, said)| {
                let fault = said.as_ref()?.as_ref().err()?;
                Some((place % self.ranks(), fault.1.clone()))
            });
            if let Some(fault) = fault.filter(|_| is_of_call) {
                break Err(fault);
            }
            // Nor in one that a worker stopped, maybe of this rank: its rank tells the error when all its workers have ended.
            let stopped = state.stopped.filter(|(call, _)| *call >= newest);
            if let Some((_, rank)) = stopped.filter(|_| is_of_call) {
                break Err((rank, "the call ended before".to_owned()));
            }
            if !waits && is_of_call {
                waits = true;
                self.transport.waiting(true);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        if waits {
            self.transport.waiting(false);
        }
        result.map_err(|(rank, message)| self.remote(rank, message))
    }

    fn check_peer(&self, peer: usize) -> Result<(), PipelineError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        match peer < ranks && peer != rank {
            true => Ok(()),
            false => Err(PipelineError::NoPeer { rank, peer, ranks }),
        }
    }

    /// Drops what was posted for calls before this one.
    pub(crate) fn forget(&self, before: u64) {
        self.lock().posted.retain(|(_, label), parcel| {
            let stays = label.call >= before;
            if !stays {
                self.gauge.remove(parcel.bytes());
            }
            stays
        });
    }
}
