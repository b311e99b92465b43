//! Numbers of other micro-batches that a stage holds during its actions.

use gpipe_sched::{Action, Op};

/// Micro-batches held besides the current one, at those actions that can have the peak.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InFlight {
    /// During forward passes.
    pub forward: Vec<Others>,
    /// During backward passes or input gradients.
    pub back: Vec<Others>,
    /// During weight gradients: the current micro-batch counts as pending.
    pub weight: Vec<Others>,
    /// Whether some input and weight gradients are separate actions.
    pub split: bool,
    /// Whether some are one action.
    pub whole: bool,
}

/// Numbers of micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Forward pass done, backward pass not begun.
    pub remembered: u64,
    /// Input gradient done, weight gradient not.
    pub pending: u64,
}

impl InFlight {
    /// The numbers of a stage with these actions.
    pub fn new(actions: impl Iterator<Item = Action>) -> Self {
        let mut in_flight = Self::default();
        let mut now = Others::default();
        for action in actions {
            match action.op {
                Op::Forward => {
                    note(&mut in_flight.forward, now);
                    now.remembered += 1;
                }
                Op::Backward | Op::InputGrad => {
                    now.remembered -= 1;
                    note(&mut in_flight.back, now);
                    if action.op == Op::InputGrad {
                        in_flight.split = true;
                        now.pending += 1;
                    } else {
                        in_flight.whole = true;
                    }
                }
                Op::WeightGrad => {
                    note(&mut in_flight.weight, now);
                    now.pending -= 1;
                }
                Op::Recompute => {}
            }
        }
        in_flight
    }
}

/// Adds a pair of numbers unless another is at least as large in both.
fn note(in_flight: &mut Vec<Others>, new: Others) {
    let covers = |a: &Others, b: &Others| a.remembered >= b.remembered && a.pending >= b.pending;
    if !in_flight.iter().any(|old| covers(old, &new)) {
        in_flight.retain(|old| !covers(&new, old));
        in_flight.push(new);
    }
}
