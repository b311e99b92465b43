//! Flows between stages. Sends and receives are derived from the actions, never listed.

use std::fmt;

use crate::schedule::action::{Action, Op};

/// The direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Activations, to the next stage.
    Forward,
    /// Gradients, to the previous stage.
    Backward,
}

/// A flow to `stage`. The input of a step is a forward transfer to stage 0, and the gradient from
/// the loss stage a backward one to the last stage.
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

    /// The sending stage; `None` for the caller. The last stage stands for the loss stage.
    pub const fn sender(self, stages: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.stage.checked_sub(1),
            Direction::Backward if self.stage.saturating_add(1) < stages => Some(self.stage + 1),
            Direction::Backward => Some(self.stage),
        }
    }

    /// The index in a dense table of all transfers of a step.
    pub const fn index(self, micro_batches: usize) -> usize {
        (2 * self.stage + self.direction as usize) * micro_batches + self.micro_batch
    }

    /// The length of the dense table.
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
    /// The flow that the action receives.
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

    /// The flow that the action sends in a pipeline of `stages`. The last stage's forward pass
    /// includes the loss, which sends a gradient to that same stage.
    pub(crate) const fn sends(self, stages: usize) -> Option<Transfer> {
        match self.op {
            Op::Forward if self.stage.saturating_add(1) < stages => Some(Transfer::new(
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
