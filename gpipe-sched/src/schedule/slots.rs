//! How many flows can be between two stages at once.

use crate::schedule::data::Schedule;
use crate::schedule::hop::{Direction, Hop};

/// The most flows in flight on each link. See [`Schedule::slots`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// From stage `s` to the next. The last stage's link leads to the turn, which takes a flow at
    /// once: 0.
    pub forward: Vec<usize>,
    /// Back to stage `s` from the next; to the last one from the turn.
    pub backward: Vec<usize>,
}

impl Schedule {
    /// The most flows in flight on each link, set off and not yet taken, whatever the actions cost:
    /// what a transport must be able to hold so that no send ever waits.
    ///
    /// When a stage sends, the receiver may be arbitrarily late, but not later than the last thing
    /// that the sender has had from its device. Counting from there is exact where neighbouring
    /// devices hear of each other only directly, as with one stage a device; elsewhere it is an
    /// upper bound.
    pub fn slots(&self) -> Slots {
        let last = self.stages() - 1;
        let given_at = self.given_at();
        let most = |direction, taker| self.most_in_flight(&given_at, direction, taker);
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

    /// Where in its lane the action is that sets off each flow.
    fn given_at(&self) -> Vec<usize> {
        let mut given_at = vec![0; Hop::table(self.stages(), self.micro_batches())];
        for lane in self.lanes() {
            for (position, action) in lane.iter().enumerate() {
                if let Some(hop) = action.gives(self.stages()) {
                    given_at[hop.index(self.micro_batches())] = position;
                }
            }
        }
        given_at
    }

    fn most_in_flight(&self, given_at: &[usize], direction: Direction, taker: usize) -> usize {
        let stages = self.stages();
        let here = |hop: Hop| hop.direction == direction && hop.stage == taker;
        let giver = Hop::new(direction, taker, 0).giver(stages).unwrap_or(taker);
        let (from, to) = (self.device_of()[giver], self.device_of()[taker]);
        let (mut sent, mut taken, mut peak) = (0, 0, 0);
        // How much of the receiver's lane is known to be over.
        let mut over = 0;
        for (position, action) in self.lanes()[from].iter().enumerate() {
            let known = if from == to {
                position + 1
            } else {
                let heard = action.takes().filter(|hop| {
                    hop.giver(stages)
                        .is_some_and(|stage| self.device_of()[stage] == to)
                });
                heard.map_or(0, |hop| given_at[hop.index(self.micro_batches())] + 1)
            };
            while over < known {
                taken += usize::from(self.lanes()[to][over].takes().is_some_and(here));
                over += 1;
            }
            if action.gives(stages).is_some_and(here) {
                sent += 1;
                peak = peak.max(sent - taken);
            }
        }
        peak
    }
}
