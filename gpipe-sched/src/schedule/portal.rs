//! Portals: tensors that pass stages go straight from the stage that gives them to the one that takes them.

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};
use crate::schedule::walk::walk;

/// The way of a tensor past at least one stage: its activations go from the forward pass of `from` to that
/// of `to`, its gradient from the backward pass of `to` to that of `from`. Flows between neighbours order
/// these passes already, so no schedule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portal {
    /// The stage that gives the tensor.
    pub from: usize,
    /// The stage that takes it, at least two behind `from`.
    pub to: usize,
}

impl Portal {
    /// The transfer in which a portal's tensor would arrive at its taker.
    pub(crate) const fn arrives(self, direction: Direction, micro_batch: usize) -> Transfer {
        let stage = match direction {
            Direction::Forward => self.to,
            Direction::Backward => self.from,
        };
        Transfer::new(direction, stage, micro_batch)
    }

    /// The stage that sends in this direction.
    pub(crate) const fn sender(self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.from,
            Direction::Backward => self.to,
        }
    }
}

impl Schedule {
    /// The maximum number of micro-batches whose tensor is in transit through a portal, activations and
    /// gradients, for any cost of the actions.
    ///
    /// When a stage gives a tensor, the taker has taken those that some flow known to the giver followed,
    /// and may be arbitrarily late with all others.
    ///
    /// Both stages of the portal are of this schedule, with others between them: of another portal the numbers mean nothing.
    pub fn portal_slots(&self, portal: Portal) -> [usize; 2] {
        [Direction::Forward, Direction::Backward]
            .map(|direction| self.most_in_portal(portal, direction))
    }

    fn most_in_portal(&self, portal: Portal, direction: Direction) -> usize {
        let (stages, micro_batches) = (self.stages(), self.micro_batches());
        // How many tensors each lane knows to be taken, and the sender of each flow knew.
        let mut taken = vec![0_usize; self.devices()];
        let mut told = vec![0; Transfer::table(stages, micro_batches)];
        let (mut given, mut most) = (0_usize, 0);
        let visit = |device: usize, _, action: Action| {
            if let Some(transfer) = action.receives() {
                let takes = transfer == portal.arrives(direction, action.micro_batch);
                let heard = taken[device].max(told[transfer.index(micro_batches)]);
                taken[device] = heard + usize::from(takes);
            }
            if let Some(transfer) = action.sends(stages) {
                told[transfer.index(micro_batches)] = taken[device];
                // The last stage's forward pass sends a gradient from the loss to itself.
                let leaves = transfer.direction == direction && transfer.stage != action.stage;
                if leaves && action.stage == portal.sender(direction) {
                    given += 1;
                    most = most.max(given.saturating_sub(taken[device]));
                }
            }
        };
        let walked = walk(self.device_of(), micro_batches, self.lanes(), visit);
        debug_assert!(walked.is_ok(), "a schedule that exists has no deadlock");
        most
    }
}
