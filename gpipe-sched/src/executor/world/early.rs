//! Flows that arrive for a call which this rank has not begun: another rank is ahead.

use std::sync::Arc;

use super::flow::Flow;
use super::{Arrivals, World};

impl World {
    /// Gives a flow to its pipeline.
    pub(super) fn pass_on(
        &self,
        mut flow: Flow,
        arrivals: Option<&Arc<dyn Arrivals>>,
    ) -> Result<(), String> {
        let taken = match arrivals {
            Some(arrivals) => arrivals.take_flow(self.rank(), flow.tag, &mut flow.message),
            // Of a call that failed; its pipeline is gone.
            None => Ok(()),
        };
        self.gauge.remove(flow.bytes);
        taken
    }

    /// Gives the newest pipeline what arrived for a call before this rank began it. Until then, it may be another one that
    /// is the newest, and about to be dropped.
    pub(super) fn pass_on_early(&self, call: u64) {
        let mut state = self.lock();
        let early = state.early.extract_if(.., |flow| flow.tag.epoch <= call);
        let early: Vec<Flow> = early.collect();
        let said = state.rounds.get(&call).into_iter().flatten();
        let is_stopped = state.stopped.is_some_and(|(stopped, _)| stopped == call)
            || said.flatten().any(Result::is_err);
        let is_over = state.failed.is_some();
        let arrivals = state.arrivals.last().cloned();
        drop(state);
        if let Some(arrivals) = arrivals.as_ref().filter(|_| is_stopped) {
            arrivals.stop(call);
        }
        if let Some(arrivals) = arrivals.as_ref().filter(|_| is_over) {
            arrivals.close();
        }
        for flow in early {
            let from = flow.from;
            if let Err(message) = self.pass_on(flow, arrivals.as_ref()) {
                self.unheard(from);
                self.end(from, message);
            }
        }
    }
}
