//! The maximum number of flows in flight between two stages.

use std::collections::HashMap;

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
    /// elsewhere it is an upper bound. Linear in the number of actions where a device has a few neighbours.
    pub fn slots(&self) -> Slots {
        let stages = self.stages();
        let sent_at = self.sent_at();
        let mut links = vec![[Link::default(); 2]; stages];
        for device in 0..self.devices() {
            self.count_sent(device, &sent_at, &mut links);
        }
        let most = |direction: Direction, taker: usize| links[taker][direction as usize].most;
        let mut forward: Vec<usize> = (1..stages)
            .map(|taker| most(Direction::Forward, taker))
            .collect();
        forward.push(0);
        let trains = !self.is_forward_only();
        let backward = (0..stages).map(|taker| {
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

    /// Counts the flows that a device sends, on the links that they take, and those that it knows to be received.
    fn count_sent(&self, device: usize, sent_at: &[usize], links: &mut [[Link; 2]]) {
        let (stages, micro_batches) = (self.stages(), self.micro_batches());
        let sender = |transfer: Transfer| {
            let sender = transfer.sender(stages)?;
            Some(self.device_of()[sender])
        };
        // Actions of a receiver's lane that are known to be done.
        let mut over: HashMap<usize, usize> = HashMap::new();
        for (position, action) in self.lanes()[device].iter().enumerate() {
            let heard = action.receives().and_then(|transfer| {
                let from = sender(transfer).filter(|&from| from != device)?;
                Some((from, sent_at[transfer.index(micro_batches)] + 1))
            });
            for (receiver, known) in heard.into_iter().chain([(device, position + 1)]) {
                let over = over.entry(receiver).or_default();
                while *over < known {
                    let received = self.lanes()[receiver][*over].receives();
                    if let Some(received) = received.filter(|&flow| sender(flow) == Some(device)) {
                        links[received.stage][received.direction as usize].received += 1;
                    }
                    *over += 1;
                }
            }
            if let Some(transfer) = action.sends(stages) {
                let link = &mut links[transfer.stage][transfer.direction as usize];
                link.sent += 1;
                link.most = link.most.max(link.sent - link.received);
            }
        }
    }
}

/// Flows of a link so far.
#[derive(Clone, Copy, Default)]
struct Link {
    sent: usize,
    /// Known to the sender.
    received: usize,
    /// The most that may be in flight at once.
    most: usize,
}
