//! What crosses a boundary between stages. Sends and receives are derived here from the actions,
//! never authored.

use std::fmt;

use crate::schedule::action::{Action, Op};

/// Which way a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Activations, towards the loss.
    Forward,
    /// Gradients, away from it.
    Backward,
}

/// A flow on its way to `stage`. The input of a step is on its way to stage 0, and the gradient
/// that the turn made is on its way back to the last stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub direction: Direction,
    pub stage: usize,
    pub micro_batch: usize,
}

impl Transfer {
    pub const fn new(direction: Direction, stage: usize, micro_batch: usize) -> Self {
        Self {
            direction,
            stage,
            micro_batch,
        }
    }

    /// The stage that sets it off, if it is not the caller.
    pub const fn sender(self, stages: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.stage.checked_sub(1),
            Direction::Backward if self.stage + 1 < stages => Some(self.stage + 1),
            Direction::Backward => Some(self.stage),
        }
    }

    /// Its place in a dense table of all flows of a step.
    pub const fn index(self, micro_batches: usize) -> usize {
        (2 * self.stage + self.direction as usize) * micro_batches + self.micro_batch
    }

    /// The size of that table.
    pub const fn table(stages: usize, micro_batches: usize) -> usize {
        2 * stages * micro_batches
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = match self.direction {
            Direction::Forward => "activations",
            Direction::Backward => "gradients",
        };
        write!(
            f,
            "{flow} of micro-batch {} for stage {}",
            self.micro_batch, self.stage
        )
    }
}

impl Action {
    /// The flow that the action waits for.
    pub(crate) const fn receives(self) -> Option<Transfer> {
        match self.op {
            Op::Forward => Some(Transfer::new(
                Direction::Forward,
                self.stage,
                self.micro_batch,
            )),
            Op::Backward | Op::InputGrad => Some(Transfer::new(
                Direction::Backward,
                self.stage,
                self.micro_batch,
            )),
            Op::WeightGrad | Op::Recompute => None,
        }
    }

    /// The flow that the action sets off in a pipeline of `stages`. The last stage's forward pass
    /// gives its outputs to the turn, which answers with a gradient for that same stage.
    pub(crate) const fn sends(self, stages: usize) -> Option<Transfer> {
        match self.op {
            Op::Forward if self.stage + 1 < stages => Some(Transfer::new(
                Direction::Forward,
                self.stage + 1,
                self.micro_batch,
            )),
            Op::Forward => Some(Transfer::new(
                Direction::Backward,
                self.stage,
                self.micro_batch,
            )),
            Op::Backward | Op::InputGrad if self.stage > 0 => Some(Transfer::new(
                Direction::Backward,
                self.stage - 1,
                self.micro_batch,
            )),
            _ => None,
        }
    }
}
