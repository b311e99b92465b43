//! Moves recomputation to where a device would wait.

use std::collections::{HashMap, HashSet};

use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::simulate::costs::Costs;
use crate::simulate::costs_error::CostsError;
use crate::simulate::simulator::simulate;

impl Schedule {
    /// The schedule with an `R` for every micro-batch that is recomputed according to `costs` and
    /// has none. Where a device waits long enough for all of it, the `R` goes there, ahead of the
    /// other actions; otherwise directly before the backward pass, where it uses the rest of the
    /// wait for the gradient.
    ///
    /// An `R` comes after the forward pass of its micro-batch and after the previous backward pass
    /// of its stage: so a stage holds at most one recomputed micro-batch besides the one it works
    /// on. Dependencies between actions do not change, and with these costs no action ends later
    /// than before, unless they [add](Costs::with_additions) seconds to an `R`, which count once it
    /// is there. Flows in flight are those of the schedule without `R`.
    ///
    /// ```
    /// use gpipe_sched::{Costs, gpipe, simulate};
    ///
    /// let costs = Costs::even(4, 1.0, 2.0).with_recompute(8, |_stage, _micro_batch| true);
    /// let schedule = gpipe(4, 8).unwrap();
    /// let early = schedule.recompute_early(&costs)?;
    /// // The first three stages recompute their first micro-batch while they wait for its gradient.
    /// assert_eq!(simulate(&schedule, &costs)?.makespan(), 4.0 * 11.0);
    /// assert_eq!(simulate(&early, &costs)?.makespan(), 4.0 * 11.0 - 3.0);
    /// # Ok::<(), gpipe_sched::CostsError>(())
    /// ```
    ///
    /// # Errors
    /// If the costs do not fit the schedule.
    pub fn recompute_early(&self, costs: &Costs) -> Result<Self, CostsError> {
        let timeline = simulate(self, costs)?;
        let lanes = self.lanes().iter().enumerate().map(|(device, lane)| {
            let mut free = 0.0;
            // Seconds that the device waits before each of its actions.
            let waits: Vec<f64> = timeline
                .of_device(device)
                .iter()
                .map(|span| {
                    let wait = span.start - free;
                    free = span.end;
                    wait
                })
                .collect();
            self.with_recompute_ahead(lane, waits, costs)
        });
        let made = Self::new(
            self.device_of().to_vec(),
            self.micro_batches(),
            lanes.collect(),
        );
        debug_assert!(
            made.is_ok(),
            "an R between F and B of its micro-batch is in order"
        );
        Ok(made.unwrap_or_else(|_| self.clone()))
    }

    /// One lane with its `R` inserted.
    fn with_recompute_ahead(
        &self,
        lane: &[Action],
        mut waits: Vec<f64>,
        costs: &Costs,
    ) -> Vec<Action> {
        let has: HashSet<(usize, usize)> = lane
            .iter()
            .filter(|action| action.op == Op::Recompute)
            .map(|action| (action.stage, action.micro_batch))
            .collect();
        let mut ahead: Vec<Vec<Action>> = vec![Vec::new(); lane.len()];
        let mut forward: HashMap<(usize, usize), usize> = HashMap::new();
        let mut last_back: HashMap<usize, usize> = HashMap::new();
        for (position, &action) in lane.iter().enumerate() {
            let cell = (action.stage, action.micro_batch);
            let device = self.device_of()[action.stage];
            if action.op == Op::Forward {
                forward.insert(cell, position);
            }
            if !action.op.is_backward() {
                continue;
            }
            let before = last_back.insert(action.stage, position);
            if has.contains(&cell) || !costs.recomputes(action, self.micro_batches()) {
                continue;
            }
            let recompute = Action {
                op: Op::Recompute,
                ..action
            };
            let seconds = costs.seconds(device, recompute, true, self.micro_batches());
            // Nothing would be done ahead, as where a stage is one layer that saves its input alone.
            if seconds == 0.0 {
                continue;
            }
            let first = 1 + forward.get(&cell).copied().max(before).unwrap_or(0);
            let place = (first..position).find(|&place| waits[place] >= seconds);
            match place {
                Some(place) => {
                    waits[place] -= seconds;
                    ahead[place].push(recompute);
                }
                // After other `R` at this position.
                None => ahead[position].push(recompute),
            }
        }
        let mut placed = Vec::with_capacity(lane.len());
        for (ahead, &action) in ahead.into_iter().zip(lane) {
            placed.extend(ahead);
            placed.push(action);
        }
        placed
    }
}
