//! Removes idle time from the ends of a schedule with a good steady state.

use crate::schedule::action::{Action, Op};
use crate::schedule::transfer::{Direction, Transfer};

/// Simulates lanes in unit time, and lets a device that would wait run a later action of its lane
/// that is ready (Qi et al. 2024 squeeze and reorder to the same end). Actions of the same stage
/// and operation keep their order, so ascending stays ascending, and no forward pass is moved ahead
/// where more than `held` micro-batches would be live.
///
/// Once the first stage of the device has no forward pass left, actions for which other devices
/// wait precede weight gradients.
pub(super) fn compact(
    device_of: &[usize],
    micro_batches: usize,
    lanes: Vec<Vec<Action>>,
    held: usize,
) -> Vec<Vec<Action>> {
    let stages = device_of.len();
    let mut sent = vec![false; Transfer::table(stages, micro_batches)];
    for m in 0..micro_batches {
        sent[Transfer::new(Direction::Forward, 0, m).index(micro_batches)] = true;
    }
    // Input gradients done by each stage; they ascend.
    let mut back = vec![0; stages];
    let mut lanes: Vec<Lane> = lanes.into_iter().map(Lane::new).collect();
    // A device that had no ready action sleeps until a flow arrives for it.
    let mut awake: Vec<usize> = (0..lanes.len()).collect();
    let mut picked = Vec::with_capacity(lanes.len());
    while !awake.is_empty() {
        for device in awake.drain(..) {
            let ready = |action: Action| match action.receives() {
                Some(transfer) => sent[transfer.index(micro_batches)],
                None => action.micro_batch < back[action.stage],
            };
            let action = lanes[device].pick(held, ready);
            picked.extend(action.map(|action| (device, action)));
        }
        // Results of this unit of time are available in the next.
        for (device, action) in picked.drain(..) {
            awake.push(device);
            back[action.stage] += usize::from(action.op == Op::InputGrad);
            if let Some(transfer) = action.sends(stages) {
                sent[transfer.index(micro_batches)] = true;
                awake.push(device_of[transfer.stage]);
            }
        }
        awake.sort_unstable();
        awake.dedup();
    }
    lanes.into_iter().map(|lane| lane.compacted).collect()
}

struct Lane {
    actions: Vec<Action>,
    done: Vec<bool>,
    /// The first action that is not done.
    head: usize,
    live: usize,
    /// The stage of the lane's first action.
    first: usize,
    /// Actions of each kind that are not done.
    left: [usize; KINDS],
    compacted: Vec<Action>,
}

/// Kinds of action: the operations of the lane's first stage, and those of the other.
const KINDS: usize = 2 * Op::ALL.len();

impl Lane {
    fn new(actions: Vec<Action>) -> Self {
        let first = actions.first().map_or(0, |action| action.stage);
        let mut left = [0; KINDS];
        for &action in &actions {
            left[kind(action, first)] += 1;
        }
        Self {
            done: vec![false; actions.len()],
            head: 0,
            live: 0,
            first,
            left,
            compacted: Vec::with_capacity(actions.len()),
            actions,
        }
    }

    /// Runs the next action, if any is ready.
    fn pick(&mut self, held: usize, ready: impl Fn(Action) -> bool) -> Option<Action> {
        let position = self.choose(held, ready)?;
        let action = self.actions[position];
        self.done[position] = true;
        while self.done.get(self.head) == Some(&true) {
            self.head += 1;
        }
        self.live += usize::from(action.op == Op::Forward);
        self.live -= usize::from(action.op.adds_gradient());
        self.left[kind(action, self.first)] -= 1;
        self.compacted.push(action);
        Some(action)
    }

    fn choose(&self, held: usize, ready: impl Fn(Action) -> bool) -> Option<usize> {
        let mut live = self.live;
        let mut peak = live;
        let mut weight_grad = None;
        let mut seen = [false; KINDS];
        let mut unseen = self.left.iter().filter(|&&left| left > 0).count();
        let drains = self.left[Op::Forward as usize] == 0;
        for position in self.head..self.actions.len() {
            let action = self.actions[position];
            if self.done[position] {
                continue;
            }
            if !std::mem::replace(&mut seen[kind(action, self.first)], true) {
                unseen -= 1;
                let fits = position == self.head || action.op != Op::Forward || peak < held;
                if fits && ready(action) {
                    if !drains || action.op != Op::WeightGrad {
                        return Some(position);
                    }
                    weight_grad = weight_grad.or(Some(position));
                }
                if unseen == 0 {
                    break;
                }
            }
            live += usize::from(action.op == Op::Forward);
            peak = peak.max(live);
            live = live.saturating_sub(usize::from(action.op.adds_gradient()));
        }
        weight_grad
    }
}

fn kind(action: Action, first: usize) -> usize {
    action.op as usize + usize::from(action.stage != first) * Op::ALL.len()
}
