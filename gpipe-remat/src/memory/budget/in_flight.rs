//! How many other micro-batches a stage holds whenever it acts.

use gpipe_sched::{Action, Op};

/// What is held beside the micro-batch that is worked on, at the moments that can be the worst.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InFlight {
    /// During forward passes.
    pub forward: Vec<Others>,
    /// During backward passes or input gradients.
    pub back: Vec<Others>,
    /// During weight gradients: the micro-batch that is worked on counts as pending.
    pub weight: Vec<Others>,
    /// Whether some input and weight gradients are taken apart.
    pub split: bool,
    /// Whether some are taken together.
    pub whole: bool,
}

/// Numbers of micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Forward done, backward not begun.
    pub remembered: u64,
    /// Input gradient taken, weight gradient not.
    pub pending: u64,
}

impl InFlight {
    /// Those of a stage that acts like this.
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

/// Remembers a moment unless another has at least as many of both.
fn note(in_flight: &mut Vec<Others>, new: Others) {
    let covers = |a: &Others, b: &Others| a.remembered >= b.remembered && a.pending >= b.pending;
    if !in_flight.iter().any(|old| covers(old, &new)) {
        in_flight.retain(|old| !covers(&new, old));
        in_flight.push(new);
    }
}
