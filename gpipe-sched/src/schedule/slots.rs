//! The maximum number of flows in flight between two stages.

use crate::schedule::data::Schedule;
use crate::schedule::transfer::{Direction, Transfer};

/// The maximum number of flows in flight on each link. See [`Schedule::slots`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slots {
    /// From stage `s` to the next. The last stage's link leads to the loss stage, which takes a
    /// flow at once: 0.
    pub forward: Vec<usize>,
    /// To stage `s` from the next; to the last stage from the loss stage.
    pub backward: Vec<usize>,
}

impl Schedule {
    /// The maximum number of flows in flight on each link, sent and not yet received, for any cost
    /// of the actions: the capacity with which no send ever blocks.
    ///
    /// When a stage sends, the receiver may be arbitrarily late, but it has passed the action that
    /// sent the last flow which the sender received from it. Counting from there is exact where
    /// neighbouring devices depend on each other only directly, as with one stage per device;
    /// elsewhere it is an upper bound.
    pub fn slots(&self) -> Slots {
        let last = self.stages() - 1;
        let sent_at = self.sent_at();
        let most = |direction, taker| self.most_in_flight(&sent_at, direction, taker);
        let mut forward: Vec<usize> = (1..self.stages())
            .map(|taker| most(Direction::Forward, taker))
            .collect();
        forward.push(0);
        let trains = !self.is_forward_only();
        let backward = (0..=last).map(|taker| {
            if trains {
                most(Direction::Backward, taker)
            } else {
                0
            }
        });
        Slots {
            forward,
            backward: backward.collect(),
        }
    }

    /// The position in its lane of the action that sends each flow.
    fn sent_at(&self) -> Vec<usize> {
        let mut sent_at = vec![0; Transfer::table(self.stages(), self.micro_batches())];
        for lane in self.lanes() {
            for (position, action) in lane.iter().enumerate() {
                if let Some(transfer) = action.sends(self.stages()) {
                    sent_at[transfer.index(self.micro_batches())] = position;
                }
            }
        }
        sent_at
    }

    fn most_in_flight(&self, sent_at: &[usize], direction: Direction, taker: usize) -> usize {
        let stages = self.stages();
        let here = |transfer: Transfer| transfer.direction == direction && transfer.stage == taker;
        let sender = Transfer::new(direction, taker, 0)
            .sender(stages)
            .unwrap_or(taker);
        let (from, to) = (self.device_of()[sender], self.device_of()[taker]);
        let (mut sent, mut taken, mut peak) = (0, 0, 0);
        // Actions of the receiver's lane that are known to be done.
        let mut over = 0;
        for (position, action) in self.lanes()[from].iter().enumerate() {
            let known = if from == to {
                position + 1
            } else {
                let heard = action.receives().filter(|transfer| {
                    transfer
                        .sender(stages)
                        .is_some_and(|stage| self.device_of()[stage] == to)
                });
                heard.map_or(0, |transfer| {
                    sent_at[transfer.index(self.micro_batches())] + 1
                })
            };
            while over < known {
                taken += usize::from(self.lanes()[to][over].receives().is_some_and(here));
                over += 1;
            }
            if action.sends(stages).is_some_and(here) {
                sent += 1;
                peak = peak.max(sent - taken);
            }
        }
        peak
    }
}
