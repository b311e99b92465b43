//! Rounds: every rank tells all others the result of a call, and waits for theirs.

use std::time::Duration;

use super::{FAULT, RESULT, Said, World};
use crate::executor::clock::{Clock, Limit};
use crate::executor::failure::{PipelineError, is_of_another_rank};
use crate::executor::transport::Parcel;
use crate::executor::wire::Writer;

/// The kind of an error that another rank caused.
const OF_ANOTHER_RANK: u64 = 2;

impl World {
    /// Tells every rank the parcel of this one; returns those of all ranks, in their order. Every rank calls
    /// it.
    ///
    /// # Errors
    /// If a rank fails, or does not answer in time.
    pub fn share(
        &self,
        own: Parcel,
        deadline: Option<Duration>,
    ) -> Result<Vec<Parcel>, PipelineError> {
        self.exchange(self.begin(), Ok(own), &|_| true, deadline)
    }

    /// The number of the newest call, the same on every rank while a call is made.
    pub fn call(&self) -> u64 {
        self.lock().calls
    }

    /// The number of the next call, the same on every rank.
    pub(crate) fn begin(&self) -> u64 {
        let call = {
            let mut state = self.lock();
            state.calls += 1;
            state.calls
        };
        self.pass_on_early(call);
        call
    }

    /// Closes a call: tells the ranks `to` the result of this one and waits for those of all, until the deadline; what
    /// others keep to themselves is empty. Of several errors that of the first rank counts; one that is caused by
    /// another comes last.
    pub(crate) fn exchange(
        &self,
        call: u64,
        own: Result<Parcel, PipelineError>,
        to: &dyn Fn(usize) -> bool,
        deadline: Option<Duration>,
    ) -> Result<Vec<Parcel>, PipelineError> {
        // Where the run is over, this rank says yes to nothing any more: it may leave out calls that the others make, which
        // would take its answer for that of another call.
        let own = self.check().and(own);
        let (said, own) = match own {
            Ok(parcel) => {
                for rank in self.others() {
                    let mut out = Writer::default();
                    out.bits(RESULT);
                    out.bits(call);
                    self.lock().offsets.stamp(rank, &mut out);
                    let mut message = out.finish();
                    if to(rank) {
                        message.head.extend(&parcel.head);
                        message.bodies.clone_from(&parcel.bodies);
                    }
                    self.send(rank, message);
                }
                (Ok(parcel), Ok(()))
            }
            Err(error) => {
                let kind = match &error {
                    error if is_of_another_rank(error) => OF_ANOTHER_RANK,
                    PipelineError::Overdue { .. } | PipelineError::Gone { .. } => 1,
                    _ => 0,
                };
                let mut out = Writer::default();
                out.bits(FAULT);
                out.bits(call);
                out.bits(kind);
                out.text(&error.to_string());
                self.send_all(&out.finish());
                (Err((kind, String::new())), Err(error))
            }
        };
        let said = self.wait_for_all(call, said, deadline);
        let said = match (said, own) {
            (Ok(said), own) => {
                let faults = said.iter().enumerate().filter_map(|(rank, said)| {
                    let (kind, message) = said.as_ref().err()?;
                    Some((*kind, rank, message))
                });
                match (faults.min(), own) {
                    // Of errors that another rank caused, what this rank knows itself says most.
                    (Some((kind, rank, _)), Err(own))
                        if kind == OF_ANOTHER_RANK || rank == self.rank() =>
                    {
                        return Err(own);
                    }
                    (Some((_, rank, message)), _) => {
                        return Err(self.remote(rank, message.clone()));
                    }
                    (None, _) => said,
                }
            }
            // What this rank knows itself says more, unless it only waited.
            (Err(error), Err(PipelineError::Overdue { .. })) => return Err(error),
            (Err(_), Err(own)) => return Err(own),
            (Err(error), Ok(())) => return Err(error),
        };
        Ok(said.into_iter().flatten().collect())
    }

    fn wait_for_all(
        &self,
        call: u64,
        own: Said,
        deadline: Option<Duration>,
    ) -> Result<Vec<Said>, PipelineError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        let clock = Clock::start();
        let limit = Limit::new(&self.changed, clock, deadline);
        let mut state = self.lock();
        let round = state
            .rounds
            .entry(call)
            .or_insert_with(|| vec![None; ranks]);
        round[rank] = Some(own);
        // For a worker that waits for what is posted.
        self.changed.notify_all();
        self.transport.waiting(true);
        let result = loop {
            let round = &state.rounds[&call];
            let Some(missing) = round.iter().position(Option::is_none) else {
                break Ok(());
            };
            if let Some((rank, message)) = state.failed.clone() {
                break Err(self.remote(rank, message));
            }
            let late;
            (state, late) = limit.wait(&self.changed, state);
            if late {
                let message = format!("silent for {:.1} s", clock.seconds());
                state.failed.get_or_insert((missing, message.clone()));
                break Err(self.remote(missing, message));
            }
        };
        self.transport.waiting(false);
        let round = state.rounds.remove(&call).unwrap_or_default();
        for said in round.iter().enumerate().filter(|(from, _)| *from != rank) {
            if let (_, Some(Ok(parcel))) = said {
                self.gauge.remove(parcel.bytes());
            }
        }
        result.map(|()| round.into_iter().flatten().collect())
    }
}
